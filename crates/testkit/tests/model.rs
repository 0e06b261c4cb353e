//! Plays random objects, owners, finalizers, policies and faults. A small oracle checks what must never happen: it sees every
//! request before it takes effect, and every printed line.
//!
//! A failure prints its shortest history. The histories are the same in every run, so that runs can be compared.
//! `BILLHOOK_SEED` plays other histories, and `PROPTEST_CASES` more of them.

#![expect(clippy::panic, clippy::expect_used, reason = "helpers of tests")]

#[path = "model/locks.rs"]
mod locks;
#[path = "model/oracle.rs"]
mod oracle;
#[path = "model/world.rs"]
mod world;

use proptest::{
    prelude::*,
    sample::subsequence,
    test_runner::{Config, FileFailurePersistence, RngSeed},
};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use world::{Disturbance, Finalizer, Group, KINDS, SLOTS, System};

/// A step of a history.
#[derive(Clone, Debug)]
pub enum Transition {
    /// Deploys a release with these objects.
    Apply(Vec<(usize, Finalizer)>, Vec<Group>, Option<Disturbance>),
    /// Another client creates an object, which may be owned by another one.
    Foreign(usize, Finalizer, Option<usize>),
    /// Another client deletes an object.
    Remove(usize),
    /// Another client removes the finalizers that no controller removes.
    Free,
    /// Deletes the release.
    Delete(Option<Disturbance>),
}

/// The state for the generator, which has no expectations.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    ours: Vec<usize>,
    foreign: Vec<usize>,
}

fn finalizer() -> impl Strategy<Value = Finalizer> {
    prop_oneof![4 => Just(Finalizer::None), 3 => Just(Finalizer::Slow), 2 => Just(Finalizer::Stuck)]
}

fn groups() -> impl Strategy<Value = Vec<Group>> {
    let kinds = || 0..KINDS.len();
    let all = || (kinds(), prop::option::of(0..2_usize), any::<bool>());
    let custom = (kinds(), any::<bool>()).prop_map(|(kind, force)| Group::Kind { kind, force });
    let all = all().prop_map(|(kind, namespace, force)| Group::All { kind, namespace, force });
    let special = prop::collection::vec(prop_oneof![2 => custom, 1 => all], 0..3);
    let predefined = (any::<bool>(), any::<bool>())
        .prop_map(|(one, other)| vec![Group::Namespaced { force: one }, Group::ClusterScoped { force: other }]);
    let predefined = predefined.prop_flat_map(|groups| subsequence(groups, 1..=2)).prop_shuffle();
    (special, predefined).prop_map(|(special, predefined)| [special, predefined].concat())
}

fn disturbance() -> impl Strategy<Value = Option<Disturbance>> {
    let kinds = prop_oneof![
        Just(Disturbance::CRASH_BEFORE),
        Just(Disturbance::CRASH_AFTER),
        Just(Disturbance::ERROR),
        Just(Disturbance::TOO_MANY),
        Just(Disturbance::LOST),
        Just(Disturbance::EXPIRED),
        Just(Disturbance::CUT),
        Just(Disturbance::AWAY),
    ];
    // A command opens only few watches, and few of its requests can expire.
    let few = |what| matches!(what, Disturbance::CUT | Disturbance::EXPIRED);
    let at = move |what| if few(what) { 1..5_usize } else { 1..40_usize };
    prop::option::of(kinds.prop_flat_map(move |what| at(what).prop_map(move |at| Disturbance { what, at })))
}

impl ReferenceStateMachine for Reference {
    type State = Self;
    type Transition = Transition;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Transition> {
        let free: Vec<usize> = (0..SLOTS).filter(|slot| !state.foreign.contains(slot)).collect();
        let vacant: Vec<usize> = free.iter().copied().filter(|slot| !state.ours.contains(slot)).collect();
        let objects = subsequence(free.clone(), 0..=free.len().min(8))
            .prop_flat_map(|slots| slots.into_iter().map(|slot| (Just(slot), finalizer())).collect::<Vec<_>>());
        let apply = (objects, groups(), disturbance())
            .prop_map(|(objects, policy, fault)| Transition::Apply(objects, policy, fault));
        let mut all = vec![
            (4, apply.boxed()),
            (5, disturbance().prop_map(Transition::Delete).boxed()),
            (2, Just(Transition::Free).boxed()),
            (1, (0..SLOTS).prop_map(Transition::Remove).boxed()),
        ];
        if !vacant.is_empty() {
            let owner = prop::option::of(0..SLOTS);
            let foreign = (prop::sample::select(vacant), finalizer(), owner);
            all.push((
                4,
                foreign.prop_map(|(slot, finalizer, owner)| Transition::Foreign(slot, finalizer, owner)).boxed(),
            ));
        }
        proptest::strategy::Union::new_weighted(all).boxed()
    }

    fn apply(mut state: Self, transition: &Transition) -> Self {
        match transition {
            Transition::Apply(objects, ..) => state.ours.extend(objects.iter().map(|(slot, _)| *slot)),
            Transition::Foreign(slot, ..) => state.foreign.push(*slot),
            _ => {}
        }
        state
    }

    fn preconditions(state: &Self, transition: &Transition) -> bool {
        match transition {
            Transition::Apply(objects, ..) => objects.iter().all(|(slot, _)| !state.foreign.contains(slot)),
            // An owner is in the same namespace, or cluster-scoped.
            Transition::Foreign(slot, _, owner) => {
                !state.foreign.contains(slot)
                    && !state.ours.contains(slot)
                    && owner.is_none_or(|owner| owner != *slot && world::may_own(owner, *slot))
            }
            _ => true,
        }
    }
}

/// The program with a sandbox.
struct Model;

impl StateMachineTest for Model {
    type SystemUnderTest = System;
    type Reference = Reference;

    fn init_test(_: &Reference) -> System {
        System::new()
    }

    fn apply(mut system: System, _: &Reference, transition: Transition) -> System {
        match transition {
            Transition::Apply(objects, policy, fault) => system.apply(&objects, policy, fault),
            Transition::Foreign(slot, finalizer, owner) => system.foreign(slot, finalizer, owner),
            Transition::Remove(slot) => system.remove(slot),
            Transition::Free => system.free(),
            Transition::Delete(fault) => drop(system.delete(fault)),
        }
        system
    }

    /// Checks that the same command succeeds once all obstacles are removed, and that no object of the release is forgotten.
    fn teardown(mut system: System, _: Reference) {
        system.free();
        let exit = system.delete(None);
        system.check_end(exit);
    }
}

fn seed() -> u64 {
    std::env::var("BILLHOOK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

prop_state_machine! {
    #![proptest_config(Config {
        rng_seed: RngSeed::Fixed(seed()),
        max_shrink_iters: 2_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..Config::default()
    })]
    #[test]
    fn no_history_violates_the_oracle(sequential 1..12 => Model);
}

proptest! {
    #![proptest_config(Config {
        rng_seed: RngSeed::Fixed(seed()),
        cases: 200,
        max_shrink_iters: 500,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..Config::default()
    })]
    #[test]
    fn operations_on_one_release_exclude_each_other(actors in locks::actors(), turns in locks::turns()) {
        locks::play(&actors, &turns);
    }

    #[test]
    fn passes_over_one_payload_exclude_each_other(actors in locks::payloads(), turns in locks::turns()) {
        locks::play(&actors, &turns);
    }
}
