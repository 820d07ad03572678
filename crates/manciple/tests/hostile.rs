//! Bytes that no platform sends: each gets a 4xx or an orderly end of the connection, the server goes
//! on, and nothing is recorded.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::Value;
use support::{Served, Site, http, order};

const BROKER: &str = r#"#!/bin/sh
[ "$1" = catalog ] || { echo '{}'; exit; }
echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
    "plans":[{"id":"p","name":"small","description":"d"}]}]}'
"#;

const GOOD: &str = r#"{"service_id":"s","plan_id":"p","organization_guid":"o","space_guid":"s"}"#;

fn serve() -> (Site, Served) {
    let mut site = Site::new(BROKER);
    site.settings =
        "auth: {disabled: true}\nhttp: {body_timeout: 500ms, head_timeout: 1s}\n".to_owned();
    let server = site.serve();
    order::ready(&server);
    (site, server)
}

fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Broker-API-Version: 2.17\r\n\
         Content-Type: application/json\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// What comes back until the server closes the connection, which it has to, and long before a minute is over.
fn exchange(server: &Served, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server may refuse before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection stays open: {error}\n{}", server.log()),
    }
    let _ = stream.shutdown(Shutdown::Both);
    answer
}

/// Every answer in what came back: status and body.
fn answers(bytes: &[u8]) -> Vec<(u16, String)> {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    let mut answers = Vec::new();
    while let Some((head, rest)) = text.split_once("\r\n\r\n") {
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        let length = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .map_or(0, |(_, length)| length.trim().parse().unwrap());
        let length = usize::min(length, rest.len());
        answers.push((status, rest[..length].to_owned()));
        text = rest[length..].to_owned();
    }
    answers
}

/// One answer with a status of these; a body is JSON with a description.
fn refused(server: &Served, name: &str, bytes: &[u8], statuses: &[u16]) -> String {
    let answers = answers(&exchange(server, bytes));
    assert_eq!(answers.len(), 1, "{name}: {answers:?}");
    let (status, body) = &answers[0];
    assert!(statuses.contains(status), "{name}: {status} {body}");
    described(name, *status, body)
}

fn described(name: &str, status: u16, body: &str) -> String {
    let body: Value =
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{name}: {status} {body}"));
    body["description"].as_str().unwrap_or_else(|| panic!("{name}: {status} {body}")).to_owned()
}

/// It answers, nothing is recorded, and nothing went wrong inside.
fn unharmed(server: &mut Served) {
    for kind in ["instances", "bindings"] {
        let page = http::get(&server.address, &format!("/admin/v1/{kind}?state=all")).unwrap();
        assert_eq!(page.body["items"].as_array().map(Vec::len), Some(0), "{page:?}");
    }
    assert_eq!(http::get(&server.address, "/v2/catalog").unwrap().status, 200);
    assert!(!server.has_ended());
    let log = server.log();
    assert!(!log.contains("panicked") && !log.contains("\"ERROR\""), "{log}");
}

#[test]
fn ids_that_cannot_be_ids_are_refused_by_name() {
    let (_site, mut server) = serve();
    let long = "x".repeat(10_000);
    for id in ["%00", "a%0Ab", "%FF%FE", &long, "%7F", "%C2%85"] {
        let path = format!("/v2/service_instances/{id}?accepts_incomplete=true");
        let said = refused(&server, id, &request("PUT", &path, "", GOOD), &[400, 414]);
        assert!(said.contains("instance_id"), "{id}: {said}");
        let path = format!("/v2/service_instances/i/service_bindings/{id}");
        let said = refused(&server, id, &request("PUT", &path, "", GOOD), &[400, 414]);
        assert!(said.contains("binding_id"), "{id}: {said}");
    }
    for path in ["/v2/service_instances/a/b/c", "/v2/service_instances/", "/v2/service_instances//"]
    {
        refused(&server, path, &request("PUT", path, "", GOOD), &[400, 404, 405]);
    }
    unharmed(&mut server);
}

