//! Safe orders.

use std::collections::{BTreeMap, BTreeSet};

use billhook_policy::{Policy, read_policy_file, write_policy};
use proptest::prelude::*;

use super::cluster::*;
use crate::*;

fn before(objects: &[&str], parts: &[&str]) -> Before {
    let keys = |texts: &[&str]| -> Vec<_> {
        texts.iter().map(|text| key(text)).collect::<BTreeSet<_>>().into_iter().collect()
    };
    Before { objects: keys(objects), parts: keys(parts) }
}

fn safe(deletion: &TestDeletion, live: &Cluster, before: &[Before]) -> TestDeletion {
    let plan = deletion.plan(live).unwrap();
    let policy = Policy { deletion: deletion.groups.clone(), ..Policy::default() };
    let groups = safe_policy(&policy, &plan, before, &catalog()).deletion;
    TestDeletion {
        release: deletion.release.clone(),
        objects: deletion.objects.clone(),
        groups,
        catalogs: deletion.catalogs.clone(),
        ..*deletion
    }
}

const OPERATOR: [&str; 7] = [
    "Widget.a.example/a/main",
    "Deployment/a/operator",
    "ServiceAccount/a/operator",
    "Service/a/hook",
    "ClusterRole/operator",
    "APIService/v1.m.example",
    "CustomResourceDefinition/widgets.a.example",
];

fn ours(objects: &[&str]) -> (Vec<String>, Vec<String>) {
    objects.iter().map(|name| (format!("{name} uid=uid-{name}"), format!("{name} ours"))).unzip()
}

fn operator() -> (TestDeletion, Cluster) {
    let (wanted, live) = ours(&OPERATOR);
    let texts = |lines: &[String]| -> Vec<String> { lines.to_vec() };
    let (wanted, live) = (texts(&wanted), texts(&live));
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let live: Vec<&str> = live.iter().map(String::as_str).collect();
    (deletion(&wanted, &[]), cluster(&live))
}

#[test]
fn instances_come_before_controllers_these_before_rights_and_crds_last() {
    let (deletion, live) = operator();
    let safe = safe(&deletion, &live, &[before(&["Widget.a.example/a/main"], &["Deployment/a/operator"])]);
    assert_eq!(
        nodes(&safe.plan(&live).unwrap()),
        [
            "Widget.a.example: Widget.a.example/a/main",
            "APIService.apiregistration.k8s.io: APIService.apiregistration.k8s.io/v1.m.example",
            "Deployment.apps: Deployment.apps/a/operator",
            "namespaced-resources: Service/a/hook ServiceAccount/a/operator",
            "cluster-scoped-resources: ClusterRole.rbac.authorization.k8s.io/operator",
            "crds: CustomResourceDefinition.apiextensions.k8s.io/widgets.a.example",
        ]
    );
    let policy = Policy { deletion: safe.groups.clone(), ..Policy::default() };
    let written = write_policy(&policy).unwrap();
    let (read, _) = read_policy_file(&written, &"policy.yaml".into()).unwrap();
    let again = TestDeletion { groups: read.deletion, ..safe };
    let lines = nodes(&again.plan(&live).unwrap());
    assert_eq!(lines.len(), 6, "{lines:?}\n{written}");
}

#[test]
fn objects_that_need_a_controller_of_the_release_are_named() {
    let names = ["Service/a/lb", "Service/a/plain", "Deployment/a/lbc", "Deployment/a/guarded"];
    let (wanted, live) = ours(&names);
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let live: Vec<&str> = live.iter().map(String::as_str).collect();
    let (deletion, live) = (deletion(&wanted, &[]), cluster(&live));
    let before = before(&["Service/a/lb", "Deployment/a/guarded"], &["Deployment/a/lbc"]);
    assert_eq!(
        nodes(&safe(&deletion, &live, &[before]).plan(&live).unwrap()),
        [
            "Service: Service/a/lb",
            "Deployment.apps: Deployment.apps/a/guarded",
            "Deployment.apps: Deployment.apps/a/lbc",
            "namespaced-resources: Service/a/plain",
        ]
    );
}

#[test]
fn what_is_deleted_with_its_namespace_or_crd_is_deleted_before_what_it_needs() {
    let names = ["Namespace/a", "Deployment/a/operator", "CustomResourceDefinition/planets.a.example"];
    let (wanted, live) = ours(&names);
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let mut live: Vec<&str> = live.iter().map(String::as_str).collect();
    live.extend(["Widget.a.example/a/theirs", "Widget.a.example/b/theirs", "Planet.a.example/theirs"]);
    let (deletion, live) = (deletion(&wanted, &[]), cluster(&live));
    let before = before(&["Widget.a.example/a/theirs", "Planet.a.example/theirs"], &["Deployment/a/operator"]);
    assert_eq!(
        nodes(&safe(&deletion, &live, &[before]).plan(&live).unwrap()),
        [
            "all Planet.a.example, all Widget.a.example: Planet.a.example/theirs Widget.a.example/a/theirs; all planets.a.example; all widgets.a.example in namespace a",
            "Deployment.apps: Deployment.apps/a/operator",
            "cluster-scoped-resources: Namespace/a",
            "crds: CustomResourceDefinition.apiextensions.k8s.io/planets.a.example",
        ]
    );
}

