//! Tests of the embedded store beyond the contract: what happens around crashes, keys, full disks and
//! damaged files.

mod backups;
mod contract;
mod crash;
mod opening;
mod rotation;
mod secrecy;
mod shapes;
mod writing;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::ports::{Store, Stored, Version};
use engine::record::{Key, Record};
use engine::testing::store_contract::sample;
use osb::InstanceId;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::*;

/// A directory for a store and for the keys that it is opened with.
struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// Where the store is.
    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn database(&self) -> PathBuf {
        self.store().join("manciple.db")
    }

    fn key(&self, n: u8) -> KeySource {
        key_in(self.dir.path(), n)
    }

    /// Every read looks at the disk, which is what is tested.
    fn options(&self) -> Options {
        let mut options = Options::new(self.store(), self.key(1));
        options.tuning.recent = 0;
        options
    }

    fn open(&self) -> EmbeddedStore {
        EmbeddedStore::open(&self.options()).unwrap()
    }

    /// A connection of nobody's: what a stranger with access to the file could do.
    fn stranger(&self) -> Connection {
        let connection = Connection::open(self.database()).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        connection
    }

    /// The bytes of every file of the store.
    fn bytes(&self) -> Vec<(PathBuf, Vec<u8>)> {
        files(&self.store())
    }
}

/// The `n`th of the operator's keys.
fn key_in(home: &Path, n: u8) -> KeySource {
    let path = home.join(format!("key-{n}"));
    if !path.exists() {
        let text: String = (0..32).map(|byte| format!("{:02x}", byte ^ n)).collect();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    KeySource::File(path)
}

fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

fn key(id: &str) -> Key {
    Key::Instance(InstanceId::new(id).unwrap())
}

/// An instance with a parameter.
fn with_parameter(id: &str, value: &str) -> Record {
    let Value::Object(parameters) = json!({"parameter": value}) else { unreachable!() };
    let mut record = sample(id);
    record.ordered.parameters = parameters.into();
    record
}

async fn put(store: &EmbeddedStore, record: Record) -> Version {
    store.write(Arc::new(record), None).await.unwrap()
}

async fn get(store: &EmbeddedStore, id: &str) -> Stored {
    store.read(&key(id)).await.unwrap().unwrap()
}

/// Writes `count` instances `i-0`, `i-1`, ….
async fn fill(store: &EmbeddedStore, count: usize) {
    let writes = (0..count).map(|n| {
        let record = with_parameter(&format!("i-{n:05}"), &format!("value-{n}"));
        store.write(Arc::new(record), None)
    });
    for written in join_all(writes).await {
        written.unwrap();
    }
}

/// Polls all of them until all are done.
async fn join_all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *done = Some(value),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    done.into_iter().map(Option::unwrap).collect()
}

/// Waits until `condition`, for at most a minute.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within a minute: {what}");
}

async fn rotated(store: &EmbeddedStore) {
    until("everything is sealed again", || store.rotation().retiring_keys == 0).await;
}
