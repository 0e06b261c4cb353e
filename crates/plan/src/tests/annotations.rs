//! The annotations of objects: how they are read, and what they change in a plan.

use std::time::Duration;

use billhook_policy::{GoDuration, Propagation};
use serde_json::json;

use super::{apply::deployment, cluster::*};
use crate::*;

fn annotations(text: &str) -> Annotations {
    text.split_whitespace().filter_map(annotation).collect()
}

/// Checks how `@NAME=VALUE …` is read, and which of the values cannot be.
#[track_caller]
fn reads(text: &str, expected: Treatment, unreadable: &[&str]) {
    let (found, problems) = annotations(text).read();
    assert_eq!(found, expected, "{text}");
    assert_eq!(problems.iter().map(|problem| problem.key.as_str()).collect::<Vec<_>>(), unreadable, "{text}");
}

#[test]
fn values_are_read_as_gardener_reads_them() {
    let none = Treatment::default();
    let keep = Treatment { keep: true, ..none };
    reads("", none, &[]);
    for yes in ["1", "t", "T", "true", "TRUE", "True"] {
        reads(&format!("@keep-object={yes}"), keep, &[]);
        reads(&format!("@@keep-object={yes}"), keep, &[]);
    }
    for no in ["0", "f", "F", "false", "FALSE", "False"] {
        reads(&format!("@@keep-object={no}"), none, &[]);
    }
    reads("@@ignore=true", Treatment { ignore: true, ..none }, &[]);
    reads("@@skip-health-check=true", Treatment { skip_health_check: true, ..none }, &[]);
    reads("@@mode=Ignore", Treatment { unmanaged: true, ..none }, &[]);
    let after = |seconds| Treatment { finalize_after: Some(GoDuration(Duration::from_secs(seconds))), ..none };
    reads("@@finalize-deletion-after=1h", after(3600), &[]);
    reads("@@finalize-deletion-after=1m30s", after(90), &[]);
    // As in Gardener, zero is as good as none.
    reads("@@finalize-deletion-after=0s", none, &[]);
    let recreate = |propagation| Treatment { recreate: Some(propagation), ..none };
    reads("@@delete-on-invalid-update=true", recreate(Propagation::Background), &[]);
    let orphan = "@@delete-on-invalid-update=true @@deletion-propagation-on-invalid-update=Orphan";
    reads(orphan, recreate(Propagation::Orphan), &[]);
    let foreground = "@delete-on-invalid-update=true @@deletion-propagation-on-invalid-update=Foreground";
    reads(foreground, recreate(Propagation::Foreground), &[]);
    reads("@@deletion-propagation-on-invalid-update=Orphan", none, &[]);
}

#[test]
fn a_value_that_cannot_be_read_deletes_and_changes_nothing() {
    let none = Treatment::default();
    reads("@keep-object=yes", Treatment { keep: true, ..none }, &["billhook.dev/keep-object"]);
    reads("@@keep-object=", Treatment { keep: true, ..none }, &["resources.gardener.cloud/keep-object"]);
    reads("@@mode=ignore", Treatment { unmanaged: true, ..none }, &["resources.gardener.cloud/mode"]);
    reads("@ignore=x", Treatment { ignore: true, ..none }, &["billhook.dev/ignore"]);
    for wrong in ["5", "-1h", "soon", "1h-5m", "9999999h"] {
        let text = format!("@finalize-deletion-after={wrong}");
        reads(&text, none, &["billhook.dev/finalize-deletion-after"]);
    }
    reads("@skip-health-check=yes", none, &["billhook.dev/skip-health-check"]);
    reads("@delete-on-invalid-update=yes", none, &["billhook.dev/delete-on-invalid-update"]);
    let propagation = "@delete-on-invalid-update=true @deletion-propagation-on-invalid-update=background";
    reads(propagation, none, &["billhook.dev/deletion-propagation-on-invalid-update"]);
}

#[test]
fn the_prefix_of_billhook_counts_first() {
    let none = Treatment::default();
    reads("@keep-object=false @@keep-object=true", none, &[]);
    reads("@keep-object=true @@keep-object=false", Treatment { keep: true, ..none }, &[]);
    reads("@keep-object=maybe @@keep-object=false", Treatment { keep: true, ..none }, &["billhook.dev/keep-object"]);
    let after = |seconds| Treatment { finalize_after: Some(GoDuration(Duration::from_secs(seconds))), ..none };
    reads("@finalize-deletion-after=1m @@finalize-deletion-after=x", after(60), &[]);
}

