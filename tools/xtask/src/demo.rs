//! The demo of Manciple, end to end: a script becomes a broker, a platform orders from it, the server is
//! killed in the middle, and nothing is lost. Every step is printed as a person would type it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use testkit::postgres::Postgres;

/// How long anything may take here, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder for the demo, removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that ends when the demo does.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Demo {
    root: PathBuf,
    folder: Scratch,
    manciple: PathBuf,
    url: String,
}

/// Runs the demo, on a PostgreSQL server, or with directories if there is none.
pub(crate) fn run() -> anyhow::Result<()> {
    crate::run(crate::cargo().args(["build", "--quiet", "-p", "manciple"]))?;
    let demo = Demo::new()?;
    match Postgres::start()? {
        Some(database) => demo.postgres(&database),
        None => demo.files(),
    }
}

/// Runs the demo both ways, with the program that is built.
pub(crate) fn test() -> anyhow::Result<()> {
    Demo::new()?.files()?;
    let database = Postgres::start()?.context("there is no PostgreSQL to be started")?;
    Demo::new()?.postgres(&database)
}

fn say(text: &str) {
    println!("\n\u{1b}[1m# {text}\u{1b}[0m");
}

impl Demo {
    fn new() -> anyhow::Result<Self> {
        let root = std::env::current_dir()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        drop(listener);
        let name = format!("manciple-demo-{}-{}", std::process::id(), address.port());
        let folder = Scratch(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0)?;
        let url = format!("http://{address}");
        Ok(Self { manciple: crate::built("manciple")?, folder, root, url })
    }

