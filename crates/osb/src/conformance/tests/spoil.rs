//! Ways to spoil a good broker.

use std::collections::HashSet;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::client::double::{Answer, Seen};

/// How a broker is spoilt: what it sees, or what it answers.
pub(super) enum Spoil {
    Nothing,
    /// Changes a request before the broker sees it.
    Seen(Box<SeenChange>),
    /// Changes an answer after the broker gave it.
    Answer(Box<AnswerChange>),
}

type SeenChange = dyn Fn(&mut Seen) + Send + Sync;
type AnswerChange = dyn Fn(&Seen, &mut Answer) + Send + Sync;

pub(super) fn sees(change: impl Fn(&mut Seen) + Send + Sync + 'static) -> Spoil {
    Spoil::Seen(Box::new(change))
}

pub(super) fn answers(change: impl Fn(&Seen, &mut Answer) + Send + Sync + 'static) -> Spoil {
    Spoil::Answer(Box::new(change))
}

/// The method, and what it is of.
pub(super) fn route(seen: &Seen) -> String {
    let what = match seen.path.split('/').count() {
        3 => "catalog",
        4 => "instance",
        6 => "binding",
        _ => "last_operation",
    };
    format!("{} {what}", seen.method)
}

/// Changes the answers that the condition, on the request and the status, picks out.
pub(super) fn when(
    condition: impl Fn(&Seen, u16) -> bool + Send + Sync + 'static,
    change: impl Fn(&mut Answer) + Send + Sync + 'static,
) -> Spoil {
    answers(move |seen, answer| {
        if condition(seen, answer.status) {
            change(answer);
        }
    })
}

/// Changes the bodies of those answers; those that are objects.
pub(super) fn bodies(
    condition: impl Fn(&Seen, u16) -> bool + Send + Sync + 'static,
    edit: impl Fn(&mut Value) + Send + Sync + 'static,
) -> Spoil {
    when(condition, move |answer| {
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if body.is_object() {
            edit(&mut body);
            answer.body = body.to_string().into();
        }
    })
}

/// Answers one status in place of another; with a body, if one is given.
pub(super) fn status(from: u16, to: u16, body: &str) -> Spoil {
    let body = body.to_owned();
    when(
        move |_, status| status == from,
        move |answer| {
            answer.status = to;
            if !body.is_empty() {
                answer.body = body.clone().into();
            }
        },
    )
}

pub(super) fn refusing(platform: &'static str) -> Spoil {
    when(
        move |seen, _| seen.json()["context"]["platform"] == platform,
        |answer| *answer = Answer::json(400, &json!({})),
    )
}

/// Paths that were met.
#[derive(Default)]
pub(super) struct Paths(Mutex<HashSet<String>>);

impl Paths {
    pub(super) fn add(&self, path: &str) -> bool {
        self.0.lock().unwrap().insert(path.to_owned())
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.0.lock().unwrap().contains(path)
    }
}