#[test]
fn strange_ids_are_kept_as_they_are() {
    let (_site, server) = serve();
    for id in ["a%2Fb", "%2E%2E", "%C3%BC%F0%9F%90%98", "a%20b%3F%23%26", "%252F", "*:;,$"] {
        let ended = order::provisioned(&server, id, &serde_json::from_str(GOOD).unwrap());
        assert_eq!(ended["state"], "succeeded", "{id}: {ended}");
        let instance = http::get(&server.address, &order::path(id)).unwrap();
        assert_eq!(instance.status, 200, "{id}: {instance:?}");
    }
    let page = http::get(&server.address, "/admin/v1/instances?state=all").unwrap();
    let mut ids: Vec<_> = page.body["items"].as_array().unwrap().iter().collect();
    ids.sort_by_key(|item| item["instance_id"].as_str());
    let ids: Vec<_> = ids.iter().map(|item| item["instance_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["%2F", "*:;,$", "..", "a b?#&", "a/b", "ü🐘"]);
}

#[test]
fn bodies_that_cannot_be_meant_are_refused() {
    let (_site, mut server) = serve();
    let put = |headers: &str, body: &str| {
        request("PUT", "/v2/service_instances/i?accepts_incomplete=true", headers, body)
    };
    let deep = |levels: usize, open: &str, close: &str| {
        let (open, close) = (open.repeat(levels), close.repeat(levels));
        format!("{{\"service_id\":\"s\",\"plan_id\":\"p\",\"parameters\":{open}1{close}}}")
    };
    // What takes more memory is not even read.
    for (levels, status) in [(10_000, 400), (100_000, 413)] {
        refused(&server, "deep arrays", &put("", &deep(levels, "[", "]")), &[status]);
        refused(&server, "deep objects", &put("", &deep(levels, "{\"a\":", "}")), &[status]);
    }
    for body in
        ["", "{", "[]", "null", "\"s\"", "{}{}", "\u{0}", "{\"service_id\":\"s\\ud800\"}", "NaN"]
    {
        refused(&server, body, &put("", body), &[400]);
    }
    let large = format!("{{\"parameters\":\"{}\"}}", "x".repeat(2 * 1024 * 1024));
    refused(&server, "over the limit", &put("", &large), &[413]);
    let mut chunked = b"PUT /v2/service_instances/i HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
        X-Broker-API-Version: 2.17\r\nTransfer-Encoding: chunked\r\n\r\n"
        .to_vec();
    for _ in 0..40 {
        chunked.extend(b"10000\r\n");
        chunked.extend([b' '; 0x10000]);
        chunked.extend(b"\r\n");
    }
    refused(&server, "over the limit, unannounced", &chunked, &[413, 422]);
    let invalid = [b"{\"service_id\":\"".as_slice(), &[0xff, 0xfe], b"\"}"].concat();
    let mut bytes = put("", &"x".repeat(invalid.len()));
    bytes.truncate(bytes.len() - invalid.len());
    bytes.extend(invalid);
    refused(&server, "not UTF-8", &bytes, &[400]);
    unharmed(&mut server);
}

#[test]
fn headers_that_contradict_or_do_not_end_are_refused() {
    let (_site, mut server) = serve();
    let catalog = |headers: &str| request("GET", "/v2/catalog", headers, "");
    let version = "X-Broker-API-Version: 2.17\r\n";
    refused(&server, "two versions", &catalog(version), &[400, 412]);
    let huge = format!("X-Filler: {}\r\n", "x".repeat(64 * 1024));
    refused(&server, "a huge header", &catalog(&huge), &[400, 431]);
    let many = "X-A: b\r\n".repeat(5000);
    refused(&server, "many headers", &catalog(&many), &[400, 431]);
    let identity = "X-Broker-API-Originating-Identity: x !!!\r\n";
    let put = request("PUT", "/v2/service_instances/i?accepts_incomplete=true", identity, GOOD);
    refused(&server, "an identity that is none", &put, &[400]);
    let identity = "X-Broker-API-Originating-Identity: x e30=\r\n".repeat(2);
    let put = request("PUT", "/v2/service_instances/i?accepts_incomplete=true", &identity, GOOD);
    refused(&server, "two identities", &put, &[400]);
    let query = "/v2/service_instances/i?accepts_incomplete=true&accepts_incomplete=false";
    refused(&server, "two answers in the query", &request("PUT", query, "", GOOD), &[400]);
    let lengths = request("PUT", "/v2/service_instances/i", "Content-Length: 3\r\n", GOOD);
    refused(&server, "two lengths", &lengths, &[400]);
    unharmed(&mut server);
}

#[test]
fn a_head_beyond_what_is_configured_is_431() {
    let mut site = Site::new(BROKER);
    site.settings = "auth: {disabled: true}\nhttp: {head_limit: 1000}\n".to_owned();
    let server = site.serve();
    order::ready(&server);
    for (size, status) in [(500, 200), (1500, 431)] {
        let header = format!("X-Padding: {}\r\n", "x".repeat(size));
        let answer = exchange(&server, &request("GET", "/v2/catalog", &header, ""));
        let line = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(line.as_bytes()), "{}", String::from_utf8_lossy(&answer));
    }
}

#[test]
fn slow_senders_are_cut_off() {
    let (_site, mut server) = serve();
    let head = exchange(&server, b"GET /v2/catalog HTTP/1.1\r\nHost: x\r\nX-Bro");
    assert!(head.is_empty(), "nothing was asked yet: {head:?}");
    assert!(exchange(&server, b"").is_empty(), "an idle connection");
    let mut slow = request("PUT", "/v2/service_instances/i?accepts_incomplete=true", "", GOOD);
    slow.truncate(slow.len() - 10);
    let said = refused(&server, "a slow body", &slow, &[408]);
    assert!(said.contains("body"), "{said}");
    unharmed(&mut server);
}

#[test]
fn what_is_not_http_is_refused_without_a_word_too_many() {
    let (_site, mut server) = serve();
    for garbage in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v2/catalog HTTP/9.9\r\n\r\n",
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"GET /v2/catalog HTTP/1.1\r\nHost x\r\n\r\n",
    ] {
        let answers = answers(&exchange(&server, garbage));
        assert!(answers.iter().all(|(status, _)| (400..500).contains(status)), "{answers:?}");
    }
    for method in ["BREW", "POST", "TRACE", "OPTIONS", "PATCH"] {
        let bytes = request(method, "/v2/catalog", "", "");
        refused(&server, method, &bytes, &[404, 405]);
    }
    // Whatever is answered, it has no body (RFC 9110, 9.3.2).
    let head = request("HEAD", "/v2/service_instances/none", "", "");
    let heard = answers(&exchange(&server, &head));
    assert!(matches!(heard.as_slice(), [(404 | 405, body)] if body.is_empty()), "{heard:?}");
    let mut pipelined = request("GET", "/v2/service_instances/none", "", "");
    let text = String::from_utf8(pipelined.clone()).unwrap().replace("Connection: close\r\n", "");
    pipelined = text.into_bytes();
    pipelined.extend(b"\xff\xfe\xfd garbage \0\r\n\r\n");
    let answers = answers(&exchange(&server, &pipelined));
    let statuses: Vec<_> = answers.iter().map(|(status, _)| *status).collect();
    assert!(statuses == [404, 400] || statuses == [404], "{answers:?}");
    unharmed(&mut server);
}

