//! Instantiation of templates: decides the next step of an instance whose template becomes objects in the requester's
//! name, from everything that can be seen of it.
//!
//! ```text
//! ordered ── values resolved and recorded ──▶ objects made ── awaited ──▶ ready
//!    │                    │                       │             │
//!    └────────────────────┴──── refused ──────────┴─────────────┴──▶ failed
//! changed ──▶ taken up ──▶ as if it were ordered: a further revision is recorded, objects become what it says
//! deleted ──▶ objects removed, each only if it is the one that was made ──▶ gone
//! ```
//!
//! No decision depends on the difference between two events, and each step can be repeated by another process:
//! values are recorded before the first object is made, and an object has one name.

/// The state of an instance, as far as it can be seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// Whether somebody has deleted the instance.
    pub deleting: bool,
    /// Whether the instance belongs to another installation, which verified it with another key: it is left alone.
    pub foreign: bool,
    /// Whether a finalizer holds the instance until its objects are gone.
    pub held: bool,
    /// Whether the instance is ready or has failed; it stays so until it is changed.
    pub ended: bool,
    /// Whether the order was changed since the instance was begun, and the change is not taken up yet.
    pub changed: bool,
    /// The reason why nothing may be made of the instance: it is not known that the requester is who ordered it, or it
    /// cannot be read.
    pub refused: Option<String>,
    /// Whether all objects were made, and the instance says which.
    pub made: bool,
    /// Whether the time that the objects may take is over.
    pub overdue: bool,
}

/// The next step of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Do nothing.
    Rest,
    /// Fail the instance for this reason, before anything is made.
    Refuse(String),
    /// Record that the change is taken up: the time that it may take begins here.
    TakeUp,
    /// Resolve and record the values, then make the objects.
    Make,
    /// Look whether the objects are ready.
    Await,
    /// Fail the instance because it took too long.
    GiveUp,
    /// Remove the objects, then the finalizer that holds the instance.
    Remove,
}

/// Decides the next step of an instance.
pub fn decide(state: &State) -> Step {
    match state {
        State { foreign: true, .. } => Step::Rest,
        State { deleting: true, held: true, .. } => Step::Remove,
        State { deleting: true, .. } => Step::Rest,
        State { changed: true, refused: Some(why), .. } => Step::Refuse(why.clone()),
        State { changed: true, .. } => Step::TakeUp,
        State { ended: true, .. } => Step::Rest,
        // What was made goes on being waited for: it was not refused then. That it is held says nothing, for
        // whoever orders may write that too.
        State { refused: Some(why), made: false, .. } => Step::Refuse(why.clone()),
        State { overdue: true, .. } => Step::GiveUp,
        State { made: false, .. } => Step::Make,
        State { .. } => Step::Await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_done_follows_from_what_is_seen() {
        let new = State::default();
        let why = || Some("why".to_owned());
        for (name, state, expected) in [
            ("it is new", new.clone(), Step::Make),
            (
                "nobody knows who ordered it",
                State { refused: why(), ..new.clone() },
                Step::Refuse("why".to_owned()),
            ),
            (
                "nobody knows, and it says that it was begun",
                State { refused: why(), held: true, ..new.clone() },
                Step::Refuse("why".to_owned()),
            ),
            (
                "it was made while that was known",
                State { refused: why(), held: true, made: true, ..new.clone() },
                Step::Await,
            ),
            ("it is half made", State { held: true, ..new.clone() }, Step::Make),
            ("it is made", State { held: true, made: true, ..new.clone() }, Step::Await),
            (
                "it takes too long to be ready",
                State { held: true, made: true, overdue: true, ..new.clone() },
                Step::GiveUp,
            ),
            ("it takes too long to be made", State { overdue: true, ..new.clone() }, Step::GiveUp),
            (
                "it is ready, and old",
                State { held: true, made: true, ended: true, overdue: true, ..new.clone() },
                Step::Rest,
            ),
            (
                "it is deleted while it is made",
                State { deleting: true, held: true, ..new.clone() },
                Step::Remove,
            ),
            (
                "it is deleted when it has failed",
                State { deleting: true, held: true, ended: true, ..new.clone() },
                Step::Remove,
            ),
            (
                "it is another's, and is deleted",
                State { foreign: true, deleting: true, held: true, ..new.clone() },
                Step::Rest,
            ),
            (
                "it was ready, and is changed",
                State { held: true, ended: true, changed: true, overdue: true, ..new.clone() },
                Step::TakeUp,
            ),
            (
                "it is changed while it is made",
                State { held: true, changed: true, ..new.clone() },
                Step::TakeUp,
            ),
            (
                "it was ready, and nobody knows who has changed it",
                State { held: true, ended: true, changed: true, refused: why(), ..new.clone() },
                Step::Refuse("why".to_owned()),
            ),
            (
                "it is changed, and deleted",
                State { deleting: true, held: true, changed: true, ..new.clone() },
                Step::Remove,
            ),
            ("it is deleted before anything", State { deleting: true, ..new }, Step::Rest),
        ] {
            assert_eq!(decide(&state), expected, "{name}");
        }
    }
}
