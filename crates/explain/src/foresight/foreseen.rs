//! What will go wrong, as data.

use crate::{ObjectRef, ResponsibleState};

/// Something that will happen, or may, if objects are deleted in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::large_enum_variant, reason = "there are few of them")]
pub enum Foreseen {
    /// The controller that removes a finalizer does not work, or is not known.
    NotWorking {
        /// The finalizer.
        finalizer: String,
        /// The objects that carry it.
        objects: Vec<ObjectRef>,
        /// The controller; none if it is not known.
        controller: Option<String>,
        /// Whether it works.
        state: ResponsibleState,
        /// What is missing of it.
        problem: String,
    },
    /// Parts of the controller that removes a finalizer are deleted no later than the objects that carry it.
    ControllerFirst {
        /// The finalizer.
        finalizer: String,
        /// The objects that carry it.
        objects: Vec<ObjectRef>,
        /// The controller.
        controller: String,
        /// The parts.
        parts: Vec<ObjectRef>,
    },
    /// The backend of a webhook that must answer, or of an aggregated API, is deleted before what needs it.
    BackendFirst {
        /// The configuration, APIService or CRD that names the backend.
        front: ObjectRef,
        /// The Service or workload.
        backend: ObjectRef,
        /// The objects whose deletion needs it.
        objects: Vec<ObjectRef>,
        /// Whether the configuration, APIService or CRD itself is not deleted.
        remains: bool,
    },
    /// Data on volumes.
    VolumeData {
        /// The claims, and volumes without one.
        objects: Vec<ObjectRef>,
        /// Whether it is deleted with them; else the volumes are kept.
        lost: bool,
    },
    /// Resources outside of the cluster.
    External {
        /// The system that creates them.
        system: String,
        /// The finalizer by which it notices the deletion.
        finalizer: String,
        /// The objects that stand for them.
        objects: Vec<ObjectRef>,
        /// Whether they are left behind; else they are deleted.
        left: bool,
    },
}

impl Foreseen {
    /// Returns the objects that it is about.
    pub fn objects(&self) -> &[ObjectRef] {
        match self {
            Self::NotWorking { objects, .. }
            | Self::ControllerFirst { objects, .. }
            | Self::BackendFirst { objects, .. }
            | Self::VolumeData { objects, .. }
            | Self::External { objects, .. } => objects,
        }
    }
}
