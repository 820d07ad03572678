//! Input: the output of a pod: the first line is a termination message, the others are a log. Both may be
//! written by whoever runs in the pod.

use agent::{Error, KeyPair, KeySet, Line, Message, Report, escape};

/// The key that the seeds are sealed to; the run of the seeds is below.
const KEY: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const RUN: &str = "provision-a-1";

/// The property that reading fails only by an error, that what is read is written as it was, and that no escaped line
/// is taken for the agent's.
pub fn reports(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (message, log) = text.split_once('\n').unwrap_or((&text, ""));
    let keys = KeySet::from_iter([KeyPair::from_base64(KEY).unwrap()]);
    for line in log.split('\n') {
        assert!(Line::parse(&escape(line)).is_none(), "{line:?}");
        if let Some(Ok(line)) = Line::parse(line) {
            assert_eq!(Line::parse(&line.to_string()), Some(Ok(line.clone())));
            if let Line::Progress(sealed) = line {
                let _ = sealed.progress(&keys, RUN);
            }
        }
    }
    let Ok(message) = Message::parse(message) else { return };
    assert_eq!(Message::parse(&message.to_string()), Ok(message.clone()));
    let opened = match message {
        Message::Sealed(sealed) => sealed.report(&keys, RUN),
        Message::Logged(logged) => logged.report(log, &keys, RUN),
        Message::Broken(_) => return,
    };
    match opened {
        Ok(Report { run, .. }) => assert_eq!(run, RUN),
        Err(error) => assert!(!matches!(error, Error::NotSealed(_) | Error::NotAKey(_)), "{error}"),
    }
}
