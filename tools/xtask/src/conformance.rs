//! Checks the pages of conformance: every item names its tests, and every named test is there.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, ensure};

const PAGE: &str = "docs/conformance.md";
const ITEMS: usize = 52;

/// The pages of rules, each with the letter that its numbers begin with, and how many defects it must have: D1 and so
/// on.
const RULES: [(&str, char, usize); 3] = [
    ("docs/conformance-templates.md", 'T', 0),
    ("docs/conformance-quarks-jobs.md", 'Q', DEFECTS),
    ("docs/conformance-jobs-mode.md", 'J', 0),
];
/// The number of known defects of the original operator that runs QuarksJobs.
const DEFECTS: usize = 18;
/// The file with the cases of the runner's contract; a macro makes a test of each case that it names.
const CASES: &str = "engine/src/testing/runner_contract/cases.rs";
const MAKES_TESTS: &str = "engine/src/testing/runner_contract/mod.rs";
const CRATES: &str = "crates";
/// The folders of the files by which tests of rules are named; in `tools` are the checks of built programs.
const FOLDERS: [&str; 2] = [CRATES, "tools"];

/// Compares the pages with the tests of the workspace.
pub(crate) fn check() -> anyhow::Result<()> {
    items()?;
    for (path, letter, defects) in RULES {
        let faults = faults(&read(path)?, letter, defects, |file| source(Path::new("."), file));
        ensure!(faults.is_empty(), "{path}:\n{}", faults.join("\n"));
    }
    Ok(())
}

fn read(page: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(page).with_context(|| format!("{page} cannot be read"))
}

/// The text of a file by which a test is named.
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

/// All names `item_NN_…` that follow `before`.
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
            let source = std::fs::read_to_string(&path)?;
            names_found.extend(names(&source, "fn ").into_iter().filter(|it| is_test(&source, it)));
        }
    }
    Ok(())
}

/// The faults of a page of rules. Its rows have a number (`T1.2`, where `T` is the page's letter), a rule, what
/// Manciple does, and `FILE::NAME` of each test, or why there is none. Numbers follow each other; a test is there if
/// its file, as `source` returns it, has it. Each of the `defects` is the rule of a row that has a test.
fn faults(
    page: &str,
    letter: char,
    defects: usize,
    source: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut held = BTreeSet::new();
    let (mut section, mut last) = (0, 0);
    let row_start = format!("| {letter}");
    for row in page.lines().filter(|line| line.starts_with(&row_start)) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [number, rule, _, tests] = cells.as_slice() else {
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
        if !named.is_empty() {
            held.extend(defect(rule));
        }
        for (file, name) in named {
            let is_there = match file {
                CASES => source(MAKES_TESTS).is_some_and(|it| names_case(&it, name)),
                _ => source(file).is_some_and(|it| is_test(&it, name)),
            };
            if !is_there {
                faults.push(format!("{number}: {file} has no test {name}"));
            }
        }
    }
    if last == 0 {
        faults.push("there are no rules".to_owned());
    }
    let unheld = (1..=defects).filter(|number| !held.contains(number));
    faults.extend(unheld.map(|number| format!("defect D{number} has no row with a test")));
    faults
}

/// The number of the defect that a rule names: `Defect D1: …`.
fn defect(rule: &str) -> Option<usize> {
    rule.strip_prefix("Defect D")?.split_once(':')?.0.parse().ok()
}

/// Whether a macro makes a test of this case: the case is in a line of its own there.
fn names_case(source: &str, name: &str) -> bool {
    source.lines().any(|line| line.trim() == name)
}

