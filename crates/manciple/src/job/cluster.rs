//! QuarksJobs of one cluster, as one command reads and writes them.

use std::ops::Deref;

use futures_util::AsyncBufRead;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DynamicObject, ListParams, LogParams, Patch, PatchParams};
use kubernetes::quarks::Dialect;
use kubernetes::quarks::view::{OF_RUNS, View, monitored_labels};
use serde_json::{Value, json};

use super::args::KindArgs;
use crate::cli::cluster::{self, REQUEST_TIMEOUT, Right};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::{Ongoing, RemoteArgs};

/// How many QuarksJobs are listed at a time.
const PAGE: u32 = 500;

/// A cluster, and the kind of jobs that a command is about.
pub(crate) struct Cluster {
    asked: cluster::Cluster,
    /// The kind: whose QuarksJobs these are.
    pub(crate) dialect: Dialect,
    words: String,
}

impl Deref for Cluster {
    type Target = cluster::Cluster;

    fn deref(&self) -> &cluster::Cluster {
        &self.asked
    }
}

impl Cluster {
    /// Opens a cluster: reads the kubeconfig, and sends nothing yet.
    pub(crate) async fn open(
        args: &KindArgs,
        remote: &RemoteArgs,
        ongoing: Ongoing,
    ) -> Result<Self, Failure> {
        let asked = cluster::Cluster::open(&args.cluster, remote, ongoing).await?;
        Ok(Self { asked, dialect: args.kind.into(), words: args.words() })
    }

    /// A command about a QuarksJob, for a person to copy.
    pub(crate) fn command(&self, verb: &str, name: &str) -> String {
        format!("manciple job {verb} {name}{}", self.words)
    }

    /// A QuarksJob's name for people: "QuarksJob backup".
    pub(crate) fn subject(&self, name: &str) -> String {
        format!("{} {name}", self.dialect.kind())
    }

    /// Reads a QuarksJob, as it is now.
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

    /// Lists the QuarksJobs of the namespace, or of all.
    pub(crate) async fn views(&self, everywhere: bool) -> Result<Vec<View>, Failure> {
        let what = format!("list {}s", self.dialect.kind());
        let (api, right) = match everywhere {
            true => {
                let api = Api::all_with(self.client.clone(), &self.dialect.resource());
                (api, self.right("list").everywhere())
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

    /// Changes the spec of a QuarksJob that is still as it was read, and returns it; `None`: somebody else has
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

    /// The name of a run's Job, by the Job's own labels: a Job of the original operator, or of a run for a pod, has
    /// another name than the usual one, which only the history tells. `None`: there is none, or it is not known, as
    /// when the user may not list Jobs.
    pub(crate) async fn job_of(&self, view: &View, run: u64) -> Option<String> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        let right = self.right_to("list", "jobs.batch");
        let params = ListParams::default().labels(OF_RUNS);
        let jobs = self.call("find the Job of the run", &right, jobs.list(&params)).await.ok()?;
        let job = jobs.items.into_iter().find(|job| view.is_of_run(job, run))?;
        job.metadata.name
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

    /// Reads a pod; `None`: it is gone.
    pub(crate) async fn pod(&self, name: &str) -> Result<Option<Pod>, Failure> {
        let right = self.right_to("get", "pods");
        self.call(&format!("read pod {name}"), &right, self.of_pods().get_opt(name)).await
    }

    /// The log of a container; with `follow`, what it prints later too. `None`: there is no log, for it has not
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

    /// The labels that controllers ask for and the namespace lacks, as far as the user may know.
    pub(crate) async fn missing_labels(&self) -> Option<Vec<String>> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = tokio::time::timeout(REQUEST_TIMEOUT, namespaces.get(&self.namespace)).await;
        let labels = found.ok()?.ok()?.metadata.labels.unwrap_or_default();
        let missing = monitored_labels().into_iter().filter(|label| !labels.contains_key(label));
        Some(missing.collect())
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
}
