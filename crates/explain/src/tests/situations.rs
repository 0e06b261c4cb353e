//! The situations of public threads, by their numbers, as tables of recorded evidence.

use serde_json::Value;

use super::world::{World, read, texts};
use crate::{Finding, Risk, State};

const SITUATIONS: [&str; 6] = [
    include_str!("situations/namespaces.yaml"),
    include_str!("situations/finalizers.yaml"),
    include_str!("situations/controllers.yaml"),
    include_str!("situations/admission.yaml"),
    include_str!("situations/objects.yaml"),
    include_str!("situations/leftovers.yaml"),
];
const SLOW: &str = include_str!("situations/slow.yaml");
const OTHERS: &str = include_str!("situations/others.yaml");
const PARTIES: &str = include_str!("situations/parties.yaml");

/// How many situations the collection has.
const COLLECTED: usize = 78;
/// The share of those that can be explained afterwards that must be explained correctly, in percent.
const SHARE: usize = 95;

/// Returns the situations that are merely slow.
pub(super) fn slow() -> Vec<World> {
    read(SLOW)
}

pub(super) fn all() -> Vec<World> {
    SITUATIONS.iter().chain([&SLOW, &OTHERS, &PARTIES]).flat_map(|file| read(file)).collect()
}

/// Returns what differs from the expectations.
fn check(world: &World, finding: &Finding, requests: usize) -> Vec<String> {
    let expected = &world.description["expect"];
    let mut wrong = Vec::new();
    let json = serde_json::to_value(finding).unwrap();
    let mut differs = |what: &str, found: &Value, wanted: &Value| {
        if !wanted.is_null() && found != wanted {
            wrong.push(format!("{what}: {found}, not {wanted}"));
        }
    };
    let root = &json["rootCause"];
    differs("code", &root["code"], &expected["code"]);
    differs("responsible", &root["responsible"]["state"], &expected["responsible"]);
    let object = finding.root_cause.as_ref().map(|root| root.object.clone());
    if let Some(text) = expected["object"].as_str() {
        let wanted = world.reference(text);
        let same = object.as_ref().is_some_and(|found| {
            found.kind == wanted.kind && found.name == wanted.name && found.namespace == wanted.namespace
        });
        if !same {
            wrong.push(format!("object: {object:?}, not {text}"));
        }
    }
    let says = |text: &str, wanted: &str| text.contains(wanted);
    let message = root["message"].as_str().unwrap_or_default();
    for wanted in texts(expected, "says") {
        let party = root["responsible"]["name"].as_str().unwrap_or_default();
        if !says(message, &wanted) && !says(party, &wanted) {
            wrong.push(format!("{message:?} of {party:?} does not say {wanted:?}"));
        }
    }
    for wanted in texts(expected, "commands") {
        if !finding.next_steps.iter().any(|step| step.command.as_ref().is_some_and(|command| says(command, &wanted))) {
            wrong.push(format!("no command {wanted:?} in {:?}", finding.next_steps));
        }
    }
    let advice = |wanted: &str| finding.next_steps.iter().any(|step| says(&step.message, wanted));
    let missing = texts(expected, "advice").into_iter().filter(|wanted| !advice(wanted));
    wrong.extend(missing.map(|wanted| format!("no step {wanted:?} in {:?}", finding.next_steps)));
    let told = |text: &str| says(message, text) || says(&root["responsible"].to_string(), text) || advice(text);
    wrong.extend(
        texts(expected, "not").into_iter().filter(|text| told(text)).map(|text| format!("says {text:?}: {message:?}")),
    );
    if let Some(strength) = expected["strength"].as_str() {
        let found = crate::tree::root(&finding.causes).map(|cause| format!("{:?}", cause.strength).to_lowercase());
        if found.as_deref() != Some(strength) {
            wrong.push(format!("strength: {found:?}, not {strength}"));
        }
    }
    let unread = if expected["unread"].is_null() { Vec::new() } else { world.unread() };
    wrong.extend(
        texts(expected, "unread")
            .iter()
            .filter(|wanted| !unread.contains(wanted))
            .map(|wanted| format!("not in {unread:?}: {wanted}")),
    );
    wrong.extend(harm(world, finding));
    if requests > 30 {
        wrong.push(format!("{requests} requests"));
    }
    wrong
}

