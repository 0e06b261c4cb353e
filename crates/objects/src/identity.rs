//! The identity of an object, in validated newtypes, so that a name, a UID and a kind cannot be confused.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::wellknown::FIELD_MANAGER;

/// The API group and the kind of an object, without its version.
///
/// Objects are compared by group and kind; the version is only used for requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind as discovery spells it, for example `ConfigMap`.
    pub kind: String,
}

impl GroupKind {
    /// Creates a group and kind; the core group is the empty string.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }

    /// Returns whether this is `kind` in `group`.
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
    /// Creates an `apiVersion` from its two parts; the core group is the empty string.
    pub fn new(group: impl Into<String>, version: impl Into<String>) -> Self {
        Self { group: group.into(), version: version.into() }
    }

    /// Parses `v1` or `apps/v1`.
    ///
    /// # Errors
    ///
    /// Fails if a part is empty or there is more than one slash.
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        let parsed = match text.split_once('/') {
            None => Self::new("", text),
            Some((group, version)) if !group.is_empty() && !version.contains('/') => Self::new(group, version),
            Some(_) => return Err(IdentityError::ApiVersion(text.to_owned())),
        };
        if parsed.version.is_empty() { Err(IdentityError::ApiVersion(text.to_owned())) } else { Ok(parsed) }
    }

    /// Returns the API group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the version, for example `v1beta1`.
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

/// The group, kind, namespace and name of an object.
///
/// A key does not distinguish an object from a later one of the same name: see [`Uid`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// Group and kind.
    #[serde(flatten)]
    pub kind: GroupKind,
    /// The namespace; `None` for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// Creates a key.
    pub fn new(kind: GroupKind, namespace: Option<&str>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.map(str::to_owned), name: name.into() }
    }
}

/// Prints `Kind.group/name` or `Kind.group/namespace/name`; in texts, as `{:#}`, with a space after the kind.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if f.alternate() { ' ' } else { '/' };
        match &self.namespace {
            Some(namespace) => write!(f, "{}{separator}{}/{}", self.kind, namespace, self.name),
            None => write!(f, "{}{separator}{}", self.kind, self.name),
        }
    }
}

/// The `metadata.uid` of an object, which distinguishes it from a later object of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(String);

impl Uid {
    /// Wraps a UID from the API server.
    pub fn new(uid: impl Into<String>) -> Self {
        Self(uid.into())
    }

    /// Returns the UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a release and the namespace of its inventory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReleaseName {
    namespace: String,
    name: String,
}

impl ReleaseName {
    /// Creates a release name; both parts must be DNS labels (RFC 1123), like namespaces.
    ///
    /// # Errors
    ///
    /// Fails if a part is not a DNS label of at most 63 characters.
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

    /// Returns the release name of a DeployItem. It contains a dot, so it never equals the name of a user's release. If it
    /// would be too long for the name of a Secret, the item's name is shortened with a digest.
    pub fn of_deploy_item(namespace: &str, item: &str) -> Self {
        const LONGEST: usize = 180;
        let item = if item.len() <= LONGEST { item.to_owned() } else { shortened(item, LONGEST) };
        Self { namespace: namespace.to_owned(), name: format!("{DEPLOY_ITEM}{item}") }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the namespace of the inventory.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the value of the label `billhook.dev/release` on every object of the release: `NAME.NAMESPACE`, shortened
    /// with a digest if it is longer than the 63 characters of a label value.
    pub fn label_value(&self) -> String {
        let full = format!("{}.{}", self.name, self.namespace);
        if full.len() <= 63 { full } else { shortened(&full, 63) }
    }

    /// Returns the field manager of the release's objects: `billhook/NAMESPACE/NAME`, shortened with a digest if it is longer
    /// than the 128 characters that the API server allows.
    pub fn field_manager(&self) -> String {
        Self::field_manager_of(&self.to_string())
    }

    /// Returns the field manager of the release that is printed as `NAMESPACE/NAME`.
    pub fn field_manager_of(release: &str) -> String {
        let full = format!("{FIELD_MANAGER}/{release}");
        if full.len() <= 128 { full } else { shortened(&full, 128) }
    }

    /// Returns the release of a field manager; none if its name was shortened or is not that of a release.
    pub fn of_field_manager(manager: &str) -> Option<Self> {
        let (namespace, name) = manager.strip_prefix(FIELD_MANAGER)?.strip_prefix('/')?.split_once('/')?;
        let deploy_item = name.strip_prefix(DEPLOY_ITEM);
        let release = deploy_item
            .map_or_else(|| Self::new(namespace, name).ok(), |item| Some(Self::of_deploy_item(namespace, item)))?;
        (release.field_manager() == manager).then_some(release)
    }

    /// Returns the release of a label value; none if the value was shortened or is not that of a release.
    pub fn of_label(label_value: &str) -> Option<Self> {
        let release = match label_value.strip_prefix(DEPLOY_ITEM).and_then(|item| item.rsplit_once('.')) {
            Some((item, namespace)) => Self::of_deploy_item(namespace, item),
            None => label_value.split_once('.').and_then(|(name, namespace)| Self::new(namespace, name).ok())?,
        };
        (label_value.len() < 63 && release.label_value() == label_value).then_some(release)
    }

    /// Returns the name of the DeployItem whose release this is; none for the release of a user. A long name is shortened.
    pub fn deploy_item(&self) -> Option<&str> {
        self.name.strip_prefix(DEPLOY_ITEM)
    }

    /// Returns the release of a label value for output: `NAMESPACE/NAME`, `DeployItem NAMESPACE/NAME`, or the value itself
    /// if it was shortened.
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

/// The prefix of the release names of DeployItems.
const DEPLOY_ITEM: &str = "deployitem.";

/// Shortens a text to this length: its beginning and a digest of the whole text.
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

/// The reason why a text is not a valid identity.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IdentityError {
    /// Not `version` or `group/version`.
    #[error("read apiVersion {0:?}: expected VERSION or GROUP/VERSION")]
    ApiVersion(String),
    /// Not a DNS label.
    #[error(
        "use {0:?} as the name or namespace of a release: expected at most 63 characters of a-z, 0-9 and '-', starting and ending with a letter or digit"
    )]
    Release(String),
}
