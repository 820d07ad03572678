//! The script of `docs/quarks-jobs.md` that stands in for the original's program.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn executable(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn q1_17_what_starts_the_original_as_a_program_starts_this_one() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/quarks-jobs.md");
    let page = std::fs::read_to_string(page).unwrap();
    let begins = page.find("#!/bin/sh\n").unwrap();
    let script = page[begins..].split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("quarks-job");
    executable(&program, script);
    executable(
        &folder.path().join("manciple"),
        "#!/bin/sh\n[ \"$*\" != --version ] || { echo manciple 1.2.3; exit; }\necho \"$APPLY_CRD $*\"\n",
    );
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    for (set, words, said) in [
        (None, vec![], "true controller"),
        (Some("false"), vec![], "false controller"),
        (Some(""), vec!["-n", "a"], "true controller -n a"),
        // A flag wins over a variable.
        (None, vec!["--apply-crd=false"], "true controller --apply-crd=false"),
        (None, vec!["help"], " controller --help"),
        (None, vec!["version"], "Quarks-Job Version: 1.2.3"),
    ] {
        let mut command = Command::new(&program);
        command.args(&words).env_clear().env("PATH", &path);
        command.envs(set.map(|set| ("APPLY_CRD", set)));
        let output = command.output().unwrap();
        let found = String::from_utf8(output.stdout).unwrap();
        assert_eq!(found.trim_end(), said, "{set:?} {words:?}");
    }
}
