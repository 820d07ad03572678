//! Snapshots of what etcd held at a moment, to which a control plane can be restored.

use std::fs;
use std::path::Path;

use anyhow::ensure;

use super::{ControlPlane, LOOK, READY};

/// The folder of a control plane's etcd data.
const DATA: &str = "etcd";

/// All that etcd held at a moment: a copy of its directory.
pub struct Snapshot {
    folder: tempfile::TempDir,
}

impl ControlPlane {
    /// Copies what etcd holds. It is stopped meanwhile, so the copy is what it had written by then.
    ///
    /// # Errors
    /// If it has ended, or cannot be copied.
    pub fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let folder = tempfile::Builder::new().prefix("snapshot-").tempdir()?;
        self.pause_etcd()?;
        let copied = self.until_still().and_then(|()| copy(&self.data(), folder.path()));
        self.resume_etcd()?;
        copied.map(|()| Snapshot { folder })
    }

    /// Ends every part, puts back what etcd held, and starts them again: what came after it is forgotten.
    ///
    /// # Errors
    /// If a part has ended already, or does not start again.
    pub fn restore(&mut self, snapshot: &Snapshot) -> anyhow::Result<()> {
        let Self { manager, api_server, etcd, .. } = self;
        for part in manager.iter_mut().chain([api_server, etcd]) {
            part.kill()?;
        }
        fs::remove_dir_all(self.data())?;
        copy(snapshot.folder.path(), &self.data())?;
        self.etcd.start_again()?;
        self.start_api_server()?;
        self.manager.as_mut().map_or(Ok(()), super::Part::start_again)?;
        self.until_managed()
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder().join(DATA)
    }

    /// Waits until none of etcd's threads runs: a signal reaches each of them when it leaves the kernel.
    fn until_still(&self) -> anyhow::Result<()> {
        let begun = std::time::Instant::now();
        while !is_still(self.etcd.child.id())? {
            ensure!(begun.elapsed() < READY, "etcd does not stand still");
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Whether all threads of a process are stopped.
fn is_still(process: u32) -> anyhow::Result<bool> {
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("stat"))?;
        // Behind the name, which is in parentheses and may hold some.
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        if state != Some('T') {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => fs::copy(entry.path(), to).map(drop)?,
        }
    }
    Ok(())
}
