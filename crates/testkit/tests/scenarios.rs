//! Plays every file under `scenarios/` on the sandbox and on a real control plane, with the same expectations. Scenarios with a
//! policy are also played as DeployItems on both: the controller must have the same effect on objects as the program.

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
    // Scenarios mostly wait; more of them at once would only slow down the shared control plane.
    arguments.test_threads.get_or_insert(8);
    let mut files = common::scenarios();
    // First those that wait for minutes, and all columns of a file together: what waits and what computes is mixed.
    files.sort_by_cached_key(|(_, file)| !Scenario::load(file).is_ok_and(|scenario| scenario.stops_controllers()));
    let real = || Arc::new(Lab::Real(ControlPlanes::default()));
    // A scenario has the same names in each column, so the columns cannot share a control plane.
    let (sandbox, control_plane, of_items) = (Arc::new(Lab::Sandbox), real(), real());
    let results = Results::default();
    let mut trials = Vec::new();
    let commands = [("sandbox", &sandbox), ("control-plane", &control_plane)];
    let items = [("deployitem", &sandbox), ("deployitem-real", &of_items)];
    for (name, file) in &files {
        trials.extend(commands.iter().filter_map(|(column, lab)| {
            let scenario = Scenario::load(file).map_err(|error| common::explain(&error));
            trial(column, name, scenario, lab, &results)
        }));
        trials.extend(items.iter().filter_map(|(column, lab)| with_items(column, name, file, lab, &results)));
    }
    for (column, lab) in commands {
        trials.extend(WRONG.iter().map(|wrong| wrong_trial(column, GIVEN, wrong, lab)));
    }
    trials.extend(WRONG_ITEMS.iter().map(|wrong| wrong_trial("sandbox", GIVEN_ITEM, wrong, &sandbox)));
    let stems: Vec<_> = files.iter().filter_map(|(_, file)| file.file_stem()?.to_str().map(str::to_owned)).collect();
    trials.push(Trial::test("names", move || check_names(&stems)));
    let conclusion = libtest_mimic::run(&arguments, trials);
    for lab in [&control_plane, &of_items] {
        if let Lab::Real(planes) = &**lab {
            planes.close();
        }
    }
    common::print(&results.table());
    conclusion.exit();
}

/// The columns of the table.
const COLUMNS: [&str; 4] = ["sandbox", "control-plane", "deployitem", "deployitem-real"];

/// The results of scenarios.
#[derive(Clone, Default)]
struct Results {
    rows: Arc<Mutex<BTreeMap<String, Row>>>,
    /// The reasons why scenarios have no equivalent for DeployItems.
    reasons: Arc<Mutex<BTreeMap<String, String>>>,
}

/// Whether a scenario passed, and its duration, by column.
type Row = BTreeMap<String, (bool, Duration)>;

impl Results {
    fn add(&self, name: String, column: String, well: bool, took: Duration) {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.entry(name).or_default().insert(column, (well, took));
    }

    /// Formats the table of all columns, and the scenarios without equivalent for DeployItems.
    fn table(&self) -> String {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.is_empty() {
            return String::new();
        }
        let line = |name: &str, cells: [String; 4]| {
            let cells: String = cells.iter().map(|cell| format!(" {cell:>16}")).collect();
            format!("{name:<52}{cells}\n")
        };
        let mut text = line("scenario", COLUMNS.map(str::to_owned));
        for (name, row) in rows.iter() {
            let shown = |column: &str| match row.get(column) {
                None => "-".to_owned(),
                Some((well, took)) => format!("{} {:.2} s", if *well { "ok" } else { "FAILED" }, took.as_secs_f64()),
            };
            text += &line(name, COLUMNS.map(shown));
        }
        if rows.values().any(|row| row.contains_key("deployitem") || row.contains_key("deployitem-real")) {
            text += "not as DeployItems:\n";
            let reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
            text.extend(reasons.iter().map(|(name, reason)| format!("{name:<52} {reason}\n")));
        }
        text
    }
}

/// The beginning of every wrong scenario. Both objects of the first group are deleted slowly.
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

