//! Charts and kustomizations rendered to manifests by the `helm` and `kubectl` programs.
//!
//! No library renders charts as helm does, so the programs themselves are run: without a cluster, without standard
//! input. Which programs these are is for the caller to say.

mod hooks;
mod program;

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
};

use billhook_objects::{
    Manifest, ManifestError, ObjectKey,
    yaml::{self, Document},
};

pub use program::ProgramError;

/// A chart and the values it is rendered with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chart {
    /// What helm takes as a chart: a folder, an archive, `REPOSITORY/NAME`, an `oci://` or `https://` address.
    pub reference: String,
    /// The version or range of versions; the newest where there is none.
    pub version: Option<String>,
    /// Files with values; later ones count more.
    pub values_files: Vec<PathBuf>,
    /// Single values, as `KEY=VALUE`; they count more than the files.
    pub set: Vec<String>,
}

/// What the cluster offers, as far as templates ask for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The version of the cluster, such as `v1.36.3`.
    pub kube_version: String,
    /// Its API versions and kinds, such as `apps/v1` and `apps/v1/Deployment`.
    pub api_versions: Vec<String>,
}

/// What a chart became.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rendered {
    /// The objects to deploy, in helm's order: the chart's CRDs, its objects, its hooks. Their source is the template
    /// (or the reference of the chart) with the line of helm's output.
    pub manifests: Vec<Manifest>,
    /// The hooks of install and upgrade; they are among the manifests, as plain objects.
    pub hooks_deployed: Vec<ObjectKey>,
    /// The hooks that only act when a release is deleted or rolled back, or at an event helm does not know; left out.
    pub hooks_left_out: Vec<ObjectKey>,
    /// The tests; left out.
    pub tests_left_out: Vec<ObjectKey>,
}

/// Why a chart or kustomization became no manifests.
#[derive(Debug, thiserror::Error)]
#[error("render {what}")]
pub struct Error {
    /// Which chart or folder.
    pub what: String,
    /// Why.
    #[source]
    pub kind: ErrorKind,
}

/// The reasons of an [`Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The program is not there, could not be run, or ended with an error.
    #[error(transparent)]
    Program(ProgramError),
    /// What the program printed is not YAML.
    #[error(transparent)]
    Yaml(yaml::Error),
    /// What the program printed holds something other than objects; one line for each.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Manifests(Vec<ManifestError>),
}

/// Renders a chart with `helm template`, its CRDs included.
///
/// Objects keep the namespace the templates gave them; `namespace` is what they see as `.Release.Namespace`. Without
/// `capabilities` the templates see those that helm was built with.
///
/// # Errors
///
/// When helm cannot be run or fails (then with its own words), or when its output is not made of objects.
pub async fn template(
    chart: &Chart,
    release: &str,
    namespace: &str,
    capabilities: Option<&Capabilities>,
    helm: &Path,
) -> Result<Rendered, Error> {
    let fail = |kind| Error { what: format!("chart {}", chart.reference), kind };
    let arguments = template_arguments(chart, release, namespace, capabilities);
    let output = program::run(helm, &arguments, "install helm 3.8 or newer").await;
    let output = output.map_err(|error| fail(ErrorKind::Program(error)))?;
    hooks::sort_out(&output, &chart.reference).map_err(fail)
}

fn template_arguments(
    chart: &Chart,
    release: &str,
    namespace: &str,
    capabilities: Option<&Capabilities>,
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["template", "--include-crds", "--namespace", namespace].map(Into::into).into();
    let mut flag = |name: &str, value: &OsStr| arguments.extend([name.into(), value.to_owned()]);
    if let Some(version) = &chart.version {
        flag("--version", version.as_ref());
    }
    for file in &chart.values_files {
        flag("--values", file.as_ref());
    }
    for value in &chart.set {
        flag("--set", value.as_ref());
    }
    if let Some(capabilities) = capabilities {
        flag("--kube-version", capabilities.kube_version.as_ref());
        for version in &capabilities.api_versions {
            flag("--api-versions", version.as_ref());
        }
    }
    // Neither name may be taken for a flag.
    arguments.extend(["--", release, &chart.reference].map(Into::into));
    arguments
}

/// Renders a kustomization folder with `kubectl kustomize`, or with `kustomize build` where the program is named so.
///
/// The source of each object is the folder with the line of the program's output.
///
/// # Errors
///
/// When the program cannot be run or fails (then with its own words), or when its output is not made of objects.
pub async fn kustomize(dir: &Path, kubectl: &Path) -> Result<Vec<Manifest>, Error> {
    let fail = |kind| Error { what: format!("kustomization {}", dir.display()), kind };
    let standalone = kubectl.file_stem().is_some_and(|name| name == "kustomize");
    let arguments = [if standalone { "build" } else { "kustomize" }.into(), "--".into(), dir.into()];
    let output = program::run(kubectl, &arguments, "install kubectl").await;
    let output = output.map_err(|error| fail(ErrorKind::Program(error)))?;
    let file: Arc<str> = dir.display().to_string().into();
    let documents = yaml::parse(&output).map_err(|error| fail(ErrorKind::Yaml(error)))?;
    let documents = documents.into_iter().map(|document| (document, Arc::clone(&file)));
    let objects = objects(documents).map_err(|errors| fail(ErrorKind::Manifests(errors)))?;
    Ok(objects.into_iter().flatten().collect())
}

/// The objects of each document, or what is wrong in any of them.
fn objects(
    documents: impl IntoIterator<Item = (Document, Arc<str>)>,
) -> Result<Vec<Vec<Manifest>>, Vec<ManifestError>> {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for (document, file) in documents {
        match Manifest::from_document(document, &file) {
            Ok(manifests) => found.push(manifests),
            Err(problems) => errors.extend(problems),
        }
    }
    if errors.is_empty() { Ok(found) } else { Err(errors) }
}
