//! The level of the log. A filter takes any word that is not a level for the name of a target, and
//! then logs nothing else, errors included: so the words are checked before.

const WORDS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The targets that are limited because they log too much: the API server's answers as they are, or as a whole if one
/// cannot be read.
const QUIET: [&str; 2] = ["kube_client::client=error", "kube_client::client::tls=warn"];
/// The target of errors without what they are about: whoever has sent such a request says it.
const UNSAID: &str = "kube_client::client::builder=off";
/// The crates of this program. At `debug` and `trace` other crates log what they do with each connection, a hundred
/// lines for each of this program, so they do that only where they are named.
const OURS: [&str; 7] =
    ["child", "engine", "kubernetes", "loader", "manciple", "osb", "standalone"];
/// The highest level of other crates where they are not named.
const OTHERS: &str = "info";

/// A level as a filter of the log: a word, or a comma list of `target=word` with at most one bare
/// word. Words are written as one likes, `INFO` too. Bare, `debug` and `trace` are of this program alone.
///
/// # Errors
/// The fault, and the valid words. The caller says by which option the level was given.
pub(crate) fn filter(level: &str) -> Result<String, String> {
    let mut directives = Vec::new();
    let mut bare = 0;
    for part in level.split(',').map(str::trim) {
        let (target, word) = match part.split_once('=') {
            Some((target, word)) => (Some(target.trim_end()), word.trim_start()),
            None => (None, part),
        };
        let word = WORDS.into_iter().find(|known| known.eq_ignore_ascii_case(word));
        match (target, word) {
            (None, Some(word @ ("debug" | "trace"))) => {
                bare += 1;
                directives.splice(0..0, OURS.map(|ours| format!("{ours}={word}")));
                directives.push(OTHERS.to_owned());
            }
            (None, Some(word)) => {
                bare += 1;
                directives.push(word.to_owned());
            }
            (Some(target), Some(word)) if is_target(target) => {
                directives.push(format!("{target}={word}"));
            }
            _ => return Err(refused(level)),
        }
    }
    if bare > 1 {
        return Err(refused(level));
    }
    let is_named = directives.iter().any(|it| it.starts_with("kube_client::client="));
    // Of a target that is one of theirs from its beginning, or of all.
    let is_shown = |hidden: &[&str]| {
        directives.iter().any(|it| {
            let (target, word) = it.split_once('=').unwrap_or(("", it));
            "kube_client::client".starts_with(target) && !hidden.contains(&word)
        })
    };
    let quiet = QUIET.iter().filter(|_| is_shown(&["off", "error"]));
    let unsaid = [UNSAID].into_iter().filter(|_| is_shown(&["off"]));
    let quiet = quiet.copied().chain(unsaid).filter(|_| !is_named).map(str::to_owned);
    let quiet: Vec<_> = quiet.collect();
    directives.splice(0..0, quiet);
    Ok(directives.join(","))
}

/// Whether a text can be a target: the path of a module.
fn is_target(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b':');
    !text.is_empty() && text.bytes().all(fits)
}

fn refused(level: &str) -> String {
    format!(
        "{level:?} is not a level; give one of {}, or a comma list of target=level with \
         at most one level for the rest",
        WORDS.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words_or_lists_of_targets() {
        let quiet = format!("{},{UNSAID},", QUIET.join(","));
        let unsaid = format!("{UNSAID},");
        let (quiet, unsaid) = (quiet.as_str(), unsaid.as_str());
        let ours = |word: &str| OURS.map(|ours| format!("{ours}={word}")).join(",");
        let (debug, trace) = (ours("debug") + ",info", ours("trace") + ",info");
        let named = |rest: &str| format!("{},{rest}", ours("debug"));
        for (level, before, expected) in [
            ("off", "", "off"),
            ("error", unsaid, "error"),
            ("warn", quiet, "warn"),
            ("info", quiet, "info"),
            ("debug", quiet, &debug),
            ("TRACE", quiet, &trace),
            ("info,kube_client=debug", quiet, "info,kube_client=debug"),
            ("debug,kube_client::client=trace", "", &named("info,kube_client::client=trace")),
            ("engine=warn,debug", quiet, &named("engine=warn,info")),
            ("kube_client=debug", quiet, "kube_client=debug"),
            ("error,kube=warn", quiet, "error,kube=warn"),
            ("error,kube_client=off", unsaid, "error,kube_client=off"),
            ("INFO", quiet, "info"),
            ("Warn", quiet, "warn"),
            (" info ", quiet, "info"),
            ("engine=debug", "", "engine=debug"),
            ("info,hyper=WARN", quiet, "info,hyper=warn"),
            (
                "hyper = warn, osb::server=trace, error",
                unsaid,
                "hyper=warn,osb::server=trace,error",
            ),
        ] {
            let said = filter(level).unwrap();
            assert_eq!(said, format!("{before}{expected}"), "{level:?}");
            assert!(tracing_subscriber::EnvFilter::try_new(&said).is_ok(), "{level:?}");
        }
    }

    #[test]
    fn what_would_silence_the_log_is_refused_with_the_words() {
        for level in [
            "",
            "warning",
            "loud",
            "INFOO",
            "3",
            "info,",
            "info,debug",
            "engine=loud",
            "engine=",
            "=info",
            "en gine=info",
            "engine=info=debug",
            "info;hyper=warn",
            "[span]=info",
        ] {
            let fault = filter(level).unwrap_err();
            assert!(fault.starts_with(&format!("{level:?} is not a level;")), "{fault}");
            assert!(fault.contains("off, error, warn, info, debug, trace"), "{fault}");
        }
    }
}
