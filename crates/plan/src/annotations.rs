//! The annotations by which an object asks for another treatment: those of the objects of Gardener's ManagedResources
//! (`pkg/apis/resources/v1alpha1/types.go` in gardener/gardener), `billhook.dev/protect`, and those of VolumeSnapshotContents.
//!
//! They are read from the live object. When an object is applied, the values in its manifest replace the live ones, as in the
//! write itself.

use std::{collections::BTreeMap, fmt};

use billhook_objects::{GroupKind, Manifest, wellknown};
use billhook_policy::{GoDuration, Propagation};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, Visitor},
};

/// The prefixes, the one that counts first.
const PREFIXES: [&str; 2] = ["billhook.dev/", "resources.gardener.cloud/"];

/// The whole keys of those that have no prefix of [`PREFIXES`], or only one.
const OTHERS: [&str; 3] =
    [wellknown::PROTECT_ANNOTATION, wellknown::SNAPSHOT_BEING_DELETED, wellknown::SNAPSHOT_BEING_CREATED];

/// The kinds whose objects hold other objects or data, which would be lost.
const NEVER_RECREATED: [(&str, &str); 4] = [
    ("", "Namespace"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
];

/// The value of [`Annotation::Mode`] for an object that is no longer managed.
const MODE_IGNORE: &str = "Ignore";

/// An annotation by which an object asks for another treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Annotation {
    /// Whether the object is never deleted.
    KeepObject,
    /// `Ignore`: the object is no longer managed.
    Mode,
    /// Whether the object is only created, and never updated.
    Ignore,
    /// How long after its `deletionTimestamp` its finalizers are removed.
    FinalizeDeletionAfter,
    /// Whether the object is deleted and recreated if the API server rejects its update as invalid.
    DeleteOnInvalidUpdate,
    /// How dependents are treated then.
    DeletionPropagationOnInvalidUpdate,
    /// Whether nothing waits until the object is ready.
    SkipHealthCheck,
}

impl Annotation {
    const ALL: [Self; 7] = [
        Self::KeepObject,
        Self::Mode,
        Self::Ignore,
        Self::FinalizeDeletionAfter,
        Self::DeleteOnInvalidUpdate,
        Self::DeletionPropagationOnInvalidUpdate,
        Self::SkipHealthCheck,
    ];

    /// Returns the name without a prefix.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeepObject => "keep-object",
            Self::Mode => "mode",
            Self::Ignore => "ignore",
            Self::FinalizeDeletionAfter => "finalize-deletion-after",
            Self::DeleteOnInvalidUpdate => "delete-on-invalid-update",
            Self::DeletionPropagationOnInvalidUpdate => "deletion-propagation-on-invalid-update",
            Self::SkipHealthCheck => "skip-health-check",
        }
    }

    /// Returns what its value must be.
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Self::KeepObject | Self::Ignore | Self::DeleteOnInvalidUpdate | Self::SkipHealthCheck => "true or false",
            Self::Mode => MODE_IGNORE,
            Self::FinalizeDeletionAfter => "a duration such as 90s, 5m or 1h30m",
            Self::DeletionPropagationOnInvalidUpdate => "Background, Foreground or Orphan",
        }
    }

    /// Whether a value that cannot be read counts as set: the reading that changes and deletes less.
    pub(crate) fn counts_if_unreadable(self) -> bool {
        matches!(self, Self::KeepObject | Self::Mode | Self::Ignore)
    }
}

impl fmt::Display for Annotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Those annotations of an object that matter here, as written; all others are skipped when they are decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Annotations(BTreeMap<String, String>);

/// An annotation with a value that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) annotation: Annotation,
    /// The whole key.
    pub(crate) key: String,
    pub(crate) value: String,
}

/// How an object is to be treated, by its annotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    /// It is never deleted.
    pub keep: bool,
    /// It is no longer managed: neither written nor deleted, and the release gives it up.
    pub unmanaged: bool,
    /// It is never updated.
    pub ignore: bool,
    /// Its finalizers are removed this long after its `deletionTimestamp`; never zero, which Gardener does not treat as set
    /// either.
    pub finalize_after: Option<GoDuration>,
    /// It is deleted in this way and recreated if the API server rejects its update as invalid.
    pub recreate: Option<Propagation>,
    /// Nothing waits until it is ready.
    pub skip_health_check: bool,
}

impl Treatment {
    /// Whether the object must not be deleted.
    pub fn is_kept(&self) -> bool {
        self.kept_by().is_some()
    }

    /// Returns the annotation because of which the object must not be deleted.
    pub fn kept_by(&self) -> Option<Annotation> {
        match self {
            Self { unmanaged: true, .. } => Some(Annotation::Mode),
            Self { keep: true, .. } => Some(Annotation::KeepObject),
            _ => None,
        }
    }
}

