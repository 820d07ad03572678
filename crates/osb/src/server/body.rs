//! Bodies of requests: read within limits of length, time and memory, and opened.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::exchange::SOON;
use super::settings::Settings;
use crate::error::{Error, ErrorKind};
use crate::fields::{Faults, Fields, Path};
use crate::model::{INTEGER_BITS, MAX_DEPTH, Object, is_too_deep, rounded_integers};
use crate::weight::weigh;

/// So many integers that would be rounded are named: there may be one for every 21 bytes.
const MAX_ROUNDED: usize = 16;

/// No body is opened that takes more memory, in bytes: a megabyte of empty maps takes a hundred.
const HEAVIEST: usize = 8 << 20;

/// What bodies that are read at once come to, in KiB, unless said otherwise.
const AT_ONCE: usize = 32 << 10;

/// A body of so many KiB waits for no others. Nearly all are smaller, and those of 1,024 connections come to 16 MiB.
const SMALL: usize = 16;

/// The room for bodies that are being read. Whoever shares it, by a clone, reads no more at once than one alone would:
/// further bodies wait, but for small ones (16 KiB).
#[derive(Debug, Clone)]
pub struct Bodies {
    room: Arc<Semaphore>,
    kib: usize,
}

impl Bodies {
    /// For bodies that come to so many KiB. One that is larger by itself takes all of it.
    pub fn new(kib: usize) -> Self {
        let kib = kib.min(Semaphore::MAX_PERMITS);
        Self { room: Arc::new(Semaphore::new(kib)), kib }
    }

    /// Waits for the room for a body of so many bytes. A small one needs none.
    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = bytes.div_ceil(1024).min(self.kib);
        if kib <= SMALL {
            return None;
        }
        let room = Arc::clone(&self.room);
        // It is never closed.
        room.acquire_many_owned(u32::try_from(kib).unwrap_or(u32::MAX)).await.ok()
    }
}

impl Default for Bodies {
    /// 32 MiB.
    fn default() -> Self {
        Self::new(AT_ONCE)
    }
}

/// A body that was read. Its room is held until it has been opened, and not while what it asks for is done.
pub(super) struct Arrived {
    bytes: Bytes,
    room: Option<OwnedSemaphorePermit>,
}

/// Reads a body to its end.
///
/// # Errors
/// 413 for one over the limit, before it is read where its length is said, and for one that would take too much memory
/// to open; 408 for one that does not arrive in time; 429 for one for which there is no room in that time; 400 for one
/// that ends early.
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
        let room = settings.bodies.take(said.unwrap_or(limit)).await;
        waits = false;
        (room, Limited::new(body, limit).collect().await)
    };
    let read = tokio::time::timeout(time, read).await;
    match read {
        Ok((room, Ok(collected))) => light(Arrived { bytes: collected.to_bytes(), room }),
        Ok((_, Err(error))) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok((_, Err(_))) => Err(Error::bad_request("the body must arrive whole, and was cut short")),
        Err(_) if waits => {
            let description = "too many large bodies are being read; come again";
            Err(Error::new(ErrorKind::TooManyRequests, description).retry_after(SOON))
        }
        Err(_) => {
            let description = format!("the body must arrive within {} s", time.as_secs_f32());
            Err(Error::new(ErrorKind::RequestTimeout, description))
        }
    }
}

/// A body, if there is the memory to open it.
fn light(body: Arrived) -> Result<Arrived, Error> {
    if weigh(&body.bytes) > HEAVIEST {
        return Err(too_large(format!(
            "the body must take at most {} MiB of memory once it is read: let it have fewer maps and lists",
            HEAVIEST >> 20
        )));
    }
    Ok(body)
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
    let Arrived { bytes, room: _room } = body;
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
        Err(error) => {
            faults.add("body", format!("must be JSON: {error}"));
            None
        }
    }
}
