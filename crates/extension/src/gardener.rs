//! The Cluster object of a Shoot, in the seed, and the Shoot that it embeds.

use std::{fmt, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::value::RawValue;

/// The annotation of a Shoot by which its owner asks to delete it even if resources are orphaned.
pub const FORCE_DELETION: &str = "confirmation.gardener.cloud/force-deletion";

/// Parses a boolean as Go's `strconv.ParseBool` does; none if it is no boolean.
///
/// ```
/// assert_eq!(billhook_extension::parse_bool("T"), Some(true));
/// assert_eq!(billhook_extension::parse_bool("yes"), None);
/// ```
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The `Cluster` of `extensions.gardener.cloud/v1alpha1` that belongs to an extension object: the one with the name of the
/// object's namespace. Objects of the garden or of a seed belong to none; [`Cluster::shoot`] is none for them.
///
/// For the tests of an actuator it can be made from JSON:
///
/// ```
/// use billhook_extension::Cluster;
/// use serde_json::json;
///
/// let cluster: Cluster = serde_json::from_value(json!({
///     "metadata": {"name": "shoot--dev--web"},
///     "spec": {"shoot": {"metadata": {"annotations": {"confirmation.gardener.cloud/force-deletion": "1"}}}},
/// }))?;
/// assert!(cluster.shoot().is_some_and(|shoot| shoot.needs_force_deletion()));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Cluster {
    name: String,
    shoot: Option<Shoot>,
    seed: Option<Arc<RawValue>>,
    cloud_profile: Option<Arc<RawValue>>,
}

/// The Shoot that a [`Cluster`] embeds, as it was when gardenlet last wrote it there.
#[derive(Clone)]
pub struct Shoot {
    metadata: ObjectMeta,
    last_operation_state: Option<String>,
    /// The whole Shoot as text. Parsed, those of a large seed would take gigabytes.
    raw: Arc<RawValue>,
}

impl Cluster {
    /// Returns the name, which is that of the Shoot's namespace in the seed. It is empty for objects without a Cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the Shoot.
    pub fn shoot(&self) -> Option<&Shoot> {
        self.shoot.as_ref()
    }

    /// Reads the Seed into a type of the caller, which may have only the fields that matter; none if there is no Seed.
    ///
    /// # Errors
    ///
    /// When a field of the type is missing or has another type.
    pub fn seed<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        self.seed.as_deref().map(|raw| serde_json::from_str(raw.get())).transpose()
    }

    /// Reads the CloudProfile into a type of the caller, which may have only the fields that matter; none if there is none.
    ///
    /// # Errors
    ///
    /// When a field of the type is missing or has another type.
    pub fn cloud_profile<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        self.cloud_profile.as_deref().map(|raw| serde_json::from_str(raw.get())).transpose()
    }

    pub(crate) fn needs_force_deletion(&self) -> bool {
        self.shoot().is_some_and(Shoot::needs_force_deletion)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.shoot().is_some_and(Shoot::has_failed)
    }
}

impl Shoot {
    /// Returns the metadata: annotations, labels, `deletionTimestamp`.
    pub fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    /// Returns whether the annotation `confirmation.gardener.cloud/force-deletion` asks for force deletion.
    pub fn needs_force_deletion(&self) -> bool {
        let annotation = self.metadata.annotations.as_ref().and_then(|annotations| annotations.get(FORCE_DELETION));
        annotation.is_some_and(|value| parse_bool(value) == Some(true))
    }

    /// Returns whether the last operation on the Shoot has failed finally. Extensions leave the objects of such a Shoot
    /// alone.
    pub fn has_failed(&self) -> bool {
        self.last_operation_state.as_deref() == Some("Failed")
    }

    /// Reads the whole Shoot, status included, into a type of the caller, which may have only the fields that matter.
    ///
    /// # Errors
    ///
    /// When a field of the type is missing or has another type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.raw.get())
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).field("shoot", &self.shoot).finish_non_exhaustive()
    }
}

impl fmt::Debug for Shoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = &self.last_operation_state;
        f.debug_struct("Shoot").field("name", &self.metadata.name).field("state", state).finish_non_exhaustive()
    }
}

impl<'de> Deserialize<'de> for Cluster {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ClusterObject { metadata, spec } = ClusterObject::deserialize(deserializer)?;
        let Embedded { shoot, seed, cloud_profile } = spec;
        let shoot = shoot.map(Shoot::try_from).transpose().map_err(D::Error::custom)?;
        Ok(Self {
            name: metadata.name.unwrap_or_default(),
            shoot,
            seed: seed.map(Arc::from),
            cloud_profile: cloud_profile.map(Arc::from),
        })
    }
}

impl TryFrom<Box<RawValue>> for Shoot {
    type Error = serde_json::Error;

    fn try_from(raw: Box<RawValue>) -> Result<Self, Self::Error> {
        let ShootObject { metadata, status } = serde_json::from_str(raw.get())?;
        let last_operation = status.and_then(|status| status.last_operation);
        Ok(Self {
            metadata,
            last_operation_state: last_operation.and_then(|operation| operation.state),
            raw: Arc::from(raw),
        })
    }
}

#[derive(Deserialize)]
struct ClusterObject {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Embedded,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Embedded {
    shoot: Option<Box<RawValue>>,
    seed: Option<Box<RawValue>>,
    cloud_profile: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ShootObject {
    #[serde(default)]
    metadata: ObjectMeta,
    status: Option<ShootStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShootStatus {
    last_operation: Option<ShootOperation>,
}

#[derive(Deserialize)]
struct ShootOperation {
    state: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(shoot: Value) -> Cluster {
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"shoot": shoot}})).unwrap()
    }

    #[test]
    fn the_annotation_is_parsed_as_go_does() {
        for (value, expected) in [
            ("1", true),
            ("t", true),
            ("T", true),
            ("true", true),
            ("TRUE", true),
            ("True", true),
            ("tRUE", false),
            ("yes", false),
            (" true", false),
            ("", false),
            ("0", false),
            ("false", false),
        ] {
            let shoot = json!({"metadata": {"annotations": {FORCE_DELETION: value}}});
            assert_eq!(cluster(shoot).needs_force_deletion(), expected, "{value:?}");
        }
        assert!(!cluster(json!({})).needs_force_deletion());
        assert!(!cluster(Value::Null).needs_force_deletion());
    }

    #[test]
    fn only_the_final_state_is_a_failure() {
        for (state, expected) in [("Failed", true), ("Error", false), ("Processing", false)] {
            assert_eq!(
                cluster(json!({"status": {"lastOperation": {"state": state}}})).has_failed(),
                expected,
                "{state}"
            );
        }
        assert!(!cluster(json!({"status": {}})).has_failed());
        assert!(!Cluster::default().has_failed());
    }

    #[test]
    fn embedded_objects_are_read_into_types_of_the_caller() {
        #[derive(Deserialize)]
        struct Region {
            region: String,
        }
        #[derive(Deserialize)]
        struct WithRegion {
            spec: Region,
        }
        let cluster = cluster(json!({"spec": {"region": "here", "more": 1}}));
        let shoot: WithRegion = cluster.shoot().unwrap().read().unwrap();
        assert_eq!(shoot.spec.region, "here");
        assert!(cluster.seed::<Value>().unwrap().is_none() && cluster.cloud_profile::<Value>().unwrap().is_none());
    }
}
