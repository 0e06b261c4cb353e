//! The picture of a plan: a card for each node, with the notes on the objects that they are about.

use std::collections::{HashMap, HashSet};

use billhook_engine::ObjectDiff;
use billhook_objects::ObjectKey;
use billhook_plan::{ApplyAction, ApplyTask, DeleteTask, Node, Note, Plan, Severity, Step, Uncovered, Work};
use serde_json::Value;

use super::{Card, Item, Mark, Picture, Tone, layout::layers};
use crate::{
    output::Paint,
    render::{
        diff, place,
        plan::{describe, facts, headline, marks, named_fields},
    },
    text,
};

const LEGEND: [(Tone, &str, &str); 12] = [
    (Tone::Good, "+", "create"),
    (Tone::Change, "●", "update"),
    (Tone::Change, "◐", "adopt"),
    (Tone::Warn, "↻", "recreate"),
    (Tone::Muted, "=", "unchanged"),
    (Tone::Muted, "◷", "wait for"),
    (Tone::Change, "~", "patch"),
    (Tone::Bad, "✕", "delete"),
    (Tone::Bad, "✕+", "delete, also what appears meanwhile"),
    (Tone::Muted, "○", "remains"),
    (Tone::Warn, "⊗", "deleted with its Namespace or CRD"),
    (Tone::Bad, "?", "fails, because its kind is not served"),
];
const PATCH: usize = 6;
const DELETE: usize = 7;
const COLLECTION: usize = 8;
const REMAINS: usize = 9;
const CONTAINED: usize = 10;
const UNSERVED: usize = 11;

/// An object as notes name it: its group, kind, namespace and name.
type Named = (String, String, String, String);

/// The notes about each object.
type Notes<'a> = HashMap<Named, Vec<&'a Note>>;

/// Draws a plan, with what changes in each object if that is known.
pub(crate) fn picture(plan: &Plan, diffs: &[ObjectDiff]) -> Picture {
    let mut picture = Picture::new(&headline(plan), &LEGEND);
    if let Some(workers) = plan.workers {
        picture.fact(&format!("up to {workers} groups at a time"));
    }
    for note in &plan.notes {
        picture.notice(mark(note));
    }
    let notes = notes(plan);
    let after: Vec<_> = plan.nodes.iter().map(|node| node.after.clone()).collect();
    let layers = layers(&after);
    let columns = layers.iter().max().map_or(0, |last| last + 1);
    for column in 1..=columns {
        picture.column(&format!("step {column}"), false);
    }
    picture.lane("");
    for (node, layer) in plan.nodes.iter().zip(layers) {
        let title = if node.title.is_empty() { "group" } else { &node.title };
        let mut card = Card::new(layer, 0, title, facts(node).trim().trim_matches(['(', ')']));
        fill(&mut card, plan, node, diffs, &notes);
        picture.card(card.after(node.after.iter().copied()));
    }
    rest(&mut picture, plan, &notes);
    picture
}

/// An object that is in no group, the reason, and its state.
type Rest = (ObjectKey, String, usize);

/// Adds what the plan does not delete, and what it no longer manages.
fn rest(picture: &mut Picture, plan: &Plan, notes: &Notes<'_>) {
    let (contained, remaining): (Vec<&Uncovered>, _) = plan.uncovered.iter().partition(|u| u.deleted_with.is_some());
    let uncovered = |objects: Vec<&Uncovered>, state| -> Vec<Rest> {
        objects.into_iter().map(|u| (u.object.clone(), u.reason(), state)).collect()
    };
    let unmanaged = plan.unmanaged.iter().map(|u| (u.object.clone(), String::new(), REMAINS)).collect();
    let cards: [(&str, Vec<Rest>); 3] = [
        ("deleted with their Namespace or CRD", uncovered(contained, CONTAINED)),
        ("not deleted", uncovered(remaining, REMAINS)),
        ("no longer managed", unmanaged),
    ];
    if cards.iter().all(|(_, objects)| objects.is_empty()) {
        return;
    }
    let column = picture.column("not in a group", false);
    for (title, objects) in cards {
        if objects.is_empty() {
            continue;
        }
        let mut card = Card::new(column, 0, title, "");
        for (object, reason, state) in objects {
            let tone = if state == CONTAINED { Tone::Warn } else { Tone::Muted };
            let reason = (!reason.is_empty()).then(|| Mark::new(tone, &reason));
            add(&mut card, &object, state, reason.into_iter().collect(), notes);
        }
        picture.card(card);
    }
}

