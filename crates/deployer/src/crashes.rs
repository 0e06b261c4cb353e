//! Items that may have killed a controller: each is retried apart from the others, and after three crashes set aside.
//!
//! A leader that ends in order releases its Lease. If the Lease was not released, its holder was killed, and each item whose phase
//! is unfinished is suspected. Most of them are innocent, so a suspect counts a further crash only if the process died soon after
//! the start of its last attempt, which its annotation tells: `docs/deployitems.md` has the rules for users. Usual work costs no
//! request for this: only an attempt on a suspect writes the annotation before, and removes it after.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    api::{DeployItem, ErrorCode, has_finalizer},
    error::ItemFailure,
};

/// The annotation of an item that was being worked on when a controller was killed.
pub(crate) const ANNOTATION: &str = "billhook.dev/crashes";
/// The reason of the failure of an item that is set aside.
pub(crate) const SET_ASIDE: &str = "SetAside";

/// The number of crashes after which an item is set aside.
const LIMIT: u32 = 3;
/// How many items with one crash are worked on at the same time. Those with more are worked on alone.
const TOGETHER: u32 = 8;
/// How long a suspect keeps its place, so that it is alone, or among few, when it is most dangerous.
const PLACE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];
/// How long after the start of an attempt the end of the process counts as a crash of the item. Longer than a loop may be stuck
/// before its Lease is given up, and shorter than an item is alone: the next one must not be counted against it.
const COUNTED: SignedDuration = SignedDuration::from_secs(45);
/// The pause before an attempt on an item with two crashes: innocent items with one crash come first.
const PAUSE: Duration = Duration::from_secs(20);

/// What the annotation of an item holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    /// How often the process has died while it worked on the item.
    count: u32,
    /// When the last of these processes showed its last sign of life.
    last_crash: Timestamp,
    /// When the attempt after it began.
    attempt: Timestamp,
}

/// The suspicion that an item kills the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suspicion {
    count: u32,
    last_crash: Timestamp,
}

impl Suspicion {
    /// Returns the value of the annotation for an attempt that begins now.
    pub(crate) fn annotation(self, now: Timestamp) -> String {
        let record = Record { count: self.count, last_crash: self.last_crash, attempt: now };
        serde_json::to_string(&record).unwrap_or_default()
    }

    /// Returns the failure of an item that is not worked on any more.
    pub(crate) fn set_aside(self) -> Option<ItemFailure> {
        let message = format!(
            "set aside, because the controller was killed {} times while it worked on this item, most recently about {}: \
             change the item or request the operation reconcile to try it again",
            self.count, self.last_crash,
        );
        (self.count >= LIMIT).then(|| ItemFailure::new(SET_ASIDE, message, ErrorCode::InternalProblem))
    }

    /// Returns what the condition says while the item waits.
    pub(crate) fn message(self) -> String {
        let count = self.count;
        format!("the controller was killed while it worked on this item (crash {count} of {LIMIT}); retrying it alone")
    }

    /// Returns how long the item keeps its place.
    pub(crate) fn place(self) -> Duration {
        PLACE[usize::from(self.count > 1)]
    }

    /// Returns the pause before the attempt.
    pub(crate) fn pause(self) -> Duration {
        if self.count > 1 { PAUSE } else { Duration::ZERO }
    }
}

/// Returns whether an item was set aside.
pub(crate) fn is_set_aside(item: &DeployItem) -> bool {
    record(item).is_some_and(|record| record.count >= LIMIT)
}

