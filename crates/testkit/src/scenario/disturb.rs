//! Plays a scenario on a sandbox with one disturbed request of one of its commands. The final objects must be the same as
//! after an undisturbed run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use billhook::{Cluster, ClusterOptions};
use billhook_objects::{GroupKind, ObjectKey, ReleaseName};
use billhook_sandbox::{
    Sandbox, Verb,
    faults::{Fault, Faults, Logged, Moment, Requests},
};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{Lab, Scenario, Step, call::Called, lab::Plane, stage::Stage};

/// The time for controllers to complete their work.
pub(super) const SETTLE: Duration = Duration::from_secs(30);

/// The time after which the lock of a killed command has expired.
pub const EXPIRY: Duration = Duration::from_secs(31);

/// A kind of disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// The program is killed before it sends the request; then the same command runs again.
    CrashBefore,
    /// The program is killed after the request took effect and before the response; then the same command runs again.
    CrashAfter,
    /// The request is answered with 500.
    InternalError,
    /// The request is answered with 429.
    TooManyRequests,
    /// The request takes effect, but the response is lost.
    LostAnswer,
    /// The list or watch is answered with 410.
    Expired,
    /// The watch ends after its first event.
    CutWatch,
}

impl Trouble {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::CrashBefore,
        Self::CrashAfter,
        Self::InternalError,
        Self::TooManyRequests,
        Self::LostAnswer,
        Self::Expired,
        Self::CutWatch,
    ];

    /// Returns whether the program is killed.
    pub fn crashes(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter)
    }

    /// Returns whether it can affect a request.
    pub(super) fn affects(self, request: &Logged) -> bool {
        match self {
            Self::Expired => request.can_expire,
            Self::CutWatch => request.verb == Verb::Watch,
            // For a request that changes nothing, it makes no difference whether the program is killed before or after it.
            Self::CrashAfter => request.verb.writes(),
            _ => true,
        }
    }

    pub(super) fn fault(self) -> Fault {
        match self {
            Self::CrashBefore => Fault::crash(Moment::Before),
            Self::CrashAfter => Fault::crash(Moment::After),
            Self::InternalError => Fault::internal_error(),
            Self::TooManyRequests => Fault::too_many_requests(1),
            Self::LostAnswer => Fault::broken(Moment::After),
            Self::Expired => Fault::expired(),
            Self::CutWatch => Fault::cut_after_events(1),
        }
    }
}

/// A disturbed request.
#[derive(Clone, Debug)]
pub struct Disturbance {
    /// The index of the step, from 0.
    pub step: usize,
    /// A kind of disturbance.
    pub trouble: Trouble,
    /// The number of the request among those that it can affect, from 1.
    pub nth: usize,
    /// The request in the undisturbed run.
    pub request: Logged,
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, trouble, nth, request } = self;
        write!(f, "step {}, {trouble:?} {nth} ({request})", step + 1)
    }
}

/// An undisturbed run.
pub struct Quiet {
    calls: BTreeMap<usize, QuietCall>,
}

struct QuietCall {
    requests: Vec<Logged>,
    exit: u8,
    after: State,
}

/// The objects and the records of releases.
pub(super) type State = BTreeMap<String, Value>;

impl Quiet {
    /// Plays a scenario undisturbed, without checking its expectations.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be played.
    pub fn play(scenario: &Scenario) -> Result<Self> {
        let lab = Lab::Sandbox;
        lab.block_on(scenario, async {
            let stage = Stage::set(scenario, &lab).await?;
            let mut calls = BTreeMap::new();
            for (index, step) in scenario.steps.iter().enumerate() {
                let Some(line) = stage.until(index, step).await? else { continue };
                let before = stage.objects();
                let client = format!("call-{index}");
                let called = stage.once(step, line, &client).await?.ok_or_else(|| anyhow!("it was not killed"))?;
                tokio::time::sleep(SETTLE).await;
                if is_disturbed(step, line) {
                    let (requests, exit) = (stage.faults()?.log(&client), called.exit);
                    let after = stage.state(&before).await?;
                    calls.insert(index, QuietCall { requests, exit, after });
                }
            }
            Ok(Self { calls })
        })
    }

    /// Returns all possible disturbances.
    pub fn disturbances(&self) -> Vec<Disturbance> {
        let mut all = Vec::new();
        for (&step, call) in &self.calls {
            for trouble in Trouble::ALL {
                let affected = call.requests.iter().filter(|request| trouble.affects(request)).enumerate();
                all.extend(affected.map(|(n, request)| Disturbance {
                    step,
                    trouble,
                    nth: n + 1,
                    request: request.clone(),
                }));
            }
        }
        all
    }

