//! The ids by which platforms know a template's service and its plan.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use serde_json::Value;

/// How the id of a service is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ids {
    /// From the uid of its template, which is the plan's id, too, as in OpenShift. A template that is made anew is
    /// another service.
    #[default]
    Uid,
    /// From an annotation of its template, or else the template's namespace and name. The plan has an id of its own. A
    /// template that is made anew, or on another cluster, is the same service.
    Name,
}

/// The annotation of a template that says the id of its service: a UUID.
pub(super) const SERVICE_ID: &str = "template.manciple.dev/service-id";

/// The name space of ids made from names (RFC 9562, 5.5): chosen at random for this, and never to change.
const SPACE: Uuid = Uuid([
    0x5c, 0x9f, 0xc0, 0xe7, 0x28, 0x56, 0x44, 0x5f, 0x80, 0x0b, 0x4c, 0x25, 0x2e, 0x5a, 0x2c, 0xe6,
]);
/// The name of a template's plan, in the name space of its service.
const PLAN: &str = "default";

/// The parts of a template's metadata from which ids are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'t> {
    pub(super) uid: &'t str,
    pub(super) namespace: &'t str,
    pub(super) name: &'t str,
    /// The annotation [`SERVICE_ID`].
    pub(super) annotation: Option<&'t str>,
}

impl<'t> Named<'t> {
    /// Reads the metadata of a template.
    pub(super) fn of(metadata: &'t Value) -> Self {
        let text = |value: &'t Value| value.as_str().unwrap_or_default();
        Self {
            uid: text(&metadata["uid"]),
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            annotation: metadata["annotations"][SERVICE_ID].as_str(),
        }
    }
}

impl Ids {
    /// The id of a template's service. An annotation that is no UUID is ignored.
    pub(super) fn service(self, of: Named<'_>) -> String {
        let Self::Name = self else { return of.uid.to_owned() };
        match of.annotation.and_then(Uuid::read) {
            Some(said) => said.to_string(),
            None => SPACE.named(&format!("{}/{}", of.namespace, of.name)).to_string(),
        }
    }

    /// The id of the plan of a service with an id from [`Self::service`].
    pub(super) fn plan(self, service: &str) -> String {
        match (self, Uuid::read(service)) {
            (Self::Name, Some(service)) => service.named(PLAN).to_string(),
            _ => service.to_owned(),
        }
    }
}

/// Whether a text is a UUID, in small letters.
pub(super) fn is_uuid(text: &str) -> bool {
    Uuid::read(text).is_some_and(|uuid| uuid.to_string() == text)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Uuid([u8; 16]);

impl Uuid {
    fn read(text: &str) -> Option<Self> {
        let lengths = text.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
        let digits = text.replace('-', "");
        let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?;
        Some(Self(bytes.try_into().ok()?)).filter(|_| lengths)
    }

    /// The UUID of a name in this name space: version 5.
    fn named(self, name: &str) -> Self {
        let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        digest.update(&self.0);
        digest.update(name.as_bytes());
        let digest = digest.finish();
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
        bytes[6] = bytes[6] & 0x0f | 0x50;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(bytes)
    }
}

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0a1b2c3d-0000-4111-8222-333344445555";

    #[test]
    fn an_id_of_a_name_is_that_of_the_rfc() {
        let dns = Uuid::read("6ba7b810-9dad-11d1-80b4-00c04fd430c8").unwrap();
        let made = dns.named("www.example.com").to_string();
        assert_eq!(made, "2ed6657d-e927-568b-95e1-2665a8aea6a2", "RFC 9562, A.4");
    }

    #[test]
    fn a_service_keeps_its_id_as_long_as_what_it_is_made_of() {
        let of = |uid, namespace, name, annotation| Named { uid, namespace, name, annotation };
        let said = "AAAAAAAA-bbbb-4ccc-8ddd-eeeeeeeeeeee";
        let web = "b046b26f-6696-5df1-bf99-b7eab2c0feff";
        for (case, ids, of, service) in [
            ("the original's", Ids::Uid, of(UID, "shop", "web", None), UID),
            ("the original has no annotation", Ids::Uid, of(UID, "shop", "web", Some(said)), UID),
            ("a name", Ids::Name, of(UID, "shop", "web", None), web),
            ("the same, made anew", Ids::Name, of("uid-2", "shop", "web", None), web),
            (
                "an annotation, in small letters",
                Ids::Name,
                of(UID, "shop", "web", Some(said)),
                &said.to_lowercase(),
            ),
            ("an annotation that is no id", Ids::Name, of(UID, "shop", "web", Some("web")), web),
            (
                "dashes elsewhere",
                Ids::Name,
                of(UID, "shop", "web", Some("0a1b2c3d00004111-8222-3333-4444-5555")),
                web,
            ),
        ] {
            assert_eq!(ids.service(of), service, "{case}");
        }
        let elsewhere = Ids::Name.service(of(UID, "other", "web", None));
        assert_ne!(elsewhere, web, "of another namespace");
    }

    #[test]
    fn a_plan_has_an_id_of_its_own_where_the_original_has_none() {
        assert_eq!(Ids::Uid.plan(UID), UID);
        let plan = Ids::Name.plan(UID);
        assert_ne!(plan, UID);
        assert_eq!(plan, Ids::Name.plan(&UID.to_uppercase()), "of the id, however it is written");
        assert_eq!(Uuid::read(&plan).unwrap().0[6] >> 4, 5);
    }
}
