//! What a ProviderConfiguration says, after its defaults (`apis/deployer` in gardener/landscaper).

use std::collections::{BTreeMap, BTreeSet};

use billhook_objects::{ApiVersion, JsonPath};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{GoDuration, Policy, UpdateStrategy};

/// The configuration of a DeployItem of the manifest deployer or the helm deployer.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderConfiguration {
    /// Which deployer it is written for.
    pub provider: Provider,
    /// The version of its `apiVersion`: `v1alpha1` or `v1alpha2`.
    pub version: String,
    /// The policy, completed by the defaults.
    pub policy: Policy,
    /// Whether the document says anything about the policy; if not, `policy` is the default.
    pub has_policy: bool,
    /// How objects that exist are updated; [`UpdateStrategy::Update`] by default.
    pub update_strategy: UpdateStrategy,
    /// The manifests, in the order of the document; none for the helm deployer.
    pub manifests: Vec<ManifestEntry>,
    /// When the objects are ready.
    pub readiness: ReadinessChecks,
    /// The values that are read from the cluster after the deployment; each key is there once.
    pub exports: Vec<Export>,
    /// When all is deployed again although nothing has changed.
    pub continuous_reconcile: Option<Schedule>,
    /// The chart; there for the helm deployer alone.
    pub helm: Option<HelmConfiguration>,
}

impl ProviderConfiguration {
    /// The Targets that a deployment needs beside that of the DeployItem: those of the groups that prune, of readiness checks
    /// and of exports.
    pub fn targets_of_deployment(&self) -> BTreeSet<&str> {
        let groups = self.policy.during_update.iter().map(|group| &group.target);
        let checks = self.readiness.custom.iter().map(|check| &check.target_name);
        let deprecated = self.helm.iter().flat_map(|helm| &helm.exports_from_manifests);
        let exports = self.exports.iter().chain(deprecated).map(|export| &export.target_name);
        groups.chain(checks).chain(exports).flatten().map(String::as_str).collect()
    }

    /// The Targets that a deletion needs beside that of the DeployItem.
    pub fn targets_of_deletion(&self) -> BTreeSet<&str> {
        self.policy.deletion.iter().filter_map(|group| group.target.as_deref()).collect()
    }
}

/// The deployer that a ProviderConfiguration is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provider {
    /// The manifest deployer.
    Manifest,
    /// The helm deployer.
    Helm,
}

impl Provider {
    /// The `spec.type` of a DeployItem with such a configuration.
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
    /// What may be done with it.
    pub policy: ManifestPolicy,
    /// The object, or a `List` of objects.
    pub manifest: Value,
    /// The line of the manifest, counted from 1; 0 where the configuration does not come from a file.
    pub line: usize,
    /// Annotations that the object gets when it is created, and not when it is updated.
    pub annotate_before_create: BTreeMap<String, String>,
    /// Annotations that the object gets before it is deleted.
    pub annotate_before_delete: BTreeMap<String, String>,
    /// What is merged into the object after all manifests are deployed; a mapping.
    pub patch_after_deployment: Option<Value>,
    /// What is merged into the object before it is deleted; a mapping.
    pub patch_before_delete: Option<Value>,
}

/// What may be done with a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ManifestPolicy {
    /// It is created, updated and deleted.
    #[default]
    Manage,
    /// As `Manage`, except where the object belongs to somebody else.
    Fallback,
    /// Nothing is done with it.
    Ignore,
    /// It is created and updated, but never deleted.
    Keep,
    /// It is created and deleted, but never updated.
    Immutable,
}

/// When the objects of a DeployItem are ready.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadinessChecks {
    /// Whether workloads are not waited for.
    pub disable_default: bool,
    /// What must hold beside it.
    pub custom: Vec<ReadinessCheck>,
}

/// A custom readiness check: all requirements must hold for all its objects.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadinessCheck {
    /// What it is called in messages.
    pub name: String,
    /// Whether it is left out for now.
    pub disabled: bool,
    /// Objects by name; `labels` is there where this is empty.
    pub resources: Vec<TypedReference>,
    /// Objects by labels.
    pub labels: Option<LabelledKind>,
    /// What must hold; at least one.
    pub requirements: Vec<Requirement>,
    /// The Target in which the objects are; none for that of the DeployItem.
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
    /// The namespace; none for a cluster-scoped object.
    pub namespace: Option<String>,
}

