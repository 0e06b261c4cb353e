//! SIGKILL at random moments of installs, updates and deletions: the end is the one of an undisturbed run.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use billhook_testkit::control_plane::Options;
use futures::StreamExt as _;
use kube::api::{DeleteParams, ListParams};
use tokio::time::timeout;

use crate::{
    controller::Controller,
    world::{NAMESPACE, Random, World, next},
};

const ITEMS: usize = 100;
/// How often the controller is killed in each of the three stages: 50 times in all.
const KILLS: [usize; 3] = [17, 17, 16];
/// It is killed at the latest after so many changes.
const LATEST: u64 = 20;
/// How long nothing changes when all is done.
const QUIET: Duration = Duration::from_secs(5);

pub async fn test() -> Result<()> {
    let world = World::start(&Options::default()).await?;
    let mut random = Random::seeded();
    for index in 0..ITEMS {
        world.apply(&format!("item-{index}"), &first(index)).await?;
    }
    let killed = disturbed(&world, &mut random, KILLS[0]).await?;
    ensure!(world.deployed().await? == all(first), "the end of the installs is not the one of an undisturbed run");
    for index in 0..ITEMS {
        world.apply(&format!("item-{index}"), &second(index)).await?;
    }
    let killed = killed + disturbed(&world, &mut random, KILLS[1]).await?;
    ensure!(world.deployed().await? == all(second), "the end of the updates is not the one of an undisturbed run");
    for index in 0..ITEMS {
        world.items().delete(&format!("item-{index}"), &DeleteParams::default()).await?;
    }
    let killed = killed + disturbed(&world, &mut random, KILLS[2]).await?;
    ensure!(world.items().list(&ListParams::default()).await?.items.is_empty(), "an item is left");
    ensure!(world.deployed().await?.is_empty(), "an object of an item is left");
    ensure!(world.records().await? == 0, "a record is left");
    ensure!(killed == KILLS.iter().sum::<usize>(), "the work was over after {killed} kills");
    Ok(())
}

/// Runs the controller again and again, killed after a random number of changes, then undisturbed until all is done.
async fn disturbed(world: &World, random: &mut Random, kills: usize) -> Result<usize> {
    let flags = ["--watch-namespace", NAMESPACE];
    let mut killed = 0;
    while killed < kills && !world.all_succeeded().await? {
        let mut changes = world.changes().await?;
        let controller = Controller::start(&world.plane.kubeconfig_path(), &flags)?;
        for _ in 0..=random.below(LATEST) {
            // Where nothing changes for a while, it has done all that there was to do.
            if timeout(QUIET, changes.next()).await.is_err() {
                break;
            }
        }
        drop(controller);
        killed += 1;
    }
    let mut changes = world.changes().await?;
    let _controller = Controller::start(&world.plane.kubeconfig_path(), &flags)?;
    while !world.all_succeeded().await? {
        next(world, &mut changes).await?;
    }
    Ok(killed)
}

/// What an item deploys first.
fn first(index: usize) -> BTreeMap<String, String> {
    ["a", "b", "c"].map(|name| (format!("i{index}-{name}"), "1".to_owned())).into()
}

/// What it deploys then: one object less, one more, the others in another version.
fn second(index: usize) -> BTreeMap<String, String> {
    ["b", "c", "d"].map(|name| (format!("i{index}-{name}"), "2".to_owned())).into()
}

fn all(of: impl Fn(usize) -> BTreeMap<String, String>) -> BTreeMap<String, String> {
    (0..ITEMS).flat_map(of).collect()
}
