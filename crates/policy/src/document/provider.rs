//! ProviderConfigurations of the manifest deployer and the helm deployer.

use billhook_objects::yaml::NodeKind;

use super::{
    exports,
    helm::{self, ChartFields},
    readiness,
};
use crate::{
    Diagnostics, GoDuration, ManifestEntry, ManifestPolicy, PolicyDocument, Provider, ProviderConfiguration, Schedule,
    UpdateStrategy,
    dialect::{self, POLICY_FIELDS},
    reader::{Cursor, Fields},
};

/// The supported values of `apiVersion`, with their deployer and version.
const VERSIONS: [(&str, (Provider, &str)); 3] = [
    ("manifest.deployer.landscaper.gardener.cloud/v1alpha1", (Provider::Manifest, "v1alpha1")),
    ("manifest.deployer.landscaper.gardener.cloud/v1alpha2", (Provider::Manifest, "v1alpha2")),
    ("helm.deployer.landscaper.gardener.cloud/v1alpha1", (Provider::Helm, "v1alpha1")),
];

/// Landscaper's strategies and `serverSide`, which is an addition.
const STRATEGIES: [(&str, UpdateStrategy); 5] = [
    ("update", UpdateStrategy::Update),
    ("patch", UpdateStrategy::Patch),
    ("merge", UpdateStrategy::Merge),
    ("mergeOverwrite", UpdateStrategy::MergeOverwrite),
    ("serverSide", UpdateStrategy::ServerSide),
];

/// The fields of a configuration that only the controller uses.
const CONTROLLER_ONLY: [&str; 5] = ["updateStrategy", "readinessChecks", "readiness", "exports", "continuousReconcile"];

/// Reads a ProviderConfiguration that is a document of its own.
pub(super) fn read_document(cursor: &Cursor<'_>) -> Option<PolicyDocument> {
    let configuration = read(cursor, ChartFields::Required)?;
    Some(PolicyDocument { name: None, namespace: None, timeout: None, configuration, warnings: Diagnostics::default() })
}

/// Reads a ProviderConfiguration, either as a document or as part of a DeployItem.
pub(super) fn read(cursor: &Cursor<'_>, chart_fields: ChartFields) -> Option<ProviderConfiguration> {
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
        cursor.warn("kubeconfig has no effect", Some("the Target determines the cluster"));
    }
    let mut manifests = Vec::new();
    if provider != Some(Provider::Helm) {
        manifests = fields.list("manifests").filter_map(|item| manifest(&item)).collect();
    }
    let helm = match provider {
        Some(Provider::Helm) => {
            fields.elsewhere(&["manifests"], "only the manifest deployer supports it");
            warn_policy_of_helm(&fields, has_policy);
            helm::read(&mut fields, chart_fields, &mut exports)
        }
        Some(Provider::Manifest) => {
            fields.elsewhere(&helm::FIELDS, "only the helm deployer supports it");
            None
        }
        // For an unknown deployer, only its apiVersion is reported, and not the fields of the other deployers.
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
        fields.here().warn("the policy has no effect while helm installs the chart", Some("set helmDeployment: false"));
    }
}

/// Reads a manifest: `{policy, manifest}`, or the bare object, as in `v1alpha1`.
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

/// Reads a schedule; returns `None` if neither field is set.
fn schedule(cursor: &Cursor<'_>) -> Option<Schedule> {
    let mut fields = cursor.fields()?;
    let cron = fields.filled("cron");
    let every = fields.filled("every");
    fields.finish();
    match (cron, every) {
        (Some(_), Some(every)) => {
            every.error_with("cron is also set", "use only one of the two");
            None
        }
        (Some(cron), None) => crontab(&cron).map(|line| Schedule::Cron(line.to_owned())),
        (None, Some(every)) => every.duration_or_none().map(Schedule::Every),
        (None, None) => None,
    }
}

/// Checks the form of a crontab line: five fields or a descriptor, after an optional time zone.
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
            "use minute, hour, day of month, month and day of week, such as \"30 4 * * *\", or a descriptor such as @daily",
        );
    }
    valid.then_some(line)
}

/// Warns of the fields that only the controller uses.
pub(super) fn warn_controller_only(config: &Cursor<'_>) {
    if !config.is_mapping() {
        return;
    }
    let Some(mut fields) = config.fields() else { return };
    warn_fields(&mut fields, &CONTROLLER_ONLY);
}

/// Warns of each of these fields that is set.
pub(super) fn warn_fields(fields: &mut Fields<'_>, names: &[&'static str]) {
    for name in names {
        if let Some(cursor) = fields.get(name) {
            cursor.warn(format!("{name} has no effect on the command line"), Some("only the controller uses it"));
        }
    }
}
