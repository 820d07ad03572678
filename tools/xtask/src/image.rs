//! Container images from scratch, without Docker and without a registry: an OCI archive that
//! `ctr images import`, `docker load`, `podman load` and `skopeo` read (OCI image specification 1.0).
//!
//! One layer, uncompressed, with nothing in it that depends on the machine or the hour: the same files
//! give the same digest.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// The user and the group of programs in pods, where nothing else is said.
const NOBODY: u32 = 65532;

/// An image that is being put together.
pub(crate) struct Image {
    name: String,
    entries: Vec<(String, Entry)>,
    command: Vec<String>,
    user: String,
}

enum Entry {
    File(PathBuf),
    Bytes(Vec<u8>, u32),
    Link(String),
    Folder(u32),
}

impl Image {
    /// An empty image; `name` with its tag.
    pub(crate) fn new(name: &str) -> Self {
        let (entries, command, user) = (Vec::new(), Vec::new(), String::new());
        Self { name: name.to_owned(), entries, command, user }
    }

    /// Adds an executable of this machine.
    pub(crate) fn file(self, path: &str, from: &Path) -> Self {
        self.entry(path, Entry::File(from.to_owned()))
    }

    /// Adds a program of this machine, and the libraries that it is linked with, each at its own path.
    pub(crate) fn program(mut self, path: &str, from: &Path) -> anyhow::Result<Self> {
        for library in libraries(from)? {
            let path = library.to_string_lossy().into_owned();
            if !self.entries.iter().any(|(there, _)| there == path.trim_start_matches('/')) {
                self = self.file(&path, &library);
            }
        }
        Ok(self.file(path, from))
    }

    /// Adds the users that programs look up.
    pub(crate) fn users(self) -> Self {
        let nobody =
            format!("root:x:0:0:root:/:/bin/sh\nmanciple:x:{NOBODY}:{NOBODY}:manciple:/:/bin/sh\n");
        self.bytes("/etc/passwd", nobody.as_bytes(), 0o644)
    }

    /// Adds a file.
    pub(crate) fn bytes(self, path: &str, bytes: &[u8], mode: u32) -> Self {
        self.entry(path, Entry::Bytes(bytes.to_owned(), mode))
    }

    /// Adds a symbolic link.
    pub(crate) fn link(self, path: &str, to: &str) -> Self {
        self.entry(path, Entry::Link(to.to_owned()))
    }

    /// Adds a folder.
    pub(crate) fn folder(self, path: &str, mode: u32) -> Self {
        self.entry(path, Entry::Folder(mode))
    }

    /// It is run without rights, unless something else is asked for.
    pub(crate) fn unprivileged(mut self) -> Self {
        self.user = format!("{NOBODY}:{NOBODY}");
        self
    }

    /// What is run unless something else is asked for.
    pub(crate) fn command(mut self, command: &[&str]) -> Self {
        self.command = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    fn entry(mut self, path: &str, entry: Entry) -> Self {
        self.entries.push((path.trim_start_matches('/').to_owned(), entry));
        self
    }

    /// Writes the archive.
    pub(crate) fn write(&self, archive: &Path) -> anyhow::Result<()> {
        let layer = self.layer()?;
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "User": self.user,
                "Entrypoint": self.command,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [of(&layer)]},
        })
        .to_string();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": described("config", config.as_bytes()),
            "layers": [described("layer", &layer)],
        })
        .to_string();
        let mut entry = described("manifest", manifest.as_bytes());
        // A name without a registry is one of Docker's, for whoever asks for it.
        let registry = if self.name.contains('/') { "" } else { "docker.io/library/" };
        entry["annotations"] = json!({
            "io.containerd.image.name": format!("{registry}{}", self.name),
            "org.opencontainers.image.ref.name": self.name,
        });
        let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();
        let mut tar = tar::Builder::new(File::create(archive)?);
        put(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
        put(&mut tar, "index.json", index.as_bytes(), 0o644)?;
        for blob in [config.as_bytes(), manifest.as_bytes(), &layer] {
            put(&mut tar, &format!("blobs/{}", of(blob).replace(':', "/")), blob, 0o644)?;
        }
        Ok(tar.finish()?)
    }

    fn layer(&self) -> anyhow::Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            match entry {
                Entry::File(from) => {
                    let mut bytes = Vec::new();
                    File::open(from)
                        .and_then(|mut file| file.read_to_end(&mut bytes))
                        .with_context(|| format!("{} cannot be read", from.display()))?;
                    put(&mut tar, path, &bytes, 0o755)?;
                }
                Entry::Bytes(bytes, mode) => put(&mut tar, path, bytes, *mode)?,
                Entry::Link(to) => {
                    let mut header = header(tar::EntryType::Symlink, 0, 0o777);
                    tar.append_link(&mut header, path, to)?;
                }
                Entry::Folder(mode) => {
                    let mut header = header(tar::EntryType::Directory, 0, *mode);
                    tar.append_data(&mut header, format!("{path}/"), std::io::empty())?;
                }
            }
        }
        Ok(tar.into_inner()?)
    }
}

/// An image with busybox and a link for each of its tools.
pub(crate) fn busybox(name: &str, program: &Path) -> anyhow::Result<Image> {
    let output = std::process::Command::new(program).arg("--list").output()?;
    let tools = String::from_utf8(output.stdout)?;
    let mut image = Image::new(name)
        .folder("/tmp", 0o1777)
        .file("/bin/busybox", program)
        .users()
        .command(&["/bin/sh"]);
    for tool in tools.lines().filter(|&tool| tool != "busybox") {
        image = image.link(&format!("/bin/{tool}"), "busybox");
    }
    Ok(image)
}

/// What a program is linked with, by `ldd`; nothing if it is static.
fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = std::process::Command::new("ldd").arg(program).output().context("ldd")?;
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = words.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.filter(|path| !path.ends_with(':')).map(PathBuf::from).collect())
}

fn put<W: std::io::Write>(
    tar: &mut tar::Builder<W>,
    path: &str,
    bytes: &[u8],
    mode: u32,
) -> std::io::Result<()> {
    let mut header = header(tar::EntryType::Regular, bytes.len() as u64, mode);
    tar.append_data(&mut header, path, Cursor::new(bytes))
}

fn header(kind: tar::EntryType, size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header
}

fn described(what: &str, bytes: &[u8]) -> Value {
    let kind = match what {
        "layer" => "application/vnd.oci.image.layer.v1.tar",
        "config" => "application/vnd.oci.image.config.v1+json",
        _ => "application/vnd.oci.image.manifest.v1+json",
    };
    json!({"mediaType": kind, "digest": of(bytes), "size": bytes.len()})
}

fn of(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(digest(&SHA256, bytes).as_ref()))
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
