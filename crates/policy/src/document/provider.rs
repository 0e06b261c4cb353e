//! ProviderConfigurations of the manifest deployer and the helm deployer.

use billhook_objects::{ApiVersion, yaml::NodeKind};

use super::{PolicyDocument, exports, helm, readiness};
use crate::{
    Diagnostics, GoDuration, ManifestEntry, ManifestPolicy, Provider, ProviderConfiguration, Schedule, TypedReference,
    UpdateStrategy,
    dialect::{self, POLICY_FIELDS},
    reader::{Cursor, Fields},
};

/// The versions that are known, and the deployers that they belong to.
const VERSIONS: [(&str, (Provider, &str)); 3] = [
    ("manifest.deployer.landscaper.gardener.cloud/v1alpha1", (Provider::Manifest, "v1alpha1")),
    ("manifest.deployer.landscaper.gardener.cloud/v1alpha2", (Provider::Manifest, "v1alpha2")),
    ("helm.deployer.landscaper.gardener.cloud/v1alpha1", (Provider::Helm, "v1alpha1")),
];

/// Landscaper's strategies, and ours.
const STRATEGIES: [(&str, UpdateStrategy); 5] = [
    ("update", UpdateStrategy::Update),
    ("patch", UpdateStrategy::Patch),
    ("merge", UpdateStrategy::Merge),
    ("mergeOverwrite", UpdateStrategy::MergeOverwrite),
    ("serverSide", UpdateStrategy::ServerSide),
];

/// Fields of a configuration on which only the controller acts.
const CONTROLLER_ONLY: [&str; 5] = ["updateStrategy", "readinessChecks", "readiness", "exports", "continuousReconcile"];

/// The same of a manifest.
const CONTROLLER_ONLY_MANIFEST: [&str; 4] =
    ["annotateBeforeCreate", "annotateBeforeDelete", "patchAfterDeployment", "patchBeforeDelete"];

/// How much of a configuration is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it.
    Whole,
    /// Perhaps only its policy, as in the examples of the Landscaper documents.
    Excerpt,
}

/// Reads a ProviderConfiguration that stands alone.
pub(super) fn read_document(cursor: &Cursor<'_>) -> Option<PolicyDocument> {
    let configuration = read(cursor, Extent::Whole)?;
    Some(PolicyDocument { name: None, namespace: None, timeout: None, configuration, warnings: Diagnostics::default() })
}

/// Reads a ProviderConfiguration, wherever it stands.
pub(super) fn read(cursor: &Cursor<'_>, extent: Extent) -> Option<ProviderConfiguration> {
    let mut fields = cursor.fields()?;
    let version = fields.required("apiVersion").and_then(|cursor| cursor.one_of(&VERSIONS));
    let provider = version.map(|(provider, _)| provider);
    fields.required("kind").and_then(|kind| kind.one_of(&[("ProviderConfiguration", ())]));
    fields.ignore("metadata");
    let has_policy = POLICY_FIELDS.iter().any(|name| fields.has(name));
    let policy = dialect::policy(&mut fields);
    let update_strategy = fields.filled("updateStrategy").and_then(|cursor| cursor.one_of(&STRATEGIES));
    let readiness = readiness::read(&mut fields);
    let mut exports = exports::Exports::new(provider);
    let list = fields.get("exports").map(|cursor| exports.read_nested(&cursor)).unwrap_or_default();
    let continuous_reconcile = fields.get("continuousReconcile").and_then(|cursor| schedule(&cursor));
    if let Some(cursor) = fields.get("kubeconfig") {
        cursor.warn("kubeconfig has no effect", Some("the cluster is that of the Target"));
    }
    let mut manifests = Vec::new();
    if provider != Some(Provider::Helm) {
        manifests = fields.list("manifests").iter().filter_map(manifest).collect();
    }
    let helm = match provider {
        Some(Provider::Helm) => {
            fields.elsewhere(&["manifests"], "only the manifest deployer has it");
            warn_policy_of_helm(&fields, has_policy);
            helm::read(&mut fields, extent, &mut exports)
        }
        Some(Provider::Manifest) => {
            fields.elsewhere(&helm::FIELDS, "only the helm deployer has it");
            None
        }
        // Of an unknown deployer, the fields of all are known: its apiVersion is the one mistake.
        None => {
            helm::FIELDS.iter().for_each(|name| fields.ignore(name));
            None
        }
    };
    fields.finish();
    let (provider, version) = version?;
    Some(ProviderConfiguration {
        provider,
        version: version.to_owned(),
        policy,
        has_policy,
        update_strategy: update_strategy.unwrap_or(UpdateStrategy::Update),
        manifests,
        readiness,
        exports: list,
        continuous_reconcile,
        helm,
    })
}

