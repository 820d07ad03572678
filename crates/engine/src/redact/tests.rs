use data_encoding::{BASE64, BASE64_MIME, BASE64URL_NOPAD};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn redactor(values: &[&str]) -> Redactor {
    let mut secrets = Secrets::default();
    values.iter().for_each(|value| secrets.add(value.as_bytes()));
    Redactor::new(&secrets)
}

/// Whether the value can be read anywhere but in a mask.
fn readable(text: &str, value: &str) -> bool {
    text.split(MASK).any(|piece| piece.contains(value))
}

#[test]
fn a_value_is_masked_wherever_it_stands() {
    let redactor = redactor(&["hunter22"]);
    assert_eq!(
        redactor.redact("hunter22 and xhunter22x\nhunter22"),
        "[redacted] and x[redacted]x\n[redacted]"
    );
}

#[test]
fn text_without_secrets_is_not_copied() {
    assert!(matches!(redactor(&["hunter22"]).redact("nothing here"), Cow::Borrowed(_)));
    assert!(matches!(redactor(&[]).redact("nothing here"), Cow::Borrowed(_)));
}

#[test]
fn what_does_not_count_is_left() {
    let text = "abc true NULL 12345 3.14 default 8443";
    let values: Vec<&str> = text.split(' ').collect();
    assert_eq!(redactor(&values).redact(text), text);
    assert_eq!(redactor(&["123456"]).redact("pin 123456"), "pin [redacted]");
}

#[test]
fn the_newline_at_the_end_of_a_file_is_not_part_of_the_secret() {
    assert_eq!(redactor(&["hunter22\n"]).redact("pw=hunter22;"), "pw=[redacted];");
}

#[test]
fn each_line_of_a_value_counts() {
    let redactor = redactor(&["first line\r\nsecond line\n}\n"]);
    assert_eq!(redactor.redact("a second line }"), "a [redacted] }");
    assert_eq!(redactor.redact("first line"), "[redacted]");
}

#[test]
fn overlapping_values_leave_no_rest() {
    // Leftmost-longest matching alone would leave "word-long".
    assert_eq!(redactor(&["xpass", "password-long"]).redact("xpassword-long"), "[redacted]");
    assert_eq!(redactor(&["pass", "password"]).redact("password"), "[redacted]");
}

#[test]
fn encoded_values_are_masked() {
    let value = "p/ss wörd+1";
    let redactor = redactor(&[value]);
    for form in [
        BASE64.encode(value.as_bytes()),
        BASE64URL_NOPAD.encode(value.as_bytes()),
        "p%2Fss%20w%C3%B6rd%2B1".to_owned(),
        "p%2fss%20w%c3%b6rd%2b1".to_owned(),
        "p%2Fss+w%C3%B6rd%2B1".to_owned(),
        "p/ss%20w%C3%B6rd+1".to_owned(),
        "p\\/ss wörd+1".to_owned(),
        "p/ss w\\u00f6rd+1".to_owned(),
    ] {
        assert_eq!(redactor.redact(&format!("<{form}>")), format!("<{MASK}>"), "{form}");
    }
}

#[test]
fn a_value_within_an_encoded_text_is_masked() {
    let value = "correct-horse";
    let redactor = redactor(&[value]);
    for user in ["a", "ab", "abc", "abcd"] {
        let header = BASE64.encode(format!("{user}:{value}").as_bytes());
        let redacted = redactor.redact(&header).into_owned();
        assert!(redacted.contains(MASK), "{user}: {redacted}");
        assert!(redacted.len() <= MASK.len() + 10, "{user}: {redacted}");
    }
}

#[test]
fn base64_in_lines_is_masked() {
    let value: String = (0..40).map(|n| format!("line {n} of it;")).collect();
    let redacted = redactor(&[&value]).redact(&BASE64_MIME.encode(value.as_bytes())).into_owned();
    assert!(redacted.replace(MASK, "").trim().len() < 8, "{redacted}");
}

#[test]
fn binary_values_are_masked_in_base64_and_where_they_are_text() {
    let value = b"\xff\xfe\x00\x01binary-secret\x80\x81";
    let mut secrets = Secrets::default();
    secrets.add(value);
    let redactor = Redactor::new(&secrets);
    assert_eq!(redactor.redact(&BASE64.encode(value)).trim_end_matches('='), MASK);
    let lossy = String::from_utf8_lossy(value);
    assert!(!redactor.redact(&lossy).contains("binary-secret"));
}

