//! `completion`: scripts for shells.

use crate::call::Place;

#[test]
fn completions_are_printed() {
    let called = Place::new(&[]).call("completion bash");
    assert_eq!(called.exit, 0);
    assert!(called.out.contains("_billhook()"));
}

#[test]
fn unknown_shells_are_rejected() {
    Place::new(&[]).rejects("completion tcl", "bash");
}
