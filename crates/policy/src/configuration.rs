//! The content of a ProviderConfiguration with its defaults (`apis/deployer` in gardener/landscaper).

use std::collections::{BTreeMap, BTreeSet};

use billhook_objects::{ApiVersion, JsonPath};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Diagnostics, GoDuration, Policy, UpdateStrategy};

/// The content of a ProviderConfiguration or a DeployItem.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyDocument {
    /// The name of the DeployItem; `None` for a bare ProviderConfiguration.
    pub name: Option<String>,
    /// The namespace of the DeployItem, if set.
    pub namespace: Option<String>,
    /// The time limit of the DeployItem, if set.
    pub timeout: Option<ItemTimeout>,
    /// The configuration, with its policy and manifests.
    pub configuration: ProviderConfiguration,
    /// Fields that are valid, but may not have the effect that the author expects.
    pub warnings: Diagnostics,
}

/// The time limit of a DeployItem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemTimeout {
    /// This duration.
    After(GoDuration),
    /// `none`: no limit.
    Unlimited,
}

/// The configuration of a DeployItem of the manifest deployer or the helm deployer.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderConfiguration {
    /// The deployer that it is for.
    pub provider: Provider,
    /// The version of its `apiVersion`: `v1alpha1` or `v1alpha2`.
    pub version: String,
    /// The policy, with defaults for what is missing.
    pub policy: Policy,
    /// Whether the document contains any field of a policy; if not, `policy` is the default.
    pub has_policy: bool,
    /// How existing objects are updated; [`UpdateStrategy::Update`] by default.
    pub update_strategy: UpdateStrategy,
    /// The manifests, in the order of the document; empty for the helm deployer.
    pub manifests: Vec<ManifestEntry>,
    /// The conditions under which the objects are ready.
    pub readiness: ReadinessChecks,
    /// The values to read from the cluster after the deployment; keys are unique.
    pub exports: Vec<Export>,
    /// When everything is deployed again although nothing has changed.
    pub continuous_reconcile: Option<Schedule>,
    /// The chart; only for the helm deployer.
    pub helm: Option<HelmConfiguration>,
}

impl ProviderConfiguration {
    /// Returns the Targets that a deployment needs in addition to that of the DeployItem: those of the groups that prune,
    /// of readiness checks and of exports.
    pub fn targets_of_deployment(&self) -> BTreeSet<&str> {
        let groups = self.policy.during_update.iter().map(|group| &group.target);
        let checks = self.readiness.custom.iter().map(|check| &check.target_name);
        let deprecated = self.helm.iter().flat_map(|helm| &helm.exports_from_manifests);
        let exports = self.exports.iter().chain(deprecated).map(|export| &export.target_name);
        groups.chain(checks).chain(exports).flatten().map(String::as_str).collect()
    }

    /// Returns the Targets that a deletion needs in addition to that of the DeployItem.
    pub fn targets_of_deletion(&self) -> BTreeSet<&str> {
        self.policy.deletion.iter().filter_map(|group| group.target.as_deref()).collect()
    }
}

/// The deployer that a ProviderConfiguration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provider {
    /// The manifest deployer.
    Manifest,
    /// The helm deployer.
    Helm,
}

impl Provider {
    /// Returns the `spec.type` of a DeployItem with such a configuration.
    pub fn item_type(self) -> &'static str {
        match self {
            Self::Manifest => "landscaper.gardener.cloud/kubernetes-manifest",
            Self::Helm => "landscaper.gardener.cloud/helm",
        }
    }
}

/// One of the manifests of a ProviderConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestEntry {
    /// Which operations may change the object.
    pub policy: ManifestPolicy,
    /// The object, or a `List` of objects.
    pub manifest: Value,
    /// The line of the manifest, counted from 1; 0 if the configuration does not come from a file.
    pub line: usize,
    /// Annotations that are added when the object is created, but not when it is updated.
    pub annotate_before_create: BTreeMap<String, String>,
    /// Annotations that are added before the object is deleted.
    pub annotate_before_delete: BTreeMap<String, String>,
    /// A mapping that is merged into the object after all manifests are deployed.
    pub patch_after_deployment: Option<Value>,
    /// A mapping that is merged into the object before it is deleted.
    pub patch_before_delete: Option<Value>,
}

/// Which operations may change the object of a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ManifestPolicy {
    /// The object is created, updated and deleted.
    #[default]
    Manage,
    /// Like `Manage`, unless the object belongs to another owner.
    Fallback,
    /// The object is not touched.
    Ignore,
    /// The object is created and updated, but never deleted.
    Keep,
    /// The object is created and deleted, but never updated.
    Immutable,
}

/// The conditions under which the objects of a DeployItem are ready.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadinessChecks {
    /// Whether the default check, which waits for workloads, is disabled.
    pub disable_default: bool,
    /// Additional checks.
    pub custom: Vec<ReadinessCheck>,
}

