//! `billhook clean`: its arguments, and its guard.

use crate::call::Place;

const STAGES: &str = "stages: [{name: settings, resources: [{apiVersion: v1, kind: cm}]}]";

#[test]
fn wrong_arguments_are_rejected() {
    let place = Place::new(&[("stages.yaml", STAGES), ("empty.yaml", "")]);
    place.rejects("clean --finalize-after webhooks", "expected STAGE=DURATION");
    place.rejects("clean --finalize-after webhooks=soon", "expected a duration");
    place.rejects("clean --exclude a=b=c", "is not a label selector");
    place.rejects("clean -f missing.yaml", "missing.yaml does not exist");
    place.rejects("clean -f empty.yaml", "the stages file is empty");
    place.rejects("clean control-plane", "NAMESPACE");
    place.rejects(
        "clean -f stages.yaml --finalize-after webhooks=1s --finalize-after others=1s",
        "there is no stage \"others\"; the stages are settings",
    );
}

#[test]
fn an_empty_cluster_is_clean() {
    let called = Place::new(&[]).call("clean --sandbox");
    assert_eq!(called.exit, 0, "{}", called.err);
    assert!(called.out.starts_with("clean: nothing to delete in "), "{}", called.out);
    let called = Place::new(&[]).call("clean --sandbox -o json");
    assert!(
        called.out.starts_with(r#"{"event":"started","format":1,"operation":"clean","nodes":[]"#),
        "{}",
        called.out
    );
}

#[test]
fn the_plan_of_an_empty_cluster_has_nothing_to_do() {
    let called = Place::new(&[]).call("plan clean --sandbox");
    assert_eq!((called.exit, called.out.as_str()), (0, "clean: nothing to do\n"), "{}", called.err);
    let called = Place::new(&[]).call("plan clean control-plane shoot--a --sandbox");
    assert_eq!((called.exit, called.out.as_str()), (0, "clean: nothing to do\n"), "{}", called.err);
}

#[test]
fn a_system_namespace_is_no_control_plane() {
    let called = Place::new(&[]).call("clean control-plane kube-system --sandbox");
    assert_eq!((called.exit, called.out.as_str()), (4, ""), "{}", called.err);
    assert!(called.err.contains("system namespace"), "{}", called.err);
}

#[test]
fn flags_may_precede_or_follow_the_subcommand() {
    let event = r#"{"event":"started","format":1,"operation":"clean","nodes":[]"#;
    for args in [
        "clean control-plane shoot--a --sandbox -o json --timeout 1m --yes",
        "clean --sandbox -o json --timeout 1m --yes control-plane shoot--a",
        "--sandbox -o json clean --timeout 1m control-plane --yes shoot--a",
    ] {
        let called = Place::new(&[]).call(args);
        assert_eq!(called.exit, 0, "{args}: {}", called.err);
        assert!(called.out.starts_with(event), "{args}: {}", called.out);
    }
    let plans =
        ["plan clean control-plane shoot--a --sandbox -o json", "plan clean --sandbox -o json control-plane shoot--a"];
    let [last, first] = plans.map(|args| Place::new(&[]).call(args));
    assert_eq!((last.exit, first.exit, &last.out), (0, 0, &first.out), "{}{}", last.err, first.err);
    let place = Place::new(&[("stages.yaml", STAGES)]);
    place.rejects("clean -f stages.yaml control-plane a --sandbox", "--filename cannot be used with control-plane");
    place.rejects("clean --exclude a control-plane a --sandbox", "--exclude cannot be used with control-plane");
    let both = "clean --finalize-after x=1s --confirm-cluster c control-plane a --sandbox";
    place.rejects(both, "--finalize-after cannot be used with control-plane");
    place.rejects(both, "--confirm-cluster cannot be used with control-plane");
    place.rejects("plan clean --exclude a control-plane a --sandbox", "--exclude cannot be used with control-plane");
    place.rejects("clean control-plane a --exclude b --sandbox", "unexpected argument '--exclude'");
}
