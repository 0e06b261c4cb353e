//! Every scenario on the sandbox, disturbed at the requests of every call that changes something: killed before a request
//! and after it, refused, unanswered, cut off. What is there afterwards must be what is there after a quiet run.
//!
//! The program is killed at every request of every call, and every write is disturbed in every way. Of the other
//! disturbances of reads, which all come to a request that is sent again, one in four is played. Calls of hundreds of
//! requests, which do the same again and again, are disturbed at some of them: the same in every run, so that a change is
//! judged by what it changes. `BILLHOOK_SEED` draws others, and `BILLHOOK_ALL=1` plays all.

mod common;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use billhook_testkit::scenario::{
    Scenario,
    disturb::{Disturbance, Quiet},
};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(std::thread::available_parallelism().map_or(2, usize::from));
    let sample = Arc::new(Sample::new());
    let trials = common::scenarios().into_iter().filter_map(|(name, file)| trial(name, &file, &sample));
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    common::say(&format!("{} disturbed runs; BILLHOOK_SEED={}\n", sample.runs.load(Ordering::Relaxed), sample.seed));
    conclusion.exit();
}

/// A scenario with more disturbances than this is one of hundreds of requests.
const MOST_RUNS: usize = 400;

/// How many of those are played.
const SOME_RUNS: usize = 12;

/// Which disturbances are played.
struct Sample {
    seed: u64,
    all: bool,
    runs: AtomicUsize,
}

impl Sample {
    fn new() -> Self {
        let seed = std::env::var("BILLHOOK_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(1);
        Self { seed, all: std::env::var_os("BILLHOOK_ALL").is_some(), runs: AtomicUsize::new(0) }
    }

    /// Those of a scenario's disturbances that are played.
    fn of(&self, name: &str, mut all: Vec<Disturbance>) -> Vec<Disturbance> {
        if self.all {
            return all;
        }
        let drawn = |disturbance: &Disturbance| {
            let mut hasher = DefaultHasher::new();
            (self.seed, name, disturbance.to_string()).hash(&mut hasher);
            hasher.finish()
        };
        let always = |disturbance: &Disturbance| disturbance.trouble.crashes() || disturbance.request.verb.writes();
        all.retain(|disturbance| always(disturbance) || drawn(disturbance).is_multiple_of(4));
        if all.len() > MOST_RUNS {
            all.sort_by_key(drawn);
            all.truncate(SOME_RUNS);
        }
        all
    }
}

/// A scenario that is disturbed; none where no call is made: `controller.rs` disturbs the controller.
fn trial(name: String, file: &Path, sample: &Arc<Sample>) -> Option<Trial> {
    let scenario = Scenario::load(file);
    if scenario.as_ref().is_ok_and(Scenario::deploys_items) {
        return None;
    }
    let unplayed = scenario.as_ref().ok().and_then(|scenario| {
        let missing = scenario.missing_fixtures().into_iter().next().map(|missing| format!("{missing} is not there"));
        // They would take their real time, again and again.
        missing.or_else(|| scenario.runs_programs().then(|| "it runs programs of others".to_owned()))
    });
    let sample = Arc::clone(sample);
    let trial = Trial::test(name.clone(), move || disturb(&name, &scenario?, &sample));
    Some(match unplayed {
        Some(why) => trial.with_kind(format!("ignored: {why}")).with_ignored_flag(true),
        None => trial,
    })
}

fn disturb(name: &str, scenario: &Scenario, sample: &Sample) -> Result<(), Failed> {
    let quiet = Quiet::play(scenario).map_err(|error| common::explain(&error))?;
    let disturbances = sample.of(name, quiet.disturbances());
    let problems = disturbances.into_iter().filter_map(|disturbance| {
        sample.runs.fetch_add(1, Ordering::Relaxed);
        let error = quiet.disturbed(scenario, &disturbance).err()?;
        Some(format!("{disturbance}: {}", common::explain(&error)))
    });
    let problems: Vec<String> = problems.collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("{} disturbed runs:\n{}", problems.len(), problems.join("\n")).into())
}
