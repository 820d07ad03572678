//! The revisions of an instance, and in what each differs from the one before.

use std::collections::BTreeMap;

use kubernetes::templates::record::Revision;
use serde_json::Value;

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;

/// The changes of a revision against the one before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// How many objects the revision has.
    pub(super) objects: usize,
    /// How many objects are new, gone, and changed; `None` if the revision before is not kept.
    pub(super) compared: Option<[usize; 3]>,
    /// The parameters that have another value, or came or went.
    pub(super) parameters: Vec<String>,
}

/// The changes of a revision; `None` if its order was too large to be kept.
pub(super) fn changes(revision: &Revision, before: Option<&Revision>) -> Option<Changes> {
    let now = objects(revision)?;
    let mut changes = Changes { objects: now.len(), ..Changes::default() };
    let Some(before) = before else { return Some(changes) };
    changes.compared = objects(before).map(|then| {
        let new = now.keys().filter(|key| !then.contains_key(*key)).count();
        let gone = then.keys().filter(|key| !now.contains_key(*key)).count();
        let other = then.iter().filter(|(key, was)| now.get(*key).is_some_and(|is| is != *was));
        [new, gone, other.count()]
    });
    let (is, was) = (&revision.record.parameters, &before.record.parameters);
    let all = is.keys().chain(was.keys().filter(|name| !is.contains_key(*name)));
    changes.parameters = all.filter(|name| is.get(*name) != was.get(*name)).cloned().collect();
    changes.parameters.sort_unstable();
    Some(changes)
}

/// The objects of a revision's template, unprocessed, by kind and name.
fn objects(revision: &Revision) -> Option<BTreeMap<String, &Value>> {
    let template = &revision.spec.as_ref()?["template"];
    let objects = template["objects"].as_array().into_iter().flatten().enumerate();
    let key = |(index, object): (usize, &Value)| {
        let metadata = &object["metadata"];
        // One without a name has its place.
        let index = if metadata["name"].is_string() { String::new() } else { index.to_string() };
        let parts =
            [&object["apiVersion"], &object["kind"], &metadata["namespace"], &metadata["name"]];
        parts.map(Value::to_string).join("/") + &index
    };
    Some(objects.map(|(index, object)| (key((index, object)), object)).collect())
}

impl Changes {
    /// The changes for people: "3 objects: 1 new, 1 gone, 1 changed; values of PORT".
    pub(super) fn words(&self) -> String {
        let plural = if self.objects == 1 { "" } else { "s" };
        let mut words = format!("{} object{plural}", self.objects);
        let counts = self.compared.into_iter().flatten().zip(["new", "gone", "changed"]);
        let counts: Vec<String> = counts
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if !counts.is_empty() {
            words = format!("{words}: {}", counts.join(", "));
        }
        if !self.parameters.is_empty() {
            words = format!("{words}; values of {}", self.parameters.join(", "));
        }
        words
    }
}

/// Chooses the revision to order again; without a number the newest that differs from the current order.
///
/// # Errors
/// If there is none, or if its order was too large to be kept.
pub(super) fn choose<'a>(
    revisions: &'a [Revision],
    number: Option<u64>,
    spec: &Value,
    subject: &str,
) -> Result<(&'a Revision, &'a Value), Failure> {
    let is_it = |it: &&Revision| match number {
        Some(number) => it.record.revision == number,
        None => !it.record.is_of_spec(spec),
    };
    let Some(found) = revisions.iter().find(is_it) else {
        let kept: Vec<String> = revisions.iter().map(|it| it.record.revision.to_string()).collect();
        let message = match number {
            Some(number) => format!("{subject} has no revision {number}"),
            None => format!("{subject} has no revision before the one that is in force"),
        };
        let hint = match kept.is_empty() {
            true => "nothing is recorded of it yet".to_owned(),
            false => format!("those that are kept: {}", kept.join(", ")),
        };
        return Err(Failure::missing(message).hint(hint));
    };
    let number = found.record.revision;
    match &found.spec {
        Some(spec) => Ok((found, spec)),
        None => {
            let message =
                format!("revision {number} of {subject} was too large for its template to be kept");
            let hint = "order it anew with the template: manciple template instance change -f FILE";
            Err(Failure::new(Exit::Refused, message).hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn revision(number: u64, parameters: Value, spec: Option<Value>) -> Revision {
        let record = json!({
            "revision": number, "parameters": parameters, "requester": null, "spec": "",
        });
        let spec = spec.map(|objects| json!({"template": {"objects": objects}}));
        Revision { record: serde_json::from_value(record).unwrap(), spec }
    }

    fn map(name: &str, data: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
    }

    #[test]
    fn changes_are_counted_and_have_no_value() {
        let values = |port: &str| json!({"PORT": port, "SAME": "hunter2"});
        let kept = |port, objects| revision(1, values(port), Some(objects));
        let first = kept("8080", json!([map("a", "1"), map("b", "1"), map("c", "1")]));
        let second = kept("9090", json!([map("a", "1"), map("b", "2"), map("d", "1")]));
        let lost = revision(1, values("8080"), None);
        for (case, now, before, expected) in [
            ("the first", &first, None, Some("3 objects")),
            ("the same", &first, Some(&first), Some("3 objects")),
            (
                "another",
                &second,
                Some(&first),
                Some("3 objects: 1 new, 1 gone, 1 changed; values of PORT"),
            ),
            ("after one that is lost", &second, Some(&lost), Some("3 objects; values of PORT")),
            ("one that is lost", &lost, Some(&first), None),
        ] {
            let words = changes(now, before).map(|changes| changes.words());
            assert_eq!(words.as_deref(), expected, "{case}");
        }
    }

    #[test]
    fn a_revision_that_is_not_there_or_not_kept_is_refused_in_clear_words() {
        let all = [
            revision(3, json!({}), Some(json!([]))),
            revision(2, json!({}), None),
            revision(1, json!({}), Some(json!([]))),
        ];
        let choose = |number| choose(&all, number, &Value::Null, "TemplateInstance shop");
        assert_eq!(choose(Some(1)).unwrap().0.record.revision, 1);
        let failure = choose(Some(9)).unwrap_err().to_string();
        assert!(
            failure.contains("no revision 9") && failure.contains("kept: 3, 2, 1"),
            "{failure}"
        );
        let failure = choose(Some(2)).unwrap_err().to_string();
        assert!(failure.contains("too large") && failure.contains("-f FILE"), "{failure}");
        let failure = super::choose(&[], None, &Value::Null, "it").unwrap_err().to_string();
        assert!(failure.contains("nothing is recorded"), "{failure}");
    }
}
