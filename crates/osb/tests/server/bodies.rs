//! What bodies may take: of memory each, and of room together while they are read and while they are open.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::Method;
use hyper::body::{Frame, SizeHint};
use osb::server::{Bodies, Settings};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::{Ask, BINDING, INSTANCE, Mood, Rig, provision_with, put, settings};

/// A body that never comes, of a length that may be said.
struct Stuck(Option<u64>);

impl HttpBody for Stuck {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        self.0.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

fn stuck(length: Option<u64>) -> Ask {
    let ask = Ask::new(Method::PUT, INSTANCE).header("content-type", "application/json");
    ask.body(Body::new(Stuck(length)))
}

/// An order of a little more than so many KiB.
fn order(kib: usize) -> Ask {
    put(INSTANCE, &provision_with(json!({"context": {"x": "y".repeat(kib * 1024)}})))
}

/// A server that waits so long for a body, with the room that it has for them.
fn server(bodies: &Bodies, body_timeout: Duration) -> Rig {
    Rig::with(Settings { bodies: bodies.clone(), body_timeout, ..settings() })
}

const MUCH: usize = 1024;
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_body_that_would_take_too_much_memory_is_413_and_says_what_to_do() {
    let maps = |count: usize| format!("[{}0]", r#"{"":0},"#.repeat(count));
    let lists = |count: usize| format!("[{}0]", "[],".repeat(count));
    for (name, value, is_taken) in [
        ("some maps", maps(10_000), true),
        ("many maps", maps(12_000), false),
        ("a megabyte of maps", maps(140_000), false),
        ("some lists", lists(30_000), true),
        ("many lists", lists(40_000), false),
        ("a text that is like maps", format!("\"{}\"", "{,[".repeat(300_000)), true),
    ] {
        let rig = Rig::new();
        let text = provision_with(json!({"context": {"x": "HERE"}})).to_string();
        let text = text.replace("\"HERE\"", &value);
        let ask = Ask::new(Method::PUT, INSTANCE).header("content-type", "application/json");
        let answer = rig.send(ask.body(text)).await;
        if is_taken {
            assert_eq!(answer.status, 201, "{name}");
            continue;
        }
        let why = answer.refusal(413, "PayloadTooLarge");
        let words = "at most 8 MiB of memory once it is read: let it have fewer maps and lists";
        assert!(why.contains(words), "{name}: {why}");
        assert_eq!(rig.heard(), [], "{name}");
    }
    for (method, path) in [(Method::PATCH, INSTANCE), (Method::PUT, BINDING)] {
        let ask = Ask::new(method, path).header("content-type", "application/json");
        let rig = Rig::new();
        rig.send(ask.body(maps(140_000))).await.refusal(413, "PayloadTooLarge");
        assert_eq!(rig.heard(), [], "{path}");
    }
}

#[tokio::test]
async fn a_large_body_for_which_there_is_no_room_in_its_time_is_429_and_a_small_one_needs_none() {
    for (name, length) in [("as it says", Some(64 * 1024)), ("as it does not say", None)] {
        let bodies = Bodies::new(64, MUCH);
        let (reads, waits) = (server(&bodies, LONG), server(&bodies, SHORT));
        let others = async {
            waits.send(order(40)).await.refusal(429, "TooManyRequests");
            assert_eq!(waits.send(order(1)).await.status, 201, "{name}: a small one");
        };
        tokio::select! {
            biased;
            answer = reads.send(stuck(length)) => panic!("{name}: {}", answer.status),
            () = others => {}
        }
        // Whoever sent it has gone.
        assert_eq!(waits.send(order(40)).await.status, 201, "{name}: there is room again");
    }
}

#[tokio::test]
async fn the_room_of_a_body_is_given_back_when_its_time_is_over_and_when_it_has_been_opened() {
    let bodies = Bodies::new(64, MUCH);
    let (slow, next) = (server(&bodies, SHORT), server(&bodies, LONG));
    slow.send(stuck(Some(64 * 1024))).await.refusal(408, "RequestTimeout");
    assert_eq!(next.send(order(60)).await.status, 201);
    let gate = Arc::new(Semaphore::new(0));
    slow.mood(Mood::Waiting(Arc::clone(&gate)));
    tokio::select! {
        biased;
        answer = slow.send(order(60)) => panic!("it is under way: {}", answer.status),
        answer = next.send(order(60)) => assert_eq!(answer.status, 201),
    }
    gate.add_permits(1);
}

#[tokio::test]
async fn a_body_that_takes_much_memory_has_its_room_until_what_it_asks_for_is_done() {
    let bodies = Bodies::new(MUCH, 256);
    let (slow, next) = (server(&bodies, SHORT), server(&bodies, SHORT));
    let gate = Arc::new(Semaphore::new(0));
    slow.mood(Mood::Waiting(Arc::clone(&gate)));
    let others = async {
        while slow.heard().is_empty() {
            tokio::task::yield_now().await;
        }
        let why = next.send(order(200)).await.refusal(429, "TooManyRequests");
        assert_eq!(why, "too many large bodies are under way; come again");
        assert_eq!(next.send(order(40)).await.status, 201, "a small one");
    };
    tokio::select! {
        biased;
        answer = slow.send(order(200)) => panic!("it is under way: {}", answer.status),
        () = others => {}
    }
    // Whoever asked has gone, and it is under way.
    next.send(order(200)).await.refusal(429, "TooManyRequests");
    gate.add_permits(1);
    // There is room again once that is done.
    while next.send(order(200)).await.status != 201 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_body_that_is_larger_than_all_the_room_takes_all_of_it() {
    let rig = server(&Bodies::new(20, MUCH), LONG);
    for _ in 0..2 {
        assert_eq!(rig.send(order(100)).await.status, 201);
    }
}
