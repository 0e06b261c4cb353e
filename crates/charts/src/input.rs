//! The input for rendering a chart: the release with its values, and the capabilities of the cluster.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use billhook_objects::{ApiVersion, Catalog};
use serde_json::Value;

use crate::{error::ErrorKind, home::Home, packed::contains_lookup};

/// The release that a chart is rendered for, with its values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Release<'a> {
    /// `.Release.Name`.
    pub name: &'a str,
    /// `.Release.Namespace`.
    pub namespace: &'a str,
    /// Values, as an object.
    pub values: Option<&'a Value>,
    /// Files with values; they override `values`, and later files override earlier ones.
    pub values_files: &'a [PathBuf],
    /// Single values, as `KEY=VALUE`; they override all others.
    pub set: &'a [String],
}

impl Release<'_> {
    /// Returns whether templates in the values may use the function `lookup`.
    pub(crate) fn may_look_up(&self) -> bool {
        let in_values = self.values.is_some_and(|values| contains_lookup(values.to_string().as_bytes()));
        in_values || !self.values_files.is_empty() || !self.set.is_empty()
    }

    /// Returns helm's flags for the release, without its name.
    pub(crate) fn arguments(&self, home: &Home) -> Result<Vec<OsString>, ErrorKind> {
        let mut arguments: Vec<OsString> = ["--namespace", self.namespace].map(Into::into).into();
        let mut flag = |name: &str, value: &OsStr| arguments.extend([name.into(), value.to_owned()]);
        if let Some(values) = self.values {
            let file = home.write("values.yaml", escaped(&values.to_string()).as_bytes()).map_err(ErrorKind::Folder)?;
            flag("--values", file.as_ref());
        }
        for file in self.values_files {
            flag("--values", file.as_ref());
        }
        for value in self.set {
            flag("--set", value.as_ref());
        }
        Ok(arguments)
    }
}

/// Escapes the characters of a JSON text that YAML 1.1, by which helm reads it, does not allow or takes for line breaks.
fn escaped(json: &str) -> String {
    let is_special =
        |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match is_special(c) {
            true => text += &format!("\\u{:04x}", u32::from(c)),
            false => text.push(c),
        }
    }
    text
}

/// The `.Capabilities` that templates see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The Kubernetes version of the cluster, such as `v1.36.3`.
    pub kube_version: String,
    /// Its API versions and kinds, such as `apps/v1` and `apps/v1/Deployment`.
    pub api_versions: Vec<String>,
}

impl Capabilities {
    /// Returns the capabilities of a cluster with this version and these kinds. `.Capabilities.APIVersions` holds API versions
    /// and kinds, such as `apps/v1` and `apps/v1/Deployment`.
    pub fn of(kube_version: impl Into<String>, catalog: &Catalog) -> Self {
        let mut versions = BTreeSet::new();
        for resource in catalog.iter().filter(|resource| !resource.plural.contains('/')) {
            for version in &resource.versions {
                let version = ApiVersion::new(&resource.kind.group, version).to_string();
                versions.insert(format!("{version}/{}", resource.kind.kind));
                versions.insert(version);
            }
        }
        Self { kube_version: kube_version.into(), api_versions: versions.into_iter().collect() }
    }

    /// Returns helm's flags for the capabilities.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = OsString> {
        let versions = self.api_versions.iter().flat_map(|version| ["--api-versions", version]);
        ["--kube-version", &self.kube_version].into_iter().chain(versions).map(Into::into)
    }
}
