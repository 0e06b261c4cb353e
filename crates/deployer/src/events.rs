//! Kubernetes Events of a DeployItem: what `kubectl describe di` shows under its fields.
//!
//! They are `v1` Events, written beside the work: a [`Recorder`] hands them to the one [`Writer`] over a bounded channel.
//! When that is full they are dropped and counted; what the API server refuses is forgotten. The right that this needs
//! is `create` and `patch` on `events` in the namespaces of the items.
//!
//! | type | reason | when |
//! |---|---|---|
//! | Normal | `DeletionGroupStarted` | a group that holds objects is deleted, in a deletion or an update that prunes |
//! | Normal | `DeletionGroupFinished` | all of its objects are gone |
//! | Warning | `FinalizersRemoved` | finalizers were removed by force: which, from which object |
//! | Warning | `TimedOut` | the time limit was reached: what is left, and why |
//! | Warning | `Failed` | something was refused: what, and why |

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use billhook_cluster::{Cluster, Error, Patch, PatchKind};
use billhook_engine::{Event, Status};
use billhook_objects::{GroupKind, ObjectKey, wellknown::FIELD_MANAGER};
use billhook_plan::Resource;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    api::{DeployItem, GROUP, VERSION},
    progress::{Progress, clip, count, list},
};

/// How many Events may wait to be written.
const CAPACITY: usize = 1024;
/// How long the same Event of the same item is counted in place of being written anew, as `client-go` does.
const SAME: Duration = Duration::from_secs(600);
/// Up to how many Events are remembered for that.
const REMEMBERED: usize = 4096;
/// Of how many objects a run names the finalizers that it removed by force; the others are counted.
const FORCED: usize = 10;
/// The longest message, in bytes: what `events.k8s.io/v1` allows.
const MESSAGE: usize = 1024;

/// The time of day, for the stamps of Events.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The DeployItem that an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, by which `kubectl describe` finds the Events.
    pub uid: String,
}

impl From<&DeployItem> for Item {
    fn from(item: &DeployItem) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let metadata = &item.metadata;
        Self { namespace: text(&metadata.namespace), name: text(&metadata.name), uid: text(&metadata.uid) }
    }
}

/// Whether an Event is a matter of course or a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// All is well.
    Normal,
    /// Somebody may want to look.
    Warning,
}

/// What happened, to which item. Equal ones are counted in one Event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Occurrence {
    item: Arc<Item>,
    severity: Severity,
    reason: &'static str,
    message: String,
}

/// Takes Events down. Clones share a channel.
#[derive(Clone, Debug)]
pub struct Recorder {
    sender: mpsc::Sender<Occurrence>,
    dropped: Counter,
}

impl Recorder {
    /// A recorder, and the writer that writes into `home`, the cluster of the items, once it is run. `instance` says which
    /// process it is; `dropped` counts what found the channel full.
    pub fn new(home: Cluster, instance: impl Into<String>, now: Now, dropped: Counter) -> (Self, Writer) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let writer =
            Writer { receiver, home, instance: instance.into(), now, written: HashMap::new(), last_stamp: i128::MIN };
        (Self { sender, dropped }, writer)
    }

    /// Takes an Event down; it is written later, if at all.
    pub fn record(&self, item: &Arc<Item>, severity: Severity, reason: &'static str, message: &str) {
        let occurrence = Occurrence { item: Arc::clone(item), severity, reason, message: clip(message, MESSAGE) };
        if self.sender.try_send(occurrence).is_err() {
            self.dropped.inc();
        }
    }

    /// The Events of one run.
    pub fn run(&self, item: Arc<Item>) -> RunEvents {
        RunEvents { recorder: self.clone(), item, groups: BTreeSet::new(), forced: 0 }
    }
}

/// Makes Kubernetes Events of the events of one run.
#[derive(Debug)]
pub struct RunEvents {
    recorder: Recorder,
    item: Arc<Item>,
    /// The groups whose deletion was said to be begun.
    groups: BTreeSet<usize>,
    /// From how many objects finalizers were removed by force.
    forced: usize,
}

impl RunEvents {
    /// Takes note of an event of the engine, which `progress` has seen already.
    pub fn see(&mut self, event: &Event, progress: &Progress) {
        match event {
            // An update begins its groups that prune as those that apply: the first DELETE tells them apart.
            Event::Deleting { node, .. } | Event::Gone { node, .. } => self.group(*node, progress),
            Event::Refused { node, .. } if progress.deletes() => self.group(*node, progress),
            Event::NodeFinished { node, status: Status::Done, objects, .. } if self.groups.contains(node) => {
                let message = format!("{}: {} gone", progress.place(*node), count(*objects, "object"));
                self.record(Severity::Normal, "DeletionGroupFinished", &message);
            }
            Event::FinalizersRemoved { object, finalizers, .. } => {
                self.forced += 1;
                if self.forced <= FORCED {
                    let message = format!("{} removed by force from {object}", list("finalizer", finalizers));
                    self.record(Severity::Warning, "FinalizersRemoved", &message);
                }
            }
            Event::Finished(summary) => {
                if self.forced > FORCED {
                    let more = count(self.forced - FORCED, "more object");
                    self.record(Severity::Warning, "FinalizersRemoved", &format!("removed by force from {more}"));
                }
                if matches!(summary.status, Status::TimedOut | Status::Failed) {
                    self.record(Severity::Warning, progress.reason(), &progress.message());
                }
            }
            _ => {}
        }
    }

