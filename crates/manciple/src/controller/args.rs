//! The command line of `manciple controller`, the original operator's with it.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use kubernetes::brokers::resources_fault;
use kubernetes::quarks::{Monitored, WORKERS};
use serde_json::Value;
use template::translate::Translation;

use super::webhook::WebhookArgs;
use crate::serve::{
    AgentDelivery, Cluster, Drift, Format, Log, Period, Requesters, Spelling, Translate,
    drift_interval_fault, level_filter, namespace, refuse,
};

const MONITORED_ID: &str = "default";

/// What a run was begun with is good until the key after the next.
const LEAST_KEY_ROTATION: Duration = Duration::from_secs(60 * 60);

/// Runs QuarksJobs: Jobs that run when something happens, and whose output is kept. Makes TemplateInstances, where it
/// is told to.
#[derive(Debug, clap::Args)]
pub(crate) struct ControllerArgs {
    /// What it looks after
    #[arg(
        long,
        env = "MANCIPLE_CONTROLLERS",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "quarks"
    )]
    controllers: Vec<Which>,
    /// For templates: whose word it is that a requester is who ordered a TemplateInstance
    #[arg(long, env = "MANCIPLE_REQUESTERS", default_value = "verified", value_name = "WHOSE")]
    pub(crate) requesters: Requesters,
    /// For templates: the namespaces whose TemplateInstances are made [default: all]
    #[arg(
        long, env = "MANCIPLE_INSTANCE_NAMESPACES", value_name = "LIST", value_delimiter = ',',
        value_parser = |name: &str| namespace(name.trim())
    )]
    pub(crate) instance_namespaces: Vec<String>,
    /// For templates: what becomes of objects that are not what was made, unless their instance says otherwise
    #[arg(long, env = "MANCIPLE_DRIFT", default_value = "report", value_name = "WHAT")]
    pub(crate) drift: Drift,
    /// For templates: how often that is looked at; 0s: never
    #[arg(long, env = "MANCIPLE_DRIFT_INTERVAL", default_value = "1h", value_name = "PERIOD")]
    pub(crate) drift_interval: Period,
    /// For templates: have Routes, DeploymentConfigs and OpenShift's roles become what any Kubernetes has
    #[arg(long, env = "MANCIPLE_TRANSLATE")]
    translate: bool,
    #[command(flatten)]
    translation: Translate,
    /// The cluster, where this does not run in a pod of it [env: KUBECONFIG] [default: ~/.kube/config]
    #[arg(short = 'c', long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where the Lease and the keys of reports are [default: that of the pod]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,
    /// Namespaces with this value of the label quarks.cloudfoundry.org/monitored are monitored
    #[arg(
        long, env = "MONITORED_ID", default_value = MONITORED_ID, value_name = "ID",
        value_parser = |id: &str| Ok::<_, Infallible>(given(id).unwrap_or(MONITORED_ID).to_owned())
    )]
    pub(crate) monitored_id: String,
    /// Which namespaces are monitored
    #[arg(long, env = "MANCIPLE_MONITORED", default_value = "labelled", value_name = "WHICH")]
    monitored: Namespaces,
    /// How many QuarksJobs are worked on at a time
    #[arg(
        long, alias = "max-extendedjob-workers", env = "MAX_WORKERS", default_value_t = WORKERS as u64, value_name = "N",
        value_parser = max_workers
    )]
    pub(crate) max_workers: u64,
    /// For how long a configuration has to be unchanged before its change is a trigger
    #[arg(long, env = "MANCIPLE_SETTLE", default_value = "1s", value_name = "PERIOD")]
    pub(crate) settle: Period,
    /// How often the key that output is sealed to is made anew; longer than any run
    #[arg(long, env = "MANCIPLE_KEY_ROTATION", default_value = "30d", value_name = "PERIOD")]
    pub(crate) key_rotation: Period,
    /// Never wrap a container's command: a sidecar reads what it writes
    #[arg(long, env = "MANCIPLE_ALWAYS_SIDECAR")]
    pub(crate) always_sidecar: bool,
    /// Run nothing whose spec has faults that the API server let in: its status names them
    #[arg(long, env = "MANCIPLE_STRICT")]
    pub(crate) strict: bool,
    /// Name Secrets by namePrefix as it is, without a dash after it, of QuarksJobs and of ExtendedJobs
    #[arg(long, env = "MANCIPLE_VERBATIM_NAME_PREFIX")]
    pub(crate) verbatim_name_prefix: bool,
    /// Make versioned Secrets that may be changed, for programs too old to know that a Secret can be immutable
    #[arg(long, env = "MANCIPLE_MUTABLE_VERSIONS")]
    pub(crate) mutable_versions: bool,
    /// How the agent comes into pods
    #[arg(long, env = "MANCIPLE_AGENT_DELIVERY", default_value = "config-map", value_name = "WAY")]
    agent_delivery: AgentDelivery,
    /// For a ConfigMap: the packed agent [default: beside this program]
    #[arg(long, env = "MANCIPLE_AGENT_FILE", value_name = "FILE")]
    agent_file: Option<PathBuf>,
    /// For an init container: the image that has the agent [default: that of the pod that this runs in]
    #[arg(long, env = "MANCIPLE_IMAGE", value_name = "IMAGE")]
    agent_image: Option<String>,
    /// Requests and limits of the containers that the agent has for itself in pods of QuarksJobs, as in a container: JSON
    #[arg(
        long, env = "MANCIPLE_AGENT_RESOURCES", value_name = "JSON",
        value_parser = agent_resources
    )]
    pub(crate) agent_resources: Option<Value>,
    /// Install the definitions of what it looks after before anything else
    #[arg(
        long, env = "APPLY_CRD", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
        value_parser = is_said
    )]
    pub(crate) apply_crd: bool,
    /// Where probes and metrics are answered [default: port 8080 of all addresses]
    #[arg(long, env = "MANCIPLE_LISTEN", value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    /// How lines of the log are written
    #[arg(long, env = "MANCIPLE_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<Format>,
    /// What is logged: off, error, warn, info, debug, trace, or a list of target=level
    #[arg(short = 'l', long, env = "LOG_LEVEL", value_name = "LEVEL")]
    log_level: Option<String>,
    #[command(flatten)]
    pub(crate) webhook: WebhookArgs,
    #[command(flatten)]
    original: Original,
}

