//! What is foreseen of deletions, as a table.

use billhook_objects::Labels;
use serde_json::Value;

use super::world::{NOW, World, read, texts};
use crate::{Foreseen, Foresight, ObjectRef, Query, Steps, ToDelete};

const SITUATIONS: &str = include_str!("foresight.yaml");

/// Returns what is to be deleted: `steps` has the objects of each step by name, `contained` those that are deleted with
/// others, each with its step.
fn to_delete(world: &World) -> (Vec<ToDelete>, Steps) {
    let mut objects = Vec::new();
    let one = |text: &str, step: usize, contained: bool| {
        let (text, forced) = text.strip_suffix(" by force").map_or((text, false), |text| (text, true));
        let object = world.reference(text);
        let live = world.object_of(&object);
        let list = |key: &str| live.as_ref().map(|live| texts(&live["metadata"], key)).unwrap_or_default();
        let uid = live.as_ref().and_then(|live| live["metadata"]["uid"].as_str()).map(billhook_objects::Uid::new);
        let finalizers = list("finalizers");
        let forced = if forced { finalizers.clone() } else { Vec::new() };
        let labels: Labels = live
            .as_ref()
            .and_then(|live| live["metadata"]["labels"].as_object())
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        ToDelete { object: ObjectRef { uid, ..object }, step, contained, labels, finalizers, forced }
    };
    let steps = world.description["steps"].as_array().unwrap();
    for (at, step) in steps.iter().enumerate() {
        objects.extend(step.as_array().unwrap().iter().map(|text| one(text.as_str().unwrap(), at, false)));
    }
    if let Some(contained) = world.description.get("contained").and_then(Value::as_object) {
        objects.extend(contained.iter().map(|(text, step)| one(text, step.as_u64().unwrap() as usize, true)));
    }
    let after: Vec<Vec<usize>> = (0..steps.len()).map(|at| (0..at).collect()).collect();
    (objects, Steps::new(after.iter().map(Vec::as_slice)))
}

/// Looks ahead, and returns what is foreseen, what was not read, and how many queries were asked.
fn look(world: &World) -> (Vec<String>, usize, usize) {
    let (objects, steps) = to_delete(world);
    let now = NOW.parse().unwrap();
    let mut foresight = Foresight::new(objects, steps, &world.catalog, now);
    let mut asked = 0;
    loop {
        let queries = foresight.queries();
        if queries.is_empty() {
            break;
        }
        asked += queries.len();
        let answers: Vec<(Query, _)> =
            queries.into_iter().map(|query| (query.clone(), world.answer(&query, false))).collect();
        foresight.learn(now, answers);
    }
    (foresight.foreseen().iter().map(shown).collect(), foresight.unread().len(), asked)
}

fn shown(foreseen: &Foreseen) -> String {
    let all = |objects: &[ObjectRef]| objects.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match foreseen {
        Foreseen::NotWorking { finalizer, objects, controller, state, problem } => {
            let who = controller.as_deref().unwrap_or("nobody");
            format!("{state:?}: {finalizer} of {} by {who}: {problem}", all(objects))
        }
        Foreseen::ControllerFirst { finalizer, objects, controller, parts } => {
            format!("ControllerFirst: {finalizer} of {} by {controller}: {}", all(objects), all(parts))
        }
        Foreseen::BackendFirst { front, backend, objects, remains } => {
            let remains = if *remains { ", which remains" } else { "" };
            format!("BackendFirst: {backend} before {front}{remains}, needed by {}", all(objects))
        }
        Foreseen::VolumeData { objects, lost } => format!("{}: {}", if *lost { "Lost" } else { "Kept" }, all(objects)),
        Foreseen::External { system, objects, left, .. } => {
            format!("{}: {system} {}", if *left { "Left" } else { "External" }, all(objects))
        }
    }
}

#[test]
fn deletions_are_foreseen() {
    let mut wrong = Vec::new();
    for world in read(SITUATIONS) {
        let (mut found, unread, asked) = look(&world);
        found.sort();
        let mut expected = texts(&world.description, "expect");
        expected.sort();
        if found != expected {
            wrong.push(format!("{}:\n  found    {found:#?}\n  expected {expected:#?}", world.title()));
        }
        let number = |key: &str| world.description.get(key).and_then(Value::as_u64).map(|number| number as usize);
        if number("queries").is_some_and(|most| asked > most) {
            wrong.push(format!("{}: {asked} queries", world.title()));
        }
        if unread != number("unread").unwrap_or_default() {
            wrong.push(format!("{}: {unread} not read", world.title()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whatever the caller may not read, nothing wrong is foreseen of a deletion in a good order; and what may not be read is told.
#[test]
fn nothing_is_concluded_from_what_was_not_read() {
    let worlds = read(SITUATIONS).into_iter().filter(|world| world.description.get("why").is_some());
    let mut checked = 0;
    for mut world in worlds {
        for seed in 0..50 {
            world.restricted = Some(seed);
            let (found, unread, asked) = look(&world);
            let bad: Vec<_> = found
                .iter()
                .filter(|text| !["Unknown:", "External:"].iter().any(|start| text.starts_with(start)))
                .collect();
            assert!(bad.is_empty(), "{} {seed}: {bad:#?}", world.title());
            let unknown = found.iter().any(|text| text.starts_with("Unknown:"));
            assert!(!unknown || unread > 0, "{} {seed}: {asked} queries", world.title());
            checked += 1;
        }
    }
    assert!(checked >= 50, "{checked}");
}

/// However many objects there are, the number of queries depends on the number of different ones, and has a limit.
#[test]
fn ten_thousand_objects_of_fifty_kinds_take_few_queries() {
    let kinds: Vec<String> = (0..50).map(|n| format!("shop{n}.example/v1 Kind{n} kind{n}s")).collect();
    let world = World::new(serde_json::json!({"situation": "", "title": "many", "kinds": kinds}));
    let one = |n: usize| ToDelete {
        object: ObjectRef {
            uid: Some(billhook_objects::Uid::new(format!("uid-{n}"))),
            ..world.reference(&format!("Kind{} ns{}/o{n}", n % 50, n % 7))
        },
        step: n % 2,
        contained: false,
        labels: Labels::default(),
        finalizers: vec!["x.example/f".to_owned()],
        forced: Vec::new(),
    };
    let now = NOW.parse().unwrap();
    let steps = Steps::new([&[][..], &[0][..]]);
    let mut foresight = Foresight::new((0..10_000).map(one).collect(), steps, &world.catalog, now);
    let mut asked = 0;
    loop {
        let queries = foresight.queries();
        if queries.is_empty() {
            break;
        }
        asked += queries.len();
        foresight.learn(now, queries.into_iter().map(|query| (query.clone(), world.answer(&query, false))));
    }
    let found: usize = foresight
        .foreseen()
        .iter()
        .map(|one| if let Foreseen::NotWorking { objects, .. } = one { objects.len() } else { 0 })
        .sum();
    assert_eq!(found + foresight.unexamined(), 10_000, "every object is examined, or counted as not examined");
    assert!(asked <= 160, "{asked} queries");
}
