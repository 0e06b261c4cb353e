//! Who an object is: validated newtypes, so that a name, a UID and a kind cannot be mixed up.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The API group and the kind of an object, without its version.
///
/// Objects are compared by group and kind; the version only says how to talk to them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind as discovery spells it, for example `ConfigMap`.
    pub kind: String,
}

impl GroupKind {
    /// Makes a group and kind; the core group is the empty string.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }

    /// Whether this is `kind` in `group`.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

/// Prints `Kind` for the core group and `Kind.group` otherwise, as kubectl does.
impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.kind) } else { write!(f, "{}.{}", self.kind, self.group) }
    }
}

/// An `apiVersion`: a group and a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ApiVersion {
    group: String,
    version: String,
}

impl ApiVersion {
    /// Makes an `apiVersion` from its two parts; the core group is the empty string.
    pub fn new(group: impl Into<String>, version: impl Into<String>) -> Self {
        Self { group: group.into(), version: version.into() }
    }

    /// Parses `v1` or `apps/v1`.
    ///
    /// # Errors
    ///
    /// When a part is empty or there is more than one slash.
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        let parsed = match text.split_once('/') {
            None => Self::new("", text),
            Some((group, version)) if !group.is_empty() && !version.contains('/') => Self::new(group, version),
            Some(_) => return Err(IdentityError::ApiVersion(text.to_owned())),
        };
        if parsed.version.is_empty() { Err(IdentityError::ApiVersion(text.to_owned())) } else { Ok(parsed) }
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The version, for example `v1beta1`.
    pub fn version(&self) -> &str {
        &self.version
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.version) } else { write!(f, "{}/{}", self.group, self.version) }
    }
}

impl TryFrom<String> for ApiVersion {
    type Error = IdentityError;
    fn try_from(text: String) -> Result<Self, IdentityError> {
        Self::parse(&text)
    }
}

impl From<ApiVersion> for String {
    fn from(value: ApiVersion) -> Self {
        value.to_string()
    }
}

/// Which object: group, kind, namespace (none for cluster-scoped objects) and name.
///
/// A key says nothing of *which* object of that name: see [`Uid`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// Group and kind.
    #[serde(flatten)]
    pub kind: GroupKind,
    /// The namespace; none for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// Makes a key.
    pub fn new(kind: GroupKind, namespace: Option<&str>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.map(str::to_owned), name: name.into() }
    }
}

/// Prints `Kind.group/name` or `Kind.group/namespace/name`.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{}/{}", self.kind, namespace, self.name),
            None => write!(f, "{}/{}", self.kind, self.name),
        }
    }
}

/// The `metadata.uid` of an object: two objects of one name, one after the other, differ in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(String);

impl Uid {
    /// Wraps a UID as the API server wrote it.
    pub fn new(uid: impl Into<String>) -> Self {
        Self(uid.into())
    }

    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a release and the namespace its inventory lies in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReleaseName {
    namespace: String,
    name: String,
}

impl ReleaseName {
    /// Makes the name of a release; both parts must be DNS labels (RFC 1123), as namespaces are.
    ///
    /// # Errors
    ///
    /// When a part is not a DNS label of at most 63 characters.
    pub fn new(namespace: &str, name: &str) -> Result<Self, IdentityError> {
        for part in [namespace, name] {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            let valid = !part.is_empty()
                && part.len() <= 63
                && part.starts_with(inner)
                && part.ends_with(inner)
                && part.chars().all(|c| inner(c) || c == '-');
            if !valid {
                return Err(IdentityError::Release(part.to_owned()));
            }
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The name of the release that stands for a DeployItem. It has a dot, which no name of a user's release has, so that
    /// the two never meet; a name that leaves no room for that in the name of a Secret is shortened with a digest.
    pub fn of_deploy_item(namespace: &str, item: &str) -> Self {
        const LONGEST: usize = 180;
        let item = if item.len() <= LONGEST { item.to_owned() } else { shortened(item, LONGEST) };
        Self { namespace: namespace.to_owned(), name: format!("{DEPLOY_ITEM}{item}") }
    }

    /// The name, as the user gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace of the inventory.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The value of the label `billhook.dev/release` on every object of the release: `NAME.NAMESPACE`,
    /// shortened with a digest where that is longer than the 63 characters a label value may have.
    pub fn label_value(&self) -> String {
        let full = format!("{}.{}", self.name, self.namespace);
        if full.len() <= 63 { full } else { shortened(&full, 63) }
    }

    /// How people know the release behind a label's value: `NAMESPACE/NAME`, or the value itself where it was shortened.
    pub fn shown(label_value: &str) -> String {
        let item = label_value.strip_prefix(DEPLOY_ITEM).and_then(|item| item.rsplit_once('.'));
        if let Some((name, namespace)) = item.filter(|_| label_value.len() < 63) {
            return format!("DeployItem {namespace}/{name}");
        }
        match label_value.split_once('.').and_then(|(name, namespace)| Self::new(namespace, name).ok()) {
            Some(release) if release.label_value() == label_value && label_value.len() < 63 => release.to_string(),
            _ => label_value.to_owned(),
        }
    }
}

/// What the names of releases begin with that stand for DeployItems.
const DEPLOY_ITEM: &str = "deployitem.";

/// The beginning of a text and a digest of all of it, together of this length.
fn shortened(text: &str, length: usize) -> String {
    let digest: String = Sha256::digest(text.as_bytes()).iter().take(5).map(|b| format!("{b:02x}")).collect();
    format!("{}-{digest}", &text[..length - digest.len() - 1])
}

/// Prints `namespace/name`.
impl fmt::Display for ReleaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why a text is not the identity it should be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IdentityError {
    /// Not `version` or `group/version`.
    #[error("read apiVersion {0:?}: expected VERSION or GROUP/VERSION")]
    ApiVersion(String),
    /// Not a DNS label.
    #[error(
        "use {0:?} as the name or namespace of a release: expected at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
    )]
    Release(String),
}
