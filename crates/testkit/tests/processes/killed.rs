//! Tests SIGKILL at random moments of installs, updates and deletions: the result must be that of an undisturbed run.

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
/// The number of kills in each of the three stages, 50 in total.
const KILLS: [usize; 3] = [17, 17, 16];
/// The maximum number of changes before a kill.
const LATEST: u64 = 20;
/// The time without changes after which the work is complete.
const QUIET: Duration = Duration::from_secs(5);

pub async fn test() -> Result<()> {
    let world = World::start(&Options::default()).await?;
    let mut random = Random::seeded();
    for index in 0..ITEMS {
        world.apply(&format!("item-{index}"), &first(index)).await?;
    }
    let killed = disturbed(&world, &mut random, KILLS[0]).await?;
    ensure!(world.deployed().await? == all(first), "the installed objects differ from those of an undisturbed run");
    for index in 0..ITEMS {
        world.apply(&format!("item-{index}"), &second(index)).await?;
    }
    let killed = killed + disturbed(&world, &mut random, KILLS[1]).await?;
    ensure!(world.deployed().await? == all(second), "the updated objects differ from those of an undisturbed run");
    for index in 0..ITEMS {
        world.items().delete(&format!("item-{index}"), &DeleteParams::default()).await?;
    }
    let killed = killed + disturbed(&world, &mut random, KILLS[2]).await?;
    ensure!(world.items().list(&ListParams::default()).await?.items.is_empty(), "an item remains");
    ensure!(world.deployed().await?.is_empty(), "an object of an item remains");
    ensure!(world.records().await? == 0, "a record remains");
    ensure!(killed == KILLS.iter().sum::<usize>(), "the work was complete after {killed} kills");
    Ok(())
}

/// Runs the controller repeatedly, each time killed after a random number of changes, then undisturbed until it is done.
async fn disturbed(world: &World, random: &mut Random, kills: usize) -> Result<usize> {
    let flags = ["--watch-namespace", NAMESPACE];
    let mut killed = 0;
    while killed < kills && !world.all_succeeded().await? {
        let mut changes = world.changes().await?;
        let controller = Controller::start(&world.plane.kubeconfig_path(), &flags)?;
        for _ in 0..=random.below(LATEST) {
            // If nothing changes for some time, the work is complete.
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

/// The first version of an item.
fn first(index: usize) -> BTreeMap<String, String> {
    ["a", "b", "c"].map(|name| (format!("i{index}-{name}"), "1".to_owned())).into()
}

/// The second version: without one object, with a new one, and with changes of the others.
fn second(index: usize) -> BTreeMap<String, String> {
    ["b", "c", "d"].map(|name| (format!("i{index}-{name}"), "2".to_owned())).into()
}

fn all(of: impl Fn(usize) -> BTreeMap<String, String>) -> BTreeMap<String, String> {
    (0..ITEMS).flat_map(of).collect()
}
