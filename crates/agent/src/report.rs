//! What a run brings home.

use engine::ports::{Offer, RunFailure};
use osb::Output;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::keys::PublicKey;
use crate::message::MAX_SEALED_IN_MESSAGE;
use crate::order::Order;
use crate::seal::{OVERHEAD, Purpose, Sealed};

/// The most of a log that goes with a report that has to be read from the log anyway, in bytes.
const MAX_LOG_BYTES: usize = 8 * 1024;

/// How a run ended. Holds credentials: it travels sealed, and `Debug` shows none of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Which run's.
    pub run: String,
    /// What came of it.
    pub answer: Answer,
    /// The end of what the broker printed on stderr, redacted: as much as fits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log: String,
    /// What people should know of the configuration: keys that could not become variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What came of a run, as [`engine::contract`] has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "one for each run, and read at once")]
pub enum Answer {
    /// Of work, and of questions after it.
    Work(Result<Output, RunFailure>),
    /// Of `catalog`.
    Offer(Result<Offer, RunFailure>),
}

impl Answer {
    /// Why there is none.
    pub fn failure(&self) -> Option<&RunFailure> {
        match self {
            Self::Work(result) => result.as_ref().err(),
            Self::Offer(result) => result.as_ref().err(),
        }
    }
}

impl Report {
    /// Of a run that came to nothing, with nothing else to say.
    pub fn failed(order: &Order, failure: RunFailure) -> Self {
        let answer = match order.action {
            Some(_) => Answer::Work(Err(failure)),
            None => Answer::Offer(Err(failure)),
        };
        Self { run: order.run.clone(), answer, log: String::new(), notes: Vec::new() }
    }

    /// Seals it; its log is cut to what fits into a termination message, if the rest does: one that
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

/// The end of a text that takes at most so many bytes in a JSON string.
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
