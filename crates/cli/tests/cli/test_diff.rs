//! `billhook diff`.

use crate::call::Place;

#[test]
fn the_input_is_that_of_apply() {
    let place = Place::new(&[]);
    place.rejects("diff shop", "required arguments were not provided");
    place.rejects("plan apply shop -f a.yaml --full", "--diff");
    place.rejects("diff shop -f missing.yaml", "missing.yaml");
}

#[test]
fn an_unavailable_server_is_not_a_difference() {
    let place = Place::new(&[("a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")]);
    let called = place.call("diff shop -f a.yaml");
    assert_eq!((called.exit, called.out.as_str()), (5, ""), "{}", called.err);
}
