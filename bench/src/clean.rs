//! The cleaning of a cluster: thousands of custom resources of many kinds, in one stage.
//!
//! The floor knows the kinds: it lists the metadata of each once, deletes all objects, 32 at a time, and watches each kind until
//! all of its objects are gone.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use kube::api::PostParams;
use kube::core::Request;
use serde_json::json;

use crate::audit::{Log, Sender};
use crate::cases::{Case, Sizes};
use crate::counting::{own_count, section};
use crate::floor::{self, IN_FLIGHT, Scope};
use crate::lab::Lab;
use crate::samples::{Contender, Samples};
use crate::timing::settle;
use crate::{Options, progress, workload};

/// The number of kinds.
const KINDS: usize = 30;
/// Their API group.
const GROUP: &str = "clean.bench.billhook.dev";
/// The namespace of all objects.
const NAMESPACE: &str = "clean";

/// The arguments of the floor.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The cluster
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
}

/// Runs the floor.
pub(crate) async fn run(args: &Args) -> Result<()> {
    let client = floor::client(&args.kubeconfig, floor::AGENT).await?;
    let lists = future::try_join_all((0..KINDS).map(|kind| floor::list(&client, scope(kind)))).await?;
    let items = lists.iter().flat_map(|(scope, list)| list.items.iter().map(move |item| (scope, &item.metadata)));
    let deletes = items.map(|(scope, meta)| floor::send_delete(&client, scope.path.clone(), meta));
    let deletes = stream::iter(deletes).buffer_unordered(IN_FLIGHT).try_for_each(future::ok);
    let watches = lists.iter().map(|(scope, list)| floor::until_gone(&client, scope, list));
    future::try_join(deletes, future::try_join_all(watches)).await.map(drop)
}

fn path(kind: usize) -> String {
    format!("/apis/{GROUP}/v1/namespaces/{NAMESPACE}/part{kind:02}s")
}

fn scope(kind: usize) -> Scope {
    Scope { path: path(kind), labels: String::new() }
}

/// Runs the floor and billhook in turn.
pub(crate) async fn time(
    lab: &Lab,
    options: &Options,
    selected: &[Case],
    sizes: &Sizes,
    program: Option<&Path>,
    samples: &mut Samples,
) -> Result<()> {
    if !selected.contains(&Case::Clean) {
        return Ok(());
    }
    define(lab).await?;
    for run in 0..options.runs {
        create(lab, sizes).await?;
        settle().await;
        samples.take(Case::Clean, false, Contender::Floor, run, &lab.floor_clean().await?);
        expect(lab, 0).await?;
        let Some(program) = program else { continue };
        create(lab, sizes).await?;
        settle().await;
        match lab.billhook(program, arguments(lab)?, false).await {
            Ok(ended) => samples.take(Case::Clean, false, Contender::Billhook, run, &ended),
            Err(error) => samples.fail(format!("clean (run {}): {error:#}", run + 1)),
        }
        expect(lab, 0).await?;
    }
    Ok(())
}

/// Counts the requests of a cleaning.
pub(crate) async fn count(
    lab: &Lab,
    log: &mut Log,
    selected: &[Case],
    sizes: &Sizes,
    program: &Path,
    samples: &mut Samples,
) -> Result<()> {
    if !selected.contains(&Case::Clean) {
        return Ok(());
    }
    progress("counting the requests of clean");
    define(lab).await?;
    create(lab, sizes).await?;
    log.skip()?;
    let mut args = arguments(lab)?;
    args.extend(["-o", "json"].map(OsString::from));
    let ended = lab.billhook(program, args, false).await?;
    let (section, own) = (section(log).await?, own_count(&ended.stdout));
    samples.count_of(Case::Clean, Contender::Billhook, &section, Sender::Billhook, own);
    expect(lab, 0).await
}

/// Creates the CRDs, and waits until their kinds are served.
async fn define(lab: &Lab) -> Result<()> {
    lab.namespaces(&[NAMESPACE]).await?;
    let definition = |kind| workload::crd(GROUP, &format!("Part{kind:02}"), "Namespaced", &workload::any());
    lab.define((0..KINDS).map(|kind| (definition(kind), path(kind)))).await
}

/// Creates the objects, distributed evenly over the kinds.
async fn create(lab: &Lab, sizes: &Sizes) -> Result<()> {
    let creations = (0..sizes.clean).map(|number| async move {
        let kind = number % KINDS;
        let object = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": format!("Part{kind:02}"),
            "metadata": {"name": format!("part-{number:05}"), "namespace": NAMESPACE},
            "spec": {"number": number},
        });
        let request = Request::new(path(kind)).create(&PostParams::default(), serde_json::to_vec(&object)?)?;
        lab.client.request_text(request).await.map(drop).context("failed to create an object")
    });
    stream::iter(creations).buffer_unordered(IN_FLIGHT).try_for_each(future::ok).await?;
    expect(lab, sizes.clean).await
}

async fn expect(lab: &Lab, count: usize) -> Result<()> {
    let lists = future::try_join_all((0..KINDS).map(|kind| floor::list(&lab.client, scope(kind)))).await?;
    let there: usize = lists.iter().map(|(_, list)| list.items.len()).sum();
    ensure!(there == count, "expected {count} objects, found {there}");
    Ok(())
}

/// Returns the arguments that clean the kinds, in one stage.
fn arguments(lab: &Lab) -> Result<Vec<OsString>> {
    let mut stages = "stages:\n- name: parts\n  finalizeAfter: 5m\n  resources:\n".to_owned();
    for kind in 0..KINDS {
        let _ = writeln!(stages, "  - {{apiVersion: {GROUP}/v1, kind: Part{kind:02}}}");
    }
    let file = lab.write("stages.yaml", &stages)?;
    let mut args = ["clean", "--confirm-cluster", "testbed", "-f"].map(OsString::from).to_vec();
    args.push(file.into_os_string());
    Ok(args)
}