/// As the original read it, by Go's `ParseBool`; nothing is no.
fn is_said(text: &str) -> Result<bool, String> {
    match given(text).unwrap_or("false") {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(false),
        _ => Err("has to be true or false".to_owned()),
    }
}

/// Flags of the original operator without a meaning here: nothing of it is in the pods.
#[derive(Debug, clap::Args)]
struct Original {
    #[arg(long, env = "CTX_TIMEOUT", hide = true)]
    ctx_timeout: Option<String>,
    #[arg(short = 'o', long, env = "DOCKER_IMAGE_ORG", hide = true)]
    docker_image_org: Option<String>,
    #[arg(short = 'r', long, env = "DOCKER_IMAGE_REPOSITORY", hide = true)]
    docker_image_repository: Option<String>,
    #[arg(short = 't', long, env = "DOCKER_IMAGE_TAG", hide = true)]
    docker_image_tag: Option<String>,
    #[arg(long, env = "DOCKER_IMAGE_PULL_POLICY", hide = true)]
    docker_image_pull_policy: Option<String>,
    #[arg(long, env = "MELTDOWN_DURATION", hide = true)]
    meltdown_duration: Option<String>,
    #[arg(long, env = "MELTDOWN_REQUEUE_AFTER", hide = true)]
    meltdown_requeue_after: Option<String>,
    /// Of earlier releases only, and no word for it is left: refused.
    #[arg(short = 'n', long, env = "WATCH_NAMESPACE", hide = true)]
    watch_namespace: Option<String>,
    /// The same.
    #[arg(short = 'a', long, alias = "cf-operator-namespace", hide = true)]
    operator_namespace: Option<String>,
    /// The same.
    #[arg(long, hide = true)]
    service_account: Option<String>,
}

impl Original {
    /// What of earlier releases is given, with what has taken its place.
    fn faults(&self, monitored_id: &str) -> impl Iterator<Item = String> {
        let label = format!(
            "--watch-namespace (WATCH_NAMESPACE): leave it out, and label the namespace, for the controller is told of none: kubectl label \
             namespace NAME quarks.cloudfoundry.org/monitored={monitored_id} \
             quarks.cloudfoundry.org/qjob-service-account=default; or have all monitored: --monitored all"
        );
        let place = format!(
            "--operator-namespace: leave it out; --namespace (POD_NAMESPACE) says where the Lease and the keys are; or was it -a, \
             for the namespace to look after? Then as {label}"
        );
        let account = "--service-account: leave it out: no pod needs one for its output; the label \
                       quarks.cloudfoundry.org/qjob-service-account of a namespace may have any value";
        [
            (&self.watch_namespace, label),
            (&self.operator_namespace, place),
            (&self.service_account, account.to_owned()),
        ]
        .into_iter()
        .filter_map(|(value, words)| value.as_deref().and_then(given).map(|_| words))
    }
}

