//! Tests two replicas whose leader is frozen during its work: the other one takes over, and the first one must not write
//! after it resumes. The API server's audit log is the evidence.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use crate::{
    controller::Controller,
    leaders::{audited, holder, late_writes, user},
    world::{NAMESPACE, World, next},
};

/// The number of objects of the item; the leader is frozen after some of them.
const OBJECTS: usize = 1_500;
/// The Lease of both replicas.
const LEASE: &str = "billhook-controller";
pub async fn test() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (options, log) = audited(folder.path())?;
    let world = World::start(&options).await?;
    let [first, second] = [user(&world, folder.path(), "one").await?, user(&world, folder.path(), "two").await?];
    let maps = |version: &str| -> BTreeMap<String, String> {
        (0..OBJECTS).map(|n| (format!("m{n}"), version.to_owned())).collect()
    };
    let flags =
        |identity| ["--watch-namespace", NAMESPACE, "--leader-election-namespace", NAMESPACE, "--identity", identity];

    let one = Controller::start(&first, &flags("one"))?;
    holder(&world, LEASE, "one").await?;
    let _two = Controller::start(&second, &flags("two"))?;
    let mut changes = world.changes().await?;
    world.apply("item", &maps("1")).await?;
    // The item itself changes first, then its objects.
    while world.deployed().await?.is_empty() {
        next(&world, &mut changes).await?;
    }
    one.freeze()?;
    let done = world.deployed().await?.len();
    ensure!(done < OBJECTS, "the leader was frozen too late: all {OBJECTS} objects exist");
    holder(&world, LEASE, "two").await?;
    one.thaw()?;
    while !world.all_succeeded().await? {
        next(&world, &mut changes).await?;
    }
    world.apply("item", &maps("2")).await?;
    while !world.all_succeeded().await? {
        next(&world, &mut changes).await?;
    }
    ensure!(world.deployed().await? == maps("2"), "not all objects have their second version");
    drop(one);
    let late = late_writes(&log)?;
    ensure!(late.is_empty(), "the frozen leader wrote while another replica was the leader: {late:?}");
    Ok(())
}
