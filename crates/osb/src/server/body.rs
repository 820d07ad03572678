//! Bodies of requests: read within limits of length, time and memory, and opened.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::respond::SOON;
use super::settings::Settings;
use crate::error::{Error, ErrorKind};
use crate::fields::{Faults, Fields, Path};
use crate::model::{
    INTEGER_BITS, MAX_DEPTH, Object, is_past_reading, is_too_deep, rounded_integers,
};
use crate::weight::weigh;

/// The most integers that a refusal names because they would be rounded: there may be one for every 21 bytes.
const MAX_ROUNDED: usize = 16;

/// The most memory that an opened body may take, in bytes: a megabyte of empty maps would take a hundred.
const HEAVIEST: usize = 8 << 20;

/// The default of both limits of [`Bodies`], in KiB: of texts that are read at once, and of bodies that are open.
const AT_ONCE: usize = 32 << 10;

/// The size in KiB up to which a body waits for no room. Nearly all are smaller, and those of 1,024 connections come to
/// 16 MiB.
const SMALL: usize = 16;

/// The memory in KiB up to which an open body needs no room: 1,024 changes at once come to 64 MiB.
const LIGHT: usize = 64;

/// The room for bodies that are being read, and for those that are open. Clones share it. A further body waits for room
/// to be read, and is refused with 429 if there is no room for it open. Small ones (16 KiB of text, 64 KiB of memory)
/// need no room.
#[derive(Debug, Clone)]
pub struct Bodies {
    texts: Room,
    open: Room,
}

impl Bodies {
    /// Room for `texts` KiB of bodies while they are read, and for `open` KiB of memory while their requests are
    /// carried out. A body that is larger by itself takes all of it.
    pub fn new(texts: usize, open: usize) -> Self {
        Self { texts: Room::new(texts, SMALL), open: Room::new(open, LIGHT) }
    }
}

impl Default for Bodies {
    /// Room of 32 MiB for each.
    fn default() -> Self {
        Self::new(AT_ONCE, AT_ONCE)
    }
}

/// Memory that bodies share, in KiB, and the size up to which a body needs none of it.
#[derive(Debug, Clone)]
struct Room {
    free: Arc<Semaphore>,
    all: usize,
    exempt: usize,
}

impl Room {
    fn new(kib: usize, exempt: usize) -> Self {
        let all = kib.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(all)), all, exempt }
    }

    /// Waits for room for `bytes`.
    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = self.needs(bytes)?;
        // It is never closed.
        Arc::clone(&self.free).acquire_many_owned(kib).await.ok()
    }

    /// Takes room for `bytes`, if there is enough now.
    fn take_now(&self, bytes: usize) -> Option<Open> {
        let Some(kib) = self.needs(bytes) else { return Some(Open::default()) };
        let room = Arc::clone(&self.free).try_acquire_many_owned(kib).ok()?;
        Some(Open { _held: Some(room) })
    }

    /// The room that a body needs, in KiB; `None`: none.
    fn needs(&self, bytes: usize) -> Option<u32> {
        let kib = bytes.div_ceil(1024);
        (kib > self.exempt).then(|| u32::try_from(kib.min(self.all)).unwrap_or(u32::MAX))
    }
}

/// A body that was read. The room of its text is held until it has been opened.
pub(super) struct Arrived {
    bytes: Bytes,
    text: Option<OwnedSemaphorePermit>,
    open: Open,
}

/// The room of a body that is open: held while its request is carried out.
#[derive(Default)]
pub(super) struct Open {
    _held: Option<OwnedSemaphorePermit>,
}

impl Arrived {
    /// The room to hold while the body's request is carried out.
    pub(super) fn room(&mut self) -> Open {
        std::mem::take(&mut self.open)
    }
}

/// Reads a body to its end.
///
/// # Errors
/// 413 for one over the limit, before it is read where its length is said, and for one that would take too much memory
/// once it is open; 408 for one that does not arrive in time; 429 for one for which there is no room in that time; 400
/// for one that ends early.
pub(super) async fn read(body: Body, settings: &Settings) -> Result<Arrived, Error> {
    let (limit, time) = (settings.body_limit, settings.body_timeout);
    let too_large = || too_large(format!("the body must have at most {limit} bytes"));
    let hint = body.size_hint();
    if usize::try_from(hint.lower()).map_or(true, |said| said > limit) {
        return Err(too_large());
    }
    let said = hint.exact().and_then(|said| usize::try_from(said).ok());
    let mut waits = true;
    let read = async {
        let text = settings.bodies.texts.take(said.unwrap_or(limit)).await;
        waits = false;
        let collected = Limited::new(body, limit).collect().await.map_err(|error| {
            match error.is::<LengthLimitError>() {
                true => too_large(),
                false => Error::bad_request("the body must arrive whole, and was cut short"),
            }
        })?;
        let bytes = collected.to_bytes();
        let weight = weigh(&bytes);
        if weight > HEAVIEST {
            return Err(too_heavy());
        }
        // Not waited for: what is open is so for as long as a change takes, and meanwhile nobody else's text had room.
        let Some(open) = settings.bodies.open.take_now(weight) else {
            return Err(too_many());
        };
        Ok(Arrived { bytes, text, open })
    };
    let read = tokio::time::timeout(time, read).await;
    read.unwrap_or_else(|_| match waits {
        true => Err(too_many()),
        false => {
            let description = format!("the body must arrive within {} s", time.as_secs_f32());
            Err(Error::new(ErrorKind::RequestTimeout, description))
        }
    })
}

fn too_many() -> Error {
    let description = "too many large bodies are under way; come again";
    Error::new(ErrorKind::TooManyRequests, description).retry_after(SOON)
}

fn too_heavy() -> Error {
    too_large(format!(
        "the body must take at most {} MiB of memory once it is read: let it have fewer maps and lists",
        HEAVIEST >> 20
    ))
}

fn too_large(description: String) -> Error {
    Error::new(ErrorKind::PayloadTooLarge, description)
}

/// Opens a body, which must be a JSON object. An empty body counts as an empty object, so that its
/// sender learns what should be in it.
pub(super) fn open<'p>(
    body: Arrived,
    path: &'p Path<'p>,
    faults: &'p Faults,
) -> Option<Fields<'p>> {
    let Arrived { bytes, text: _text, .. } = body;
    if bytes.is_empty() {
        return Fields::open(Value::Object(Object::new()), path, faults);
    }
    match serde_json::from_slice(&bytes) {
        Ok(value) if is_too_deep(&value) => {
            faults.add("body", format!("must not be nested more than {MAX_DEPTH} levels deep"));
            None
        }
        Ok(value @ Value::Object(_)) => {
            for path in rounded_integers(&bytes, &value).take(MAX_ROUNDED) {
                faults.add(path, INTEGER_BITS);
            }
            Fields::open(value, path, faults)
        }
        Ok(_) => {
            faults.add("body", "must be a JSON object");
            None
        }
        Err(error) if is_past_reading(&error) => {
            faults.add("body", format!("must not be nested more than {MAX_DEPTH} levels deep"));
            None
        }
        Err(error) => {
            faults.add("body", format!("must be JSON: {error}"));
            None
        }
    }
}