#[test]
fn only_annotations_that_matter_are_decoded() {
    let all = json!({"resources.gardener.cloud/ignore": "true", "resources.gardener.cloud/origin": "x", "a": "b",
        "billhook.dev/protect": "true", "billhook.dev/mode": null, "resources.gardener.cloud/": "", "ignore": "true"});
    let found: Annotations = serde_json::from_value(all).unwrap();
    assert!(found.is_protected() && found.treatment() == Treatment { ignore: true, ..Treatment::default() });
    let kept = json!({"billhook.dev/protect": "true", "resources.gardener.cloud/ignore": "true"});
    assert_eq!(serde_json::to_value(&found).unwrap(), kept);
    assert!(serde_json::from_value::<Annotations>(json!({})).unwrap().is_empty());
}

#[test]
fn kept_objects_remain_whatever_the_policy_says() {
    let objects = ["ConfigMap/a/x uid=1", "ConfigMap/a/y uid=2", "ConfigMap/a/z uid=3", "Secret/a/s uid=4"];
    let live = [
        "ConfigMap/a/x uid=1 ours @keep-object=true",
        "ConfigMap/a/y uid=2 ours @@keep-object=true",
        "ConfigMap/a/z uid=3 ours @keep-object=no",
        "Secret/a/s uid=4 ours @keep-object=false",
        // Of another client, in the collection.
        "ConfigMap/a/w uid=5 @keep-object=true",
        "ConfigMap/a/v uid=6",
    ];
    for groups in [&["v1 configmaps all ns=a | force", "v1 secrets"][..], &["v1 configmaps ns=a", "v1 secrets"]] {
        let plan = deletion(&objects, groups).plan(&cluster(&live)).unwrap();
        let deleted: Vec<_> = plan.deleted().map(|(_, object, ..)| object.to_string()).collect();
        let collected: &[&str] = if groups[0].contains("all") { &["ConfigMap/a/v"] } else { &[] };
        assert_eq!(deleted, [collected, &["Secret/a/s"]].concat());
        let kept = ["x", "y", "z"].map(|name| format!("ConfigMap/a/{name}: it is annotated with keep-object"));
        assert_eq!(uncovered(&plan), kept);
        let number = if collected.is_empty() { 3 } else { 4 };
        let note = format!(
            "info annotation: {number} objects annotated with keep-object will not be deleted: {number} ConfigMap"
        );
        let unreadable = "warning annotation: ConfigMap a/z: annotation billhook.dev/keep-object is \"no\" instead of true or \
                          false, and counts as if it were set";
        let notes = notes(&plan);
        assert!(notes.contains(&note) && notes.contains(&unreadable.to_owned()), "{notes:#?}");
    }
}

#[test]
fn a_kept_object_that_is_deleted_with_its_namespace_is_dangerous() {
    let objects = ["Namespace/a uid=1", "PersistentVolumeClaim/a/p uid=2"];
    let live = ["Namespace/a uid=1 ours", "PersistentVolumeClaim/a/p uid=2 ours @@keep-object=true"];
    let plan = deletion(&objects, &[]).blast(&cluster(&live));
    assert_eq!(nodes(&plan), ["cluster-scoped-resources: Namespace/a"]);
    let with = "PersistentVolumeClaim/a/p: it is annotated with keep-object, but it is deleted with Namespace a";
    assert_eq!(uncovered(&plan), [with]);
    let note = "dangerous uncovered: 1 object that annotations keep will be deleted nevertheless, with a Namespace or CRD: 1 \
                PersistentVolumeClaim";
    assert!(notes(&plan).contains(&note.to_owned()), "{:#?}", notes(&plan));
    let kept = ["Namespace/a uid=1 ours @keep-object=true", live[1]];
    let plan = deletion(&objects, &[]).blast(&cluster(&kept));
    assert_eq!((nodes(&plan).len(), is_dangerous(&plan)), (0, false));
}

