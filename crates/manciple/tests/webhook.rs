//! `manciple controller --webhook-listen`, as the API server asks it.

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::Signal;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use support::{Served, Site, http, within};
use testkit::cluster;

/// A namespace for the length of a test.
struct Town(String);

impl Town {
    fn new(test: &str) -> Self {
        let name = format!("webhook-{test}-{}", std::process::id());
        cluster::apply(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        );
        Self(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command.arg("controller").args(arguments).env_clear();
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        for (name, value) in [
            ("KUBECONFIG", cluster::kubeconfig().unwrap().display().to_string()),
            ("POD_NAMESPACE", self.0.clone()),
            ("MONITORED_ID", self.0.clone()),
            ("APPLY_CRD", "true".to_owned()),
            ("MANCIPLE_LISTEN", "127.0.0.1:0".to_owned()),
            ("MANCIPLE_AGENT_FILE", cluster::packed_agent().unwrap().display().to_string()),
            ("MANCIPLE_LOG_FORMAT", "json".to_owned()),
        ] {
            command.env(name, value);
        }
        command
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        let arguments = ["delete", "namespace", &self.0, "--wait=false"];
        let _ = cluster::kubectl().args(arguments).output();
    }
}

/// Posts a body, and gives the code and the body of the answer; nothing if the certificate is not trusted.
fn post(address: &str, authority: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(session, TcpStream::connect(address).unwrap());
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let _ = stream.write_all(body.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// Where the webhook answers, as the log says.
fn address(server: &Served) -> Option<String> {
    let log = server.log();
    let line = log.lines().find(|line| line.contains("the webhook of templates answers"))?;
    let line: Value = serde_json::from_str(line).ok()?;
    let said = line.get("address").or_else(|| line.pointer("/fields/address"));
    said.and_then(Value::as_str).map(str::to_owned)
}

/// The certificate of a webhook.
struct Certified {
    site: Site,
}

impl Certified {
    fn new() -> Self {
        Self { site: Site::new("") }
    }

    /// Writes one, and gives it.
    fn renew(&self) -> String {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        self.site.write("tls.key", &made.signing_key.serialize_pem());
        self.site.write("tls.crt", &made.cert.pem());
        made.cert.pem()
    }

    /// A controller with the webhook, and where that answers.
    fn serve(&self, town: &Town) -> (Served, String) {
        let (cert, key) = (self.site.path().join("tls.crt"), self.site.path().join("tls.key"));
        let arguments = [
            "--webhook-listen",
            "127.0.0.1:0",
            "--webhook-cert",
            cert.to_str().unwrap(),
            "--webhook-key",
            key.to_str().unwrap(),
        ];
        let server = Served::start(&mut town.command(&arguments)).unwrap();
        let address = within(30, || address(&server));
        let address = address.unwrap_or_else(|| panic!("{}", server.log()));
        (server, address)
    }
}

/// The review of an instance that is to be made, with these objects in its template, as text.
fn review(town: &Town, objects: &str) -> String {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "42", "operation": "CREATE", "namespace": town.0,
            "userInfo": {"username": "alice"},
            "kind": {"group": "template.openshift.io", "kind": "TemplateInstance"},
            "object": {"metadata": {"name": "i"}, "spec": {"template": {"objects": []}}},
        },
    });
    review.to_string().replace(r#""objects":[]"#, &format!(r#""objects":{objects}"#))
}

/// A megabyte of small maps becomes a hundred once it is read. It is told before that, and of what is read there is no more
/// at once than the memory that a pod has.
#[test]
fn many_at_once_of_the_largest_leave_it_in_its_memory() {
    let (town, certified) = (Town::new("large"), Certified::new());
    let authority = certified.renew();
    let (server, address) = certified.serve(&town);
    let map = r#"{"":0},"#;
    for (name, count, is_read) in
        [("within the limit", 20_000, true), ("beyond it", 180_000, false)]
    {
        let body = review(&town, &format!("[{}{{}}]", map.repeat(count)));
        let (address, authority) = (&address, &authority);
        std::thread::scope(|scope| {
            let ask = || post(address, authority, "/admission", &body).unwrap();
            let asked: Vec<_> = (0..60).map(|_| scope.spawn(ask)).collect();
            for asked in asked {
                let (code, answer) = asked.join().unwrap();
                let answer: Value = serde_json::from_str(&answer).unwrap();
                assert_eq!(
                    (code, &answer["response"]["allowed"]),
                    (200, &json!(is_read)),
                    "{name}"
                );
                let why = answer["response"]["status"]["message"].as_str().unwrap_or_default();
                assert_eq!(why.contains("more than 16 MiB of memory"), !is_read, "{name}: {why}");
            }
        });
        let peak = server.peak_kib();
        println!("{name}: {peak} KiB");
        assert!(peak < 256 << 10, "{name}: {peak} KiB");
    }
}

#[test]
fn it_answers_reviews_takes_up_a_new_certificate_and_ends() {
    let (town, certified) = (Town::new("answers"), Certified::new());
    let first = certified.renew();
    let (mut server, address) = certified.serve(&town);
    let good = review(&town, "[]");
    let (code, body) = post(&address, &first, "/admission", &good).unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(true)), "{answer}");
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    // Another's requester is asked of the API server.
    let mut other: Value = serde_json::from_str(&good).unwrap();
    other["request"]["object"]["spec"]["requester"] = json!({"username": "bob"});
    let (code, body) = post(&address, &first, "/admission", &other.to_string()).unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &answer["response"]["status"]["code"]), (200, &json!(422)), "{answer}");
    for (name, path, body, expected) in [
        ("no review", "/admission", "{}".to_owned(), 400),
        ("no JSON", "/admission", "[".repeat(100_000), 400),
        ("too long", "/admission", " ".repeat((6 << 20) + 1), 413),
        ("elsewhere", "/", "{}".to_owned(), 404),
    ] {
        let code = post(&address, &first, path, &body).map(|(code, _)| code);
        assert_eq!(code, Some(expected), "{name}");
    }
    // As deep as the API server takes one: whoever asked is told.
    let deep = format!("{}1{}", "[".repeat(600), "]".repeat(600));
    let (code, body) = post(&address, &first, "/admission", &review(&town, &deep)).unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &answer["response"]["uid"]), (200, &json!("42")), "{answer}");
    let why = answer["response"]["status"]["message"].as_str().unwrap();
    assert!(why.contains("nested more than 127 levels deep"), "{answer}");
    let metrics = http::get(&server.address, "/metrics").unwrap();
    for said in ["admitted\"} 1\n", "refused\"} 2\n", "unanswered\"} 0\n"] {
        let expected = format!("manciple_admission_answers_total{{answer=\"{said}");
        assert!(metrics.body.as_str().unwrap().contains(&expected), "{expected}: {metrics:?}");
    }
    let second = certified.renew();
    let renewed = || post(&address, &second, "/admission", &good);
    assert!(within(30, renewed).is_some(), "{}", server.log());
    assert_eq!(post(&address, &first, "/admission", "{}"), None, "the old one is not served");
    server.signal(Signal::TERM);
    assert!(server.wait().unwrap().success(), "{}", server.log());
}

#[test]
fn a_webhook_without_a_certificate_is_refused() {
    let town = Town("nowhere".to_owned());
    for (name, arguments, words) in [
        ("none", &["--webhook-listen", "127.0.0.1:0"][..], "--webhook-cert"),
        ("no address", &["--webhook-cert", "a", "--webhook-key", "b"], "--webhook-listen"),
        (
            "no file",
            &["--webhook-listen", "127.0.0.1:0", "--webhook-cert", "/a", "--webhook-key", "/b"],
            "--webhook-cert, --webhook-key",
        ),
    ] {
        let (code, said) = Served::refused(&mut town.command(arguments));
        assert!(code != Some(0) && said.contains(words), "{name}: {said}");
    }
}
