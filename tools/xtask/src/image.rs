//! Container images from scratch, without Docker and without a registry: an OCI archive that `ctr images import`,
//! `docker load`, `podman load` and `skopeo` read (OCI image specification 1.0). Beside its index is the manifest of
//! `docker save`: a Docker that keeps its images itself, and not in containerd, reads nothing else.
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

/// The file of an archive that lists its images; the annotation by which it names them is below.
const INDEX: &str = "index.json";
const NAME: &str = "io.containerd.image.name";
/// The file that lists the images for Docker.
const SAVED: &str = "manifest.json";

/// An image that is being put together.
pub(crate) struct Image {
    name: String,
    entries: Vec<(String, Entry)>,
    command: Vec<String>,
    arguments: Vec<String>,
    user: String,
    stop: Option<String>,
}

enum Entry {
    File(PathBuf),
    Bytes(Vec<u8>, u32),
    Link(String),
    Folder(u32),
}

impl Image {
    /// An empty image; `name` includes its tag.
    pub(crate) fn new(name: &str) -> Self {
        let (entries, command, user) = (Vec::new(), Vec::new(), String::new());
        let (name, arguments) = (name.to_owned(), Vec::new());
        Self { name, entries, command, arguments, user, stop: None }
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

    /// Has the image run without rights, unless something else is asked for.
    pub(crate) fn unprivileged(self) -> Self {
        self.user(NOBODY)
    }

    /// Has the image run as this user, of the group of the same number, unless something else is asked for.
    pub(crate) fn user(mut self, number: u32) -> Self {
        self.user = format!("{number}:{number}");
        self
    }

    /// Sets the signal that ends the container, in the place of SIGTERM.
    pub(crate) fn stopped_by(mut self, signal: &str) -> Self {
        self.stop = Some(signal.to_owned());
        self
    }

    /// Sets the command that is run unless another is asked for.
    pub(crate) fn command(mut self, command: &[&str]) -> Self {
        self.command = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Sets the arguments of the command, unless others are asked for.
    pub(crate) fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Adds an entry, which replaces one that was added at the same path.
    fn entry(mut self, path: &str, entry: Entry) -> Self {
        let path = path.trim_start_matches('/');
        self.entries.retain(|(there, _)| there != path);
        self.entries.push((path.to_owned(), entry));
        self
    }

    /// Writes the archive.
    pub(crate) fn write(&self, archive: &Path) -> anyhow::Result<()> {
        let layer = self.layer()?;
        let config = self.config(&of(&layer)).to_string();
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
            NAME: format!("{registry}{}", self.name),
            "org.opencontainers.image.ref.name": self.name,
        });
        let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();
        let mut tar = tar::Builder::new(File::create(archive)?);
        put(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
        put(&mut tar, INDEX, index.as_bytes(), 0o644)?;
        put(&mut tar, SAVED, self.saved(config.as_bytes(), &layer).as_bytes(), 0o644)?;
        for blob in [config.as_bytes(), manifest.as_bytes(), &layer] {
            put(&mut tar, &place(blob), blob, 0o644)?;
        }
        Ok(tar.finish()?)
    }

    /// The manifest that says where the parts are, as that of `docker save`.
    fn saved(&self, config: &[u8], layer: &[u8]) -> String {
        let image =
            json!({"Config": place(config), "RepoTags": [self.name], "Layers": [place(layer)]});
        json!([image]).to_string()
    }

    /// The configuration of the image, with this one layer.
    fn config(&self, layer: &str) -> Value {
        let mut config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "User": self.user,
                "Entrypoint": self.command,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [layer]},
        });
        if !self.arguments.is_empty() {
            config["config"]["Cmd"] = json!(self.arguments);
        }
        if let Some(signal) = &self.stop {
            config["config"]["StopSignal"] = json!(signal);
        }
        config
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

