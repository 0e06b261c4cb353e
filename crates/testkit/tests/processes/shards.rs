//! Tests two shards that divide the items, each with its own Lease.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use billhook_deployer::Shard;
use billhook_testkit::control_plane::Options;
use kube::{ResourceExt as _, api::ListParams};

use crate::{
    controller::Controller,
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
