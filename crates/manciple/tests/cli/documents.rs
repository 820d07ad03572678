//! What the program says of itself for others to keep.

use std::process::Command;

/// Where definitions are checked in, how the program is asked for them, and how many there are.
const KEPT: [(&str, &[&str], usize); 3] = [
    ("deploy/crds/manciple.yaml", &["crds"], 5),
    ("charts/manciple/crds/manciple.yaml", &["crds"], 5),
    ("deploy/templates/crds.yaml", &["crds", "--templates"], 3),
];

#[test]
fn the_definitions_that_are_checked_in_are_those_of_the_program() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for (path, arguments, count) in KEPT {
        let output = Command::new(env!("CARGO_BIN_EXE_manciple")).args(arguments).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let kept = std::fs::read_to_string(format!("{root}/{path}")).unwrap();
        assert!(kept == printed, "{path} is not what is printed: cargo xtask manifests");
        assert_eq!(printed.matches("\nkind: CustomResourceDefinition\n").count(), count, "{path}");
    }
}