/// What a controller looks after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Which {
    /// QuarksJobs and ExtendedJobs
    Quarks,
    /// TemplateInstances
    Templates,
}

/// Which namespaces are monitored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Namespaces {
    /// Those with the label monitored and the label qjob-service-account, as in the original
    Labelled,
    /// Those with the label monitored
    Marked,
    /// All
    All,
}

impl ControllerArgs {
    pub(crate) fn log(&self) -> Log {
        let level = self.log_level.as_deref().and_then(given);
        // The original had these words, too, for what nothing here logs.
        let level = level.map(|level| match level {
            "dpanic" | "panic" | "fatal" => "error",
            level => level,
        });
        Log { format: self.log_format, level: level.map(str::to_owned) }
    }

    /// Whether it looks after this.
    pub(crate) fn looks_after(&self, which: Which) -> bool {
        self.controllers.contains(&which)
    }

    pub(crate) fn monitored(&self) -> Monitored {
        match self.monitored {
            Namespaces::Labelled => Monitored::Labelled(self.monitored_id.clone()),
            Namespaces::Marked => Monitored::Marked(self.monitored_id.clone()),
            Namespaces::All => Monitored::All,
        }
    }

    pub(crate) fn translation(&self) -> Option<Translation> {
        self.translate.then(|| self.translation.clone().into())
    }

    /// What each value says for itself is right; whether it can be meant.
    ///
    /// # Errors
    /// Every fault, a line each, with the flag and the remedy.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let mut faults = Vec::new();
        let id = &self.monitored_id;
        if !is_value_of_a_label(id) {
            faults.push(format!(
                "--monitored-id (MONITORED_ID): {id:?} can be the value of no label: up to 63 letters, digits, \
                 '-', '_' and '.', a letter or a digit at both ends"
            ));
        }
        let level = self.log().level.and_then(|level| level_filter(&level).err());
        faults.extend(level.map(|fault| format!("--log-level (LOG_LEVEL): {fault}")));
        if self.key_rotation.0 < LEAST_KEY_ROTATION {
            let why = "has to be longer than any run, and 1h at least";
            faults.push(format!("--key-rotation (MANCIPLE_KEY_ROTATION): {why}"));
        }
        faults.extend(self.original.faults(id));
        let interval = drift_interval_fault(self.drift_interval.0);
        let of_interval = |fault| format!("--drift-interval (MANCIPLE_DRIFT_INTERVAL): {fault}");
        faults.extend(interval.map(of_interval));
        faults.extend(self.translation.faults().map(|(member, fault)| {
            let (flag, variable) = (member.replace('_', "-"), member.to_uppercase());
            format!("--{flag} (MANCIPLE_{variable}): {fault}")
        }));
        refuse(&faults)
    }

    pub(crate) fn cluster(&self) -> Cluster {
        Cluster {
            namespace: self.namespace.clone(),
            kubeconfig: self.kubeconfig.clone(),
            agent_delivery: self.agent_delivery,
            agent_file: self.agent_file.clone(),
            agent_image: self.agent_image.clone(),
            agent_resources: self.agent_resources.clone(),
            spelling: Spelling {
                namespace: "--namespace",
                agent_file: "--agent-file",
                agent_image: "--agent-image",
                by_init_container: "--agent-delivery init-container",
            },
            ..Cluster::default()
        }
    }

    /// What was given and does nothing, by its flags; `None`: all of it does something.
    pub(crate) fn passed_over(&self) -> Option<String> {
        let original = &self.original;
        let given = [
            ("ctx-timeout", &original.ctx_timeout),
            ("docker-image-org", &original.docker_image_org),
            ("docker-image-repository", &original.docker_image_repository),
            ("docker-image-tag", &original.docker_image_tag),
            ("docker-image-pull-policy", &original.docker_image_pull_policy),
            ("meltdown-duration", &original.meltdown_duration),
            ("meltdown-requeue-after", &original.meltdown_requeue_after),
        ];
        let given = given.iter().filter(|(_, given)| given.is_some());
        let flags: Vec<String> = given.map(|(flag, _)| format!("--{flag}")).collect();
        (!flags.is_empty()).then(|| flags.join(", "))
    }
}

