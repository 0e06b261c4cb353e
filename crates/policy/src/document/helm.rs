//! The fields of the helm deployer: the chart, its release, and the options of helm.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use billhook_objects::ReleaseName;
use serde_json::{Map, Value};

use super::exports::Exports;
use crate::{
    ChartSource, GoDuration, HelmConfiguration, HelmDeployment, HelmOptions,
    reader::{Cursor, Fields},
};

/// The fields that only the helm deployer supports.
pub(super) const FIELDS: [&str; 8] = [
    "chart",
    "name",
    "namespace",
    "createNamespace",
    "values",
    "exportsFromManifests",
    "helmDeployment",
    "helmDeploymentConfig",
];

/// The hint for a chart without a source or with several.
const SOURCES: &str = "set exactly one of ref, archive or helmChartRepo";

/// Whether a configuration must name its chart and release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChartFields {
    /// It must: the configuration is complete.
    Required,
    /// It need not: the Landscaper documents have examples of a policy alone.
    Optional,
}

/// Reads the fields of the helm deployer.
pub(super) fn read(
    fields: &mut Fields<'_>,
    chart_fields: ChartFields,
    exports: &mut Exports,
) -> Option<HelmConfiguration> {
    let mut field = |name| match chart_fields {
        ChartFields::Required => fields.required(name),
        ChartFields::Optional => fields.get(name),
    };
    let chart = field("chart").and_then(|cursor| chart(&cursor));
    let name = field("name").and_then(|cursor| release_name(&cursor));
    let namespace = field("namespace").and_then(|cursor| namespace(&cursor));
    let create_namespace = fields.flag("createNamespace");
    let values = fields.get("values").and_then(|cursor| cursor.object());
    let exports_from_manifests = fields.get("exportsFromManifests").map(|list| exports.read(&list)).unwrap_or_default();
    let helm_deployment = fields.get("helmDeployment").and_then(|cursor| cursor.boolean()).unwrap_or(true);
    let deployment = fields.get("helmDeploymentConfig").and_then(|cursor| deployment(&cursor)).unwrap_or_default();
    Some(HelmConfiguration {
        chart: chart?,
        name: name?,
        namespace: namespace?,
        create_namespace,
        values: values.unwrap_or_else(|| Value::Object(Map::new())),
        exports_from_manifests,
        helm_deployment,
        deployment,
    })
}

/// Reads a release name that helm accepts: at most 53 characters, DNS labels separated by dots.
fn release_name(cursor: &Cursor<'_>) -> Option<String> {
    let name = cursor.text()?;
    if name.len() > 53 || !name.split('.').all(is_dns_label) {
        cursor.error_with(
            format!("{name:?} is not a valid helm release name"),
            "use at most 53 characters of a-z, 0-9, '-' and '.', starting and ending with a letter or digit",
        );
        return None;
    }
    Some(name.to_owned())
}

fn namespace(cursor: &Cursor<'_>) -> Option<String> {
    let namespace = cursor.text()?;
    if !is_dns_label(namespace) {
        cursor.error_with(
            format!("{namespace:?} is not a valid namespace name"),
            "use at most 63 characters of a-z, 0-9 and '-', starting and ending with a letter or digit",
        );
        return None;
    }
    Some(namespace.to_owned())
}

/// Returns whether a text is a DNS label, as both parts of a billhook release name must be.
fn is_dns_label(text: &str) -> bool {
    ReleaseName::new(text, text).is_ok()
}

fn chart(cursor: &Cursor<'_>) -> Option<ChartSource> {
    let mut fields = cursor.fields()?;
    let reference = fields.filled("ref");
    let archive = fields.get("archive");
    let repository = fields.get("helmChartRepo");
    let component = [fields.get("fromResource"), fields.filled("resourceRef")];
    for cursor in component.iter().flatten() {
        cursor.error_with(
            "only Landscaper supports this source: it needs a component descriptor",
            "use ref, archive or helmChartRepo",
        );
    }
    let unsupported = component.iter().flatten().count();
    // A misspelt source is reported as an unknown field, and not also as missing.
    let unknown = fields.finish();
    match (reference, archive, repository) {
        (Some(reference), None, None) => reference.text().map(|text| ChartSource::Oci(text.to_owned())),
        (None, Some(archive), None) => self::archive(&archive),
        (None, None, Some(repository)) => self::repository(&repository),
        (None, None, None) => {
            if unsupported + unknown == 0 {
                cursor.error_with("the chart has no source", SOURCES);
            }
            None
        }
        _ => {
            cursor.error_with("the chart has several sources", SOURCES);
            None
        }
    }
}

