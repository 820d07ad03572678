//! The properties over the fuzz targets' seeds, and over a few thousand mutations of them: what every
//! test run tries. `cargo xtask fuzz` tries more.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests and their helpers"
)]

use std::path::{Path, PathBuf};

use properties::Property;

/// How many mutations of the seeds of one target.
const MUTATIONS: usize = 4000;

/// The longest mutation, in bytes.
const MAX_LENGTH: usize = 8 * 1024;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

#[test]
fn requests() {
    holds("requests");
}

#[test]
fn broker_output() {
    holds("broker_output");
}

#[test]
fn catalog() {
    holds("catalog");
}

#[test]
fn records() {
    holds("records");
}

#[test]
fn reports() {
    holds("reports");
}

#[test]
fn readiness() {
    holds("readiness");
}

#[test]
fn templates() {
    holds("templates");
}

#[test]
fn translation() {
    holds("translation");
}

#[test]
fn every_property_is_tried_and_has_a_target() {
    let mut targets: Vec<_> = files(&fuzz().join("targets"));
    targets.iter_mut().for_each(|target| *target = target.with_extension(""));
    let mut names: Vec<_> = properties::ALL.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(targets.iter().map(|path| path.file_name().unwrap()).collect::<Vec<_>>(), names);
}

fn holds(name: &str) {
    let property = *properties::ALL.iter().find(|(known, _)| *known == name).unwrap();
    let seeds: Vec<(PathBuf, Vec<u8>)> = files(&fuzz().join("seeds").join(name))
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    assert!(seeds.len() >= 12, "{name} has {} seeds", seeds.len());
    for (path, seed) in &seeds {
        tried(property, seed, &format!("{}", path.display()));
    }
    let words = words();
    let seed = std::env::var("MANCIPLE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random(seed);
    for round in 0..MUTATIONS {
        let mut input = random.pick(&seeds).1.clone();
        for _ in 0..=random.below(4) {
            mutate(&mut input, random.pick(&seeds).1.as_slice(), &words, &mut random);
        }
        input.truncate(MAX_LENGTH);
        tried(property, &input, &format!("round {round} of MANCIPLE_SEED={seed}"));
    }
}

/// Names the input if the property does not hold of it.
fn tried((name, property): Property, input: &[u8], which: &str) {
    if let Err(panic) = std::panic::catch_unwind(|| property(input)) {
        eprintln!("{name} does not hold of {which}:\n{}", String::from_utf8_lossy(input));
        std::panic::resume_unwind(panic);
    }
}

/// One step away from an input, perhaps with a piece of another in it.
fn mutate(input: &mut Vec<u8>, other: &[u8], words: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let end = at + random.below((input.len() - at + 1).min(16));
    match random.below(6) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => drop(input.splice(at..end, random.pick(words).iter().copied())),
        2 => drop(input.drain(at..end)),
        3 => {
            let piece = input[at..end].repeat(1 + random.below(40));
            input.splice(at..at, piece);
        }
        4 => {
            let from = random.below(other.len() + 1);
            let to = from + random.below(other.len() - from + 1);
            input.splice(at..end, other[from..to].iter().copied());
        }
        _ => drop(input.splice(at..end, [u8::try_from(random.below(256)).unwrap()])),
    }
}

/// The words of the fuzzer's dictionary.
fn words() -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(fuzz().join("words.dict")).unwrap();
    let quoted = |line: &str| Some(line.trim().strip_prefix('"')?.strip_suffix('"')?.to_owned());
    let words: Vec<_> = text.lines().filter_map(quoted).collect();
    words.iter().map(|word| unescaped(word)).collect()
}

/// `\"`, `\\` and `\xAB`, as libFuzzer reads them.
fn unescaped(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, (byte == b'\\').then(|| rest.next()).flatten()) {
            (_, Some(b'x')) => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            (_, Some(escaped)) => escaped,
            (plain, None) => plain,
        });
    }
    bytes
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    files
}

/// SplitMix64: the same inputs for a seed, on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    fn pick<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }
}
