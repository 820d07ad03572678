//! The identity of a broker's processes, by which they are told from others that have their numbers later.
//!
//! It is needed only when a supervisor was killed: its broker goes on with nobody to end it, and must be
//! ended before the run counts as lost, or a retry would work beside it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Pid, Signal, getpid, kill_process_group};
use serde::{Deserialize, Serialize};

/// The identity of the processes of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The process id of the supervisor, which is that of the session.
    session: i32,
    /// The process id of the broker, which is that of the process group; `None` before it was started: then the whole
    /// session is meant.
    group: Option<i32>,
    /// The start of the broker, or of the supervisor before there is one, in ticks since the machine's start.
    began: u64,
    /// The id of the machine's start (`boot_id`).
    boot: String,
}

/// The fields of `/proc/<pid>/stat` that tell processes apart (proc(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    group: i32,
    session: i32,
    began: u64,
}

impl Identity {
    /// The identity of this process's child, the broker.
    pub(super) fn of(broker: Pid) -> io::Result<Self> {
        let stat = stat(broker.as_raw_nonzero().get())?;
        let (session, group) = (stat.session, Some(stat.group));
        Ok(Self { session, group, began: stat.began, boot: boot()? })
    }

    /// The identity of this process and whatever it starts in its session.
    ///
    /// # Errors
    /// If the session is not its own: others are in it, too.
    pub(super) fn of_session() -> io::Result<Self> {
        let own = getpid().as_raw_nonzero().get();
        let stat = stat(own)?;
        if stat.session != own {
            return Err(io::Error::other("the supervisor has no session of its own"));
        }
        Ok(Self { session: own, group: None, began: stat.began, boot: boot()? })
    }

    /// Ends what is left of the group, or of the session; waits until it is gone, for two seconds at most.
    ///
    /// A number of a session or a group is not given away while a process of it is left, so a
    /// process that has both, on the same start of the machine, is one of these.
    pub(super) fn end(&self) -> io::Result<()> {
        if boot()? != self.boot {
            return Ok(());
        }
        for _ in 0..200 {
            let groups = self.groups_alive()?;
            if groups.is_empty() {
                return Ok(());
            }
            for group in groups.into_iter().filter_map(Pid::from_raw) {
                match kill_process_group(group, Signal::KILL) {
                    Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "processes of a lost run do not end"))
    }

    /// The process groups of this identity in which a process is left.
    fn groups_alive(&self) -> io::Result<BTreeSet<i32>> {
        if let Ok(leader) = stat(self.group.unwrap_or(self.session))
            && leader.began != self.began
        {
            return Ok(BTreeSet::new());
        }
        let numbers = fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let left = numbers.filter_map(|pid| stat(pid).ok()).filter(|process| {
            self.group.is_none_or(|group| process.group == group)
                && process.session == self.session
                && !matches!(process.state, 'Z' | 'X')
        });
        Ok(left.map(|process| process.group).collect())
    }
}

fn stat(pid: i32) -> io::Result<Stat> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))?;
    parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "stat"))
}

/// Parses `/proc/<pid>/stat`. The second field is the program's name in parentheses, and may hold anything.
fn parse(stat: &str) -> Option<Stat> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        began: fields.get(19)?.parse().ok()?,
    })
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_hostile_name_does_not_confuse() {
        let line = "42 (a) S 1 (b)) R 7 40 41 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 9999 0 0";
        let expected = Stat { state: 'R', group: 40, session: 41, began: 9999 };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse(""), None);
        assert_eq!(parse("1 (x) S"), None);
    }

    #[test]
    fn a_group_is_ended_and_one_with_its_number_is_not() {
        let mut child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let identity = Identity::of(pid).unwrap();
        for other in [
            Identity { boot: "another".to_owned(), ..identity.clone() },
            Identity { began: identity.began + 1, ..identity.clone() },
            Identity { session: identity.session + 1, ..identity.clone() },
        ] {
            other.end().unwrap();
            assert!(!identity.groups_alive().unwrap().is_empty(), "{other:?} ended {identity:?}");
        }
        identity.end().unwrap();
        assert!(identity.groups_alive().unwrap().is_empty());
        child.wait().unwrap();
    }

    #[test]
    fn a_session_is_ended_whose_leader_is_gone_and_one_with_its_number_is_not() {
        let script = "sleep 60 & read line";
        let mut command = Command::new("setsid");
        let command = command.args(["sh", "-c", script]).stdin(Stdio::piped());
        let mut leader = command.spawn().unwrap();
        let pid = i32::try_from(leader.id()).unwrap();
        // It is `setsid` first, then the shell, which starts the other.
        let has_both = || {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            children.is_ok_and(|children| !children.trim().is_empty())
        };
        while !has_both() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let began = stat(pid).unwrap().began;
        let identity = Identity { session: pid, group: None, began, boot: boot().unwrap() };
        Identity { began: identity.began + 1, ..identity.clone() }.end().unwrap();
        leader.kill().unwrap();
        leader.wait().unwrap();
        for other in [
            Identity { boot: "another".to_owned(), ..identity.clone() },
            Identity { session: identity.session + 1, ..identity.clone() },
        ] {
            other.end().unwrap();
            assert!(!identity.groups_alive().unwrap().is_empty(), "{other:?} ended {identity:?}");
        }
        identity.end().unwrap();
        assert!(identity.groups_alive().unwrap().is_empty());
    }

    #[test]
    fn one_in_the_session_of_another_does_not_take_it_for_its_own() {
        let own = stat(getpid().as_raw_nonzero().get()).unwrap();
        let is_leader = own.session == getpid().as_raw_nonzero().get();
        assert_eq!(Identity::of_session().is_ok(), is_leader);
    }
}
