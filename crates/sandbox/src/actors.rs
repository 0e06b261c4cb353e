//! Scripted actors: stand-ins for operators and for others that write to a cluster, each a watch that is started anew
//! whenever it ends. They act through any client, so that a sandbox and a real cluster see the same.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::fmt::serde::unsigned_duration::friendly::compact::required as friendly;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    discovery::{ApiCapabilities, ApiResource, Scope},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

/// What an actor does. Kinds are written `Kind.group`, objects `Kind.group/namespace/name`; `.group` is left out for
/// the core group, `namespace/` for what lies in no namespace.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Script {
    /// Removes a finalizer some time after an object was marked for deletion.
    RemoveFinalizer {
        /// The kind of the objects.
        kind: String,
        /// Which finalizer.
        finalizer: String,
        /// How long it takes.
        #[serde(default, with = "friendly")]
        after: Duration,
        /// Act only while this object exists: the operator's own Deployment, say.
        #[serde(default)]
        while_exists: Option<String>,
    },
    /// Puts a finalizer (back) on each object.
    AddFinalizer {
        /// The kind of the objects.
        kind: String,
        /// Which finalizer.
        finalizer: String,
    },
    /// Makes an object anew once it is gone.
    Recreate {
        /// The object.
        object: String,
        /// How often.
        #[serde(default = "once")]
        times: u32,
        /// Whether it keeps its labels.
        #[serde(default)]
        keep_labels: bool,
    },
    /// Reports this status on each object that has none of it yet.
    ReportStatus {
        /// The kind of the objects.
        kind: String,
        /// The status, merged.
        status: Value,
        /// How long it takes.
        #[serde(default, with = "friendly")]
        after: Duration,
    },
}

fn once() -> u32 {
    1
}

impl Script {
    /// The kind of the objects that it acts on.
    fn kind(&self) -> &str {
        match self {
            Self::RemoveFinalizer { kind, .. } | Self::AddFinalizer { kind, .. } | Self::ReportStatus { kind, .. } => {
                kind
            }
            Self::Recreate { object, .. } => object.split('/').next().unwrap_or_default(),
        }
    }
}

/// Acts on the objects that are `mine`, until it is dropped.
pub async fn run(client: Client, script: Script, mine: impl Fn(&DynamicObject) -> bool + Send + Sync) {
    let left = if let Script::Recreate { times, .. } = &script { *times } else { 0 };
    let mut actor = Actor { client, script, left, copy: None, tasks: JoinSet::new() };
    loop {
        // A watch ends when its kind is changed or the server goes away; a kind may not be there yet.
        let _ended = actor.act(&mine).await;
        sleep(Duration::from_millis(50)).await;
    }
}

struct Actor {
    client: Client,
    script: Script,
    /// How often an object is still made anew.
    left: u32,
    /// What it was.
    copy: Option<DynamicObject>,
    /// What is done later; it ends with the actor.
    tasks: JoinSet<kube::Result<()>>,
}

impl Actor {
    async fn act(&mut self, mine: &(impl Fn(&DynamicObject) -> bool + Sync)) -> kube::Result<()> {
        let Some(kind) = KindApi::find(&self.client, self.script.kind()).await? else { return Ok(()) };
        let mut events = kind.all().watch(&WatchParams::default(), "0").await?.boxed();
        while let Some(event) = events.try_next().await? {
            while self.tasks.try_join_next().is_some() {}
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) if mine(&object) => {
                    self.present(&kind, object).await;
                }
                WatchEvent::Deleted(object) if mine(&object) => self.gone(&kind, &object).await?,
                WatchEvent::Error(_) => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }

    /// An object is there.
    async fn present(&mut self, kind: &KindApi, object: DynamicObject) {
        match &self.script {
            Script::RemoveFinalizer { finalizer, after, while_exists, .. } => {
                if object.metadata.deletion_timestamp.is_some() && object.finalizers().contains(finalizer) {
                    let (finalizer, after, needs) = (finalizer.clone(), *after, while_exists.clone());
                    self.tasks.spawn(remove_finalizer(kind.clone(), object, finalizer, after, needs));
                }
            }
            Script::AddFinalizer { finalizer, .. } => {
                if !object.finalizers().contains(finalizer) {
                    let mut finalizers = object.finalizers().to_vec();
                    finalizers.push(finalizer.clone());
                    let patch = json!({"metadata": {"finalizers": finalizers}});
                    // An object that is being deleted takes no new finalizer: the server says so.
                    let _refused =
                        kind.beside(&object).patch(&object.name_any(), &manager(), &Patch::Merge(patch)).await;
                }
            }
            Script::Recreate { object: wanted, .. } => {
                if is(&object, wanted) {
                    self.copy = Some(object);
                }
            }
            Script::ReportStatus { status, after, .. } => {
                if !holds(object.data.get("status").unwrap_or(&Value::Null), status) {
                    let (api, status, after) = (kind.beside(&object), status.clone(), *after);
                    self.tasks.spawn(async move {
                        sleep(after).await;
                        let patch = Patch::Merge(json!({ "status": status }));
                        api.patch_status(&object.name_any(), &manager(), &patch).await.map(drop)
                    });
                }
            }
        }
    }

    /// An object is gone.
    async fn gone(&mut self, kind: &KindApi, object: &DynamicObject) -> kube::Result<()> {
        let Script::Recreate { object: wanted, keep_labels, .. } = &self.script else { return Ok(()) };
        if self.left > 0
            && is(object, wanted)
            && let Some(mut copy) = self.copy.take()
        {
            self.left -= 1;
            let ObjectMeta { name, namespace, labels, .. } = copy.metadata;
            let labels = labels.filter(|_| *keep_labels);
            copy.metadata = ObjectMeta { name, namespace, labels, ..ObjectMeta::default() };
            kind.beside(&copy).create(&PostParams::default(), &copy).await?;
        }
        Ok(())
    }
}

