//! `billhook why`: its arguments and output.

use crate::call::Place;

#[test]
fn wrong_arguments_are_rejected() {
    let place = Place::new(&[]);
    place.rejects("why", "<KIND NAME | KIND/NAME>");
    place.rejects("why pods", "name the objects as KIND NAME or KIND/NAME");
    place.rejects("why pod/a b", "b is not KIND/NAME");
    place.rejects("why pod a -A", "cannot be used with");
    place.rejects("why --release web -A", "cannot be used with");
    place.rejects("why pod a --watch soon", "expected a duration");
    place.rejects("why widget a --sandbox", "the cluster does not serve the kind widget");
    place.rejects("why pod a --sandbox -o sarif", "does not print results in this format");
}

#[test]
fn what_does_not_exist_blocks_nothing() {
    let called = Place::new(&[]).call("why pod/a ns/b --sandbox -n shop");
    assert_eq!((called.exit, called.out.as_str()), (0, "Pod shop/a does not exist\nNamespace b does not exist\n"));
    let called = Place::new(&[]).call("why -A --sandbox");
    assert_eq!((called.exit, called.out.as_str()), (0, ""), "{}", called.err);
    assert_eq!(called.err, "nothing is being deleted\n");
}

#[test]
fn the_document_has_a_version() {
    let called = Place::new(&[]).call("why namespace default --sandbox -o json");
    let document: serde_json::Value = serde_json::from_str(&called.out).unwrap();
    let finding = &document["findings"][0];
    assert_eq!((called.exit, &document["version"]), (0, &1.into()), "{}", called.err);
    assert_eq!((&finding["state"], &finding["rootCause"]["code"]), (&"present".into(), &"not-deleting".into()));
    assert!(document["requests"].as_u64().is_some_and(|requests| (1..=30).contains(&requests)), "{document}");
    assert!(finding["deletingSince"].is_null());
}
