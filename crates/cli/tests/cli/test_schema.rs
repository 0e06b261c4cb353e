//! `billhook schema`.

use crate::call::Place;

#[test]
fn the_schema_of_policies_is_printed() {
    let called = Place::new(&[]).call("schema policy");
    assert_eq!((called.exit, called.err.as_str()), (0, ""));
    assert_eq!(called.out, include_str!("../../../../docs/policy.schema.json"));
}

#[test]
fn the_schema_of_stages_is_printed() {
    let called = Place::new(&[]).call("schema stages");
    assert_eq!((called.exit, called.err.as_str()), (0, ""));
    assert_eq!(called.out, include_str!("../../../../docs/stages.schema.json"));
}

#[test]
fn only_known_documents_have_a_schema() {
    Place::new(&[]).rejects("schema polices", "a similar value exists: 'policy'");
}