    fn serve(&self, example: &str, settings: &[(&str, &Path)]) -> anyhow::Result<Server> {
        let mut command = Command::new(&self.manciple);
        command
            .args(["serve", "--listen", self.url.trim_start_matches("http://")])
            .arg("--data-dir")
            .arg(self.folder.0.join("data"))
            .arg("--broker-command")
            .arg(self.root.join("examples").join(example).join("broker"))
            .env("MANCIPLE_LOG_LEVEL", "warn")
            .stdin(Stdio::null());
        for (flag, path) in settings {
            command.arg(flag).arg(path);
        }
        println!("$ manciple serve --broker-command examples/{example}/broker …");
        let server = Server(command.spawn().context("manciple serve")?);
        let until = Instant::now() + PATIENCE;
        while !self.is_ready() {
            ensure!(Instant::now() < until, "the server is not ready after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    fn is_ready(&self) -> bool {
        use std::io::{Read, Write};
        let address = self.url.trim_start_matches("http://");
        let Ok(mut stream) = std::net::TcpStream::connect(address) else { return false };
        let asked =
            stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains(" 200 ")
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.manciple);
        let password = std::fs::read_to_string(self.folder.0.join("data/admin.password"));
        command
            .args(arguments)
            .env("MANCIPLE_URL", &self.url)
            .env("MANCIPLE_USER", "admin")
            .env("MANCIPLE_PASSWORD", password.unwrap_or_default().trim());
        command
    }

    fn manciple(&self, arguments: &[&str]) -> anyhow::Result<()> {
        println!("$ manciple {}", arguments.join(" "));
        let status = self.client(arguments).status()?;
        ensure!(status.success(), "manciple {}: {status}", arguments.join(" "));
        Ok(())
    }

    /// The credentials of a binding, by their names.
    fn credentials(&self, arguments: &[&str]) -> anyhow::Result<String> {
        println!("$ manciple {}", arguments.join(" "));
        let output = self.client(arguments).args(["--output", "json"]).output()?;
        ensure!(
            output.status.success(),
            "manciple {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    fn postgres(&self, database: &Postgres) -> anyhow::Result<()> {
        say("PostgreSQL is here: a server of our own was started, to sell databases from");
        let (config, secret) = (self.folder.0.join("config"), self.folder.0.join("secret"));
        let port = database.port().to_string();
        let keys = [
            (&config, "pg.host", database.host()),
            (&config, "pg.port", port.as_str()),
            (&config, "pg.admin.user", database.admin_user()),
            (&secret, "pg.admin.password", database.admin_password()),
        ];
        for (directory, key, value) in keys {
            std::fs::create_dir_all(directory)?;
            std::fs::write(directory.join(key), value)?;
        }
        let settings: &[(&str, &Path)] = &[("--config-dir", &config), ("--secret-dir", &secret)];
        say("A script of POSIX shell becomes a broker");
        let server = self.serve("postgres", settings)?;
        self.manciple(&["catalog"])?;
        say("A person orders a database");
        self.manciple(&["provision", "postgres", "small", "shop"])?;
        say("An application is bound, and connects with what it was given");
        let answer = self.credentials(&["bind", "shop", "web"])?;
        let uri = member(&answer, "uri")?;
        psql(&uri, "CREATE TABLE orders (what text); INSERT INTO orders VALUES ('a database')")?;
        println!("$ psql \"$uri\" -c 'SELECT what FROM orders'");
        println!("{}", psql(&uri, "SELECT what FROM orders")?);
        say("The server is killed with an order on its way (kill -9), and started again");
        self.manciple(&["provision", "postgres", "small", "second", "--no-wait"])?;
        drop(server);
        println!("$ kill -9 …");
        let server = self.serve("postgres", settings)?;
        self.wait("second")?;
        self.manciple(&["instances"])?;
        println!("the first database still answers: {}", psql(&uri, "SELECT what FROM orders")?);
        say("Everything is given back, and is really gone");
        self.manciple(&["unbind", "shop", "web"])?;
        ensure!(psql(&uri, "SELECT 1").is_err(), "the credentials still connect");
        println!("the credentials connect no more");
        self.manciple(&["deprovision", "shop"])?;
        self.manciple(&["deprovision", "second"])?;
        self.manciple(&["operations"])?;
        drop(server);
        say(
            "Done. examples/postgres/broker is the whole broker; `cargo xtask test` tests all of it",
        );
        Ok(())
    }

    fn files(&self) -> anyhow::Result<()> {
        say("PostgreSQL is not here: a broker that needs nothing but a shell shows the same");
        let config = self.folder.0.join("config");
        std::fs::create_dir(&config)?;
        let root = self.folder.0.join("files");
        std::fs::create_dir(&root)?;
        std::fs::write(config.join("files.root"), root.to_string_lossy().as_bytes())?;
        let settings: &[(&str, &Path)] = &[("--config-dir", &config)];
        let server = self.serve("files", settings)?;
        self.manciple(&["catalog"])?;
        say("A person orders a directory, and is given a token for it");
        self.manciple(&["provision", "files", "plain", "shop"])?;
        self.manciple(&["bind", "shop", "web"])?;
        say("The server is killed with an order on its way (kill -9), and started again");
        self.manciple(&["provision", "files", "plain", "second", "--no-wait"])?;
        drop(server);
        println!("$ kill -9 …");
        let server = self.serve("files", settings)?;
        self.wait("second")?;
        self.manciple(&["instances"])?;
        say("Everything is given back, and is really gone");
        self.manciple(&["unbind", "shop", "web"])?;
        self.manciple(&["deprovision", "shop"])?;
        self.manciple(&["deprovision", "second"])?;
        self.manciple(&["operations"])?;
        drop(server);
        say("Done. examples/files/broker is the whole broker; `cargo xtask test` tests all of it");
        Ok(())
    }

    /// Waits for the last operation of an instance.
    fn wait(&self, instance: &str) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let output = self.client(&["status", instance, "--output", "json"]).output()?;
            let text = String::from_utf8_lossy(&output.stdout).replace(' ', "");
            if text.contains("\"state\":\"ready\"") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        bail!("{instance} is not ready after {PATIENCE:?}");
    }
}

/// A string member, wherever it is in a JSON text.
fn member(json: &str, name: &str) -> anyhow::Result<String> {
    let after = json.split(&format!("\"{name}\"")).nth(1);
    let value = after.and_then(|rest| rest.split('"').nth(1));
    value.map(ToOwned::to_owned).with_context(|| format!("no {name} in the answer"))
}

fn psql(uri: &str, sql: &str) -> anyhow::Result<String> {
    // The URI holds a password: by the environment, so that no process list shows it.
    let rest = uri.split_once("://").map(|(_, rest)| rest).context("not a URI")?;
    let (user, rest) = rest.split_once(':').context("no password")?;
    let (password, rest) = rest.split_once('@').context("no host")?;
    let output = Command::new("psql")
        .arg(format!("postgresql://{user}@{rest}"))
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql])
        .env("PGPASSWORD", password)
        .env("PGCONNECT_TIMEOUT", "30")
        .output()?;
    ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