impl Annotations {
    /// Returns the annotations that a manifest sets.
    pub fn of_manifest(manifest: &Manifest) -> Self {
        #[derive(Default, Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Default, Deserialize)]
        struct Metadata {
            annotations: Option<Annotations>,
        }
        // The API server rejects annotations that are not texts.
        let object: Object = serde_json::from_str(manifest.json()).unwrap_or_default();
        object.metadata.annotations.unwrap_or_default()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the annotations after a manifest with these `others` is applied.
    #[must_use]
    pub fn with(&self, others: &Self) -> Self {
        let mut all = self.clone();
        all.0.extend(others.0.iter().map(|(key, value)| (key.clone(), value.clone())));
        all
    }

    /// Whether the annotation is among them under a key that a manifest with these `written` does not set.
    pub(crate) fn is_only_live(&self, annotation: Annotation, written: &Self) -> bool {
        self.find(annotation).is_some_and(|(key, _)| !written.0.contains_key(&key))
    }

    /// Whether an update must not delete the object without confirmation.
    pub fn is_protected(&self) -> bool {
        self.0.get(wellknown::PROTECT_ANNOTATION).is_some_and(|value| value == "true")
    }

    /// Whether those of a deleted VolumeSnapshotContent keep the CSI sidecar from deleting its snapshot.
    ///
    /// The sidecar's rules are in `shouldDelete` of kubernetes-csi/external-snapshotter, pkg/sidecar-controller. Gardener's
    /// cleaner has the same condition (`triggerVolumeSnapshotDeletion` in gardener/gardener, pkg/utils/kubernetes/client).
    pub fn hold_snapshot(&self) -> bool {
        !self.0.contains_key(wellknown::SNAPSHOT_BEING_DELETED)
            || self.0.contains_key(wellknown::SNAPSHOT_BEING_CREATED)
    }

    /// Returns how the object is to be treated. A value that cannot be read never leads to a deletion, to an update or to the
    /// removal of a finalizer.
    pub fn treatment(&self) -> Treatment {
        self.read().0
    }

    /// Returns how an object of this kind may be deleted, so that it is recreated after an invalid update; none if it must
    /// not be. What may hold data or other objects is never deleted for an update, nor what must not be deleted at all.
    pub fn recreation(&self, kind: &GroupKind) -> Option<Propagation> {
        let treatment = self.treatment();
        let never = treatment.is_kept()
            || self.is_protected()
            || NEVER_RECREATED.iter().any(|(group, name)| kind.is(group, name));
        treatment.recreate.filter(|_| !never)
    }

    /// Returns how the object is to be treated, and the values that cannot be read.
    pub(crate) fn read(&self) -> (Treatment, Vec<Unreadable>) {
        let mut unreadable = Vec::new();
        if self.is_empty() {
            return (Treatment::default(), unreadable);
        }
        let mut flag = |annotation: Annotation, read: fn(&str) -> Option<bool>| {
            self.value(annotation, annotation.counts_if_unreadable(), read, &mut unreadable).unwrap_or(false)
        };
        let keep = flag(Annotation::KeepObject, bool_of);
        let unmanaged = flag(Annotation::Mode, |mode| (mode == MODE_IGNORE).then_some(true));
        let ignore = flag(Annotation::Ignore, bool_of);
        let deletes = flag(Annotation::DeleteOnInvalidUpdate, bool_of);
        let skip_health_check = flag(Annotation::SkipHealthCheck, bool_of);
        let duration = |text: &str| text.parse::<GoDuration>().ok().map(Some);
        let after = self.value(Annotation::FinalizeDeletionAfter, None, duration, &mut unreadable).flatten();
        let propagated = Annotation::DeletionPropagationOnInvalidUpdate;
        let propagation = self.value(propagated, None, |text| propagation_of(text).map(Some), &mut unreadable);
        let treatment = Treatment {
            keep,
            unmanaged,
            ignore,
            finalize_after: after.filter(|after| !after.0.is_zero()),
            recreate: propagation.unwrap_or(Some(Propagation::Background)).filter(|_| deletes),
            skip_health_check,
        };
        (treatment, unreadable)
    }

    /// Returns the key and value of an annotation. Under both prefixes, that of billhook counts.
    fn find(&self, annotation: Annotation) -> Option<(String, &String)> {
        PREFIXES.iter().find_map(|prefix| {
            let key = format!("{prefix}{annotation}");
            let value = self.0.get(&key)?;
            Some((key, value))
        })
    }

    /// Reads the value of an annotation; `otherwise` counts if that fails.
    fn value<T>(
        &self,
        annotation: Annotation,
        otherwise: T,
        read: impl Fn(&str) -> Option<T>,
        unreadable: &mut Vec<Unreadable>,
    ) -> Option<T> {
        let (key, value) = self.find(annotation)?;
        let found = read(value);
        if found.is_none() {
            unreadable.push(Unreadable { annotation, key, value: value.clone() });
        }
        Some(found.unwrap_or(otherwise))
    }
}

/// Reads a boolean like Go's `strconv.ParseBool`.
fn bool_of(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn propagation_of(text: &str) -> Option<Propagation> {
    match text {
        "Background" => Some(Propagation::Background),
        "Foreground" => Some(Propagation::Foreground),
        "Orphan" => Some(Propagation::Orphan),
        _ => None,
    }
}

fn is_known(key: &str) -> bool {
    let is_named = |name: &str| Annotation::ALL.iter().any(|annotation| annotation.name() == name);
    OTHERS.contains(&key) || PREFIXES.iter().any(|prefix| key.strip_prefix(prefix).is_some_and(is_named))
}

/// Skips all other annotations of an object, without copying them.
impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Annotations;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
                let mut found = BTreeMap::new();
                while let Some(Key(key)) = map.next_key()? {
                    match key {
                        Some(key) => found.extend(map.next_value::<Option<String>>()?.map(|value| (key, value))),
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Annotations(found))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// The key of an annotation, if it is one of those that matter here.
struct Key(Option<String>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Known;
        impl Visitor<'_> for Known {
            type Value = Key;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the key of an annotation")
            }
            fn visit_str<E>(self, key: &str) -> Result<Key, E> {
                Ok(Key(is_known(key).then(|| key.to_owned())))
            }
        }
        deserializer.deserialize_str(Known)
    }
}

/// Reads the annotations of test objects.
#[cfg(test)]
impl FromIterator<(String, String)> for Annotations {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(all: I) -> Self {
        Self(all.into_iter().filter(|(key, _)| is_known(key)).collect())
    }
}
