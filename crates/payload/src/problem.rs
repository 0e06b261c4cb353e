//! What makes a payload unusable, as data.

use billhook_objects::{ObjectKey, Source};

/// A mistake in a payload. Nothing is sent as long as there is one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The place of the mistake.
    pub place: Source,
    /// The mistake.
    pub kind: ProblemKind,
}

/// The kinds of mistakes. Their texts are in `text`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// A file is not valid YAML.
    Yaml {
        /// The reason.
        reason: String,
    },
    /// All files are empty.
    NoManifests,
    /// A document is not an object.
    NotObject {
        /// The reason.
        reason: String,
    },
    /// `metadata.annotations` is not a mapping.
    AnnotationsNotMapping {
        /// Its value.
        value: String,
    },
    /// An annotation that decides about the manifest is not a string.
    NotString {
        /// The annotation.
        annotation: String,
        /// Its value.
        value: String,
    },
    /// A manifest has annotations for a feature set and for a feature gate.
    FeatureSetAndGate {
        /// The object.
        object: ObjectKey,
    },
    /// The delete annotation has another value than `"true"`.
    DeleteValue {
        /// The object.
        object: ObjectKey,
        /// The value.
        value: String,
        /// Whether the value is a string.
        is_string: bool,
    },
    /// Two manifests of one object count at the same time.
    Duplicate {
        /// The object.
        object: ObjectKey,
        /// The place of the first manifest.
        first: Source,
    },
}
