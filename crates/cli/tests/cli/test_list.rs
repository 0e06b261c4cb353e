//! `list`: its connection to the cluster.

use crate::call::Place;

#[test]
fn an_unreachable_server_is_named() {
    let called = Place::new(&[]).call("list");
    assert_eq!(
        (called.exit, called.err.as_str()),
        (
            1,
            "error: failed to list releases: the server cannot be reached (Connection refused (os error 111))\n\
             hint: check that http://127.0.0.1:1/ is the right API server and that it is running\n"
        )
    );
}