/// The name by which containerd has an image that was written, and the digest of its manifest.
pub(crate) fn written(archive: &Path) -> anyhow::Result<(String, String)> {
    let no_image = || format!("{} is no image of ours", archive.display());
    let mut tar = tar::Archive::new(File::open(archive).with_context(no_image)?);
    for entry in tar.entries()? {
        let mut entry = entry?;
        if entry.path_bytes().as_ref() == INDEX.as_bytes() {
            let mut text = String::new();
            entry.read_to_string(&mut text)?;
            let index: Value = serde_json::from_str(&text)?;
            let manifest = &index["manifests"][0];
            let word = |value: &Value| value.as_str().map(ToOwned::to_owned).with_context(no_image);
            return Ok((word(&manifest["annotations"][NAME])?, word(&manifest["digest"])?));
        }
    }
    anyhow::bail!(no_image())
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

/// The libraries that a program is linked with, by `ldd`; none if it is static.
pub(crate) fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
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

/// The path of a part in an archive.
fn place(blob: &[u8]) -> String {
    format!("blobs/{}", of(blob).replace(':', "/"))
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::io::Read;

    use serde_json::{Value, json};

    use super::{INDEX, Image, SAVED, described, of, written};

    #[test]
    fn what_is_written_is_named_and_told_from_another() {
        let folder = std::env::temp_dir().join(format!("manciple-image-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, image: Image| {
            let archive = folder.join(name);
            image.write(&archive).unwrap();
            written(&archive).unwrap()
        };
        let image = || Image::new("manciple.test/one:1").bytes("/etc/one", b"one", 0o644);
        let (name, digest) = write("one", image());
        assert_eq!(name, "manciple.test/one:1");
        assert_eq!(write("again", image()).1, digest);
        assert_ne!(write("stopped", image().stopped_by("SIGINT")).1, digest);
        let replaced = Image::new("manciple.test/one:1").bytes("/etc/one", b"two", 0o644);
        assert_eq!(write("replaced", replaced.bytes("/etc/one", b"one", 0o644)).1, digest);
        assert_eq!(write("short", Image::new("one:1")).0, "docker.io/library/one:1");
        std::fs::write(folder.join("none"), described("config", b"").to_string()).unwrap();
        assert!(written(&folder.join("none")).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn docker_finds_every_part_by_the_manifest_that_it_would_have_saved() {
        let folder = std::env::temp_dir().join(format!("manciple-saved-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let archives = ["one", "again"].map(|name| folder.join(name));
        for archive in &archives {
            let image = Image::new("one:1").bytes("/etc/one", b"one", 0o644).command(&["/one"]);
            image.write(archive).unwrap();
        }
        let members: BTreeMap<String, Vec<u8>> =
            tar::Archive::new(File::open(&archives[0]).unwrap())
                .entries()
                .unwrap()
                .map(|entry| {
                    let (mut entry, mut bytes) = (entry.unwrap(), Vec::new());
                    entry.read_to_end(&mut bytes).unwrap();
                    (entry.path().unwrap().to_str().unwrap().to_owned(), bytes)
                })
                .collect();
        let read = |name: &str| serde_json::from_slice::<Value>(&members[name]).unwrap();
        let saved = read(SAVED);
        let (config, layer) = (&saved[0]["Config"], &saved[0]["Layers"][0]);
        let expected = json!([{"Config": config, "RepoTags": ["one:1"], "Layers": [layer]}]);
        assert_eq!(saved, expected, "and nothing else");
        let layer = &members[layer.as_str().unwrap()];
        let config = read(config.as_str().unwrap());
        assert_eq!(config["config"]["Entrypoint"], json!(["/one"]));
        assert_eq!(config["rootfs"]["diff_ids"], json!([of(layer)]));
        assert!(layer.windows(3).any(|bytes| bytes == b"one"));
        assert_eq!(read(INDEX)["manifests"].as_array().map(Vec::len), Some(1), "for all others");
        let [one, again] = archives.map(|archive| std::fs::read(archive).unwrap());
        assert!(one == again, "the same files make the same archive");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_run_without_arguments_is_said_apart_from_the_program() {
        let image = Image::new("a").command(&["/usr/bin/a"]);
        let config = image.config("sha256:x");
        assert_eq!(config["config"]["Entrypoint"], json!(["/usr/bin/a"]));
        assert_eq!(config["config"].get("Cmd"), None);
        let config = image.arguments(&["serve"]).config("sha256:x");
        assert_eq!(config["config"]["Cmd"], json!(["serve"]));
        assert_eq!(config["rootfs"]["diff_ids"], json!(["sha256:x"]));
    }
}
