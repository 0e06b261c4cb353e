//! Tests shards that divide the items, each with its own Lease, and shards of different counts.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use billhook_deployer::Shard;
use billhook_testkit::control_plane::Options;
use futures::Stream;
use kube::{ResourceExt as _, api::ListParams};

use crate::{
    controller::Controller,
    leaders::holder,
    world::{NAMESPACE, World, at, next},
};

const ITEMS: usize = 10;

pub async fn test() -> Result<()> {
    let world = World::start(&Options::default()).await?;
    let mut changes = world.changes().await?;
    for n in 0..ITEMS {
        world.apply(&format!("item-{n}"), &BTreeMap::from([(format!("m{n}"), "1".to_owned())])).await?;
    }
    let kubeconfig = world.plane.kubeconfig_path();
    let start = |shard: &str| {
        let flags = ["--leader-election-namespace", NAMESPACE, "--identity", shard, "--shard", shard];
        Controller::start(&kubeconfig, &flags)
    };
    let _running = [start("0/2")?, start("1/2")?];
    while !world.all_succeeded().await? {
        next(&world, &mut changes).await?;
    }
    let items = world.items().list(&ListParams::default()).await?.items;
    ensure!(items.len() == ITEMS, "{} items", items.len());
    let mut seen = BTreeSet::new();
    for item in &items {
        let by = at(item, "/status/deployer/identity").as_str().unwrap_or_default();
        let shard: Shard = by.parse().map_err(anyhow::Error::msg)?;
        ensure!(shard.holds(NAMESPACE, &item.name_any()), "{} was handled by {by}", item.name_any());
        seen.insert(by.to_owned());
    }
    ensure!(seen.len() == 2, "only {seen:?} had work");
    let leases: BTreeSet<_> = world.leases().list(&ListParams::default()).await?.iter().map(|l| l.name_any()).collect();
    let expected = ["billhook-controller-0-of-2", "billhook-controller-1-of-2"].map(str::to_owned);
    ensure!(leases == BTreeSet::from(expected), "the Leases are {leases:?}");
    Ok(())
}

/// Shards of another count wait until those that work have ended, in order or not. At any time, each item is handled by its shard of
/// the count that works.
pub async fn counts() -> Result<()> {
    let world = World::start(&Options::default()).await?;
    let mut changes = world.changes().await?;
    let kubeconfig = world.plane.kubeconfig_path();
    let start = |shards: &[&str]| {
        let start = |shard: &&str| {
            let flags = ["--leader-election-namespace", NAMESPACE, "--identity", shard, "--shard", shard];
            Controller::start(&kubeconfig, &flags)
        };
        shards.iter().map(start).collect::<Result<Vec<_>>>()
    };
    let two = start(&["0/2", "1/2"])?;
    handled(&world, &mut changes, "1", 2).await?;
    let mut three = start(&["0/3", "1/3", "2/3"])?;
    // The others are running, and have to wait.
    for version in ["2", "3", "4"] {
        handled(&world, &mut changes, version, 2).await?;
    }
    for shard in &two {
        shard.terminate()?;
    }
    let holder = holder(&world, "billhook-controller-0-of-3", "0/3").await?;
    ensure!(holder == "0/3", "{holder}");
    drop(two);
    handled(&world, &mut changes, "5", 3).await?;
    let _one = start(&["0/1"])?;
    handled(&world, &mut changes, "6", 3).await?;
    // Their Leases are not released.
    for shard in &mut three {
        shard.kill()?;
    }
    handled(&world, &mut changes, "7", 1).await
}

/// Deploys a new version of all items, and checks that each was handled by its shard of this count.
async fn handled(
    world: &World,
    changes: &mut (impl Stream<Item = ()> + Unpin),
    version: &str,
    count: u32,
) -> Result<()> {
    for n in 0..ITEMS {
        world.apply(&format!("item-{n}"), &BTreeMap::from([(format!("m{n}"), version.to_owned())])).await?;
    }
    while !world.all_succeeded().await? {
        next(world, changes).await?;
    }
    for item in world.items().list(&ListParams::default()).await?.items {
        let by = at(&item, "/status/deployer/identity").as_str().unwrap_or_default();
        let shard: Shard = by.parse().map_err(anyhow::Error::msg)?;
        let name = item.name_any();
        ensure!(shard.holds(NAMESPACE, &name), "version {version}: {name} was handled by {by}");
        ensure!(by.ends_with(&format!("/{count}")), "version {version}: {name} was handled by {by} of another count");
    }
    Ok(())
}
