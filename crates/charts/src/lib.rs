//! Charts and kustomizations rendered to manifests by the `helm` and `kubectl` programs.
//!
//! No library renders charts as helm does, so the programs themselves are run: to render without a cluster, and to
//! deploy a release as helm does with the cluster the caller names. Which programs these are is for the caller to say.
//!
//! helm fetches charts, too: each run has a private folder with the credentials that this chart needs and nothing else
//! of the machine's. It takes the passwords from files and standard input; only the name of a user is on a command
//! line. What was fetched is not kept: a version may be pushed again.

mod address;
mod chart;
mod credentials;
mod home;
mod hooks;
mod program;
mod release;
mod stored;
mod values;

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use billhook_objects::{
    ApiVersion, Catalog, Manifest, ManifestError, ObjectKey,
    yaml::{self, Document},
};
use serde_json::Value;

pub use address::SourceError;
pub use chart::{Chart, Source};
pub use credentials::{Credentials, CredentialsError, RepositoryAuth, SecretReference};
pub use program::ProgramError;
pub use release::{DeployOptions, install_or_upgrade, manifest_of, uninstall};
pub use stored::as_failed;
pub use values::values;

use home::Home;
use program::Program;

/// What templates see of a release, and the values they are rendered with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Release<'a> {
    /// `.Release.Name`.
    pub name: &'a str,
    /// `.Release.Namespace`.
    pub namespace: &'a str,
    /// Values, as an object.
    pub values: Option<&'a Value>,
    /// Files with values, which count more; of them the later ones.
    pub values_files: &'a [PathBuf],
    /// Single values, as `KEY=VALUE`; they count most.
    pub set: &'a [String],
}

impl Release<'_> {
    /// The flags of helm for it, but not its name.
    fn arguments(&self, home: &Home) -> Result<Vec<OsString>, ErrorKind> {
        let mut arguments: Vec<OsString> = ["--namespace", self.namespace].map(Into::into).into();
        let mut flag = |name: &str, value: &OsStr| arguments.extend([name.into(), value.to_owned()]);
        if let Some(values) = self.values {
            let file = home.write("values.yaml", values.to_string().as_bytes()).map_err(ErrorKind::Folder)?;
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

/// What the cluster offers, as far as templates ask for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The version of the cluster, such as `v1.36.3`.
    pub kube_version: String,
    /// Its API versions and kinds, such as `apps/v1` and `apps/v1/Deployment`.
    pub api_versions: Vec<String>,
}

impl Capabilities {
    /// Those of a cluster of this version that serves these kinds: `v1`, `v1/ConfigMap`, `apps/v1`, `apps/v1/Deployment`
    /// are what templates ask `.Capabilities.APIVersions` for.
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

    /// The flags of helm for them.
    fn arguments(&self) -> impl Iterator<Item = OsString> {
        let versions = self.api_versions.iter().flat_map(|version| ["--api-versions", version]);
        ["--kube-version", &self.kube_version].into_iter().chain(versions).map(Into::into)
    }
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

/// Why something could not be done with a chart, a kustomization or a release.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Error {
    /// What was to be done, such as `render chart shop`.
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
    /// What names the chart is not understood.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Credentials are not understood.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The private folder for the run could not be written.
    #[error("write a temporary folder")]
    Folder(#[source] io::Error),
    /// helm does not tell its version.
    #[error("helm says its version is {0:?}")]
    Version(String),
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
/// `capabilities` the templates see those that helm was built with. Credentials and values lie in a private folder
/// while helm runs, and on no command line.
///
/// # Errors
///
/// When the chart cannot be had, when helm cannot be run or fails (then with its own words), or when its output is not
/// made of objects.
pub async fn template(
    chart: &Chart,
    release: &Release<'_>,
    capabilities: Option<&Capabilities>,
    helm: &Path,
) -> Result<Rendered, Error> {
    let render = async {
        let home = Home::new().map_err(ErrorKind::Folder)?;
        let told = chart.tell(helm, &home).await?;
        let mut arguments: Vec<OsString> = ["template", "--include-crds"].map(Into::into).into();
        arguments.extend(told.flags);
        arguments.extend(release.arguments(&home)?);
        arguments.extend(capabilities.into_iter().flat_map(Capabilities::arguments));
        // Neither name may be taken for a flag.
        arguments.extend(["--".into(), release.name.into(), told.chart]);
        let output = told.helm.run(&arguments).await.map_err(ErrorKind::Program)?;
        hooks::sort_out(&output, &chart.source.to_string())
    };
    render.await.map_err(|kind| Error { what: format!("render chart {}", chart.source), kind })
}

/// Renders a kustomization folder with `kubectl kustomize`, or with `kustomize build` where the program is named so.
///
/// The source of each object is the folder with the line of the program's output.
///
/// # Errors
///
/// When the program cannot be run or fails (then with its own words), or when its output is not made of objects.
pub async fn kustomize(dir: &Path, kubectl: &Path) -> Result<Vec<Manifest>, Error> {
    let fail = |kind| Error { what: format!("render kustomization {}", dir.display()), kind };
    let standalone = kubectl.file_stem().is_some_and(|name| name == "kustomize");
    let arguments = [if standalone { "build" } else { "kustomize" }.into(), "--".into(), dir.into()];
    let output = Program::new(kubectl, "install kubectl").run(&arguments).await;
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