/// A generator that is the same everywhere: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(number).unwrap() % limit.max(1)
    }
}

/// A request that is refused as it stands, with bytes of it changed, removed, repeated, inserted.
fn mutated(seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let unknown = GOOD.replace("\"s\",\"plan", "\"none\",\"plan");
    let instance = "/v2/service_instances/i";
    let mut bytes = match random.below(5) {
        0 => request("PUT", &format!("{instance}?accepts_incomplete=true"), "", &unknown),
        1 => request("PATCH", instance, "X-Broker-API-Request-Identity: r\r\n", &unknown),
        2 => request("PUT", &format!("{instance}/service_bindings/b"), "", &unknown),
        3 => request("DELETE", &format!("{instance}?service_id=s"), "", ""),
        _ => request("GET", &format!("{instance}/last_operation?operation=o"), "", ""),
    };
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        let end = (at + 1 + random.below(20)).min(bytes.len());
        match random.below(4) {
            0 => bytes[at] = random.below(256).try_into().unwrap(),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                let word = [b"\0".as_slice(), b"\r\n", b"\"", b"{", b"%2F", b"\xf0\x9f", b":"]
                    [random.below(7)];
                bytes.splice(at..at, word.iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn two_hundred_mutated_requests_change_nothing() {
    let (_site, mut server) = serve();
    let worker = |part: u64, server: &Served| {
        let mut refused = 0;
        for seed in (1..=200).filter(|seed| seed % 8 == part) {
            let bytes = mutated(seed);
            for (status, body) in answers(&exchange(server, &bytes)) {
                let text = String::from_utf8_lossy(&bytes);
                assert!((400..500).contains(&status), "seed {seed}: {status} {body}\n{text}");
                described(&format!("seed {seed}"), status, &body);
                refused += 1;
            }
        }
        refused
    };
    let refused: u32 = std::thread::scope(|scope| {
        let server = &server;
        let workers: Vec<_> =
            (0..8).map(|part| scope.spawn(move || worker(part, server))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    println!("answered with 4xx: {refused} of 200");
    assert!(refused >= 150, "{refused}");
    unharmed(&mut server);
}
