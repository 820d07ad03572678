//! Why an operation is stuck or failed, as a platform hears it of any replica and as `kubectl describe` shows it: each
//! cause by its name, within ten seconds of Kubernetes knowing, never as a timeout and never as a success.

mod support;

use std::cell::OnceCell;
use std::time::SystemTime;

use serde_json::{Value, json};
use support::described::explained;
use support::heard::{self, Heard, condition, event};
use support::town::Town;
use support::{Served, for_seconds, http, order, within};
use testkit::processor::Processor;

/// How long Kubernetes may take to know it.
const KNOWS: u64 = 150;

const BROKER: &str = r#"#!/bin/sh
echo "$1 of $7" >>/ledger/all
case $5 in
slow) sleep 600 ;;
fills) head -c 20000000 /dev/zero >/scratch/file; sleep 600 ;;
fails) echo 'no disk left' >&2; exit 3 ;;
large) head -c 11534336 /dev/zero | tr '\0' x ;;
floods) yes 'of no use' | head -c 8000000 >&2; echo 'no disk left' >&2; exit 3 ;;
text) echo 'all is well' ;;
bytes) printf '{"dashboard_url": "\377\376"}'; exit ;;
esac
echo '{}'
"#;

/// Two replicas whose catalog is a file, so that nothing but orders needs a pod, and the second costs a process.
struct Place {
    heard: Heard,
    /// Of the order that was placed.
    by_token: OnceCell<Heard>,
    town: Town,
    leader: Served,
    other: Served,
}

impl Place {
    /// With these members of `kubernetes`, beside or instead of the usual ones.
    fn with(more: &Value) -> Self {
        Self::before(more, |_| ())
    }

    /// After something was made in the namespace.
    fn before(more: &Value, made: impl FnOnce(&Town)) -> Self {
        let town = Town::empty();
        made(&town);
        Self::of(town, more)
    }

    fn of(mut town: Town, more: &Value) -> Self {
        town.config_map("script", &json!({"broker": BROKER}));
        let plans = ["p", "slow", "fails", "fills", "large", "floods", "text", "bytes"]
            .map(|plan| json!({"id": plan, "name": plan, "description": "d"}));
        let catalog = json!({"services": [{
            "id": "s", "name": "db", "description": "d", "bindable": true, "plans": plans,
        }]});
        let file = town.site.write("catalog.json", &catalog.to_string());
        let mut settings = json!({
            "auth": {"disabled": true},
            "broker": {"grace": "1s"},
            "catalog": {"file": file},
            "kubernetes": {
                "namespace": town.namespace,
                "image": testkit::cluster::SHELL_IMAGE,
                "agent_file": testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}")),
                "pod": town.pod("script"),
            },
        });
        let members = settings["kubernetes"].as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        town.site.settings = settings.to_string();
        let leader = town.serve();
        leader.says("leading");
        let other = town.serve();
        let heard = Heard::of(&[&leader, &other], "i");
        Self { heard, by_token: OnceCell::new(), town, leader, other }
    }

    fn replicas(&self) -> [&Served; 2] {
        [&self.leader, &self.other]
    }

    /// Orders of the replica that does not carry it out: who leads has to hear of it.
    fn order(&self, plan: &str) {
        let answer = order::provision(&self.other, "i", &order::body(plan));
        assert_eq!(answer.status, 202, "{answer:?}");
        let token = answer.body["operation"].as_str().unwrap();
        let by_token = self.heard.of_token(&self.replicas(), "i", token);
        assert!(self.by_token.set(by_token).is_ok(), "there is one order");
    }

    /// By the instance, and by the token of the order.
    fn all_heard(&self) -> impl Iterator<Item = &Heard> {
        std::iter::once(&self.heard).chain(self.by_token.get())
    }

    /// Orders one, and waits until its broker works.
    fn begun(self) -> Self {
        self.order("slow");
        let works = || (self.town.effects("provision of i") == 1).then_some(());
        assert!(within(KNOWS, works).is_some(), "it never begins\n{}", self.leader.log());
        heard::known(&self.town, "pods", condition("Ready", "True"));
        self
    }

    /// Sees that the last operation says this soon after Kubernetes knows it, as one of these objects tells; gives all
    /// that was said then.
    fn says(
        &self,
        words: &str,
        what: &str,
        since: impl Fn(&Value) -> Option<String>,
    ) -> Vec<Value> {
        self.says_since(words, heard::known(&self.town, what, since))
    }

    fn says_since(&self, words: &str, known: SystemTime) -> Vec<Value> {
        self.all_heard().flat_map(|heard| heard.says(words, known)).collect()
    }

    /// Does something by kubectl, and sees that the last operation soon says this.
    fn says_of(&self, words: &str, done: &[&str]) {
        let known = SystemTime::now();
        self.town.kubectl(done);
        self.says_since(words, known);
    }

    /// Sees that it fails, and says this, by one replica soon after the other.
    fn fails(&self, words: &str) {
        for server in self.replicas() {
            let last = order::settled(server, "i");
            let said = last["description"].as_str().unwrap_or_default();
            assert!(last["state"] == "failed" && said.contains(words), "{words}: {last}");
        }
        self.all_heard().for_each(|heard| heard.fails(words));
        let instance = &self.town.get("serviceinstances")["items"][0];
        let conditions = instance["status"]["conditions"].as_array().unwrap();
        let failed = conditions.iter().find(|it| it["type"] == "Failed").unwrap();
        assert!(failed["status"] == "True" && failed["reason"] != "Timeout", "{words}: {failed}");
    }

    fn succeeds(&self) {
        for server in self.replicas() {
            let last = order::settled(server, "i");
            assert_eq!(last["state"], "succeeded", "{last}\n{}", self.leader.log());
        }
        assert_eq!(self.town.effects("provision of i"), 1);
    }

    /// What `kubectl describe serviceinstance` has in a condition that holds, and by an Event.
    fn describes(&self, condition: &str, words: &[&str]) {
        explained(&self.town, condition, words);
    }

    fn pods(&self) -> Vec<String> {
        let pods = self.town.kubectl(&["get", "pods", "-o", "name"]);
        pods.lines().map(|name| name.trim_start_matches("pod/").to_owned()).collect()
    }
}