/// What somebody gave, who may have given nothing: the original took a variable without a value for none, and charts write
/// such.
fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// Whether a text can be the value of a label; an empty one would be that of none.
fn is_value_of_a_label(text: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_alphanumeric();
    let is_inner = |byte: &u8| is_end(byte) || matches!(byte, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    bytes.len() <= 63
        && bytes.iter().all(is_inner)
        && ends.into_iter().all(|it| it.is_some_and(is_end))
}

fn max_workers(text: &str) -> Result<u64, String> {
    let Some(text) = given(text) else { return Ok(WORKERS as u64) };
    let number = text.parse().ok().filter(|number| (1..=1000).contains(number));
    number.ok_or_else(|| "has to be a number from 1 to 1000".to_owned())
}

/// Requests and limits of a container.
fn agent_resources(text: &str) -> Result<Value, String> {
    let given: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match resources_fault(&given, "resources") {
        None => Ok(given),
        Some(fault) => Err(fault.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ControllerArgs,
    }

    #[test]
    fn a_flag_of_earlier_releases_is_refused_with_what_has_taken_its_place() {
        for words in [
            "--watch-namespace shop --monitored-id a",
            "--watch-namespace=shop --monitored-id=a",
            "-n shop --monitored-id=a",
        ] {
            let line = Line::try_parse_from(["controller"].into_iter().chain(words.split(' ')));
            let said = line.unwrap().args.check().unwrap_err().to_string();
            for word in
                ["kubectl label", "/monitored=a", "/qjob-service-account=", "--monitored all"]
            {
                assert!(said.contains(word), "{words}: {word} is not in {said}");
            }
        }
        for (words, place) in [
            (["-a", "shop"], "--namespace (POD_NAMESPACE)"),
            (["-a", "shop"], "kubectl label"),
            (["--operator-namespace", "shop"], "--namespace (POD_NAMESPACE)"),
            (["--cf-operator-namespace", "shop"], "--namespace (POD_NAMESPACE)"),
            (["--service-account", "persist"], "no pod needs one"),
        ] {
            let line = Line::try_parse_from(["controller"].into_iter().chain(words));
            let said = line.unwrap().args.check().unwrap_err().to_string();
            assert!(said.contains(place), "{words:?}: {said}");
        }
    }

    #[test]
    fn yes_and_no_are_as_the_original_took_them() {
        for (said, applies) in [
            ("1", Some(true)),
            ("True", Some(true)),
            ("t", Some(true)),
            ("0", Some(false)),
            ("FALSE", Some(false)),
            ("", Some(false)),
            ("yes", None),
        ] {
            let flag = format!("--apply-crd={said}");
            let line = Line::try_parse_from(["controller", &flag]);
            assert_eq!(line.ok().map(|it| it.args.apply_crd), applies, "{said}");
        }
    }

    #[test]
    fn faults_are_told_together() {
        let words = "-n shop -a shop --service-account persist --monitored-id a/b --log-level loud \
                     --key-rotation 1m --drift-interval 1ms --translate --route-domain a..b --ingress-class B";
        let line = Line::try_parse_from(["controller"].into_iter().chain(words.split(' ')));
        let said = line.unwrap().args.check().unwrap_err().to_string();
        let expected = [
            "--monitored-id (MONITORED_ID): ",
            "--log-level (LOG_LEVEL): ",
            "--key-rotation (MANCIPLE_KEY_ROTATION): ",
            "--watch-namespace (WATCH_NAMESPACE): ",
            "--operator-namespace: ",
            "--service-account: ",
            "--drift-interval (MANCIPLE_DRIFT_INTERVAL): ",
            "--route-domain (MANCIPLE_ROUTE_DOMAIN): ",
            "--ingress-class (MANCIPLE_INGRESS_CLASS): ",
        ];
        let faults: Vec<_> = said.lines().skip(1).map(str::trim_start).collect();
        assert_eq!(faults.len(), expected.len(), "{said}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.starts_with(expected), "{expected}: {fault}");
        }
    }

    #[test]
    fn what_is_given_without_a_value_is_as_not_given() {
        let words = [
            "controller",
            "--monitored-id=",
            "--max-workers=",
            "--apply-crd=",
            "--log-level=",
            "--watch-namespace=",
        ];
        let read = Line::try_parse_from(words).unwrap().args;
        read.check().unwrap();
        let given = (&*read.monitored_id, read.max_workers, read.apply_crd, read.log().level);
        assert_eq!(given, ("default", WORKERS as u64, false, None));
    }

    #[test]
    fn levels_are_those_of_the_original_too() {
        for (word, expected) in [("debug", "debug"), ("dpanic", "error"), ("fatal", "error")] {
            let read = Line::try_parse_from(["controller", "-l", word]).unwrap().args;
            assert_eq!(read.log().level.as_deref(), Some(expected), "{word}");
        }
    }

    #[test]
    fn namespaces_and_prefixes_are_the_originals_unless_a_flag_says_so() {
        let read = |words: &str| {
            let words =
                ["controller", "--monitored-id", "a"].into_iter().chain(words.split_whitespace());
            Line::try_parse_from(words).unwrap().args
        };
        for (words, expected) in [
            ("", Monitored::Labelled("a".to_owned())),
            ("--monitored marked", Monitored::Marked("a".to_owned())),
            ("--monitored all", Monitored::All),
        ] {
            assert_eq!(read(words).monitored(), expected, "{words}");
        }
        assert!(!read("").verbatim_name_prefix);
        assert!(read("--verbatim-name-prefix").verbatim_name_prefix);
    }

    #[test]
    fn a_period_that_no_clock_counts_is_refused_by_its_flag_with_the_limit() {
        for flag in ["--settle", "--key-rotation", "--drift-interval"] {
            for period in ["999999999999h", "1000000000000000000s"] {
                let line = Line::try_parse_from(["controller", flag, period]);
                let said = line.err().map(|fault| fault.to_string()).unwrap_or_default();
                assert!(said.contains(flag) && said.contains("3650d at most"), "{flag}: {said}");
            }
        }
    }

    #[test]
    fn what_the_agent_asks_for_is_as_in_a_container() {
        let read = |text: &str| {
            let line = Line::try_parse_from(["controller", "--agent-resources", text]);
            line.map(|line| line.args.cluster().agent_resources)
        };
        let given = serde_json::json!({"requests": {"cpu": "50m"}, "limits": {"memory": "64Mi"}});
        assert_eq!(read(&given.to_string()).unwrap(), Some(given));
        for (text, words) in [
            ("64Mi", "trailing characters"),
            ("[]", "is not as in a pod"),
            (r#"{"limit": {"cpu": "1"}}"#, "resources.limit: is not known"),
        ] {
            let said = read(text).unwrap_err().to_string();
            assert!(said.contains("--agent-resources") && said.contains(words), "{text}: {said}");
        }
    }

    #[test]
    fn each_flag_of_the_original_is_taken_as_its_deployment_gives_it() {
        let passed_over = |words: &str| {
            let line = Line::try_parse_from(["controller"].into_iter().chain(words.split(' ')));
            let line = line.unwrap_or_else(|error| panic!("{words}: {error}"));
            line.args.check().unwrap();
            line.args.passed_over()
        };
        for (words, expected) in [
            ("--ctx-timeout 300", "--ctx-timeout"),
            ("--docker-image-org cfcontainerization", "--docker-image-org"),
            ("-o cfcontainerization", "--docker-image-org"),
            ("--docker-image-repository quarks-job", "--docker-image-repository"),
            ("-r quarks-job", "--docker-image-repository"),
            ("--docker-image-tag v1.0.219", "--docker-image-tag"),
            ("-t v1.0.219", "--docker-image-tag"),
            ("--docker-image-pull-policy IfNotPresent", "--docker-image-pull-policy"),
            ("--meltdown-duration 60", "--meltdown-duration"),
            ("--meltdown-requeue-after=30", "--meltdown-requeue-after"),
            (
                "-o cfcontainerization -t v1.0.219 --ctx-timeout=300",
                "--ctx-timeout, --docker-image-org, --docker-image-tag",
            ),
        ] {
            assert_eq!(passed_over(words).as_deref(), Some(expected), "{words}");
        }
        for words in
            ["--monitored-id staging", "--max-workers 1", "-l debug", "-c /k", "--apply-crd"]
        {
            assert_eq!(passed_over(words), None, "{words} means something");
        }
    }
}
