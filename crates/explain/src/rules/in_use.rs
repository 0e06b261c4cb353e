//! A claim, volume, snapshot or configuration that is still used.
//!
//! Situations: 8.5, 8.7; 2.4 for a configuration with users.

use serde_json::Value;

use super::finalizers::{self, ATTACHED, CLAIM, CONFIGURATION, VOLUME, protects_what_is_used};
use crate::{
    Cause, Fact, ObjectRef, Reason, Responsible, ResponsibleState,
    case::{Case, Found, Priority},
    cause::Strength,
    kinds::{self, Builtin},
    object,
    rule::Held,
    steps,
};

/// How many users are named.
const NAMED: usize = 3;
pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let Some(value) = held.seen.value().filter(|value| object::is_deleting(value)) else { return Vec::new() };
    let own = object::finalizers(value).into_iter().filter(|finalizer| protects_what_is_used(finalizer));
    own.filter_map(|finalizer| cause(case, held, value, finalizer)).collect()
}

fn cause(case: &Case<'_>, held: &Held<'_>, value: &Value, finalizer: &str) -> Option<Cause> {
    let users = match finalizer {
        CLAIM => pods(case, held.object, value),
        VOLUME => claims(value),
        CONFIGURATION => counted(held.object, value),
        _ if finalizer.starts_with(ATTACHED) => attachments(case, held.object),
        _ => snapshots(case, held.object, value, finalizer),
    };
    // Nobody uses it: then it is for the finalizer's controller to act.
    let is_partial = users.as_ref().is_some_and(|users| users.is_partial);
    let Some(users) = users.filter(|users| !users.names.is_empty()) else {
        let mut cause = finalizers::cause(case, held.object, value, finalizer);
        // What was not read may use it.
        cause.strength = if is_partial { Strength::Possible } else { cause.strength };
        return Some(cause);
    };
    let mut by = users.names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if users.names.len() > NAMED {
        by = format!("{by} and {} more", users.names.len() - NAMED);
    }
    let there = Fact::new(held.object, "metadata.finalizers", finalizer);
    let reason = Reason::InUse { by: by.clone() };
    let cause = Cause::new(held.object, reason, Strength::Proven).evidence([there]).evidence(users.facts);
    let party = Responsible::new(users.names.first().cloned().unwrap_or_default(), ResponsibleState::Working);
    Some(cause.responsible(party).steps(steps::end_use(&by)).waits_for(users.waits_for))
}

#[derive(Default)]
struct Users {
    names: Vec<String>,
    facts: Vec<Fact>,
    waits_for: Vec<ObjectRef>,
    /// Whether not all that may use it was read.
    is_partial: bool,
}

impl Users {
    fn add(&mut self, user: ObjectRef, path: &str, value: impl Into<String>, is_deleting: bool) {
        self.names.push(user.to_string());
        self.facts.push(Fact::new(&user, path, value));
        // Why a user that is being deleted is not gone is the deeper cause.
        if is_deleting {
            self.waits_for.push(user);
        }
    }
}

/// Returns the objects of a kind, and whether these are not all.
fn items<'a>(
    case: &Case<'a>,
    kind: &Builtin,
    namespace: Option<&str>,
    uses: impl Fn(&Value) -> bool,
) -> Option<(Vec<&'a Value>, bool)> {
    match case.list_until(kind, namespace, Priority::Cause, &uses) {
        Found::Items(items, complete) => Some((items.iter().filter(|item| uses(item)).collect(), !complete)),
        _ => None,
    }
}

