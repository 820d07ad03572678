//! `examples/postgres` as an image: by the variables of jobs mode alone it is a broker whose runs are Jobs, and what
//! it sells are databases of a real server.

mod support;

use serde_json::{Value, json};
use support::town::Town;
use support::{Served, http, order, within};
use testkit::cluster::{POSTGRES_BROKER_IMAGE, POSTGRES_IMAGE};

const SUPERUSER: &str = "planted-superuser";
const ADMIN: &str = "planted-admin";
/// As the README of the example has it.
const PREPARE: &str = "CREATE ROLE manciple LOGIN CREATEDB CREATEROLE PASSWORD 'planted-admin';
     REVOKE CONNECT ON DATABASE postgres, template1 FROM PUBLIC;
     GRANT CONNECT ON DATABASE postgres, template1 TO manciple;";

/// A PostgreSQL server in a pod.
struct Database<'t> {
    town: &'t Town,
    address: String,
}

impl<'t> Database<'t> {
    fn start(town: &'t Town) -> Self {
        town.secret("server", &json!({"POSTGRES_PASSWORD": SUPERUSER}));
        town.make(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "server"},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
                "name": "server", "image": POSTGRES_IMAGE,
                "env": [{"name": "PGDATA", "value": "/data/pgdata"}],
                "envFrom": [{"secretRef": {"name": "server"}}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "readinessProbe": {"exec": {"command": ["pg_isready", "-h", "127.0.0.1"]}, "periodSeconds": 1},
            }], "securityContext": {"fsGroup": 999}, "volumes": [{"name": "data", "emptyDir": {}}]},
        }));
        town.kubectl(&["wait", "--for=condition=Ready", "--timeout=300s", "pod/server"]);
        let pod = town.get("pod/server");
        let address = pod["status"]["podIP"].as_str().unwrap().to_owned();
        let database = Self { town, address };
        database.sql("postgres", SUPERUSER, "postgres", PREPARE).unwrap();
        database
    }

    /// What psql prints, or what it complains of; over the network, as a tenant asks.
    fn sql(&self, user: &str, password: &str, database: &str, sql: &str) -> Result<String, String> {
        let variables = [
            format!("PGHOST={}", self.address),
            format!("PGUSER={user}"),
            format!("PGPASSWORD={password}"),
            format!("PGDATABASE={database}"),
        ];
        let mut line = vec!["exec", "server", "--", "env"];
        line.extend(variables.iter().map(String::as_str));
        line.extend(["psql", "-XtAq", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        let output = testkit::cluster::kubectl()
            .args(["-n", &self.town.namespace])
            .args(line)
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

/// The server of jobs mode: its variables, and no word of the broker in a file.
fn serve(town: &Town) -> Served {
    let mut command = town.command();
    command
        .env("STEWARD_MODE", "jobs")
        .env("POD_NAMESPACE", &town.namespace)
        .env("JOBS_IMAGE", POSTGRES_BROKER_IMAGE)
        .env("JOBS_CONFIG_MAP", "postgres")
        .env("JOBS_SECRET", "postgres");
    let server = Served::start(&mut command).unwrap_or_else(|log| panic!("no server: {log}"));
    order::ready(&server);
    server
}

fn town() -> Town {
    let mut town = Town::empty();
    let agent = testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}"));
    town.site.settings =
        json!({"auth": {"disabled": true}, "kubernetes": {"agent_file": agent}}).to_string();
    town
}

const SERVICE: &str = "manciple-postgres";
const PLAN: &str = "manciple-postgres-small";

fn ids() -> Value {
    json!({"service_id": SERVICE, "plan_id": PLAN})
}

fn delete(server: &Served, path: &str) -> http::Answer {
    let path = format!("{path}?service_id={SERVICE}&plan_id={PLAN}&accepts_incomplete=true");
    http::send(&server.address, "DELETE", &path, None).unwrap()
}

#[test]
fn the_image_of_the_example_sells_databases_by_the_variables_of_jobs_mode() {
    let town = town();
    let database = Database::start(&town);
    town.config_map(
        "postgres",
        &json!({"pg.host": database.address, "pg.port": "5432", "pg.admin.user": "manciple"}),
    );
    town.secret("postgres", &json!({"pg.admin.password": ADMIN}));
    let server = serve(&town);
    let mut body = ids();
    body["organization_guid"] = json!("o");
    body["space_guid"] = json!("s");
    let made = order::provisioned(&server, "shop", &body);
    assert_eq!(made["state"], "succeeded", "{made}\n{}", server.log());
    let bound = order::bind(&server, "shop", "web", &ids());
    let credentials = &bound.body["credentials"];
    let of = |name: &str| {
        let text = credentials[name].as_str();
        text.unwrap_or_else(|| panic!("no {name}: {bound:?}\n{}", server.log()))
    };
    let sql = |sql: &str| database.sql(of("username"), of("password"), of("database"), sql);
    sql("CREATE TABLE kept (word text); INSERT INTO kept VALUES ('written')").unwrap();
    assert_eq!(sql("SELECT word FROM kept").unwrap(), "written");
    for what in ["jobs", "pods", "events", "serviceinstances", "servicebindings"] {
        let shown = town.get(what).to_string();
        for secret in [ADMIN, of("password")] {
            assert!(!shown.contains(secret), "a password is in {what}");
        }
    }

    let unbound = delete(&server, "/v2/service_instances/shop/service_bindings/web");
    assert!([200, 202].contains(&unbound.status), "{unbound:?}");
    let refused = || sql("SELECT 1").err();
    let words = within(30, refused).expect("whoever is unbound is let in");
    assert!(words.contains("authentication failed"), "{words}");
    let gone = || (town.count("servicebindings") == 0).then_some(());
    assert!(within(30, gone).is_some(), "the binding's resource stays:\n{}", server.log());
    assert_eq!(delete(&server, "/v2/service_instances/shop").status, 202);
    assert_eq!(order::settled(&server, "shop")["state"], "succeeded", "{}", server.log());
    let left = "SELECT count(*) FROM pg_database WHERE datname LIKE 'osb%'";
    assert_eq!(database.sql("postgres", SUPERUSER, "postgres", left).unwrap(), "0");
    assert!(!server.log().contains(ADMIN));
}