fn quota(town: &Town, of: &str, many: &str) {
    town.make(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
        "spec": {"hard": {of: many}},
    }));
    let counted = || {
        let quota = town.get("resourcequota/few");
        (quota["status"]["hard"][of] == many).then_some(())
    };
    assert!(within(KNOWS, counted).is_some(), "nobody counts");
}

#[test]
fn an_image_that_does_not_exist() {
    let place = Place::with(&json!({"image": "manciple.test/none:1"}));
    place.order("p");
    let pulls = event("Failed to pull image");
    for last in place.says("the image cannot be pulled", "events", pulls) {
        let said = last["description"].as_str().unwrap();
        assert!(last["state"] == "in progress" && said.contains("manciple.test/none:1"), "{last}");
    }
    place.describes("Progressing", &["the image cannot be pulled", "manciple.test/none:1"]);
}

#[test]
fn an_image_that_comes_to_nothing_in_the_time_that_a_start_has() {
    let more = json!({"image": "manciple.test/none:1", "start_timeout": "12s"});
    let place = Place::with(&more);
    place.order("p");
    place.fails("the image cannot be pulled");
    place.describes("Failed", &["the image cannot be pulled"]);
}

#[test]
fn an_image_without_a_broker() {
    let place = Place::with(&json!({"pod": {}}));
    place.order("p");
    place.says("the image has no /bin/broker", "pods", heard::ended);
    place.fails("the image has no /bin/broker");
    place.describes("Failed", &["the image has no /bin/broker"]);
}

#[test]
fn a_quota_that_is_used_up_until_there_is_more() {
    let place = Place::before(&json!({}), |town| quota(town, "pods", "0"));
    place.order("p");
    let few = "exceeded quota: few";
    for last in place.says(few, "events", event(few)) {
        assert_eq!(last["state"], "in progress");
    }
    place.describes("Progressing", &[few]);
    quota(&place.town, "pods", "9");
    place.succeeds();
}

/// The server refuses the Job itself: no event says so, and Kubernetes knows it at once.
#[test]
fn a_quota_of_jobs_that_is_used_up_until_there_is_more() {
    const JOBS: &str = "count/jobs.batch";
    let place = Place::before(&json!({}), |town| quota(town, JOBS, "0"));
    let known = SystemTime::now();
    place.order("p");
    let few = "exceeded quota: few";
    for last in place.says_since(few, known) {
        assert_eq!(last["state"], "in progress");
    }
    place.describes("Progressing", &[few]);
    quota(&place.town, JOBS, "9");
    place.succeeds();
}

#[test]
fn a_config_map_that_comes_later() {
    let place = Place::with(&json!({"config_map": "later"}));
    place.order("p");
    let missing = r#"configmap "later" not found"#;
    place.says(missing, "events", event(missing));
    place.describes("Progressing", &[missing]);
    place.town.config_map("later", &json!({"region": "eu"}));
    place.succeeds();
}

#[test]
fn a_secret_that_comes_later() {
    let place = Place::with(&json!({"secret": "later"}));
    place.order("p");
    let missing = r#"secret "later" not found"#;
    place.says(missing, "events", event(missing));
    place.describes("Progressing", &[missing]);
    place.town.secret("later", &json!({"password": "p"}));
    place.succeeds();
}

