//! The level of the log. A filter takes any word that is not a level for the name of a target, and
//! then logs nothing else, errors included: so the words are checked before.

const WORDS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What says more than it may when everything is said: the API server's answers as they are, with pieces of what was
/// refused.
const QUIET: [&str; 2] = ["kube_client::client=info", "kube_client::client::builder=debug"];

/// A level as a filter of the log: a word, or a comma list of `target=word` with at most one bare
/// word. Words are written as one likes, `INFO` too.
///
/// # Errors
/// What is wrong, and the words.
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
    let is_named = directives.iter().any(|it| it.starts_with("kube_client"));
    if !is_named && directives.iter().any(|it| it == "debug" || it == "trace") {
        directives.splice(0..0, QUIET.map(str::to_owned));
    }
    Ok(directives.join(","))
}

/// Targets are paths of modules.
fn is_target(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b':');
    !text.is_empty() && text.bytes().all(fits)
}

fn refused(level: &str) -> String {
    format!(
        "log.level: {level:?} is not a level; give one of {}, or a comma list of target=level with \
         at most one level for the rest",
        WORDS.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words_or_lists_of_targets() {
        for (level, expected) in [
            ("off", "off"),
            ("error", "error"),
            ("warn", "warn"),
            ("info", "info"),
            ("debug", "kube_client::client=info,kube_client::client::builder=debug,debug"),
            ("trace", "kube_client::client=info,kube_client::client::builder=debug,trace"),
            ("info,kube_client=debug", "info,kube_client=debug"),
            ("debug,kube_client=trace", "debug,kube_client=trace"),
            ("INFO", "info"),
            ("Warn", "warn"),
            (" info ", "info"),
            ("engine=debug", "engine=debug"),
            ("info,hyper=WARN", "info,hyper=warn"),
            ("hyper = warn, osb::server=trace, error", "hyper=warn,osb::server=trace,error"),
        ] {
            assert_eq!(filter(level).as_deref(), Ok(expected), "{level:?}");
            assert!(tracing_subscriber::EnvFilter::try_new(expected).is_ok(), "{level:?}");
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
            assert!(fault.starts_with(&format!("log.level: {level:?} ")), "{fault}");
            assert!(fault.contains("off, error, warn, info, debug, trace"), "{fault}");
        }
    }
}
