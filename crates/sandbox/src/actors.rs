//! Scripted actors: stand-ins for operators and other clients that write to a cluster. Each follows a watch, which it
//! restarts whenever it ends. They act through any client, so they behave the same on a sandbox and on a real cluster.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::fmt::serde::unsigned_duration::friendly::compact::required as friendly;
use kube::{
    Api, Client, ResourceExt as _,
    api::{
        DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams,
    },
    discovery::{ApiCapabilities, ApiResource, Scope},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

/// The behaviour of an actor. Kinds are written `Kind.group`, objects `Kind.group/namespace/name`. `.group` is left out
/// for the core group and `namespace/` for cluster-scoped objects.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Script {
    /// Removes a finalizer some time after an object was marked for deletion.
    RemoveFinalizer {
        /// The kind of the objects.
        kind: String,
        /// The finalizer.
        finalizer: String,
        /// The time before it is removed.
        #[serde(default, with = "friendly")]
        after: Duration,
        /// Act only while this object exists, such as the operator's own Deployment, or all of several objects.
        #[serde(default, deserialize_with = "one_or_several")]
        while_exists: Vec<String>,
    },
    /// Confirms, like a kubelet, that the containers of deleted Pods have stopped.
    StopPods {
        /// The node of the Pods.
        node: String,
        /// The time before they have stopped.
        #[serde(default, with = "friendly")]
        after: Duration,
    },
    /// Adds a finalizer to each object, and adds it again when it is removed.
    AddFinalizer {
        /// The kind of the objects.
        kind: String,
        /// The finalizer.
        finalizer: String,
    },
    /// Recreates an object after it is deleted.
    Recreate {
        /// The object.
        object: String,
        /// How often the object is recreated.
        #[serde(default = "once")]
        times: u32,
        /// Whether the new object keeps the labels.
        #[serde(default)]
        keep_labels: bool,
    },
    /// Reports a status on each object that does not have it yet.
    ReportStatus {
        /// The kind of the objects.
        kind: String,
        /// The status, which is merged into the object's.
        status: Value,
        /// The time before it is reported.
        #[serde(default, with = "friendly")]
        after: Duration,
    },
}

fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::One(object) => vec![object],
        Written::Several(objects) => objects,
    })
}

fn once() -> u32 {
    1
}

impl Script {
    /// Returns the kind of the objects that the script concerns.
    fn kind(&self) -> &str {
        match self {
            Self::RemoveFinalizer { kind, .. } | Self::AddFinalizer { kind, .. } | Self::ReportStatus { kind, .. } => {
                kind
            }
            Self::StopPods { .. } => "Pod",
            Self::Recreate { object, .. } => object.split('/').next().unwrap_or_default(),
        }
    }
}

/// Runs a script on the objects that are `mine`, until the future is dropped.
pub async fn run(client: Client, script: Script, mine: impl Fn(&DynamicObject) -> bool + Send + Sync) {
    let left = if let Script::Recreate { times, .. } = &script { *times } else { 0 };
    let mut actor = Actor { client, script, left, copy: None, tasks: JoinSet::new() };
    loop {
        // A watch ends when its kind changes or the server is unavailable, and the kind may not exist yet.
        let _ended = actor.act(&mine).await;
        sleep(Duration::from_millis(50)).await;
    }
}

struct Actor {
    client: Client,
    script: Script,
    /// How many more times an object is recreated.
    left: u32,
    /// The last state of the object to be recreated.
    copy: Option<DynamicObject>,
    /// Delayed actions, which are aborted with the actor.
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

