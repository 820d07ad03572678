//! Reads the inputs of a command beside its arguments: secrets, JSON objects, the answer to a question. What
//! was read is never repeated in an error.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::Path;

use osb::{INTEGER_BITS, Object, Sensitive, rounded_integers};
use serde_json::Value;

use super::failure::Failure;

/// The largest document that is read: far above what a broker accepts.
const LARGEST: u64 = 16 * 1024 * 1024;
/// How many faults of one kind are named.
const NAMED: usize = 16;

/// Reads a JSON object: from the argument itself, `@FILE`, or `-` for standard input. Errors name `option`.
pub(crate) async fn object(
    option: &str,
    given: Option<&str>,
) -> Result<Option<Sensitive<Object>>, Failure> {
    let text = match given {
        None => return Ok(None),
        Some("-") => standard_input(option).await?,
        Some(given) => match given.strip_prefix('@') {
            Some(path) => opened(path).await?,
            None => given.to_owned(),
        },
    };
    match serde_json::from_str(&text) {
        Ok(value @ Value::Object(_))
            if rounded_integers(text.as_bytes(), &value).next().is_some() =>
        {
            let paths = rounded_integers(text.as_bytes(), &value).take(NAMED);
            let paths = paths.collect::<Vec<_>>().join(", ");
            Err(Failure::usage(format!("{option}: {paths} {INTEGER_BITS}")))
        }
        Ok(Value::Object(object)) => Ok(Some(object.into())),
        Ok(_) => Err(Failure::usage(format!("{option} must be a JSON object"))),
        Err(error) => Err(Failure::usage(format!(
            "{option} is not JSON from line {} column {}",
            error.line(),
            error.column()
        ))
        .hint("quote it for the shell, or give a file: @FILE")),
    }
}

/// Reads a whole file, or standard input if the path is `-`.
pub(crate) async fn document(path: &str) -> Result<String, Failure> {
    match path {
        "-" => standard_input("it").await,
        path if path.starts_with("http://") || path.starts_with("https://") => {
            Err(Failure::usage(format!("cannot read {path}: an address is not fetched"))
                .hint("fetch it with curl, and give it as -"))
        }
        path => opened(path).await,
    }
}

/// Parses documents in YAML, as Kubernetes does: `yes` is true, `0644` is octal. An error has the place and no
/// piece of the text, which may be a secret.
pub(crate) fn yaml(text: &str) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        // As deep as JSON, and as much as a document may have.
        budget: serde_saphyr::budget! {
            max_depth: 128,
            flow_nesting_limit: 128,
            max_nodes: 4_000_000,
            max_events: 16_000_000,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let said = error.to_string();
        let said = said.trim_start_matches("error: ").replace("<input>:", "");
        // What comes after the first line is for those who write programs.
        said.lines().next().unwrap_or_default().to_owned()
    })
}

/// Reads a secret from a file, without the line's end that editors leave.
pub(crate) fn secret(path: &Path) -> Result<Sensitive<String>, Failure> {
    let text = file(path)?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(Failure::usage(format!("{} is empty", path.display())));
    }
    Ok(text.to_owned().into())
}

/// Asks a person a question. `None` if there is no terminal to ask on.
pub(crate) async fn confirm(question: &str) -> Option<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).map(|_| answer)
    });
    let answer = answer.await.ok()?.ok()?;
    Some(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Reads a file in a thread of its own: a command that opened a pipe that nobody writes to can still be interrupted.
async fn opened(path: &str) -> Result<String, Failure> {
    let named = path.to_owned();
    let read = tokio::task::spawn_blocking(move || file(Path::new(&named)));
    read.await.map_err(|_| Failure::usage(format!("cannot read {path}")))?
}

/// Reads all of a document, or fails if it is too large: a cut one would be another.
fn whole(from: impl io::Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(LARGEST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > LARGEST {
        true => Err(io::Error::other(format!("it has more than {} MiB", LARGEST >> 20))),
        false => Ok(text),
    }
}

fn file(path: &Path) -> Result<String, Failure> {
    let read = || whole(std::fs::File::open(path)?);
    read().map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

/// Reads standard input in a thread of its own: an interrupt must not wait for it.
async fn standard_input(option: &str) -> Result<String, Failure> {
    let read = tokio::task::spawn_blocking(|| whole(io::stdin().lock()));
    let unreadable = |why| Failure::usage(format!("cannot read {option} from standard input{why}"));
    let read = read.await.map_err(|_| unreadable(String::new()))?;
    read.map_err(|error| unreadable(format!(": {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_object_is_itself_or_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.json");
        std::fs::write(&path, r#"{"a": 2}"#).unwrap();
        let at = format!("@{}", path.display());
        for (given, expected) in [(r#"{"a": 1}"#, 1), (at.as_str(), 2)] {
            let object = object("--parameters", Some(given)).await.unwrap().unwrap();
            assert_eq!(object.expose()["a"], expected);
        }
        assert!(object("--parameters", None).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_is_no_object_is_refused_and_not_repeated() {
        for given in ["hunter2", "\"hunter2\"", "[\"hunter2\"]", "{\"a\": hunter2}", "@/no/such"] {
            let failure = object("--parameters", Some(given)).await.unwrap_err();
            assert_eq!(failure.exit.code(), 2);
            assert!(!failure.to_string().contains("hunter2"), "{failure}");
        }
    }

    #[tokio::test]
    async fn an_integer_that_would_be_rounded_is_refused_before_it_is_sent() {
        let given = r#"{"a": {"b": 18446744073709551616}}"#;
        let failure = object("--parameters", Some(given)).await.unwrap_err();
        assert_eq!(failure.exit.code(), 2);
        let said = failure.to_string();
        assert!(said.contains("--parameters: a.b must be") && said.contains("string"), "{said}");
        assert!(!said.contains("1844"), "{said}");
    }

    #[test]
    fn yaml_is_read_as_kubernetes_reads_it() {
        let found =
            yaml("a: yes\nb: 0644\nc: 'yes'\nd: 1.50\ne: ~\nf: 9007199254740993\n").unwrap();
        let expected = serde_json::json!({
            "a": true, "b": 420, "c": "yes", "d": 1.5, "e": null, "f": 9_007_199_254_740_993_u64,
        });
        assert_eq!(found, [expected]);
        assert_eq!(yaml(&format!("{}1{}", "[".repeat(100), "]".repeat(100))).unwrap().len(), 1);
    }

    #[test]
    fn an_error_of_yaml_has_no_text_of_it() {
        for text in [
            "value: hunter2\n bad: indent",
            "a: 'hunter2",
            "a: hunter2\na: hunter2",
            "[hunter2, ",
            "a: @hunter2",
            "a: hunter2\nb: 1e999",
        ] {
            let said = yaml(text).unwrap_err();
            assert!(!said.contains("hunter2") && !said.is_empty(), "{said}");
        }
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused_and_not_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(LARGEST).unwrap();
        assert_eq!(document(&path.display().to_string()).await.unwrap().len() as u64, LARGEST);
        file.set_len(LARGEST + 1).unwrap();
        let failure = document(&path.display().to_string()).await.unwrap_err().to_string();
        assert!(failure.contains("more than 16 MiB"), "{failure}");
    }

    #[test]
    fn a_secret_has_no_line_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        std::fs::write(&path, " hunter2 \r\n").unwrap();
        assert_eq!(secret(&path).unwrap().expose(), " hunter2 ");
        std::fs::write(&path, "\n").unwrap();
        assert!(secret(&path).is_err());
    }
}
