//! Launches a supervisor, and waits for its answer whether it started the run.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::order::{GO, Order, Reply};
use super::refusal::Refusal;

/// How long to wait for a supervisor's answer; its run may begin even later.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many bytes of a supervisor's stderr are reported.
const MAX_COMPLAINT_BYTES: u64 = 1024;

/// Starts a supervisor for the run in a directory. The order goes through a pipe; nothing of it is in
/// the supervisor's arguments or environment, nor is anything of this process's environment.
pub(super) async fn launch(
    supervisor: &[OsString],
    directory: &Path,
    order: &Order,
) -> Result<(Reply, Child), Refusal> {
    let Some((program, arguments)) = supervisor.split_first() else {
        return Err(Refusal::permanent("no supervisor is configured"));
    };
    let order = serde_json::to_vec(order)
        .map_err(|error| Refusal::permanent(format!("the order cannot be written: {error}")))?;
    let mut order = Zeroizing::new(order);
    order.push(b'\n');
    let mut child = Command::new(program)
        .args(arguments)
        .arg(directory)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Refusal::of_program(Path::new(program), &error))?;
    let refusal = match timeout(PATIENCE, converse(&mut child, &order)).await {
        Ok(Ok(reply)) => return Ok((reply, child)),
        Ok(Err(error)) => format!("the supervisor ended without an answer: {error}"),
        Err(_) => format!("the supervisor did not answer within {} s", PATIENCE.as_secs()),
    };
    tokio::spawn(async move { child.wait().await });
    Err(Refusal::transient(refusal))
}

async fn converse(child: &mut Child, order: &[u8]) -> io::Result<Reply> {
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let mut stdout = BufReader::new(stdout);
    // A supervisor that ended early is told of by what it said, not by the broken pipe.
    let _ = stdin.write_all(order).await;
    let mut reply = read_reply(&mut stdout).await;
    if matches!(reply, Ok(Reply::Ready)) {
        let _ = stdin.write_all(GO.as_bytes()).await;
        reply = read_reply(&mut stdout).await;
    }
    match reply {
        Ok(reply) => {
            child.stderr = None;
            Ok(reply)
        }
        Err(error) => Err(complaint(child).await.unwrap_or(error)),
    }
}

async fn read_reply(stdout: &mut BufReader<ChildStdout>) -> io::Result<Reply> {
    let mut line = String::new();
    stdout.read_line(&mut line).await?;
    Ok(serde_json::from_str(&line)?)
}

async fn complaint(child: &mut Child) -> Option<io::Error> {
    let mut said = Vec::new();
    child.stderr.take()?.take(MAX_COMPLAINT_BYTES).read_to_end(&mut said).await.ok()?;
    let said = String::from_utf8_lossy(said.trim_ascii()).into_owned();
    (!said.is_empty()).then(|| io::Error::other(said))
}
