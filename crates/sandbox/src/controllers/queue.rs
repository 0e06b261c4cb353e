//! Work items in the order in which they are due, each at most once.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use super::work::{Task, Work};

/// The interval before the first repetition; it doubles from time to time, as client-go's rate limiter has it.
const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(1000);
/// Namespaces are tried once a minute at least.
const LONGEST_OF_NAMESPACES: Duration = Duration::from_secs(60);

/// When an item is due, and its number among those that are due at the same time.
type Position = (Instant, u64);

#[derive(Debug, Default)]
pub(super) struct Queue {
    items: BTreeMap<Position, Work>,
    positions: HashMap<Work, Position>,
    /// How often an item failed.
    failures: HashMap<Work, u32>,
    added: u64,
}

impl Queue {
    /// Adds an item; one that is there already stays, at the earlier of both times.
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

    /// Adds an item that failed, later with every failure.
    pub(super) fn retry(&mut self, work: Work, now: Instant) {
        let failures = self.failures.entry(work.clone()).or_default();
        let longest = if work.task == Task::Namespace { LONGEST_OF_NAMESPACES } else { LONGEST };
        let delay = FIRST.saturating_mul(2u32.saturating_pow(*failures)).min(longest);
        *failures = failures.saturating_add(1);
        self.add(work, now + delay);
    }

    /// Forgets how often an item failed.
    pub(super) fn forget(&mut self, work: &Work) {
        self.failures.remove(work);
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.items.first_key_value().map(|((due, _), _)| *due)
    }

    /// Takes the first item that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Work> {
        let first = self.items.first_entry().filter(|entry| entry.key().0 <= now)?;
        let work = first.remove();
        self.positions.remove(&work);
        Some(work)
    }
}
