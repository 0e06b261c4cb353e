//! `delete`: its arguments.

use crate::call::Place;

#[test]
fn invalid_arguments_are_rejected() {
    let place = Place::new(&[]);
    for (args, words) in [
        ("delete", "NAME"),
        ("delete -k dir -R", "-R requires -f"),
        ("delete web -f a.yaml", "cannot be used with"),
        ("delete web --target other", "NAME=KUBECONFIG"),
        ("delete web --target a=kubeconfig --target a=kubeconfig", "--target a is given twice"),
        ("delete web --target a=nothing", "failed to read the kubeconfig"),
    ] {
        place.rejects(args, words);
    }
}
