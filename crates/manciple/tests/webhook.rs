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
    fn new() -> Self {
        let name = format!("webhook-{}", std::process::id());
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

#[test]
fn it_answers_reviews_takes_up_a_new_certificate_and_ends() {
    let (town, site) = (Town::new(), Site::new(""));
    let certify = || {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        site.write("tls.key", &made.signing_key.serialize_pem());
        site.write("tls.crt", &made.cert.pem());
        made.cert.pem()
    };
    let first = certify();
    let (cert, key) = (site.path().join("tls.crt"), site.path().join("tls.key"));
    let arguments = [
        "--webhook-listen",
        "127.0.0.1:0",
        "--webhook-cert",
        cert.to_str().unwrap(),
        "--webhook-key",
        key.to_str().unwrap(),
    ];
    let mut server = Served::start(&mut town.command(&arguments)).unwrap();
    let address = within(30, || address(&server));
    let address = address.unwrap_or_else(|| panic!("{}", server.log()));
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "42", "operation": "CREATE", "namespace": town.0,
            "userInfo": {"username": "alice"},
            "kind": {"group": "template.openshift.io", "kind": "TemplateInstance"},
            "object": {"metadata": {"name": "i"}, "spec": {"template": {"objects": []}}},
        },
    });
    let (code, body) = post(&address, &first, "/admission", &review.to_string()).unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(true)), "{answer}");
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    // Another's requester is asked of the API server.
    let mut other = review.clone();
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
    let deep = review.to_string().replace(r#""objects":[]"#, &format!(r#""objects":{deep}"#));
    let (code, body) = post(&address, &first, "/admission", &deep).unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &answer["response"]["uid"]), (200, &json!("42")), "{answer}");
    let why = answer["response"]["status"]["message"].as_str().unwrap();
    assert!(why.contains("nested too deep"), "{answer}");
    let metrics = http::get(&server.address, "/metrics").unwrap();
    for said in ["admitted\"} 1\n", "refused\"} 2\n", "unanswered\"} 0\n"] {
        let expected = format!("manciple_admission_answers_total{{answer=\"{said}");
        assert!(metrics.body.as_str().unwrap().contains(&expected), "{expected}: {metrics:?}");
    }
    let second = certify();
    let renewed = || post(&address, &second, "/admission", &review.to_string());
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
