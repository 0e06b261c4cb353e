//! Tests two replicas whose leader is frozen during its work: the other one takes over, and the first one must not write
//! after it resumes. The API server's audit log is the evidence.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use billhook_testkit::control_plane::Options;
use futures::StreamExt as _;
use kube::{
    Api,
    api::{PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};

use crate::{
    controller::Controller,
    world::{NAMESPACE, World, at, next},
};

/// The number of objects of the item; the leader is frozen after some of them.
const OBJECTS: usize = 1_500;
/// The Lease of both replicas.
const LEASE: &str = "billhook-controller";
const POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

pub async fn test() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    std::fs::write(&policy, POLICY)?;
    let options = Options::default()
        .api_server_flag(format!("--audit-policy-file={}", policy.display()))
        .api_server_flag(format!("--audit-log-path={}", log.display()));
    let world = World::start(&options).await?;
    let [first, second] = [user(&world, folder.path(), "one").await?, user(&world, folder.path(), "two").await?];
    let maps = |version: &str| -> BTreeMap<String, String> {
        (0..OBJECTS).map(|n| (format!("m{n}"), version.to_owned())).collect()
    };
    let flags =
        |identity| ["--watch-namespace", NAMESPACE, "--leader-election-namespace", NAMESPACE, "--identity", identity];

    let one = Controller::start(&first, &flags("one"))?;
    holder(&world, "one").await?;
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
    holder(&world, "two").await?;
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

/// Waits until the Lease has this holder.
async fn holder(world: &World, identity: &str) -> Result<()> {
    // A watch from version 0 starts with the existing objects.
    let mut leases = world.leases().watch(&WatchParams::default().timeout(280), "0").await?.boxed();
    while let Some(event) = leases.next().await {
        let (WatchEvent::Added(lease) | WatchEvent::Modified(lease)) = event? else { continue };
        if lease.metadata.name.as_deref() == Some(LEASE) && *at(&lease, "/spec/holderIdentity") == identity {
            return Ok(());
        }
    }
    bail!("{identity} did not acquire the Lease")
}

/// Returns a kubeconfig that impersonates a user of this name with all permissions, to identify it in the audit log.
async fn user(world: &World, folder: &Path, name: &str) -> Result<PathBuf> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    let bindings = Api::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>::all(world.client.clone());
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    let mut kubeconfig: Value = {
        let document = billhook_objects::yaml::parse(world.plane.kubeconfig())?.into_iter().next();
        document.context("a kubeconfig")?.value
    };
    let users = kubeconfig["users"].as_array_mut().context("users")?;
    for user in users {
        user["user"]["as"] = name.into();
    }
    let path = folder.join(name);
    std::fs::File::create(&path)?.write_all(kubeconfig.to_string().as_bytes())?;
    Ok(path)
}

/// Returns the writes of the first leader after the second acquired the Lease, except those of the Lease.
fn late_writes(log: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(log)?;
    let events: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let by = |event: &Value, user: &str| event["impersonatedUser"]["username"] == user;
    let write = |event: &Value| ["create", "update", "patch", "delete"].iter().any(|verb| event["verb"] == *verb);
    let lease = |event: &Value| event["objectRef"]["resource"] == "leases";
    let taken = events
        .iter()
        .find(|event| by(event, "two") && write(event) && lease(event) && event["responseStatus"]["code"] == 200);
    let taken = taken
        .and_then(|event| event["requestReceivedTimestamp"].as_str())
        .context("the second leader did not write the Lease")?;
    ensure!(
        events.iter().any(|event| by(event, "one") && write(event) && !lease(event)),
        "the first leader wrote nothing"
    );
    let late = events.iter().filter(|event| by(event, "one") && write(event) && !lease(event));
    let late = late.filter(|event| event["requestReceivedTimestamp"].as_str() > Some(taken));
    Ok(late.map(|event| format!("{} {}", event["verb"], event["requestURI"])).collect())
}
