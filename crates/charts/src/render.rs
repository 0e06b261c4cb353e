//! Renders charts and kustomizations without access to a cluster.

use std::{ffi::OsString, path::Path, sync::Arc};

use billhook_objects::{Manifest, yaml};

use crate::{
    chart::Chart,
    error::{Error, ErrorKind},
    home::Home,
    input::{Capabilities, Release},
    output::{Rendered, objects, sort_out},
    program::Program,
};

/// Renders a chart with `helm template`, including its CRDs.
///
/// Objects keep the namespaces that the templates set. Without `capabilities`, the templates see the ones that helm was built
/// with. Credentials and values are in a private folder while helm runs, and not on a command line.
///
/// # Errors
///
/// When the chart cannot be fetched, when helm cannot be run or fails (with the error that helm printed), or when its output
/// contains documents that are not objects.
pub async fn template(
    chart: &Chart,
    release: &Release<'_>,
    capabilities: Option<&Capabilities>,
    helm: &Path,
) -> Result<Rendered, Error> {
    let render = async {
        let home = Home::new().map_err(ErrorKind::Folder)?;
        let located = chart.locate(helm, &home).await?;
        let mut arguments: Vec<OsString> = ["template", "--include-crds"].map(Into::into).into();
        arguments.extend(located.flags);
        arguments.extend(release.arguments(&home)?);
        arguments.extend(capabilities.into_iter().flat_map(Capabilities::arguments));
        // After `--`, neither name can be parsed as a flag.
        arguments.extend(["--".into(), release.name.into(), located.chart]);
        let output = located.helm.run(&arguments).await.map_err(ErrorKind::Program)?;
        sort_out(&output, &chart.source.to_string())
    };
    render.await.map_err(|kind| Error { what: format!("render chart {}", chart.source), kind })
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
