//! A short memory of the outcome of our own DELETEs, so that a watch need not verify what a response has already proved.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use billhook_objects::Uid;
use tokio::time::Instant;

/// What is known of a DELETE that names a UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeleteOutcome {
    /// The request has been sent and not been answered yet.
    Pending,
    /// The response proved that nothing holds the object: it is gone, or about to be.
    Removed,
}

/// How long an outcome is kept. A watch needs it as soon as the event arrives; without it, the watch reads the object.
const KEPT: Duration = Duration::from_secs(60);

/// The outcomes of recent DELETEs by UID, with the time at which each was recorded.
pub(crate) struct RecentDeletes(Mutex<Outcomes>);

struct Outcomes {
    by_uid: HashMap<Uid, (Instant, DeleteOutcome)>,
    swept: Instant,
}

impl RecentDeletes {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Outcomes { by_uid: HashMap::new(), swept: Instant::now() }))
    }

    /// Records the outcome of a DELETE; with none, forgets that the DELETE was sent.
    pub(crate) fn record(&self, uid: &Uid, outcome: Option<DeleteOutcome>) {
        let (now, mut outcomes) = (Instant::now(), self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if now.duration_since(outcomes.swept) >= KEPT {
            outcomes.by_uid.retain(|_, (at, _)| now.duration_since(*at) < KEPT);
            outcomes.by_uid.shrink_to_fit();
            outcomes.swept = now;
        }
        match outcome {
            Some(outcome) => outcomes.by_uid.insert(uid.clone(), (now, outcome)),
            None => outcomes.by_uid.remove(uid),
        };
    }

    pub(crate) fn outcome(&self, uid: &Uid) -> Option<DeleteOutcome> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_uid.get(uid).map(|(_, outcome)| *outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outcome_is_forgotten_after_a_minute() {
        let deletes = RecentDeletes::new();
        for number in 0..1000 {
            deletes.record(&Uid::new(number.to_string()), Some(DeleteOutcome::Removed));
        }
        assert_eq!(deletes.outcome(&Uid::new("7")), Some(DeleteOutcome::Removed));
        tokio::time::advance(KEPT).await;
        deletes.record(&Uid::new("new"), Some(DeleteOutcome::Pending));
        assert_eq!(deletes.outcome(&Uid::new("new")), Some(DeleteOutcome::Pending));
        assert_eq!(deletes.0.lock().unwrap().by_uid.len(), 1);
    }
}
