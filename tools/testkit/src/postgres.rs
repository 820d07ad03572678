//! A real PostgreSQL server for the length of a test.
//!
//! A broker that makes databases is tested against a database, not against a pretence of one. The
//! server lives in a temporary directory, listens on a free port of 127.0.0.1 and on a socket in that
//! directory, asks for a password, and is gone when the value is dropped. It writes nothing through to
//! disk: what survives a power loss is tested elsewhere.
//!
//! ```text
//! find binaries ─▶ initdb ─▶ pg_ctl start on a free port ─▶ Postgres ─▶ drop: pg_ctl stop, rm -r
//!      └ absent: None                └ taken meanwhile: another port
//! ```

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

const ADMIN_USER: &str = "postgres";
const START_ATTEMPTS: usize = 5;

/// A running server; dropping it stops the server and removes its files.
///
/// A test process that is killed cannot drop anything: the server then stays until it is stopped by
/// hand.
#[derive(Debug)]
pub struct Postgres {
    programs: Programs,
    account: Option<Account>,
    directory: TempDir,
    port: u16,
    admin_password: String,
}

impl Postgres {
    /// Makes a new database cluster and starts it; a second or two.
    ///
    /// `None` when PostgreSQL is not installed (`initdb` and `psql`). `PG_BINDIR` names the directory with its programs
    /// when they are not in a usual place. Started by root, who may not run PostgreSQL, the server runs as `postgres`
    /// or `nobody`.
    ///
    /// # Errors
    ///
    /// When PostgreSQL is installed but does not start; the message ends with what it said.
    pub fn start() -> anyhow::Result<Option<Self>> {
        Programs::find().map(Self::start_with).transpose()
    }

    fn start_with(programs: Programs) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("postgres-").tempdir()?;
        let account = Account::needed(directory.path())?;
        if let Some(account) = account {
            chown(directory.path(), Some(account.uid), Some(account.gid))?;
        }
        let mut server =
            Self { programs, account, directory, port: 0, admin_password: random_password()? };
        server.initialise()?;
        for attempt in 1.. {
            server.port = free_port()?;
            match server.launch() {
                Ok(()) => break,
                // Between asking for a free port and using it, somebody else may have taken it.
                Err(error) if attempt == START_ATTEMPTS => return Err(error),
                Err(_) => {}
            }
        }
        Ok(server)
    }

    /// The name of the superuser.
    #[must_use]
    pub fn admin_user(&self) -> &str {
        ADMIN_USER
    }

    /// The superuser's password, new for each server.
    #[must_use]
    pub fn admin_password(&self) -> &str {
        &self.admin_password
    }

    /// The address the server listens on.
    #[must_use]
    pub fn host(&self) -> &str {
        "127.0.0.1"
    }

    /// The TCP port the server listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the Unix socket, which may stand where libpq wants a host.
    #[must_use]
    pub fn socket_directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs SQL and returns what it answers, one row a line, columns parted by `|`.
    ///
    /// Password and SQL are never arguments of a process.
    ///
    /// # Errors
    ///
    /// When the connection or a statement is refused; the message is what `psql` said.
    pub fn psql(
        &self,
        user: &str,
        password: &str,
        database: &str,
        sql: &str,
    ) -> anyhow::Result<String> {
        let mut child = Command::new(&self.programs.psql)
            .args(["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1"])
            .env("PGHOST", self.host())
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", user)
            .env("PGPASSWORD", password)
            .env("PGDATABASE", database)
            .env("PGCONNECT_TIMEOUT", "10")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.programs.psql.display()))?;
        let stdin = child.stdin.take();
        // Written beside reading: either pipe may fill up. A refused connection closes it early, and
        // then the exit status says more than the failed write.
        let output = std::thread::scope(|scope| {
            scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(sql.as_bytes())));
            child.wait_with_output()
        })?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8(output.stdout)?.trim_end_matches('\n').to_owned())
    }

    fn initialise(&self) -> anyhow::Result<()> {
        let password_file = self.directory.path().join("password");
        fs::write(&password_file, format!("{}\n", self.admin_password))?;
        fs::set_permissions(&password_file, fs::Permissions::from_mode(0o600))?;
        if let Some(account) = self.account {
            chown(&password_file, Some(account.uid), Some(account.gid))?;
        }
        let log = self.directory.path().join("initdb.log");
        let mut command = self.server_command("initdb");
        command
            .args(["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .args(["--username", ADMIN_USER])
            .arg("--pwfile")
            .arg(&password_file)
            .arg("--pgdata")
            .arg(self.data());
        run_logged(&mut command, &log)
    }

    fn launch(&self) -> anyhow::Result<()> {
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories='{}' -c fsync=off \
             -c full_page_writes=off -c shared_buffers=16MB -c authentication_timeout=5s",
            self.port,
            self.directory.path().display()
        );
        let log = self.directory.path().join("server.log");
        let mut command = self.server_command("pg_ctl");
        command
            .args(["start", "--silent", "--wait", "--timeout=180", "--options", &options])
            .arg("--pgdata")
            .arg(self.data());
        run_logged(&mut command, &log)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A program of the server, as the user it may run as, where that user may be.
    fn server_command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.directory.join(program));
        command.current_dir(self.directory.path());
        if let Some(account) = self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Nothing to stop when it never started; and a drop has nobody to report to.
        let _ = self
            .server_command("pg_ctl")
            .args(["stop", "--silent", "--mode=immediate", "--timeout=30", "--pgdata"])
            .arg(self.data())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

#[derive(Debug)]
struct Programs {
    /// Of `initdb`, `pg_ctl` and `postgres`, which Debian keeps off the search path.
    directory: PathBuf,
    psql: PathBuf,
}

impl Programs {
    fn find() -> Option<Self> {
        let path: Vec<PathBuf> = std::env::var_os("PATH")
            .map(|p| std::env::split_paths(&p).collect())
            .unwrap_or_default();
        let directory = match std::env::var_os("PG_BINDIR") {
            Some(directory) => vec![PathBuf::from(directory)],
            None => installed_versions().into_iter().chain(path.iter().cloned()).collect(),
        }
        .into_iter()
        .find(|directory| directory.join("initdb").is_file())?;
        let psql = std::iter::once(&directory)
            .chain(&path)
            .map(|directory| directory.join("psql"))
            .find(|psql| psql.is_file())?;
        Some(Self { directory, psql })
    }
}

/// The `bin` directories of Debian's and of Red Hat's packages, the newest version first.
fn installed_versions() -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for (parent, prefix) in [("/usr/lib/postgresql", ""), ("/usr", "pgsql-")] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let version = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse().ok());
            found.extend(version.map(|version| (version, entry.path().join("bin"))));
        }
    }
    found.sort();
    found.into_iter().rev().map(|(_, directory)| directory).collect()
}

