//! The choice of the controllers that run.

use std::{collections::BTreeSet, fmt, str::FromStr};

/// The controllers that can be left out, by their names in Kubernetes' controller manager.
pub(super) const GARBAGE: &str = "garbage-collector-controller";
pub(super) const NAMESPACES: &str = "namespace-controller";
pub(super) const ACCOUNTS: &str = "serviceaccount-controller";
pub(super) const CLAIMS: &str = "persistentvolumeclaim-protection-controller";
pub(super) const VOLUMES: &str = "persistentvolume-protection-controller";
pub(super) const DEPLOYMENTS: &str = "deployment-controller";
pub(super) const REPLICA_SETS: &str = "replicaset-controller";
pub(super) const JOBS: &str = "job-controller";
pub(super) const DISRUPTION: &str = "disruption-controller";

const ALL: [&str; 9] = [DEPLOYMENTS, DISRUPTION, GARBAGE, JOBS, NAMESPACES, VOLUMES, CLAIMS, REPLICA_SETS, ACCOUNTS];

/// A choice of controllers: `all`, `none`, or names separated by commas, like `namespace-controller,job-controller`.
///
/// What a bare API server does itself always runs: CustomResourceDefinitions are established and cleaned up, and the
/// availability of APIServices is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSet(BTreeSet<&'static str>);

impl Default for ControllerSet {
    fn default() -> Self {
        Self::all()
    }
}

impl ControllerSet {
    /// Returns all controllers.
    #[must_use]
    pub fn all() -> Self {
        Self(ALL.into())
    }

    /// Returns no controller: the cluster is a bare API server.
    #[must_use]
    pub fn none() -> Self {
        Self(BTreeSet::new())
    }

    /// Returns the names that a choice can contain.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.into_iter()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

impl FromStr for ControllerSet {
    type Err = UnknownController;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::all()),
            "none" => Ok(Self::none()),
            names => {
                let known = |name: &str| ALL.into_iter().find(|known| *known == name.trim());
                let found = names.split(',').map(|name| known(name).ok_or_else(|| UnknownController(name.to_owned())));
                found.collect::<Result<_, _>>().map(Self)
            }
        }
    }
}

/// The error for a name that is not that of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownController(String);

impl fmt::Display for UnknownController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no controller {:?}; use all, none, or some of {}", self.0, ALL.join(","))
    }
}

impl std::error::Error for UnknownController {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_parsed() {
        assert_eq!("all".parse(), Ok(ControllerSet::all()));
        assert_eq!("none".parse(), Ok(ControllerSet::none()));
        let two: ControllerSet = "job-controller, namespace-controller".parse().expect("a choice");
        assert!(two.contains(JOBS) && two.contains(NAMESPACES) && !two.contains(GARBAGE));
        for wrong in ["", "jobs", "job-controller,", "all,none"] {
            let error = wrong.parse::<ControllerSet>().expect_err(wrong).to_string();
            assert!(error.contains("use all, none, or some of deployment-controller,"), "{error}");
        }
    }
}
