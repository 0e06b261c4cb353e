//! A rehearsal tells what the deletion does: on random worlds, both have the same order, leave the same objects for the same root
//! causes, and delete the same objects of others.
//!
//! The worlds are the same in every run. `BILLHOOK_SEED` plays others, and `PROPTEST_CASES` more of them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "rehearse/stage.rs"]
mod stage;
#[path = "rehearse/world.rs"]
mod world;

use std::{cell::RefCell, collections::BTreeMap, sync::Arc, thread, time::Duration};

use billhook_sandbox::{ControllerSet, Options, Sandbox};
use billhook_testkit::control_plane::{ControlPlane, Options as PlaneOptions};
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, RngSeed, TestCaseError, TestRunner},
};

use stage::{Outcome, Plane, play};
use world::{World, worlds};

/// How many worlds are played on sandboxes, and on a control plane.
const SANDBOXES: u32 = 500;
const CONTROL_PLANE: usize = 20;

fn seed() -> u64 {
    std::env::var("BILLHOOK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

fn config(cases: u32) -> Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    Config {
        cases,
        rng_seed: RngSeed::Fixed(seed()),
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    }
}

/// How the worlds ended, to see that they differ.
#[derive(Debug, Default)]
struct Tally {
    worlds: usize,
    done: usize,
    causes: BTreeMap<String, usize>,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        self.worlds += 1;
        self.done += usize::from(outcome.is_done());
        for cause in outcome.causes() {
            *self.causes.entry(cause.to_owned()).or_default() += 1;
        }
    }

    /// Checks that enough worlds ended well, and enough did not, for several reasons.
    fn check(&self, causes: usize) {
        drop(std::io::Write::write_all(&mut std::io::stdout(), format!("{self:?}\n").as_bytes()));
        assert!(self.done * 5 > self.worlds && self.done * 5 < self.worlds * 4, "{self:?}");
        assert!(self.causes.len() >= causes, "{self:?}");
    }
}

#[test]
fn rehearsals_equal_deletions_on_sandboxes() {
    let tally = RefCell::new(Tally::default());
    let mut runner = TestRunner::new(config(SANDBOXES));
    let result = runner.run(&worlds(true), |world| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (rehearsed, real) = runtime.block_on(async {
            let answers = world.webhook.as_ref().is_some_and(|hook| hook.backend.is_some());
            let controllers = if world.unmanaged { ControllerSet::none() } else { ControllerSet::all() };
            let options = Options::default().rbac(true).controllers(controllers).assume_backends(answers);
            let sandbox = Sandbox::start(options);
            play(Plane::Sandbox(sandbox), &world, "w", Duration::from_secs(100)).await
        });
        prop_assert_eq!(&rehearsed, &real);
        tally.borrow_mut().add(&real);
        Ok::<_, TestCaseError>(())
    });
    if let Err(error) = result {
        panic!("{error}\nBILLHOOK_SEED={}", seed());
    }
    tally.borrow().check(4);
}

#[test]
fn rehearsals_equal_deletions_on_a_control_plane() {
    let plane = Arc::new(ControlPlane::start(&PlaneOptions::default()).unwrap());
    let mut runner = TestRunner::new(config(1));
    let worlds: Vec<World> =
        (0..CONTROL_PLANE).map(|_| worlds(false).new_tree(&mut runner).unwrap().current()).collect();
    let threads = worlds.into_iter().enumerate().map(|(at, world)| {
        let plane = Arc::clone(&plane);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let slug = format!("w{at}");
            let played = runtime.block_on(play(Plane::Real(plane), &world, &slug, Duration::from_secs(45)));
            (at, played, world)
        })
    });
    // All start before the first one is waited for.
    let threads: Vec<_> = threads.collect();
    let (mut wrong, mut tally) = (Vec::new(), Tally::default());
    for thread in threads {
        let (at, (rehearsed, real), world) = thread.join().unwrap();
        tally.add(&real);
        if rehearsed != real {
            wrong.push(format!("world {at}: {world:#?}\nrehearsed: {rehearsed:#?}\nreal: {real:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}\nBILLHOOK_SEED={}", wrong.join("\n\n"), seed());
    tally.check(2);
}