#[test]
fn leaves_of_objects_are_secrets_and_their_keys_are_not() {
    let mut secrets = Secrets::default();
    secrets.add_json(&json!({
        "password": "hunter22", "nested": [{"key": "s3cret-key", "on": true, "port": 5432}],
        "account": 123456789
    }));
    let redactor = Redactor::new(&secrets);
    assert_eq!(
        redactor.redact("password=hunter22 key=s3cret-key port=5432 account=123456789 true"),
        "password=[redacted] key=[redacted] port=5432 account=[redacted] true"
    );
}

#[test]
fn a_document_and_a_url_give_their_parts() {
    let redactor = redactor(&[
        r#"{"private_key": "-----BEGIN-----\nabcdefgh\n-----END-----\n"}"#,
        "postgres://admin:s3same@db.example/x",
    ]);
    assert_eq!(redactor.redact("abcdefgh, s3same"), "[redacted], [redacted]");
    assert_eq!(redactor.redact("at db.example"), "at db.example");
}

#[test]
fn a_secret_that_was_cut_off_is_masked() {
    let redactor = redactor(&["correct-horse"]);
    assert_eq!(redactor.redact_cut("pw: correct-h", Some(Cut::End)), "pw: [redacted]");
    assert_eq!(redactor.redact_cut("t-horse!", Some(Cut::Start)), "[redacted]!");
    assert_eq!(redactor.redact_cut("t-horse: ok", None), "t-horse: ok");
    assert_eq!(redactor.redact_cut("", Some(Cut::Start)), "");
    assert_eq!(redactor.redact_cut("correct-horse", Some(Cut::End)), MASK);
    assert_eq!(
        redactor.redact_cut("horse: ok: corr", Some(Cut::Both)),
        "[redacted]: ok: [redacted]"
    );
    assert_eq!(redactor.redact_cut("rect-ho", Some(Cut::Both)), MASK, "the middle of a secret");
}

fn automata(redactor: &Redactor) -> &[AhoCorasick] {
    let Matcher::Automata(automata) = &redactor.matcher else { panic!() };
    automata
}

fn memory(redactor: &Redactor) -> usize {
    automata(redactor).iter().map(AhoCorasick::memory_usage).sum()
}

#[test]
fn what_different_automata_find_is_masked_as_one() {
    let text = "abcdefgh".repeat(4);
    // Each is looked for by an automaton of its own, and the first of these begins last.
    let filler = ["b", "d", "f"].map(|letter| letter.repeat(MAX_AUTOMATON_BYTES));
    let values = ["abcdefgh", "cdefghab", "efghabcd", "ghabcdef"];
    let all: Vec<&str> = filler.iter().map(String::as_str).chain(values).collect();
    let redactor = redactor(&all);
    assert!(automata(&redactor).len() > 3, "{}", automata(&redactor).len());
    assert_eq!(redactor.redact(&text), MASK);
    assert_eq!(redactor.redact("x cdefghabcdefgh y"), format!("x {MASK} y"));
    assert_eq!(redactor.redact("x ghabcdef y abcdefgh"), format!("x {MASK} y {MASK}"));
    assert_eq!(redactor.redact("x bcdefg y"), "x bcdefg y");
}

#[test]
fn patterns_go_into_as_few_parts_as_have_room_for_them() {
    let sized = |sizes: &[usize]| sizes.iter().map(|&size| "x".repeat(size)).collect::<Vec<_>>();
    let most = MAX_AUTOMATON_BYTES;
    for (sizes, parts) in [
        (vec![], vec![]),
        (vec![5], vec![1]),
        (vec![most], vec![1]),
        (vec![most + 1, 4], vec![1, 1]),
        (vec![4, most, 4], vec![1, 1, 1]),
        (vec![most / 2, most / 2, 1, most - 1, 1], vec![2, 2, 1]),
    ] {
        let found: Vec<usize> = in_parts(&sized(&sizes)).map(<[String]>::len).collect();
        assert_eq!(found, parts, "{sizes:?}");
    }
}

#[test]
fn large_values_take_little_memory_and_are_masked() {
    let bundle: String = (0..4000).map(|n| format!("line {n:060}\n")).collect();
    let redactor = redactor(&[&bundle]);
    assert!(!readable(&redactor.redact(&bundle), "line 0"));
    assert!(memory(&redactor) < 64 * bundle.len(), "{}", memory(&redactor));
}

#[test]
fn a_large_document_of_small_values_takes_little_memory_and_is_masked() {
    let members = (0..20_000).map(|n| (format!("key{n}"), Value::from(format!("secret-{n:025}"))));
    let state = Value::Object(members.collect());
    let mut secrets = Secrets::default();
    secrets.add(state.to_string().as_bytes());
    secrets.add(b"correct-horse");
    let redactor = Redactor::new(&secrets);
    assert!(!redactor.redact(&state.to_string()).contains("secret-0"));
    let encoded = data_encoding::BASE64.encode(b"correct-horse");
    assert!(redactor.redact(&encoded).starts_with(MASK), "short values first");
    assert!(memory(&redactor) < 64 << 20, "{}", memory(&redactor));
}