#[test]
fn kinds_that_need_each_other_get_levels_and_cycles_end() {
    let names = ["Widget.a.example/a/w", "Wheel.a.example/a/w", "Planet.a.example/p"];
    let (wanted, live) = ours(&names);
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let live: Vec<&str> = live.iter().map(String::as_str).collect();
    let (deletion, live) = (deletion(&wanted, &[]), cluster(&live));
    let chain = [before(&[names[0]], &[names[1]]), before(&[names[1]], &[names[2]])];
    assert_eq!(
        nodes(&safe(&deletion, &live, &chain).plan(&live).unwrap()),
        [
            "Widget.a.example: Widget.a.example/a/w",
            "Wheel.a.example: Wheel.a.example/a/w",
            "Planet.a.example: Planet.a.example/p"
        ]
    );
    let cycle = [before(&[names[0]], &[names[1]]), before(&[names[1]], &[names[0]])];
    assert_eq!(safe(&deletion, &live, &cycle).plan(&live).unwrap().deletions(), 3);
}

const KINDS: [&str; 8] = [
    "Widget.a.example/a",
    "Wheel.a.example/b",
    "Service/a",
    "ConfigMap/a",
    "Deployment/a",
    "ServiceAccount/b",
    "ClusterRole",
    "APIService",
];
const GROUPS: [&str; 9] = [
    "namespaced",
    "cluster",
    "crds",
    "namespaced | force",
    "a.example/v1 widgets ns=a | force=5m",
    "v1 services name=n1 + v1 cm",
    "namespaced | -v1 services",
    "apps/v1 deployments name=n0 | orphan",
    "a.example/v1 wheels tier=web",
];

/// Returns of each object that the plan deletes the settings of its group.
fn settings(deletion: &TestDeletion, plan: &Plan) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (_, work) in plan.delete_nodes() {
        for task in &work.objects {
            found.insert(task.object.to_string(), format!("{:?} {:?}", work.force, work.propagation));
        }
    }
    assert_eq!(found.len(), plan.deletions(), "{:?}", deletion.groups);
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A safe order deletes the same objects with the same settings as the policy, and what must be gone before something is in an
    /// earlier group.
    #[test]
    fn a_safe_order_deletes_the_same_objects_each_before_what_it_needs(
        names in proptest::collection::btree_set((0..KINDS.len(), 0..3_usize), 1..16),
        picked in proptest::collection::vec(0..GROUPS.len(), 0..5),
        needs in proptest::collection::vec((0..16_usize, 0..16_usize), 0..4),
    ) {
        let names: Vec<String> = names.into_iter().map(|(kind, n)| format!("{}/n{n}", KINDS[kind])).collect();
        let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
        let (wanted, live) = ours(&borrowed);
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        let live: Vec<&str> = live.iter().map(String::as_str).collect();
        let groups: Vec<&str> = picked.iter().map(|at| GROUPS[*at]).collect();
        let (deletion, live) = (deletion(&wanted, &groups), cluster(&live));
        let plan = deletion.plan(&live).unwrap();
        let deleted: BTreeSet<String> = plan.deleted().map(|(_, key, ..)| key.to_string()).collect();
        // Custom resources need workloads and accounts, as controllers and their rights.
        let needs: Vec<Before> = needs.iter().filter_map(|(object, part)| {
            let (object, part) = (&borrowed[object % borrowed.len()], &borrowed[part % borrowed.len()]);
            let is_controller = ["Deployment", "ServiceAccount", "ClusterRole"].iter().any(|kind| part.starts_with(kind));
            let is_object = ["Widget", "Wheel", "Service/", "ConfigMap"].iter().any(|kind| object.starts_with(kind));
            let is_planned = |text: &str| deleted.contains(&key(text).to_string());
            (is_controller && is_object && is_planned(object) && is_planned(part)).then(|| before(&[object], &[part]))
        }).collect();
        let safe = safe(&deletion, &live, &needs);
        let ordered = safe.plan(&live).unwrap();
        prop_assert_eq!(settings(&deletion, &plan), settings(&safe, &ordered), "{:?}", nodes(&ordered));
        let place = |wanted: &billhook_objects::ObjectKey| ordered.nodes.iter().position(|node| match &node.work {
            Work::Delete(work) => work.objects.iter().any(|task| task.object == *wanted),
            _ => false,
        });
        for Before { objects, parts } in &needs {
            for (object, part) in objects.iter().zip(parts) {
                prop_assert!(place(object) < place(part), "{} before {}: {:?}", object, part, nodes(&ordered));
            }
        }
        // It is the safe order of itself.
        let again = self::safe(&safe, &live, &needs);
        prop_assert_eq!(&again.groups, &safe.groups);
        // Without settings that only other dialects have, it can be written and read again.
        let policy = Policy { deletion: safe.groups.clone(), ..Policy::default() };
        if let Ok(written) = write_policy(&policy) {
            let (read, _) = read_policy_file(&written, &"policy.yaml".into()).unwrap();
            let again = TestDeletion { groups: read.deletion, ..safe };
            let read = again.plan(&live).unwrap();
            prop_assert_eq!(settings(&again, &read), settings(&deletion, &plan), "{}", written);
            let third = self::safe(&again, &live, &needs);
            let policy = Policy { deletion: third.groups, ..Policy::default() };
            prop_assert_eq!(write_policy(&policy), Ok(written));
        }
    }
}
