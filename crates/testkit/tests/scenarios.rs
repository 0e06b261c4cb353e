//! Every file under `scenarios/` is a test, played twice: on the sandbox and against a real control plane, with the same
//! expectations.

mod common;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use billhook_testkit::scenario::{ControlPlanes, Lab, Scenario, play};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::time::Instant;

fn main() {
    let mut arguments = Arguments::from_args();
    // Each scenario waits most of its time; more at once than this only slows the one control plane they share.
    arguments.test_threads.get_or_insert(4);
    let files = common::scenarios();
    let labs = [("sandbox", Arc::new(Lab::Sandbox)), ("control-plane", Arc::new(Lab::Real(ControlPlanes::default())))];
    let results = Results::default();
    let mut trials = Vec::new();
    for (column, lab) in &labs {
        trials.extend(files.iter().filter_map(|(name, file)| trial(column, name, file, lab, &results)));
        trials.extend(WRONG.iter().map(|(name, steps, why)| {
            let lab = Arc::clone(lab);
            Trial::test(format!("{column}/wrong/{name}"), move || check_wrong(name, steps, why, &lab))
        }));
    }
    let stems: Vec<_> = files.iter().filter_map(|(_, file)| file.file_stem()?.to_str().map(str::to_owned)).collect();
    trials.push(Trial::test("names", move || check_names(&stems)));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Lab::Real(planes) = &*labs[1].1 {
        planes.close();
    }
    common::say(&results.table());
    conclusion.exit();
}

/// How a scenario ended in each column.
#[derive(Clone, Default)]
struct Results(Arc<Mutex<BTreeMap<String, Row>>>);

/// By column: whether it ended well, and how long it took.
type Row = BTreeMap<String, (bool, Duration)>;

impl Results {
    fn add(&self, name: String, column: String, well: bool, took: Duration) {
        let mut results = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        results.entry(name).or_default().insert(column, (well, took));
    }

    /// Both columns side by side.
    fn table(&self) -> String {
        let results = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if results.is_empty() {
            return String::new();
        }
        let mut text = format!("{:<52} {:>16} {:>16}\n", "scenario", "sandbox", "control plane");
        for (name, columns) in results.iter() {
            let shown = |column: &str| match columns.get(column) {
                None => "-".to_owned(),
                Some((well, took)) => format!("{} {:.2} s", if *well { "ok" } else { "FAILED" }, took.as_secs_f64()),
            };
            text += &format!("{name:<52} {:>16} {:>16}\n", shown("sandbox"), shown("control-plane"));
        }
        text
    }
}

/// What every wrong scenario begins with. Both objects of the first group take their time.
const GIVEN: &str = "\
description: A scenario that must fail.
files:
  release.yaml: |
    {apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [$S.example/slow]}}
    ---
    {apiVersion: v1, kind: ConfigMap, metadata: {name: b, finalizers: [$S.example/slow]}}
    ---
    {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: $S}, rules: []}
controllers:
- removeFinalizer: {kind: ConfigMap, finalizer: $S.example/slow, after: 200ms}
steps:
- billhook: apply web -f release.yaml
";

