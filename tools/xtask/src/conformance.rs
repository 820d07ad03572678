//! Keeps the pages of conformance true: every item names its tests, and every named test is there.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, ensure};

const PAGE: &str = "docs/conformance.md";
const ITEMS: usize = 52;

/// Pages of rules, and the letter that their numbers begin with.
const RULES: [(&str, char); 3] = [
    ("docs/conformance-templates.md", 'T'),
    ("docs/conformance-quarks-jobs.md", 'Q'),
    ("docs/conformance-jobs-mode.md", 'J'),
];
const CRATES: &str = "crates";
/// Where the files are that tests of rules are named by; in `tools` is what looks at programs as they are built.
const FOLDERS: [&str; 2] = [CRATES, "tools"];

/// Compares the pages with the tests of the workspace.
pub(crate) fn check() -> anyhow::Result<()> {
    items()?;
    for (path, letter) in RULES {
        let faults = faults(&read(path)?, letter, |file| source(Path::new("."), file));
        ensure!(faults.is_empty(), "{path}:\n{}", faults.join("\n"));
    }
    Ok(())
}

fn read(page: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(page).with_context(|| format!("{page} cannot be read"))
}

/// A file that a test is named by.
fn source(root: &Path, file: &str) -> Option<String> {
    let read = |folder: &str| std::fs::read_to_string(root.join(folder).join(file)).ok();
    FOLDERS.into_iter().find_map(read)
}

fn items() -> anyhow::Result<()> {
    let page = read(PAGE)?;
    let named = names(&page, "`");
    let mut there = BTreeSet::new();
    collect(Path::new(CRATES), &mut there)?;
    let missing: Vec<_> = named.difference(&there).collect();
    ensure!(missing.is_empty(), "{PAGE} names tests that are not there: {missing:?}");
    let unnamed: Vec<_> = there.difference(&named).collect();
    ensure!(unnamed.is_empty(), "{PAGE} does not name these tests: {unnamed:?}");
    for item in 1..=ITEMS {
        let prefix = format!("item_{item:02}_");
        ensure!(named.iter().any(|name| name.starts_with(&prefix)), "item {item} has no test");
    }
    Ok(())
}

/// Every `item_NN_…` that follows `before`.
fn names(text: &str, before: &str) -> BTreeSet<String> {
    let start = format!("{before}item_");
    let found = text.match_indices(&start).map(|(at, _)| &text[at + before.len()..]);
    let name = |rest: &str| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        rest[..end.unwrap_or(rest.len())].to_owned()
    };
    found.map(name).collect()
}

fn collect(folder: &Path, names_found: &mut BTreeSet<String>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, names_found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            names_found.extend(names(&std::fs::read_to_string(&path)?, "fn "));
        }
    }
    Ok(())
}

/// What is wrong with a page of rules: rows of a number (`T1.2`, where `T` is the page's letter), a rule, what we do,
/// and `FILE::NAME` of each test, or why there is none. Numbers follow each other; a test is there if its file, as `source` has it, has it.
fn faults(page: &str, letter: char, source: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut section, mut last) = (0, 0);
    let row_start = format!("| {letter}");
    for row in page.lines().filter(|line| line.starts_with(&row_start)) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [number, _, _, tests] = cells.as_slice() else {
            faults.push(format!("no four cells: {row}"));
            continue;
        };
        let found = number[1..].split_once('.').and_then(|(section, index)| {
            Some((section.parse::<usize>().ok()?, index.parse::<usize>().ok()?))
        });
        let follows = |(of, index): (usize, usize)| match of == section {
            true => index == last + 1,
            false => of > section && index == 1,
        };
        if !found.is_some_and(follows) {
            faults.push(format!("{number} does not follow {letter}{section}.{last}"));
        }
        (section, last) = found.unwrap_or((section, last));
        let named: Vec<(&str, &str)> =
            tests.split('`').filter_map(|it| it.split_once("::")).collect();
        if named.is_empty() && !tests.starts_with("none: ") {
            faults.push(format!("{number} has no test, and does not say why"));
        }
        for (file, name) in named {
            let is_there =
                source(file).is_some_and(|source| source.contains(&format!("fn {name}(")));
            if !is_there {
                faults.push(format!("{number}: {file} has no test {name}"));
            }
        }
    }
    if last == 0 {
        faults.push("there are no rules".to_owned());
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{RULES, faults, source};

    fn of(page: &str) -> Vec<String> {
        faults(page, 'T', |file| (file == "a/src/b.rs").then(|| "fn is_there() {}".to_owned()))
    }

    #[test]
    fn the_pages_of_rules_name_tests_that_are_there() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        for (path, letter) in RULES {
            let page = std::fs::read_to_string(root.join(path)).unwrap();
            assert_eq!(faults(&page, letter, |file| source(root, file)), [""; 0], "{path}");
        }
    }

    #[test]
    fn a_page_without_faults_has_none() {
        let page = "# A page\n| | rule | here | tests |\n\
                    | T1.1 | a rule | same | `a/src/b.rs::is_there`<br>`a/src/b.rs::is_there` |\n\
                    | T1.2 | another | not | none: for a reason |\n\
                    | T3.1 | a third | same | `a/src/b.rs::is_there` |\n";
        assert_eq!(of(page), [""; 0]);
    }

    #[test]
    fn what_is_wrong_with_a_page_is_said() {
        for (page, expected) in [
            ("", "there are no rules"),
            ("| T1.1 | a rule | same | |", "T1.1 has no test, and does not say why"),
            ("| T1.1 | a rule | none: why |", "no four cells: | T1.1 | a rule | none: why |"),
            (
                "| T1.1 | a rule | same | `a/src/b.rs::is_gone` |",
                "T1.1: a/src/b.rs has no test is_gone",
            ),
            ("| T1.1 | a rule | same | `a/b.rs::is_there` |", "T1.1: a/b.rs has no test is_there"),
            ("| T1.2 | a rule | not | none: why |", "T1.2 does not follow T0.0"),
            (
                "| T1.1 | a | not | none: why |\n| T1.3 | b | not | none: why |",
                "T1.3 does not follow T1.1",
            ),
        ] {
            assert_eq!(of(page).first().map(String::as_str), Some(expected), "{page}");
        }
    }
}