/// Returns the suspicion against an item. `crash` is the last sign of life of the former leader, if it was killed and the item has
/// not been tried since; `requested` whether an operation annotation requests work.
pub(crate) fn suspicion(item: &DeployItem, crash: Option<Timestamp>, requested: bool) -> Option<Suspicion> {
    let (record, status) = (record(item), item.status.as_ref());
    let suspicion = match crash.filter(|_| is_unfinished(item)) {
        Some(crash) => {
            let soon = |record: &Record| crash <= record.attempt.saturating_add(COUNTED).unwrap_or(Timestamp::MAX);
            let before = record.filter(soon).map_or(0, |record| record.count);
            Suspicion { count: before.saturating_add(1), last_crash: crash }
        }
        None => {
            let Record { count, last_crash, .. } =
                record.filter(|record| is_unfinished(item) || record.count >= LIMIT)?;
            Suspicion { count, last_crash }
        }
    };
    let changed = item.metadata.generation != status.map(|status| status.observed_generation)
        || requested
        || !is_unfinished(item);
    // A change gives it one more attempt.
    let count = if changed { suspicion.count.min(LIMIT - 1) } else { suspicion.count };
    Some(Suspicion { count, ..suspicion })
}

/// Returns whether work on an item has begun and not ended.
pub(crate) fn is_unfinished(item: &DeployItem) -> bool {
    let phase = item.status.as_ref().and_then(|status| status.phase);
    // The first phase of a new item is written after its finalizer, when the work has taken a while.
    phase.map_or_else(|| has_finalizer(item), |phase| !phase.is_final())
}

fn record(item: &DeployItem) -> Option<Record> {
    serde_json::from_str(item.metadata.annotations.as_ref()?.get(ANNOTATION)?).ok()
}

/// The places for attempts on suspects: for some with one crash, or for one with more.
///
/// Each namespace has as many of its own, which an attempt takes first. So at most one attempt that is to be alone waits for the places
/// of all, or as many others as there are places, whatever annotations a tenant writes: other tenants wait for no more than that.
#[derive(Clone)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    of_namespaces: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _in_namespace: OwnedSemaphorePermit,
    _among_all: OwnedSemaphorePermit,
}

fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(usize::try_from(TOGETHER).unwrap_or(1)))
}

impl Default for Places {
    fn default() -> Self {
        Self { all: places(), of_namespaces: Arc::default() }
    }
}

