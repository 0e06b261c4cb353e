//! Publishes a status to an object that other programs read. The object does not belong to a release: it is neither created nor
//! deleted.

use std::{collections::BTreeMap, fmt};

use billhook_cluster::{ApplyOptions, Error, ErrorKind, FieldConflict};
use billhook_objects::{ObjectKey, ReleaseName};
use billhook_plan::Resource;
use serde_json::Value;

use crate::{Clusters, Recorded};

/// How many fields of a manager an error lists.
const LISTED: usize = 4;

/// An object whose status is published, in the release's own cluster.
#[derive(Clone, Debug)]
pub struct StatusTarget {
    /// Its kind, in the version in which it is read and written.
    pub resource: Resource,
    /// The object.
    pub key: ObjectKey,
    /// The manager that owns the published fields. Fields of other managers are never taken over.
    pub field_manager: String,
}

/// Why a status cannot be published.
#[derive(Debug)]
pub enum PublishError {
    /// The cluster does not serve the kind in this version.
    NotServed(Resource),
    /// The object does not exist.
    Missing(ObjectKey),
    /// The right to send a request with this verb is missing.
    Forbidden {
        /// The verb, `get` or `patch`.
        verb: &'static str,
        /// The object.
        object: ObjectKey,
    },
    /// Other managers own fields of it.
    Owned {
        /// The object.
        object: ObjectKey,
        /// The fields.
        fields: Vec<FieldConflict>,
    },
    /// Another client has changed it since it was read.
    Changed(ObjectKey),
    /// A request failed for another reason.
    Failed(Error),
}

/// Reads what the record of a release says; nothing if another operation works on the release, or one that was killed.
///
/// # Errors
///
/// When the record cannot be read.
pub async fn recorded(clusters: &Clusters, release: &ReleaseName) -> Result<Option<Recorded>, PublishError> {
    let Some(head) = clusters.inventory().head(release).await.map_err(PublishError::Failed)? else {
        return Ok(Some(Recorded::default()));
    };
    let is_free = !head.is_locked() || head.is_locked_by(&clusters.holder);
    Ok(is_free.then(|| Recorded { history: head.history().to_vec(), revision: head.revision(), ..Recorded::default() }))
}

impl StatusTarget {
    /// Reads the object.
    ///
    /// # Errors
    ///
    /// When its kind is not served, it does not exist, or the request fails.
    pub async fn read(&self, clusters: &Clusters) -> Result<Value, PublishError> {
        let Self { resource, key, .. } = self;
        let found = clusters.own.get(resource, key).await.map_err(|error| self.explain("get", error))?;
        let Some(found) = found else {
            let catalog = clusters.own.catalog().await.map_err(PublishError::Failed)?;
            return Err(match catalog.get(&resource.kind) {
                Some(_) => PublishError::Missing(key.clone()),
                None => PublishError::NotServed(resource.clone()),
            });
        };
        if found["apiVersion"] == resource.api_version().to_string() {
            return Ok(found);
        }
        Err(PublishError::NotServed(resource.clone()))
    }

    /// Checks the right to publish without publishing anything.
    ///
    /// # Errors
    ///
    /// When the right is missing, or the request fails.
    pub async fn check(&self, clusters: &Clusters) -> Result<(), PublishError> {
        match clusters.own.may("patch", &self.resource, &self.key, Some("status")).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(PublishError::Forbidden { verb: "patch", object: self.key.clone() }),
            Err(error) => Err(PublishError::Failed(error)),
        }
    }

    /// Publishes a status by server-side apply, and returns the new version of the object. The given one must have its name, the
    /// version that was read and its status. A `dry_run` only finds out whether that would succeed.
    ///
    /// # Errors
    ///
    /// When the right is missing, other managers own fields of the status, the object has another version, or the request fails.
    /// Nothing was published then.
    pub async fn publish(&self, clusters: &Clusters, object: &Value, dry_run: bool) -> Result<String, PublishError> {
        let options = ApplyOptions {
            subresource: Some("status"),
            field_manager: &self.field_manager,
            versioned: true,
            dry_run,
            ..ApplyOptions::default()
        };
        let applied = clusters.own.apply(&self.resource, &self.key, &object.to_string(), &options).await;
        applied.map(|applied| applied.resource_version).map_err(|error| self.explain("patch", error))
    }

    fn explain(&self, verb: &'static str, error: Error) -> PublishError {
        let object = self.key.clone();
        match error.kind() {
            ErrorKind::Forbidden => PublishError::Forbidden { verb, object },
            ErrorKind::Conflict(fields) if fields.is_empty() => PublishError::Changed(object),
            ErrorKind::Conflict(fields) => PublishError::Owned { object, fields: fields.clone() },
            ErrorKind::Other if error.code() == Some(404) => PublishError::Missing(object),
            _ => PublishError::Failed(error),
        }
    }
}

impl std::error::Error for PublishError {}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotServed(resource) => {
                write!(f, "the cluster does not serve the kind {} of {}", resource.kind.kind, resource.api_version())
            }
            Self::Missing(object) => write!(f, "{object} does not exist"),
            Self::Forbidden { verb: "get", object } => write!(f, "the right to get {object} is missing"),
            Self::Forbidden { verb, object } => write!(f, "the right to {verb} the status of {object} is missing"),
            Self::Owned { object, fields } => {
                let mut managers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
                fields.iter().for_each(|of| managers.entry(&of.manager).or_default().push(&of.field));
                let line = |(manager, fields): (&&str, &Vec<&str>)| {
                    let listed = fields.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
                    let more = fields.len().saturating_sub(LISTED);
                    let more = if more > 0 { format!(" and {more} more fields") } else { String::new() };
                    format!("{manager} owns {listed}{more}")
                };
                let managers: Vec<_> = managers.iter().map(line).collect();
                write!(f, "the status of {object} has other field managers: {}", managers.join("; "))
            }
            Self::Changed(object) => write!(f, "other clients keep changing {object}"),
            Self::Failed(error) => write!(f, "failed to {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use billhook_objects::GroupKind;

    use super::*;

    #[test]
    fn a_conflict_names_the_managers_and_some_of_their_fields() {
        let field = |manager: &str, field: String| FieldConflict { manager: manager.to_owned(), field };
        let mut fields: Vec<_> = (0..LISTED + 2).map(|n| field("b", format!(".status.f{n}"))).collect();
        fields.push(field("a", ".status.x".to_owned()));
        let object = ObjectKey::new(GroupKind::new("config.openshift.io", "ClusterVersion"), None, "version");
        assert_eq!(
            PublishError::Owned { object, fields }.to_string(),
            "the status of ClusterVersion.config.openshift.io/version has other field managers: a owns .status.x; \
             b owns .status.f0, .status.f1, .status.f2, .status.f3 and 2 more fields"
        );
    }
}
