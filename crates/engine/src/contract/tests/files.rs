use super::*;

#[test]
fn a_file_that_is_no_catalog_is_told_by_its_path() {
    let here = env!("CARGO_MANIFEST_DIR");
    let cases = [
        // It has no end.
        ("/dev/zero".to_owned(), Reason::NotStarted, "it is no regular file"),
        (here.to_owned(), Reason::NotStarted, "it is no regular file"),
        (format!("{here}/no such file"), Reason::NotStarted, "it cannot be read: No such file"),
        (format!("{here}/Cargo.toml"), Reason::NotJson, "not JSON"),
    ];
    for (path, reason, says) in cases {
        let failure = of_file(path.as_ref()).unwrap_err();
        let said = failure.failure.description;
        assert_eq!(failure.reason, reason, "{said}");
        assert!(said.starts_with(&format!("the catalog file {path}: ")), "{said}");
        assert!(said.contains(says), "{said}");
    }
}