    /// Plays a scenario up to and including a disturbed step, and compares the objects.
    ///
    /// # Errors
    ///
    /// Fails if the final objects differ from those of the undisturbed run.
    pub fn disturbed(&self, scenario: &Scenario, disturbance: &Disturbance) -> Result<()> {
        let lab = Lab::Sandbox;
        let Disturbance { step: disturbed, trouble, .. } = *disturbance;
        let quiet = self.calls.get(&disturbed).ok_or_else(|| anyhow!("no such call"))?;
        lab.block_on(scenario, async {
            let stage = Stage::set(scenario, &lab).await?;
            for (index, step) in scenario.steps.iter().enumerate() {
                let Some(line) = stage.until(index, step).await? else { continue };
                let client = format!("call-{index}");
                if index < disturbed {
                    stage.once(step, line, &client).await?;
                    tokio::time::sleep(SETTLE).await;
                    continue;
                }
                let before = stage.objects();
                stage.faults()?.inject(disturbance.fault(&client));
                let mut called = stage.once(step, line, &client).await?;
                if called.is_none() {
                    stage.refused(step, line).await?;
                    tokio::time::sleep(EXPIRY).await;
                    called = stage.once(step, line, "again").await?;
                }
                let called = called.ok_or_else(|| anyhow!("killed twice"))?;
                tokio::time::sleep(SETTLE).await;
                let found = stage.state(&before).await.with_context(|| called.shown())?;
                let differences = differences(&quiet.after, &found);
                let met = || disturbance.met(stage.faults());
                ensure!(differences.is_empty(), "{differences}{}\nafter {}", met(), called.shown());
                // If a deletion is killed at its very end, the repeated command finds no release, or only copies of its label.
                let over = trouble.crashes()
                    && ["not found in namespace", "the record of release"]
                        .iter()
                        .any(|text| called.stderr.contains(text));
                let well = called.exit == quiet.exit || over;
                ensure!(well, "not exit {}: {}\n{}", quiet.exit, met(), called.shown());
                return Ok(());
            }
            Ok(())
        })
    }
}

impl Disturbance {
    /// Returns the request that was actually disturbed: concurrent requests are not sent in a fixed order.
    fn met(&self, faults: Result<&Faults>) -> String {
        let log = faults.map(|faults| faults.log(&format!("call-{}", self.step))).unwrap_or_default();
        let affected = log.iter().filter(|request| self.trouble.affects(request)).nth(self.nth - 1);
        affected.map_or("it met no request".to_owned(), |request| format!("it met {request}"))
    }

    fn fault(&self, client: &str) -> Fault {
        let mut which = Requests::of(client);
        if self.trouble == Trouble::CrashAfter {
            which = which.writes();
        }
        self.trouble.fault().on(which).nth(self.nth)
    }
}

/// Returns whether a step can be disturbed: only commands that change objects can leave incomplete work, and the result of a
/// command with events during it, or that fails, depends on timing.
fn is_disturbed(step: &Step, line: &str) -> bool {
    let changes = ["apply ", "delete ", "clean ", "payload apply "];
    changes.iter().any(|command| line.starts_with(command))
        && !line.contains("--dry-run")
        && step.during.is_empty()
        && step.faults.is_empty()
        && step.expect.exit == 0
}

impl Stage<'_> {
    /// Prepares a step, and returns the command line.
    async fn until<'s>(&self, index: usize, step: &'s Step) -> Result<Option<&'s str>> {
        let begun = self.begin(step).await;
        begun.with_context(|| format!("before step {}", index + 1))?;
        Ok(step.billhook.as_deref())
    }

    /// Runs a command; returns `None` if it was killed.
    async fn once(&self, step: &Step, line: &str, client: &str) -> Result<Option<Called>> {
        let faults = self.faults()?;
        let made = async {
            tokio::select! {
                biased;
                called = self.call(step, line, client) => called.map(Some),
                () = faults.crashed(client) => Ok(None),
            }
        };
        let made = tokio::time::timeout(step.within, made).await;
        made.map_err(|_| anyhow!("it did not end within {:?}", step.within))?
    }

    /// Checks that a command is refused, and changes nothing, while a killed one has locked a release.
    async fn refused(&self, step: &Step, line: &str) -> Result<()> {
        let locked = |object: &Value| {
            let head = object["type"] == "billhook.dev/inventory" && object["data"]["head"].is_string();
            let head =
                head.then(|| serde_json::from_value::<ByteString>(object["data"]["head"].clone()).ok()).flatten();
            head.is_some_and(|head| String::from_utf8_lossy(&head.0).contains("\"lock\":"))
        };
        let before = self.objects();
        if !before.values().any(locked) {
            return Ok(());
        }
        let called = self.once(step, line, "at-once").await?.ok_or_else(|| anyhow!("it was not killed"))?;
        ensure!(called.exit == 4 && called.writes == 0, "it must be refused\n{}", called.shown());
        Ok(())
    }

    pub(super) fn faults(&self) -> Result<&Faults> {
        self.sandbox().map(Sandbox::faults)
    }

    /// Returns all objects by key, except those that change on their own.
    pub(super) fn objects(&self) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for (number, plane) in self.planes.iter().enumerate() {
            let Plane::Sandbox(sandbox, _) = plane else { continue };
            let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            for object in sandbox.objects() {
                let (version, kind) = (object["apiVersion"].as_str().unwrap_or_default(), &object["kind"]);
                let group = version.split_once('/').map_or("", |(group, _)| group);
                let kind = GroupKind::new(group, kind.as_str().unwrap_or_default());
                if matches!(kind.kind.as_str(), "Event" | "Lease") {
                    continue;
                }
                let namespace = Some(text(&object, "namespace")).filter(|namespace| !namespace.is_empty());
                let key = ObjectKey::new(kind, namespace.as_deref(), text(&object, "name"));
                all.insert(format!("{}{key}", ["", "second "][number]), object);
            }
        }
        all
    }

    /// Returns the objects without values that differ between runs.
    pub(super) async fn state(&self, before: &BTreeMap<String, Value>) -> Result<State> {
        let mut state = State::new();
        let objects = self.objects();
        let known: BTreeSet<String> = objects.keys().cloned().collect();
        for (key, value) in objects {
            // The record of a release is compared by its content.
            if value["type"] == "billhook.dev/inventory" {
                continue;
            }
            // Whether this is the same object as before, or another one with its name.
            let kept = before.get(&key).is_some_and(|before| before["metadata"]["uid"] == value["metadata"]["uid"]);
            let (key, value) = normal(key, value, kept);
            let mut number = 0;
            while state.contains_key(&format!("{key}#{number}")) {
                number += 1;
            }
            state.insert(format!("{key}#{number}"), value);
        }
        let cluster = Cluster::from_client(self.admin.client().clone(), ClusterOptions::default());
        for info in cluster.inventory().list(None).await? {
            state.insert(format!("release {}", info.release), record(&cluster, &info.release, &known).await?);
        }
        Ok(state)
    }
}

