//! The actors of a rehearsal: stand-ins for the controllers, kubelets and holders of Leases of the cluster, as alive as these.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use billhook_explain::{Custodian, Finding, ObjectRef, ResponsibleState, is_lease_fresh};
use billhook_objects::{GroupKind, wellknown};
use billhook_sandbox::{
    ControllerSet, Sandbox, User,
    actors::{self, Script},
};
use jiff::{SignedDuration, Timestamp};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
    discovery::ApiResource,
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use super::Controller;

/// How long a controller takes for each object: the copy does not tell.
pub(crate) const PACE: Duration = Duration::from_secs(1);
/// How often Leases are renewed.
const RENEWAL: Duration = Duration::from_secs(10);

/// The finalizers that the sandbox removes itself, like Kubernetes.
const SANDBOX: [&str; 5] = [
    wellknown::CRD_CLEANUP_FINALIZER,
    wellknown::FOREGROUND_FINALIZER,
    wellknown::ORPHAN_FINALIZER,
    "kubernetes.io/pv-protection",
    "kubernetes.io/pvc-protection",
];
/// The controllers that the sandbox runs, if the cluster's controller manager works. Those of workloads create Pods, which do not run.
const CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,persistentvolume-protection-controller,\
                           persistentvolumeclaim-protection-controller,serviceaccount-controller";

/// Who removes a finalizer.
pub(super) struct Role {
    custodian: Custodian,
    kind: GroupKind,
    /// The UIDs of the objects that it can finish.
    uids: BTreeSet<String>,
}

impl Role {
    pub(super) fn new(custodian: Custodian, stuck: &BTreeSet<String>) -> Self {
        let kind = custodian.objects.first().map_or_else(|| GroupKind::new("", ""), ObjectRef::group_kind);
        let uids = custodian.objects.iter().filter_map(|object| object.uid.as_ref()).map(|uid| uid.as_str().to_owned());
        let uids = uids.filter(|uid| !stuck.contains(uid)).collect();
        Self { custodian, kind, uids }
    }

    /// Returns whether an actor plays it: the controller works, or nothing shows that it does not.
    fn is_played(&self) -> bool {
        let works = matches!(self.custodian.state, ResponsibleState::Working | ResponsibleState::Unknown);
        self.custodian.name.is_some() && works
    }

    pub(super) fn shown(&self) -> Controller {
        Controller {
            finalizer: self.custodian.finalizer.clone(),
            kind: self.kind.to_string(),
            objects: self.custodian.objects.len(),
            name: self.custodian.name.clone(),
            played: self.is_played() || self.is_own(),
            problem: self.custodian.problem.clone(),
        }
    }

    fn is_own(&self) -> bool {
        SANDBOX.contains(&self.custodian.finalizer.as_str())
    }

    /// Returns what an actor does, if one plays this role. `accounts` has the namespaces and names of ServiceAccounts.
    fn script(&self, accounts: &BTreeSet<(&str, &str)>) -> Option<Script> {
        if !self.is_played() || self.is_own() {
            return None;
        }
        let mut needs = Vec::new();
        if let Some(workload) = &self.custodian.workload {
            needs.push(written(workload));
        }
        if let Some((namespace, name)) = &self.custodian.account {
            // Without a token, nobody can act as it.
            if accounts.contains(&(namespace.as_str(), name.as_str())) {
                needs.push(format!("ServiceAccount/{namespace}/{name}"));
            }
        }
        Some(Script::RemoveFinalizer {
            kind: self.kind.to_string(),
            finalizer: self.custodian.finalizer.clone(),
            after: PACE,
            while_exists: needs,
        })
    }
}

fn written(object: &ObjectRef) -> String {
    let namespace = object.namespace.as_ref().map(|name| format!("{name}/")).unwrap_or_default();
    format!("{}/{namespace}{}", object.group_kind(), object.name)
}

/// Returns the UID of an object that its controller cannot finish: what it reports will not change in the rehearsal.
pub(super) fn stuck(finding: &Finding) -> Option<String> {
    let is_own = finding.root_cause.as_ref().is_some_and(|root| root.object.is_same(&finding.object));
    let uid = finding.object.uid.as_ref().filter(|_| finding.is_blocked() && is_own)?;
    Some(uid.as_str().to_owned())
}

/// Returns the controllers that run: none if the controller manager has stopped to renew its Lease. A hosted one has none.
pub(super) fn control_plane(objects: &[Value], now: Timestamp) -> ControllerSet {
    let is_own = |object: &&Value| {
        object["kind"] == "Lease"
            && object["metadata"]["namespace"] == "kube-system"
            && object["metadata"]["name"] == "kube-controller-manager"
    };
    match objects.iter().find(is_own).and_then(|lease| is_lease_fresh(lease, now)) {
        Some(false) => ControllerSet::none(),
        _ => CONTROLLERS.parse().unwrap_or_else(|_| ControllerSet::all()),
    }
}

/// What actors are started with.
#[derive(Clone, Copy)]
pub(super) struct Stage<'a> {
    pub(super) objects: &'a [Value],
    pub(super) now: Timestamp,
    /// Whether the rights of controllers are known.
    pub(super) has_roles: bool,
}

