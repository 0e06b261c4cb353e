//! Which controller removes which finalizer: the reviewed facts in `finalizers.yaml`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use billhook_objects::yaml;
use serde::Deserialize;
use serde_json::Value;

use crate::{ObjectRef, Risk, object};

/// What is known of some finalizers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Known {
    /// The finalizers; a `*` at an end stands for any text.
    pub finalizers: Vec<String>,
    /// The kinds of the objects; empty for all.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Their `spec.type`; empty for all.
    #[serde(default)]
    pub types: Vec<String>,
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
    /// How it is known which of several such workloads is in charge of an object; none if a cluster has one.
    #[serde(default)]
    pub instance: Option<Instance>,
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

/// What tells the workloads of a system apart: each is in charge of its own objects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Instance {
    /// Objects and workload have the same value of this label.
    Label(String),
    /// The name of the workload has the object's `spec.type` in it.
    Type,
    /// The CSI driver.
    Driver,
}

impl Instance {
    /// Returns the name of the instance that is in charge of an object; that of a driver in the form that Leases and finalizers have.
    pub(crate) fn of(&self, value: &Value, finalizer: &str) -> Option<String> {
        let name = match self {
            Self::Label(key) => object::label(value, key)?,
            Self::Type => object::text(value, "/spec/type")?,
            Self::Driver => {
                let annotations =
                    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
                let in_spec = ["/spec/driver", "/spec/csi/driver"].iter().find_map(|path| object::text(value, path));
                let named = finalizer.strip_prefix("external-attacher/").or(in_spec);
                let named = named.or_else(|| annotations.iter().find_map(|key| object::annotation(value, key)));
                return named.map(plain);
            }
        };
        Some(name.to_owned())
    }
}

/// Returns the name of a driver with dashes in place of other characters, as external-attacher writes it.
pub(crate) fn plain(driver: &str) -> String {
    driver.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

static ALL: LazyLock<Vec<Known>> = LazyLock::new(|| read().unwrap_or_default());

/// Reads the file. A test checks that this succeeds.
fn read() -> Result<Vec<Known>, String> {
    let documents = yaml::parse(include_str!("../finalizers.yaml")).map_err(|error| error.to_string())?;
    let one = documents.into_iter().next().ok_or("no document")?;
    serde_json::from_value(one.value).map_err(|error| error.to_string())
}

/// The entries of exact names.
static EXACT: LazyLock<HashMap<&str, Vec<&Known>>> = LazyLock::new(|| {
    let mut exact: HashMap<_, Vec<_>> = HashMap::new();
    for (name, known) in ALL.iter().flat_map(|one| one.finalizers.iter().map(move |name| (name.as_str(), one))) {
        exact.entry(name).or_default().push(known);
    }
    exact
});

/// Returns what is known of a finalizer, whatever has it. An exact name comes before a pattern.
pub fn known(finalizer: &str) -> Option<&'static Known> {
    find(finalizer, |_| true)
}

/// Returns what is known of a finalizer of an object. What is known of its kind and type comes first.
pub(crate) fn known_of(finalizer: &str, reference: &ObjectRef, value: &Value) -> Option<&'static Known> {
    let is_among =
        |all: &[String], one: Option<&str>| all.is_empty() || all.iter().any(|known| Some(known.as_str()) == one);
    find(finalizer, |known| {
        is_among(&known.kinds, Some(&reference.kind)) && is_among(&known.types, object::text(value, "/spec/type"))
    })
}

fn find(finalizer: &str, applies: impl Fn(&Known) -> bool) -> Option<&'static Known> {
    let specific = |known: &&Known| usize::from(known.kinds.is_empty()) + usize::from(known.types.is_empty());
    let exact = EXACT.get(finalizer).into_iter().flatten().copied();
    let pattern = |known: &&Known| known.finalizers.iter().any(|pattern| covers(pattern, finalizer)) && applies(known);
    let found = exact.filter(|known| applies(known)).min_by_key(specific);
    found.or_else(|| ALL.iter().filter(pattern).min_by_key(specific))
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

    use serde_json::json;

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
            let is_anyone = known.outside && !workload;
            assert!(is_anyone || workload == known.component.is_empty(), "{name}: a component or a workload");
            for finalizer in &known.finalizers {
                assert!(seen.insert((finalizer, &known.kinds, &known.types)), "{finalizer} twice");
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

    #[test]
    fn the_kind_and_type_of_an_object_come_first() {
        let check = |kind: &str, value: Value, workload: Option<&str>| {
            let reference = ObjectRef::new(billhook_objects::ApiVersion::new("x.example", "v1"), kind, None, "a");
            let found = known_of("finalizer.landscaper.gardener.cloud", &reference, &value).unwrap();
            assert_eq!(found.workloads.first().map(String::as_str), workload, "{kind} {value}");
        };
        let of_type = |kind: &str| json!({"spec": {"type": format!("landscaper.gardener.cloud/{kind}")}});
        check("Installation", json!({}), Some("landscaper"));
        check("DeployItem", of_type("helm"), Some("helm-deployer"));
        check("DeployItem", of_type("kubernetes-manifest"), Some("manifest-deployer"));
        check("DeployItem", of_type("other"), None);
        check("DeployItem", Value::Null, None);
    }

    #[test]
    fn drivers_are_named_as_in_finalizers_and_leases() {
        let check = |value: Value, finalizer: &str, expected: Option<&str>| {
            assert_eq!(Instance::Driver.of(&value, finalizer).as_deref(), expected, "{value} {finalizer}");
        };
        check(json!({}), "external-attacher/ebs-csi-aws-com", Some("ebs-csi-aws-com"));
        check(json!({"spec": {"driver": "ebs.csi.aws.com"}}), "x", Some("ebs-csi-aws-com"));
        check(
            json!({"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "a.b"}}}),
            "x",
            Some("a-b"),
        );
        check(json!({}), "x", None);
    }
}
