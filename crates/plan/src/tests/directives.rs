//! The effect of a manifest's policy, annotations and patches on a plan.

use billhook_objects::ReleaseName;
use billhook_policy::{ManifestPolicy, UpdateStrategy};
use serde_json::json;

use super::{apply::deployment, cluster::*};
use crate::*;

const POLICIES: [ManifestPolicy; 4] =
    [ManifestPolicy::Manage, ManifestPolicy::Fallback, ManifestPolicy::Keep, ManifestPolicy::Immutable];

/// Checks what each policy does to a ConfigMap whose manifest has changed.
#[track_caller]
fn check(entry: &str, live: &str, adopt: bool, expected: [&str; 4]) {
    let entry: &[&str] = if entry.is_empty() { &[] } else { &[entry] };
    let live: &[&str] = if live.is_empty() { &[] } else { &[live] };
    for (policy, expected) in POLICIES.into_iter().zip(expected) {
        let mut deployment = deployment(&["v1 ConfigMap/a/x"]).knowing(entry);
        deployment.adopt = adopt;
        deployment.manifests[0].set_label("manifest.deployer.landscaper.gardener.cloud/deployitem", "item");
        let directives = Directives { policy, ..Directives::default() };
        deployment.directives.insert(key("ConfigMap/a/x"), directives);
        let found = match deployment.plan(&cluster(live)) {
            Ok(plan) => nodes(&plan).concat().replace("namespaced-resources: ConfigMap/a/x", ""),
            Err(error) => texts(&error).concat(),
        };
        assert_eq!(found, expected, "{policy:?} {entry:?} {live:?}");
    }
}

#[test]
fn policies_of_manifests_apply_to_existing_objects() {
    check("", "", false, ["(create)"; 4]);
    let known = ["(update)", "(update)", "(update)", "(unchanged)"];
    check("ConfigMap/a/x 1", "ConfigMap/a/x uid=1 ours", false, known);
    check("ConfigMap/a/x", "ConfigMap/a/x uid=1 ours", false, known);
    check("ConfigMap/a/x 2", "ConfigMap/a/x uid=1 ours", false, known);
    let item = "manifest.deployer.landscaper.gardener.cloud/deployitem";
    let adopted = ["(adopt)", "(adopt)", "(adopt)", "(unchanged)"];
    check("", &format!("ConfigMap/a/x uid=1 {item}=item"), true, adopted);
    check("", "ConfigMap/a/x uid=1", true, ["(adopt)", "", "(adopt)", "(unchanged)"]);
    check("", &format!("ConfigMap/a/x uid=1 {item}=other"), true, ["(adopt)", "", "(adopt)", "(unchanged)"]);
    let taken = ["(update)", "", "(update)", "(unchanged)"];
    check("ConfigMap/a/x 1", &format!("ConfigMap/a/x uid=1 ours {item}=other"), false, taken);
    check("ConfigMap/a/x 1", &format!("ConfigMap/a/x uid=1 ours {item}=item"), false, known);
    let nobodys = "ConfigMap a/x exists and belongs to no release";
    check("", "ConfigMap/a/x uid=1", false, [nobodys, "", nobodys, nobodys]);
    check("ConfigMap/a/x 2", "ConfigMap/a/x uid=1", false, [nobodys, "", nobodys, nobodys]);
    let others = "ConfigMap a/x belongs to release app/db";
    check("", "ConfigMap/a/x uid=1 of=db.app", true, [others, "", others, others]);
    let going = "ConfigMap a/x is being deleted";
    check("ConfigMap/a/x", "ConfigMap/a/x uid=1 ours deleting", true, [going; 4]);
}

#[test]
fn an_object_left_to_another_client_is_noted() {
    let mut deployment = deployment(&["v1 ConfigMap/a/x", "v1 Secret/a/s"]);
    let fallback = Directives { policy: ManifestPolicy::Fallback, ..Directives::default() };
    deployment.directives.insert(key("ConfigMap/a/x"), fallback);
    let plan = deployment.check(&["ConfigMap/a/x"], &["namespaced-resources: Secret/a/s(create)"]);
    let note =
        "info fallback: ConfigMap a/x does not belong to the release and remains unchanged: its policy is fallback";
    assert_eq!(notes(&plan), [note]);
}

