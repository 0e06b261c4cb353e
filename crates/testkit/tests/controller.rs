//! Tests of disturbed controllers of DeployItems: one is killed at every request of some scenarios, or one of two loses its
//! connection.
//!
//! `BILLHOOK_ALL=1` kills it in all scenarios of DeployItems.

mod common;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use billhook_testkit::scenario::{
    Scenario,
    crash::Quiet,
    election::{self, Cut, Partition},
    poison,
};
use libtest_mimic::{Arguments, Failed, Trial};

/// The scenarios in which the controller is killed: each tests something that others do not. None of them waits for a
/// temporary state, which could be over before it is checked if the controller is killed late.
const KILLED: [&str; 11] = [
    "di-policy-keep",
    "di-strategy-update",
    "di-annotate-before-delete",
    "di-exports-read",
    "di-update-custom",
    "di-all-by-kind",
    "di-two-targets",
    "di-jobs",
    "di-timeout-delete",
    "di-inherited-updated",
    "di-gap-update-half-way",
];

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(std::thread::available_parallelism().map_or(2, usize::from));
    let runs = Arc::new(AtomicUsize::new(0));
    let all = std::env::var_os("BILLHOOK_ALL").is_some();
    let files = common::scenarios()
        .into_iter()
        .filter(|(name, _)| name.strip_prefix("deployitems/").is_some_and(|stem| all || KILLED.contains(&stem)));
    let mut trials: Vec<_> = files.map(|(name, file)| killed(&name, &file, &runs)).collect();
    for cut in [Cut::All, Cut::Lease] {
        let runs = Arc::clone(&runs);
        let name = format!("election/{cut:?}").to_lowercase();
        trials.push(Trial::test(name, move || only_the_leader_writes(cut, &runs)));
    }
    trials.push(Trial::test("election/none", both_write_without_a_lease));
    trials.push(Trial::test("poison/set-aside", only_the_poison_is_set_aside));
    trials.push(Trial::test("poison/innocent", kills_set_nothing_aside));
    trials.push(Trial::test("known", || {
        let known: Vec<_> = common::scenarios().into_iter().map(|(name, _)| name).collect();
        match KILLED.iter().find(|stem| !known.contains(&format!("deployitems/{stem}"))) {
            Some(missing) => Err(format!("scenario {missing} does not exist").into()),
            None => Ok(()),
        }
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    common::print(&format!("{} disturbed runs\n", runs.load(Ordering::Relaxed)));
    conclusion.exit();
}

/// Kills the controller at every request of a scenario, before it and, if it writes, after it.
fn killed(name: &str, file: &Path, runs: &Arc<AtomicUsize>) -> Trial {
    let (scenario, runs) = (Scenario::load(file), Arc::clone(runs));
    Trial::test(format!("killed/{name}"), move || {
        let scenario = scenario.map_err(|error| common::explain(&error))?;
        let quiet = Quiet::play(&scenario).map_err(|error| common::explain(&error))?;
        let crashes = quiet.crashes();
        if crashes.is_empty() {
            return Err("the controller sent no request".into());
        }
        let problems = crashes.iter().filter_map(|crash| {
            runs.fetch_add(1, Ordering::Relaxed);
            let error = quiet.crashed(&scenario, crash).err()?;
            Some(format!("{crash}: {}", common::explain(&error)))
        });
        report(problems.collect())
    })
}

/// Five groups whose objects are deleted slowly, so that the controller always has something to write.
const LONG: &str = "\
description: A deletion that takes half a minute.
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
        - manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $S, finalizers: [$S.example/slow]}}
        - manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: $S, finalizers: [$S.example/slow]}}
        - manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: $S, finalizers: [$S.example/slow]}}
        - manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: d, namespace: $S, finalizers: [$S.example/slow]}}
        - manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: e, namespace: $S}}
        deletionGroups:
        - customResourceGroup: {resources: [{apiVersion: v1, kind: configmaps, names: [a]}]}
        - customResourceGroup: {resources: [{apiVersion: v1, kind: configmaps, names: [b]}]}
        - customResourceGroup: {resources: [{apiVersion: v1, kind: configmaps, names: [c]}]}
        - customResourceGroup: {resources: [{apiVersion: v1, kind: configmaps, names: [d]}]}
        - customResourceGroup: {resources: [{apiVersion: v1, kind: configmaps, names: [e]}]}
controllers:
- removeFinalizer: {kind: ConfigMap, finalizer: $S.example/slow, after: 7s}
steps:
- deployItem: apply web.yaml
  expect: {stays: [ConfigMap/$S/a, ConfigMap/$S/e]}
- deployItem: delete web
  within: 300s
  expect:
    gone: [[ConfigMap/$S/a], [ConfigMap/$S/b], [ConfigMap/$S/c], [ConfigMap/$S/d], [ConfigMap/$S/e]]
    absent: [Secret/$S/billhook.deployitem.web]
";

fn long() -> Result<Scenario, Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("election.yaml");
    std::fs::write(&file, LONG)?;
    Scenario::load(&file).map_err(|error| common::explain(&error).into())
}

