//! The policies of `deploy/templates` judge as the webhook does: all that its tests ask it these are asked, too.
//!
//! ```text
//! request ──▶ the API server drops nulls ──▶ requester.yaml fills in ──▶ a name is generated ──▶ instances.yaml, others.yaml
//! ```
//!
//! The expressions are evaluated by the language's part that is ours; what they need beyond it is here. That they have
//! the types that an API server's compiler wants cannot be told here.

mod agrees;
mod cases;
mod language;
mod read;

pub(super) use self::agrees::agrees;
