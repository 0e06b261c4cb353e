//! Renders the chart of the command line for its cluster.

use std::path::{Path, PathBuf};

use billhook_charts::{self as charts, Capabilities, Helm, Rendered};
use billhook_objects::{Catalog, Manifest, ObjectKey, ReleaseName, Source};
use billhook_plan::{HookTreatment, Note, NoteKind};
use clap::Args;

use crate::{connect::Connection, error::CommandError, session::Session};

/// The chart and its values.
#[derive(Debug, Args)]
pub(crate) struct ChartArgs {
    /// Deploy a chart: a directory, an archive, REPOSITORY/NAME or oci://…
    #[arg(long, value_name = "REF", group = "source")]
    pub(crate) chart: Option<String>,
    /// Read chart values from this file; can be repeated, and later files take precedence
    #[arg(long, value_name = "FILE")]
    values: Vec<PathBuf>,
    /// Set a single chart value; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Use this version of the chart, or the newest in this range [default: the newest]
    #[arg(long, value_name = "VERSION")]
    chart_version: Option<String>,
}

impl ChartArgs {
    /// Rejects flags that need a chart if none is given.
    pub(crate) fn check(&self) -> Result<(), CommandError> {
        let flags = [
            ("--values", !self.values.is_empty()),
            ("--set", !self.set.is_empty()),
            ("--chart-version", self.chart_version.is_some()),
        ];
        match flags.into_iter().find(|(_, given)| *given && self.chart.is_none()) {
            Some((flag, _)) => Err(CommandError::input(format!("{flag} requires --chart REF"))),
            None => Ok(()),
        }
    }
}

/// A rendered chart, and the kinds of the cluster that it was rendered for.
pub(crate) struct RenderedChart {
    pub(crate) manifests: Vec<Manifest>,
    pub(crate) notes: Vec<Note>,
    pub(crate) catalog: Catalog,
}

/// Renders a chart with `helm template`, for the version and kinds of the cluster.
pub(crate) async fn render(
    session: &Session,
    args: &ChartArgs,
    reference: &str,
    release: &ReleaseName,
    connection: &Connection,
) -> Result<RenderedChart, CommandError> {
    let cluster = &connection.cluster;
    let (kube_version, catalog) = tokio::try_join!(cluster.version(), cluster.catalog())?;
    let capabilities = Capabilities::of(kube_version, &catalog);
    let folder = session.path(Path::new(reference));
    let source = charts::Source::Reference {
        reference: if folder.exists() { folder.display().to_string() } else { reference.to_owned() },
        version: args.chart_version.clone(),
    };
    let values_files: Vec<_> = args.values.iter().map(|file| session.path(file)).collect();
    let (name, namespace) = (release.name(), release.namespace());
    let release = charts::Release { name, namespace, values: None, values_files: &values_files, set: &args.set };
    let helm = Helm::new(session.tool("BILLHOOK_HELM", "helm"));
    let rendered = charts::template(&source.into(), &release, Some(&capabilities), None, &helm).await?;
    if !rendered.not_objects.is_empty() {
        let line = |source: &Source| format!("{source}: the document has neither apiVersion nor kind");
        return Err(CommandError::input(rendered.not_objects.iter().map(line).collect::<Vec<_>>().join("\n")));
    }
    let notes = notes(&rendered);
    Ok(RenderedChart { manifests: rendered.manifests, notes, catalog })
}

/// Returns notes on what happens to the chart's hooks and tests.
fn notes(rendered: &Rendered) -> Vec<Note> {
    let all = [
        (&rendered.hooks_deployed, HookTreatment::Deployed),
        (&rendered.hooks_left_out, HookTreatment::LeftOut),
        (&rendered.tests_left_out, HookTreatment::TestLeftOut),
    ];
    let note = |object: &ObjectKey, treatment| NoteKind::Hook { object: object.clone(), treatment }.into();
    all.into_iter().flat_map(|(keys, treatment)| keys.iter().map(move |key| note(key, treatment))).collect()
}
