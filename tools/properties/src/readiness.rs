//! Readiness: the first line is an expression in CEL, the rest an object.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use template::ready::{Readiness, is_awaited, readiness, timeout};

use crate::{PLANTED, plants};

/// A time far beyond what an expression may take, even on a busy machine without optimisation.
const LONG: Duration = Duration::from_secs(20);

/// The property that for any expression and object readiness is decided, soon, and alike each time, and that no message
/// has anything of a Secret's content.
pub fn readiness_of(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (expression, document) = text.split_once('\n').unwrap_or((&text, ""));
    let Ok(mut object) = serde_json::from_str::<Value>(document) else { return };
    let _ = is_awaited(&object);
    let _ = readiness(&object);
    let _ = timeout(&object["metadata"]["annotations"]);
    let Some(members) = object.as_object_mut() else { return };
    let data = members.remove("data").unwrap_or_default();
    let holds = !expression.contains(PLANTED) && !plants(&Value::Object(members.clone()));
    members.insert("data".to_owned(), data);
    members.insert(
        "metadata".to_owned(),
        json!({"annotations": {"template.manciple.dev/ready-when": expression}}),
    );
    let begin = Instant::now();
    let said = readiness(&object);
    assert!(begin.elapsed() < LONG, "it takes {:?}", begin.elapsed());
    assert_eq!(said, readiness(&object));
    if let (Readiness::Waiting(why) | Readiness::Failed(why), true) = (&said, holds) {
        assert!(!why.contains(PLANTED), "{why}");
    }
}
