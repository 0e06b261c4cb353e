//! Plays every scenario on the sandbox with disturbances of the commands that change objects: the program is killed before or
//! after a request, or a request is rejected, not answered or interrupted. The final objects must be the same as after an
//! undisturbed run.
//!
//! The program is killed at every request of every command, and every write is disturbed in every way. Of the other
//! disturbances of reads, which all lead to a retry, one in four is played. Commands with hundreds of similar requests are
//! only disturbed at some of them. The selection is the same in every run, so that runs can be compared. `BILLHOOK_SEED`
//! selects others, and `BILLHOOK_ALL=1` plays all.

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
    common::print(&format!("{} disturbed runs; BILLHOOK_SEED={}\n", sample.runs.load(Ordering::Relaxed), sample.seed));
    conclusion.exit();
}

/// The number of disturbances above which only some of a scenario are played.
const MOST_RUNS: usize = 400;

/// The number of those that are played.
const SOME_RUNS: usize = 12;

/// The selection of disturbances.
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

    /// Selects the disturbances of a scenario to play.
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

/// Returns the trial of a scenario, or `None` if it has no command: `controller.rs` disturbs the controller.
fn trial(name: String, file: &Path, sample: &Arc<Sample>) -> Option<Trial> {
    let scenario = Scenario::load(file);
    if scenario.as_ref().is_ok_and(Scenario::deploys_items) {
        return None;
    }
    let unplayed = scenario.as_ref().ok().and_then(|scenario| {
        // External programs would need real time for each disturbance.
        scenario.missing_fixture().or_else(|| scenario.runs_programs().then(|| "it runs external programs".to_owned()))
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
