//! `status`: the error for an unknown release.

use crate::call::Place;

#[test]
fn an_unknown_release_is_an_error() {
    Place::new(&[]).call("--sandbox status web").is_input_error(
        "error: release web not found in namespace default\nhint: run billhook list -A to list all releases\n",
    );
}
