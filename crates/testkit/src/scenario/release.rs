//! The equivalents of `apply` and `delete` commands as a DeployItem of the manifest deployer.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use billhook_deployer::api::{GROUP, OPERATION, VERSION};
use billhook_objects::{ApiVersion, GroupKind, ObjectKey};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    controller::target,
    items::{Done, Item, Until, phase},
    stage::Stage,
};

/// The API version of the created configurations.
const MANIFESTS: &str = "manifest.deployer.landscaper.gardener.cloud/v1alpha2";

/// The fields of a policy file, which have the same names in a ProviderConfiguration.
const POLICY: [&str; 4] = ["deletionGroups", "deletionGroupsDuringUpdate", "deletionOrderRules", "deploymentGroups"];

/// The arguments of an `apply` command.
#[derive(Debug, Default, Deserialize)]
pub struct Release {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    /// Its files; `-` is standard input.
    pub(super) files: Vec<String>,
    pub(super) stdin: String,
    pub(super) policy: Option<String>,
    pub(super) timeout: Option<String>,
    pub(super) wait: bool,
}

/// The arguments of a `delete` command.
#[derive(Debug, Default, Deserialize)]
pub struct Removal {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) policy: Option<String>,
    pub(super) timeout: Option<String>,
    /// The names of Targets, and the files with their kubeconfigs.
    pub(super) targets: Vec<(String, String)>,
    pub(super) ignore_not_found: bool,
}

impl Stage<'_> {
    /// Creates the item of an `apply`, or changes the existing one. Like a recorded policy, groups remain until others replace
    /// them.
    pub(super) async fn release(
        &self,
        item: &Item,
        release: &Release,
        before: Option<&DynamicObject>,
    ) -> Result<(Until, DynamicObject)> {
        let spec = self.spec(release).await?;
        let Some(before) = before else {
            let mut object = json!({
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "DeployItem",
                "metadata": {"name": item.name, "namespace": item.namespace},
                "spec": spec,
            });
            without_nulls(&mut object);
            let created = item.api.create(&PostParams::default(), &serde_json::from_value(object)?).await;
            return Ok((Until::next(None), created.context("create the DeployItem")?));
        };
        let patched = item.change(before, json!({ "spec": spec })).await?;
        Ok((Until::next(Some(before)), patched))
    }

    /// Returns the specification of the item of an `apply`, with null for removed fields.
    async fn spec(&self, release: &Release) -> Result<Value> {
        let mut documents = Vec::new();
        for file in &release.files {
            documents.extend(if file == "-" { parse(&release.stdin)? } else { self.documents(file)? });
        }
        let given = documents.iter().position(|document| document["kind"] == "DeployItem");
        let given = given.map(|at| documents.remove(at)["spec"].take());
        let mut spec = given.unwrap_or_else(|| json!({"type": "landscaper.gardener.cloud/kubernetes-manifest"}));
        spec["target"] = json!({"name": "target", "namespace": null});
        if release.timeout.is_some() || spec["timeout"].is_null() {
            spec["timeout"] = json!(release.timeout);
        }
        let configuration = documents.iter().position(|document| document["kind"] == "ProviderConfiguration");
        if let Some(at) = configuration {
            spec["config"] = documents.remove(at);
        }
        if spec["config"].is_null() {
            spec["config"] = json!({
                "apiVersion": MANIFESTS, "kind": "ProviderConfiguration", "updateStrategy": "serverSide", "manifests": [],
            });
        }
        let mut manifests = spec["config"]["manifests"].as_array().cloned().unwrap_or_default();
        for document in self.placed(documents).await? {
            manifests.push(json!({"policy": "manage", "manifest": document}));
        }
        spec["config"]["manifests"] = manifests.into();
        spec["config"]["readinessChecks"] = if release.wait { Value::Null } else { json!({"disableDefault": true}) };
        if let Some(policy) = &release.policy {
            self.set_policy(&mut spec["config"], policy)?;
        }
        Ok(spec)
    }

    /// Copies all fields of a policy file into a configuration, with null for missing fields.
    fn set_policy(&self, config: &mut Value, file: &str) -> Result<()> {
        let [policy] = <[_; 1]>::try_from(self.documents(file)?).map_err(|_| anyhow!("{file}: expected one policy"))?;
        for field in POLICY {
            config[field] = policy[field].clone();
        }
        Ok(())
    }

    /// Expands lists, and sets the namespace of the scenario on namespaced objects without one.
    async fn placed(&self, documents: Vec<Value>) -> Result<Vec<Value>> {
        let mut objects = Vec::new();
        for document in documents {
            match document["items"].as_array() {
                Some(items) if document["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => {
                    objects.extend(items.clone());
                }
                _ => objects.push(document),
            }
        }
        let brought = objects.clone();
        for object in &mut objects {
            let version = ApiVersion::parse(object["apiVersion"].as_str().unwrap_or_default())?;
            let kind = GroupKind::new(version.group(), object["kind"].as_str().unwrap_or_default());
            let namespaced = match brought.iter().find(|crd| is_crd_of(crd, &kind)) {
                Some(crd) => crd["spec"]["scope"] == "Namespaced",
                None => self.admin.is_namespaced(&kind).await?,
            };
            if namespaced && object["metadata"]["namespace"].is_null() {
                object["metadata"]["namespace"] = self.scenario.slug.clone().into();
            }
        }
        Ok(objects)
    }

    /// Reads all documents of a file of the scenario, or of all files of a folder.
    pub(super) fn documents(&self, file: &str) -> Result<Vec<Value>> {
        let path = self.folder().join(file);
        let mut files = if path.is_dir() { files_of(&path)? } else { vec![path] };
        files.sort();
        let mut documents = Vec::new();
        for file in files {
            let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            documents.extend(parse(&text)?);
        }
        Ok(documents)
    }

    /// Prepares a deletion; returns the result of the command if it ends here.
    pub(super) async fn prepare_removal(&self, item: &Item, removal: &Removal) -> Result<Option<Done>> {
        for (name, file) in &removal.targets {
            let kubeconfig = std::fs::read_to_string(self.folder().join(file))?;
            let key = ObjectKey::new(GroupKind::new(GROUP, "Target"), Some(&item.namespace), name);
            if self.admin.get(&key).await?.is_none() {
                self.admin.create(&target(name, &item.namespace, &kubeconfig).to_string()).await?;
            }
        }
        let Some(before) = item.rested().await? else {
            return if removal.ignore_not_found {
                Ok(Some(Done::default()))
            } else {
                Err(anyhow!("the item does not exist"))
            };
        };
        let mut change = json!({"spec": {}});
        if removal.timeout.as_deref() != before.data["spec"]["timeout"].as_str() {
            change["spec"]["timeout"] = json!(removal.timeout);
        }
        if let Some(policy) = &removal.policy {
            self.set_policy(&mut change["spec"]["config"], policy)?;
        }
        // An item that is already being deleted is triggered by the change itself.
        if change["spec"] == json!({}) || before.metadata.deletion_timestamp.is_some() {
            if change["spec"] == json!({}) {
                return Ok(None);
            }
            let begun = Instant::now();
            item.patch(&change).await?;
            let item = item.end(&Until::next(Some(&before)), None).await;
            return Ok(Some(Done { item, took: begun.elapsed() }));
        }
        item.change(&before, change).await?;
        let changed = item.end(&Until::next(Some(&before)), None).await;
        Ok((phase(changed.as_ref()) != "Succeeded").then(|| Done { item: changed, ..Done::default() }))
    }
}