/// A custom readiness check: all of its objects must meet all requirements.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadinessCheck {
    /// The name of the check in messages.
    pub name: String,
    /// Whether the check is disabled.
    pub disabled: bool,
    /// Objects by name; if this is empty, `labels` is set.
    pub resources: Vec<TypedReference>,
    /// Objects by labels.
    pub labels: Option<LabelledKind>,
    /// The requirements; at least one.
    pub requirements: Vec<Requirement>,
    /// The Target of the cluster with the objects; `None` for that of the DeployItem.
    pub target_name: Option<String>,
}

/// An object by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedReference {
    /// Group and version.
    pub api_version: ApiVersion,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The namespace; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
}

/// The objects of one kind with certain labels, in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledKind {
    /// Group and version.
    pub api_version: ApiVersion,
    /// The kind.
    pub kind: String,
    /// The labels; at least one.
    pub labels: BTreeMap<String, String>,
}

/// A requirement on a field of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    /// The path to the field or fields.
    pub json_path: JsonPath,
    /// How the field is compared.
    pub operator: Operator,
    /// The values to compare with: exactly one for `Equals` and `NotEquals`, none for `Exists` and `DoesNotExist`, and at
    /// least one otherwise.
    pub values: Vec<Value>,
}

/// The operators of a [`Requirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `exists`: the field exists.
    Exists,
    /// `!`: the field is missing.
    DoesNotExist,
    /// `=` or `==`: the field has this value.
    Equals,
    /// `!=`: the field has another value.
    NotEquals,
    /// `in`: the field has one of these values.
    In,
    /// `notin`: the field has none of these values.
    NotIn,
}

/// A value to read from the cluster, or from the values of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Export {
    /// The key under which the value is exported; dots nest it.
    pub key: String,
    /// The path to the value.
    pub json_path: JsonPath,
    /// The object with the value; `None`, which only the helm deployer allows, for the values of the chart.
    pub from_resource: Option<TypedReference>,
    /// Set if `json_path` leads to a reference (`name` and an optional `namespace`) to the object that has the value. Never
    /// set without `from_resource`.
    pub from_object_ref: Option<FromObjectReference>,
    /// The Target of the cluster with the objects; `None` for that of the DeployItem.
    pub target_name: Option<String>,
}

/// The object that an exported reference refers to.
#[derive(Clone, Debug, PartialEq)]
pub struct FromObjectReference {
    /// Group and version; `v1` if the document names none.
    pub api_version: ApiVersion,
    /// The kind.
    pub kind: String,
    /// The path to the value.
    pub json_path: JsonPath,
}

/// When a DeployItem is deployed again although nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// A crontab line of five fields, or a descriptor such as `@daily`, as written.
    Cron(String),
    /// This duration, which is above zero, after the last time.
    Every(GoDuration),
}

/// The chart of a DeployItem of the helm deployer.
#[derive(Clone, Debug, PartialEq)]
pub struct HelmConfiguration {
    /// The source of the chart.
    pub chart: ChartSource,
    /// The name of the release, which helm accepts.
    pub name: String,
    /// The namespace of the release; a DNS label.
    pub namespace: String,
    /// Whether the namespace is created if it does not exist.
    pub create_namespace: bool,
    /// The values; a mapping.
    pub values: Value,
    /// Exports in the deprecated field; they are not repeated in [`ProviderConfiguration::exports`].
    pub exports_from_manifests: Vec<Export>,
    /// Whether helm installs the chart; if not, it only renders the chart.
    pub helm_deployment: bool,
    /// The options with which helm installs, upgrades and uninstalls the chart.
    pub deployment: HelmDeployment,
}

/// The source of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChartSource {
    /// A reference into an OCI registry, such as `example.org/charts/nginx:1.2.3`, with or without `oci://`.
    Oci(String),
    /// The packed chart itself, a gzipped tar file.
    Archive(Vec<u8>),
    /// The URL of a packed chart.
    RemoteArchive(String),
    /// A chart of a classic chart repository.
    Repository {
        /// The URL of the repository.
        url: String,
        /// The name of the chart.
        name: String,
        /// The version; `None` for the newest.
        version: Option<String>,
    },
}

/// The options with which helm installs, upgrades and uninstalls a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelmDeployment {
    /// The options of `helm install`.
    pub install: HelmOptions,
    /// The options of `helm upgrade`.
    pub upgrade: HelmOptions,
    /// The options of `helm uninstall`: only `wait`, by default true, and `timeout` can differ from the default.
    pub uninstall: HelmOptions,
}

impl Default for HelmDeployment {
    /// Landscaper's defaults, except that a deletion waits until the objects are gone.
    fn default() -> Self {
        let uninstall = HelmOptions { wait: true, ..HelmOptions::default() };
        Self { install: HelmOptions::default(), upgrade: HelmOptions::default(), uninstall }
    }
}

/// The options of a helm command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelmOptions {
    /// `--atomic`: roll back after a failure.
    pub atomic: bool,
    /// `--force`: replace objects that cannot be updated.
    pub force: bool,
    /// `--skip-schema-validation`: do not check the values against the chart's schema.
    pub skip_schema_validation: bool,
    /// `--take-ownership`: adopt existing objects of other owners.
    pub take_ownership: bool,
    /// `--wait`: wait until the objects are ready or deleted.
    pub wait: bool,
    /// `--timeout`; `None` for the rest of the item's time.
    pub timeout: Option<GoDuration>,
}
