//! How many items are worked on at once.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::DeployItem;

/// How many items of one Target are worked on at once: with five requests in a row for each, these keep an API server
/// busy whose answers take 50 ms, and those that have begun are soon done.
const AT_ONCE: usize = 16;
/// Who takes longer than this waits for somebody else, who needs no slot.
const BRISK: Duration = Duration::from_secs(2);

/// The right to work on an item.
pub(crate) type Slot = OwnedSemaphorePermit;

/// The slots of each Target: items wait for one in the order in which they were due, and those of a Target that does not
/// answer keep no others waiting.
#[derive(Default)]
pub(crate) struct Slots(Mutex<HashMap<Target, Arc<Semaphore>>>);

/// The namespace and the name of a Target; items without one share an empty name.
type Target = (String, String);

impl Slots {
    /// Waits for a slot; none is never the answer as long as this lives.
    pub(crate) fn acquire(&self, item: &DeployItem) -> impl Future<Output = Option<Slot>> + Send + use<> {
        let name = item.spec.target.as_ref().map(|target| target.name.clone()).unwrap_or_default();
        let target = (item.metadata.namespace.clone().unwrap_or_default(), name);
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = Arc::clone(slots.entry(target).or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))));
        async { slots.acquire_owned().await.ok() }
    }
}

/// Holds a slot while something is done, but no longer than [`BRISK`].
pub(crate) async fn hold<T>(slot: Option<Slot>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(done) = tokio::time::timeout(BRISK, work.as_mut()).await {
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
    async fn who_takes_long_lets_others_begin_and_targets_have_slots_of_their_own() {
        let slots = Slots::default();
        let slow = || async {
            let slot = slots.acquire(&item("a")).await;
            hold(slot, std::future::pending::<()>()).await;
        };
        let mut all_slow = pin!(futures::future::join_all((0..AT_ONCE).map(|_| slow())));
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
        assert!(times.1 >= BRISK && times.1 < 2 * BRISK, "{times:?}");
    }
}
