//! Limits the number of items that are worked on at the same time.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::DeployItem;

/// The number of items per Target that are worked on at the same time. Each sends about five requests in sequence, so 16
/// keep an API server busy even if it takes 50 ms to answer. With more, all would take long.
const SLOTS_PER_TARGET: usize = 16;
/// How long an item keeps its slot. One that takes longer is waiting for a controller or user, which needs no slot.
pub(crate) const MAX_HOLD: Duration = Duration::from_secs(2);

/// The permit to work on an item.
pub(crate) type Slot = OwnedSemaphorePermit;

/// The slots of each Target. Items get them in the order in which they became due; those of a cluster that does not answer
/// do not delay the items of other Targets.
#[derive(Default)]
pub(crate) struct Slots(Mutex<HashMap<TargetKey, Arc<Semaphore>>>);

/// The namespace and name of a Target; the name is empty for items without one.
type TargetKey = (String, String);

impl Slots {
    /// Waits for a slot.
    pub(crate) fn acquire(&self, item: &DeployItem) -> impl Future<Output = Option<Slot>> + Send + use<> {
        let name = item.spec.target.as_ref().map(|target| target.name.clone()).unwrap_or_default();
        let target = (item.metadata.namespace.clone().unwrap_or_default(), name);
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = Arc::clone(slots.entry(target).or_insert_with(|| Arc::new(Semaphore::new(SLOTS_PER_TARGET))));
        async { slots.acquire_owned().await.ok() }
    }
}

/// Runs work that holds a slot for at most this time.
pub(crate) async fn hold_slot<T>(slot: Option<Slot>, longest: Duration, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(done) = tokio::time::timeout(longest, work.as_mut()).await {
        return done;
    }
    drop(slot);
    work.await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(target: &str) -> DeployItem {
        let spec = serde_json::json!({"type": "t", "target": {"name": target}});
        DeployItem::new("a", serde_json::from_value(spec).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn slow_items_release_their_slots_and_targets_do_not_share_slots() {
        let slots = Slots::default();
        let slow = || async {
            let slot = slots.acquire(&item("a")).await;
            hold_slot(slot, MAX_HOLD, std::future::pending::<()>()).await;
        };
        let mut all_slow = pin!(futures::future::join_all((0..SLOTS_PER_TARGET).map(|_| slow())));
        let begun = tokio::time::Instant::now();
        let take = async |target| {
            slots.acquire(&item(target)).await;
            begun.elapsed()
        };
        let times = async { (take("b").await, take("a").await) };
        let times = tokio::select! {
            biased;
            _ = &mut all_slow => unreachable!("they never end"),
            times = times => times,
        };
        assert_eq!(times.0, Duration::ZERO);
        assert!(times.1 >= MAX_HOLD && times.1 < 2 * MAX_HOLD, "{times:?}");
    }
}