#[test]
fn tasks_contain_strategy_annotations_and_uid() {
    let mut deployment = deployment(&["v1 ConfigMap/a/new", "v1 ConfigMap/a/same", "v1 ConfigMap/a/left"])
        .knowing(&["ConfigMap/a/same 1", "ConfigMap/a/left 2"]);
    deployment.strategy = UpdateStrategy::Merge;
    let annotate_before_create = [("a".to_owned(), "b".to_owned())].into();
    for name in ["new", "same", "left"] {
        let policy = if name == "left" { ManifestPolicy::Immutable } else { ManifestPolicy::Manage };
        let directives = Directives {
            policy,
            annotate_before_create: Clone::clone(&annotate_before_create),
            ..Directives::default()
        };
        deployment.directives.insert(key(&format!("ConfigMap/a/{name}")), directives);
    }
    let plan = deployment.plan(&cluster(&["ConfigMap/a/same uid=1 ours", "ConfigMap/a/left uid=2 rv=7 ours"])).unwrap();
    let Work::Apply(work) = &plan.nodes[0].work else { panic!() };
    let said: Vec<_> = work
        .objects
        .iter()
        .map(|task| {
            let uid = task.uid.as_ref().map(ToString::to_string).unwrap_or_default();
            (task.object.name.as_str(), task.strategy, task.annotate_before_create.len(), uid)
        })
        .collect();
    let (merge, none) = (UpdateStrategy::Merge, UpdateStrategy::ServerSide);
    assert_eq!(
        said,
        [("left", none, 0, "2".into()), ("new", merge, 1, String::new()), ("same", none, 0, String::new())]
    );
    let json = serde_json::to_value(&plan).unwrap();
    let tasks = &json["nodes"][0]["work"]["apply"]["objects"];
    assert_eq!((&tasks[1]["strategy"], tasks[2].get("strategy")), (&json!("merge"), None));
}

#[test]
fn patches_are_sent_after_the_deployment_and_before_pruning() {
    let lines = ["apps/v1 Deployment/a/d", "a.example/v1beta1 Widget/a/w", "v1 ConfigMap/a/x"];
    let old = ["Deployment/a/d 1", "Widget.a.example/a/w 2", "ConfigMap/a/x 3", "Secret/a/old 4"];
    let mut deployment = deployment(&lines).knowing(&old);
    deployment.wait = Wait::All;
    for name in ["Widget.a.example/a/w", "ConfigMap/a/x"] {
        let patch_after = Some(json!({"n": name.len()}));
        deployment.directives.insert(key(name), Directives { patch_after, ..Directives::default() });
    }
    let manifest = deployment.manifests.iter().find(|manifest| manifest.key.name == "x").unwrap();
    let patched = deployment.directives[&manifest.key].digest(manifest);
    assert_ne!(patched, manifest.digest());
    deployment.inventory.as_mut().unwrap().entries.get_mut(&key("ConfigMap/a/x")).unwrap().digest = patched;
    let live = [
        "Deployment/a/d uid=1 ours",
        "Widget.a.example/a/w uid=2 ours",
        "ConfigMap/a/x uid=3 ours",
        "Secret/a/old uid=4 ours",
    ];
    let plan = deployment.check(
        &live,
        &[
            "namespaced-resources: ConfigMap/a/x(unchanged) Widget.a.example/a/w(update) Deployment.apps/a/d(unchanged)",
            "ready: Widget.a.example/a/w(await!) Deployment.apps/a/d(await!)",
            "patches after deployment: Widget.a.example/a/w(v1beta1 {\"n\":20})",
            "namespaced-resources: Secret/a/old",
        ],
    );
    let Work::Patch(work) = &plan.nodes[2].work else { panic!() };
    assert_eq!(work.objects[0].uid, Some(billhook_objects::Uid::new("2")));
    assert_eq!((plan.nodes[2].barrier, &plan.nodes[3].after), (Barrier::Requested, &vec![2]));
}

