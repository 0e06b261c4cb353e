//! The configuration of a release payload: the settings that `billhook payload` also takes as flags.

use std::sync::Arc;

use crate::{
    Diagnostics,
    document::only_document,
    reader::{Cursor, Fields, Report},
};

/// Which manifests of a payload count, and what its release is called. Everything is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PayloadConfiguration {
    /// The name of the release.
    pub name: Option<String>,
    /// The namespace of its record.
    pub namespace: Option<String>,
    /// The profile that manifests must include.
    pub profile: Option<String>,
    /// The feature set of the cluster.
    pub feature_set: Option<String>,
    /// Feature gates that are on, or with a leading `-` off.
    pub feature_gates: Vec<String>,
    /// The capabilities that are enabled; all if there is none.
    pub capabilities: Vec<String>,
    /// Leaves out manifests that exclude clusters of this identifier.
    pub exclude: Option<String>,
    /// Objects that another manager owns, as `KIND/NAMESPACE/NAME` or `KIND/NAME`.
    pub overrides: Vec<String>,
    /// The `ClusterVersion` to publish to.
    pub cluster_version: Option<String>,
}

/// Reads the configuration of a payload. An empty file sets nothing.
///
/// # Errors
///
/// Returns all mistakes of the file.
pub fn read_payload_configuration(text: &str, file: &Arc<str>) -> Result<PayloadConfiguration, Diagnostics> {
    let report = Report::new(file);
    let node = only_document(text, &report, "payload configuration");
    let read = node.as_ref().map_or_else(
        || Some(PayloadConfiguration::default()),
        |node| Some(configuration(Cursor::root(&report, node).fields()?)),
    );
    report.finish(read).map(|(configuration, _)| configuration)
}

fn configuration(mut fields: Fields<'_>) -> PayloadConfiguration {
    let read = PayloadConfiguration {
        name: text(&mut fields, "name"),
        namespace: text(&mut fields, "namespace"),
        profile: text(&mut fields, "profile"),
        feature_set: text(&mut fields, "featureSet"),
        feature_gates: texts(&mut fields, "featureGates"),
        capabilities: texts(&mut fields, "capabilities"),
        exclude: text(&mut fields, "exclude"),
        overrides: texts(&mut fields, "overrides"),
        cluster_version: text(&mut fields, "clusterVersion"),
    };
    fields.finish();
    read
}

fn text(fields: &mut Fields<'_>, name: &'static str) -> Option<String> {
    fields.get(name)?.text().map(str::to_owned)
}

fn texts(fields: &mut Fields<'_>, name: &'static str) -> Vec<String> {
    fields.list(name).filter_map(|item| item.text().map(str::to_owned)).collect()
}
