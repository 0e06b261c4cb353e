//! Scripted controllers: stand-ins for operators, each a watch that is started anew whenever it ends.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use billhook_objects::{GroupKind, ObjectKey};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};

use super::{
    Admin, Controller,
    admin::{parse_key, parse_kind},
};

/// Runs a controller until it is dropped.
///
/// It leaves the objects of other scenarios alone: those whose names do not hold this one's.
pub async fn run(admin: Admin, controller: Controller, slug: String) {
    let mut copies = BTreeMap::new();
    let mut left = if let Controller::Recreate { times, .. } = &controller { *times } else { 0 };
    loop {
        // A watch ends when its kind is changed or the server goes away; a kind may not be there yet.
        let _ended = act(&admin, &controller, &slug, &mut copies, &mut left).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn act(
    admin: &Admin,
    controller: &Controller,
    slug: &str,
    copies: &mut BTreeMap<String, DynamicObject>,
    left: &mut u32,
) -> Result<()> {
    let kind = match controller {
        Controller::RemoveFinalizer { kind, .. }
        | Controller::AddFinalizer { kind, .. }
        | Controller::ReportStatus { kind, .. } => parse_kind(kind),
        Controller::Recreate { object, .. } => parse_key(object)?.kind,
    };
    let api = admin.all(&kind).await?;
    let mut events = api.watch(&WatchParams::default(), "0").await?.boxed();
    while let Some(event) = events.try_next().await? {
        let (object, deleted) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(_) => return Ok(()),
        };
        let key = ObjectKey::new(kind.clone(), object.namespace().as_deref(), object.name_any());
        if !is_of(&key, slug) {
            continue;
        }
        match controller {
            Controller::RemoveFinalizer { finalizer, after, while_exists, .. } => {
                if !deleted && object.metadata.deletion_timestamp.is_some() && object.finalizers().contains(finalizer) {
                    let (admin, kind, finalizer) = (admin.clone(), kind.clone(), finalizer.clone());
                    let (after, needs) = (*after, while_exists.clone());
                    drop(tokio::spawn(async move {
                        tokio::time::sleep(after).await;
                        if let Some(needs) = needs
                            && admin.get(&parse_key(&needs)?).await?.is_none()
                        {
                            return Ok(());
                        }
                        remove_finalizer(&admin, &kind, &object, &finalizer).await
                    }));
                }
            }
            Controller::AddFinalizer { finalizer, .. } => {
                if !deleted && !object.finalizers().contains(finalizer) {
                    let mut finalizers = object.finalizers().to_vec();
                    finalizers.push(finalizer.clone());
                    let patch = json!({"metadata": {"finalizers": finalizers}});
                    let api = admin.beside(&kind, &object).await?;
                    // An object that is being deleted takes no new finalizer: the server says so.
                    api.patch(&object.name_any(), &manager(), &Patch::Merge(patch)).await.ok();
                }
            }
            Controller::Recreate { object: wanted, keep_labels, .. } => {
                let key = parse_key(wanted)?;
                if object.name_any() != key.name || object.namespace() != key.namespace {
                    continue;
                }
                if !deleted {
                    copies.insert(object.name_any(), object);
                } else if *left > 0
                    && let Some(mut copy) = copies.remove(&key.name)
                {
                    *left -= 1;
                    let labels = copy.metadata.labels.take().filter(|_| *keep_labels);
                    copy.metadata = kube::core::ObjectMeta {
                        name: copy.metadata.name,
                        namespace: copy.metadata.namespace,
                        labels,
                        ..kube::core::ObjectMeta::default()
                    };
                    admin.beside(&kind, &copy).await?.create(&PostParams::default(), &copy).await?;
                }
            }
            Controller::ReportStatus { status, after, .. } => {
                if !deleted && !holds(object.data.get("status").unwrap_or(&Value::Null), status) {
                    let (admin, kind, status, after) = (admin.clone(), kind.clone(), status.clone(), *after);
                    drop(tokio::spawn(async move {
                        tokio::time::sleep(after).await;
                        let api = admin.beside(&kind, &object).await?;
                        let patch = json!({ "status": status });
                        api.patch_status(&object.name_any(), &manager(), &Patch::Merge(patch)).await?;
                        anyhow::Ok(())
                    }));
                }
            }
        }
    }
    Ok(())
}

/// Whether an object is a scenario's own: its name, its namespace or its API group says so.
pub(super) fn is_of(key: &ObjectKey, slug: &str) -> bool {
    [Some(&key.name), key.namespace.as_ref(), Some(&key.kind.group)]
        .into_iter()
        .flatten()
        .any(|text| text.contains(slug))
}

/// Removes a finalizer, again and again until it is gone: others write the same object.
async fn remove_finalizer(admin: &Admin, kind: &GroupKind, object: &DynamicObject, finalizer: &str) -> Result<()> {
    let api = admin.beside(kind, object).await?;
    for _ in 0..20 {
        let Some(now) = api.get_opt(&object.name_any()).await? else { return Ok(()) };
        if now.uid() != object.uid() || !now.finalizers().iter().any(|f| f == finalizer) {
            return Ok(());
        }
        let rest: Vec<_> = now.finalizers().iter().filter(|f| *f != finalizer).collect();
        let patch = json!({"metadata": {"finalizers": rest, "resourceVersion": now.resource_version()}});
        if api.patch(&object.name_any(), &manager(), &Patch::Merge(patch)).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn manager() -> PatchParams {
    PatchParams { field_manager: Some("scripted-controller".into()), ..PatchParams::default() }
}

/// Whether a value holds all of another: objects by key, everything else by being equal.
pub(super) fn holds(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| holds(value.get(key).unwrap_or(&Value::Null), wanted))
        }
        (value, wanted) => value == wanted,
    }
}
