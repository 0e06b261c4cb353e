use super::cluster::release;
use crate::{Inventory, VersionState, history::MAX_HISTORY};

fn history(inventory: &Inventory) -> Vec<String> {
    let line = |of: &crate::AppliedVersion| {
        format!("{} {:?} {} {}", of.version, of.state, of.started_time, of.completion_time.as_deref().unwrap_or("-"))
    };
    inventory.history.iter().map(line).collect()
}

#[test]
fn the_history_is_that_of_a_cluster_version() {
    let mut inventory = Inventory::new(release());
    assert!(!inventory.complete_version("0"));
    inventory.begin_version("1.0", "1");
    inventory.begin_version("1.0", "2");
    assert_eq!(history(&inventory), ["1.0 Partial 1 -"]);
    assert!(inventory.complete_version("3") && !inventory.complete_version("4"));
    // Reconciled: nothing changes.
    inventory.begin_version("1.0", "5");
    assert_eq!(history(&inventory), ["1.0 Completed 1 3"]);
    inventory.begin_version("1.1", "6");
    // Superseded before it was complete.
    inventory.begin_version("1.2", "7");
    assert_eq!(history(&inventory), ["1.2 Partial 7 -", "1.1 Partial 6 7", "1.0 Completed 1 3"]);
    // Back to an earlier version: another entry.
    inventory.begin_version("1.0", "8");
    assert!(inventory.complete_version("9"));
    assert_eq!(history(&inventory)[..2], ["1.0 Completed 8 9", "1.2 Partial 7 8"]);
}

#[test]
fn the_history_is_bounded() {
    let mut inventory = Inventory::new(release());
    for n in 0..MAX_HISTORY + 5 {
        inventory.begin_version(&n.to_string(), "t");
        inventory.complete_version("t");
    }
    assert_eq!((inventory.history.len(), inventory.history[0].version.as_str()), (MAX_HISTORY, "104"));
    assert!(inventory.history.iter().all(|of| of.state == VersionState::Completed));
}