#[test]
fn the_default_check_awaits_workloads_only() {
    let lines = ["apps/v1 Deployment/a/d", "a.example/v1 Widget/a/w", "v1 ConfigMap/a/x", "v1 Pod/a/p"];
    let mut deployment = deployment(&lines);
    let all = "namespaced-resources: ConfigMap/a/x(create) Pod/a/p(create) Widget.a.example/a/w(create) Deployment.apps/a/d(create)";
    for (wait, expected) in [
        (Wait::Nothing, None),
        (Wait::Workloads, Some("ready: Pod/a/p(await!) Deployment.apps/a/d(await!)")),
        (Wait::All, Some("ready: Pod/a/p(await!) Widget.a.example/a/w(await!) Deployment.apps/a/d(await!)")),
    ] {
        deployment.wait = wait;
        let nodes: Vec<_> = std::iter::once(all).chain(expected).collect();
        deployment.check(&[], &nodes);
    }
}

#[test]
fn objects_with_policy_keep_are_never_deleted() {
    let objects = ["ConfigMap/a/k uid=1 keep", "ConfigMap/a/x uid=2", "Namespace/app uid=3 keep"];
    let live =
        ["ConfigMap/a/k uid=1 ours", "ConfigMap/a/x uid=2 ours", "ConfigMap/a/y uid=4", "Namespace/app uid=3 ours"];
    for operation in [Operation::Delete, Operation::Apply] {
        let mut deletion = deletion(&objects, &["v1 cm all", "v1 ns all", "namespaced"]);
        deletion.operation = operation;
        let plan = deletion.plan(&cluster(&live)).unwrap();
        let group = "v1 cm all: ConfigMap/a/x ConfigMap/a/y; all configmaps";
        assert_eq!(nodes(&plan)[..2], [group, "v1 ns all:; all namespaces"]);
        assert_eq!(uncovered(&plan), ["ConfigMap/a/k: its policy is keep", "Namespace/app: its policy is keep"]);
        let Work::Delete(work) = &plan.nodes[0].work else { panic!() };
        let kept = Exclusion { names: vec!["k".into()], namespaces: vec!["a".into()], ..Exclusion::default() };
        assert!(work.collections[0].excluded.contains(&kept), "it is left out of what appears meanwhile, too");
    }
    let mut update = deployment(&[]).knowing(&["ConfigMap/a/k 1", "ConfigMap/a/x 2"]);
    update.inventory.as_mut().unwrap().entries.get_mut(&key("ConfigMap/a/k")).unwrap().keep = true;
    let plan = update.check(&live[..2], &["namespaced-resources: ConfigMap/a/x"]);
    assert_eq!(uncovered(&plan), ["ConfigMap/a/k: its policy is keep"]);
}

#[test]
fn objects_with_policy_fallback_are_left_to_the_item_that_their_label_names() {
    let label = |deployer: &str| format!("{deployer}.deployer.landscaper.gardener.cloud/deployitem");
    let (item, another) = (label("manifest"), label("helm"));
    let ours = "of=deployitem.web.app";
    let live = [
        format!("ConfigMap/a/a uid=a {ours}"),
        format!("ConfigMap/a/b uid=b {ours} {item}=web {another}=other"),
        format!("ConfigMap/a/c uid=c {ours} {item}=other"),
        format!("ConfigMap/a/d uid=d {ours} {another}=other"),
        format!("ConfigMap/a/e uid=e {ours} {item}=other"),
    ];
    let fallback = ["a", "b", "c", "d"].map(|name| format!("ConfigMap/a/{name} uid={name} fallback"));
    let objects: Vec<_> = fallback.iter().map(String::as_str).chain(["ConfigMap/a/e uid=e"]).collect();
    let mut deletion = deletion(&objects, &["v1 cm"]);
    deletion.release = Some(ReleaseName::of_deploy_item("app", "web"));
    let plan = deletion.plan(&cluster(&live.each_ref().map(String::as_str))).unwrap();
    let left = "its policy is fallback, and its label names another DeployItem";
    assert_eq!(nodes(&plan), ["v1 cm: ConfigMap/a/a ConfigMap/a/b ConfigMap/a/e"]);
    assert_eq!(uncovered(&plan), [format!("ConfigMap/a/c: {left}"), format!("ConfigMap/a/d: {left}")]);
}

