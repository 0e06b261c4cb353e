//! Requests of other clients to a cluster, which share no code with billhook.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use billhook_objects::{ApiVersion, GroupKind, ObjectKey};
use kube::{
    Api, Client, Discovery, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    discovery::{ApiCapabilities, ApiResource, Scope},
};
use serde_json::Value;
use tokio::sync::Mutex;

/// A client with all permissions.
#[derive(Clone)]
pub struct Admin {
    client: Client,
    /// The namespace of namespaced objects that name none.
    namespace: String,
    known: Arc<Mutex<Vec<(ApiResource, ApiCapabilities)>>>,
}

/// The field manager of other clients.
const MANAGER: &str = "somebody-else";

impl Admin {
    /// Wraps a client; namespaced objects that name no namespace are created in `namespace`.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), known: Arc::default() }
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Creates the objects of a YAML stream in order; waits until a CRD is Established.
    ///
    /// # Errors
    ///
    /// Fails if an object cannot be created.
    pub async fn create(&self, text: &str) -> Result<()> {
        for document in billhook_objects::yaml::parse(text)? {
            self.create_one(document.value).await?;
        }
        Ok(())
    }

    async fn create_one(&self, value: Value) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(value.clone()).context("read an object to create")?;
        let types = object.types.clone().ok_or_else(|| anyhow!("the object has no kind"))?;
        let version = ApiVersion::parse(&types.api_version)?;
        let kind = GroupKind::new(version.group(), &types.kind);
        let mut key = ObjectKey::new(kind, object.namespace().as_deref(), object.name_any());
        // A new namespace may not have the objects that admission requires yet, and a new kind may not be served yet.
        let mut attempt = 0;
        let api = loop {
            match self.try_create(&mut key, version.version(), &object).await {
                Ok(api) => break api,
                Err(_) if attempt < 50 => attempt += 1,
                Err(error) => return Err(error).with_context(|| format!("create {key}")),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        if let Some(status) = value.get("status") {
            let patch = serde_json::json!({ "status": status });
            let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
            api.patch_status(&key.name, &params, &Patch::Merge(patch)).await?;
        }
        if key.kind == billhook_objects::wellknown::crd() {
            self.wait_established(&key).await?;
        }
        Ok(())
    }

    /// Waits until a CRD is Established.
    ///
    /// # Errors
    ///
    /// Fails if that does not happen within 20 seconds.
    pub async fn wait_established(&self, crd: &ObjectKey) -> Result<()> {
        self.wait(crd, |crd| {
            let conditions = crd.data.pointer("/status/conditions").and_then(Value::as_array);
            conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
        })
        .await
    }

    async fn try_create(
        &self,
        key: &mut ObjectKey,
        version: &str,
        object: &DynamicObject,
    ) -> Result<Api<DynamicObject>> {
        let (mut resource, capabilities) = self.resolve(&key.kind).await?;
        if capabilities.scope == Scope::Namespaced && key.namespace.is_none() {
            key.namespace = Some(self.namespace.clone());
        }
        resource.api_version = resource.api_version.replace(&resource.version, version);
        resource.version = version.to_owned();
        let api = match &key.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        api.create(&PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() }, object).await?;
        Ok(api)
    }