/// The objects of one kind that carry some labels, in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledKind {
    /// Group and version.
    pub api_version: ApiVersion,
    /// The kind.
    pub kind: String,
    /// The labels; at least one.
    pub labels: BTreeMap<String, String>,
}

/// What must hold for a field of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    /// The field, or several.
    pub json_path: JsonPath,
    /// How it is compared.
    pub operator: Operator,
    /// With what: exactly one value for `Equals` and `NotEquals`, none for `Exists` and `DoesNotExist`, and at least one
    /// otherwise.
    pub values: Vec<Value>,
}

/// The operators of a [`Requirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `exists`: the field is there.
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

/// A value that is read from the cluster, or from the values of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Export {
    /// Under which key it is exported; dots make a tree of it.
    pub key: String,
    /// Where it stands.
    pub json_path: JsonPath,
    /// In which object; none, with the helm deployer alone, for the values of the chart.
    pub from_resource: Option<TypedReference>,
    /// There where `json_path` leads to a reference (`name` and perhaps `namespace`), and the value stands in the object
    /// it refers to. Never without `from_resource`.
    pub from_object_ref: Option<FromObjectReference>,
    /// The Target in which the objects are; none for that of the DeployItem.
    pub target_name: Option<String>,
}

/// The object that an exported reference refers to.
#[derive(Clone, Debug, PartialEq)]
pub struct FromObjectReference {
    /// Group and version; `v1` where the document names none.
    pub api_version: ApiVersion,
    /// The kind.
    pub kind: String,
    /// Where the value stands in it.
    pub json_path: JsonPath,
}

/// When a DeployItem is deployed again although nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// A crontab line of five fields, or a descriptor such as `@daily`, as written.
    Cron(String),
    /// This long after the last time; above zero.
    Every(GoDuration),
}

/// The chart of a DeployItem of the helm deployer.
#[derive(Clone, Debug, PartialEq)]
pub struct HelmConfiguration {
    /// Where the chart comes from.
    pub chart: ChartSource,
    /// The name of the release, as helm allows it.
    pub name: String,
    /// The namespace of the release; a DNS label.
    pub namespace: String,
    /// Whether the namespace is created where it is missing.
    pub create_namespace: bool,
    /// The values; a mapping.
    pub values: Value,
    /// The older place for exports. [`ProviderConfiguration::exports`] does not repeat them.
    pub exports_from_manifests: Vec<Export>,
    /// Whether helm itself installs the chart; if not, it is only rendered.
    pub helm_deployment: bool,
    /// How helm installs, upgrades and uninstalls it.
    pub deployment: HelmDeployment,
}

/// Where a chart comes from.
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
        /// The version; the newest where none is given.
        version: Option<String>,
    },
}

/// How helm installs, upgrades and uninstalls a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HelmDeployment {
    /// Of `helm install`.
    pub install: HelmOptions,
    /// Of `helm upgrade`.
    pub upgrade: HelmOptions,
    /// Of `helm uninstall`; only `wait` and `timeout` can differ from the default.
    pub uninstall: HelmOptions,
}

/// The options of one of helm's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelmOptions {
    /// `--atomic`: what fails is rolled back.
    pub atomic: bool,
    /// `--force`: objects are replaced where they cannot be updated.
    pub force: bool,
    /// `--skip-schema-validation`: the values are not checked against the chart's schema.
    pub skip_schema_validation: bool,
    /// `--take-ownership`: objects of others are taken over.
    pub take_ownership: bool,
    /// `--wait`: the command ends when the objects are ready or gone; true by default.
    pub wait: bool,
    /// `--timeout`; helm's own default where none is given.
    pub timeout: Option<GoDuration>,
}

impl Default for HelmOptions {
    fn default() -> Self {
        Self {
            atomic: false,
            force: false,
            skip_schema_validation: false,
            take_ownership: false,
            wait: true,
            timeout: None,
        }
    }
}
