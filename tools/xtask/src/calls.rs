//! Finds the system calls that a static program can make: it has no others than those in its own code.

use std::collections::BTreeSet;

use anyhow::ensure;

/// The system calls that would open a connection, by their numbers on x86-64 (`arch/x86/entry/syscalls/syscall_64.tbl`
/// of Linux). A pair of sockets, by which a child tells its parent why it did not begin, leads nowhere.
const NETWORK: [(u32, &str); 6] = [
    (41, "socket"),
    (42, "connect"),
    (43, "accept"),
    (49, "bind"),
    (50, "listen"),
    (288, "accept4"),
];
/// The system calls that must be found, or the search did not work: read, write, execve and exit_group.
const NEEDED: [u32; 4] = [0, 1, 59, 231];

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// How many bytes before a system call its number may be set.
const NEAR: usize = 32;

/// Fails if a program could open a connection. On x86-64; of other machines nothing is known here, which is said: the
/// agent is built on them, too.
pub(crate) fn opens_no_connection(program: &[u8]) -> anyhow::Result<()> {
    let machine = std::env::consts::ARCH;
    if machine != "x86_64" {
        eprintln!("whether the agent can open a connection is not known: {machine} is no x86_64");
        return Ok(());
    }
    let calls = of(program);
    let is_missing = |number: &&u32| !calls.contains(number);
    let missing: Vec<&u32> = NEEDED.iter().filter(is_missing).collect();
    ensure!(missing.is_empty(), "its system calls {missing:?} were not found: are others?");
    let can: Vec<&str> = NETWORK
        .iter()
        .filter(|(number, _)| calls.contains(number))
        .map(|(_, name)| *name)
        .collect();
    ensure!(can.is_empty(), "the agent is to need no network, and calls {}", can.join(", "));
    Ok(())
}

/// The numbers that are set shortly before a system call.
fn of(program: &[u8]) -> BTreeSet<u32> {
    let at = program.windows(2).enumerate().filter(|(_, bytes)| *bytes == SYSCALL);
    at.flat_map(|(at, _)| numbers(program.get(at.saturating_sub(NEAR)..at).unwrap_or_default()))
        .collect()
}

/// The numbers that code sets: by `mov eax, n`, by `push n; pop rax`, and zero by `xor eax, eax`.
fn numbers(code: &[u8]) -> impl Iterator<Item = u32> + '_ {
    (0..code.len()).filter_map(|at| match code.get(at..)? {
        [0xb8, a, b, c, d, ..] => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        [0x6a, n, 0x58, ..] => Some(u32::from(*n)),
        [0x31, 0xc0, ..] => Some(0),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that makes these calls, each set in a way of its own.
    fn program(more: &[u8]) -> Vec<u8> {
        let mut code = vec![0x90; 40];
        for set in [
            &[0x31, 0xc0][..],
            &[0xb8, 1, 0, 0, 0],
            &[0x6a, 59, 0x58],
            &[0xb8, 231, 0, 0, 0, 0x48, 0x89, 0xf7],
            more,
        ] {
            code.extend([set, &SYSCALL, &[0x90; 40]].concat());
        }
        code
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn who_can_open_a_connection_is_told() {
        assert!(opens_no_connection(&program(&[0xb8, 53, 0, 0, 0])).is_ok(), "a pair of sockets");
        for (name, set) in [
            ("socket", &[0xb8, 41, 0, 0, 0][..]),
            ("connect", &[0x6a, 42, 0x58]),
            ("accept4", &[0xb8, 0x20, 1, 0, 0]),
        ] {
            let said = opens_no_connection(&program(set)).unwrap_err().to_string();
            assert!(said.ends_with(&format!("calls {name}")), "{said}");
        }
        let said = opens_no_connection(&[0x90; 200]).unwrap_err().to_string();
        assert!(said.contains("were not found"), "{said}");
    }
}
