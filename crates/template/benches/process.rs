//! What it costs to make objects of a template: read it, process it, print its objects as JSON.
//!
//! Of so many objects, to see that it grows as they do; of each step, to see what the step takes; and beside it the
//! JSON alone. With counts of allocations. `cargo bench -p template`.

#![allow(clippy::unwrap_used, reason = "a bench has nobody to tell")]

use divan::counter::{BytesCount, ItemsCount};
use divan::{AllocProfiler, Bencher};
use serde_json::{Value, json};
use template::{Seeded, Template};

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

/// As many as a usual template has, and ten and a hundred times as many.
const OBJECTS: [usize; 3] = [7, 70, 700];

fn main() {
    divan::main();
}

/// A template as they are: a Secret, a Service, a Deployment, again and again.
fn document(objects: usize) -> String {
    let containers = ["first", "second", "third"].map(container);
    let all = (0..objects).map(|number| {
        let name = format!("${{NAME}}-{number}");
        let metadata = json!({
            "name": name,
            "labels": {"app": "${NAME}", "tier": "backend"},
            "annotations": {"description": "A part of ${NAME}, which is for ${OWNER} alone"},
        });
        match number % 3 {
            0 => json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": metadata,
                "stringData": {
                    "user": "${USER}", "password": "${PASSWORD}",
                    "url": "http://${USER}:${PASSWORD}@${NAME}/",
                },
            }),
            1 => json!({
                "apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {
                    "ports": [{"name": "web", "port": 8080, "targetPort": "${{PORT}}"}],
                    "selector": {"app": name},
                },
            }),
            _ => json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                "spec": {
                    "replicas": "${{REPLICAS}}",
                    "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name}},
                        "spec": {"containers": containers},
                    },
                },
            }),
        }
    });
    json!({
        "apiVersion": "template.openshift.io/v1", "kind": "Template", "metadata": {"name": "t"},
        "labels": {"template": "t"}, "message": "Made for ${OWNER}",
        "objects": all.collect::<Vec<_>>(),
        "parameters": [
            {"name": "NAME", "value": "shop"}, {"name": "OWNER", "value": "somebody"},
            {"name": "USER", "value": "admin"}, {"name": "PORT", "value": "8080"},
            {"name": "PASSWORD", "generate": "expression", "from": "[a-zA-Z0-9]{16}"},
            {"name": "REPLICAS", "value": "2"}, {"name": "IMAGE", "value": "registry.example/i:1"},
        ],
    })
    .to_string()
}

fn container(name: &str) -> Value {
    let plain = |number| json!({"name": format!("KEY_{number}"), "value": "a plain value"});
    let owner = json!({"name": "OWNER", "value": "${OWNER}"});
    json!({
        "name": name, "image": "${IMAGE}",
        "env": (0..6).map(plain).chain([owner]).collect::<Vec<_>>(),
        "resources": {
            "limits": {"cpu": "500m", "memory": "512Mi"},
            "requests": {"cpu": "100m", "memory": "128Mi"},
        },
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5},
    })
}

fn read(text: &str) -> Template {
    Template::read(serde_json::from_str(text).unwrap()).unwrap()
}

/// All of it.
#[divan::bench(args = OBJECTS)]
fn whole(bencher: Bencher<'_, '_>, objects: usize) {
    let text = document(objects);
    bencher.counter(ItemsCount::new(objects)).counter(BytesCount::of_str(&text)).bench(|| {
        let processed = read(&text).process(&mut Seeded(1)).unwrap();
        serde_json::to_vec(&processed.objects).unwrap()
    });
}

/// From text to a template.
#[divan::bench(args = OBJECTS)]
fn reading(bencher: Bencher<'_, '_>, objects: usize) {
    let text = document(objects);
    bencher.counter(ItemsCount::new(objects)).bench(|| read(&text));
}

/// From a template to objects.
#[divan::bench(args = OBJECTS)]
fn processing(bencher: Bencher<'_, '_>, objects: usize) {
    let template = read(&document(objects));
    bencher
        .counter(ItemsCount::new(objects))
        .with_inputs(|| template.clone())
        .bench_values(|template| template.process(&mut Seeded(1)).unwrap());
}

/// Beside it, in the same run: what the JSON alone costs, read and printed.
#[divan::bench(args = OBJECTS)]
fn json_alone(bencher: Bencher<'_, '_>, objects: usize) {
    let text = document(objects);
    bencher.counter(ItemsCount::new(objects)).bench(|| {
        let value: Value = serde_json::from_str(&text).unwrap();
        serde_json::to_vec(&value).unwrap()
    });
}
