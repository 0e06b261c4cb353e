//! Whose turn it is, where work of several namespaces and Targets shares a limited number of slots.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::FutureExt as _;
use tokio::sync::oneshot;

use crate::{
    api::DeployItem,
    halt::{Halt, Stop},
};

/// Whose work it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Party {
    namespace: String,
    target: String,
}

impl Party {
    pub(crate) fn of(item: &DeployItem) -> Self {
        let target = item.spec.target.as_ref().map(|target| target.name.clone()).unwrap_or_default();
        Self { namespace: item.metadata.namespace.clone().unwrap_or_default(), target }
    }
}

/// Slots that namespaces and Targets share. A free one goes to the namespace that has the fewest, of several to the one that got one
/// longest ago, then to its Target that has the fewest, then to the work that has waited for longest. Long work of one does not keep
/// all others waiting: a namespace gets one more only while it has fewer than are free, so at most half of them, and half of what
/// others leave; a Target gets one fewer than its namespace, if that is more than one.
#[derive(Clone)]
pub(crate) struct FairSlots(Arc<Mutex<Queue>>);

/// How many slots there are, and how many are used and waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotCounts {
    pub slots: usize,
    pub used: usize,
    pub waiting: usize,
}

struct Queue {
    /// Whether no more work starts.
    is_closed: bool,
    slots: usize,
    running: BTreeMap<Party, usize>,
    waiting: BTreeMap<Party, VecDeque<Waiting>>,
    /// The number of those that have waited so far.
    count: u64,
    /// How often a slot was given to any namespace.
    given: u64,
    /// The number of the last one that each namespace got, while it has one or waits: those that have queued up much work take turns
    /// with the others.
    last: BTreeMap<String, u64>,
}

struct Waiting {
    number: u64,
    /// How many slots it takes.
    weight: usize,
    sender: oneshot::Sender<FairSlot>,
}

/// The permit to use a slot, or several ones, until it is dropped.
pub(crate) struct FairSlot {
    queue: Arc<Mutex<Queue>>,
    party: Party,
    weight: usize,
}

impl FairSlots {
    pub(crate) fn new(slots: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue::new(slots))))
    }

    /// Gives no more slots: what waits for one, or asks for one, is halted.
    pub(crate) fn close(&self) {
        let mut queue = lock(&self.0);
        queue.is_closed = true;
        queue.waiting.clear();
    }

    /// Counts the slots and those that wait for one.
    pub(crate) fn counts(&self) -> SlotCounts {
        let queue = lock(&self.0);
        let waiting = queue.waiting.values().flatten().filter(|waiting| !waiting.sender.is_closed());
        SlotCounts { slots: queue.slots, used: queue.running.values().sum(), waiting: waiting.count() }
    }

    /// Waits for a slot; none once they are closed.
    pub(crate) fn take(&self, party: Party) -> impl Future<Output = Option<FairSlot>> + Send + use<> {
        self.take_many(party, 1)
    }

    /// Waits until it is the turn of work that takes this many slots; none once they are closed. It starts like work that takes one,
    /// so it need not wait until that many are free.
    pub(crate) fn take_many(
        &self,
        party: Party,
        weight: usize,
    ) -> impl Future<Output = Option<FairSlot>> + Send + use<> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut queue = lock(&self.0);
            if !queue.is_closed {
                queue.count += 1;
                let number = queue.count;
                queue.waiting.entry(party).or_default().push_back(Waiting { number, weight, sender });
            }
        }
        assign(&self.0);
        receiver.map(Result::ok)
    }

    /// Waits for a slot to run helm, until the work is stopped.
    pub(crate) async fn acquire(&self, party: Party, halt: &Halt) -> Result<FairSlot, Stop> {
        halt.stoppable(None, "waiting for helm", self.take(party)).await?.ok_or(Stop::Halted)
    }
}