    /// Waits until an object matches.
    ///
    /// # Errors
    ///
    /// Fails if that does not happen within 20 seconds.
    pub async fn wait(&self, key: &ObjectKey, done: impl Fn(&DynamicObject) -> bool) -> Result<()> {
        for _ in 0..400 {
            if self.get(key).await?.is_some_and(|object| done(&object)) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("{key} did not reach the expected state within 20 s")
    }

    /// Reads an object.
    ///
    /// # Errors
    ///
    /// Fails if the request fails.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<DynamicObject>> {
        match self.api(key).await {
            Ok(api) => match api.get_opt(&key.name).await {
                Ok(found) => Ok(found),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                Err(error) => Err(error).with_context(|| format!("get {key}")),
            },
            Err(error) if error.is::<NotServed>() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until the server accepts or rejects the deletion of an object, in a dry run.
    ///
    /// # Errors
    ///
    /// Fails if that does not happen within 20 seconds.
    pub async fn wait_deletable(&self, key: &ObjectKey, deletable: bool) -> Result<()> {
        let api = self.api(key).await?;
        for _ in 0..400 {
            if api.delete(&key.name, &DeleteParams { dry_run: true, ..DeleteParams::default() }).await.is_ok()
                == deletable
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("{key}: the response to a DELETE did not change within 20 s")
    }

    /// Returns whether an object exists; a name that ends with `*` matches any object with this prefix.
    ///
    /// # Errors
    ///
    /// Fails if the request fails.
    pub async fn any(&self, key: &ObjectKey) -> Result<bool> {
        let Some(prefix) = key.name.strip_suffix('*') else { return Ok(self.get(key).await?.is_some()) };
        let objects = self.api(key).await?.list(&ListParams::default()).await?;
        Ok(objects.iter().any(|object| object.name_any().starts_with(prefix)))
    }

    /// Deletes an object and waits until it is gone.
    ///
    /// # Errors
    ///
    /// Fails if it is not gone within 10 seconds.
    pub async fn delete(&self, key: &ObjectKey) -> Result<()> {
        self.api(key).await?.delete(&key.name, &DeleteParams::background()).await?;
        for _ in 0..200 {
            if self.get(key).await?.is_none() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("{key} still exists after 10 s")
    }

    /// Requests the deletion of an object, and does not wait until it is gone.
    ///
    /// # Errors
    ///
    /// Fails if the server rejects it.
    pub async fn request_deletion(&self, key: &ObjectKey, policy: &str) -> Result<()> {
        let params = match policy {
            "Foreground" => DeleteParams::foreground(),
            "Orphan" => DeleteParams::orphan(),
            "Background" => DeleteParams::background(),
            _ => bail!("{policy} is not a propagation policy"),
        };
        self.api(key).await?.delete(&key.name, &params).await.with_context(|| format!("delete {key}"))?;
        Ok(())
    }

    /// Returns the kind that kubectl finds by a name such as `deployment.apps`, `apiservice` or `crd`.
    ///
    /// # Errors
    ///
    /// Fails if the cluster serves no such kind.
    pub async fn kind_named(&self, name: &str) -> Result<GroupKind> {
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await?;
        let name = if name == "crd" { "customresourcedefinition" } else { name };
        let is_it = |(resource, _): &(ApiResource, ApiCapabilities)| {
            let kind = resource.kind.to_lowercase();
            kind == name || format!("{kind}.{}", resource.group) == name
        };
        let found = kinds(&discovery).find(is_it).with_context(|| format!("the cluster does not serve {name}"))?;
        Ok(GroupKind::new(&found.0.group, &found.0.kind))
    }

    /// Applies a JSON patch.
    ///
    /// # Errors
    ///
    /// Fails if the server rejects it.
    pub async fn json_patch(&self, key: &ObjectKey, patch: &str) -> Result<()> {
        let api = self.api(key).await?;
        let request = http::Request::patch(format!("{}/{}", api.resource_url(), key.name))
            .header(http::header::CONTENT_TYPE, "application/json-patch+json")
            .body(patch.as_bytes().to_vec())?;
        self.client.request::<Value>(request).await?;
        Ok(())
    }

    /// Applies a merge patch.
    ///
    /// # Errors
    ///
    /// Fails if the server rejects it.
    pub async fn patch(&self, key: &ObjectKey, patch: &Value) -> Result<()> {
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        self.api(key).await?.patch(&key.name, &params, &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Lists all objects of a kind.
    ///
    /// # Errors
    ///
    /// Fails if the request fails.
    pub async fn list(&self, kind: &GroupKind) -> Result<Vec<DynamicObject>> {
        let (resource, _) = self.resolve(kind).await?;
        Ok(Api::all_with(self.client.clone(), &resource).list(&ListParams::default()).await?.items)
    }

    /// Lists all objects of all kinds that can be listed, except events and leases, which change on their own.
    ///
    /// # Errors
    ///
    /// Fails if the request fails.
    pub async fn everything(&self) -> Result<BTreeMap<ObjectKey, DynamicObject>> {
        self.list_all(None).await
    }

    /// Lists such objects in a namespace.
    ///
    /// # Errors
    ///
    /// Fails if the request fails.
    pub async fn contents(&self, namespace: &str) -> Result<BTreeMap<ObjectKey, DynamicObject>> {
        self.list_all(Some(namespace)).await
    }

    async fn list_all(&self, namespace: Option<&str>) -> Result<BTreeMap<ObjectKey, DynamicObject>> {
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await?;
        let mut all = BTreeMap::new();
        for (resource, capabilities) in kinds(&discovery) {
            if !capabilities.supports_operation("list") || matches!(resource.kind.as_str(), "Event" | "Lease") {
                continue;
            }
            let client = self.client.clone();
            let api: Api<DynamicObject> = match namespace {
                Some(_) if capabilities.scope == Scope::Cluster => continue,
                Some(namespace) => Api::namespaced_with(client, namespace, &resource),
                None => Api::all_with(client, &resource),
            };
            let kind = GroupKind::new(&resource.group, &resource.kind);
            let list = match api.list(&ListParams::default()).await {
                // Another scenario has deleted the kind, or its API is unavailable.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 503) => continue,
                list => list.with_context(|| format!("list {kind}"))?,
            };
            all.extend(list.items.into_iter().map(|object| {
                (ObjectKey::new(kind.clone(), object.namespace().as_deref(), object.name_any()), object)
            }));
        }
        Ok(all)
    }

    /// Returns the API for objects of a key's kind in its namespace.
    ///
    /// # Errors
    ///
    /// Fails if the kind is not served.
    pub async fn api(&self, key: &ObjectKey) -> Result<Api<DynamicObject>> {
        let (resource, capabilities) = self.resolve(&key.kind).await?;
        Ok(match (&capabilities.scope, &key.namespace) {
            (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            (Scope::Namespaced, None) => bail!("{key}: the kind is namespaced, but the key has no namespace"),
            (Scope::Cluster, _) => Api::all_with(self.client.clone(), &resource),
        })
    }

    /// Returns the API for all objects of a kind.
    ///
    /// # Errors
    ///
    /// Fails if the kind is not served.
    pub async fn all(&self, kind: &GroupKind) -> Result<Api<DynamicObject>> {
        let (resource, _) = self.resolve(kind).await?;
        Ok(Api::all_with(self.client.clone(), &resource))
    }

    /// Returns whether a kind is namespaced.
    ///
    /// # Errors
    ///
    /// Fails if the kind is not served.
    pub async fn is_namespaced(&self, kind: &GroupKind) -> Result<bool> {
        Ok(self.resolve(kind).await?.1.scope == Scope::Namespaced)
    }

    async fn resolve(&self, kind: &GroupKind) -> Result<(ApiResource, ApiCapabilities)> {
        let mut known = self.known.lock().await;
        for fresh in [false, true] {
            if fresh {
                let discovery = Discovery::new(self.client.clone()).run_aggregated().await?;
                *known = kinds(&discovery).collect();
            }
            let found = known.iter().find(|(r, _)| r.group == kind.group && r.kind == kind.kind);
            if let Some((resource, capabilities)) = found {
                return Ok((resource.clone(), capabilities.clone()));
            }
        }
        Err(NotServed(kind.clone()).into())
    }
}

/// Returns all kinds, each in its most stable version: a group may serve a kind in another version than the group's preferred
/// one only.
fn kinds(discovery: &Discovery) -> impl Iterator<Item = (ApiResource, ApiCapabilities)> {
    discovery.groups().flat_map(|group| group.resources_by_stability())
}

/// The error for a kind that the cluster does not serve.
#[derive(Debug)]
pub(super) struct NotServed(GroupKind);

impl std::fmt::Display for NotServed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the cluster does not serve {}", self.0)
    }
}

impl std::error::Error for NotServed {}

/// Returns whether an object belongs to a scenario, by its name, its namespace or its API group.
pub(super) fn is_of(key: &ObjectKey, slug: &str) -> bool {
    [Some(&key.name), key.namespace.as_ref(), Some(&key.kind.group)]
        .into_iter()
        .flatten()
        .any(|text| text.contains(slug))
}

/// Reads `Kind.group` or `Kind`.
pub(super) fn parse_kind(text: &str) -> GroupKind {
    let (kind, group) = text.split_once('.').unwrap_or((text, ""));
    GroupKind::new(group, kind)
}

/// Reads `Kind.group/name` or `Kind.group/namespace/name`.
pub(super) fn parse_key(text: &str) -> Result<ObjectKey> {
    let parts: Vec<_> = text.split('/').collect();
    match parts.as_slice() {
        [kind, name] => Ok(ObjectKey::new(parse_kind(kind), None, *name)),
        [kind, namespace, name] => Ok(ObjectKey::new(parse_kind(kind), Some(namespace), *name)),
        _ => bail!("{text}: expected Kind.group/name or Kind.group/namespace/name"),
    }
}
