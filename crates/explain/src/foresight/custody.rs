//! Who removes the finalizers of objects.

use super::{
    Foresight,
    fate::{Group, groups},
};
use crate::{
    ObjectRef, ResponsibleState,
    case::{Case, Priority},
    controller::in_charge,
    known::known,
};

/// Who removes a finalizer of some objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Custodian {
    /// The finalizer.
    pub finalizer: String,
    /// The objects: of one kind.
    pub objects: Vec<ObjectRef>,
    /// The controller; none if it is not known.
    pub name: Option<String>,
    /// Whether it works.
    pub state: ResponsibleState,
    /// What is missing of it; empty if it works.
    pub problem: String,
    /// The workload that it is, if it is one.
    pub workload: Option<ObjectRef>,
    /// The namespace and name of its ServiceAccount, if it is known.
    pub account: Option<(String, String)>,
    /// Whether it is a part of the control plane.
    pub of_control_plane: bool,
}

impl Foresight<'_> {
    /// Returns who removes the finalizers, with the answers so far: for each finalizer of each kind, and for each namespace if there
    /// are few.
    pub fn custodians(&self) -> Vec<Custodian> {
        let case = self.case();
        groups(&self.objects).iter().take(self.groups).map(|group| custodian(&case, group)).collect()
    }
}

fn custodian(case: &Case<'_>, group: &Group<'_>) -> Custodian {
    let unknown = Custodian {
        finalizer: group.finalizer.to_owned(),
        objects: group.references(),
        name: None,
        state: ResponsibleState::Unknown,
        problem: String::new(),
        workload: None,
        account: None,
        of_control_plane: false,
    };
    let Some(sample) = group.objects.first() else { return unknown };
    let is_component = known(group.finalizer).is_some_and(|known| !known.component.is_empty());
    let metadata = sample.value();
    let live = if is_component { None } else { case.get(&sample.object, Priority::Subject).value() };
    let Some(controller) = in_charge(case, &sample.object, live.unwrap_or(&metadata), group.finalizer) else {
        return unknown;
    };
    Custodian {
        name: Some(controller.name),
        state: controller.state,
        problem: controller.problem,
        workload: controller.workload,
        account: controller.account,
        of_control_plane: controller.of_control_plane,
        ..unknown
    }
}
