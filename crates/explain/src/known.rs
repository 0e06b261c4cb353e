//! Which controller removes which finalizer: the reviewed facts in `finalizers.yaml`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use billhook_objects::yaml;
use serde::Deserialize;

use crate::Risk;

/// What is known of some finalizers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Known {
    /// The finalizers; a `*` at an end stands for any text.
    pub finalizers: Vec<String>,
    /// The system that sets them.
    pub system: String,
    /// The part of the control plane that removes them; empty if it is a workload.
    #[serde(default)]
    pub component: String,
    /// The usual names of the workload that removes them.
    #[serde(default)]
    pub workloads: Vec<String>,
    /// Labels of that workload, whatever its name.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The usual namespaces of that workload.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// The API groups of the system's CRDs.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Whether that workload often runs outside of the cluster, so that its absence proves nothing.
    #[serde(default)]
    pub outside: bool,
    /// What is lost when the finalizer is removed by hand.
    pub lost: String,
    /// How bad that is.
    pub risk: Risk,
    /// Where this can be verified.
    pub source: String,
}

static ALL: LazyLock<Vec<Known>> = LazyLock::new(|| read().unwrap_or_default());

/// Reads the file. A test checks that this succeeds.
fn read() -> Result<Vec<Known>, String> {
    let documents = yaml::parse(include_str!("../finalizers.yaml")).map_err(|error| error.to_string())?;
    let one = documents.into_iter().next().ok_or("no document")?;
    serde_json::from_value(one.value).map_err(|error| error.to_string())
}

/// The entries of exact names.
static EXACT: LazyLock<HashMap<&str, &Known>> =
    LazyLock::new(|| ALL.iter().flat_map(|one| one.finalizers.iter().map(move |name| (name.as_str(), one))).collect());

/// Returns what is known of a finalizer. An exact name comes before a pattern.
pub fn known(finalizer: &str) -> Option<&'static Known> {
    let pattern = |known: &&Known| known.finalizers.iter().any(|pattern| covers(pattern, finalizer));
    EXACT.get(finalizer).copied().or_else(|| ALL.iter().find(pattern))
}

fn covers(pattern: &str, finalizer: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => finalizer.ends_with(end),
        (None, Some(start)) => finalizer.starts_with(start),
        (None, None) => pattern == finalizer,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_entry_can_be_verified_and_says_who_acts() {
        let all = read().unwrap();
        let mut seen = BTreeSet::new();
        for known in &all {
            let name = &known.finalizers[0];
            assert!(known.source.starts_with("https://"), "{name}: {}", known.source);
            assert!(!known.lost.is_empty() && !known.system.is_empty(), "{name}");
            let workload = !known.workloads.is_empty() || !known.labels.is_empty();
            assert!(workload == known.component.is_empty(), "{name}: a component or a workload");
            for finalizer in &known.finalizers {
                assert!(seen.insert(finalizer), "{finalizer} twice");
                assert!(finalizer.matches('*').count() <= 1, "{finalizer}");
            }
        }
    }

    #[test]
    fn the_systems_that_people_use_are_covered() {
        let systems: BTreeSet<_> = read().unwrap().into_iter().map(|known| known.system).collect();
        for system in [
            "Kubernetes",
            "CSI",
            "AWS Load Balancer Controller",
            "Argo CD",
            "Flux",
            "cert-manager",
            "Istio",
            "Gatekeeper",
            "ECK",
            "Crossplane",
            "Cluster API",
            "Knative",
            "Rook",
            "Longhorn",
            "Strimzi",
            "Velero",
            "KEDA",
            "Karpenter",
            "Operator Lifecycle Manager",
            "Rancher",
            "External Secrets",
            "KubeVirt",
            "Gardener",
            "Landscaper",
            "OpenShift",
        ] {
            assert!(systems.contains(system), "{system} is missing in {systems:?}");
        }
    }

    #[test]
    fn exact_names_come_before_patterns() {
        let check = |finalizer: &str, system: Option<&str>| {
            assert_eq!(known(finalizer).map(|known| known.system.as_str()), system, "{finalizer}");
        };
        check("kubernetes.io/pvc-protection", Some("Kubernetes"));
        check("resources-finalizer.argocd.argoproj.io/background", Some("Argo CD"));
        check("external-attacher/csi-example-com", Some("CSI"));
        check("shop.example/last-backup", None);
    }
}
