//! `restore` and the backups of `delete`: arguments, and the files of `--backup-dir`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use billhook_sandbox::{Options, Sandbox, User};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::call::{Called, Place};

const MANIFESTS: &str = "\
{apiVersion: v1, kind: Secret, metadata: {name: token}, stringData: {password: very-confidential}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: 'a:b'}}
";

#[test]
fn invalid_arguments_are_rejected() {
    let place = Place::new(&[]);
    for (args, words) in [
        ("restore", "NAME"),
        ("plan restore", "NAME"),
        ("delete -f a.yaml --backup", "cannot be used with"),
        ("delete web --backup --backup-dir d", "cannot be used with"),
        ("delete web --backup=maybe", "invalid value"),
    ] {
        place.rejects(args, words);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_files_of_a_backup_are_readable_by_the_user_alone_and_can_be_applied() {
    let place = Place::new(&[("m.yaml", MANIFESTS), ("full/file", "")]);
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let sandbox = Sandbox::start(Options::default());
        let applied = place.call_on_sandbox(&sandbox, "apply web -n default -f m.yaml").await;
        assert_eq!(applied.exit, 0, "{}", applied.err);
        symlink(place.folder().join("nowhere/else"), place.folder().join("link")).unwrap();
        for (directory, exit, words) in
            [("full", 2, "is not empty"), ("missing/saved", 1, "failed to write"), ("link", 1, "failed to write")]
        {
            let refused =
                place.call_on_sandbox(&sandbox, &format!("delete web -n default --backup-dir {directory}")).await;
            assert_eq!(refused.exit, exit, "{directory}: {}", refused.err);
            assert!(refused.err.contains(words), "{}", refused.err);
        }
        let deleted = place.call_on_sandbox(&sandbox, "delete web -n default --backup-dir saved").await;
        assert_eq!(deleted.exit, 0, "{}", deleted.err);
        assert!(deleted.out.contains("2 objects gone"), "the refused deletions deleted objects: {}", deleted.out);
        assert!(deleted.err.contains("2 objects saved"), "{}", deleted.err);
        let folder = place.folder().join("saved");
        assert_eq!(mode(&folder), 0o700);
        let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(files.iter().map(|file| mode(file)).collect::<Vec<_>>(), [0o600, 0o600]);
        assert!(!files.iter().any(|file| fs::read_to_string(file).unwrap().contains("resourceVersion")));
        let nothing = place.call_on_sandbox(&sandbox, "restore web -n default").await;
        assert_eq!(nothing.exit, 2, "{}", nothing.err);
        let again = place.call_on_sandbox(&sandbox, "apply web -n default -f saved").await;
        assert_eq!(again.exit, 0, "{}", again.err);
        assert!(again.out.contains("2 created"), "{}", again.out);
        for Called { out, err, .. } in [&deleted, &again] {
            assert!(!format!("{out}{err}").contains("dmVyeS1jb25maWRlbnRpYWw"));
        }
    });
}

const SHOP: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.shop.example}
spec:
  group: shop.example
  names: {kind: Shop, plural: shops}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
{apiVersion: shop.example/v1, kind: Shop, metadata: {name: main}, spec: {size: 3}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {mode: fast}}
---
{apiVersion: v1, kind: Secret, metadata: {name: token}, stringData: {password: very-confidential}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}
";

fn api(sandbox: &Sandbox, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(sandbox.client(User::admin(), "tester"), "default", &resource)
}

async fn uid(api: &Api<DynamicObject>, name: &str) -> String {
    api.get(name).await.unwrap().metadata.uid.unwrap()
}

/// Returns all objects but the record, without what only the server sets.
fn listing(sandbox: &Sandbox) -> Vec<Value> {
    let mut all: Vec<Value> = sandbox.objects();
    all.retain(|object| object["type"] != "billhook.dev/inventory" && object["kind"] != "Event");
    for object in &mut all {
        let metadata = object["metadata"].as_object_mut().unwrap();
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
            metadata.remove(field);
        }
        for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
            owner["uid"] = Value::Null;
        }
        if object["kind"] == "Service" {
            let spec = object["spec"].as_object_mut().unwrap();
            spec.retain(|field, _| !field.starts_with("clusterIP"));
        }
        if object["kind"] == "CustomResourceDefinition" {
            object["status"] = Value::Null;
        }
    }
    all.sort_by_key(ToString::to_string);
    all
}

#[test]
fn what_is_restored_is_what_was_there() {
    let place = Place::new(&[("m.yaml", SHOP)]);
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let sandbox = Sandbox::start(Options::default());
        let applied = place.call_on_sandbox(&sandbox, "apply web -n default -f m.yaml --wait=false").await;
        assert_eq!(applied.exit, 0, "{}", applied.err);
        let shops = api(&sandbox, "shop.example", "v1", "Shop");
        let (secrets, settings) = (api(&sandbox, "", "v1", "Secret"), api(&sandbox, "", "v1", "ConfigMap"));
        let merge = |patch: Value| (PatchParams::default(), Patch::Merge(patch));
        let (how, status) = merge(json!({"status": {"id": "external-7"}}));
        shops.patch_status("main", &how, &status).await.unwrap();
        let shop = uid(&shops, "main").await;
        let owner =
            json!({"apiVersion": "shop.example/v1", "kind": "Shop", "name": "main", "uid": shop, "controller": true});
        let (how, owned) = merge(json!({"metadata": {
            "ownerReferences": [owner], "annotations": {"by": "hand"}, "finalizers": ["shop.example/backup"]}}));
        secrets.patch("token", &how, &owned).await.unwrap();
        settings.patch("settings", &how, &merge(json!({"data": {"changed": "since"}})).1).await.unwrap();
        let before = listing(&sandbox);
        let deleting = place.call_on_sandbox(&sandbox, "delete web -n default --backup --timeout 5s").await;
        assert_eq!(deleting.exit, 3, "the finalizer holds the Secret: {}", deleting.err);
        secrets.patch("token", &how, &merge(json!({"metadata": {"finalizers": null}})).1).await.unwrap();
        // Without the flag, what was saved remains.
        let deleted = place.call_on_sandbox(&sandbox, "delete web -n default").await;
        assert_eq!(deleted.exit, 0, "{}", deleted.err);
        let restored = place.call_on_sandbox(&sandbox, "restore web -n default --wait=false").await;
        assert_eq!(restored.exit, 0, "{}{}", restored.out, restored.err);
        assert_eq!(listing(&sandbox), before);
        let token = secrets.get("token").await.unwrap();
        assert_eq!(token.metadata.owner_references.unwrap()[0].uid, uid(&shops, "main").await);
        assert_ne!(uid(&shops, "main").await, shop);
        // A status that its controller has changed since is not set back.
        let (how, status) = merge(json!({"status": {"id": "external-8"}}));
        shops.patch_status("main", &how, &status).await.unwrap();
        let again = place.call_on_sandbox(&sandbox, "restore web -n default --wait=false").await;
        assert!(again.out.contains("5 unchanged"), "{}{}", again.out, again.err);
        assert_eq!(shops.get("main").await.unwrap().data["status"]["id"], "external-8");
        for Called { out, err, .. } in [&deleting, &deleted, &restored, &again] {
            assert!(!format!("{out}{err}").contains("dmVyeS1jb25maWRlbnRpYWw"));
        }
    });
}
