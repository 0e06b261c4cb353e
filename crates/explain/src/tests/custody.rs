//! Who removes finalizers, as a table.

use billhook_objects::{Labels, Uid};

use super::world::{NOW, World, read, texts};
use crate::{Custodian, Foresight, ObjectRef, Steps, ToDelete};

const SITUATIONS: &str = include_str!("custody.yaml");

/// Returns who removes the finalizers of objects, of at most this many groups, and how many objects are not examined.
fn custodians(world: &World, objects: Vec<ToDelete>, groups: usize) -> (Vec<Custodian>, usize) {
    let (now, steps) = (NOW.parse().unwrap(), Steps::new([[].as_slice()]));
    let mut foresight = Foresight::new(objects, steps, &world.catalog, now).examining(groups);
    loop {
        let queries = foresight.queries();
        if queries.is_empty() {
            return (foresight.custodians(), foresight.unexamined());
        }
        foresight.learn(now, queries.into_iter().map(|query| (query.clone(), world.answer(&query, false))));
    }
}

fn carrying(object: ObjectRef, uid: &str, finalizers: Vec<String>) -> ToDelete {
    let object = ObjectRef { uid: Some(Uid::new(uid)), ..object };
    ToDelete { object, step: 0, contained: false, labels: Labels::default(), finalizers, forced: Vec::new() }
}

fn shown(custodian: &Custodian) -> String {
    let Custodian { finalizer, objects, name, state, problem, workload, account, of_control_plane } = custodian;
    let objects: Vec<String> = objects.iter().map(ToString::to_string).collect();
    let mut line =
        format!("{finalizer} of {} by {}: {state:?}", objects.join(", "), name.as_deref().unwrap_or("nobody"));
    if !problem.is_empty() {
        line += &format!(", {problem}");
    }
    if let Some(workload) = workload {
        line += &format!("; runs as {workload}");
    }
    if let Some((namespace, name)) = account {
        line += &format!("; writes as {namespace}/{name}");
    }
    if *of_control_plane { line + "; of the control plane" } else { line }
}

#[test]
fn who_removes_finalizers_is_found_out() {
    let mut wrong = Vec::new();
    for world in read(SITUATIONS) {
        let of = texts(&world.description, "of").into_iter().map(|text| {
            let object = world.reference(&text);
            let metadata = &world.object_of(&object).unwrap()["metadata"];
            carrying(object, metadata["uid"].as_str().unwrap(), texts(metadata, "finalizers"))
        });
        let (found, unexamined) = custodians(&world, of.collect(), usize::MAX);
        let (found, expected) = (found.iter().map(shown).collect::<Vec<_>>(), texts(&world.description, "expect"));
        if found != expected || unexamined > 0 {
            wrong.push(format!("{}:\n  found    {found:#?}\n  expected {expected:#?}", world.title()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Of as many different finalizers as are asked for, the first and the last one have the same controller.
#[test]
fn many_different_finalizers_are_all_looked_at() {
    let world = World::new(serde_json::json!({"situation": "", "title": "many",
        "kinds": ["shop.example/v1 Database databases"],
        "operators": [{"name": "shop/operator", "group": "shop.example", "lease": "5s"}]}));
    let one = |n: usize| {
        let object = world.reference(&format!("Database shop/d{n}"));
        carrying(object, &format!("uid-{n}"), vec![format!("shop.example/f{n:03}")])
    };
    for (groups, left) in [(200, 0), (64, 86), (1, 149)] {
        let (found, unexamined) = custodians(&world, (0..150).map(one).collect(), groups);
        assert_eq!((found.len(), unexamined), (150 - left, left));
        for custodian in &found {
            assert_eq!(custodian.name.as_deref(), Some("Deployment shop/operator"), "{custodian:?}");
        }
    }
}