impl Item {
    /// Applies a merge patch; if that changes nothing, triggers a reconcile with the operation `reconcile`.
    async fn change(&self, before: &DynamicObject, patch: Value) -> Result<DynamicObject> {
        let patched = self.patch(&patch).await?;
        if patched.metadata.generation == before.metadata.generation {
            return self.patch(&json!({"metadata": {"annotations": {OPERATION: "reconcile"}}})).await;
        }
        Ok(patched)
    }

    /// Deletes it, or triggers its deletion again.
    pub(super) async fn remove(&self, before: &DynamicObject) -> Result<Until> {
        if before.metadata.deletion_timestamp.is_none() {
            self.api.delete(&self.name, &DeleteParams::default()).await?;
        } else {
            self.patch(&json!({"metadata": {"annotations": {OPERATION: "reconcile"}}})).await?;
        }
        Ok(Until::next(Some(before)))
    }
}

fn parse(text: &str) -> Result<Vec<Value>> {
    Ok(billhook_objects::yaml::parse(text)?.into_iter().map(|document| document.value).collect())
}

fn files_of(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let is_manifest =
        |path: &Path| path.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|e| ending == *e));
    let entries: Vec<_> = folder.read_dir()?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    Ok(entries.into_iter().filter(|path| path.is_file() && is_manifest(path)).collect())
}

fn is_crd_of(object: &Value, kind: &GroupKind) -> bool {
    object["kind"] == "CustomResourceDefinition"
        && object["spec"]["group"] == kind.group
        && object["spec"]["names"]["kind"] == kind.kind
}

/// Removes fields that are null, which a merge patch needs, but not a new object.
fn without_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        let kept = std::mem::take(fields).into_iter().filter(|(_, value)| !value.is_null());
        *fields = Map::from_iter(kept.map(|(name, mut value)| {
            if name != "manifests" {
                without_nulls(&mut value);
            }
            (name, value)
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_null_is_left_out_but_for_manifests() {
        let mut value = json!({"a": null, "b": {"c": null, "d": 1}, "manifests": [{"e": null}]});
        without_nulls(&mut value);
        assert_eq!(value, json!({"b": {"d": 1}, "manifests": [{"e": null}]}));
    }

    #[test]
    fn a_crd_is_that_of_its_kind() {
        let crd =
            json!({"kind": "CustomResourceDefinition", "spec": {"group": "a.example", "names": {"kind": "Widget"}}});
        for (kind, same) in
            [(("a.example", "Widget"), true), (("b.example", "Widget"), false), (("a.example", "Gadget"), false)]
        {
            assert_eq!(is_crd_of(&crd, &GroupKind::new(kind.0, kind.1)), same, "{kind:?}");
        }
    }
}
