//! One cluster, as one command sees it: its calls, each bounded in time, with the right that it needs.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures_util::AsyncBufRead;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DynamicObject, ListParams, LogParams, Patch, PatchParams};
use kubernetes::Client;
use kubernetes::quarks::Dialect;
use kubernetes::quarks::view::{View, monitored_labels};
use serde_json::{Value, json};

use super::args::ClusterArgs;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::{Ongoing, RemoteArgs, format};

/// For one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How many are listed at a time.
const PAGE: u32 = 500;

/// A cluster, and how to tell what it answers.
pub(crate) struct Cluster {
    client: Client,
    /// Which namespace is asked.
    pub(crate) namespace: String,
    /// Which kind is asked for.
    pub(crate) dialect: Dialect,
    /// Prints.
    pub(crate) out: Output,
    /// The longest to wait for a run, if a person says.
    pub(crate) patience: Option<Duration>,
    /// What goes on in the cluster.
    pub(crate) ongoing: Ongoing,
    words: String,
}

/// What a call needs.
struct Right<'a> {
    verb: &'static str,
    resource: String,
    /// `None`: in all.
    namespace: Option<&'a str>,
}

impl Cluster {
    /// Reads the kubeconfig; nothing is asked yet.
    pub(crate) async fn open(
        args: &ClusterArgs,
        remote: &RemoteArgs,
        ongoing: Ongoing,
    ) -> Result<Self, Failure> {
        let out = Output { format: format(remote)?, quiet: remote.quiet };
        let client = kubernetes::client(args.kubeconfig.as_deref()).await;
        let client = client.map_err(|error| Failure::kubeconfig(&error))?;
        let context = || client.default_namespace().to_owned();
        let namespace = args.namespace.clone().unwrap_or_else(context);
        let (dialect, words) = (args.kind.into(), args.words());
        let patience = remote.timeout;
        Ok(Self { client, namespace, dialect, out, patience, ongoing, words })
    }

    /// A command about one, for a person to copy.
    pub(crate) fn command(&self, verb: &str, name: &str) -> String {
        format!("manciple job {verb} {name}{}", self.words)
    }

    /// "QuarksJob backup".
    pub(crate) fn subject(&self, name: &str) -> String {
        format!("{} {name}", self.dialect.kind())
    }

    /// One, as it is now.
    pub(crate) async fn view(&self, name: &str) -> Result<View, Failure> {
        let what = format!("read {}", self.subject(name));
        let object = self.call(&what, &self.right("get"), self.resources().get(name)).await;
        let object = object.map_err(|failure| match failure.exit {
            Exit::Missing => {
                failure.or_hint(format!("which there are: manciple job list{}", self.words))
            }
            _ => failure,
        });
        self.viewed(&what, &object?)
    }

