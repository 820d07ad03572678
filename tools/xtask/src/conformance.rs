//! Keeps `docs/conformance.md` true: every item names its tests, and every named test is there.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, ensure};

const PAGE: &str = "docs/conformance.md";
const ITEMS: usize = 52;

/// Compares the page with the tests of the workspace.
pub(crate) fn check() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(PAGE).with_context(|| format!("{PAGE} cannot be read"))?;
    let named = names(&page, "`");
    let mut there = BTreeSet::new();
    collect(Path::new("crates"), &mut there)?;
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