/// Whether a file has a test of this name that is run: a helper, or an ignored test, checks nothing.
fn is_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_named = |line: &str| {
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        function.and_then(|it| it.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    };
    let is_run = |at: usize| {
        let above = lines[..at].iter().rev();
        let above = above.take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        let (mut is_one, mut is_ignored) = (false, false);
        for line in above {
            is_one |= *line == "#[test]" || line.starts_with("#[tokio::test");
            is_ignored |= line.starts_with("#[ignore");
        }
        is_one && !is_ignored
    };
    lines.iter().enumerate().any(|(at, line)| is_named(line) && is_run(at))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{CASES, MAKES_TESTS, RULES, faults, is_test, source};

    /// What is wrong with a page that is to have one defect.
    fn of(page: &str) -> Vec<String> {
        faults(page, 'T', 1, |file| match file {
            "a/src/b.rs" => Some("#[test]\nfn is_there() {}\nfn helps() {}".to_owned()),
            CASES => Some("pub async fn a_case() {}\npub async fn no_case() {}".to_owned()),
            MAKES_TESTS => Some("of! {\n    a_case\n}\n".to_owned()),
            _ => None,
        })
    }

    /// A row with the defect.
    const HELD: &str = "| T9.1 | Defect D1: it hangs | it ends | `a/src/b.rs::is_there` |\n";

    #[test]
    fn the_pages_of_rules_name_tests_that_are_there() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        for (path, letter, defects) in RULES {
            let page = std::fs::read_to_string(root.join(path)).unwrap();
            let faults = faults(&page, letter, defects, |file| source(root, file));
            assert_eq!(faults, [""; 0], "{path}");
        }
    }

    #[test]
    fn a_page_without_faults_has_none() {
        let page = "# A page\n| | rule | here | tests |\n\
                    | T1.1 | a rule | same | `a/src/b.rs::is_there`<br>`a/src/b.rs::is_there` |\n\
                    | T1.2 | another | not | none: for a reason |\n\
                    | T3.1 | c | same | `engine/src/testing/runner_contract/cases.rs::a_case` |\n";
        assert_eq!(of(&format!("{page}{HELD}")), [""; 0]);
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
            ("| T1.1 | a | same | `a/src/b.rs::helps` |", "T1.1: a/src/b.rs has no test helps"),
            (
                "| T1.1 | a | same | `engine/src/testing/runner_contract/cases.rs::no_case` |",
                "T1.1: engine/src/testing/runner_contract/cases.rs has no test no_case",
            ),
            (
                "| T1.1 | Defect D2: it hangs | it ends | `a/src/b.rs::is_there` |",
                "defect D1 has no row with a test",
            ),
            ("| T1.1 | Defect D1: it | not | none: why |", "defect D1 has no row with a test"),
            ("| T1.2 | a rule | not | none: why |", "T1.2 does not follow T0.0"),
            (
                "| T1.1 | a | not | none: why |\n| T1.3 | b | not | none: why |",
                "T1.3 does not follow T1.1",
            ),
        ] {
            assert_eq!(of(page).first().map(String::as_str), Some(expected), "{page}");
        }
    }

    #[test]
    fn a_test_is_what_is_run_as_one() {
        for (name, file, expected) in [
            ("one", "#[test]\nfn it() {}", true),
            ("one of many", "#[test]\nfn other() {}\n\n    #[test]\n    fn it() {}", true),
            ("one that waits", "#[tokio::test(start_paused = true)]\nasync fn it() {}", true),
            (
                "one that is told of, and has more attributes",
                "/// So.\n#[test]\n// Why.\n#[cfg(target_arch = \"x86_64\")]\nfn it() {}",
                true,
            ),
            ("one of drawn values", "proptest! {\n    #[test]\n    fn it(n in 0..9) {}\n}", true),
            ("a helper", "fn it() {}", false),
            ("a helper behind a test", "#[test]\nfn other() {}\n\nfn it() {}", false),
            ("a helper that others call", "pub(crate) fn it() {}", false),
            ("one that is ignored", "#[test]\n#[ignore]\nfn it() {}", false),
            ("one that is, and says why", "#[ignore = \"slow\"]\n#[test]\nfn it() {}", false),
            ("one that is no more", "// #[test]\n// fn it() {}", false),
            ("one that begins so", "#[test]\nfn it_is() {}", false),
            ("one that ends so", "#[test]\nfn is_it() {}", false),
            ("a word of it", "#[test]\nfn other() { \"fn it() {}\" }", false),
            ("nothing", "", false),
        ] {
            assert_eq!(is_test(file, "it"), expected, "{name}");
        }
    }
}
