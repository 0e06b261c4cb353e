//! `apply`: its arguments.

use crate::call::Place;

#[test]
fn invalid_arguments_are_rejected() {
    let place = Place::new(&[("a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")]);
    for (args, words) in [
        ("apply", "<NAME>"),
        ("apply web", "--filename"),
        ("apply -f a.yaml web", "hint: put NAME before -f"),
        ("apply web -f a.yaml -k dir", "cannot be used with"),
        ("apply web -f a.yaml --set a=b", "--set requires --chart REF"),
        ("apply web -f a.yaml --timeout 5", "expected a duration such as 90s"),
        ("apply web -f a.yaml --dry-run maybe", "none, client, server"),
        ("apply web -f a.yaml --wait=perhaps", "--wait"),
        ("apply UPPER -f a.yaml", "as the name or namespace of a release"),
    ] {
        place.rejects(args, words);
    }
}
