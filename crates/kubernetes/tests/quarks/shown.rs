//! What `kubectl get qjob` shows, as the API server makes it.

use kubernetes::quarks::Dialect;
use serde_json::{Map, Value, json};

use super::harness::{Town, pod, spec};

/// Each row of the server's table, by column; those that `-o wide` shows too.
async fn rows(town: &Town) -> Vec<Map<String, Value>> {
    let (group, version) = (town.dialect.api_version(), "v1");
    let (namespace, plural) = (&town.cluster.namespace, town.dialect.plural());
    let request = http::Request::get(format!("/apis/{group}/namespaces/{namespace}/{plural}"))
        .header("Accept", format!("application/json;as=Table;v={version};g=meta.k8s.io"));
    let request = request.body(Vec::new()).unwrap();
    let table: Value = town.cluster.client.request(request).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let names = || columns.iter().map(|column| column["name"].as_str().unwrap().to_owned());
    let rows = table["rows"].as_array().unwrap().iter();
    rows.map(|row| names().zip(row["cells"].as_array().unwrap().iter().cloned()).collect())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_says_which_failed_which_wait_and_which_made_what() {
    for dialect in Dialect::ALL {
        let of_job = dialect == Dialect::QuarksJob;
        let mut town = Town::new(if of_job { "shown" } else { "shown-ejob" }).await;
        town.dialect = dialect;
        let of = |pod: Value| match of_job {
            true => spec("once", &pod),
            false => json!({"trigger": {"strategy": "once"}, "template": {"spec": pod}}),
        };
        let mut page = of(pod(r#"echo '{"k": "v"}' | tee /mnt/quarks/o.json"#));
        page["output"] = match of_job {
            true => json!({"outputMap": {"c": {"o.json": {"name": "page-c"}}}}),
            false => json!({"namePrefix": "page"}),
        };
        page["updateOnConfigChange"] = json!(true);
        let mut upload = of(pod("true"));
        let waits = json!([{"secretRef": {"name": "keys"}}]);
        upload
            .pointer_mut(match of_job {
                true => "/template/spec/template/spec/containers/0",
                false => "/template/spec/containers/0",
            })
            .unwrap()["envFrom"] = waits;
        for (name, spec) in [("check", of(pod("exit 3"))), ("page", page), ("upload", upload)] {
            town.create(name, spec).await;
        }
        for name in ["check", "page"] {
            town.ended(name, 1).await;
        }
        let told = |it: &Value| it["status"]["conditions"].to_string().contains("it waits");
        town.until("upload", "told", told).await;
        let rows = rows(&town).await;
        let none = Value::Null;
        let expected = [
            json!(["check", false, "done", "BackoffLimitExceeded", none, none, none]),
            json!(["page", true, "done", "Completed", "[\"page-c\"]", none, true]),
            json!(["upload", none, "once", none, none, "it waits for secret/keys", none]),
        ];
        let shown =
            ["Name", "completed", "strategy", "last", "made", "waits", "updateOnConfigChange"];
        for (row, expected) in rows.iter().zip(&expected) {
            let found =
                shown.map(|column| row.get(column).cloned().unwrap_or(json!("no such column")));
            assert_eq!(json!(found), *expected, "{dialect:?}");
        }
        assert_eq!(rows.len(), 3);
        let ended = |row: usize| rows[row]["ended"].as_str().unwrap_or_default().to_owned();
        assert!(ended(0).ends_with('s') && ended(1).ends_with('s'), "how long ago: {rows:?}");
        assert_eq!(ended(2), "", "{rows:?}");
        let message = rows[0]["message"].as_str().unwrap();
        assert!(message.contains("container c exited with 3"), "{message}");
    }
}