/// A scenario that must fail: its name, its last steps, and its error.
type Wrong = (&'static str, &'static str, &'static str);

/// Scenarios that must fail, because a test that cannot fail is worthless.
#[rustfmt::skip]
const WRONG: &[Wrong] = &[
    ("other-order", "
- billhook: delete web
  expect: {gone: [[ClusterRole.rbac.authorization.k8s.io/$S], [ConfigMap/$S/a, ConfigMap/$S/b]]}", "was marked"),
    ("one-by-one", "
- billhook: delete web
  expect: {gone: [[ConfigMap/$S/a], [ConfigMap/$S/b]]}", "was marked"),
    ("one-more-went", "
- billhook: delete web
  expect: {gone: [[ConfigMap/$S/a]]}", "ConfigMap/$S/b was deleted, but should have remained"),
    ("one-less-went", "
- billhook: delete web
  expect: {gone: [[ConfigMap/$S/a, ConfigMap/$S/b, ConfigMap/$S/c]]}", "ConfigMap/$S/c should have been deleted"),
    ("exit-code", "
- billhook: delete web
  expect: {exit: 1, absent: [ConfigMap/$S/a]}", "exit code 0 instead of 1"),
    ("output", "
- billhook: delete web
  expect: {stdout: [4 objects gone]}", "standard output does not contain"),
    ("silence", "
- billhook: delete web
  expect: {silent: [deleted], absent: [ConfigMap/$S/a]}", "\"deleted\" was printed"),
    ("stays", "
- billhook: delete web
  expect: {stays: [ConfigMap/$S/a]}", "should exist, but does not"),
    ("absent", "
- billhook: plan delete web
  expect: {absent: [ConfigMap/$S/a]}", "exists, but should not"),
    ("explained", "
- billhook: why ConfigMap/a -o json
  expect: {why: [{object: ConfigMap/$S/a, code: in-use}]}", "the code is Some(\"not-deleting\")"),
    ("followed", "
- billhook: why ConfigMap/a -o json
  expect: {why: [{object: ConfigMap/$S/a, code: not-deleting, follow: []}]}", "no command has the risk none"),
    ("content", "
- billhook: plan delete web
  expect: {holds: {ConfigMap/$S/a: {data: {a: b}}}}", "does not match"),
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
  expect: {absent: [ConfigMap/$S/a]}", "it ended before all events of the step"),
    ("created-in-other-order", "
- billhook: apply more -f -
  stdin: '{apiVersion: v1, kind: List, items: [
    {apiVersion: v1, kind: ConfigMap, metadata: {name: c}},
    {apiVersion: v1, kind: Namespace, metadata: {name: $S-c}}]}'
  expect: {appeared: [[ConfigMap/$S/c], [Namespace/$S-c]]}", "was created (at"),
    ("misspelt-field", "
- billhook: delete web
  expect: {gon: []}", "unknown field"),
    ("misspelt-absence", "
- billhook: delete web
  expect: {absent: [ConfigMap/$S/aa]}", "nothing creates it"),
    ("no-expectation", "
- billhook: delete web", "the last step expects nothing"),
    ("hangs", "
- patch: {ConfigMap/$S/a: {metadata: {finalizers: [$S.example/nobody]}}}
  billhook: delete web
  within: 1s
  expect: {absent: [ConfigMap/$S/a]}", "it did not end within 1s"),
];

/// The beginning of every wrong scenario of DeployItems.
const GIVEN_ITEM: &str = "\
description: A scenario that must fail.
files:
  web.yaml: |
    apiVersion: landscaper.gardener.cloud/v1alpha1
    kind: DeployItem
    metadata: {name: web}
    spec:
      type: landscaper.gardener.cloud/kubernetes-manifest
      target: {name: target}
      config:
        apiVersion: manifest.deployer.landscaper.gardener.cloud/v1alpha2
        kind: ProviderConfiguration
        manifests:
        - manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $S}}
steps:
- deployItem: apply web.yaml
";

/// Scenarios of DeployItems that must fail.
#[rustfmt::skip]
const WRONG_ITEMS: &[Wrong] = &[
    ("item-phase", "
- deployItem: wait web
  expect: {item: {phase: Failed}}", "its phase is \"Succeeded\" instead of Failed"),
    ("item-gone", "
- deployItem: delete web
  expect: {item: {phase: DeleteFailed}}", "its phase is \"Gone\" instead of DeleteFailed"),
    ("item-never", "
- deployItem: wait web
  within: 5s
  expect: {item: {phase: Progressing}}", "its phase is \"Succeeded\" instead of Progressing"),
    ("item-status", "
- deployItem: wait web
  expect: {item: {status: {observedGeneration: 7}}}", "its status does not match"),
    ("item-error", "
- deployItem: wait web
  expect: {item: {error: [wrong]}}", "its last error does not contain \"wrong\""),
    ("item-code", "
- deployItem: wait web
  expect: {item: {codes: [ERR_TIMEOUT]}}", "its last error does not have the code ERR_TIMEOUT"),
    ("item-condition", "
- deployItem: wait web
  expect: {item: {condition: [pigs fly]}}", "no condition contains \"pigs fly\""),
    ("item-exports", "
- deployItem: wait web
  expect: {item: {exports: {a: b}}}", "it exports null instead of"),
    ("item-events", "
- deployItem: wait web
  expect: {item: {events: [pigs fly]}}", "no Event contains \"pigs fly\""),
    ("item-touched", "
- deployItem: annotate web landscaper.gardener.cloud/operation=reconcile
  expect: {item: {untouched: 20s}}", "it was changed"),
    ("item-prints", "
- deployItem: delete web
  expect: {stdout: [deleted]}", "a DeployItem has no output"),
    ("item-exit-code", "
- deployItem: delete web
  expect: {exit: 3, absent: [ConfigMap/$S/a]}", "a DeployItem has a phase, but no exit code"),
    ("item-verb", "
- deployItem: remove web
  expect: {absent: [ConfigMap/$S/a]}", "deployItem: remove web: expected apply FILE"),
    ("item-of-nothing", "
- billhook: list
  expect: {item: {phase: Gone}}", "only a step with a deployItem"),
    ("item-missing", "
- deployItem: wait other
  expect: {item: {phase: Succeeded}}", "its phase is \"Gone\" instead of Succeeded"),
    ("item-order", "
- deployItem: delete web
  expect: {gone: [[ConfigMap/$S/a, ConfigMap/$S/b]]}", "ConfigMap/$S/b should have been deleted"),
];

fn wrong_trial(column: &str, given: &'static str, wrong: &'static Wrong, lab: &Arc<Lab>) -> Trial {
    let lab = Arc::clone(lab);
    Trial::test(format!("{column}/wrong/{}", wrong.0), move || check_wrong(given, wrong, &lab))
}

fn check_wrong(given: &str, (name, steps, why): &Wrong, lab: &Lab) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join(format!("wrong-{name}.yaml"));
    std::fs::write(&file, format!("{given}{}", steps.trim_start_matches('\n')))?;
    let played = Scenario::load(&file).and_then(|scenario| play(&scenario, lab));
    let why = why.replace("$S", &format!("s-wrong-{name}"));
    match played {
        Ok(()) => Err("it passed".into()),
        Err(error) if format!("{error:#}").contains(&why) => Ok(()),
        Err(error) => Err(format!("it failed with another error than {why:?}: {}", common::explain(&error)).into()),
    }
}

/// Returns the trial of a scenario with DeployItems, or `None` if it has no equivalent.
fn with_items(column: &str, name: &str, file: &Path, lab: &Arc<Lab>, results: &Results) -> Option<Trial> {
    // A scenario that cannot be read fails in the other columns.
    let scenario = Scenario::load(file).ok()?;
    if scenario.deploys_items() {
        return None;
    }
    match scenario.with_items() {
        Ok(scenario) => trial(column, name, Ok(scenario), lab, results),
        Err(reason) => {
            results.reasons.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), reason);
            None
        }
    }
}

/// Returns the trial of a scenario in a column, or `None` if only the sandbox can play it.
fn trial(
    column: &str,
    name: &str,
    scenario: Result<Scenario, String>,
    lab: &Arc<Lab>,
    results: &Results,
) -> Option<Trial> {
    if matches!(&**lab, Lab::Real(_)) && scenario.as_ref().is_ok_and(Scenario::needs_sandbox) {
        return None;
    }
    let missing = scenario.as_ref().ok().and_then(Scenario::missing_fixture);
    let (lab, results, row) = (Arc::clone(lab), results.clone(), (name.to_owned(), column.to_owned()));
    let trial = Trial::test(format!("{column}/{name}"), move || {
        let begun = Instant::now();
        let played = scenario.and_then(|scenario| play(&scenario, &lab).map_err(|error| common::explain(&error)));
        results.add(row.0, row.1, played.is_ok(), begun.elapsed());
        played.map_err(Failed::from)
    });
    Some(match missing {
        // Ignored and not passed, because nothing was tested.
        Some(missing) => trial.with_kind(format!("ignored: {missing}")).with_ignored_flag(true),
        None => trial,
    })
}

/// Checks that no name is part of another one, because scenarios recognize their objects by name.
fn check_names(stems: &[String]) -> Result<(), Failed> {
    for one in stems {
        let sound = one.len() <= 40 && one.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'));
        if !sound {
            return Err(format!("{one}: expected a short name of a-z, 0-9 and -").into());
        }
        let same = stems.iter().filter(|other| format!("s-{other}").contains(&format!("s-{one}"))).count();
        if same > 1 {
            return Err(format!("{one} is part of the name of another scenario").into());
        }
    }
    Ok(())
}
