//! Reads members of a JSON document, naming what does not fit by its path and never by its value:
//! the value may be a secret, and serde's own messages repeat it.

use osb::{
    BindingBody, BindingMetadata, Device, Endpoint, InstanceMetadata, Object, Protocol, Sensitive,
    VolumeMode, VolumeMount,
};
use serde_json::Value;

/// The message of a wrong member: which one it is, what it must be, what it is.
pub(super) type Wrong = String;

/// A value and where it stands.
pub(super) struct At<'v> {
    value: &'v Value,
    path: String,
}

impl<'v> At<'v> {
    /// The whole document, which must be an object; `null` is as good as one without members.
    pub(super) fn root(value: &'v Value) -> Result<Self, Wrong> {
        if !value.is_object() && !value.is_null() {
            return Err(format!("a JSON object is expected, not {}", kind(value)));
        }
        Ok(Self { value, path: String::new() })
    }

    pub(super) fn value(&self) -> &'v Value {
        self.value
    }

    /// A member; `null` is as good as absent.
    pub(super) fn get(&self, name: &str) -> Option<Self> {
        let value = member(self.value, name)?;
        let path = match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        Some(Self { value, path })
    }

    /// A member, read; `None` if it is absent.
    pub(super) fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Self) -> Result<T, Wrong>,
    ) -> Result<Option<T>, Wrong> {
        self.get(name).map(|at| read(&at)).transpose()
    }

    /// A text that is not empty: many brokers print all members that there can be, and leave empty what they have not.
    pub(super) fn filled(&self, name: &str) -> Result<Option<String>, Wrong> {
        Ok(self.optional(name, Self::string)?.filter(|text| !text.is_empty()))
    }

    fn require(&self, name: &str) -> Result<Self, Wrong> {
        self.get(name).ok_or_else(|| format!("{}.{name} is missing", self.path))
    }

    pub(super) fn wrong<T>(&self, expected: &str) -> Result<T, Wrong> {
        Err(format!("{} must be {expected}, not {}", self.path, kind(self.value)))
    }

    pub(super) fn text(&self) -> Result<&'v str, Wrong> {
        self.value.as_str().map_or_else(|| self.wrong("a string"), Ok)
    }

    pub(super) fn truth(&self) -> Result<bool, Wrong> {
        self.value.as_bool().map_or_else(|| self.wrong("true or false"), Ok)
    }

    pub(super) fn string(&self) -> Result<String, Wrong> {
        self.text().map(str::to_owned)
    }

    pub(super) fn whole_number(&self) -> Option<u64> {
        self.value.as_u64()
    }

    fn object(&self) -> Result<&'v Object, Wrong> {
        self.value.as_object().map_or_else(|| self.wrong("an object"), Ok)
    }

    fn members(&self) -> Result<impl Iterator<Item = (&'v String, Self)>, Wrong> {
        let path = self.path.clone();
        Ok(self.object()?.iter().map(move |(name, value)| {
            let path = format!("{path}.{name}");
            (name, Self { value, path })
        }))
    }

    /// The items of an array, read.
    fn each<T>(&self, read: impl Fn(&Self) -> Result<T, Wrong>) -> Result<Vec<T>, Wrong> {
        let items = self.value.as_array().map_or_else(|| self.wrong("an array"), Ok)?;
        let item = |(index, value)| Self { value, path: format!("{}[{index}]", self.path) };
        items.iter().enumerate().map(|item_at| read(&item(item_at))).collect()
    }

    /// One of a few words.
    fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, Wrong> {
        let text = self.text()?;
        let known = words.iter().find(|(word, _)| *word == text);
        known.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            format!("{} must be one of {}", self.path, words.join(", "))
        })
    }
}

/// A member of an object that is not `null`: as it is spelt, or else in capitals, as programs in Go print what they
/// give no name, and as Steward, which was one, has read it.
pub(super) fn member<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
    spelt(object, name).map(|(_, value)| value)
}

/// Does as [`member`], and returns the member's name as it is spelt there, too.
pub(super) fn spelt<'v>(object: &'v Value, name: &str) -> Option<(&'v str, &'v Value)> {
    let spellings = || each_spelling(object, name).filter(|(_, value)| !value.is_null());
    spellings().find(|(spelt, _)| *spelt == name).or_else(|| spellings().next())
}

/// All members whose names differ from `name` by capitals alone.
pub(super) fn each_spelling<'v>(
    object: &'v Value,
    name: &str,
) -> impl Iterator<Item = (&'v str, &'v Value)> {
    let members = object.as_object().into_iter().flatten();
    let members = members.map(|(spelt, value)| (spelt.as_str(), value));
    members.filter(move |(spelt, _)| spelt.eq_ignore_ascii_case(name))
}

/// Reads the member `metadata` of provision and update.
pub(super) fn instance_metadata(at: &At<'_>) -> Result<InstanceMetadata, Wrong> {
    at.object()?;
    let labels = |at: &At<'_>| {
        at.members()?.map(|(name, label)| Ok((name.clone(), label.string()?))).collect()
    };
    let attributes = |at: &At<'_>| {
        Ok(at.members()?.map(|(name, any)| (name.clone(), any.value.clone())).collect())
    };
    Ok(InstanceMetadata {
        labels: at.optional("labels", labels)?,
        attributes: at.optional("attributes", attributes)?,
    })
}

/// Reads the output of bind.
pub(super) fn binding(root: &At<'_>) -> Result<BindingBody, Wrong> {
    let metadata = |at: &At<'_>| {
        at.object()?;
        Ok(BindingMetadata {
            expires_at: at.filled("expires_at")?,
            renew_before: at.filled("renew_before")?,
        })
    };
    let address = |name: &str| Ok::<_, Wrong>(root.filled(name)?.map(Sensitive::new));
    let mounts = root.optional("volume_mounts", |at| at.each(mount))?;
    Ok(BindingBody {
        metadata: root.optional("metadata", metadata)?,
        credentials: root.optional("credentials", sensitive_object)?,
        syslog_drain_url: address("syslog_drain_url")?,
        route_service_url: address("route_service_url")?,
        volume_mounts: mounts.filter(|mounts| !mounts.is_empty()),
        endpoints: root.optional("endpoints", |at| at.each(endpoint))?,
    })
}

fn sensitive_object(at: &At<'_>) -> Result<Sensitive<Object>, Wrong> {
    at.object().cloned().map(Sensitive::new)
}

fn mount(at: &At<'_>) -> Result<VolumeMount, Wrong> {
    at.object()?;
    let device = at.require("device")?;
    device.object()?;
    Ok(VolumeMount {
        driver: at.require("driver")?.string()?,
        container_dir: at.require("container_dir")?.string()?,
        mode: at.require("mode")?.word(&[("r", VolumeMode::R), ("rw", VolumeMode::Rw)])?,
        device_type: at.require("device_type")?.string()?,
        device: Device {
            volume_id: device.require("volume_id")?.string()?,
            mount_config: device.optional("mount_config", sensitive_object)?,
        },
    })
}

fn endpoint(at: &At<'_>) -> Result<Endpoint, Wrong> {
    at.object()?;
    let words = [("tcp", Protocol::Tcp), ("udp", Protocol::Udp), ("all", Protocol::All)];
    Ok(Endpoint {
        host: at.require("host")?.string()?,
        ports: at.require("ports")?.each(At::string)?,
        protocol: at.optional("protocol", |at| at.word(&words))?,
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
