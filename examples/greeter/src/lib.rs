//! A broker in a few dozen lines: an instance is a greeting, a binding is a name to be greeted.
//!
//! It decides nothing about repeated requests, conflicts, polling, status codes or restarts: the
//! framework does. What it makes is a file per instance, so that there is something to look at.

use std::path::PathBuf;

use osb::{Broker, Catalog, Failure, FailureKind, Output, Sensitive, Work};
use serde::Deserialize;
use serde_json::json;

/// Keeps greetings in a folder.
pub struct Greeter {
    /// The folder.
    pub folder: PathBuf,
}

#[derive(Deserialize)]
struct Order {
    #[serde(default = "hello")]
    greeting: String,
}

fn hello() -> String {
    "Hello".to_owned()
}

impl Greeter {
    fn file(&self, work: &Work) -> PathBuf {
        // An id may hold anything, a slash too: hex is a file name whatever it holds.
        let name: String = work.instance_id.as_str().bytes().map(|b| format!("{b:02x}")).collect();
        self.folder.join(&name[..name.len().min(200)])
    }
}

impl Broker for Greeter {
    async fn catalog(&self) -> Result<Catalog, Failure> {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-04/schema#",
            "type": "object",
            "properties": { "greeting": { "type": "string", "minLength": 1, "maxLength": 40 } },
            "additionalProperties": false,
        });
        serde_json::from_value(json!({ "services": [{
            "id": "5c4b0c1e-greeter", "name": "greeter", "bindable": true,
            "description": "Greets whoever is bound to it",
            "plans": [{
                "id": "1d2f7a90-polite", "name": "polite", "description": "In a friendly way",
                "schemas": { "service_instance": { "create": { "parameters": schema } } },
            }],
        }]}))
        .map_err(|error| Failure::failed(error.to_string()))
    }

    async fn provision(&self, work: Work) -> Result<Output, Failure> {
        let Order { greeting } = work.parameters()?;
        work.progress.report("writing the greeting");
        std::fs::write(self.file(&work), greeting).map_err(io)?;
        Ok(Output::default())
    }

    async fn bind(&self, work: Work) -> Result<Output, Failure> {
        let greeting = std::fs::read_to_string(self.file(&work)).map_err(io)?;
        let name = work.binding_id.as_ref().map_or("you", osb::BindingId::as_str);
        let mut credentials = osb::Object::new();
        credentials.insert("greeting".to_owned(), json!(format!("{greeting}, {name}!")));
        let binding = osb::BindingBody {
            credentials: Some(Sensitive::new(credentials)),
            ..Default::default()
        };
        Ok(Output { binding: Some(binding), ..Output::default() })
    }

    async fn unbind(&self, _: Work) -> Result<Output, Failure> {
        Ok(Output::default())
    }

    async fn deprovision(&self, work: Work) -> Result<Output, Failure> {
        match std::fs::remove_file(self.file(&work)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(error)),
            _ => Ok(Output::default()),
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn io(error: std::io::Error) -> Failure {
    Failure::new(FailureKind::Failed, format!("the greeting's file: {error}"))
}
