//! The policy that deletes the control-plane namespace of a shoot on its seed by force, as Gardener's force deletion does
//! (gardener/gardener `pkg/gardenlet/controller/shoot/shoot/reconciler_force_delete.go`).

use std::time::Duration;

use billhook_objects::ApiVersion;
use serde_json::{Value, json};

use crate::{DeletionGroup, Force, GoDuration, LabelSelector, Members, Policy, ResourceSelector};

const EXTENSIONS: &str = "extensions.gardener.cloud/v1alpha1";
const MACHINES: &str = "machine.sapcloud.io/v1alpha1";
const RESOURCES: &str = "resources.gardener.cloud/v1alpha1";

/// How long a step may take that waits for controllers.
const WAIT: GoDuration = seconds(300);
/// How long a step may take that waits for nobody: until its last retry, and as long again.
const AT_ONCE: GoDuration = seconds(60);

/// The extension objects of a control plane, except DNSRecords.
const KINDS: [&str; 9] = [
    "Bastion",
    "ContainerRuntime",
    "ControlPlane",
    "Extension",
    "Infrastructure",
    "Network",
    "OperatingSystemConfig",
    "SelfHostedShootExposure",
    "Worker",
];

/// Returns the steps as groups. `of_shoot` are the names of the ManagedResources of the shoot's class, those without
/// `spec.class`: only their finalizers are removed, because nothing else removes them once the shoot is gone.
pub fn control_plane(namespace: &str, of_shoot: &[String]) -> Policy {
    let mut groups = Groups(Vec::new());
    let own = |api_version: &'static str, kind: &str| selector(api_version, kind, Some(namespace), &[]);
    let extensions = KINDS.map(|kind| own(EXTENSIONS, kind)).to_vec();
    let extensions = groups.add(&[], waiting("extension objects", extensions), Some(&confirmation()));
    let dns = groups.add(&[], waiting("DNS records", vec![own(EXTENSIONS, "DNSRecord")]), Some(&confirmation()));
    // While it runs, it adds its finalizers to machines again.
    let manager = selector("apps/v1", "Deployment", Some(namespace), &["machine-controller-manager".to_owned()]);
    let manager = groups.add(&[], waiting("machine-controller-manager", vec![manager]), None);
    let machines = ["MachineDeployment", "MachineSet", "Machine", "MachineClass"].map(|kind| own(MACHINES, kind));
    let machines = groups.add(&[manager], forced("machine resources", machines.to_vec()), None);
    let delete_contents = json!({"spec": {"keepObjects": false}});
    let mut managed = Vec::new();
    if !of_shoot.is_empty() {
        let named = selector(RESOURCES, "ManagedResource", Some(namespace), of_shoot);
        let group = forced("managed resources of the shoot", vec![named]);
        managed.push(groups.add(&[extensions], DeletionGroup { timeout: Some(WAIT), ..group }, Some(&delete_contents)));
    }
    let mut others = waiting("managed resources of the seed", vec![own(RESOURCES, "ManagedResource")]);
    others.excluded.extend(
        (!of_shoot.is_empty()).then(|| ResourceSelector {
            all: false,
            ..selector(RESOURCES, "ManagedResource", Some(namespace), of_shoot)
        }),
    );
    managed.push(groups.add(&[extensions], others, Some(&delete_contents)));
    let cluster = selector(EXTENSIONS, "Cluster", None, &[namespace.to_owned()]);
    let cluster = groups.add(&[&[dns], &managed[..]].concat(), waiting("Cluster object", vec![cluster]), None);
    let etcds = waiting("etcds", vec![own("druid.gardener.cloud/v1alpha1", "Etcd")]);
    let etcds = groups.add(&[cluster, machines], etcds, Some(&confirmation()));
    let contents = ["ConfigMap", "Secret"].map(|kind| own("v1", kind)).to_vec();
    let contents = groups.add(&[etcds], forced("ConfigMaps and Secrets", contents), None);
    let namespace = selector("v1", "Namespace", None, &[namespace.to_owned()]);
    groups.add(&[contents], waiting("namespace", vec![namespace]), None);
    Policy { deletion: groups.0, during_update: Vec::new(), deployment: Vec::new() }
}

/// The groups so far.
struct Groups(Vec<DeletionGroup>);

impl Groups {
    /// Adds a group that starts when others are gone, and returns its index.
    fn add(&mut self, after: &[usize], group: DeletionGroup, before_delete: Option<&Value>) -> usize {
        let group = DeletionGroup { after: Some(after.to_vec()), before_delete: before_delete.cloned(), ..group };
        self.0.push(group);
        self.0.len() - 1
    }
}

/// Returns a group whose objects are released by their controllers. A rejected request is repeated every 5 s for 30 s.
fn waiting(title: &str, selectors: Vec<ResourceSelector>) -> DeletionGroup {
    DeletionGroup {
        timeout: Some(WAIT),
        retries: vec![seconds(5); 6],
        ..DeletionGroup::new(title, Members::Resources(selectors))
    }
}

/// Returns a group whose finalizers are removed at once.
fn forced(title: &str, selectors: Vec<ResourceSelector>) -> DeletionGroup {
    DeletionGroup { force: Some(Force::default()), timeout: Some(AT_ONCE), ..waiting(title, selectors) }
}

/// Returns the patch that confirms the deletion of an object that Gardener protects.
fn confirmation() -> Value {
    json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}})
}

fn selector(api_version: &str, kind: &str, namespace: Option<&str>, names: &[String]) -> ResourceSelector {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ResourceSelector {
        api_version: ApiVersion::new(group, version),
        kind: kind.to_owned(),
        names: names.to_vec(),
        namespaces: namespace.map(str::to_owned).into_iter().collect(),
        label_selector: LabelSelector::default(),
        all: true,
    }
}

const fn seconds(seconds: u64) -> GoDuration {
    GoDuration(Duration::from_secs(seconds))
}
