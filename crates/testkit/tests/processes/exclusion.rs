//! Tests processes that apply and delete one release at the same time, and that are killed or frozen at random moments. No object
//! may be outside the record, and one more deletion must delete everything. `BILLHOOK_CASES` sets how many cases are played.

use std::{io::Write as _, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use billhook_cluster::{Cluster, Options as ClusterOptions};
use billhook_objects::ReleaseName;
use billhook_testkit::control_plane::Options;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api,
    api::{DynamicObject, ListParams, PostParams},
};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::{
    controller::Controller,
    world::{Random, World, kind},
};

const CASES: u64 = 50;
/// How many cases are played at once.
const AT_ONCE: usize = 4;
/// The objects of a version; half of them are also in the other version.
const OBJECTS: usize = 120;
/// The time limit of a process.
const PATIENCE: Duration = Duration::from_secs(150);

pub async fn test() -> Result<()> {
    let world = World::start(&Options::default()).await?;
    let folder = tempfile::tempdir()?;
    for version in 0..2 {
        let map = |n: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")}, "data": {"v": format!("{version}")}});
        let maps: Vec<_> = (0..OBJECTS).map(|n| map(n + version * OBJECTS / 2).to_string()).collect();
        std::fs::write(folder.path().join(format!("{version}.yaml")), maps.join("\n---\n"))?;
    }
    let cases = std::env::var("BILLHOOK_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    let mut seeds = Random::seeded();
    let seeds: Vec<u64> = (0..cases).map(|_| seeds.below(u64::MAX)).collect();
    let play = |(number, seed): (usize, u64)| {
        let (world, folder) = (&world, folder.path());
        async move { case(world, folder, number, seed).await.with_context(|| format!("case {number}, seed {seed}")) }
    };
    let played = stream::iter(seeds.into_iter().enumerate()).map(play).buffer_unordered(AT_ONCE);
    played
        .try_for_each(async |line| {
            let _ = writeln!(std::io::stderr(), "{line}");
            Ok(())
        })
        .await
}

async fn case(world: &World, folder: &Path, number: usize, seed: u64) -> Result<String> {
    let mut random = Random(seed);
    let namespace = format!("exclusion-{number}");
    let namespaces: Api<DynamicObject> =
        Api::all_with(world.client.clone(), &kind("", "v1", "Namespace", "namespaces"));
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    namespaces.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let mut plans = Vec::new();
    let mut lines = Vec::new();
    for _ in 0..2 + random.below(2) {
        let file = folder.join(format!("{}.yaml", random.below(2))).display().to_string();
        let mut line = match random.below(5) {
            0 | 1 => vec!["delete", "release", "--yes"],
            _ => vec!["apply", "release", "--wait=false", "--yes", "-f", &file],
        }
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
        line.extend(["-n".to_owned(), namespace.clone(), "--timeout".to_owned(), "100s".to_owned()]);
        if random.below(5) == 0 {
            line.push("--take-over".to_owned());
        }
        let start = Duration::from_millis(random.below(600));
        let after = Duration::from_millis(random.below(1_200));
        let trouble = match random.below(4) {
            0 => Trouble::Kill(after),
            1 => Trouble::Freeze(after, Duration::from_millis(random.below(3_000))),
            2 => Trouble::Freeze(after, Duration::from_secs(25 + random.below(15))),
            _ => Trouble::None,
        };
        lines.push(format!("{} {start:?} {trouble:?}", line[0]));
        plans.push((line, start, trouble));
    }
    let kubeconfig = world.plane.kubeconfig_path();
    let runs = plans.iter().map(|(line, start, trouble)| process(&kubeconfig, line, *start, *trouble));
    let exits = futures::future::try_join_all(runs).await?;

    let release = ReleaseName::new(&namespace, "release")?;
    let records = Cluster::from_client(world.client.clone(), ClusterOptions::default()).inventory();
    let stored = records.load(&release).await?;
    let known =
        |name: &String| stored.iter().flat_map(|stored| stored.inventory.entries.keys()).any(|key| key.name == *name);
    let forgotten: Vec<String> = labelled(world, &namespace).await?.into_iter().filter(|name| !known(name)).collect();
    let described = format!("case {number}, seed {seed}: {lines:?} ended with {exits:?}");
    ensure!(forgotten.is_empty(), "{described}: {forgotten:?} are in no record");
    let line = ["delete", "release", "--yes", "--take-over", "-n", &namespace].map(str::to_owned);
    let last = process(&kubeconfig, &line, Duration::ZERO, Trouble::None).await?;
    let expected = if stored.is_some() { 0 } else { 2 };
    ensure!(last == Some(expected), "{described}: the last deletion ended with {last:?}");
    let left = labelled(world, &namespace).await?;
    ensure!(left.is_empty(), "{described}: {left:?} remain");
    ensure!(records.load(&release).await?.is_none(), "{described}: the record remains");
    Ok(described)
}

/// What happens to a process, counted from its start.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    Kill(Duration),
    /// It is frozen at a time, for another time.
    Freeze(Duration, Duration),
}

/// Runs a process, and returns its exit code; none if it was killed.
async fn process(kubeconfig: &Path, line: &[String], start: Duration, trouble: Trouble) -> Result<Option<i32>> {
    sleep(start).await;
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let mut process = Controller::command(kubeconfig, &line)?;
    match trouble {
        Trouble::None => {}
        Trouble::Kill(after) => {
            sleep(after).await;
            process.kill()?;
        }
        Trouble::Freeze(after, time) => {
            sleep(after).await;
            process.freeze()?;
            sleep(time).await;
            process.thaw()?;
        }
    }
    let ended = async {
        loop {
            if let Some(exit) = process.ended()? {
                return anyhow::Ok(exit);
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, ended).await.with_context(|| format!("{line:?} did not end"))?
}

/// Returns the ConfigMaps with the label of a release.
async fn labelled(world: &World, namespace: &str) -> Result<Vec<String>> {
    let maps: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), namespace, &kind("", "v1", "ConfigMap", "configmaps"));
    let found = maps.list(&ListParams::default().labels("billhook.dev/release")).await?.items;
    Ok(found.into_iter().filter_map(|map| map.metadata.name).collect())
}
