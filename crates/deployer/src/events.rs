//! The Kubernetes Events of a DeployItem, as `kubectl describe di` shows them.
//!
//! They are `v1` Events and are written asynchronously: a [`Recorder`] sends them to the only [`Writer`] over a bounded
//! channel. Events that find the channel full are dropped and counted; those that the API server rejects are dropped too.
//! This needs the permissions `create` and `patch` for `events` in the namespaces of the items.
//!
//! | type | reason | when |
//! |---|---|---|
//! | Normal | `DeletionGroupStarted` | the objects of a group are being deleted, by a deletion or by an update that prunes |
//! | Normal | `DeletionGroupFinished` | all objects of the group are gone |
//! | Warning | `FinalizersRemoved` | finalizers were removed by force: which, from which object |
//! | Warning | `TimedOut` | the time limit was reached: what remains, and why |
//! | Warning | the code of a note on the plan, such as `ForeignObjects` | the plan has such a note, a dangerous one or a warning |
//! | Warning | `Failed` | a request or an object failed: what remains, and why |

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use billhook_cluster::{Cluster, Error, Patch, PatchKind};
use billhook_engine::{Event, Status};
use billhook_objects::{GroupKind, ObjectKey, wellknown::FIELD_MANAGER};
use billhook_plan::{
    Resource,
    text::{count, list},
};
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    api::{DeployItem, GROUP, VERSION},
    progress::ItemProgress,
    text::{clip, one_line},
};

/// How many Events can wait to be written.
const CAPACITY: usize = 1024;
/// For how long a repeated Event increases the count of the first one, as in `client-go`.
const SAME: Duration = Duration::from_secs(600);
/// How many Events are remembered for that.
const REMEMBERED: usize = 4096;
/// For how many objects a run names the finalizers removed by force; the others are counted.
const FORCED: usize = 10;
/// The longest message that `events.k8s.io/v1` allows, in bytes.
const MESSAGE: usize = 1024;

/// Returns the time of day, for the timestamps of Events.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The DeployItem that an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, which `kubectl describe` selects Events by.
    pub uid: String,
}

impl From<&DeployItem> for Item {
    fn from(item: &DeployItem) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let metadata = &item.metadata;
        Self { namespace: text(&metadata.namespace), name: text(&metadata.name), uid: text(&metadata.uid) }
    }
}

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Something that is expected.
    Normal,
    /// Something that may need attention.
    Warning,
}

/// What happened to which item. Equal occurrences share an Event, which counts them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Occurrence {
    item: Arc<Item>,
    severity: Severity,
    reason: Cow<'static, str>,
    message: String,
}

/// Sends Events to the writer. Clones share the channel.
#[derive(Clone, Debug)]
pub struct Recorder {
    sender: mpsc::Sender<Occurrence>,
    dropped: Counter,
}

impl Recorder {
    /// Creates a recorder, and the writer for `home`, the cluster of the items. `instance` identifies this process; `dropped`
    /// counts the Events that found the channel full.
    pub fn new(home: Cluster, instance: impl Into<String>, now: Now, dropped: Counter) -> (Self, Writer) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let writer =
            Writer { receiver, home, instance: instance.into(), now, written: HashMap::new(), last_stamp: i128::MIN };
        (Self { sender, dropped }, writer)
    }

    /// Sends an Event to the writer, or drops it when the channel is full.
    pub fn record(&self, item: &Arc<Item>, severity: Severity, reason: impl Into<Cow<'static, str>>, message: &str) {
        let (reason, message) = (reason.into(), clip(&one_line(message), MESSAGE));
        let occurrence = Occurrence { item: Arc::clone(item), severity, reason, message };
        if self.sender.try_send(occurrence).is_err() {
            self.dropped.inc();
        }
    }

    /// Returns a recorder for the events of one run.
    pub fn run(&self, item: Arc<Item>) -> RunEvents {
        RunEvents { recorder: self.clone(), item, groups: BTreeSet::new(), forced: 0 }
    }
}

/// Turns the engine's events of one run into Kubernetes Events.
#[derive(Debug)]
pub struct RunEvents {
    recorder: Recorder,
    item: Arc<Item>,
    /// The groups with an Event `DeletionGroupStarted`.
    groups: BTreeSet<usize>,
    /// How many objects had finalizers removed by force.
    forced: usize,
}

impl RunEvents {
    /// Records the Kubernetes Events that follow from an event which `progress` already contains.
    pub fn event(&mut self, event: &Event, progress: &ItemProgress) {
        match event {
            // In an update, only the first DELETE shows that a group prunes.
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

    fn group(&mut self, node: usize, progress: &ItemProgress) {
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

/// Writes the Events of all recorders, one after the other.
pub struct Writer {
    receiver: mpsc::Receiver<Occurrence>,
    home: Cluster,
    instance: String,
    now: Now,
    written: HashMap<Occurrence, Written>,
    /// The timestamp in the last name, in nanoseconds.
    last_stamp: i128,
}

/// An Event that was written before.
#[derive(Clone, Debug)]
struct Written {
    name: String,
    count: u32,
    at: Instant,
}

impl Writer {
    /// Writes until the last recorder is dropped and every recorded Event is written.
    pub async fn run(mut self) {
        while let Some(occurrence) = self.receiver.recv().await {
            if let Err(error) = self.write(occurrence).await {
                // The server's message may quote the Event.
                tracing::debug!(code = error.code(), "failed to write an Event");
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
            // The API server deletes Events after an hour; then a new one is created.
            if self.home.patch(&resource(), &key, &patch).await?.is_some() {
                return Ok(());
            }
        }
        let name = self.name(&occurrence.item.name, now);
        let event = self.event(&occurrence, &name, now).to_string();
        match self.home.create(&resource(), Some(&occurrence.item.namespace), &event).await {
            // 409: an earlier attempt succeeded, but its response was lost.
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

    /// Returns a name as `client-go` generates it: that of the item, and a unique timestamp in nanoseconds.
    fn name(&mut self, item: &str, now: Timestamp) -> String {
        self.last_stamp = now.as_nanosecond().max(self.last_stamp.saturating_add(1));
        let stamp = format!("{:016x}", self.last_stamp);
        // A name has at most 253 bytes, and that of an item is ASCII.
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

/// Formats a time like Kubernetes' `Time`, in whole seconds.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

fn resource() -> Resource {
    let kind = GroupKind::new("", "Event");
    Resource { kind, version: "v1".to_owned(), plural: "events".to_owned(), namespaced: true }
}

#[cfg(test)]
mod tests;
