//! `controller`: errors at its start.

use crate::call::Place;

#[test]
fn a_cluster_without_deploy_items_is_an_error() {
    let called = Place::new(&[]).call("--sandbox controller");
    assert_eq!((called.exit, called.out.as_str()), (2, ""), "{}", called.err);
    assert!(called.err.contains("error: failed to "), "{}", called.err);
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
    ] {
        let called = Place::new(&[]).call(&format!("--sandbox controller {flags}"));
        assert_eq!((called.exit, called.out.as_str()), (2, ""), "{flags}: {}", called.err);
        assert!(called.err.contains(problem), "{flags}: {}", called.err);
    }
}
