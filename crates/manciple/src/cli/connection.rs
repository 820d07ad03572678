//! One broker, as one command sees it.

use std::env::VarError;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use osb::client::{
    Auth, Client, ClientError, ClientSettings, Polling, REQUEST_IDENTITY_HEADER, SettingsError,
};
use osb::{BindingId, Catalog, InstanceId, Plan};

use super::args::{Format, RemoteArgs};
use super::failure::Failure;
use super::input;
use super::output::{Output, arguments, quoted};

/// The URL of the broker if none is given.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// The time limit for one request, as for platforms.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How many times in a row a server may answer with an error before the command fails.
const FAILURES: u32 = 4;

/// A broker, as one command uses it.
pub(crate) struct Connection {
    /// The client of the broker.
    pub(crate) client: Client,
    /// The URL of the broker, for messages.
    pub(crate) url: String,
    /// The output of the command.
    pub(crate) out: Output,
    /// The longest to wait for an operation, if the user sets one.
    pub(crate) patience: Option<Duration>,
    /// The operation that goes on at the broker when the command is interrupted.
    pub(crate) ongoing: Ongoing,
}

impl Connection {
    /// Prepares a connection, and opens none yet: reads secrets and checks settings. No request takes longer than
    /// `most`, however long the command waits.
    pub(crate) fn new(
        args: &RemoteArgs,
        most: Duration,
        ongoing: Ongoing,
    ) -> Result<Self, Failure> {
        let url = given(args.url.clone(), "MANCIPLE_URL")?;
        let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
        let mut settings = ClientSettings::new(url.clone());
        settings.auth = auth(args)?;
        settings.timeout = limit(args.timeout, most);
        let ca_file = args.ca_file.clone().or(path_variable("MANCIPLE_CA_FILE"));
        if let Some(path) = ca_file {
            let pem = std::fs::read(&path).map_err(|error| {
                Failure::usage(format!("cannot read {}: {error}", path.display()))
            })?;
            settings.ca_certificates = Some(pem);
        }
        let out = Output { format: format(args)?, quiet: args.printing.quiet };
        let secret = !matches!(settings.auth, Auth::None);
        // The URL may hold a password by mistake; until it is checked it is not repeated.
        let client = Client::new(settings).map_err(|error| {
            let hint = match &error {
                SettingsError::BaseUrl(_) => "see --url and MANCIPLE_URL",
                SettingsError::Colon | SettingsError::Header(_) => {
                    "see --user and MANCIPLE_USER, or MANCIPLE_TOKEN"
                }
                _ => "see --ca-file and MANCIPLE_CA_FILE",
            };
            Failure::usage(error.to_string()).hint(hint)
        })?;
        if secret && out.is_chatty() && leaves_the_machine(&url) {
            out.note(&format!(
                "warning: {url} is not encrypted; the password can be read on the way"
            ));
        }
        Ok(Self { client, url, out, patience: args.timeout, ongoing })
    }

    /// The failure of a request. `what` completes "cannot …".
    pub(crate) fn refused(&self, what: &str, error: &ClientError) -> Failure {
        Failure::request(what, &self.url, error)
    }

    /// Repeats a request until there is an answer: a restart of the server, or a passing error, is no reason to end. It
    /// gives up after the time for which polling goes on without any answer.
    pub(crate) async fn patiently<T, F>(&self, ask: impl Fn() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let silence = Polling::default().silence;
        let until = Instant::now() + self.patience.map_or(silence, |most| most.min(silence));
        let mut failures = 0;
        loop {
            let error = match ask().await {
                Err(error) if error.is_passing() => error,
                answer => return answer,
            };
            failures += u32::from(error.status().is_some());
            if failures >= FAILURES || Instant::now() >= until {
                return Err(error);
            }
            let pause = error.retry_after().unwrap_or(Duration::from_secs(1));
            tokio::time::sleep(pause.min(Duration::from_secs(10))).await;
        }
    }

