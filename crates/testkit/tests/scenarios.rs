//! Every file under `scenarios/` is a test: played against a real control plane.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use billhook_testkit::scenario::{Lab, Scenario, play};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    // Each scenario waits most of its time; more at once than this only slows the one control plane they share.
    arguments.test_threads.get_or_insert(4);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let lab = Arc::new(Lab::default());
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let mut trials: Vec<_> = files.iter().map(|file| trial(&root, file, &lab)).collect();
    let stems: Vec<_> = files.iter().filter_map(|file| file.file_stem()?.to_str().map(str::to_owned)).collect();
    trials.push(Trial::test("names", move || check_names(&stems)));
    trials.extend(WRONG.iter().map(|(name, steps, why)| {
        let lab = Arc::clone(&lab);
        Trial::test(format!("wrong/{name}"), move || check_wrong(name, steps, why, &lab))
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    lab.close();
    conclusion.exit();
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let played = Scenario::load(&file).and_then(|scenario| runtime.block_on(play(&scenario, lab)));
    let why = why.replace("$S", &format!("s-wrong-{name}"));
    match played {
        Ok(()) => Err("it passed".into()),
        Err(error) if format!("{error:#}").contains(&why) => Ok(()),
        Err(error) => Err(format!("it failed for another reason than {why:?}: {}", explain(&error)).into()),
    }
}

fn trial(root: &Path, file: &Path, lab: &Arc<Lab>) -> Trial {
    let name = file.strip_prefix(root).unwrap_or(file).with_extension("").display().to_string();
    let scenario = Scenario::load(file);
    let missing = scenario.as_ref().map(Scenario::missing_fixtures).unwrap_or_default();
    let lab = Arc::clone(lab);
    let trial = Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let played = scenario.and_then(|scenario| runtime.block_on(play(&scenario, &lab)));
        played.map_err(|error| Failed::from(explain(&error)))
    });
    match missing.first() {
        // Not green: nothing was shown.
        Some(missing) => trial.with_kind(format!("ignored: {missing} is not there")).with_ignored_flag(true),
        None => trial,
    }
}

/// What went wrong first, where it happened and what was printed below.
fn explain(error: &anyhow::Error) -> String {
    let causes: Vec<_> = error.chain().map(ToString::to_string).collect();
    causes.into_iter().rev().collect::<Vec<_>>().join("\n")
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

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
}
