//! Renders charts and kustomizations.

use std::{
    ffi::OsString,
    fs::{DirEntry, File},
    io::{self, Read as _},
    path::Path,
    sync::Arc,
};

use billhook_objects::{Manifest, yaml};

use crate::{
    chart::Chart,
    error::{Error, ErrorKind},
    fetch::locate,
    helm::Helm,
    input::{Capabilities, Release},
    output::{Rendered, objects, sort_out},
    program::{MAX_OUTPUT, Program},
    release::with_cluster,
};

/// The folder for rendered templates.
const RENDERED: &str = "rendered";

/// Renders a chart with `helm template`, including its CRDs.
///
/// Objects keep the namespaces that the templates set. Without `capabilities`, the templates see the ones that helm was built
/// with. Credentials and values are in a private folder while helm runs, and not on a command line.
///
/// With `cluster`, the text of a kubeconfig, the function `lookup` finds the objects of that cluster (`--dry-run=server`,
/// helm 3.13), and newer versions of helm read the capabilities from it. helm gets it only if the chart or its values may use
/// the function.
///
/// # Errors
///
/// When the chart cannot be fetched, when helm cannot be run or fails (with the error that helm printed), or when its output
/// contains invalid objects.
pub async fn template(
    chart: &Chart,
    release: &Release<'_>,
    capabilities: Option<&Capabilities>,
    cluster: Option<&str>,
    helm: &Helm,
) -> Result<Rendered, Error> {
    let render = async {
        let home = helm.home()?;
        let located = locate(chart, helm, &home).await?;
        let mut arguments: Vec<OsString> = ["template", "--include-crds"].map(Into::into).into();
        arguments.extend(located.flags);
        arguments.extend(release.arguments(&home)?);
        arguments.extend(capabilities.into_iter().flat_map(Capabilities::arguments));
        let looks_up = located.packed.is_none_or(|packed| packed.looks_up) || release.may_look_up();
        // After `--`, neither name can be parsed as a flag.
        let names = ["--".into(), release.name.into(), located.chart];
        let output = match cluster.filter(|_| looks_up) {
            None => {
                arguments.extend(names);
                located.helm.run(&arguments).await.map_err(ErrorKind::Program)?
            }
            Some(kubeconfig) => {
                // If it writes to a folder, helm does not compare the objects with those of the cluster: it would reject
                // objects of kinds that the chart creates, and objects that exist but do not belong to a release of helm.
                let folder = home.path().join(RENDERED);
                arguments.extend(["--dry-run=server", "--disable-openapi-validation", "--output-dir"].map(Into::into));
                arguments.push(folder.clone().into());
                arguments.extend(names);
                let helm = with_cluster(located.helm, kubeconfig, &home)?;
                helm.run(&arguments).await.map_err(ErrorKind::Program)?;
                let mut output = String::new();
                read_all(&folder, &mut output).map_err(ErrorKind::Folder)?;
                output
            }
        };
        sort_out(&output, &chart.source.to_string())
    };
    render.await.map_err(|kind| Error { what: format!("render chart {}", chart.source), kind })
}

/// Appends all files in a folder and in its folders, in the order of their names. A folder that does not exist is empty.
fn read_all(folder: &Path, text: &mut String) -> io::Result<()> {
    let entries = match folder.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let mut entries = entries.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(DirEntry::file_name);
    for entry in entries {
        // Of the entry itself: a link is neither.
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read_all(&entry.path(), text)?;
        } else if kind.is_file() {
            let left = MAX_OUTPUT.saturating_sub(text.len() as u64);
            if File::open(entry.path())?.take(left + 1).read_to_string(text)? as u64 > left {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
    }
    Ok(())
}

/// Renders a kustomization folder with `kubectl kustomize`, or with `kustomize build` if the program is named `kustomize`.
///
/// The source of each object is the folder, with the line in the program's output.
///
/// # Errors
///
/// When the program cannot be run or fails (with the error that it printed), or when its output contains documents that are
/// not objects.
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