impl Drop for FairSlot {
    fn drop(&mut self) {
        {
            let mut queue = lock(&self.queue);
            if let Some(running) = queue.running.get_mut(&self.party) {
                *running -= self.weight;
            }
            queue.running.retain(|_, running| *running > 0);
        }
        assign(&self.queue);
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives free slots to those whose turn it is.
fn assign(queue: &Arc<Mutex<Queue>>) {
    loop {
        let next = lock(queue).take_next();
        let Some((party, weight, sender)) = next else { return };
        // If the work was stopped in between, the slot is dropped, which assigns it again. The queue is not locked here.
        let _stopped = sender.send(FairSlot { queue: Arc::clone(queue), party, weight });
    }
}

impl Queue {
    fn new(slots: usize) -> Self {
        let (running, waiting, last) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { is_closed: false, slots, running, waiting, count: 0, given: 0, last }
    }

    /// Removes the work whose turn it is from the queue, and counts it as running.
    fn take_next(&mut self) -> Option<(Party, usize, oneshot::Sender<FairSlot>)> {
        self.waiting.retain(|_, waiting| {
            while waiting.front().is_some_and(|first| first.sender.is_closed()) {
                waiting.pop_front();
            }
            !waiting.is_empty()
        });
        let Self { running, waiting, last, .. } = self;
        last.retain(|namespace, _| has_any(running, namespace) || has_any(waiting, namespace));
        let party = self.turn()?;
        let next = self.waiting.get_mut(&party)?.pop_front()?;
        *self.running.entry(party.clone()).or_default() += next.weight;
        self.given += 1;
        self.last.insert(party.namespace.clone(), self.given);
        Some((party, next.weight, next.sender))
    }

    fn turn(&self) -> Option<Party> {
        let mut of_namespaces = BTreeMap::<&str, usize>::new();
        for (party, count) in &self.running {
            *of_namespaces.entry(&party.namespace).or_default() += count;
        }
        let free = self.slots.saturating_sub(of_namespaces.values().sum());
        let half = self.slots.div_ceil(2);
        let of_one_target = if half > 2 { half - 1 } else { half };
        let waiting = self.waiting.iter().filter_map(|(party, waiting)| {
            let namespace = of_namespaces.get(party.namespace.as_str()).copied().unwrap_or(0);
            let target = self.running.get(party).copied().unwrap_or(0);
            let last = self.last.get(&party.namespace).copied();
            let may = namespace < free && target < of_one_target;
            may.then_some((namespace, last, target, waiting.front()?.number, party))
        });
        waiting.min().map(|(.., party)| party.clone())
    }
}

/// Returns whether there is an entry of a namespace.
fn has_any<T>(parties: &BTreeMap<Party, T>, namespace: &str) -> bool {
    let first = Party { namespace: namespace.to_owned(), target: String::new() };
    parties.range(first..).next().is_some_and(|(party, _)| party.namespace == namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(name: &str) -> Party {
        let (namespace, target) = name.split_once('/').unwrap();
        Party { namespace: namespace.to_owned(), target: target.to_owned() }
    }

    /// Checks whose turn it is if some have a slot already and others wait in this order.
    fn check(slots: usize, running: &[&str], waiting: &[&str], expected: Option<&str>) {
        let mut queue = Queue::new(slots);
        for name in running {
            *queue.running.entry(party(name)).or_default() += 1;
        }
        let mut receivers = Vec::new();
        for (number, name) in (1..).zip(waiting) {
            let (sender, receiver) = oneshot::channel();
            queue.waiting.entry(party(name)).or_default().push_back(Waiting { number, weight: 1, sender });
            receivers.push(receiver);
        }
        let next = queue.take_next().map(|(party, ..)| party);
        assert_eq!(next, expected.map(party), "{slots} slots, running {running:?}, waiting {waiting:?}");
    }

    #[test]
    fn a_free_slot_goes_to_the_namespace_and_target_with_the_fewest() {
        check(4, &[], &[], None);
        check(4, &[], &["b/x", "a/x"], Some("b/x"));
        check(4, &["a/x", "b/x", "c/x", "d/x"], &["e/x"], None);
        check(4, &["a/x"], &["a/y", "b/x"], Some("b/x"));
        check(4, &["a/x", "b/x"], &["a/x", "a/y"], Some("a/y"));
        check(4, &["a/x", "b/x"], &["b/x", "a/x"], Some("b/x"));
    }

    #[test]
    fn a_namespace_leaves_half_of_the_slots_to_others_and_a_target_one_of_these() {
        check(4, &["a/x", "a/x"], &["a/x", "a/y"], None);
        check(4, &["a/x", "a/x"], &["a/y", "b/x"], Some("b/x"));
        check(4, &["a/x", "a/x", "b/x"], &["b/y", "c/x"], Some("c/x"));
        check(8, &["a/x", "a/x"], &["a/x"], Some("a/x"));
        check(8, &["a/x", "a/x", "a/x"], &["a/x"], None);
        check(8, &["a/x", "a/x", "a/x"], &["a/x", "a/y"], Some("a/y"));
        check(8, &["a/x", "a/x", "a/x", "a/y"], &["a/y", "b/x"], Some("b/x"));
        check(8, &["a/x", "a/x", "a/x", "a/y", "b/x"], &["b/x"], Some("b/x"));
        check(8, &["a/x", "a/x", "a/x", "a/y", "b/x", "b/x"], &["b/x"], None);
    }

    #[tokio::test]
    async fn namespaces_take_turns_however_much_work_some_have_queued_up() {
        let slots = FairSlots::new(4);
        let order = std::cell::RefCell::new(Vec::new());
        let work = |name: &'static str| {
            let slot = slots.take(party(name));
            let order = &order;
            async move {
                let _slot = slot.await;
                order.borrow_mut().push(name);
                tokio::task::yield_now().await;
            }
        };
        let queued = ["a/x", "b/x", "c/x", "d/x"].into_iter().flat_map(|name| [name; 20]);
        let mut all: Vec<_> = queued.map(work).collect();
        all.push(work("good/x"));
        futures::future::join_all(all).await;
        let order = order.into_inner();
        assert_eq!(order.len(), 81);
        let turn = order.iter().position(|name| *name == "good/x").unwrap();
        assert!(turn < 8, "{order:?}");
        let mut queue = lock(&slots.0);
        assert!(queue.take_next().is_none() && queue.last.is_empty());
    }

    #[tokio::test]
    async fn heavy_work_counts_as_several() {
        let slots = FairSlots::new(8);
        let take = |name: &str, weight| slots.take_many(party(name), weight).now_or_never().flatten();
        let first = take("a/x", 6);
        assert!(first.is_some());
        assert_eq!(slots.counts().used, 6);
        // Two are free, which is less than the namespace has.
        assert!(take("a/y", 1).is_none());
        // Other work starts even if it takes more than are left, because otherwise light work could keep it waiting forever.
        let second = take("b/x", 20);
        assert!(second.is_some() && take("c/x", 1).is_none());
        drop(second);
        assert!(take("c/x", 1).is_some());
        drop(first);
        assert_eq!(slots.counts().used, 0);
    }

    #[tokio::test]
    async fn closed_slots_start_nothing_that_waits() {
        let (slots, halt) = (FairSlots::new(2), Halt::default());
        let first = slots.acquire(party("a/x"), &halt).await;
        assert_eq!(slots.counts(), SlotCounts { slots: 2, used: 1, waiting: 0 });
        let wait = slots.acquire(party("a/x"), &halt);
        let close = async {
            assert_eq!(slots.counts(), SlotCounts { slots: 2, used: 1, waiting: 1 });
            slots.close();
        };
        let (second, ()) = tokio::join!(wait, close);
        assert!(first.is_ok() && matches!(second, Err(Stop::Halted)));
        drop(first);
        assert!(matches!(slots.acquire(party("a/x"), &halt).await, Err(Stop::Halted)));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_stops_waiting_gets_no_slot() {
        let (slots, halt, stopped) = (FairSlots::new(2), Halt::default(), Halt::default());
        let first = slots.acquire(party("a/x"), &halt).await;
        // Many, to show that they are not dropped one inside the other.
        let waits = (0..10_000).map(|_| async { slots.acquire(party("a/x"), &stopped).await.is_err() });
        let stop = async { stopped.token.cancel() };
        let (ended, ()) = tokio::join!(futures::future::join_all(waits), stop);
        assert!(ended.into_iter().all(|stopped| stopped));
        drop(first);
        assert!(slots.acquire(party("a/x"), &halt).await.is_ok());
    }
}
