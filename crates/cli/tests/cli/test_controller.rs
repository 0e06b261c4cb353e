//! `controller`: the error for a cluster without DeployItems.

use crate::call::Place;

#[test]
fn a_cluster_without_deploy_items_is_an_error() {
    let called = Place::new(&[]).call("--sandbox controller");
    assert_eq!((called.exit, called.out.as_str()), (2, ""), "{}", called.err);
    assert!(called.err.contains("error: failed to "), "{}", called.err);
}