#[test]
fn a_kept_object_that_a_collection_leaves_out_is_deleted_with_its_crd() {
    let objects = ["CustomResourceDefinition/widgets.a.example uid=1"];
    let groups = ["a.example/v1 widgets all", "crds"];
    let live = [
        "CustomResourceDefinition/widgets.a.example uid=1 ours",
        "Widget.a.example/a/kept @mode=Ignore",
        "Widget.a.example/a/other",
    ];
    let mut plan = deletion(&objects, &groups).blast(&cluster(&live));
    assert_eq!(nodes(&plan)[0], "a.example/v1 widgets all: Widget.a.example/a/other; all widgets.a.example");
    let note = "dangerous uncovered: 1 object that annotations keep will be deleted nevertheless, with a Namespace or CRD: 1 \
                Widget.a.example";
    let dangerous: Vec<_> = notes(&plan).into_iter().filter(|note| note.starts_with("dangerous")).collect();
    assert_eq!(dangerous, [note]);
    limit_deletions(&mut plan, 2);
    assert!(notes(&plan)[0].contains("deletes 3 objects"), "{:?}", notes(&plan));
}

#[test]
fn a_deletion_gives_up_what_is_no_longer_managed() {
    let live = ["ConfigMap/a/x uid=1 ours @@mode=Ignore", "ConfigMap/a/y uid=2 ours @mode=Other"];
    let plan = deletion(&["ConfigMap/a/x uid=1", "ConfigMap/a/y uid=2"], &[]).plan(&cluster(&live)).unwrap();
    let unmanaged: Vec<_> = plan.unmanaged.iter().map(|u| (u.object.to_string(), u.uid.as_str())).collect();
    assert_eq!(unmanaged, [("ConfigMap/a/x".to_owned(), "1"), ("ConfigMap/a/y".to_owned(), "2")]);
    assert!(plan.nodes.is_empty() && plan.uncovered.is_empty());
    // Without a release there is nothing to give up.
    let mut bare = deletion(&["ConfigMap/a/x"], &[]);
    bare.release = None;
    let plan = bare.plan(&cluster(&live)).unwrap();
    assert!(plan.nodes.is_empty() && plan.unmanaged.is_empty());
    assert_eq!(uncovered(&plan), ["ConfigMap/a/x: it is annotated with mode=Ignore"]);
}

#[test]
fn a_deletion_announces_that_finalizers_are_removed() {
    let objects = ["ConfigMap/a/x uid=1", "ConfigMap/a/y uid=2"];
    let live = [
        "ConfigMap/a/x uid=1 ours @@finalize-deletion-after=1h",
        "ConfigMap/a/y uid=2 ours @finalize-deletion-after=0s",
    ];
    let plan = deletion(&objects, &[]).plan(&cluster(&live)).unwrap();
    let note = "warning annotation: 1 object annotated with finalize-deletion-after will lose all finalizers some time after \
                the deletion: 1 ConfigMap";
    assert_eq!(notes(&plan), [note]);
    let printed = serde_json::to_value(&plan).unwrap();
    let tasks = &printed["nodes"][0]["work"]["delete"]["objects"];
    assert_eq!(tasks[0]["annotations"], json!({"resources.gardener.cloud/finalize-deletion-after": "1h"}));
    assert_eq!(serde_json::from_value::<Plan>(printed).unwrap(), plan);
}

/// Checks what an apply does with a ConfigMap whose manifest has changed, and the notes on it.
#[track_caller]
fn applies(manifest: &str, live: &str, expected: &str, expected_notes: &[&str]) -> Plan {
    let deployment = deployment(&[&format!("v1 ConfigMap/a/x {manifest}")]).knowing(&["ConfigMap/a/x 1"]);
    let live = format!("ConfigMap/a/x uid=1 rv=2 ours {live}");
    let plan = deployment.plan(&cluster(&[&live])).unwrap();
    assert_eq!(nodes(&plan).concat().replace("namespaced-resources: ConfigMap/a/x", ""), expected, "{manifest} {live}");
    assert_eq!(notes(&plan), expected_notes, "{manifest} {live}");
    plan
}

