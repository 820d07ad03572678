//! Reads the files that containers have left.
//!
//! A container may have put anything in the place of a file. Where the agent is in a container of its own, it
//! reads only what is in their directory: a link out of it is not followed.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use agent::{Content, Gathered, Gathering, Outputs};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat, openat2};
use rustix::io::Errno;

/// The flags with which a file is opened: opening a pipe or a device does not wait.
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// How many times a file is opened anew because the kernel gave up when something was renamed meanwhile.
const TRIES: usize = 10;

/// Gathers the content of each file, as it is now, and what was `printed`.
pub(crate) fn gather(gathering: &Gathering, printed: Option<&Content>) -> Gathered {
    let limit = gathering.file_limit;
    let found = gathering.outputs.iter().flat_map(|(container, outputs)| {
        let printed = outputs.stdout.as_deref().zip(printed);
        let names = outputs.files.iter().map(String::as_str);
        let names = names.filter(move |name| printed.is_none_or(|(printed, _)| printed != *name));
        let printed = printed.map(|(name, content)| (name, content.clone()));
        let found = of(outputs, names, limit).chain(printed);
        found.map(|(name, content)| (container.as_str(), name, content))
    });
    Gathered::of(&gathering.run, found)
}

/// The files of a container, each of which is read when it is asked for.
fn of<'a>(
    outputs: &Outputs,
    names: impl Iterator<Item = &'a str>,
    limit: usize,
) -> impl Iterator<Item = (&'a str, Content)> {
    let directory = open(&outputs.directory, DIRECTORY, Mode::empty());
    names.map(move |name| {
        let content = match &directory {
            Ok(directory) => content(directory.as_fd(), name, limit),
            Err(Errno::NOENT) => Content::Missing,
            Err(error) => unreadable(&format!("its directory cannot be opened ({})", said(*error))),
        };
        (name, content)
    })
}

fn content(directory: BorrowedFd<'_>, name: &str, limit: usize) -> Content {
    let Some(path) = Outputs::path_within(name) else {
        return unreadable("its name is no path within the directory: it is empty, or has ..");
    };
    match open_beneath(directory, &path) {
        Ok(file) => read(File::from(file), limit)
            .unwrap_or_else(|error| unreadable(&format!("it cannot be read ({error})"))),
        Err(Errno::NOENT) => Content::Missing,
        Err(Errno::XDEV | Errno::LOOP) => {
            unreadable("it is a link that is not followed: put the file itself there")
        }
        Err(Errno::NXIO) => unreadable(NO_FILE),
        Err(error) => unreadable(&format!("it cannot be opened ({})", said(error))),
    }
}

const NO_FILE: &str = "it is no regular file";

fn read(file: File, limit: usize) -> io::Result<Content> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(unreadable(NO_FILE));
    }
    let (length, limit) = (metadata.len(), limit as u64);
    if length > limit {
        return Ok(Content::TooLarge(length));
    }
    let mut content = Vec::new();
    let read = file.take(limit.saturating_add(1)).read_to_end(&mut content)? as u64;
    Ok(match String::from_utf8(content) {
        // It has grown.
        _ if read > limit => Content::TooLarge(read),
        Ok(text) => Content::Text(text),
        Err(_) => Content::NotText,
    })
}

/// Opens a file in the directory, following links that stay in it.
fn open_beneath(directory: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match openat2(directory, name, FILE, Mode::empty(), within) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A kernel before 5.6, or a seccomp profile of its time.
            Err(Errno::NOSYS | Errno::PERM) => return open_without_links(directory, name),
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

/// Does as [`open_beneath`] for a name without links.
fn open_without_links(directory: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let open = |within: BorrowedFd<'_>, name: &Path, flags: OFlags| {
        openat(within, name, flags | OFlags::NOFOLLOW, Mode::empty())
    };
    let mut parts: Vec<_> = name.iter().collect();
    let last = parts.pop().unwrap_or_default();
    let mut within: Option<OwnedFd> = None;
    for part in parts {
        let inner = open(within.as_ref().map_or(directory, AsFd::as_fd), part.as_ref(), DIRECTORY)?;
        within = Some(inner);
    }
    open(within.as_ref().map_or(directory, AsFd::as_fd), last.as_ref(), FILE)
}

fn unreadable(why: &str) -> Content {
    Content::Unreadable(why.to_owned())
}

fn said(error: Errno) -> io::Error {
    error.into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn without_openat2_no_link_is_followed_at_all() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("out/sub")).unwrap();
        fs::write(place.path().join("token"), "").unwrap();
        fs::write(place.path().join("out/sub/a"), "").unwrap();
        let links = [("token", "../token"), ("up", ".."), ("a", "sub/a"), ("same", "sub")];
        for (name, target) in links {
            symlink(target, place.path().join("out").join(name)).unwrap();
        }
        let directory = open(place.path().join("out"), DIRECTORY, Mode::empty()).unwrap();
        let cases = [
            ("sub/a", None),
            ("nothing", Some(Errno::NOENT)),
            ("sub/nothing", Some(Errno::NOENT)),
            ("token", Some(Errno::LOOP)),
            ("a", Some(Errno::LOOP)),
            // Of a link that should be a directory, that is what it is not.
            ("up/token", Some(Errno::NOTDIR)),
            ("same/a", Some(Errno::NOTDIR)),
        ];
        for (name, error) in cases {
            let opened = open_without_links(directory.as_fd(), name.as_ref());
            assert_eq!(opened.err(), error, "{name}");
        }
    }
}