#[test]
fn debug_shows_no_value() {
    let mut secrets = Secrets::default();
    secrets.add(b"hunter22");
    assert_eq!(format!("{secrets:?}"), "Secrets(1)");
    assert!(!format!("{:?}", Redactor::new(&secrets)).contains("hunter22"));
}

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{4,8}",
        "[ -~]{4,24}",
        "\\PC{4,12}",
        "[a-z0-9/+=%\"\\\\\u{e9}\u{1f980}]{4,20}\n[a-z]{4,9}",
    ]
}

proptest! {
    #[test]
    fn no_planted_value_survives(
        values in prop::collection::vec(any_value(), 1..5),
        pieces in prop::collection::vec((any::<prop::sample::Index>(), "\\PC{0,6}"), 0..8),
    ) {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let redactor = redactor(&values);
        let mut text = String::new();
        for (index, between) in &pieces {
            text.push_str(values[index.index(values.len())]);
            text.push_str(between);
        }
        let redacted = redactor.redact(&text);
        for value in values.iter().map(|value| value.trim_ascii()) {
            for value in value.lines().map(str::trim_ascii).chain([value]) {
                if counts(value.as_bytes()) {
                    prop_assert!(!readable(&redacted, value), "{value:?} in {redacted:?}");
                }
            }
        }
    }

    #[test]
    fn no_encoded_value_survives(
        value in "[ -~\u{e9}\u{1f980}]{6,40}", before in "[a-z]{0,5}", after in "[a-z]{0,5}",
    ) {
        let value = value.trim_ascii();
        prop_assume!(counts(value.as_bytes()) && value.len() >= 6);
        let redactor = redactor(&[value]);
        let encoded = BASE64.encode(format!("{before}{value}{after}").as_bytes());
        let redacted = redactor.redact(&encoded).into_owned();
        let rest = redacted.replace(MASK, "");
        prop_assert!(rest.len() <= (before.len() + after.len()) * 4 / 3 + 8, "{redacted}");

        let escaped = serde_json::to_string(value).unwrap();
        let inner = &escaped[1..escaped.len() - 1];
        prop_assert!(!readable(&redactor.redact(&escaped), inner));
    }

    #[test]
    fn any_bytes_and_any_text_are_taken(
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4),
        text in "\\PC{0,200}", cut in prop::option::of(prop_oneof![Just(Cut::Start), Just(Cut::End)]),
    ) {
        let mut secrets = Secrets::default();
        values.iter().for_each(|value| secrets.add(value));
        let redactor = Redactor::new(&secrets);
        let _ = redactor.redact_cut(&text, cut);
        for value in &values {
            let _ = redactor.redact_cut(&String::from_utf8_lossy(value), cut);
        }
    }

    #[test]
    fn redacting_by_line_masks_values_of_several_lines(
        lines in prop::collection::vec("[ -~]{4,16}", 1..6),
    ) {
        let value = lines.join("\n");
        let redactor = redactor(&[&value]);
        for line in value.lines().filter(|line| counts(line.trim_ascii().as_bytes())) {
            prop_assert!(!readable(&redactor.redact(line), line.trim_ascii()));
        }
    }
}

#[test]
fn texts_that_are_part_of_a_name_are_told() {
    let names = ["shop-web", "shop-data", "shop-web"];
    for (name, texts, expected) in [
        ("a part", vec!["web", "cart"], vec!["web"]),
        ("one in another", vec!["shop", "shop-web", "hop"], vec!["shop", "shop-web", "hop"]),
        ("the same twice", vec!["web", "web"], vec!["web"]),
        ("across two names", vec!["webshop", "web\nshop"], vec![]),
        ("nothing", vec!["", "webs"], vec![]),
        ("none", vec![], vec![]),
    ] {
        assert_eq!(standing_in(&texts, &names), HashSet::from_iter(expected), "{name}");
    }
}

/// Where each is looked for by itself, or all at once with all that is found, these take minutes.
#[test]
fn texts_that_are_all_alike_are_told_of_names_that_are_all_alike_in_no_time() {
    let alike = "a".repeat(245);
    let names: Vec<String> = (0..2_000).map(|number| format!("{alike}{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut texts: Vec<&str> = (1..=245).map(|length| &alike[..length]).collect();
    texts.extend(std::iter::repeat_n("a", 10_000));
    texts.extend(std::iter::repeat_n("b", 10_000));
    let begun = std::time::Instant::now();
    assert_eq!(standing_in(&texts, &names).len(), 245);
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}
