//! Decides which nodes of a plan start when: the synchronous core of a run.
//!
//! Each end of a node costs time for the nodes that directly follow it only, so a plan of thousands of nodes is scheduled in
//! linear time.

use std::{cmp::Reverse, collections::BinaryHeap, num::NonZeroUsize};

/// What happens during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The run starts.
    Start,
    /// A node is done: everything was verified.
    Done(usize),
    /// A node ended otherwise.
    Failed(usize),
    /// The user has stopped the run, or its time limit is reached.
    Stop,
}

/// The nodes of a plan that wait, are ready to start, or run.
pub(crate) struct Schedule {
    /// How many nodes must be done before each node.
    missing: Vec<usize>,
    /// The nodes that directly follow each node.
    followers: Vec<Vec<usize>>,
    /// The nodes that may start, in the order of the plan.
    ready: BinaryHeap<Reverse<usize>>,
    running: usize,
    workers: usize,
    continue_on_failure: bool,
    stopped: bool,
}

impl Schedule {
    /// Returns the schedule of nodes that each come after the nodes of these indexes. Up to `workers` of them run at a time;
    /// any number if it is none. After a failure, no node starts, or only those that do not depend on it.
    pub fn new<'a>(
        after: impl ExactSizeIterator<Item = &'a [usize]>,
        workers: Option<NonZeroUsize>,
        continue_on_failure: bool,
    ) -> Self {
        let mut followers = vec![Vec::new(); after.len()];
        let mut missing = Vec::with_capacity(after.len());
        for (node, after) in after.enumerate() {
            missing.push(after.len());
            for before in after {
                if let Some(followers) = followers.get_mut(*before) {
                    followers.push(node);
                }
            }
        }
        let workers = workers.map_or(usize::MAX, NonZeroUsize::get);
        let (ready, running, stopped) = (BinaryHeap::new(), 0, false);
        Self { missing, followers, ready, running, workers, continue_on_failure, stopped }
    }

    /// Returns the nodes to start, in the order of the plan.
    pub fn on(&mut self, input: Input) -> Vec<usize> {
        match input {
            Input::Start => {
                let free = self.missing.iter().enumerate().filter(|(_, missing)| **missing == 0);
                self.ready.extend(free.map(|(node, _)| Reverse(node)));
            }
            Input::Done(node) => {
                self.running -= 1;
                for follower in std::mem::take(&mut self.followers[node]) {
                    self.missing[follower] -= 1;
                    if self.missing[follower] == 0 {
                        self.ready.push(Reverse(follower));
                    }
                }
            }
            Input::Failed(_) => {
                self.running -= 1;
                self.stopped |= !self.continue_on_failure;
            }
            Input::Stop => self.stopped = true,
        }
        let mut start = Vec::new();
        while !self.stopped
            && self.running < self.workers
            && let Some(Reverse(node)) = self.ready.pop()
        {
            self.running += 1;
            start.push(node);
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{Input::*, *};

    /// Checks which nodes start after each input.
    #[track_caller]
    fn check(after: &[&[usize]], workers: usize, continues: bool, expected: &[(Input, &[usize])]) {
        let mut schedule = Schedule::new(after.iter().copied(), NonZeroUsize::new(workers), continues);
        for (at, (input, starts)) in expected.iter().enumerate() {
            assert_eq!(schedule.on(*input), *starts, "input {at}: {input:?}");
        }
    }

    const CHAIN: [&[usize]; 3] = [&[], &[0], &[1]];
    /// Two branches that join: 0 → 2, 1 → 3, then 4 after both.
    const BRANCHES: [&[usize]; 5] = [&[], &[], &[0], &[1], &[2, 3]];

    #[test]
    fn a_node_starts_when_all_before_it_are_done() {
        check(&CHAIN, 0, false, &[(Start, &[0]), (Done(0), &[1]), (Done(1), &[2]), (Done(2), &[])]);
        let ends: [(Input, &[usize]); 5] =
            [(Start, &[0, 1]), (Done(1), &[3]), (Done(3), &[]), (Done(0), &[2]), (Done(2), &[4])];
        check(&BRANCHES, 0, true, &ends);
        check(&[], 0, true, &[(Start, &[])]);
    }

    #[test]
    fn so_many_nodes_run_at_a_time() {
        let free: [&[usize]; 4] = [&[]; 4];
        check(&free, 2, true, &[(Start, &[0, 1]), (Done(1), &[2]), (Failed(0), &[3]), (Done(2), &[]), (Done(3), &[])]);
        // A node that becomes ready goes before a later one that waits for a worker.
        let wide: [&[usize]; 4] = [&[], &[0], &[], &[]];
        check(&wide, 1, true, &[(Start, &[0]), (Done(0), &[1]), (Done(1), &[2]), (Done(2), &[3])]);
    }

    #[test]
    fn a_failure_stops_its_dependents_only() {
        check(&BRANCHES, 0, true, &[(Start, &[0, 1]), (Failed(0), &[]), (Done(1), &[3]), (Done(3), &[])]);
        check(&BRANCHES, 1, true, &[(Start, &[0]), (Failed(0), &[1]), (Done(1), &[3]), (Done(3), &[])]);
    }

    #[test]
    fn without_independent_branches_a_failure_stops_the_run() {
        check(&BRANCHES, 0, false, &[(Start, &[0, 1]), (Failed(0), &[]), (Done(1), &[])]);
        check(&CHAIN, 0, false, &[(Start, &[0]), (Failed(0), &[])]);
    }

    #[test]
    fn two_branches_may_fail_at_once() {
        check(&BRANCHES, 0, true, &[(Start, &[0, 1]), (Failed(1), &[]), (Failed(0), &[])]);
    }

    #[test]
    fn nothing_starts_after_a_stop() {
        check(&BRANCHES, 0, true, &[(Start, &[0, 1]), (Stop, &[]), (Done(0), &[]), (Failed(1), &[])]);
    }

    #[test]
    fn thousands_of_nodes_are_scheduled_in_linear_time() {
        let after: Vec<Vec<usize>> = (0..200_000_usize).map(|node| node.checked_sub(1).into_iter().collect()).collect();
        let mut schedule = Schedule::new(after.iter().map(Vec::as_slice), None, true);
        let mut next = schedule.on(Start);
        let mut ended = 0;
        while let [node] = next[..] {
            ended += 1;
            next = schedule.on(Done(node));
        }
        assert_eq!(ended, after.len());
    }
    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever ends in which order, each node starts once, after all before it are done, and never more than allowed at a
        /// time; in the end all have started but those that depend on a failure.
        #[test]
        fn all_nodes_start_that_do_not_depend_on_a_failure(
            after in proptest::collection::vec(proptest::collection::vec(0..15_usize, 0..4), 1..15),
            failing in proptest::collection::vec(0..4_u8, 15),
            workers in 0..4_usize,
            order in proptest::collection::vec(any::<usize>(), 15),
        ) {
            let earlier = |(node, after): (usize, &Vec<usize>)| after.iter().copied().filter(|at| *at < node).collect();
            let after: Vec<Vec<usize>> = after.iter().enumerate().map(earlier).collect();
            let mut schedule = Schedule::new(after.iter().map(Vec::as_slice), NonZeroUsize::new(workers), true);
            let (mut started, mut done) = (BTreeSet::new(), BTreeSet::new());
            let mut running = Vec::new();
            let mut starting = schedule.on(Start);
            for next in order {
                for node in starting {
                    prop_assert!(started.insert(node) && after[node].iter().all(|before| done.contains(before)));
                    running.push(node);
                }
                prop_assert!(workers == 0 || running.len() <= workers);
                if running.is_empty() {
                    starting = Vec::new();
                    continue;
                }
                let node = running.swap_remove(next % running.len());
                let fails = failing[node] == 0;
                if !fails {
                    done.insert(node);
                }
                starting = schedule.on(if fails { Failed(node) } else { Done(node) });
            }
            let mut reached = BTreeSet::new();
            for (node, after) in after.iter().enumerate() {
                if after.iter().all(|before| reached.contains(before) && failing[*before] != 0) {
                    reached.insert(node);
                }
            }
            prop_assert_eq!(started, reached);
        }
    }
}
