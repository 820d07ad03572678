//! What a command reads beside its arguments: secrets, JSON objects, the answer to a question. What
//! was read is never repeated in an error.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::Path;

use osb::{INTEGER_BITS, Object, Sensitive, rounded_integers};
use serde_json::Value;

use super::failure::Failure;

/// The largest document that is read: far above what a broker accepts.
const LARGEST: u64 = 16 * 1024 * 1024;

/// A JSON object: itself, `@FILE`, or `-` for standard input. `option` is what is named in errors.
pub(crate) async fn object(
    option: &str,
    given: Option<&str>,
) -> Result<Option<Sensitive<Object>>, Failure> {
    let text = match given {
        None => return Ok(None),
        Some("-") => standard_input(option).await?,
        Some(given) => match given.strip_prefix('@') {
            Some(path) => file(Path::new(path))?,
            None => given.to_owned(),
        },
    };
    match serde_json::from_str(&text) {
        Ok(value @ Value::Object(_)) if !rounded_integers(text.as_bytes(), &value).is_empty() => {
            let paths = rounded_integers(text.as_bytes(), &value).join(", ");
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

/// The whole of a file, or of standard input if it is `-`.
pub(crate) async fn document(path: &str) -> Result<String, Failure> {
    match path {
        "-" => standard_input("it").await,
        path => file(Path::new(path)),
    }
}

/// A secret from a file, without the line's end that editors leave.
pub(crate) fn secret(path: &Path) -> Result<Sensitive<String>, Failure> {
    let text = file(path)?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(Failure::usage(format!("{} is empty", path.display())));
    }
    Ok(text.to_owned().into())
}

/// Asks a person. `None` if there is none to be asked.
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

fn file(path: &Path) -> Result<String, Failure> {
    let read = || {
        let mut text = String::new();
        std::fs::File::open(path)?.take(LARGEST).read_to_string(&mut text)?;
        io::Result::Ok(text)
    };
    read().map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

/// In a thread of its own: an interrupt must not wait for it.
async fn standard_input(option: &str) -> Result<String, Failure> {
    let read = tokio::task::spawn_blocking(|| {
        let mut text = String::new();
        io::stdin().lock().take(LARGEST).read_to_string(&mut text).map(|_| text)
    });
    let unreadable = || Failure::usage(format!("cannot read {option} from standard input"));
    read.await.map_err(|_| unreadable())?.map_err(|_| unreadable())
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
    fn a_secret_has_no_line_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        std::fs::write(&path, " hunter2 \r\n").unwrap();
        assert_eq!(secret(&path).unwrap().expose(), " hunter2 ");
        std::fs::write(&path, "\n").unwrap();
        assert!(secret(&path).is_err());
    }
}
