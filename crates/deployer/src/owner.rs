//! Which process works on a helm release, and whether it has ended.
//!
//! A helm that was killed leaves its release pending, and helm never recovers from that by itself. Nothing in the release tells
//! whether a helm still works on it. So each release carries a label with the item, and the term of the Lease whose holder started
//! helm; helm ends with its controller.

use billhook_cluster::{ListedLease, Term};
use sha2::{Digest as _, Sha256};

use crate::item::Item;

/// The label of a release's record: the UID of the Lease, its transitions, and a digest of the item's name.
pub(crate) const OWNER: &str = "billhook.dev/owner";

/// The value of the label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The term of the Lease; none without leader election.
    term: Option<Term>,
    item: String,
}

impl Owner {
    /// Returns the owner of a release that this process deploys for an item.
    pub(crate) fn of(item: &Item) -> Self {
        Self::new(item.shared.term.clone(), &format!("{}/{}", item.namespace, item.name))
    }

    fn new(term: Option<Term>, item: &str) -> Self {
        let digest = Sha256::digest(item);
        Self { term, item: digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect() }
    }

    /// Returns the label, `KEY=VALUE`.
    pub(crate) fn label(&self) -> String {
        let (lease, transitions) = self.term.as_ref().map_or(("none", 0), |term| (&term.lease, term.transitions));
        format!("{OWNER}={lease}.{transitions}.{}", self.item)
    }

    /// Returns whether the helm that this label names has ended, for work on the same item.
    ///
    /// This process has awaited the end of its own; without leader election it is the only one. A process of another term has lost
    /// its Lease, or released it.
    pub(crate) fn has_survived(&self, label: &str, leases: &[ListedLease]) -> bool {
        let mut parts = label.split('.');
        let (Some(lease), Some(Ok(transitions)), Some(item), None) =
            (parts.next(), parts.next().map(str::parse::<i32>), parts.next(), parts.next())
        else {
            return false;
        };
        let named = leases.iter().find(|listed| listed.term.lease == lease);
        let is_over = match (&self.term, named) {
            (None, _) => lease == "none",
            (Some(own), _) if own.lease == lease && own.transitions == transitions => true,
            (Some(_), Some(named)) => named.term.transitions > transitions || named.holder.is_empty(),
            (Some(_), None) => false,
        };
        item == self.item && is_over
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LEASES: [&str; 2] = ["2b0f6c1a-4c0c-4d8e-9d5e-000000000001", "2b0f6c1a-4c0c-4d8e-9d5e-000000000002"];

    fn owner(lease: Option<usize>, transitions: i32, item: &str) -> Owner {
        Owner::new(lease.map(|lease| Term { lease: LEASES[lease].to_owned(), transitions }), item)
    }

    /// Checks whether the owner of a pending release has ended, if this process holds the first Lease for the 8th time, and the second
    /// one has this holder for the 3rd time.
    fn check(of: &Owner, other: &str, expected: bool) {
        let listed = |lease: usize, transitions, holder: &str| ListedLease {
            name: String::new(),
            holder: holder.to_owned(),
            duration: Duration::ZERO,
            resource_version: String::new(),
            term: Term { lease: LEASES[lease].to_owned(), transitions },
        };
        let leases = [listed(0, 8, "own"), listed(1, 3, other)];
        let label = of.label();
        let (key, value) = label.split_once('=').unwrap_or_default();
        assert!(key == OWNER && value.len() <= 63, "{label}");
        assert_eq!(owner(Some(0), 8, "a/b").has_survived(value, &leases), expected, "{label} {other:?}");
    }

    #[test]
    fn only_the_end_of_a_term_proves_that_helm_has_ended() {
        check(&owner(Some(0), 7, "a/b"), "other", true);
        check(&owner(Some(0), 8, "a/b"), "other", true);
        check(&owner(Some(0), 9, "a/b"), "other", false);
        // The work on another item may go on.
        check(&owner(Some(0), 8, "a/c"), "other", false);
        check(&owner(Some(0), 7, "a/c"), "other", false);
        // Another shard holds the item no longer, but its helm may be running.
        check(&owner(Some(1), 3, "a/b"), "other", false);
        check(&owner(Some(1), 3, "a/b"), "", true);
        check(&owner(Some(1), 2, "a/b"), "other", true);
        check(&owner(Some(1), i32::MAX, "a/b"), "other", false);
        // A controller without leader election, or of another home cluster.
        check(&owner(None, 0, "a/b"), "other", false);
    }

    #[test]
    fn without_leader_election_there_is_only_one_controller() {
        let own = owner(None, 0, "a/b");
        let survived = |label: &str| own.has_survived(label, &[]);
        let value = |owner: &Owner| owner.label().split_once('=').unwrap_or_default().1.to_owned();
        assert!(survived(&value(&own)));
        assert!(!survived(&value(&owner(None, 0, "a/c"))));
        assert!(!survived(&value(&owner(Some(0), 1, "a/b"))));
        for wrong in ["", "x", "none.0", "none.x.1", "none.0.1.2"] {
            assert!(!survived(wrong), "{wrong}");
        }
    }
}
