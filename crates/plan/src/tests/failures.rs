use billhook_objects::{GroupKind, ObjectKey};

use crate::{
    Failed, Failures,
    failures::{MAX_ERROR, MAX_FAILURES},
};

fn key(name: usize) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("ns"), format!("a{name}"))
}

#[test]
fn the_first_failures_are_kept_and_the_others_counted() {
    let keys: Vec<_> = (0..MAX_FAILURES + 3).map(key).collect();
    for (count, omitted) in [(0, 0), (1, 0), (MAX_FAILURES, 0), (MAX_FAILURES + 1, 1), (MAX_FAILURES + 3, 3)] {
        let found = Failures::of(keys[..count].iter().map(|object| Failed { object, error: "no", code: None }));
        assert_eq!((found.objects.len(), found.omitted), (count - omitted, omitted));
        assert_eq!(found.is_empty(), count == 0);
        assert!(found.objects.iter().map(|failure| &failure.object).eq(&keys[..count - omitted]));
    }
}

#[test]
fn long_errors_are_cut_between_characters() {
    for (error, length, is_cut) in [
        ("x".repeat(MAX_ERROR), MAX_ERROR, false),
        ("x".repeat(MAX_ERROR + 1), MAX_ERROR, true),
        // The two bytes of the last letter do not fit.
        ("é".repeat(MAX_ERROR), MAX_ERROR - 1, true),
    ] {
        let found = Failures::of([Failed { object: &key(0), error: &error, code: None }]).objects.remove(0).error;
        assert_eq!((found.len(), found.ends_with('…')), (length, is_cut));
        assert!(error.starts_with(found.trim_end_matches('…')));
    }
}