    /// Those of the namespace, or of all.
    pub(crate) async fn views(&self, everywhere: bool) -> Result<Vec<View>, Failure> {
        let what = format!("list {}s", self.dialect.kind());
        let (api, right) = match everywhere {
            true => {
                let api = Api::all_with(self.client.clone(), &self.dialect.resource());
                (api, Right { namespace: None, ..self.right("list") })
            }
            false => (self.resources(), self.right("list")),
        };
        let mut views = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = self.call(&what, &right, api.list(&params)).await?;
            let found = page.items.iter().filter_map(|object| View::of(self.dialect, object));
            views.extend(found);
            match page.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => params.continue_token = Some(next),
                None => return Ok(views),
            }
        }
    }

    /// Changes the spec of one that is still as it was read, and says how it is then; `None`: somebody else has
    /// written it since. A trial changes nothing.
    pub(crate) async fn patch(
        &self,
        view: &View,
        spec: &Value,
        trial: bool,
    ) -> Result<Option<View>, Failure> {
        let what = format!("trigger {}", self.subject(&view.name));
        let patch = json!({"metadata": {"resourceVersion": view.version}, "spec": spec});
        let params = PatchParams { dry_run: trial, ..PatchParams::default() };
        let (resources, patch) = (self.resources(), Patch::Merge(patch));
        let patched = async {
            match resources.patch(&view.name, &params, &patch).await {
                Ok(object) => Ok(Some(object)),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
                Err(error) => Err(error),
            }
        };
        let patched = self.call(&what, &self.right("patch"), patched).await?;
        patched.map(|object| self.viewed(&what, &object)).transpose()
    }

    /// The pods of a Job, in the order in which they were made.
    pub(crate) async fn pods(&self, job: &str) -> Result<Vec<Pod>, Failure> {
        let params = ListParams::default().labels(&format!("job-name={job}"));
        let right = self.right_to("list", "pods");
        let of_pods = self.of_pods();
        let pods = self.call("find the pods of the run", &right, of_pods.list(&params)).await?;
        let mut pods = pods.items;
        let made = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        pods.sort_by_cached_key(|pod| (made(pod), pod.metadata.name.clone()));
        Ok(pods)
    }

    /// A pod; `None`: it is gone.
    pub(crate) async fn pod(&self, name: &str) -> Result<Option<Pod>, Failure> {
        let right = self.right_to("get", "pods");
        self.call(&format!("read pod {name}"), &right, self.of_pods().get_opt(name)).await
    }

    /// What a container has printed; with `follow`, what it prints too. `None`: there is no log, for it has not
    /// begun, or the pod is gone.
    pub(crate) async fn log(
        &self,
        pod: &str,
        container: &str,
        follow: bool,
    ) -> Result<Option<impl AsyncBufRead + use<>>, Failure> {
        let what = format!("read the log of container {container} of pod {pod}");
        let params =
            LogParams { container: Some(container.to_owned()), follow, ..LogParams::default() };
        let pods = self.of_pods();
        let opened = async {
            match pods.log_stream(pod, &params).await {
                Ok(log) => Ok(Some(log)),
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.call(&what, &self.right_to("get", "pods/log"), opened).await
    }

    /// The labels that the namespace is without and that controllers ask for, as far as anybody may know.
    pub(crate) async fn missing_labels(&self) -> Option<Vec<String>> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = tokio::time::timeout(REQUEST_TIMEOUT, namespaces.get(&self.namespace)).await;
        let labels = found.ok()?.ok()?.metadata.labels.unwrap_or_default();
        let missing = monitored_labels().into_iter().filter(|label| !labels.contains_key(label));
        Some(missing.collect())
    }

    async fn call<T>(
        &self,
        what: &str,
        right: &Right<'_>,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        let limit = self.patience.unwrap_or(REQUEST_TIMEOUT).min(REQUEST_TIMEOUT);
        match tokio::time::timeout(limit, call).await {
            Ok(answer) => {
                answer.map_err(|error| Failure::cluster(what, &error, &right.to_string()))
            }
            Err(_) => Err(Failure::no_answer(what, limit)),
        }
    }

    fn viewed(&self, what: &str, object: &DynamicObject) -> Result<View, Failure> {
        View::of(self.dialect, object).ok_or_else(|| Failure::misunderstood(what))
    }

    fn resources(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &self.dialect.resource())
    }

    fn of_pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn right(&self, verb: &'static str) -> Right<'_> {
        self.right_to(verb, &format!("{}.{}", self.dialect.plural(), self.dialect.group()))
    }

    fn right_to(&self, verb: &'static str, resource: &str) -> Right<'_> {
        Right { verb, resource: resource.to_owned(), namespace: Some(&self.namespace) }
    }
}

impl fmt::Display for Right<'_> {
    /// As a hint: which it is, and how one gets it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, resource, namespace } = self;
        let (place, with, role) = match namespace {
            Some(namespace) => {
                (format!("in namespace {namespace}"), format!(" -n {namespace}"), "role")
            }
            None => ("in all namespaces".to_owned(), String::new(), "clusterrole"),
        };
        write!(
            f,
            "the right to {verb} {resource} {place} is missing; who administers the cluster gives it: kubectl{with} \
             create {role} NAME --verb={verb} --resource={resource}, and kubectl{with} create {role}binding NAME \
             --{role}=NAME --user=USER"
        )
    }
}
