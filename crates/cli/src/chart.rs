//! A chart of the command line: rendered for the cluster it goes to.

use std::path::{Path, PathBuf};

use billhook_charts::{Capabilities, Rendered, Source};
use billhook_objects::{Catalog, Manifest, ObjectKey, ReleaseName};
use billhook_plan::{Note, NoteCode, Severity};
use clap::Args;

use crate::{
    error::CommandError,
    session::{Connection, Session},
};

/// Which chart, and with which values.
#[derive(Debug, Args)]
pub(crate) struct ChartArgs {
    /// A chart in place of files: a folder, an archive, REPOSITORY/NAME or oci://…
    #[arg(long, value_name = "REF", group = "source")]
    pub(crate) chart: Option<String>,
    /// A file with values for the chart; later ones count more
    #[arg(long, value_name = "FILE")]
    values: Vec<PathBuf>,
    /// A single value for the chart
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The version of the chart, or a range
    #[arg(long, value_name = "VERSION")]
    chart_version: Option<String>,
}

impl ChartArgs {
    /// Refuses what only a chart can have where there is none.
    pub(crate) fn check(&self) -> Result<(), CommandError> {
        let flags = [
            ("--values", !self.values.is_empty()),
            ("--set", !self.set.is_empty()),
            ("--chart-version", self.chart_version.is_some()),
        ];
        match flags.into_iter().find(|(_, given)| *given && self.chart.is_none()) {
            Some((flag, _)) => Err(CommandError::input(format!("{flag} needs --chart <REF>"))),
            None => Ok(()),
        }
    }
}

/// A chart as it was rendered, with the kinds of the cluster that were read for it.
pub(crate) struct FromChart {
    pub(crate) manifests: Vec<Manifest>,
    pub(crate) notes: Vec<Note>,
    pub(crate) catalog: Catalog,
}

/// Renders a chart with `helm template` for the version and kinds of the cluster.
pub(crate) async fn render(
    session: &Session,
    args: &ChartArgs,
    reference: &str,
    release: &ReleaseName,
    connection: &Connection,
) -> Result<FromChart, CommandError> {
    let cluster = &connection.cluster;
    let (kube_version, catalog) = tokio::try_join!(cluster.version(), cluster.catalog())?;
    let capabilities = Capabilities::of(kube_version, &catalog);
    let folder = session.path(Path::new(reference));
    let source = Source::Reference {
        reference: if folder.exists() { folder.display().to_string() } else { reference.to_owned() },
        version: args.chart_version.clone(),
    };
    let values_files: Vec<_> = args.values.iter().map(|file| session.path(file)).collect();
    let (name, namespace) = (release.name(), release.namespace());
    let release =
        billhook_charts::Release { name, namespace, values: None, values_files: &values_files, set: &args.set };
    let helm = session.tool("BILLHOOK_HELM", "helm");
    let rendered = billhook_charts::template(&source.into(), &release, Some(&capabilities), &helm).await?;
    let notes = notes(&rendered);
    Ok(FromChart { manifests: rendered.manifests, notes, catalog })
}

/// What becomes of the chart's hooks and tests.
fn notes(rendered: &Rendered) -> Vec<Note> {
    let note = |key: &ObjectKey, what: &str| Note {
        severity: Severity::Info,
        code: NoteCode::Hook,
        message: format!("{key} {what}"),
        object: Some(key.clone()),
        counts: Vec::new(),
    };
    let deployed =
        rendered.hooks_deployed.iter().map(|key| note(key, "is a hook of the chart, deployed as a plain object"));
    let hooks = rendered.hooks_left_out.iter().map(|key| note(key, "is a hook of the chart that is left out"));
    let tests = rendered.tests_left_out.iter().map(|key| note(key, "is a test of the chart and is left out"));
    deployed.chain(hooks).chain(tests).collect()
}
