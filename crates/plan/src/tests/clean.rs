use billhook_policy::{DeletionGroup, LabelSelector, Stages};

use super::cluster::*;
use crate::*;

/// A cleaning of a cluster, and the queries that it sends.
struct Cleaned {
    plan: Plan,
    queries: usize,
}

/// Plans the cleaning of a cluster that leaves objects with the label `keep`.
fn clean(groups: &[DeletionGroup], live: &Cluster) -> Result<Cleaned, PlanError> {
    let spared = Spared { labels: vec![LabelSelector::exists("keep")] };
    let catalogs = Catalogs::own(catalog());
    let request = CleanRequest { groups, catalogs: catalogs.clone(), spared: Some(&spared) };
    let mut deletion = Deletion::clean(request)?;
    let mut snapshot = Snapshot { listings: live.answer(deletion.queries()) };
    let second = deletion.missing(&snapshot);
    snapshot.listings.extend(live.answer(&second));
    let queries = deletion.queries().len() + second.len();
    let first = deletion.plan(&snapshot)?;
    snapshot.listings.extend(live.answer(&blast_queries(&first, &catalogs)));
    snapshot.listings.extend(live.answer(&deletion.owner_queries()));
    let mut plan = deletion.plan_without(&spared, first, &snapshot)?;
    add_blast_notes(&mut plan, &snapshot, None);
    Ok(Cleaned { plan, queries })
}

/// Returns the stages of these lines, each of which lists all objects of its kinds.
fn stages(lines: &[&str]) -> Vec<DeletionGroup> {
    let mut stages = groups(lines);
    for (at, stage) in stages.iter_mut().enumerate() {
        stage.path = format!("stages[{at}]");
    }
    stages
}

#[test]
fn the_default_stages_leave_system_namespaces_and_what_kubernetes_creates() {
    let live = cluster(&[
        "APIService/v1.apps kube-aggregator.kubernetes.io/automanaged=onstart",
        "APIService/v1.metrics.k8s.io",
        "CustomResourceDefinition/widgets.a.example",
        "Widget.a.example/m/one",
        "Deployment/m/web",
        "Deployment/default/web",
        "Deployment/kube-system/web",
        "Service/default/kubernetes",
        "Service/m/web",
        "Pod/kube-node-lease/p",
        "Pod/kubernetes/p",
        "ConfigMap/m/settings",
    ]);
    let policy = Stages::default().policy();
    let Cleaned { plan, queries } = clean(&policy.deletion, &live).unwrap();
    let deleted: Vec<_> = plan.deleted().map(|(_, key, ..)| key.to_string()).collect();
    let expected = [
        "CustomResourceDefinition.apiextensions.k8s.io/widgets.a.example",
        "APIService.apiregistration.k8s.io/v1.metrics.k8s.io",
        "Pod/kubernetes/p",
        "Service/m/web",
        "Deployment.apps/m/web",
    ];
    assert_eq!(deleted, expected);
    // One list for each kind that is served, and one for the instances of the CRD.
    assert_eq!(queries, 8);
    // Kinds that the cluster does not serve are not worth a note.
    let notes = notes(&plan);
    assert!(notes.iter().all(|note| !note.contains("does not serve")), "{notes:#?}");
    let contained = "warning contained: deleting CustomResourceDefinition.apiextensions.k8s.io widgets.a.example also deletes 1 object that no stage names: 1 Widget.a.example";
    assert!(notes.iter().any(|note| note == contained), "{notes:#?}");
}

#[test]
fn parts_of_a_stage_run_beside_each_other_and_empty_stages_hold_up_nothing() {
    let mut stages = stages(&["v1 cm all", "v1 secrets all", "c.example/v1 gizmos all", "v1 svc all"]);
    for (stage, after) in stages.iter_mut().zip([vec![], vec![], vec![0, 1], vec![2]]) {
        stage.after = Some(after);
    }
    let Cleaned { plan, .. } = clean(&stages, &cluster(&["ConfigMap/a/x", "Service/a/y"])).unwrap();
    let after: Vec<_> = plan.nodes.iter().map(|node| (node.title.as_str(), node.after.as_slice())).collect();
    assert_eq!(after, [("v1 cm all", &[][..]), ("v1 secrets all", &[]), ("v1 svc all", &[0, 1])]);
    assert!(notes(&plan).iter().any(|note| note.contains("the cluster does not serve gizmos.c.example")));
}

#[test]
fn objects_are_patched_before_they_are_deleted() {
    let mut stages = stages(&["v1 cm all", "v1 secrets all"]);
    stages[0].before_delete = Some(serde_json::json!({"a": "b"}));
    stages[0].retries = vec!["5s".parse().unwrap()];
    let live = cluster(&["ConfigMap/a/y", "ConfigMap/a/x", "Secret/a/s"]);
    let Cleaned { plan, .. } = clean(&stages, &live).unwrap();
    let expected = [
        "v1 cm all: patches before deletion: ConfigMap/a/x(v1 {\"a\":\"b\"}) ConfigMap/a/y(v1 {\"a\":\"b\"})",
        "v1 cm all: ConfigMap/a/x ConfigMap/a/y; all configmaps",
        "v1 secrets all: Secret/a/s; all secrets",
    ];
    assert_eq!(nodes(&plan), expected);
    assert_eq!(plan.nodes.iter().map(|node| node.after.clone()).collect::<Vec<_>>(), [vec![], vec![0], vec![1]]);
}