#[test]
fn patches_are_sent_before_any_deletion() {
    let objects = [
        "ConfigMap/a/x uid=1 patch=x",
        "Secret/a/s uid=2 patch=s",
        "Widget.a.example/a/w uid=3 patch=w",
        "ConfigMap/a/gone uid=4 patch=g",
        "ConfigMap/a/k uid=5 keep patch=k",
    ];
    let mut live = vec!["ConfigMap/a/x uid=1 ours", "Secret/a/s uid=2 ours", "ConfigMap/a/k uid=5 ours"];
    live.push("Widget.a.example/a/w uid=3 ours");
    let mut deletion = deletion(&objects, &["a.example/v1 widgets all", "v1 cm"]);
    deletion.objects[2].version = "v1beta1".into();
    let plan = deletion.plan(&cluster(&live)).unwrap();
    let expected = [
        "patches before deletion: ConfigMap/a/x(v1 {\"a\":\"x\"}) Widget.a.example/a/w(v1beta1 {\"a\":\"w\"})",
        "a.example/v1 widgets all: Widget.a.example/a/w; all widgets.a.example",
        "v1 cm: ConfigMap/a/x",
    ];
    assert_eq!(nodes(&plan), expected);
    assert_eq!((plan.nodes[0].barrier, &plan.nodes[1].after), (Barrier::Requested, &vec![0]));
    deletion.operation = Operation::Apply;
    assert_eq!(nodes(&deletion.plan(&cluster(&live)).unwrap()), expected);
}

#[test]
fn an_object_that_moved_to_another_group_is_not_patched_for_its_deletion() {
    let mut update =
        deployment(&["b.example/v1 Widget/a/w"]).knowing(&["Widget.b.example/a/w 1", "Widget.a.example/a/w 1"]);
    let entries = &mut update.inventory.as_mut().unwrap().entries;
    entries.get_mut(&key("Widget.a.example/a/w")).unwrap().before_delete = Some(Box::new(json!({})));
    let live = ["Widget.b.example/a/w uid=1 ours", "Widget.a.example/a/w uid=1 ours"];
    update.check(&live, &["namespaced-resources: Widget.b.example/a/w(unchanged)"]);
}

#[test]
fn the_namespace_of_a_remote_inventory_is_not_special() {
    let objects = ["Namespace/app uid=1", "ConfigMap/app/x uid=2"];
    let live = ["Namespace/app uid=1 ours", "ConfigMap/app/x uid=2 ours"];
    for (here, expected) in [
        (true, ["namespaced: ConfigMap/app/x", "namespace app (holds the inventory): Namespace/app"]),
        (false, ["v1 ns all: Namespace/app; all namespaces", "namespaced: ConfigMap/app/x"]),
    ] {
        let mut deletion = deletion(&objects, &["v1 ns all", "namespaced"]);
        deletion.record_here = here;
        let found = nodes(&deletion.plan(&cluster(&live)).unwrap());
        assert_eq!(found[found.len() - 2..], expected);
    }
    let mut update = deployment(&[]).knowing(&["Namespace/app 1"]);
    update.check(&live, &[]);
    update.record_here = false;
    update.check(&live, &["cluster-scoped-resources: Namespace/app"]);
}

#[test]
fn entries_of_old_inventories_are_readable() {
    let old = json!({"apiVersion": "v1", "digest": "0f".repeat(32), "uid": "1", "resourceVersion": "2"});
    let read: Entry = serde_json::from_value(old.clone()).unwrap();
    assert_eq!((read.keep, &read.before_delete), (false, &None));
    assert_eq!(serde_json::to_value(&read).unwrap(), old);
    let new = Entry { keep: true, before_delete: Some(Box::new(json!({"a": null}))), ..read };
    let text = serde_json::to_string(&new).unwrap();
    assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), new);
}