/// Checks that the item is deleted in order and only the holder of the Lease writes, whenever and however long the first
/// controller loses its connection.
fn only_the_leader_writes(cut: Cut, runs: &AtomicUsize) -> Result<(), Failed> {
    let scenario = long()?;
    let (mut problems, mut taken_over) = (Vec::new(), 0);
    for (at, lasts) in (0..40).flat_map(|at| [5, 13, 60].map(|lasts| (at, lasts))) {
        let partition = Partition { cut, at: Duration::from_secs(at), lasts: Duration::from_secs(lasts) };
        runs.fetch_add(1, Ordering::Relaxed);
        match election::play(&scenario, partition, true) {
            Err(error) => problems.push(format!("{partition:?}: {}", common::explain(&error))),
            Ok(written) => {
                problems.extend(written.against.iter().map(|against| format!("{partition:?}: {against}")));
                taken_over += usize::from(written.counts.iter().all(|count| *count > 0));
            }
        }
    }
    if taken_over == 0 {
        problems.push("the second controller never took over".to_owned());
    }
    report(problems)
}

/// Checks that the test above would detect writes of both controllers.
fn both_write_without_a_lease() -> Result<(), Failed> {
    let never = Partition { cut: Cut::All, at: Duration::from_secs(3600), lasts: Duration::ZERO };
    let written = election::play(&long()?, never, false).map_err(|error| common::explain(&error))?;
    match written.counts.iter().all(|count| *count > 0) && !written.against.is_empty() {
        true => Ok(()),
        false => Err(format!("writes of both controllers were not detected: {written:?}").into()),
    }
}

/// An item whose work kills the controller, among some that wait for half an hour, or take half a minute.
const POISONED: &str = "\
description: One item kills the controller.
given: |
  ITEMS
files: {}
controllers:
- reportStatus: {kind: StatefulSet.apps, after: AFTER, status: {observedGeneration: 1, replicas: 1, readyReplicas: 1, updatedReplicas: 1, availableReplicas: 1}}
steps:
- deployItem: wait poison
  expect: {item: {phase: Failed}}
";

fn poisoned(names: &[&str], after: &str) -> Result<Scenario, Failed> {
    let item = |name: &&str| {
        let manifest = match *name {
            poison::POISON => "{apiVersion: v1, kind: ConfigMap, metadata: {name: poison, namespace: $S}}".to_owned(),
            name => format!(
                "{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: {name}, namespace: $S}}, spec: {{replicas: 1, \
                 serviceName: x, selector: {{matchLabels: {{app: x}}}}, template: {{metadata: {{labels: {{app: x}}}}, \
                 spec: {{containers: [{{name: x, image: x}}]}}}}}}}}"
            ),
        };
        format!(
            "{{apiVersion: landscaper.gardener.cloud/v1alpha1, kind: DeployItem, metadata: {{name: {name}, namespace: $S}}, \
             spec: {{type: landscaper.gardener.cloud/kubernetes-manifest, target: {{name: target}}, timeout: 30m, config: \
             {{apiVersion: manifest.deployer.landscaper.gardener.cloud/v1alpha2, kind: ProviderConfiguration, \
             manifests: [{{manifest: {manifest}}}]}}}}}}"
        )
    };
    let items: Vec<_> = names.iter().map(item).collect();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("poison.yaml");
    std::fs::write(&file, POISONED.replace("ITEMS", &items.join("\n  ---\n  ")).replace("AFTER", after))?;
    Scenario::load(&file).map_err(|error| common::explain(&error).into())
}

/// Checks that an item that kills each controller is set aside after three of them, and no other item is.
fn only_the_poison_is_set_aside() -> Result<(), Failed> {
    let scenario = poisoned(&["a", "b", "poison", "c"], "29m")?;
    let poison::SetAside { crashes, items, repaired } =
        poison::set_aside(&scenario).map_err(|error| common::explain(&error))?;
    let mut problems = Vec::new();
    if crashes != 3 {
        problems.push(format!("{crashes} controllers were killed"));
    }
    for (name, item) in &items {
        let (phase, reason) = (&item["status"]["phase"], &item["status"]["lastError"]["reason"]);
        let annotation = &item["metadata"]["annotations"]["billhook.dev/crashes"];
        let is_poison = name == poison::POISON;
        let expected = if is_poison { *phase == "Failed" && *reason == "SetAside" } else { *phase == "Progressing" };
        if !expected || annotation.as_str().is_some_and(|text| text.contains("\"count\":3")) != is_poison {
            problems.push(format!("{name} is {phase} because of {reason}, with {annotation}"));
        }
    }
    if !repaired["metadata"]["annotations"]["billhook.dev/crashes"].is_null() {
        problems.push(format!("it is still suspected: {repaired}"));
    }
    report(problems)
}

/// Checks that innocent items succeed, however often somebody kills their controllers.
fn kills_set_nothing_aside() -> Result<(), Failed> {
    let scenario = poisoned(&["a", "b", "poison", "c"], "30s")?;
    let seconds = |times: &[u64]| times.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
    let problems = [vec![1; 8], vec![17; 8], vec![20; 6], vec![40; 4], vec![16, 18, 35, 20, 70, 17, 90, 16, 16]];
    let problems = problems.iter().filter_map(|times| {
        let error = poison::killed_after(&scenario, &seconds(times)).err()?;
        Some(format!("{times:?}: {}", common::explain(&error)))
    });
    report(problems.collect())
}

fn report(problems: Vec<String>) -> Result<(), Failed> {
    if problems.is_empty() {
        return Ok(());
    }
    let shown: Vec<_> = problems.iter().take(20).map(String::as_str).collect();
    Err(format!("{} disturbed runs:\n{}", problems.len(), shown.join("\n")).into())
}
