//! Two processes of which one leads: who holds the Lease, and who wrote what by the API server's audit log.

use std::{
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

use crate::world::{World, at};

const POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

/// Returns the options of a control plane with an audit log, and the path of the log.
pub fn audited(folder: &Path) -> Result<(Options, PathBuf)> {
    let (policy, log) = (folder.join("policy.yaml"), folder.join("audit.log"));
    std::fs::write(&policy, POLICY)?;
    let options = Options::default()
        .api_server_flag(format!("--audit-policy-file={}", policy.display()))
        .api_server_flag(format!("--audit-log-path={}", log.display()));
    Ok((options, log))
}

/// Waits until a Lease is held by an identity that contains this text, and returns the identity.
pub async fn holder(world: &World, name: &str, part: &str) -> Result<String> {
    // A watch from version 0 starts with the existing objects.
    let mut leases = world.leases().watch(&WatchParams::default().timeout(280), "0").await?.boxed();
    while let Some(event) = leases.next().await {
        let (WatchEvent::Added(lease) | WatchEvent::Modified(lease)) = event? else { continue };
        let holder = at(&lease, "/spec/holderIdentity").as_str().unwrap_or_default();
        if lease.metadata.name.as_deref() == Some(name) && holder.contains(part) {
            return Ok(holder.to_owned());
        }
    }
    bail!("{part} did not acquire the Lease {name}")
}

/// Returns a kubeconfig that impersonates a user of this name with all permissions, to identify it in the audit log.
pub async fn user(world: &World, folder: &Path, name: &str) -> Result<PathBuf> {
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

/// Returns the writes of the user `one`, the first leader, after the user `two` acquired the Lease, except those of the Lease.
pub fn late_writes(log: &Path) -> Result<Vec<String>> {
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
