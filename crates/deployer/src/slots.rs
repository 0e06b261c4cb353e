//! Limits the number of items that are worked on at the same time.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    api::DeployItem,
    fair::{FairSlot, FairSlots, Party},
};

/// The number of items per Target that are worked on at the same time. Each sends about five requests in sequence, so 16
/// keep an API server busy even if it takes 50 ms to answer. With more, all would take long.
const SLOTS_PER_TARGET: usize = 16;
/// How long an item keeps its slot. One that takes longer is waiting for a controller or user, which needs no slot.
pub(crate) const MAX_HOLD: Duration = Duration::from_secs(2);
/// How many items start at the same time. As many requests to the home cluster are sent at the same time, so that with more, each
/// item would take longer and all would need more memory.
const STARTS: usize = 64;
/// How much of a configuration, or of a rendered chart, in bytes, one place is for.
pub(crate) const PER_PLACE: usize = 64 << 10;
/// With so many Targets, those that have no items at work are forgotten.
const MANY_TARGETS: usize = 256;

/// The permits to work on an item.
pub(crate) struct Permits {
    /// A slot of its Target and one of those that all items share, for the start of the work.
    pub start: (OwnedSemaphorePermit, FairSlot),
    /// A place among all items, or several ones for a large configuration, until the work ends.
    pub place: FairSlot,
}

/// The slots of each Target, and what all items share. Items get the slots of their Target in the order in which they became due;
/// those of a cluster that does not answer do not delay the items of other Targets.
pub(crate) struct Slots {
    targets: Mutex<HashMap<Party, Arc<Semaphore>>>,
    starts: FairSlots,
    places: FairSlots,
}

impl Slots {
    /// Creates the places for at most this many items at the same time.
    pub(crate) fn new(places: usize) -> Self {
        Self { targets: Mutex::default(), starts: FairSlots::new(STARTS), places: FairSlots::new(places) }
    }

    /// Waits for the permits for an item whose configuration has this size in bytes.
    pub(crate) fn acquire(
        &self,
        item: &DeployItem,
        size: usize,
    ) -> impl Future<Output = Option<Permits>> + Send + use<> {
        let party = Party::of(item);
        let target = {
            let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
            if targets.len() >= MANY_TARGETS {
                targets.retain(|_, slots| Arc::strong_count(slots) > 1);
            }
            let slots = targets.entry(party.clone());
            Arc::clone(slots.or_insert_with(|| Arc::new(Semaphore::new(SLOTS_PER_TARGET))))
        };
        let (starts, places) = (self.starts.clone(), self.places.clone());
        async move {
            let target = target.acquire_owned().await.ok()?;
            let place = places.take_many(party.clone(), size.div_ceil(PER_PLACE).max(1)).await?;
            Some(Permits { start: (target, starts.take(party).await?), place })
        }
    }
}

/// Runs work that holds a slot for at most this time.
pub(crate) async fn hold_slot<S, T>(slot: Option<S>, longest: Duration, work: impl Future<Output = T>) -> T {
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
        item_in("a", target)
    }

    fn item_in(namespace: &str, target: &str) -> DeployItem {
        let spec = serde_json::json!({"type": "t", "target": {"name": target}});
        let mut item = DeployItem::new("a", serde_json::from_value(spec).unwrap());
        item.metadata.namespace = Some(namespace.to_owned());
        item
    }

    #[tokio::test(start_paused = true)]
    async fn slow_items_release_their_slots_and_targets_do_not_share_slots() {
        let slots = Slots::new(1000);
        let slow = || async {
            let slot = slots.acquire(&item("a"), 0).await;
            hold_slot(slot.map(|permits| permits.start), MAX_HOLD, std::future::pending::<()>()).await;
        };
        let mut all_slow = pin!(futures::future::join_all((0..SLOTS_PER_TARGET).map(|_| slow())));
        let begun = tokio::time::Instant::now();
        let take = async |target| {
            slots.acquire(&item(target), 0).await;
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
    #[tokio::test(start_paused = true)]
    async fn a_namespace_leaves_places_to_others_however_long_its_items_take() {
        let slots = Slots::new(16);
        let mut held = Vec::new();
        let mut taken = Vec::new();
        for namespace in ["a", "b", "c", "d", "e"] {
            for count in 0.. {
                let permits = slots.acquire(&item_in(namespace, &format!("t{count}")), 0);
                let Ok(Some(Permits { place, .. })) = tokio::time::timeout(Duration::from_secs(600), permits).await
                else {
                    taken.push(count);
                    break;
                };
                // The slots of the Targets are free again.
                held.push(place);
            }
        }
        assert_eq!(taken, [8, 4, 2, 1, 1]);
        held.clear();
        assert!(slots.acquire(&item_in("f", "t"), 0).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn large_configurations_take_several_places() {
        let slots = Slots::new(64);
        let mut held = Vec::new();
        for count in 0..10 {
            let permits = slots.acquire(&item_in("a", &format!("t{count}")), 1 << 20);
            if let Ok(Some(permits)) = tokio::time::timeout(Duration::from_secs(600), permits).await {
                held.push(permits.place);
            }
        }
        // 16 places each: with two, none of the 32 places for one namespace is left.
        assert_eq!(held.len(), 2);
        assert!(slots.acquire(&item_in("b", "t"), 1 << 20).await.is_some());
    }
}