/// A kind that is served.
#[derive(Clone)]
struct KindApi {
    client: Client,
    resource: ApiResource,
    namespaced: bool,
}

impl KindApi {
    /// Finds a kind; none where it is not served.
    async fn find(client: &Client, kind: &str) -> kube::Result<Option<Self>> {
        let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
        let served = match kube::discovery::group(client, group).await {
            Err(kube::Error::Discovery(_)) => return Ok(None),
            served => served?.recommended_kind(kind),
        };
        Ok(served.map(|(resource, ApiCapabilities { scope, .. })| Self {
            client: client.clone(),
            resource,
            namespaced: scope == Scope::Namespaced,
        }))
    }

    fn all(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &self.resource)
    }

    /// Where an object lies.
    fn beside(&self, object: &DynamicObject) -> Api<DynamicObject> {
        self.of(object.namespace().as_deref())
    }

    fn of(&self, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &self.resource),
            None => self.all(),
        }
    }
}

/// Whether an object is there, `Kind.group/namespace/name`.
async fn exists(client: &Client, object: &str) -> kube::Result<bool> {
    let (kind, place) = object.split_once('/').unwrap_or((object, ""));
    let (namespace, name) = place.split_once('/').map_or((None, place), |(namespace, name)| (Some(namespace), name));
    let Some(kind) = KindApi::find(client, kind).await? else { return Ok(false) };
    Ok(kind.of(namespace).get_opt(name).await?.is_some())
}

/// Removes a finalizer, again and again until it is gone: others write the same object.
async fn remove_finalizer(
    kind: KindApi,
    object: DynamicObject,
    finalizer: String,
    after: Duration,
    needs: Option<String>,
) -> kube::Result<()> {
    sleep(after).await;
    if let Some(needs) = needs
        && !exists(&kind.client, &needs).await?
    {
        return Ok(());
    }
    let api = kind.beside(&object);
    for _ in 0..20 {
        let Some(now) = api.get_opt(&object.name_any()).await? else { return Ok(()) };
        if now.uid() != object.uid() || !now.finalizers().contains(&finalizer) {
            return Ok(());
        }
        let rest: Vec<_> = now.finalizers().iter().filter(|f| **f != finalizer).collect();
        let patch = json!({"metadata": {"finalizers": rest, "resourceVersion": now.resource_version()}});
        if api.patch(&object.name_any(), &manager(), &Patch::Merge(patch)).await.is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn manager() -> PatchParams {
    PatchParams { field_manager: Some("scripted-controller".into()), ..PatchParams::default() }
}

/// Whether an object is the one that `Kind.group/namespace/name` names.
fn is(object: &DynamicObject, wanted: &str) -> bool {
    let place = wanted.split_once('/').map_or(wanted, |(_, place)| place);
    let name = object.name_any();
    match object.namespace() {
        Some(namespace) => place.strip_prefix(&namespace).and_then(|rest| rest.strip_prefix('/')) == Some(&name),
        None => place == name,
    }
}

/// Whether a value holds all of another: objects by key, everything else by being equal. A key that is wanted to be null must
/// be missing, or what it would be in.
pub fn holds(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| holds(value.get(key).unwrap_or(&Value::Null), wanted))
        }
        (Value::Null, Value::Object(wanted)) if !wanted.is_empty() => {
            wanted.values().all(|wanted| holds(value, wanted))
        }
        (value, wanted) => value == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read() {
        let text = r#"{"removeFinalizer": {"kind": "Database.shop.example", "finalizer": "a/b", "after": "300ms",
                       "whileExists": "Deployment.apps/shop/operator"}}"#;
        let script: Script = serde_json::from_str(text).unwrap();
        let Script::RemoveFinalizer { after, while_exists, .. } = &script else { panic!("{script:?}") };
        assert_eq!(
            (*after, while_exists.as_deref()),
            (Duration::from_millis(300), Some("Deployment.apps/shop/operator"))
        );
        assert_eq!(script.kind(), "Database.shop.example");
        let script: Script = serde_json::from_str(r#"{"recreate": {"object": "ConfigMap/shop/a"}}"#).unwrap();
        let Script::Recreate { times: 1, keep_labels: false, .. } = &script else { panic!("{script:?}") };
        assert_eq!(script.kind(), "ConfigMap");
        serde_json::from_str::<Script>(r#"{"recreate": {"object": "ConfigMap/shop/a", "time": 2}}"#).unwrap_err();
    }

    #[test]
    fn objects_are_told_apart() {
        let object = |namespace: Option<&str>| {
            let mut object: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
            object.metadata.namespace = namespace.map(str::to_owned);
            object
        };
        for (namespace, wanted, expected) in [
            (Some("shop"), "ConfigMap/shop/a", true),
            (Some("shop"), "ConfigMap/sho/a", false),
            (Some("shop"), "ConfigMap/shop/b", false),
            (Some("shop"), "ConfigMap/a", false),
            (None, "Namespace/a", true),
        ] {
            assert_eq!(is(&object(namespace), wanted), expected, "{namespace:?} {wanted}");
        }
    }

    #[test]
    fn a_value_holds_its_parts() {
        for (value, wanted, expected) in [
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1}}), true),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), false),
            (json!({"a": [1, 2]}), json!({"a": [1]}), false),
            (json!({}), json!({"a": null}), true),
        ] {
            assert_eq!(holds(&value, &wanted), expected, "{value} {wanted}");
        }
    }
}