/// Starts the actors.
pub(super) fn start(sandbox: &Sandbox, cast: &[Role], stage: Stage<'_>, acting: &mut JoinSet<()>) {
    let Stage { objects, now, has_roles } = stage;
    let accounts = objects.iter().filter(|object| object["kind"] == "ServiceAccount" && object["apiVersion"] == "v1");
    let accounts = accounts.map(|object| (text(&object["metadata"], "namespace"), text(&object["metadata"], "name")));
    let accounts = accounts.collect();
    for role in cast {
        let Some(script) = role.script(&accounts) else { continue };
        let account = role.custodian.account.as_ref().filter(|_| has_roles);
        let (client, uids) = (super::clients::controller(sandbox, account), role.uids.clone());
        let is_mine = move |object: &DynamicObject| object.uid().is_some_and(|uid| uids.contains(&uid));
        acting.spawn(actors::run(client, script, is_mine));
    }
    let client = sandbox.client(User::admin(), "node");
    let nodes = objects.iter().filter(|object| object["kind"] == "Node" && object["apiVersion"] == "v1");
    for node in nodes.filter(|node| is_ready(node)) {
        let node = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        acting.spawn(actors::run(client.clone(), Script::StopPods { node, after: PACE }, |_| true));
    }
    acting.spawn(renew(sandbox.clone(), held(objects, now), now));
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Renews the Leases that were renewed when they were copied. That of a controller is renewed as long as its workload exists.
async fn renew(sandbox: Sandbox, leases: Vec<Held>, start: Timestamp) {
    let (client, begun) = (sandbox.client(User::admin(), "holder"), Instant::now());
    loop {
        tokio::time::sleep(RENEWAL).await;
        let elapsed = SignedDuration::try_from(begun.elapsed()).unwrap_or_default();
        let now = start.checked_add(elapsed).unwrap_or(start).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        for lease in &leases {
            let lives = lease
                .workload
                .as_ref()
                .is_none_or(|(plural, namespace, name)| sandbox.object("apps", plural, namespace, name).is_some());
            if lives {
                let patch = Patch::Merge(json!({"spec": {"renewTime": now}}));
                // One that was deleted needs no renewal.
                let _gone = api(&client, &lease.namespace).patch(&lease.name, &PatchParams::default(), &patch).await;
            }
        }
    }
}

/// A Lease, and the workload whose Pod holds it: its plural, namespace and name.
struct Held {
    namespace: String,
    name: String,
    workload: Option<(String, String, String)>,
}

/// Returns the Leases that are renewed.
fn held(objects: &[Value], now: Timestamp) -> Vec<Held> {
    let leases = objects.iter().filter(|object| object["kind"] == "Lease" && is_lease_fresh(object, now) == Some(true));
    let mut workloads: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for object in objects {
        let plural = match text(object, "kind") {
            "DaemonSet" => "daemonsets",
            "Deployment" => "deployments",
            "StatefulSet" => "statefulsets",
            _ => continue,
        };
        let metadata = &object["metadata"];
        workloads.entry(text(metadata, "namespace")).or_default().push((plural, text(metadata, "name")));
    }
    leases
        .map(|lease| {
            let namespace = text(&lease["metadata"], "namespace");
            let near = workloads.get(namespace).map(Vec::as_slice).unwrap_or_default();
            let workload = workload(near, text(&lease["spec"], "holderIdentity"));
            let workload = workload.map(|(plural, name)| (plural.to_owned(), namespace.to_owned(), name.to_owned()));
            Held { namespace: namespace.to_owned(), name: text(&lease["metadata"], "name").to_owned(), workload }
        })
        .collect()
}

/// Returns which of these workloads has the Pod that holds a Lease: the one with the longest name that begins it.
fn workload<'a>(workloads: &[(&'a str, &'a str)], holder: &str) -> Option<(&'a str, &'a str)> {
    let is_holder =
        |name: &str| holder == name || holder.strip_prefix(name).is_some_and(|rest| rest.starts_with(['-', '_']));
    workloads.iter().filter(|(_, name)| is_holder(name)).max_by_key(|(_, name)| name.len()).copied()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn api(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "coordination.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "coordination.k8s.io/v1".to_owned(),
        kind: "Lease".to_owned(),
        plural: "leases".to_owned(),
    };
    Api::namespaced_with(client.clone(), namespace, &resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_held_by_the_pods_of_workloads() {
        let workloads = [("deployments", "shop"), ("statefulsets", "shop-db"), ("daemonsets", "shopper")];
        let check = |holder: &str, expected: Option<&str>| {
            assert_eq!(workload(&workloads, holder).map(|(_, name)| name), expected, "{holder}");
        };
        check("shop", Some("shop"));
        check("shop-7d4b9f6c5-x2v8k_5d7c", Some("shop"));
        check("shop-db-0", Some("shop-db"));
        check("shop_1", Some("shop"));
        check("shopping", None);
        check("other-shop-0", None);
        check("", None);
    }
}
