//! What the program says of itself for others to keep.

use std::process::Command;

/// Where the definitions are checked in.
const KEPT: [&str; 2] = ["deploy/crds/manciple.yaml", "charts/manciple/crds/manciple.yaml"];

#[test]
fn the_definitions_that_are_checked_in_are_those_of_the_program() {
    let output = Command::new(env!("CARGO_BIN_EXE_manciple")).arg("crds").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for path in KEPT {
        let kept = std::fs::read_to_string(format!("{root}/{path}")).unwrap();
        assert!(
            kept == printed,
            "{path} is not what `manciple crds` prints: cargo xtask manifests"
        );
    }
    assert_eq!(printed.matches("\nkind: CustomResourceDefinition\n").count(), 5);
}
