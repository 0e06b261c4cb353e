//! Tests two processes that watch one payload: only the leader writes, the other one takes over when the first is frozen or
//! ends, and each applies what the folder contains then.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use futures::{Stream, StreamExt as _};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::{
    controller::Controller,
    leaders::{audited, holder, late_writes, user},
    world::{NAMESPACE, World},
};

/// The objects of the payload, which are applied one after another; the leader is frozen after some of them.
const OBJECTS: usize = 2_000;
const LEASE: &str = "billhook-payload-payload";
/// The time limit for any change: the Lease of a frozen leader is taken over after 15 s.
const PATIENCE: Duration = Duration::from_secs(90);

pub async fn test() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (options, log) = audited(folder.path())?;
    let world = World::start(&options).await?;
    let users = [user(&world, folder.path(), "one").await?, user(&world, folder.path(), "two").await?];
    for version in ["1", "2", "3"] {
        write(&folder.path().join(version), version)?;
    }
    let current = folder.path().join("current");
    point(&current, "1")?;
    let logs = ["one.log", "two.log"].map(|name| folder.path().join(name));
    let payload = current.display().to_string();
    // What happens within the test follows from changes, not from the interval.
    let line = ["payload", "apply", &payload, "--version", "1.0.0", "--watch=1h", "-n", NAMESPACE];
    let mut changes = world.changes().await?;

    let one = Controller::logged(&users[0], &line, &logs[0])?;
    let first = holder(&world, LEASE, &format!("_{}_", one.id())).await?;
    let mut two = Controller::logged(&users[1], &line, &logs[1])?;
    told(&logs[1], &format!("standing by: {first} is the leader (Lease {NAMESPACE}/{LEASE})")).await?;
    while world.deployed().await?.is_empty() {
        next(&mut changes).await?;
    }
    one.freeze()?;
    let done = world.deployed().await?.len();
    ensure!(done < OBJECTS, "the leader was frozen too late: all {OBJECTS} objects exist");
    let second = holder(&world, LEASE, &format!("_{}_", two.id())).await?;
    deployed(&world, &mut changes, "1").await?;
    one.thaw()?;
    told(&logs[0], &format!("standing by: {second} is the leader")).await?;
    point(&current, "2")?;
    deployed(&world, &mut changes, "2").await?;
    let late = late_writes(&log)?;
    ensure!(late.is_empty(), "the frozen leader wrote while another process led: {late:?}");

    two.terminate()?;
    let ended = async {
        loop {
            if let Some(exit) = two.ended()? {
                return anyhow::Ok(exit);
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let exit = timeout(PATIENCE, ended).await.context("it did not end after SIGTERM")??;
    ensure!(exit == Some(0), "it ended with {exit:?} after SIGTERM: {}", read(&logs[1])?);
    // Much sooner than the Lease would expire, had it not been released.
    timeout(Duration::from_secs(8), holder(&world, LEASE, &first)).await.context("the Lease was not released")??;
    point(&current, "3")?;
    deployed(&world, &mut changes, "3").await?;
    for path in &logs {
        let text = read(path)?;
        ensure!(text.matches("standing by").count() == 1, "it was not told once who leads: {text}");
    }
    Ok(())
}

/// Writes a payload with ConfigMaps of a version.
fn write(folder: &Path, version: &str) -> Result<()> {
    let map = |n: usize| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": format!("m{n}"), "namespace": NAMESPACE,
                "annotations": {"include.release.openshift.io/self-managed-high-availability": "true"},
            },
            "data": {"version": version},
        })
        .to_string()
    };
    std::fs::create_dir(folder)?;
    let maps: Vec<String> = (0..OBJECTS).map(map).collect();
    Ok(std::fs::write(folder.join("0000_10_shop_01_maps.yaml"), maps.join("\n---\n"))?)
}

/// Points the link to another version, in one step.
fn point(link: &PathBuf, version: &str) -> Result<()> {
    let aside = link.with_extension("aside");
    std::os::unix::fs::symlink(version, &aside)?;
    Ok(std::fs::rename(aside, link)?)
}

/// Waits until all objects have a version.
async fn deployed(world: &World, changes: &mut (impl Stream<Item = ()> + Unpin), version: &str) -> Result<()> {
    let expected: BTreeMap<_, _> = (0..OBJECTS).map(|n| (format!("m{n}"), version.to_owned())).collect();
    while world.deployed().await? != expected {
        next(changes).await.with_context(|| format!("not all objects have version {version}"))?;
    }
    Ok(())
}

async fn next(changes: &mut (impl Stream<Item = ()> + Unpin)) -> Result<()> {
    timeout(PATIENCE, changes.next()).await.context("nothing changes any more")?.context("the watch has ended")
}

/// Waits until a process has told something.
async fn told(log: &Path, text: &str) -> Result<()> {
    let told = async {
        while !read(log)?.contains(text) {
            sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    let told = timeout(PATIENCE, told).await;
    told.with_context(|| format!("{text:?} was not told: {}", read(log).unwrap_or_default()))?
}

fn read(log: &Path) -> Result<String> {
    Ok(std::fs::read_to_string(log)?)
}