    /// The way to poll an operation, by its plan if that is known.
    pub(crate) fn polling(&self, plan: Option<&Plan>) -> Polling {
        let mut polling = plan.map_or_else(Polling::default, Polling::for_plan);
        // A person waits: most operations take seconds, and one who watches is worth a request.
        polling.first_interval = Duration::from_millis(300);
        polling.max_interval = Duration::from_secs(5);
        if let Some(patience) = self.patience {
            polling.deadline = patience;
        }
        polling
    }

    /// Fetches the catalog.
    pub(crate) async fn catalog(&self) -> Result<Catalog, Failure> {
        let answer = self.client.catalog(None).await;
        let catalog = answer.map_err(|error| self.refused("read the catalog", &error))?.body;
        catalog.ok_or_else(|| Failure::missing(format!("{} has no catalog", self.url)))
    }

    /// A new id that nothing else has: a random UUID.
    pub(crate) fn new_id(&self) -> Result<String, Failure> {
        // The identity of a request is one, and the client makes a new one for each.
        let headers = self.client.headers();
        let id = headers.get(REQUEST_IDENTITY_HEADER).and_then(|id| id.to_str().ok());
        id.map(str::to_owned).ok_or_else(|| Failure::usage("cannot make an id up; name one"))
    }
}

/// The subject of a command: an instance, or a binding of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The instance, or the binding's.
    pub(crate) instance: InstanceId,
    /// The binding.
    pub(crate) binding: Option<BindingId>,
}

impl Subject {
    /// The subject with the ids that somebody typed.
    pub(crate) fn new(instance: &str, binding: Option<&str>) -> Result<Self, Failure> {
        let wrong = |what: &str, error| Failure::usage(format!("the {what}'s id {error}"));
        let binding = binding.map(BindingId::new).transpose();
        Ok(Self {
            instance: InstanceId::new(instance).map_err(|error| wrong("instance", error))?,
            binding: binding.map_err(|error| wrong("binding", error))?,
        })
    }

    /// The ids as the last arguments of a command that a person may copy.
    pub(crate) fn words(&self) -> String {
        arguments([Some(self.instance.as_str()), self.binding.as_ref().map(BindingId::as_str)])
    }

    /// Does as [`Self::words`], with an option, which comes last unless an id would be taken for another option.
    pub(crate) fn words_and(&self, option: &str) -> String {
        let words = self.words();
        match words.starts_with("-- ") {
            true => format!("{option} {words}"),
            false => format!("{words} {option}"),
        }
    }

    /// The ids as options of a command that a person may copy.
    pub(crate) fn options(&self) -> String {
        let option = |name: &str, id: &str| {
            let between = if id.starts_with('-') { '=' } else { ' ' };
            format!("{name}{between}{}", quoted(id))
        };
        let instance = option("--instance", self.instance.as_str());
        match &self.binding {
            None => instance,
            Some(binding) => format!("{instance} {}", option("--binding", binding.as_str())),
        }
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.binding {
            None => write!(f, "instance {}", self.instance),
            Some(binding) => write!(f, "binding {binding} of instance {}", self.instance),
        }
    }
}

/// The operation that the broker has accepted and not yet ended: it is named if the command is interrupted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ongoing(Arc<Mutex<Option<(String, String)>>>);

impl Ongoing {
    /// Notes that an operation goes on; `follow` is the command that shows it.
    pub(crate) fn set(&self, what: String, follow: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((what, follow));
    }

