//! Limits the number of items that are worked on at the same time.

use std::{
    collections::{HashMap, VecDeque},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::api::DeployItem;

/// The number of items per Target that are worked on at the same time. Each sends about five requests in sequence, so 16
/// keep an API server busy even if it takes 50 ms to answer. With more, all would take long.
const SLOTS_PER_TARGET: usize = 16;
/// How long an item keeps its slot. One that takes longer is waiting for a controller or user, which needs no slot.
const MAX_HOLD: Duration = Duration::from_secs(2);
/// With so many Targets, those that have no items at work are forgotten.
const MANY_TARGETS: usize = 256;

/// The permit to work on an item: a slot of its Target for the start, and a place among all items until the work ends.
pub(crate) struct Slot {
    _target: Option<OwnedSemaphorePermit>,
    _place: Option<Place>,
}

/// The slots of each Target, and the places that all items share. Items get the slots of their Target in the order in which they
/// became due; those of a cluster that does not answer do not delay the items of other Targets.
pub(crate) struct Slots {
    targets: Mutex<HashMap<TargetKey, Arc<Semaphore>>>,
    places: Arc<Mutex<Places>>,
}

/// The namespace and name of a Target; the name is empty for items without one.
type TargetKey = (String, String);

/// The places of the items at work. A namespace may take another one while it has fewer than are free, so that it gets at most half
/// of them, and there are always some for others: items may keep their places for as long as they wait for other parties.
struct Places {
    limit: usize,
    taken: HashMap<String, usize>,
    waiting: VecDeque<(String, oneshot::Sender<Place>)>,
}

/// A place of an item, until it is dropped.
struct Place {
    places: Arc<Mutex<Places>>,
    namespace: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut places = lock(&self.places);
            if let Some(taken) = places.taken.get_mut(&self.namespace) {
                *taken -= 1;
            }
            places.taken.retain(|_, taken| *taken > 0);
        }
        assign(&self.places);
    }
}

impl Slots {
    /// Creates the places for at most this many items at the same time.
    pub(crate) fn new(limit: usize) -> Self {
        let places = Places { limit, taken: HashMap::new(), waiting: VecDeque::new() };
        Self { targets: Mutex::default(), places: Arc::new(Mutex::new(places)) }
    }

    /// Waits for a slot.
    pub(crate) fn acquire(&self, item: &DeployItem) -> impl Future<Output = Option<Slot>> + Send + use<> {
        let name = item.spec.target.as_ref().map(|target| target.name.clone()).unwrap_or_default();
        let namespace = item.metadata.namespace.clone().unwrap_or_default();
        let target = {
            let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
            if targets.len() >= MANY_TARGETS {
                targets.retain(|_, slots| Arc::strong_count(slots) > 1);
            }
            let slots = targets.entry((namespace.clone(), name));
            Arc::clone(slots.or_insert_with(|| Arc::new(Semaphore::new(SLOTS_PER_TARGET))))
        };
        let places = Arc::clone(&self.places);
        async move {
            let target = target.acquire_owned().await.ok()?;
            let (sender, receiver) = oneshot::channel();
            lock(&places).waiting.push_back((namespace, sender));
            assign(&places);
            Some(Slot { _target: Some(target), _place: Some(receiver.await.ok()?) })
        }
    }
}

fn lock(places: &Mutex<Places>) -> MutexGuard<'_, Places> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives free places to those whose turn it is.
fn assign(places: &Arc<Mutex<Places>>) {
    loop {
        let next = lock(places).take_next();
        let Some((namespace, sender)) = next else { return };
        // If nobody waits for it any more, it is dropped, which assigns it again. The lock is not held here.
        let _stopped = sender.send(Place { places: Arc::clone(places), namespace });
    }
}

impl Places {
    /// Removes the item whose turn it is from the queue, and counts its place as taken: of the namespaces that may take another
    /// one, that with the fewest, then the one that has waited for longest.
    fn take_next(&mut self) -> Option<(String, oneshot::Sender<Place>)> {
        self.waiting.retain(|(_, sender)| !sender.is_closed());
        let free = self.limit.saturating_sub(self.taken.values().sum());
        let taken = |namespace: &String| self.taken.get(namespace).copied().unwrap_or(0);
        let may = self.waiting.iter().enumerate().map(|(at, (namespace, _))| (taken(namespace), at));
        let (_, at) = may.filter(|(taken, _)| *taken < free).min()?;
        let (namespace, sender) = self.waiting.remove(at)?;
        *self.taken.entry(namespace.clone()).or_default() += 1;
        Some((namespace, sender))
    }
}

/// Runs work that holds the slot of its Target for at most [`MAX_HOLD`].
pub(crate) async fn hold_slot<T>(slot: Option<Slot>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(done) = tokio::time::timeout(MAX_HOLD, work.as_mut()).await {
        return done;
    }
    let _place = slot.map(|slot| Slot { _target: None, ..slot });
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
            let slot = slots.acquire(&item("a")).await;
            hold_slot(slot, std::future::pending::<()>()).await;
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

    #[tokio::test(start_paused = true)]
    async fn a_namespace_leaves_places_to_others_however_long_its_items_take() {
        let slots = Slots::new(16);
        let mut held = Vec::new();
        let mut take = async |namespace: &str, target: String| {
            let slot = slots.acquire(&item_in(namespace, &target));
            let slot = tokio::time::timeout(Duration::from_secs(600), slot).await.ok().flatten();
            slot.is_some_and(|slot| {
                // The slots of the Targets are free again.
                held.push(Slot { _target: None, ..slot });
                true
            })
        };
        let mut taken = Vec::new();
        for namespace in ["a", "b", "c", "d", "e"] {
            let mut count = 0;
            while take(namespace, format!("t{count}")).await {
                count += 1;
            }
            taken.push(count);
        }
        assert_eq!(taken, [8, 4, 2, 1, 1]);
        held.clear();
        assert!(slots.acquire(&item_in("f", "t")).await.is_some());
    }
}
