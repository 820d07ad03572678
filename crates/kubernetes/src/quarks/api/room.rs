//! Remedies for a record that is too large: it is one annotation, and an object has 256 KiB for all of them.

use engine::trigger::JobRecord;

use super::reference::Kind;
use crate::calls::CallError;

/// If more ConfigMaps and Secrets than this are followed, they may be what takes the room.
const MANY_OBJECTS: usize = 100;

/// Adds to a refusal of the record what takes the room in it: that its annotations are too large is what the API server
/// refuses of one.
pub(crate) fn with_remedy(error: CallError, record: &JobRecord) -> CallError {
    let CallError::Invalid(why) = error else { return error };
    let pods = record.pods.as_ref().map_or(0, |known| known.pods.len() + known.due.len());
    let kinds = [Kind::ConfigMap, Kind::Secret].map(Kind::word);
    let is_object =
        |name: &str| name.split_once('/').is_some_and(|(kind, _)| kinds.contains(&kind));
    let references = record.references.iter().flatten();
    let objects = references.filter(|(name, _)| is_object(name)).count();
    let told = record.open.iter().filter(|run| !run.inputs.is_empty()).count();
    let remedies = [
        (pods > 0).then(|| {
            format!(
                "{pods} pods are followed, and each has to be remembered: have \
                 spec.trigger.podstate.selector select fewer"
            )
        }),
        (objects > MANY_OBJECTS).then(|| {
            format!(
                "{objects} ConfigMaps and Secrets are followed, and each has to be remembered: put what \
                 they hold into fewer"
            )
        }),
        (told > 0).then(|| {
            format!(
                "the inputs of {told} runs that go on have to be remembered: put what is large of \
                 spec.trigger.inputs into a Secret, or let fewer runs go on at once, by \
                 spec.concurrencyPolicy"
            )
        }),
    ];
    let words: Vec<String> = [why].into_iter().chain(remedies.into_iter().flatten()).collect();
    CallError::Invalid(words.join("; "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use engine::trigger::{Held, RecordedPods, References, Run};
    use serde_json::{Value, json};

    use super::*;

    const PODS: &str = "1 pods are followed, and each has to be remembered: have \
        spec.trigger.podstate.selector select fewer";
    const OBJECTS: &str = "101 ConfigMaps and Secrets are followed, and each has to be remembered: put what \
        they hold into fewer";
    const TOLD: &str = "the inputs of 1 runs that go on have to be remembered: put what is large of \
        spec.trigger.inputs into a Secret, or let fewer runs go on at once, by \
        spec.concurrencyPolicy";

    #[test]
    fn where_a_record_has_no_room_what_takes_it_is_named() {
        let run = |inputs: Value| -> Run {
            let run = json!({"id": 1, "trigger": "now", "at": "", "inputs": inputs});
            serde_json::from_value(run).unwrap()
        };
        let refers = |kind: &str, count: usize| {
            let held = |number| (format!("{kind}/{number}"), Held::Nothing(()));
            Some((0..count).map(held).collect::<References>())
        };
        let due = BTreeMap::from([("u".to_owned(), "p".to_owned())]);
        let pods = Some(RecordedPods { due, ..RecordedPods::default() });
        let open = vec![run(json!([])), run(json!([{"name": "A", "value": "1"}]))];
        let none = JobRecord::default;
        let all = JobRecord {
            open: open.clone(),
            references: refers("secret", 101),
            pods: pods.clone(),
            ..none()
        };
        for (name, record, expected) in [
            ("nothing takes any", none(), &[][..]),
            ("pods", JobRecord { pods, ..none() }, &[PODS]),
            ("a few Secrets", JobRecord { references: refers("secret", 100), ..none() }, &[]),
            (
                "ConfigMaps",
                JobRecord { references: refers("configmap", 101), ..none() },
                &[OBJECTS],
            ),
            ("others", JobRecord { references: refers("quarksjob", 101), ..none() }, &[]),
            ("a run without inputs", JobRecord { open: open[..1].to_vec(), ..none() }, &[]),
            ("inputs", JobRecord { open, ..none() }, &[TOLD]),
            ("all of it", all.clone(), &[PODS, OBJECTS, TOLD]),
        ] {
            let refused = with_remedy(CallError::Invalid("full".to_owned()), &record);
            let CallError::Invalid(said) = refused else { panic!("{name}: {refused}") };
            assert_eq!(said, [&["full"][..], expected].concat().join("; "), "{name}");
        }
        let denied = with_remedy(CallError::Denied("full".to_owned()), &all);
        assert!(matches!(denied, CallError::Denied(why) if why == "full"), "nothing is added");
    }
}
