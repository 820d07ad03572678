//! Identifies users by means of the cluster: tokens by TokenReview, rights by SubjectAccessReview, and passwords in
//! Secrets that are followed by name.

mod followed;
mod reviews;

pub use self::followed::{Followed, SecretData};
pub use self::reviews::{AccessError, Identity, Reviews};
