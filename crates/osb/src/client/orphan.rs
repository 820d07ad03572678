//! Orphan mitigation: decides when a platform has to delete what it asked for (section "Orphan Mitigation").

use super::error::ClientError;
use crate::broker::Action;

/// The end of a request, as far as the specification's table distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There was an answer.
    Answered {
        /// The status of the answer.
        status: u16,
        /// Whether its body was what the route defines.
        well_formed: bool,
    },
    /// `last_operation` said `failed`, or the time to poll ran out (which "MUST be considered failed").
    OperationFailed,
    /// There was no answer, and the broker may have received the request.
    Lost,
    /// The broker has not received the request. Not in the table: nothing can have been made.
    NotSent,
}

impl From<&ClientError> for Outcome {
    fn from(error: &ClientError) -> Self {
        match error {
            ClientError::Transport { sent: false, .. } => Self::NotSent,
            ClientError::Transport { sent: true, .. } | ClientError::Timeout { .. } => Self::Lost,
            ClientError::Refused(refusal) => {
                Self::Answered { status: refusal.status, well_formed: true }
            }
            ClientError::Malformed { status, .. } => {
                Self::Answered { status: *status, well_formed: false }
            }
        }
    }
}

/// Whether the platform should delete what it asked for, and repeat that until the broker says that it is
/// gone.
///
/// For `deprovision` and `unbind` that means to repeat the request. Updates are never mitigated: that
/// would delete the instance.
pub fn orphan_mitigation(request: Action, outcome: Outcome) -> bool {
    let creates = matches!(request, Action::Provision | Action::Bind);
    if request == Action::Update {
        return false;
    }
    match outcome {
        Outcome::Answered { status: 200, .. } => false,
        Outcome::Answered { status: 201 | 202, well_formed } => creates && !well_formed,
        Outcome::Answered { status, .. } => matches!(status, 200..=299 | 500..=599),
        Outcome::OperationFailed => true,
        Outcome::Lost => creates,
        Outcome::NotSent => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::{Bind, Deprovision, Provision, Unbind, Update};

    const fn answered(status: u16, well_formed: bool) -> Outcome {
        Outcome::Answered { status, well_formed }
    }

    /// Every row of the table: the outcome, and the requests that are mitigated after it.
    const TABLE: &[(&str, Outcome, &[Action])] = &[
        ("200", answered(200, true), &[]),
        ("200 with malformed response", answered(200, false), &[]),
        ("state failed", Outcome::OperationFailed, &[Provision, Deprovision, Bind, Unbind]),
        ("201", answered(201, true), &[]),
        ("201 with malformed response", answered(201, false), &[Provision, Bind]),
        ("202", answered(202, true), &[]),
        ("202 with malformed response", answered(202, false), &[Provision, Bind]),
        ("another 2xx", answered(204, false), &[Provision, Deprovision, Bind, Unbind]),
        ("another 2xx, well formed", answered(203, true), &[Provision, Deprovision, Bind, Unbind]),
        ("a redirection", answered(302, false), &[]),
        ("400", answered(400, true), &[]),
        ("408", answered(408, true), &[]),
        ("409", answered(409, true), &[]),
        ("410", answered(410, true), &[]),
        ("422", answered(422, true), &[]),
        ("429", answered(429, true), &[]),
        ("500", answered(500, true), &[Provision, Deprovision, Bind, Unbind]),
        ("503", answered(503, true), &[Provision, Deprovision, Bind, Unbind]),
        ("599", answered(599, true), &[Provision, Deprovision, Bind, Unbind]),
        ("timeout", Outcome::Lost, &[Provision, Bind]),
        ("never sent", Outcome::NotSent, &[]),
    ];

    #[test]
    fn the_table_of_the_specification() {
        for (row, outcome, mitigated) in TABLE {
            for request in Action::ALL {
                let expected = mitigated.contains(&request);
                assert_eq!(orphan_mitigation(request, *outcome), expected, "{row}: {request}");
            }
        }
        for (row, outcome, _) in TABLE {
            assert!(!orphan_mitigation(Update, *outcome), "{row}");
        }
    }

    #[test]
    fn errors_of_the_client_are_rows_of_the_table() {
        let lost = ClientError::Timeout { after: std::time::Duration::ZERO };
        assert_eq!(Outcome::from(&lost), Outcome::Lost);
        for (sent, expected) in [(true, Outcome::Lost), (false, Outcome::NotSent)] {
            assert_eq!(
                Outcome::from(&ClientError::Transport { sent, source: "".into() }),
                expected
            );
        }
        let malformed = ClientError::Malformed { status: 201, why: String::new() };
        assert_eq!(Outcome::from(&malformed), answered(201, false));
    }
}
