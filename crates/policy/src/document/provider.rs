//! ProviderConfigurations of the manifest deployer and the helm deployer.

use super::{ManifestEntry, ManifestPolicy, PolicyDocument, Provider};
use crate::{
    Diagnostics, Policy,
    dialect::{self, POLICY_FIELDS},
    reader::{Cursor, Fields},
};

/// The versions that are known, and the type of the DeployItems that hold them.
const VERSIONS: [(&str, Provider); 3] = [
    ("manifest.deployer.landscaper.gardener.cloud/v1alpha1", Provider::Manifest),
    ("manifest.deployer.landscaper.gardener.cloud/v1alpha2", Provider::Manifest),
    ("helm.deployer.landscaper.gardener.cloud/v1alpha1", Provider::Helm),
];

/// Fields of both deployers on which this version does not act.
const LATER: [&str; 6] =
    ["kubeconfig", "updateStrategy", "readinessChecks", "readiness", "exports", "continuousReconcile"];

/// Fields of the helm deployer on which this version does not act.
const LATER_HELM: [&str; 7] =
    ["chart", "name", "namespace", "createNamespace", "values", "exportsFromManifests", "helmDeploymentConfig"];

/// Fields of a manifest on which this version does not act.
const LATER_MANIFEST: [&str; 4] =
    ["annotateBeforeCreate", "annotateBeforeDelete", "patchAfterDeployment", "patchBeforeDelete"];

impl Provider {
    /// The `spec.type` of a DeployItem with such a configuration.
    pub(super) fn item_type(self) -> &'static str {
        match self {
            Self::Manifest => "landscaper.gardener.cloud/kubernetes-manifest",
            Self::Helm => "landscaper.gardener.cloud/helm",
        }
    }
}

/// Reads a ProviderConfiguration, wherever it stands.
pub(super) fn read(cursor: &Cursor<'_>) -> Option<PolicyDocument> {
    let mut fields = cursor.fields()?;
    let provider = fields.required("apiVersion").and_then(|cursor| cursor.one_of(&VERSIONS));
    fields.required("kind").and_then(|kind| kind.one_of(&[("ProviderConfiguration", ())]));
    fields.ignore("metadata");
    let has_policy = POLICY_FIELDS.iter().any(|name| fields.has(name));
    let policy = dialect::policy(&mut fields);
    warn_later(&mut fields, &LATER);
    let chart = provider == Some(Provider::Helm) && fields.has("chart");
    // Of an unknown deployer, the fields of all are known: its apiVersion is the one mistake.
    if provider != Some(Provider::Manifest) {
        helm_fields(&mut fields, has_policy);
    }
    let mut manifests = Vec::new();
    if provider != Some(Provider::Helm) {
        let items = fields.get("manifests").and_then(|list| list.items()).unwrap_or_default();
        manifests.extend(items.iter().filter_map(manifest));
    }
    match provider {
        Some(Provider::Manifest) => {
            fields.elsewhere(&LATER_HELM, "only the helm deployer has it");
            fields.elsewhere(&["helmDeployment"], "only the helm deployer has it");
        }
        Some(Provider::Helm) => fields.elsewhere(&["manifests"], "only the manifest deployer has it"),
        None => {}
    }
    fields.finish();
    Some(document(provider?, policy, has_policy, manifests, chart))
}

fn document(
    provider: Provider,
    policy: Policy,
    has_policy: bool,
    manifests: Vec<ManifestEntry>,
    chart: bool,
) -> PolicyDocument {
    PolicyDocument {
        provider,
        name: None,
        namespace: None,
        policy,
        has_policy,
        manifests,
        timeout: None,
        chart,
        warnings: Diagnostics::default(),
    }
}

/// Accepts fields that are known, and says that they have no effect yet.
pub(super) fn warn_later(fields: &mut Fields<'_>, names: &[&'static str]) {
    for name in names {
        if let Some(cursor) = fields.get(name) {
            cursor.warn(format!("{name} has no effect in this version"), None);
        }
    }
}

fn helm_fields(fields: &mut Fields<'_>, has_policy: bool) {
    warn_later(fields, &LATER_HELM);
    let manifest_only = fields.get("helmDeployment").and_then(|cursor| cursor.boolean()) == Some(false);
    if has_policy && !manifest_only {
        fields.here().warn(
            "the policy holds only where the chart is templated, not installed by helm",
            Some("set helmDeployment: false"),
        );
    }
}

/// Reads a manifest: `{policy, manifest}`, or the bare object, as the older version has it.
fn manifest(item: &Cursor<'_>) -> Option<ManifestEntry> {
    const POLICIES: [(&str, ManifestPolicy); 5] = [
        ("manage", ManifestPolicy::Manage),
        ("fallback", ManifestPolicy::Fallback),
        ("ignore", ManifestPolicy::Ignore),
        ("keep", ManifestPolicy::Keep),
        ("immutable", ManifestPolicy::Immutable),
    ];
    let mut fields = item.fields()?;
    if fields.has("kind") {
        return Some(entry(item, ManifestPolicy::Manage));
    }
    let policy_at = fields.get("policy");
    let policy = policy_at.as_ref().and_then(|cursor| cursor.one_of(&POLICIES)).unwrap_or_default();
    if let (Some(at), ManifestPolicy::Fallback | ManifestPolicy::Immutable) = (policy_at, policy) {
        at.warn("this policy has no effect in this version: the object is managed", None);
    }
    let manifest = fields.required("manifest");
    warn_later(&mut fields, &LATER_MANIFEST);
    fields.finish();
    let manifest = manifest?;
    manifest.fields()?;
    Some(entry(&manifest, policy))
}

fn entry(cursor: &Cursor<'_>, policy: ManifestPolicy) -> ManifestEntry {
    ManifestEntry { policy, manifest: cursor.node().to_value(), line: cursor.node().line }
}
