//! A queue of work by due time that contains each item at most once.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use super::work::{Task, Work};

/// The first and the longest retry interval. The interval doubles, like in client-go's rate limiter.
const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(1000);
/// The longest retry interval for namespaces.
const LONGEST_OF_NAMESPACES: Duration = Duration::from_secs(60);

/// The due time of an item, and its number among those with the same time.
type Position = (Instant, u64);

#[derive(Debug, Default)]
pub(super) struct Queue {
    items: BTreeMap<Position, Work>,
    positions: HashMap<Work, Position>,
    /// How often each item has failed.
    failures: HashMap<Work, u32>,
    added: u64,
}

impl Queue {
    /// Adds an item. If it is already queued, the earlier of both times counts.
    pub(super) fn add(&mut self, work: Work, due: Instant) {
        if let Some(known) = self.positions.get(&work) {
            if known.0 <= due {
                return;
            }
            self.items.remove(known);
        }
        self.added += 1;
        self.positions.insert(work.clone(), (due, self.added));
        self.items.insert((due, self.added), work);
    }

    /// Adds a failed item, with an interval that doubles with each failure.
    pub(super) fn retry(&mut self, work: Work, now: Instant) {
        let failures = self.failures.entry(work.clone()).or_default();
        let longest = if work.task == Task::Namespace { LONGEST_OF_NAMESPACES } else { LONGEST };
        let delay = FIRST.saturating_mul(2u32.saturating_pow(*failures)).min(longest);
        *failures = failures.saturating_add(1);
        self.add(work, now + delay);
    }

    /// Resets the failures of an item.
    pub(super) fn forget(&mut self, work: &Work) {
        self.failures.remove(work);
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.items.first_key_value().map(|((due, _), _)| *due)
    }

    /// Removes and returns the first item that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Work> {
        let first = self.items.first_entry().filter(|entry| entry.key().0 <= now)?;
        let work = first.remove();
        self.positions.remove(&work);
        Some(work)
    }
}
