//! How a cause names an object.

use std::fmt;

use billhook_objects::{ApiVersion, GroupKind, Uid};
use serde::Serialize;
use serde_json::Value;

/// An object, as causes and evidence name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Group and version.
    pub api_version: ApiVersion,
    /// The kind.
    pub kind: String,
    /// The namespace; none for a cluster-scoped object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The UID, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
}

impl ObjectRef {
    /// Names an object without its UID.
    pub fn new(
        api_version: ApiVersion,
        kind: impl Into<String>,
        namespace: Option<&str>,
        name: impl Into<String>,
    ) -> Self {
        Self { api_version, kind: kind.into(), namespace: namespace.map(str::to_owned), name: name.into(), uid: None }
    }

    /// Returns the name of a live object; none if the value is not an object.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        Some(Self {
            api_version: ApiVersion::parse(text("/apiVersion")?).ok()?,
            kind: text("/kind")?.to_owned(),
            namespace: text("/metadata/namespace").map(str::to_owned),
            name: text("/metadata/name")?.to_owned(),
            uid: text("/metadata/uid").map(Uid::new),
        })
    }

    /// Returns group and kind.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(self.api_version.group(), &self.kind)
    }

    /// Returns whether both name the same object, whatever its version and UID.
    pub fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.namespace == other.namespace && self.group_kind() == other.group_kind()
    }
}

/// Prints `Kind namespace/name`, and the group of kinds that are not Kubernetes' own.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = self.api_version.group();
        f.write_str(&self.kind)?;
        if group.contains('.') && !group.ends_with(".k8s.io") {
            write!(f, ".{group}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " {}/{}", namespace, self.name),
            None => write!(f, " {}", self.name),
        }
    }
}