/// Returns the suggestions that do harm.
fn harm(world: &World, finding: &Finding) -> Vec<String> {
    let allowed = texts(&world.description["expect"], "risks");
    let mut harm = Vec::new();
    for step in &finding.next_steps {
        let Some(command) = &step.command else { continue };
        let never = ["/finalize ", "/finalize?", "finalizers\":null", "--force", "--grace-period", "--all", "etcdctl"];
        if never.iter().any(|part| command.contains(part)) {
            harm.push(format!("harmful: {command}"));
        }
        let strips = command.contains("/metadata/finalizers");
        if strips && (!command.contains("\"op\":\"test\"") || !step.message.contains("what is lost")) {
            harm.push(format!("a finalizer is removed without a test or a word on what is lost: {command}"));
        }
        let risk = serde_json::to_value(step.risk).unwrap();
        if step.risk != Risk::None && !allowed.iter().any(|known| risk == **known) {
            harm.push(format!("unexpected {risk} command: {command}"));
        }
    }
    harm
}

/// Checks the situations of a rule's own table.
#[track_caller]
pub(crate) fn check_table(text: &str) {
    let failures = run(&read(text));
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

fn run(worlds: &[World]) -> Vec<String> {
    let mut failures = Vec::new();
    for world in worlds {
        let (finding, requests) = world.diagnose(None);
        let wrong = check(world, &finding, requests);
        if !wrong.is_empty() {
            let tree = serde_json::to_string_pretty(&finding.causes).unwrap();
            failures.push(format!("{}\n  {}\n{tree}", world.title(), wrong.join("\n  ")));
        }
    }
    failures
}

#[test]
#[expect(clippy::print_stdout, reason = "the share is for people")]
fn every_situation_is_explained() {
    let worlds: Vec<_> = SITUATIONS.iter().flat_map(|file| read(file)).collect();
    let (skipped, explained): (Vec<_>, Vec<_>) =
        worlds.into_iter().partition(|world| world.description.get("beyond").is_some());
    let failures = run(&explained);
    let all: std::collections::BTreeSet<_> = explained
        .iter()
        .chain(&skipped)
        .map(|world| world.description["situation"].as_str().unwrap().to_owned())
        .collect();
    let right = explained.len() - failures.len();
    let share = right * 100 / explained.len();
    println!("{right} of {} situations explained correctly ({share} %); {} others:", explained.len(), skipped.len());
    for world in &skipped {
        println!("  {}: {}", world.title(), world.description["beyond"].as_str().unwrap());
    }
    assert!(share >= SHARE, "only {share} %");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(all.len(), COLLECTED, "each situation once");
}

#[test]
fn situations_outside_of_the_collection_are_explained() {
    let failures = run(&read(OTHERS));
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

/// Who is in charge, where more than one party could be, or where the evidence for one is weak.
#[test]
fn no_party_is_blamed_by_mistake() {
    let failures = run(&read(PARTIES));
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

/// Of what is merely slow, nothing is called stuck.
#[test]
fn what_is_slow_is_not_called_stuck() {
    let worlds = read(SLOW);
    assert!(worlds.len() >= 20, "{} situations", worlds.len());
    for world in &worlds {
        let (finding, requests) = world.diagnose(None);
        assert_eq!(check(world, &finding, requests), [""; 0], "{}", world.title());
        let root = super::super::tree::root(&finding.causes);
        let slow = finding.state == State::Gone || root.is_some_and(|cause| cause.reason.is_slow());
        assert!(slow, "{}: {root:#?}", world.title());
        assert!(
            finding.next_steps.iter().all(|step| step.command.is_none()),
            "{}: {:?}",
            world.title(),
            finding.next_steps
        );
    }
}