/// The user a server started by root runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// The owner of what we have just made tells who we are, without a call into C.
    fn needed(own_directory: &Path) -> anyhow::Result<Option<Self>> {
        if fs::metadata(own_directory)?.uid() != 0 {
            return Ok(None);
        }
        let passwd = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        let Some(account) = ["postgres", "nobody"].iter().find_map(|name| Self::of(name, &passwd))
        else {
            bail!("PostgreSQL refuses to run as root, and there is no user postgres or nobody");
        };
        Ok(Some(account))
    }

    fn of(name: &str, passwd: &str) -> Option<Self> {
        passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find_map(|fields| {
            match fields.as_slice() {
                [user, _, uid, gid, ..] if *user == name => {
                    Some(Self { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
                }
                _ => None,
            }
        })
    }
}

/// Runs a command to its end with both its streams in a file, and quotes the file's end on failure.
///
/// Not pipes: a server started by the command would hold them open, and reading never end.
fn run_logged(command: &mut Command, log: &Path) -> anyhow::Result<()> {
    let file = fs::File::create(log)?;
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    if status.success() {
        return Ok(());
    }
    let said = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    let end = lines[lines.len().saturating_sub(10)..].join("\n");
    bail!("{program} failed, {status}:\n{end}")
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}

fn random_password() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_server_answers_asks_for_a_password_and_leaves_nothing() {
        let Some(server) = Postgres::start().unwrap() else {
            return crate::skipped("PostgreSQL is not installed");
        };
        let as_admin =
            |sql: &str| server.psql(server.admin_user(), server.admin_password(), "postgres", sql);
        assert_eq!(as_admin("SELECT 1, 'two'; SELECT 3").unwrap(), "1|two\n3");

        let refused =
            server.psql(server.admin_user(), "wrong", "postgres", "SELECT 1").unwrap_err();
        assert!(refused.to_string().contains("authentication failed"), "{refused}");
        let refused = as_admin("SELECT broken; SELECT 1").unwrap_err();
        assert!(refused.to_string().contains("does not exist"), "{refused}");

        // More than a pipe holds, in both directions.
        let long = format!("SELECT repeat('x', 300000), length('{}')", "y".repeat(300_000));
        assert!(as_admin(&long).unwrap().ends_with("x|300000"));

        let directory = server.socket_directory().to_owned();
        assert!(directory.join(format!(".s.PGSQL.{}", server.port())).exists());
        let mut waiting = TcpStream::connect((server.host(), server.port())).unwrap();
        waiting.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        drop(server);
        assert!(!directory.exists());
        let ended = waiting.read(&mut [0]);
        assert!(
            matches!(&ended, Ok(0))
                || matches!(&ended, Err(error) if error.kind() == ErrorKind::ConnectionReset),
            "somebody still serves this connection: {ended:?}"
        );
    }

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let passwd =
            "postgresql:x:1:2::/:/bin/sh\nbroken\npostgres:x:101:104:admin:/var:/bin/bash\n";
        assert_eq!(Account::of("postgres", passwd), Some(Account { uid: 101, gid: 104 }));
        assert_eq!(Account::of("nobody", passwd), None);
    }
}
