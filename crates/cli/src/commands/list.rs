//! `billhook list`: lists the releases of a namespace, or of all namespaces.

use billhook_cluster::ReleaseInfo;
use clap::Args;
use serde::Serialize;

use crate::{
    error::{CommandError, Exit},
    render::columns,
    session::Session,
};

/// List the releases of a namespace, or of all namespaces
#[derive(Debug, Args)]
pub(crate) struct List {
    /// List the releases of all namespaces
    #[arg(long, short = 'A')]
    all_namespaces: bool,
}

/// A release in `-o json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    namespace: String,
    phase: Option<String>,
    objects: usize,
    revision: u64,
    updated: Option<String>,
    /// How many objects its backup has.
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<usize>,
}

impl From<ReleaseInfo> for Row {
    fn from(info: ReleaseInfo) -> Self {
        Self {
            name: info.release.name().to_owned(),
            namespace: info.release.namespace().to_owned(),
            phase: info.phase.map(|phase| phase.to_string()),
            objects: info.objects,
            revision: info.revision,
            updated: info.updated,
            backup: info.backup,
        }
    }
}

/// Runs the command.
pub(crate) async fn run(session: &Session, args: List) -> Result<Exit, CommandError> {
    let connection = session.connection().await?;
    let namespace = (!args.all_namespaces).then_some(connection.namespace.as_str());
    let releases = connection.cluster.inventory().list(namespace).await?;
    let mut rows: Vec<Row> = releases.into_iter().map(Row::from).collect();
    rows.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let printer = &session.printer;
    if session.json() {
        printer.json(&rows);
    } else if rows.is_empty() {
        match namespace {
            Some(namespace) => printer.err(&format!("no releases in namespace {namespace}")),
            None => printer.err("no releases"),
        }
    } else {
        let mut table =
            vec![["NAMESPACE", "NAME", "PHASE", "OBJECTS", "REVISION", "UPDATED"].map(str::to_owned).to_vec()];
        table.extend(rows.into_iter().map(cells));
        columns(&table).iter().for_each(|line| printer.out(line));
    }
    Ok(Exit::Done)
}

fn cells(row: Row) -> Vec<String> {
    let unknown = || "?".to_owned();
    vec![
        row.namespace,
        row.name,
        row.phase.unwrap_or_else(unknown),
        row.objects.to_string(),
        row.revision.to_string(),
        row.updated.unwrap_or_else(unknown),
    ]
}
