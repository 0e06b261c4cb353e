//! `controller`: errors at its start.

use serde_json::Value;

use crate::call::Place;

#[test]
fn a_cluster_without_deploy_items_is_an_error() {
    let called = Place::new(&[]).call("--sandbox controller");
    assert_eq!((called.exit, called.out.as_str()), (2, ""), "{}", called.err);
    // The log is JSON to its last line, unless it is read at a terminal.
    let lines: Vec<Value> = called.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.last().unwrap();
    assert_eq!((last["level"].as_str(), last["event"].as_str()), (Some("error"), Some("failed")), "{}", called.err);
    assert!(last["text"].as_str().unwrap().starts_with("failed to find the kind DeployItem"), "{}", called.err);
    let called = Place::new(&[]).call("--sandbox controller --log-format text");
    assert!(called.err.contains("error: failed to "), "{}", called.err);
}

#[test]
fn the_times_of_the_lease_follow_the_rules_of_client_go() {
    let check = |flags: &str, expected: &str| {
        let line = format!("--sandbox controller --log-format text --leader-election-namespace default {flags}");
        let called = Place::new(&[]).call(&line);
        assert_eq!(called.exit, 2, "{}", called.err);
        assert!(called.err.contains(expected), "{flags}: {}", called.err);
    };
    check("--lease-duration 10s", "the lease duration (10s) must be longer than the renew deadline (10s)");
    check("--renew-deadline 20s", "the lease duration (15s) must be longer than the renew deadline (20s)");
    check("--retry-period 9s", "the renew deadline (10s) must be longer than 1.2 retry periods (9s)");
    check("--retry-period 0s", "the retry period must be longer than 0s");
    check(
        "--lease-duration 500ms --renew-deadline 100ms --retry-period 10ms",
        "the lease duration must be at least 1s",
    );
    // These are right, but there are no DeployItems.
    check("--lease-duration 60s --renew-deadline 40s --retry-period 10s", "find the kind DeployItem");
}

#[test]
fn a_wrong_pattern_of_hosts_is_an_error() {
    let called = Place::new(&[]).call("--sandbox controller --allow-host *.example --deny-host 10.0.0.0/33");
    assert_eq!((called.exit, called.out.as_str()), (2, ""), "{}", called.err);
    let problem = "\"10.0.0.0/33\" must be a name, *.DOMAIN, an address, a network such as 10.0.0.0/8, or loopback";
    assert!(called.err.contains(problem), "{}", called.err);
}

#[test]
fn a_wrong_selector_or_user_is_an_error() {
    for (flags, problem) in [
        ("--target-selector {}", "it is empty and would select all Targets: expected a selector such as {labels: "),
        ("--target-selector {labels:[{key:env,operator:is}]}", "expected a selector such as"),
        ("--helm-user 0", "--helm-user: it must be another user than root and than that of the controller"),
        ("--helm-user me", "invalid value 'me' for '--helm-user <ID>'"),
        (
            "--helm-user 65600-65601",
            "--helm-user: a range needs at least 12 users, because that many helms may run at the same time",
        ),
    ] {
        let called = Place::new(&[]).call(&format!("--sandbox controller {flags}"));
        assert_eq!((called.exit, called.out.as_str()), (2, ""), "{flags}: {}", called.err);
        assert!(called.err.contains(problem), "{flags}: {}", called.err);
    }
}
