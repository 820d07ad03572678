//! The greeter as a `/bin/broker`: `manciple serve --broker-command target/debug/greeter`.

use std::process::ExitCode;

use greeter::Greeter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let folder = std::env::var_os("GREETINGS").unwrap_or_else(|| "/tmp".into());
    osb::jobs::main(Greeter { folder: folder.into() }).await
}
