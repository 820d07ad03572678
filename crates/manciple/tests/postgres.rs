//! `examples/postgres` behind the real server, on a real PostgreSQL: what is ordered exists, what is
//! handed out connects, what is removed is gone.

mod support;

use std::path::Path;

use serde_json::{Value, json};
use support::{Served, Site, http, order, within};
use testkit::postgres::Postgres;

const SERVICE: &str = "manciple-postgres";

/// The server with the example's own broker, and what it is told of the database.
fn site(postgres: &Postgres) -> Site {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/postgres/broker");
    let mut site = Site::new(&std::fs::read_to_string(example).unwrap());
    site.settings = "auth: {disabled: true}\nbroker: {config_dir: config, secret_dir: secret}\n\
                     operations: {hold: {provision: 50s, update: 50s, deprovision: 50s}}\n"
        .to_owned();
    site.write("config/pg.host", postgres.host());
    site.write("config/pg.port", &postgres.port().to_string());
    site.write("config/pg.admin.user", postgres.admin_user());
    site.write("secret/pg.admin.password", postgres.admin_password());
    site
}

fn send(server: &Served, method: &str, path: &str, body: &Value) -> http::Answer {
    http::send(&server.address, method, path, Some(body)).expect("an answer")
}

fn plan(name: &str) -> String {
    format!("{SERVICE}-{name}")
}

/// Credentials, as an application uses them.
struct Tenant<'p> {
    postgres: &'p Postgres,
    user: String,
    password: String,
    database: String,
}

impl<'p> Tenant<'p> {
    fn new(postgres: &'p Postgres, answer: &http::Answer) -> Self {
        assert_eq!(answer.status, 201, "{answer:?}");
        let credentials = &answer.body["credentials"];
        let text = |name: &str| credentials[name].as_str().unwrap().to_owned();
        assert_eq!(credentials["port"], postgres.port(), "{answer:?}");
        let (user, password, database) = (text("username"), text("password"), text("database"));
        Self { postgres, user, password, database }
    }

    fn sql(&self, sql: &str) -> Result<String, String> {
        let answer = self.postgres.psql(&self.user, &self.password, &self.database, sql);
        answer.map_err(|error| error.to_string())
    }
}

#[test]
fn a_database_is_ordered_used_changed_and_removed() {
    let postgres = Postgres::start().unwrap().expect(
        "this test needs PostgreSQL: `cargo xtask test` installs it, and PG_BINDIR names its programs",
    );
    let admin = |sql: &str| {
        postgres.psql(postgres.admin_user(), postgres.admin_password(), "postgres", sql).unwrap()
    };
    let before = admin("SELECT count(*) FROM pg_roles; SELECT count(*) FROM pg_database");
    let site = site(&postgres);
    let server = site.serve();
    order::ready(&server);
    let path = order::path("shop");
    let bind = |id: &str, more: Value| {
        let mut body = json!({"service_id": SERVICE, "plan_id": plan("small")});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        send(&server, "PUT", &format!("{path}/service_bindings/{id}"), &body)
    };

    let mut body = order::body(&plan("small"));
    body["service_id"] = json!(SERVICE);
    body["parameters"] = json!({"connection_limit": 6});
    let refused = send(&server, "PUT", &path, &body);
    assert_eq!(refused.status, 400, "over the plan's limit: {refused:?}");
    body["parameters"] = json!({"connection_limit": 4, "extensions": ["hstore", "pgcrypto"]});
    let made = send(&server, "PUT", &path, &body);
    assert_eq!(made.status, 201, "{made:?}");

    let owner = Tenant::new(&postgres, &bind("app", json!({})));
    assert_eq!(owner.sql("SELECT 1 + 1").unwrap(), "2");
    assert_eq!(owner.sql("SELECT 'a=>1'::hstore -> 'a'").unwrap(), "1");
    owner.sql("CREATE TABLE orders (id int); INSERT INTO orders VALUES (7)").unwrap();
    let limit =
        format!("SELECT datconnlimit FROM pg_database WHERE datname = '{}'", owner.database);
    assert_eq!(admin(&limit), "4");

    let reader =
        Tenant::new(&postgres, &bind("report", json!({"parameters": {"read_only": true}})));
    assert_eq!(reader.sql("SELECT id FROM orders").unwrap(), "7");
    for write in ["INSERT INTO orders VALUES (8)", "CREATE TABLE mine (id int)"] {
        reader.sql(write).unwrap_err();
        let unguarded = format!("SET default_transaction_read_only = off; {write}");
        assert!(reader.sql(&unguarded).unwrap_err().contains("permission denied"));
    }

    let rotated = Tenant::new(&postgres, &bind("app-2", json!({"predecessor_binding_id": "app"})));
    assert_ne!(rotated.password, owner.password);
    rotated.sql("INSERT INTO orders VALUES (9)").unwrap();
    owner.sql("INSERT INTO orders VALUES (10)").unwrap();

    let change = json!({"service_id": SERVICE, "plan_id": plan("large"),
        "parameters": {"connection_limit": 30, "extensions": ["citext"]}});
    let changed = send(&server, "PATCH", &path, &change);
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(admin(&limit), "30");
    assert_eq!(rotated.sql("SELECT 'A'::citext = 'a'").unwrap(), "t");

    unbinding_ends_the_session(&server, &owner, &path);
    assert_eq!(rotated.sql("SELECT count(*) FROM orders").unwrap(), "3");

    let large = plan("large");
    let remove = |path: &str| {
        let path = format!("{path}?service_id={SERVICE}&plan_id={large}");
        http::send(&server.address, "DELETE", &path, None).unwrap().status
    };
    assert_eq!(remove(&path), 422, "it is bound");
    assert_eq!(remove(&format!("{path}/service_bindings/app-2")), 200);
    assert_eq!(remove(&format!("{path}/service_bindings/report")), 200);
    assert_eq!(remove(&path), 200);
    let after = admin("SELECT count(*) FROM pg_roles; SELECT count(*) FROM pg_database");
    assert_eq!(after, before, "a role or a database is left");
}

/// A session of the binding `app` that is under way ends with it, and none begins.
fn unbinding_ends_the_session(server: &Served, owner: &Tenant<'_>, path: &str) {
    std::thread::scope(|scope| {
        let session = scope.spawn(|| owner.sql("SELECT 'in session'; SELECT pg_sleep(30)"));
        let admin = owner.postgres;
        let seen = || {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)%' \
                       AND pid <> pg_backend_pid()";
            let count = admin.psql(admin.admin_user(), admin.admin_password(), "postgres", sql);
            (count.unwrap() == "1").then_some(())
        };
        assert!(within(10, seen).is_some(), "the session never began");
        let ids = format!("service_id={SERVICE}&plan_id={}", plan("large"));
        let unbind = format!("{path}/service_bindings/app?{ids}");
        let answer = http::send(&server.address, "DELETE", &unbind, None).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let ended = session.join().unwrap().unwrap_err();
        assert!(ended.contains("terminating connection"), "{ended}");
    });
    owner.sql("SELECT 1").unwrap_err();
}