#[test]
fn an_ignored_object_is_created_and_never_updated() {
    let created = deployment(&["v1 ConfigMap/a/x @@ignore=true"]);
    created.check(&[], &["namespaced-resources: ConfigMap/a/x(create)"]);
    let note = "info annotation: 1 object annotated with ignore will not be updated: 1 ConfigMap";
    let plan = applies("@@ignore=true", "", "(unchanged)", &[note]);
    // The record keeps describing the object as it was written.
    let task = plan.apply_tasks().next().unwrap();
    assert_eq!(task.left().map(|uid| uid.as_str()), Some("1"));
    let live = "warning annotation: 1 object annotated in the cluster, but not by the manifest, with ignore will not be updated: \
                1 ConfigMap";
    applies("", "@@ignore=true", "(unchanged)", &[live]);
    // The manifest replaces the value that another client has set.
    applies("@@ignore=false", "@@ignore=true", "(update)", &[]);
    applies("@ignore=false", "@@ignore=true", "(update)", &[]);
    applies("@@ignore=true", "@@ignore=false", "(unchanged)", &[note]);
    // The live value counts, because of its prefix.
    applies("@@ignore=false", "@ignore=true", "(unchanged)", &[live]);
    let unreadable = "warning annotation: ConfigMap a/x: annotation billhook.dev/ignore is \"si\" instead of true or false, and \
                      counts as if it were set";
    applies("", "@ignore=si", "(unchanged)", &[live, unreadable]);
}

#[test]
fn an_object_that_is_no_longer_managed_is_not_applied() {
    let note = "info annotation: 1 object annotated with mode=Ignore will be neither written nor deleted, and no longer \
                managed: 1 ConfigMap";
    let plan = applies("@@mode=Ignore", "", "", &[note]);
    assert_eq!(plan.unmanaged.len(), 1);
    let live = "warning annotation: 1 object annotated in the cluster, but not by the manifest, with mode=Ignore will be \
                neither written nor deleted, and no longer managed: 1 ConfigMap";
    assert_eq!(applies("", "@mode=Ignore", "", &[live]).unmanaged.len(), 1);
    // It does not exist, or belongs to another release already.
    let deployment = deployment(&["v1 ConfigMap/a/x @@mode=Ignore"]);
    for there in [&[][..], &["ConfigMap/a/x uid=1 of=db.app"], &["ConfigMap/a/x uid=1"]] {
        let plan = deployment.plan(&cluster(there)).unwrap();
        assert!(plan.nodes.is_empty() && plan.unmanaged.is_empty(), "{there:?}");
        assert_eq!(notes(&plan), [note]);
    }
}

#[test]
fn an_update_does_not_prune_what_is_kept() {
    let deployment = deployment(&["v1 Secret/a/s"]).knowing(&["ConfigMap/a/x 1", "ConfigMap/a/y 2"]);
    let live = ["ConfigMap/a/x uid=1 ours @keep-object=true", "ConfigMap/a/y uid=2 ours @@mode=Ignore"];
    let plan = deployment.check(&live, &["namespaced-resources: Secret/a/s(create)"]);
    assert_eq!(uncovered(&plan), ["ConfigMap/a/x: it is annotated with keep-object"]);
    assert_eq!(plan.unmanaged.len(), 1);
}

#[test]
fn only_an_own_object_without_data_is_recreated() {
    let recreate = |line: &str, entry: &str, live: &str| {
        let deployment = deployment(&[line]).knowing(&[entry]);
        let plan = deployment.plan(&cluster(&[live])).map_err(|error| texts(&error).concat())?;
        let task = plan.apply_tasks().next().unwrap();
        Ok::<_, String>((task.recreate, task.action, notes(&plan)))
    };
    let manifest = "apps/v1 Deployment/a/d @delete-on-invalid-update=true";
    let live = "Deployment/a/d uid=1 rv=2 ours";
    let (found, _, said) = recreate(manifest, "Deployment/a/d 1", live).unwrap();
    assert_eq!(found, Some(Propagation::Background));
    let note = "info annotation: 1 object annotated with delete-on-invalid-update will be deleted and recreated if the API \
                server rejects the update as invalid: 1 Deployment.apps";
    assert_eq!(said, [note]);
    let of_live = format!("{live} @@delete-on-invalid-update=true @@deletion-propagation-on-invalid-update=Orphan");
    let (found, _, said) = recreate("apps/v1 Deployment/a/d", "Deployment/a/d 1", &of_live).unwrap();
    assert_eq!(found, Some(Propagation::Orphan));
    assert!(said[0].starts_with("warning annotation: 1 object annotated in the cluster"), "{said:?}");
    // An earlier run has deleted it.
    let (found, action, _) = recreate(manifest, "Deployment/a/d 1", &format!("{live} deleting")).unwrap();
    assert_eq!((found, action), (None, ApplyAction::Recreate));
    let busy = recreate("apps/v1 Deployment/a/d", "Deployment/a/d 1", &format!("{live} deleting"));
    assert_eq!(busy, Err("Deployment.apps a/d is being deleted".to_owned()));
    for (object, version) in [("PersistentVolumeClaim/a/p", "v1"), ("Namespace/n", "v1")] {
        let line = format!("{version} {object} @delete-on-invalid-update=true");
        let (found, _, said) = recreate(&line, &format!("{object} 1"), &format!("{object} uid=1 rv=2 ours")).unwrap();
        assert_eq!(found, None);
        let named = object.replacen('/', " ", 1);
        let note = format!(
            "warning annotation: {named} is annotated with delete-on-invalid-update, but will not be deleted for an invalid \
             update: it is protected, or may hold data or other objects"
        );
        assert_eq!(said, [note]);
    }
    for kept in ["@keep-object=true", "protected"] {
        let (found, _, said) = recreate(manifest, "Deployment/a/d 1", &format!("{live} {kept}")).unwrap();
        assert!(found.is_none() && said[0].contains("will not be deleted for an invalid update"), "{kept}: {said:?}");
    }
}