/// Every Pod with a node and the claim among its volumes counts, whatever its phase. The claim of an ephemeral volume has the names
/// of Pod and volume, and is owned by that Pod.
fn pods(case: &Case<'_>, claim: &ObjectRef, value: &Value) -> Option<Users> {
    let uses = |pod: &Value| {
        let mut volumes = object::list(pod, "/spec/volumes");
        let is_owner = |owner: &Value| object::text(owner, "/uid") == Some(object::uid(pod));
        let is_own = || object::list(value, "/metadata/ownerReferences").any(is_owner);
        let is_mounted = |volume: &Value| {
            let is_named = || {
                let volume = object::text(volume, "/name").unwrap_or_default();
                claim.name == format!("{}-{volume}", object::name(pod))
            };
            object::text(volume, "/persistentVolumeClaim/claimName") == Some(&claim.name)
                || (volume.get("ephemeral").is_some() && is_named() && is_own())
        };
        volumes.any(is_mounted) && object::text(pod, "/spec/nodeName").is_some()
    };
    let (pods, is_partial) = items(case, &kinds::POD, claim.namespace.as_deref(), uses)?;
    let mut users = Users { is_partial, ..Users::default() };
    for pod in pods {
        let phase = object::text(pod, "/status/phase").unwrap_or("unknown phase");
        let name = kinds::POD.named(object::namespace(pod), object::name(pod));
        let value = format!("{} ({phase})", claim.name);
        users.add(name, "spec.volumes[].persistentVolumeClaim", value, object::is_deleting(pod));
    }
    Some(users)
}

fn claims(volume: &Value) -> Option<Users> {
    let mut users = Users::default();
    if object::text(volume, "/status/phase") == Some("Bound") {
        let namespace = object::text(volume, "/spec/claimRef/namespace")?;
        let claim = kinds::CLAIM.named(Some(namespace), object::text(volume, "/spec/claimRef/name")?);
        users.add(claim.clone(), "spec.volumeName", object::name(volume), true);
    }
    Some(users)
}

fn attachments(case: &Case<'_>, object: &ObjectRef) -> Option<Users> {
    let mut users = Users::default();
    if kinds::VOLUME.is(object) {
        let of_volume =
            |attachment: &Value| object::text(attachment, "/spec/source/persistentVolumeName") == Some(&object.name);
        let (attachments, is_partial) = items(case, &kinds::ATTACHMENT, None, of_volume)?;
        users.is_partial = is_partial;
        for attachment in attachments {
            let node = object::text(attachment, "/spec/nodeName").unwrap_or_default();
            let name = kinds::ATTACHMENT.named(None, object::name(attachment));
            users.add(name, "spec.nodeName", node, object::is_deleting(attachment));
        }
    }
    Some(users)
}

/// A snapshot that is not ready uses its source; one that is bound uses its content. If both are deleted, the snapshot waits for its
/// content, and that for its driver.
fn snapshots(case: &Case<'_>, reference: &ObjectRef, value: &Value, finalizer: &str) -> Option<Users> {
    let mut users = Users::default();
    if kinds::CLAIM.is(reference) {
        let uses = |snapshot: &Value| {
            let source = object::text(snapshot, "/spec/source/persistentVolumeClaimName");
            source == Some(&reference.name) && snapshot.pointer("/status/readyToUse") != Some(&Value::Bool(true))
        };
        let (snapshots, is_partial) = items(case, &kinds::SNAPSHOT, reference.namespace.as_deref(), uses)?;
        users.is_partial = is_partial;
        for snapshot in snapshots {
            let name = kinds::SNAPSHOT.named(object::namespace(snapshot), object::name(snapshot));
            users.add(name, "status.readyToUse", "false", object::is_deleting(snapshot));
        }
    } else if kinds::SNAPSHOT.is(reference) {
        let restores = |claim: &Value| {
            let paths = ["/spec/dataSource/name", "/spec/dataSourceRef/name"];
            let source = paths.iter().find_map(|path| object::text(claim, path));
            source == Some(&reference.name) && object::text(claim, "/status/phase") == Some("Pending")
        };
        let (claims, is_partial) = items(case, &kinds::CLAIM, reference.namespace.as_deref(), restores)?;
        users.is_partial = is_partial;
        for claim in claims {
            let name = kinds::CLAIM.named(object::namespace(claim), object::name(claim));
            users.add(name, "spec.dataSource", &reference.name, object::is_deleting(claim));
        }
        let content = object::text(value, "/status/boundVolumeSnapshotContentName")
            .filter(|_| finalizer.ends_with("-bound-protection"));
        let live = |name| case.builtin(&kinds::SNAPSHOT_CONTENT, None, name, Priority::Cause).value();
        if let Some(content) = content.and_then(live).filter(|content| object::is_deleting(content)) {
            let name = kinds::SNAPSHOT_CONTENT.named(None, object::name(content));
            users.add(name, "spec.volumeSnapshotRef", &reference.name, true);
        }
    } else if kinds::SNAPSHOT_CONTENT.is(reference) {
        let namespace = object::text(value, "/spec/volumeSnapshotRef/namespace");
        let name = object::text(value, "/spec/volumeSnapshotRef/name")?;
        let snapshot = kinds::SNAPSHOT.named(namespace, name);
        let live = case.builtin(&kinds::SNAPSHOT, namespace, name, Priority::Cause).value();
        let uid = object::text(value, "/spec/volumeSnapshotRef/uid");
        let is_user = |live: &&Value| uid.is_none_or(|uid| uid == object::uid(live)) && !object::is_deleting(live);
        if live.filter(is_user).is_some() {
            users.add(snapshot, "status.boundVolumeSnapshotContentName", &reference.name, false);
        }
    }
    Some(users)
}

