//! What the program is told by its environment, as far as it is wrong.

use std::path::Path;
use std::process::Command;

const PASSWORD: &str = "planted-password";

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn made(folder: &Path, name: &str) -> [String; 2] {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = made.signing_key.serialize_pem();
    [
        write(folder, &format!("{name}.crt"), &made.cert.pem()),
        write(folder, &format!("{name}.key"), &key),
    ]
}

#[test]
fn what_is_wrong_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| write(folder.path(), name, text);
    let (password, empty) = (at("password", PASSWORD), at("empty", "\n"));
    let ([chain, key], [_, other]) = (made(folder.path(), "one"), made(folder.path(), "other"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let right = [
        ("POD_NAMESPACE", "n"),
        ("POD_NAME", "p"),
        ("PLATFORM_PASSWORD_FILE", password.as_str()),
        ("TLS_CERTIFICATE_FILE", chain.as_str()),
        ("TLS_KEY_FILE", key.as_str()),
        ("LISTEN", "127.0.0.1:0"),
    ];
    for (name, value, words) in [
        ("POD_NAMESPACE", "", "POD_NAMESPACE: is not set: give the namespace"),
        ("POD_NAME", "", "POD_NAME: is not set: give a name that no other replica has"),
        ("PLATFORM_PASSWORD_FILE", "", "PLATFORM_PASSWORD_FILE: is not set: give the file"),
        ("PLATFORM_PASSWORD_FILE", "/none", "/none cannot be read"),
        ("PLATFORM_PASSWORD_FILE", &empty, "is empty: put a password into it"),
        ("TLS_CERTIFICATE_FILE", "", "TLS_CERTIFICATE_FILE: is not set, and TLS_KEY_FILE is"),
        ("TLS_KEY_FILE", "", "TLS_KEY_FILE: is not set, and TLS_CERTIFICATE_FILE is"),
        ("TLS_KEY_FILE", &password, "cannot be read as PEM"),
        ("TLS_CERTIFICATE_FILE", &password, "holds no certificate"),
        ("TLS_KEY_FILE", &other, "do not belong together"),
        ("LISTEN", &taken, "cannot be listened on: give an address and a port that are free"),
        ("LISTEN", "everywhere", "LISTEN: everywhere cannot be listened on"),
        ("RUST_LOG", "a=b=c", "RUST_LOG: give a level"),
        ("KUBECONFIG", "/none", "no cluster is configured: give a kubeconfig"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_operator"));
        let output = command.env_clear().envs(right).env(name, value).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}={value}: {said}");
        assert!(said.contains(words) && said.contains(name), "{name}={value}: {said}");
        assert!(!said.contains(PASSWORD), "{name}={value}: {said}");
    }
}
