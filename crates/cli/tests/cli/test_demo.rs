//! `demo`: its output and its arguments.

use crate::call::Place;

#[test]
fn both_orders_are_shown() {
    let called = Place::new(&[]).call("demo");
    assert_eq!((called.exit, called.err.as_str()), (0, ""), "{}", called.out);
    for words in [
        "release default/shop applied: 8 created",
        "deleted Database.shop.example shop/reports",
        "release default/shop deleted: 9 objects gone",
        "  CustomResourceDefinition.apiextensions.k8s.io  databases.shop.example  being deleted, held by customresourcecleanup.apiextensions.k8s.io",
        "  Database.shop.example                          shop/orders             being deleted, held by shop.example/last-backup",
        "  Namespace                                      shop                    being deleted, held by kubernetes",
        "error: timed out: 4 objects remain",
        "  Database.shop.example  shop/customers  root cause: ",
    ] {
        assert!(called.out.contains(words), "{words:?} is not in {}", called.out);
    }
    assert!(!called.out.contains('\u{1b}'));
    assert!(Place::new(&[]).call("demo --color always").out.contains('\u{1b}'));
}

#[test]
fn invalid_arguments_are_rejected() {
    let place = Place::new(&[]);
    place.rejects("demo --user u", "error: the demo cannot be combined with --user\n");
    place.rejects("demo -o json", "error: the demo cannot be combined with -o json\n");
}
