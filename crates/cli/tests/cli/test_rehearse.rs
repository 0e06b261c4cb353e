//! `billhook rehearse`: its arguments and output.

use crate::call::Place;

const RELEASE: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";

#[test]
fn wrong_arguments_are_rejected() {
    let place = Place::new(&[("a.yaml", RELEASE)]);
    place.rejects("rehearse", "Usage: billhook rehearse");
    place.rejects("rehearse delete", "<NAME");
    place.rejects("rehearse delete web --yes", "unexpected argument '--yes'");
    place.rejects("rehearse delete web --timeout soon", "expected a duration");
    place.rejects("rehearse delete web --target a=b", "cannot be combined with --target");
    place.rejects("rehearse delete -f a.yaml --sandbox -o html", "does not print results in this format");
}

#[test]
fn nothing_remains_of_nothing() {
    let called = Place::new(&[("a.yaml", RELEASE)]).call("rehearse delete -f a.yaml --sandbox -n shop");
    assert_eq!(called.exit, 0, "{}", called.err);
    assert!(called.out.starts_with("rehearsed on a copy of the cluster; nothing was changed\n"), "{}", called.out);
    assert!(called.out.contains("the deletion would succeed"), "{}", called.out);
}

#[test]
fn the_summary_is_the_last_event() {
    let called = Place::new(&[("a.yaml", RELEASE)]).call("rehearse delete -f a.yaml --sandbox -n shop -o json");
    let events: Vec<serde_json::Value> = called.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!((names.first(), names.last()), (Some(&"started"), Some(&"finished")), "{names:?}");
    let rehearsed = &events[names.len() - 2];
    assert_eq!((&rehearsed["event"], &rehearsed["why"]["version"]), (&"rehearsed".into(), &1.into()));
    assert!(rehearsed["requests"].as_u64().is_some_and(|requests| requests > 10), "{rehearsed}");
}