/// Reads the record of a release. Whether a pass over a payload has already verified that an object is gone whose deletion
/// was requested depends on when the object went, so such objects count as deleted in any case.
async fn record(cluster: &Cluster, release: &ReleaseName, known: &BTreeSet<String>) -> Result<Value> {
    let Some(stored) = cluster.inventory().load(release).await? else { return Ok(Value::Null) };
    let mut inventory = stored.inventory;
    let is_gone = |key: &ObjectKey, obsolete: bool| obsolete && !known.contains(&key.to_string());
    let mut deleted: BTreeSet<String> = inventory.deleted.keys().map(ToString::to_string).collect();
    if !inventory.history.is_empty() {
        let gone = inventory.entries.iter().filter(|(key, entry)| is_gone(key, entry.obsolete));
        deleted.extend(gone.map(|(key, _)| key.to_string()));
        inventory.entries.retain(|key, entry| !is_gone(key, entry.obsolete));
    }
    let entries: BTreeMap<_, _> = inventory
        .entries
        .iter()
        .map(|(key, entry)| {
            (key.to_string(), json!({"known": entry.uid.is_some(), "digest": entry.digest, "obsolete": entry.obsolete}))
        })
        .collect();
    let history: Vec<_> = inventory.history.iter().map(|of| json!([of.version, of.state])).collect();
    // A deletion that was interrupted and repeated must have saved the same objects as one that was not.
    let backup = match &inventory.backup {
        None => Value::Null,
        Some(backup) => {
            let packed = cluster.inventory().read_backup(release, backup).await?;
            let saved: Result<BTreeMap<_, _>, _> =
                packed.objects().map(|saved| saved.map(|saved| (saved.key().to_string(), saved.own))).collect();
            json!(saved?)
        }
    };
    Ok(json!({
        "phase": inventory.phase, "entries": entries, "history": history, "deleted": deleted, "backup": backup,
    }))
}

/// Returns an object without values that differ between runs.
fn normal(mut key: String, mut value: Value, kept: bool) -> (String, Value) {
    if let Some(stem) = value["metadata"]["generateName"].as_str()
        && let Some(at) = key.rfind(stem)
    {
        key.truncate(at + stem.len());
    }
    let metadata = &mut value["metadata"];
    let deleting = metadata["deletionTimestamp"].is_string();
    if let Some(metadata) = metadata.as_object_mut() {
        for field in
            ["name", "uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "deletionTimestamp"]
        {
            metadata.remove(field);
        }
        metadata.insert("deleting".into(), deleting.into());
        metadata.insert("kept".into(), kept.into());
    }
    for owner in value["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        owner["uid"] = Value::Null;
    }
    plain(&mut value);
    (key, value)
}

/// Removes times and references to identities.
fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| {
                !name.ends_with("Time")
                    && !name.ends_with("Generation")
                    && name != "controller-uid"
                    && name != "batch.kubernetes.io/controller-uid"
            });
            fields.values_mut().for_each(plain);
        }
        Value::Array(values) => values.iter_mut().for_each(plain),
        _ => {}
    }
}

/// Returns the differences, one per line.
pub(super) fn differences(expected: &State, found: &State) -> String {
    let mut text = String::new();
    for (key, wanted) in expected {
        match found.get(key) {
            None => text += &format!("{key} does not exist\n"),
            Some(value) if value != wanted => text += &format!("{key} is {value} instead of {wanted}\n"),
            Some(_) => {}
        }
    }
    for key in found.keys().filter(|key| !expected.contains_key(*key)) {
        text += &format!("{key} exists, but should not\n");
    }
    text
}