fn warn_policy_of_helm(fields: &Fields<'_>, has_policy: bool) {
    let by_helm = fields.here().node().get("helmDeployment").is_none_or(|node| node.kind != NodeKind::Bool(false));
    if has_policy && by_helm {
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
        return entry(item);
    }
    let policy = fields.filled("policy").and_then(|cursor| cursor.one_of(&POLICIES));
    let manifest = fields.required("manifest").and_then(|manifest| entry(&manifest));
    let annotations = |cursor: Option<Cursor<'_>>| cursor.map(|cursor| cursor.text_entries()).unwrap_or_default();
    let annotate_before_create = annotations(fields.get("annotateBeforeCreate"));
    let annotate_before_delete = annotations(fields.get("annotateBeforeDelete"));
    let patch_after_deployment = fields.get("patchAfterDeployment").and_then(|cursor| cursor.object());
    let patch_before_delete = fields.get("patchBeforeDelete").and_then(|cursor| cursor.object());
    fields.finish();
    Some(ManifestEntry {
        policy: policy.unwrap_or_default(),
        annotate_before_create,
        annotate_before_delete,
        patch_after_deployment,
        patch_before_delete,
        ..manifest?
    })
}

fn entry(cursor: &Cursor<'_>) -> Option<ManifestEntry> {
    Some(ManifestEntry {
        policy: ManifestPolicy::default(),
        manifest: cursor.object()?,
        line: cursor.node().line,
        annotate_before_create: Default::default(),
        annotate_before_delete: Default::default(),
        patch_after_deployment: None,
        patch_before_delete: None,
    })
}

/// An object by its name.
pub(super) fn typed_reference(cursor: &Cursor<'_>) -> Option<TypedReference> {
    let mut fields = cursor.fields()?;
    let (api_version, kind) = typed(&mut fields);
    let name = fields.required("name").and_then(|cursor| cursor.text());
    let namespace = fields.filled_text("namespace");
    fields.finish();
    Some(TypedReference { api_version: api_version?, kind: kind?, name: name?.to_owned(), namespace })
}

/// The kind of an object, by its `apiVersion` and `kind`.
pub(super) fn typed(fields: &mut Fields<'_>) -> (Option<ApiVersion>, Option<String>) {
    let api_version = fields.required("apiVersion").and_then(|cursor| cursor.api_version());
    let kind = fields.required("kind").and_then(|cursor| cursor.text()).map(str::to_owned);
    (api_version, kind)
}

/// Reads a schedule; one that says nothing is none.
fn schedule(cursor: &Cursor<'_>) -> Option<Schedule> {
    let mut fields = cursor.fields()?;
    let cron = fields.filled("cron");
    let every = fields.filled("every");
    fields.finish();
    match (cron, every) {
        (Some(_), Some(every)) => {
            every.error_with("cron is there too", "write one of the two");
            None
        }
        (Some(cron), None) => crontab(&cron).map(|line| Schedule::Cron(line.to_owned())),
        (None, Some(every)) => every.duration_or_none().map(Schedule::Every),
        (None, None) => None,
    }
}

/// A crontab line as far as its form goes: five fields, or a descriptor; either may follow a time zone.
fn crontab<'a>(cursor: &Cursor<'a>) -> Option<&'a str> {
    const NAMES: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    let line = cursor.text()?;
    let mut words: Vec<&str> = line.split_whitespace().collect();
    if words.first().is_some_and(|word| word.starts_with("TZ=") || word.starts_with("CRON_TZ=")) {
        words.remove(0);
    }
    let valid = match words[..] {
        ["@every", every] => every.parse::<GoDuration>().is_ok_and(|every| every > GoDuration::default()),
        [name] => NAMES.contains(&name),
        [_, _, _, _, _] => {
            words.iter().all(|word| word.chars().all(|c| c.is_ascii_alphanumeric() || "*/,-?".contains(c)))
        }
        _ => false,
    };
    if !valid {
        cursor.error_with(
            format!("{line:?} is not a crontab line"),
            "write minute, hour, day of month, month and day of week, such as \"30 4 * * *\", or a word such as @daily",
        );
    }
    valid.then_some(line)
}

/// Warns of the fields on which only the controller acts.
pub(super) fn warn_controller_only(config: &Cursor<'_>) {
    if !config.is_mapping() {
        return;
    }
    let Some(mut fields) = config.fields() else { return };
    warn_fields(&mut fields, &CONTROLLER_ONLY);
    for item in config.child("manifests").and_then(|list| list.items()).unwrap_or_default() {
        // A bare object may have fields of these names; they are its own.
        if item.is_mapping()
            && item.child("kind").is_none()
            && let Some(mut fields) = item.fields()
        {
            warn_fields(&mut fields, &CONTROLLER_ONLY_MANIFEST);
        }
    }
}

/// Says of each of these fields that only the controller acts on it.
pub(super) fn warn_fields(fields: &mut Fields<'_>, names: &[&'static str]) {
    for name in names {
        if let Some(cursor) = fields.get(name) {
            cursor.warn(format!("{name} has no effect on the command line"), Some("the controller acts on it"));
        }
    }
}
