//! The report of a run.

use engine::ports::{Offer, RunFailure};
use osb::Output;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::keys::PublicKey;
use crate::message::MAX_SEALED_IN_MESSAGE;
use crate::order::Order;
use crate::seal::{OVERHEAD, Purpose, Sealed};

/// How many bytes of a log go with a report at most, if that has to be read from the log anyway.
const MAX_LOG_BYTES: usize = 8 * 1024;

/// The report of a run's end. It holds credentials: it travels sealed, and `Debug` shows none of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The run's name.
    pub run: String,
    /// The result of the run.
    pub answer: Answer,
    /// The end of what the broker printed on stderr, redacted: as much as fits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log: String,
    /// Notes for people about the configuration: keys that could not become variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The result of a run, as [`engine::contract`] interprets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "one for each run, and read at once")]
pub enum Answer {
    /// The result of work, or of a question after external work.
    Work(Result<Output, RunFailure>),
    /// The result of `catalog`.
    Offer(Result<Offer, RunFailure>),
}

impl Answer {
    /// The failure, if the run failed.
    pub fn failure(&self) -> Option<&RunFailure> {
        match self {
            Self::Work(result) => result.as_ref().err(),
            Self::Offer(result) => result.as_ref().err(),
        }
    }
}

impl Report {
    /// The report of a run that failed, without a log.
    pub fn failed(order: &Order, failure: RunFailure) -> Self {
        let answer = match order.action {
            Some(_) => Answer::Work(Err(failure)),
            None => Answer::Offer(Err(failure)),
        };
        Self { run: order.run.clone(), answer, log: String::new(), notes: Vec::new() }
    }

    /// Seals the report. Its log is cut to what fits into a termination message, if the rest fits: a report that
    /// must be fetched from the log costs a call.
    ///
    /// # Errors
    /// [`Error::NotSealed`].
    pub fn seal(mut self, key: &PublicKey) -> Result<Sealed, Error> {
        let log = std::mem::take(&mut self.log);
        let bare = self.to_json()?.len() + r#","log":"""#.len();
        let room = (MAX_SEALED_IN_MESSAGE - OVERHEAD).checked_sub(bare).unwrap_or(MAX_LOG_BYTES);
        end_in_json(&log, room).clone_into(&mut self.log);
        Sealed::seal(key, Purpose::Report, &self.run, &self.to_json()?)
    }

    fn to_json(&self) -> Result<zeroize::Zeroizing<Vec<u8>>, Error> {
        let json = serde_json::to_vec(self).map_err(|_| Error::NotSealed("it is not JSON"))?;
        Ok(zeroize::Zeroizing::new(json))
    }
}

/// The end of a text that takes at most `room` bytes in a JSON string.
fn end_in_json(text: &str, room: usize) -> &str {
    let mut left = room;
    let fits = text.char_indices().rev().take_while(|(_, character)| {
        let bytes = match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..='\u{1f}' => 6,
            _ => character.len_utf8(),
        };
        left.checked_sub(bytes).map(|rest| left = rest).is_some()
    });
    let start = fits.last().map_or(text.len(), |(start, _)| start);
    &text[start..]
}