/// Scenarios that must not pass, and why they do not: a test that cannot fail shows nothing.
#[rustfmt::skip]
const WRONG: &[(&str, &str, &str)] = &[
    ("other-order", "
- billhook: delete web
  expect: {gone: [[ClusterRole.rbac.authorization.k8s.io/$S], [ConfigMap/$S/a, ConfigMap/$S/b]]}", "was touched"),
    ("one-by-one", "
- billhook: delete web
  expect: {gone: [[ConfigMap/$S/a], [ConfigMap/$S/b]]}", "was touched"),
    ("one-more-went", "
- billhook: delete web
  expect: {gone: [[ConfigMap/$S/a]]}", "ConfigMap/$S/b was deleted and should have stayed"),
    ("one-less-went", "
- billhook: delete web
  expect: {gone: [[ConfigMap/$S/a, ConfigMap/$S/b, ConfigMap/$S/c]]}", "ConfigMap/$S/c should have gone"),
    ("exit-code", "
- billhook: delete web
  expect: {exit: 1, absent: [ConfigMap/$S/a]}", "exit code 0 instead of 1"),
    ("output", "
- billhook: delete web
  expect: {stdout: [4 objects gone]}", "standard output does not hold"),
    ("silence", "
- billhook: delete web
  expect: {silent: [deleted], absent: [ConfigMap/$S/a]}", "\"deleted\" was printed"),
    ("stays", "
- billhook: delete web
  expect: {stays: [ConfigMap/$S/a]}", "should be there and is not"),
    ("absent", "
- billhook: plan delete web
  expect: {absent: [ConfigMap/$S/a]}", "should not be there and is"),
    ("content", "
- billhook: plan delete web
  expect: {holds: {ConfigMap/$S/a: {data: {a: b}}}}", "should hold"),
    ("requests", "
- billhook: delete web
  expect: {requestsAtMost: 5, absent: [ConfigMap/$S/a]}", "at most 5 were allowed"),
    ("too-fast", "
- billhook: delete web
  expect: {atLeast: 30s, absent: [ConfigMap/$S/a]}", "less than 30s"),
    ("too-slow", "
- billhook: delete web
  expect: {atMost: 10ms, absent: [ConfigMap/$S/a]}", "longer than 10ms"),
    ("never-meanwhile", "
- billhook: delete web
  during: [{when: pigs fly, interrupt: true}]
  expect: {absent: [ConfigMap/$S/a]}", "it ended before all that should happen meanwhile"),
    ("made-in-other-order", "
- billhook: apply more -f -
  stdin: '{apiVersion: v1, kind: List, items: [
    {apiVersion: v1, kind: ConfigMap, metadata: {name: c}},
    {apiVersion: v1, kind: Namespace, metadata: {name: $S-c}}]}'
  expect: {appeared: [[ConfigMap/$S/c], [Namespace/$S-c]]}", "was made (at"),
    ("misspelt-field", "
- billhook: delete web
  expect: {gon: []}", "unknown field"),
    ("misspelt-absence", "
- billhook: delete web
  expect: {absent: [ConfigMap/$S/aa]}", "nothing makes it"),
    ("no-expectation", "
- billhook: delete web", "the last step expects nothing"),
    ("hangs", "
- patch: {ConfigMap/$S/a: {metadata: {finalizers: [$S.example/nobody]}}}
  billhook: delete web
  within: 1s
  expect: {absent: [ConfigMap/$S/a]}", "it had not ended after 1s"),
];

fn check_wrong(name: &str, steps: &str, why: &str, lab: &Lab) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join(format!("wrong-{name}.yaml"));
    std::fs::write(&file, format!("{GIVEN}{}", steps.trim_start_matches('\n')))?;
    let played = Scenario::load(&file).and_then(|scenario| play(&scenario, lab));
    let why = why.replace("$S", &format!("s-wrong-{name}"));
    match played {
        Ok(()) => Err("it passed".into()),
        Err(error) if format!("{error:#}").contains(&why) => Ok(()),
        Err(error) => Err(format!("it failed for another reason than {why:?}: {}", common::explain(&error)).into()),
    }
}

/// A scenario in a column; none where only the other one can play it.
fn trial(column: &str, name: &str, file: &Path, lab: &Arc<Lab>, results: &Results) -> Option<Trial> {
    let scenario = Scenario::load(file);
    if matches!(&**lab, Lab::Real(_)) && scenario.as_ref().is_ok_and(Scenario::needs_sandbox) {
        return None;
    }
    let missing = scenario.as_ref().map(Scenario::missing_fixtures).unwrap_or_default();
    let (lab, results, row) = (Arc::clone(lab), results.clone(), (name.to_owned(), column.to_owned()));
    let trial = Trial::test(format!("{column}/{name}"), move || {
        let begun = Instant::now();
        let played = scenario.and_then(|scenario| play(&scenario, &lab));
        results.add(row.0, row.1, played.is_ok(), begun.elapsed());
        played.map_err(|error| Failed::from(common::explain(&error)))
    });
    Some(match missing.first() {
        // Not green: nothing was shown.
        Some(missing) => trial.with_kind(format!("ignored: {missing} is not there")).with_ignored_flag(true),
        None => trial,
    })
}

/// Scenarios tell their objects by their names: none may be found in another one.
fn check_names(stems: &[String]) -> Result<(), Failed> {
    for one in stems {
        let sound = one.len() <= 40 && one.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'));
        if !sound {
            return Err(format!("{one}: a short name of a-z, 0-9 and - is needed").into());
        }
        let same = stems.iter().filter(|other| format!("s-{other}").contains(&format!("s-{one}"))).count();
        if same > 1 {
            return Err(format!("{one} is part of the name of another scenario").into());
        }
    }
    Ok(())
}