    /// Notes that the operation has ended.
    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The operation that goes on, and the command that shows it.
    pub(crate) fn get(&self) -> Option<(String, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The format to print in, by the options or the environment.
pub(crate) fn format(args: &RemoteArgs) -> Result<Format, Failure> {
    match (args.printing.output, variable("MANCIPLE_OUTPUT")?.as_deref()) {
        (Some(format), _) => Ok(format),
        (None, None | Some("table")) => Ok(Format::Table),
        (None, Some("json")) => Ok(Format::Json),
        (None, Some(_)) => Err(Failure::usage("MANCIPLE_OUTPUT must be table or json")),
    }
}

/// The credentials, by the options or else the environment. Contradicting ones are refused: which credentials a
/// command uses must not be a guess.
fn auth(args: &RemoteArgs) -> Result<Auth, Failure> {
    if let Some(path) = &args.token_file {
        return Ok(Auth::Bearer(input::secret(path)?));
    }
    let token = variable("MANCIPLE_TOKEN")?;
    let user = given(args.user.clone(), "MANCIPLE_USER")?;
    match (user, token) {
        (Some(_), Some(_)) if args.user.is_none() => {
            Err(Failure::usage("MANCIPLE_USER and MANCIPLE_TOKEN are both set")
                .hint("unset one of them"))
        }
        (Some(user), _) => {
            let password = match &args.password_file {
                Some(path) => input::secret(path)?,
                None => variable("MANCIPLE_PASSWORD")?.map(Into::into).ok_or_else(|| {
                    Failure::usage("a user is named, and no password")
                        .hint("set MANCIPLE_PASSWORD, or name a file: --password-file FILE")
                })?,
            };
            Ok(Auth::Basic { user, password })
        }
        (None, _) if args.password_file.is_some() => {
            Err(Failure::usage("a password is named, and no user").hint("add --user NAME"))
        }
        (None, Some(token)) => Ok(Auth::Bearer(token.into())),
        (None, None) => Ok(Auth::None),
    }
}

/// The time limit of a request, given how long the command waits in all.
fn limit(patience: Option<Duration>, most: Duration) -> Duration {
    patience.unwrap_or(REQUEST_TIMEOUT).min(most)
}

/// The value of an option, or else of its variable.
fn given(option: Option<String>, name: &str) -> Result<Option<String>, Failure> {
    if option.is_some() { Ok(option) } else { variable(name) }
}

/// The value of an environment variable; an empty one counts as absent.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("{name} is not UTF-8")).hint(format!("set {name} anew")))
        }
    }
}

/// Does as [`variable`] for a path, which may be any bytes.
fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(Into::into)
}

fn leaves_the_machine(url: &str) -> bool {
    let Some(rest) = url.trim().strip_prefix("http://") else {
        return false;
    };
    let local = ["127.", "localhost", "[::1]"];
    !local.iter().any(|host| rest.starts_with(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_short_unless_it_is_all_that_is_waited_for() {
        let seconds = Duration::from_secs;
        for (case, patience, most, expected) in [
            ("nobody says", None, REQUEST_TIMEOUT, 60),
            ("an operation may take long", Some(600), REQUEST_TIMEOUT, 60),
            ("in a hurry", Some(5), REQUEST_TIMEOUT, 5),
            ("a backup", None, Duration::MAX, 60),
            ("a large backup", Some(600), Duration::MAX, 600),
        ] {
            assert_eq!(limit(patience.map(seconds), most), seconds(expected), "{case}");
        }
    }

    #[test]
    fn only_plain_http_to_elsewhere_is_worth_a_warning() {
        for (url, expected) in [
            ("http://127.0.0.1:8080", false),
            ("http://localhost", false),
            ("http://[::1]:8080", false),
            ("https://broker.example", false),
            ("http://broker.example", true),
        ] {
            assert_eq!(leaves_the_machine(url), expected, "{url}");
        }
    }

    #[test]
    fn subjects_are_words_that_can_be_copied() {
        let subject = Subject::new("my db", Some("b")).unwrap();
        assert_eq!(subject.words(), "'my db' b");
        assert_eq!(subject.options(), "--instance 'my db' --binding b");
        assert_eq!(subject.words_and("--watch"), "'my db' b --watch");
        assert_eq!(subject.to_string(), "binding b of instance my db");
        for (instance, binding) in [("-i", "b"), ("i", "-b")] {
            let subject = Subject::new(instance, Some(binding)).unwrap();
            let words = format!("-- {instance} {binding}");
            assert_eq!(subject.words(), words, "what begins with a dash is no option");
            assert_eq!(subject.words_and("--watch"), format!("--watch {words}"));
        }
        let subject = Subject::new("-i", Some("-b")).unwrap();
        assert_eq!(subject.options(), "--instance=-i --binding=-b");
        assert!(Subject::new("", None).is_err());
    }
}