fn fill(card: &mut Card, plan: &Plan, node: &Node, diffs: &[ObjectDiff], notes: &Notes<'_>) {
    let changes = |object: &ObjectKey| -> Vec<Mark> {
        let diff = diffs.iter().find(|diff| diff.object == *object && diff.cluster == node.cluster);
        let lines = diff.map(|diff| diff::body(diff, false, Paint(false))).unwrap_or_default();
        lines.iter().map(|line| Mark::code(Tone::Plain, line)).collect()
    };
    let apply = |card: &mut Card, task: &ApplyTask| {
        let waits = (task.wait && task.action != ApplyAction::Await).then(|| Mark::new(Tone::Muted, "until ready"));
        let marks = waits.into_iter().chain(changes(&task.object)).collect();
        add(card, &task.object, state(task.action), marks, notes);
    };
    match &node.work {
        Work::Apply(work) => work.objects.iter().for_each(|task| apply(card, task)),
        Work::Sequence(work) => {
            for step in &work.steps {
                match step {
                    Step::Apply(task) => apply(card, task),
                    Step::Delete(step) => add(card, &step.object, DELETE, Vec::new(), notes),
                    Step::Unserved(step) => add(card, &step.object, UNSERVED, Vec::new(), notes),
                }
            }
        }
        Work::Patch(work) => {
            for task in &work.objects {
                let fields = Mark::new(Tone::Muted, &named_fields(task));
                add(card, &task.object, PATCH, vec![fields], notes);
            }
        }
        Work::Delete(work) => {
            for task in &work.objects {
                add(card, &task.object, DELETE, of_deletion(task), notes);
            }
            for collection in &work.collections {
                if let Some(query) = plan.queries.get(collection.query) {
                    let all = describe(collection, query);
                    card.add(&query.resource.kind.to_string(), Item::new(all.trim_start_matches("+ "), COLLECTION, []));
                }
            }
        }
    }
}

fn of_deletion(task: &DeleteTask) -> Vec<Mark> {
    marks(task).iter().map(|text| Mark::new(Tone::Muted, text)).collect()
}

fn add(card: &mut Card, object: &ObjectKey, state: usize, mut marks: Vec<Mark>, notes: &Notes<'_>) {
    let namespace = object.namespace.clone().unwrap_or_default();
    let named = (object.kind.group.clone(), object.kind.kind.clone(), namespace, object.name.clone());
    let about = notes.get(&named).into_iter().flatten().map(|note| mark(note));
    marks.splice(0..0, about);
    card.add(&object.kind.to_string(), Item::new(&place(object), state, marks));
}

fn state(action: ApplyAction) -> usize {
    match action {
        ApplyAction::Create => 0,
        ApplyAction::Update => 1,
        ApplyAction::Adopt => 2,
        ApplyAction::Recreate => 3,
        ApplyAction::Unchanged => 4,
        ApplyAction::Await => 5,
    }
}

fn mark(note: &Note) -> Mark {
    let (tone, label) = match note.severity {
        Severity::Dangerous => (Tone::Bad, "dangerous: "),
        Severity::Warning => (Tone::Warn, "warning: "),
        Severity::Info => (Tone::Muted, ""),
    };
    Mark::new(tone, &format!("{label}{}", text::note(note)))
}

/// Returns the notes by the objects that their data names, whatever they say about these.
fn notes(plan: &Plan) -> Notes<'_> {
    let mut notes = Notes::new();
    for note in &plan.notes {
        let (data, mut objects) = (serde_json::to_value(note).unwrap_or_default(), HashSet::new());
        collect(&data, &mut objects);
        objects.into_iter().for_each(|object| notes.entry(object).or_default().push(note));
    }
    notes
}

fn collect(data: &Value, found: &mut HashSet<Named>) {
    match data {
        Value::Object(fields) => {
            let text = |key: &str| fields.get(key).and_then(Value::as_str);
            if let (Some(kind), Some(name)) = (text("kind"), text("name")) {
                let of_version =
                    text("apiVersion").map(|version| version.split_once('/').map_or("", |(group, _)| group));
                let group = text("group").or(of_version).unwrap_or_default();
                let namespace = text("namespace").unwrap_or_default();
                found.insert([group, kind, namespace, name].map(str::to_owned).into());
            }
            fields.values().for_each(|value| collect(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}