#[test]
fn an_object_whose_health_is_skipped_is_not_awaited() {
    let lines = ["apps/v1 Deployment/a/d @@skip-health-check=true", "apps/v1 Deployment/a/e"];
    let mut deployment = deployment(&lines);
    deployment.wait = Wait::All;
    let live = ["Deployment/a/e uid=2 ours"];
    let known = deployment.knowing(&["Deployment/a/e 2"]);
    let note = "info annotation: 1 object annotated with skip-health-check will not be awaited: 1 Deployment.apps";
    let plan = known.check(
        &live,
        &[
            "namespaced-resources: Deployment.apps/a/d(create) Deployment.apps/a/e(unchanged)",
            "ready: Deployment.apps/a/e(await!)",
        ],
    );
    assert_eq!(notes(&plan), [note]);
    let skipped = ["Deployment/a/e uid=2 ours @@skip-health-check=true"];
    known.check(&skipped, &["namespaced-resources: Deployment.apps/a/d(create) Deployment.apps/a/e(unchanged)"]);
    let crd = "apiextensions.k8s.io/v1 CustomResourceDefinition/gadgets.c.example @skip-health-check=true";
    let expected = "crds: CustomResourceDefinition.apiextensions.k8s.io/gadgets.c.example(create!)";
    let plan = super::apply::deployment(&[crd]).check(&[], &[expected]);
    assert_eq!(notes(&plan), [] as [&str; 0]);
}

#[test]
fn a_manifest_with_a_wrong_value_is_rejected() {
    let wrong = [
        "v1 ConfigMap/a/x @keep-object=yes @@mode=Off",
        "v1 ConfigMap/a/y @@finalize-deletion-after=1 @deletion-propagation-on-invalid-update=orphan",
    ];
    let error = deployment(&wrong).plan(&cluster(&[])).unwrap_err();
    assert_eq!(error.kind, PlanErrorKind::Input);
    let expected = [
        "ConfigMap a/x: annotation billhook.dev/keep-object must be true or false, found \"yes\"",
        "ConfigMap a/x: annotation resources.gardener.cloud/mode must be Ignore, found \"Off\"",
        "ConfigMap a/y: annotation resources.gardener.cloud/finalize-deletion-after must be a duration such as 90s, 5m or \
         1h30m, found \"1\"",
        "ConfigMap a/y: annotation billhook.dev/deletion-propagation-on-invalid-update must be Background, Foreground or \
         Orphan, found \"orphan\"",
    ];
    let found: Vec<_> = texts(&error).iter().map(|text| text.split_once(' ').unwrap().1.to_owned()).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_long_value_is_shortened_in_texts() {
    let value = format!("é{}", "x".repeat(300_000));
    let live = format!("ConfigMap/a/x uid=1 ours @keep-object={value}");
    let plan = deletion(&["ConfigMap/a/x uid=1"], &[]).plan(&cluster(&[&live])).unwrap();
    assert!(notes(&plan).iter().all(|note| note.len() < 300), "{:?}", notes(&plan));
}

#[test]
fn a_snapshot_is_deleted_only_with_the_one_annotation_and_without_the_other() {
    const DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
    const CREATED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
    for (keys, holds) in [(vec![], true), (vec![CREATED], true), (vec![DELETED, CREATED], true), (vec![DELETED], false)]
    {
        let all: serde_json::Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), json!("yes"))).collect();
        let annotations: Annotations = serde_json::from_value(all.into()).unwrap();
        assert_eq!(annotations.hold_snapshot(), holds, "{keys:?}");
    }
}