impl Places {
    /// Waits for a place for an item of a namespace; none once they are closed.
    pub(crate) async fn take(&self, namespace: &str, suspicion: Suspicion) -> Option<Place> {
        let count = if suspicion.count > 1 { TOGETHER } else { 1 };
        let own = {
            let mut all = self.of_namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, places| Arc::strong_count(places) > 1);
            Arc::clone(all.entry(namespace.to_owned()).or_insert_with(places))
        };
        let in_namespace = own.acquire_many_owned(count).await.ok()?;
        let among_all = Arc::clone(&self.all).acquire_many_owned(count).await.ok()?;
        Some(Place { _in_namespace: in_namespace, _among_all: among_all })
    }

    /// Lets no further attempt start.
    pub(crate) fn close(&self) {
        self.all.close();
        self.of_namespaces.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(|places| places.close());
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn item(phase: &str, annotations: &Value) -> DeployItem {
        let item = json!({
            "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "DeployItem",
            "metadata": { "namespace": "a", "name": "b", "generation": 1, "annotations": annotations },
            "spec": { "type": "t" }, "status": { "phase": phase, "observedGeneration": 1 },
        });
        serde_json::from_value(item).unwrap()
    }

    #[test]
    fn a_new_item_is_suspected_from_its_finalizer_on() {
        let mut new = item("", &json!({}));
        assert!(!is_unfinished(&new));
        new.metadata.finalizers = Some(vec![crate::api::FINALIZER.to_owned()]);
        assert_eq!(suspicion(&new, Some(at(1000)), false).map(|found| found.count), Some(1));
    }

    fn recorded(count: u32, attempt: i64) -> Value {
        let suspicion = Suspicion { count, last_crash: at(900) };
        json!({ ANNOTATION: suspicion.annotation(at(attempt)) })
    }

    /// Checks how many crashes count against an item.
    fn check(phase: &str, annotations: &Value, crash: Option<i64>, expected: Option<u32>) {
        let suspicion = suspicion(&item(phase, annotations), crash.map(at), false);
        assert_eq!(suspicion.map(|found| found.count), expected, "{phase} {annotations} {crash:?}");
    }

    #[test]
    fn only_a_death_soon_after_the_start_of_an_attempt_counts_again() {
        let none = json!({});
        // Nobody was killed, or nothing was being done.
        check("Progressing", &none, None, None);
        check("Succeeded", &none, Some(1000), None);
        // One crash makes all unfinished items suspects.
        check("Progressing", &none, Some(1000), Some(1));
        check("Deleting", &none, Some(1000), Some(1));
        // It died during the attempt after that.
        check("Progressing", &recorded(1, 999), Some(1000), Some(2));
        check("Progressing", &recorded(2, 999), Some(1000), Some(3));
        check("Progressing", &recorded(2, 955), Some(1000), Some(3));
        // The item had survived by then, or was still waiting for its turn.
        check("Progressing", &recorded(2, 954), Some(1000), Some(1));
        check("Progressing", &recorded(2, 900), Some(1000), Some(1));
        // An end in order counts nothing and clears nobody.
        check("Progressing", &recorded(2, 999), None, Some(2));
        check("Succeeded", &recorded(2, 999), None, None);
        check("Progressing", &json!({ ANNOTATION: "x" }), Some(1000), Some(1));
    }

    #[test]
    fn an_item_that_was_set_aside_gets_one_attempt_for_each_change() {
        check("Progressing", &recorded(3, 999), None, Some(3));
        check("Failed", &recorded(3, 999), None, Some(2));
        check("Failed", &recorded(3, 999), Some(1000), Some(2));
        let requested = suspicion(&item("Progressing", &recorded(3, 999)), None, true);
        assert_eq!(requested.map(|found| found.count), Some(2));
        let mut changed = item("Progressing", &recorded(2, 999));
        changed.metadata.generation = Some(2);
        assert_eq!(suspicion(&changed, Some(at(1000)), false).map(|found| found.count), Some(2));
        let aside = |count| Suspicion { count, last_crash: at(0) }.set_aside().is_some();
        assert_eq!([1, 2, 3, 4].map(aside), [false, false, true, true]);
    }

    #[tokio::test]
    async fn an_item_with_two_crashes_is_alone() {
        let (places, suspect) = (Places::default(), |count| Suspicion { count, last_crash: at(0) });
        let some: Vec<_> = (0..TOGETHER).map(|_| places.take("a", suspect(1)).now_or_never()).collect();
        assert!(some.iter().all(|place| matches!(place, Some(Some(_)))));
        assert!(places.take("a", suspect(1)).now_or_never().is_none());
        assert!(places.take("a", suspect(2)).now_or_never().is_none());
        drop(some);
        let alone = places.take("a", suspect(2)).now_or_never().flatten();
        assert!(alone.is_some() && places.take("a", suspect(1)).now_or_never().is_none());
        places.close();
        assert!(matches!(places.take("a", suspect(1)).now_or_never(), Some(None)));
    }

    /// Whoever may write DeployItems may also write the annotation.
    #[tokio::test(start_paused = true)]
    async fn the_suspects_of_a_namespace_delay_those_of_others_once_only() {
        let (places, suspect) = (Places::default(), |count| Suspicion { count, last_crash: at(0) });
        let mut forged = tokio::task::JoinSet::new();
        for count in [2].repeat(50).into_iter().chain([1].repeat(200)) {
            let places = places.clone();
            forged.spawn(async move {
                let _place = places.take("bad", suspect(count)).await;
                tokio::time::sleep(suspect(count).place()).await;
            });
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        for count in [1, 2, 1] {
            let begun = tokio::time::Instant::now();
            drop(places.take("good", suspect(count)).await);
            assert!(begun.elapsed() <= 2 * PLACE[1], "{count}: {:?}", begun.elapsed());
        }
        assert!(!forged.is_empty() && forged.try_join_next().is_some());
    }
}
