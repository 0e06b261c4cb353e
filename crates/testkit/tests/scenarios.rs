//! Every file under `scenarios/` is a test, played twice: on the sandbox and against a real control plane, with the same
//! expectations. Those that give a policy are played as DeployItems, too, on both: the controller has to do with objects
//! what the program does.

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
    let real = || Arc::new(Lab::Real(ControlPlanes::default()));
    // A scenario has the same names in each column, so that none may share a control plane with another.
    let (sandbox, control_plane, of_items) = (Arc::new(Lab::Sandbox), real(), real());
    let results = Results::default();
    let mut trials = Vec::new();
    for (column, lab) in [("sandbox", &sandbox), ("control-plane", &control_plane)] {
        trials.extend(files.iter().filter_map(|(name, file)| {
            let scenario = Scenario::load(file).map_err(|error| common::explain(&error));
            trial(column, name, scenario, lab, &results)
        }));
        trials.extend(WRONG.iter().map(|wrong| wrong_trial(column, GIVEN, wrong, lab)));
    }
    trials.extend(WRONG_ITEMS.iter().map(|wrong| wrong_trial("sandbox", GIVEN_ITEM, wrong, &sandbox)));
    for (column, lab) in [("deployitem", &sandbox), ("deployitem-real", &of_items)] {
        trials.extend(files.iter().filter_map(|(name, file)| with_items(column, name, file, lab, &results)));
    }
    let stems: Vec<_> = files.iter().filter_map(|(_, file)| file.file_stem()?.to_str().map(str::to_owned)).collect();
    trials.push(Trial::test("names", move || check_names(&stems)));
    let conclusion = libtest_mimic::run(&arguments, trials);
    for lab in [&control_plane, &of_items] {
        if let Lab::Real(planes) = &**lab {
            planes.close();
        }
    }
    common::say(&results.table());
    conclusion.exit();
}

/// The columns, as they are printed.
const COLUMNS: [&str; 4] = ["sandbox", "control-plane", "deployitem", "deployitem-real"];

/// How scenarios ended.
#[derive(Clone, Default)]
struct Results {
    rows: Arc<Mutex<BTreeMap<String, Row>>>,
    /// Why scenarios have no meaning for DeployItems.
    reasons: Arc<Mutex<BTreeMap<String, String>>>,
}

/// By column: whether it ended well, and how long it took.
type Row = BTreeMap<String, (bool, Duration)>;

impl Results {
    fn add(&self, name: String, column: String, well: bool, took: Duration) {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.entry(name).or_default().insert(column, (well, took));
    }

    /// All columns side by side, and what is missing in the last two.
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

/// The name of a scenario that must not pass, how it goes on, and why it does not pass.
type Wrong = (&'static str, &'static str, &'static str);

/// Scenarios that must not pass, and why they do not: a test that cannot fail shows nothing.
#[rustfmt::skip]
const WRONG: &[Wrong] = &[
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

/// What every wrong scenario of DeployItems begins with.
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

/// The same for what is expected of DeployItems.
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
  expect: {item: {status: {observedGeneration: 7}}}", "its status should hold"),
    ("item-error", "
- deployItem: wait web
  expect: {item: {error: [wrong]}}", "its last error does not hold \"wrong\""),
    ("item-code", "
- deployItem: wait web
  expect: {item: {codes: [ERR_TIMEOUT]}}", "its last error does not have the code ERR_TIMEOUT"),
    ("item-condition", "
- deployItem: wait web
  expect: {item: {condition: [pigs fly]}}", "no condition holds \"pigs fly\""),
    ("item-exports", "
- deployItem: wait web
  expect: {item: {exports: {a: b}}}", "it exports null and not"),
    ("item-events", "
- deployItem: wait web
  expect: {item: {events: [pigs fly]}}", "no Event holds \"pigs fly\""),
    ("item-touched", "
- deployItem: annotate web landscaper.gardener.cloud/operation=reconcile
  expect: {item: {untouched: 20s}}", "it should have been left alone"),
    ("item-prints", "
- deployItem: delete web
  expect: {stdout: [deleted]}", "a DeployItem prints nothing"),
    ("item-exit-code", "
- deployItem: delete web
  expect: {exit: 3, absent: [ConfigMap/$S/a]}", "a DeployItem has a phase and no exit code"),
    ("item-verb", "
- deployItem: remove web
  expect: {absent: [ConfigMap/$S/a]}", "deployItem: remove web: apply FILE"),
    ("item-of-nothing", "
- billhook: list
  expect: {item: {phase: Gone}}", "only a step with a deployItem"),
    ("item-missing", "
- deployItem: wait other
  expect: {item: {phase: Succeeded}}", "its phase is \"Gone\" instead of Succeeded"),
    ("item-order", "
- deployItem: delete web
  expect: {gone: [[ConfigMap/$S/a, ConfigMap/$S/b]]}", "ConfigMap/$S/b should have gone"),
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
        Err(error) => Err(format!("it failed for another reason than {why:?}: {}", common::explain(&error)).into()),
    }
}

/// A scenario as one of DeployItems; none where it has no meaning for them.
fn with_items(column: &str, name: &str, file: &Path, lab: &Arc<Lab>, results: &Results) -> Option<Trial> {
    // What cannot be read fails in the other columns.
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

/// A scenario in a column; none where only the other one can play it.
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
    let missing = scenario.as_ref().map(Scenario::missing_fixtures).unwrap_or_default();
    let (lab, results, row) = (Arc::clone(lab), results.clone(), (name.to_owned(), column.to_owned()));
    let trial = Trial::test(format!("{column}/{name}"), move || {
        let begun = Instant::now();
        let played = scenario.and_then(|scenario| play(&scenario, &lab).map_err(|error| common::explain(&error)));
        results.add(row.0, row.1, played.is_ok(), begun.elapsed());
        played.map_err(Failed::from)
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