/// A configuration whose status counts its users.
fn counted(reference: &ObjectRef, value: &Value) -> Option<Users> {
    let users = value.pointer("/status/users").and_then(Value::as_i64).filter(|users| *users > 0)?;
    let facts = vec![Fact::new(reference, "status.users", users.to_string())];
    Some(Users { names: vec![format!("{users} other objects")], facts, ..Users::default() })
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// Nobody uses it: then its controller has to act.
    #[test]
    fn users_are_found_by_what_they_refer_to() {
        check_table(
            r#"
title: a volume that is bound
why: PersistentVolume v1
objects:
- {kind: PersistentVolume, name: v1, deleted: 1h, finalizers: [kubernetes.io/pv-protection], spec: {claimRef: {namespace: shop, name: data}}, status: {phase: Bound}}
- {kind: PersistentVolumeClaim, name: shop/data}
expect: {code: in-use, object: PersistentVolume v1, says: [shop/data]}
---
title: a volume that is attached
why: PersistentVolume v1
objects:
- {kind: PersistentVolume, name: v1, deleted: 1h, finalizers: [external-attacher/x-csi-example]}
- {kind: VolumeAttachment, name: csi-1, spec: {nodeName: n1, source: {persistentVolumeName: v1}}}
expect: {code: in-use, object: PersistentVolume v1, says: [csi-1]}
---
title: a configuration with users
why: ProviderConfig aws
kinds: [aws.example/v1 ProviderConfig providerconfigs -]
objects: [{kind: ProviderConfig, name: aws, deleted: 1h, finalizers: [in-use.crossplane.io], status: {users: 3}}]
expect: {code: in-use, object: ProviderConfig aws, says: [3 other objects]}
---
title: a claim that nobody uses, and a hosted control plane
why: PersistentVolumeClaim shop/data
objects: [{kind: PersistentVolumeClaim, name: shop/data, deleted: 1h, finalizers: [kubernetes.io/pvc-protection]}]
expect: {code: finalizer-unknown, responsible: unknown, says: [kube-controller-manager]}
---
title: a claim that a Pod beyond the first page uses
why: PersistentVolumeClaim shop/data
crowd: {kind: Pod, namespace: shop, count: 600}
objects:
- {kind: PersistentVolumeClaim, name: shop/data, deleted: 1h, finalizers: [kubernetes.io/pvc-protection]}
- {kind: Pod, name: shop/web, spec: {nodeName: n1, volumes: [{persistentVolumeClaim: {claimName: data}}]}, status: {phase: Running}}
- {kind: Lease, name: kube-system/kube-controller-manager, spec: {leaseDurationSeconds: 15, renewTime: "2026-11-22T11:59:55.000000Z"}}
expect: {code: in-use, object: PersistentVolumeClaim shop/data, says: [Pod shop/web]}
---
title: a claim that nobody uses among more Pods than are read
why: PersistentVolumeClaim shop/data
crowd: {kind: Pod, namespace: shop, count: 10100}
objects:
- {kind: PersistentVolumeClaim, name: shop/data, deleted: 1h, finalizers: [kubernetes.io/pvc-protection]}
- {kind: Lease, name: kube-system/kube-controller-manager, spec: {leaseDurationSeconds: 15, renewTime: "2026-11-22T11:59:55.000000Z"}}
expect: {strength: possible, unread: ["list Pod in namespace shop: only the first 10000 objects were read"]}
"#,
        );
    }
}