    fn group(&mut self, node: usize, progress: &Progress) {
        if self.groups.insert(node) {
            let objects = count(progress.total(node), "object");
            let message = format!("{}: {objects} to delete", progress.place(node));
            self.record(Severity::Normal, "DeletionGroupStarted", &message);
        }
    }

    fn record(&self, severity: Severity, reason: &'static str, message: &str) {
        self.recorder.record(&self.item, severity, reason, message);
    }
}

/// Writes what recorders take down, one Event after the other.
pub struct Writer {
    receiver: mpsc::Receiver<Occurrence>,
    home: Cluster,
    instance: String,
    now: Now,
    written: HashMap<Occurrence, Written>,
    /// The time in the last name, in nanoseconds.
    last_stamp: i128,
}

/// An Event that was written.
#[derive(Clone, Debug)]
struct Written {
    name: String,
    count: u32,
    at: Instant,
}

impl Writer {
    /// Writes until the last recorder is gone and all that was taken down is written.
    pub async fn run(mut self) {
        while let Some(occurrence) = self.receiver.recv().await {
            if let Err(error) = self.write(occurrence).await {
                tracing::debug!(error = %error.message(), "an Event was not written");
            }
        }
    }

    async fn write(&mut self, occurrence: Occurrence) -> Result<(), Error> {
        let now = (self.now)();
        if let Some(written) = self.written.get_mut(&occurrence).filter(|written| written.at.elapsed() < SAME) {
            (written.count, written.at) = (written.count.saturating_add(1), Instant::now());
            let key = ObjectKey::new(resource().kind, Some(&occurrence.item.namespace), &written.name);
            let body = json!({ "count": written.count, "lastTimestamp": seconds(now) });
            let patch = Patch { subresource: None, kind: PatchKind::Merge, body: &body };
            // The API server forgets Events after an hour: then it is written anew.
            if self.home.patch(&resource(), &key, &patch).await?.is_some() {
                return Ok(());
            }
        }
        let name = self.name(&occurrence.item.name, now);
        let event = self.event(&occurrence, &name, now).to_string();
        match self.home.create(&resource(), Some(&occurrence.item.namespace), &event).await {
            // The answer to an earlier try was lost.
            Err(error) if error.code() != Some(409) => return Err(error),
            _ => {}
        }
        if self.written.len() >= REMEMBERED {
            self.written.retain(|_, written| written.at.elapsed() < SAME);
        }
        if self.written.len() < REMEMBERED {
            self.written.insert(occurrence, Written { name, count: 1, at: Instant::now() });
        }
        Ok(())
    }

    /// A name as `client-go` makes it: that of the object, and the time in nanoseconds, which never comes twice.
    fn name(&mut self, item: &str, now: Timestamp) -> String {
        self.last_stamp = now.as_nanosecond().max(self.last_stamp.saturating_add(1));
        let stamp = format!("{:016x}", self.last_stamp);
        // 253 bytes are the most that a name may have; that of an item is ASCII.
        let item = clip_name(item, 252 - stamp.len());
        format!("{item}.{stamp}")
    }

    fn event(&self, occurrence: &Occurrence, name: &str, now: Timestamp) -> serde_json::Value {
        let Occurrence { item, severity, reason, message } = occurrence;
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": item.namespace },
            "involvedObject": {
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "DeployItem",
                "namespace": item.namespace,
                "name": item.name,
                "uid": item.uid,
            },
            "type": match severity { Severity::Normal => "Normal", Severity::Warning => "Warning" },
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": seconds(now),
            "lastTimestamp": seconds(now),
            "source": { "component": FIELD_MANAGER },
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": self.instance,
        })
    }
}

fn clip_name(name: &str, most: usize) -> &str {
    name.get(..most).unwrap_or(name).trim_end_matches(['.', '-'])
}

/// Kubernetes' `Time` has whole seconds.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

fn resource() -> Resource {
    let kind = GroupKind::new("", "Event");
    Resource { kind, version: "v1".to_owned(), plural: "events".to_owned(), namespaced: true }
}

#[cfg(test)]
mod tests;