#[test]
fn what_excluded_objects_own_is_left() {
    let stages = stages(&["apps/v1 deploy all + apps/v1 rs all + v1 po all"]);
    let live = cluster(&[
        "Deployment/a/kept uid=d keep=yes",
        "ReplicaSet/a/kept uid=r owner=d",
        "Pod/a/kept owner=r",
        "Deployment/a/lost uid=e",
        "ReplicaSet/a/lost uid=s owner=e",
        "Pod/a/lost owner=s",
    ]);
    let Cleaned { plan, .. } = clean(&stages, &live).unwrap();
    let deleted: Vec<_> = plan.deleted().map(|(_, key, ..)| key.name.as_str()).collect();
    assert_eq!(deleted, ["lost", "lost", "lost"]);
    // So is what appears during the run.
    let (_, work) = plan.delete_nodes().next().unwrap();
    let new = |owner: &str| {
        let live = cluster(&[&format!("ReplicaSet/a/new uid=n owner={owner}")]);
        live.answer(&plan.queries).into_iter().find_map(|listing| match listing.found {
            Listed::Items { items, .. } => items.into_iter().next(),
            _ => None,
        })
    };
    let contains = |object: Option<Observed>| work.collections.iter().all(|c| c.contains(object.as_ref().unwrap()));
    assert_eq!((contains(new("d")), contains(new("e"))), (false, true));
}

#[test]
fn what_excluded_objects_own_is_left_even_if_no_stage_names_what_is_between() {
    let stages = stages(&[
        "apps/v1 deploy all + v1 po all",
        "apiextensions.k8s.io/v1 crd all | force",
        "a.example/v1 wheels all",
    ]);
    let live = cluster(&[
        "Deployment/a/kept uid=d keep=yes",
        "ReplicaSet/a/kept uid=r owner=d",
        "Pod/a/kept owner=r",
        "Pod/a/lost",
        // Only the contents of its CRD show the owner.
        "CustomResourceDefinition/widgets.a.example",
        "Widget.a.example/a/owner uid=w keep=yes",
        "Wheel.a.example/a/owned owner=w",
        "Wheel.a.example/a/lost",
        // Its instance is owned.
        "CustomResourceDefinition/planets.a.example",
        "Planet.a.example/owned owner=w",
    ]);
    let Cleaned { plan, .. } = clean(&stages, &live).unwrap();
    let deleted: Vec<_> = plan.deleted().map(|(_, key, ..)| key.to_string()).collect();
    assert_eq!(deleted, ["Pod/a/lost", "Wheel.a.example/a/lost"]);
}

#[test]
fn the_notes_of_a_cleaning_are_about_what_it_deletes() {
    let live =
        cluster(&["Namespace/m fin=a.example/f @finalize-deletion-after=1h", "Secret/m/s keep=yes", "Namespace/n"]);
    let Cleaned { plan, .. } = clean(&stages(&["v1 ns all"]), &live).unwrap();
    assert_eq!(nodes(&plan), ["v1 ns all: Namespace/n; all namespaces"]);
    let notes = notes(&plan);
    assert!(notes.iter().all(|note| !note.contains("final")), "{notes:#?}");
}

#[test]
fn namespaces_and_crds_with_excluded_objects_are_left() {
    let stages = stages(&["apiextensions.k8s.io/v1 crd all | force", "v1 ns all | force"]);
    let live = cluster(&[
        "CustomResourceDefinition/widgets.a.example",
        "CustomResourceDefinition/wheels.a.example",
        "CustomResourceDefinition/planets.a.example",
        "Widget.a.example/m/one keep=yes",
        "Wheel.a.example/kube-system/one",
        "Planet.a.example/earth",
        "Namespace/m",
        "Namespace/n",
        "Namespace/kube-system",
        "Namespace/default",
        "Secret/n/s",
        "Namespace/o",
        "Secret/o/s @keep-object=true",
    ]);
    let Cleaned { plan, .. } = clean(&stages, &live).unwrap();
    let deleted: Vec<_> = plan.deleted().map(|(_, key, ..)| key.name.as_str()).collect();
    assert_eq!((deleted, is_dangerous(&plan)), (vec!["planets.a.example", "n"], false));
    let kept = [
        "CustomResourceDefinition.apiextensions.k8s.io/wheels.a.example: it contains objects that are left",
        "CustomResourceDefinition.apiextensions.k8s.io/widgets.a.example: it contains objects that are left",
        "Namespace/m: it contains objects that are left",
        "Namespace/o: it contains objects that are left",
    ];
    let mut uncovered = uncovered(&plan);
    uncovered.sort();
    assert_eq!(uncovered, kept);
    // The collections do not contain them either, when they are listed at the end.
    for (node, work) in plan.delete_nodes() {
        for collection in &work.collections {
            let listing = live.answer(&plan.queries[collection.query..=collection.query]).remove(0);
            let Listed::Items { items, .. } = listing.found else { panic!("{}", node.title) };
            let found: Vec<_> = items.iter().filter(|item| collection.contains(item)).map(|i| &*i.name).collect();
            assert!(found == ["planets.a.example"] || found == ["n"], "{}: {found:?}", node.title);
        }
    }
}

#[test]
fn all_kinds_that_cannot_be_listed_are_reported() {
    let mut live = cluster(&["ConfigMap/a/x"]);
    live.forbidden = vec!["configmaps".into(), "secrets".into()];
    let error = clean(&stages(&["v1 cm all", "v1 secrets all"]), &live).err().unwrap();
    assert_eq!(texts(&error), ["failed to list configmaps: forbidden", "failed to list secrets: forbidden"]);
}