fn archive(cursor: &Cursor<'_>) -> Option<ChartSource> {
    let mut fields = cursor.fields()?;
    let raw = fields.filled("raw");
    let remote = fields.get("remote");
    let unknown = fields.finish();
    match (raw, remote) {
        (Some(raw), None) => packed(&raw).map(ChartSource::Archive),
        (None, Some(remote)) => {
            let mut fields = remote.fields()?;
            let url = fields.required("url").and_then(|cursor| cursor.text());
            fields.finish();
            url.map(|url| ChartSource::RemoteArchive(url.to_owned()))
        }
        (None, None) if unknown > 0 => None,
        _ => {
            cursor.error("an archive needs exactly one of raw or remote");
            None
        }
    }
}

/// Decodes a packed chart.
fn packed(cursor: &Cursor<'_>) -> Option<Vec<u8>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    const HINT: &str = "encode the output of `helm package` with `base64`";
    let text: String = cursor.text()?.split_whitespace().collect();
    let Ok(bytes) = STANDARD.decode(text) else {
        cursor.error_with("the archive is not base64", HINT);
        return None;
    };
    if !bytes.starts_with(&GZIP) {
        cursor.error_with("the archive is not compressed with gzip", HINT);
        return None;
    }
    Some(bytes)
}

fn repository(cursor: &Cursor<'_>) -> Option<ChartSource> {
    let mut fields = cursor.fields()?;
    let url = fields.required("helmChartRepoUrl").and_then(|cursor| cursor.text());
    let name = fields.required("helmChartName").and_then(|cursor| cursor.text());
    let version = fields.filled_text("helmChartVersion");
    fields.finish();
    Some(ChartSource::Repository { url: url?.to_owned(), name: name?.to_owned(), version })
}

fn deployment(cursor: &Cursor<'_>) -> Option<HelmDeployment> {
    let mut fields = cursor.fields()?;
    let default = HelmDeployment::default();
    let mut options = |name, read: fn(&Cursor<'_>) -> Option<HelmOptions>, default| {
        fields.get(name).and_then(|cursor| read(&cursor)).unwrap_or(default)
    };
    let deployment = HelmDeployment {
        install: options("install", install_options, default.install),
        upgrade: options("upgrade", install_options, default.upgrade),
        uninstall: options("uninstall", uninstall_options, default.uninstall),
    };
    fields.finish();
    Some(deployment)
}

fn install_options(cursor: &Cursor<'_>) -> Option<HelmOptions> {
    let mut fields = cursor.fields()?;
    let options = HelmOptions {
        wait: fields.flag("wait"),
        timeout: timeout(&mut fields),
        atomic: fields.flag("atomic"),
        force: fields.flag("force"),
        skip_schema_validation: fields.flag("skipSchemaValidation"),
        take_ownership: fields.flag("takeOwnership"),
    };
    fields.finish();
    Some(options)
}

fn uninstall_options(cursor: &Cursor<'_>) -> Option<HelmOptions> {
    let mut fields = cursor.fields()?;
    let default = HelmDeployment::default().uninstall;
    let wait = fields.get("wait").and_then(|cursor| cursor.boolean()).unwrap_or(default.wait);
    let options = HelmOptions { wait, timeout: timeout(&mut fields), ..default };
    fields
        .elsewhere(&["atomic", "force", "skipSchemaValidation", "takeOwnership"], "helm uninstall has no such option");
    fields.finish();
    Some(options)
}

fn timeout(fields: &mut Fields<'_>) -> Option<GoDuration> {
    fields.get("timeout").and_then(|cursor| cursor.duration_or_none())
}