    /// Reacts to an object that exists.
    async fn present(&mut self, kind: &KindApi, object: DynamicObject) {
        match &self.script {
            Script::RemoveFinalizer { finalizer, after, while_exists, .. } => {
                if object.metadata.deletion_timestamp.is_some() && object.finalizers().contains(finalizer) {
                    let (finalizer, after, needs) = (finalizer.clone(), *after, while_exists.clone());
                    self.tasks.spawn(remove_finalizer(kind.clone(), object, finalizer, after, needs));
                }
            }
            Script::StopPods { node, after } => {
                if object.metadata.deletion_timestamp.is_some() && object.data["spec"]["nodeName"] == **node {
                    let (api, after) = (kind.beside(&object), *after);
                    self.tasks.spawn(async move {
                        sleep(after).await;
                        let preconditions = Preconditions { uid: object.uid(), resource_version: None };
                        let now = DeleteParams::default().grace_period(0).preconditions(preconditions);
                        api.delete(&object.name_any(), &now).await.map(drop)
                    });
                }
            }
            Script::AddFinalizer { finalizer, .. } => {
                if !object.finalizers().contains(finalizer) {
                    let mut finalizers = object.finalizers().to_vec();
                    finalizers.push(finalizer.clone());
                    let patch = json!({"metadata": {"finalizers": finalizers}});
                    // The server rejects new finalizers on an object that is being deleted.
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

    /// Reacts to the deletion of an object.
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
            let by = PostParams { field_manager: manager().field_manager, ..PostParams::default() };
            kind.beside(&copy).create(&by, &copy).await?;
        }
        Ok(())
    }
}

/// A served kind.
#[derive(Clone)]
struct KindApi {
    client: Client,
    resource: ApiResource,
    namespaced: bool,
}

impl KindApi {
    /// Finds a kind; none if it is not served.
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

    /// Returns the API for the namespace of an object.
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

/// Returns whether the object `Kind.group/namespace/name` exists.
async fn exists(client: &Client, object: &str) -> kube::Result<bool> {
    let (kind, place) = object.split_once('/').unwrap_or((object, ""));
    let (namespace, name) = place.split_once('/').map_or((None, place), |(namespace, name)| (Some(namespace), name));
    let Some(kind) = KindApi::find(client, kind).await? else { return Ok(false) };
    Ok(kind.of(namespace).get_opt(name).await?.is_some())
}

/// Removes a finalizer, with retries in case other clients write the same object.
async fn remove_finalizer(
    kind: KindApi,
    object: DynamicObject,
    finalizer: String,
    after: Duration,
    needs: Vec<String>,
) -> kube::Result<()> {
    sleep(after).await;
    for needed in &needs {
        if !exists(&kind.client, needed).await? {
            return Ok(());
        }
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

/// Returns whether an object is the one that `Kind.group/namespace/name` names.
fn is(object: &DynamicObject, wanted: &str) -> bool {
    let place = wanted.split_once('/').map_or(wanted, |(_, place)| place);
    let name = object.name_any();
    match object.namespace() {
        Some(namespace) => place.strip_prefix(&namespace).and_then(|rest| rest.strip_prefix('/')) == Some(&name),
        None => place == name,
    }
}

/// Returns whether a value contains another: objects are compared by key, all other values for equality. A key that is
/// expected to be null must be missing, or the object around it. The keys of an object that is compared to a list are indexes,
/// from 0.
pub fn holds(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| holds(value.get(key).unwrap_or(&Value::Null), wanted))
        }
        (Value::Array(values), Value::Object(wanted)) if !wanted.is_empty() => wanted.iter().all(|(index, wanted)| {
            let index = index.parse::<usize>();
            index.is_ok_and(|index| holds(values.get(index).unwrap_or(&Value::Null), wanted))
        }),
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
    fn scripts_are_parsed() {
        let text = r#"{"removeFinalizer": {"kind": "Database.shop.example", "finalizer": "a/b", "after": "300ms",
                       "whileExists": "Deployment.apps/shop/operator"}}"#;
        let script: Script = serde_json::from_str(text).unwrap();
        let Script::RemoveFinalizer { after, while_exists, .. } = &script else { panic!("{script:?}") };
        assert_eq!(
            (*after, while_exists.as_slice()),
            (Duration::from_millis(300), ["Deployment.apps/shop/operator".to_owned()].as_slice())
        );
        assert_eq!(script.kind(), "Database.shop.example");
        let script: Script = serde_json::from_str(r#"{"recreate": {"object": "ConfigMap/shop/a"}}"#).unwrap();
        let Script::Recreate { times: 1, keep_labels: false, .. } = &script else { panic!("{script:?}") };
        assert_eq!(script.kind(), "ConfigMap");
        serde_json::from_str::<Script>(r#"{"recreate": {"object": "ConfigMap/shop/a", "time": 2}}"#).unwrap_err();
    }

    #[test]
    fn objects_are_identified() {
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
    fn values_contain_their_parts() {
        for (value, wanted, expected) in [
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1}}), true),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), false),
            (json!({"a": [1, 2]}), json!({"a": [1]}), false),
            (json!({}), json!({"a": null}), true),
            (json!([{"a": 1, "b": 2}]), json!({"0": {"a": 1}, "1": null}), true),
            (json!([{"a": 1}, 2]), json!({"0": {"a": 1}, "1": null}), false),
            (json!([{"a": 1}]), json!({"a": 1}), false),
            (json!([1]), json!({}), false),
        ] {
            assert_eq!(holds(&value, &wanted), expected, "{value} {wanted}");
        }
    }
}