#[test]
fn a_pod_that_no_node_takes() {
    let place = Place::with(&json!({"pod": {"nodeSelector": {"manciple.test/none": "such"}}}));
    place.order("p");
    place.says("no node takes the pod", "pods", condition("PodScheduled", "False"));
    place.describes("Progressing", &["no node takes the pod"]);
}

#[test]
fn a_pod_that_somebody_deletes() {
    let place = Place::with(&json!({})).begun();
    let deleted = "its pod was deleted: by hand, or because its node was drained";
    place.says_of(deleted, &["delete", "pod", "--wait=false", &place.pods()[0]]);
    place.fails("its pod was deleted");
    place.describes("Failed", &[deleted]);
    assert_eq!(place.town.effects("provision of i"), 1, "another did it again");
}

#[test]
fn a_pod_that_is_evicted() {
    let place = Place::with(&json!({})).begun();
    let pod = &place.pods()[0];
    let eviction = json!({
        "apiVersion": "policy/v1beta1", "kind": "Eviction",
        "metadata": {"name": pod, "namespace": place.town.namespace},
    });
    let file = place.town.site.write("eviction.json", &eviction.to_string());
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", place.town.namespace);
    // A server of 1.20 says no more of it: who evicts deletes.
    let evicts = ["create", "--raw", &path, "-f", file.to_str().unwrap()];
    let drained = "because its node was drained";
    place.says_of(drained, &evicts);
    place.fails(drained);
    place.describes("Failed", &[drained]);
    assert_eq!(place.town.effects("provision of i"), 1, "another did it again");
}

/// By the kubelet, which says so in the pod and lets it stand; who evicts by the API deletes.
#[test]
fn a_pod_that_its_kubelet_evicts() {
    let town = Town::empty();
    let mut pod = town.pod("script");
    let (volumes, mounts) = (pod["volumes"].take(), pod["volumeMounts"].take());
    let with = |all: Value, one: Value| {
        let mut all = all.as_array().unwrap().clone();
        all.push(one);
        Value::Array(all)
    };
    pod["volumes"] = with(volumes, json!({"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}));
    pod["volumeMounts"] = with(mounts, json!({"name": "scratch", "mountPath": "/scratch"}));
    let place = Place::of(town, &json!({"pod": pod}));
    place.order("fills");
    let exceeds = "exceeds the limit";
    for last in place.says(exceeds, "events", event(exceeds)) {
        assert_eq!(last["state"], "failed", "{last}");
    }
    place.describes("Failed", &["Evicted", exceeds]);
    assert_eq!(place.town.effects("provision of i"), 1, "another did it again");
}

#[test]
fn a_job_that_somebody_deletes() {
    let place = Place::with(&json!({})).begun();
    place.says_of("its Job was deleted", &["delete", "jobs", "--all", "--wait=false"]);
    place.fails("its Job was deleted");
    place.describes("Failed", &["its Job was deleted"]);
}

#[test]
fn a_broker_that_fails() {
    let place = Place::with(&json!({}));
    place.order("fails");
    place.says("no disk left", "pods", heard::ended);
    place.fails("no disk left");
    place.describes("Failed", &["ExitStatus", "the broker exited with status 3: no disk left"]);
}

/// The most that is told of a failure, in bytes: a sentence, and of the end of stderr no more than 1,000.
const TOLD: usize = 1200;

/// Each replica tells it in a few words, of which none stood on stdout, and goes on.
#[test]
fn a_broker_that_prints_what_nobody_can_use() {
    let place = Place::with(&json!({}));
    let cases = [
        ("large", "OutputTooLarge", "printed more than 1048576 bytes on stdout and was ended"),
        ("floods", "ExitStatus", "of no use\nno disk left"),
        ("text", "NotJson", "printed something on stdout that is not JSON (line 1, column 1)"),
        ("bytes", "NotJson", "printed something on stdout that is not JSON (line 1, column "),
    ];
    for (plan, ..) in cases {
        let answer = order::provision(&place.other, plan, &order::body(plan));
        assert_eq!(answer.status, 202, "{plan}: {answer:?}");
    }
    for (plan, _, words) in cases {
        let path = format!("{}/last_operation", order::path(plan));
        for server in place.replicas() {
            let ended = || {
                let answer = http::get(&server.address, &path)?;
                assert_eq!(answer.status, 200, "{plan}: {answer:?}");
                (answer.body["state"] != "in progress").then_some(answer.body)
            };
            let last = within(90, ended);
            let last = last.unwrap_or_else(|| panic!("{plan} never ends:\n{}", server.log()));
            let said = last["description"].as_str().unwrap_or_default();
            assert!(last["state"] == "failed" && said.contains(words), "{plan}: {last}");
            assert!(said.len() < TOLD, "{plan}: {} bytes: {said}", said.len());
            for printed in ["all is well", "xxx", "dashboard_url"] {
                assert!(!said.contains(printed), "{plan}: stdout is told: {said}");
            }
        }
    }
    let instances = place.town.get("serviceinstances")["items"].as_array().unwrap().clone();
    for (plan, reason, _) in cases {
        let instance = instances.iter().find(|it| it["spec"]["instanceID"] == plan).unwrap();
        let conditions = instance["status"]["conditions"].as_array().unwrap();
        let failed = conditions.iter().find(|it| it["type"] == "Failed").unwrap();
        assert!(failed["status"] == "True" && failed["reason"] == reason, "{plan}: {failed}");
    }
    place.order("p");
    place.succeeds();
    for server in place.replicas() {
        let ready = http::get(&server.address, "/readyz").unwrap();
        assert_eq!(ready.status, 200, "{ready:?}\n{}", server.log());
    }
}

#[test]
fn a_namespace_that_is_deleted_with_all_that_is_in_it() {
    let place = Place::with(&json!({})).begun();
    let namespace = place.town.namespace.clone();
    let delete = ["delete", "namespace", &namespace, "--wait=false"];
    assert!(testkit::cluster::kubectl().args(delete).output().unwrap().status.success());
    // With it goes the instance, as by a deprovision, whose own run is let nowhere. Kubernetes begins with what is in a
    // namespace five seconds after it was deleted.
    let goes = heard::known(&place.town, "serviceinstances", heard::goes);
    let words = format!("namespace {namespace}");
    place.heard.says(&words, goes);
    // Who asks by the token of the order hears how that ended: it was halted for the deprovision.
    let by_token = place.by_token.get().unwrap();
    by_token.says(&words, goes);
    by_token.fails(&words);
    // Nothing can be removed there any more, so nothing of it is told to have come to a good end.
    let success = || place.all_heard().find_map(Heard::success);
    let succeeded = for_seconds(10, success);
    assert!(succeeded.is_none(), "{succeeded:?}\n{}", place.leader.log());
    // Nor is it denied: its finalizer holds it, for as long as what it stands for may be there.
    let path = format!("{}/last_operation", order::path("i"));
    for server in place.replicas() {
        let told = || http::get(&server.address, &path).filter(|answer| answer.status == 200);
        let told = within(20, told).unwrap_or_else(|| panic!("denied:\n{}", server.log()));
        let state = &told.body["state"];
        assert!(state == "in progress" || state == "failed", "{told:?}");
    }
}

/// The seed's variables, before what they name is there.
fn of_variables(town: &Town) -> Served {
    let mut command = town.command();
    command
        .env("STEWARD_MODE", "jobs")
        .env("POD_NAMESPACE", &town.namespace)
        .env("JOBS_IMAGE", testkit::cluster::SHELL_IMAGE)
        .env("JOBS_CONFIG_MAP", "settings")
        .env("JOBS_SECRET", "secrets");
    Served::start(&mut command).unwrap_or_else(|log| panic!("no server: {log}"))
}

#[test]
fn a_server_whose_config_map_and_secret_come_after_it() {
    let mut town = Town::empty();
    let catalog = json!({"services": [{
        "id": "s", "name": "db", "description": "d", "bindable": true,
        "plans": [{"id": "p", "name": "p", "description": "d"}],
    }]});
    let broker =
        format!("#!/bin/sh\ncase $1 in catalog) echo '{catalog}' ;; *) echo '{{}}' ;; esac\n");
    town.config_map("script", &json!({"broker": broker}));
    town.site.settings = json!({
        "auth": {"disabled": true},
        "kubernetes": {
            "agent_file": testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}")),
            "pod": town.pod("script"),
        },
    })
    .to_string();
    let server = of_variables(&town);
    for (missing, kind) in [("settings", "configmap"), ("secrets", "secret")] {
        let words = format!("{kind} \"{missing}\" not found");
        // Whoever asks hears where it is said: what a broker lacks is not for everybody.
        heard::known(&town, "events", event(&words));
        let known = Processor::now();
        let told = || server.log().replace('\\', "").contains(&words).then_some(());
        assert!(within(20, told).is_some(), "{words}:\n{}", server.log());
        assert!(known.elapsed() < heard::SOON, "{words}: after {:?}", known.elapsed());
        for (path, said) in [("/readyz", "the log says why"), ("/v2/catalog", "catalog")] {
            let answer = support::http::get(&server.address, path).unwrap();
            assert_eq!(answer.status, 503, "{answer:?}");
            assert!(answer.body.to_string().contains(said), "{answer:?}");
        }
        match kind {
            "configmap" => town.config_map(missing, &json!({"region": "eu"})),
            _ => town.secret(missing, &json!({"password": "p"})),
        }
    }
    order::ready(&server);
    let made = order::provisioned(&server, "i", &order::body("p"));
    assert_eq!(made["state"], "succeeded", "{made}\n{}", server.log());
}
