//! The API server's audit log, which counts the requests of each client independently of the clients.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use billhook_testkit::control_plane::Options;
use jiff::Timestamp;
use serde::Deserialize;

use crate::workload::Kind;
use crate::{controller, floor};

/// The policy of the log: one event per request, and another one at the start of a watch.
const POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

/// The clients whose requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Floor,
    /// Any unknown client, so that nothing is assumed about the user agent of billhook.
    Billhook,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "auditID")]
    id: String,
    verb: String,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
    response_status: Option<Status>,
}

#[derive(Debug, Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
}

#[derive(Debug, Deserialize)]
struct Status {
    code: Option<u16>,
}

impl Event {
    fn is_by(&self, sender: Sender) -> bool {
        let agent = &self.user_agent;
        match sender {
            Sender::Floor => agent == floor::AGENT,
            Sender::Billhook => !["billhook-bench", "kube-", "kubectl"].iter().any(|known| agent.starts_with(known)),
        }
    }

    fn resource(&self) -> &str {
        self.object_ref.as_ref().map_or("", |object| &object.resource)
    }
}

/// The audit log of a running API server.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    read: u64,
}

impl Log {
    /// Creates the files in `folder`, and the flags with which an API server writes the log.
    pub(crate) fn prepare(folder: &Path, options: Options) -> Result<(Self, Options)> {
        let (policy, path) = (folder.join("audit-policy.yaml"), folder.join("audit.log"));
        std::fs::write(&policy, POLICY).context("failed to write an audit policy")?;
        let options = options
            .api_server_flag(format!("--audit-policy-file={}", policy.display()))
            .api_server_flag(format!("--audit-log-path={}", path.display()))
            .api_server_flag("--audit-log-maxsize=4000");
        Ok((Self { path, read: 0 }, options))
    }

    /// Starts a new section after all events so far.
    pub(crate) fn skip(&mut self) -> Result<()> {
        self.read = std::fs::metadata(&self.path).context("failed to find the audit log")?.len();
        Ok(())
    }

    /// Reads the requests since the start of the section.
    pub(crate) fn section(&self) -> Result<Section> {
        let mut file = File::open(&self.path).context("failed to open the audit log")?;
        file.seek(SeekFrom::Start(self.read)).context("failed to read the audit log")?;
        let mut events = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line.context("failed to read the audit log")?;
            events.push(serde_json::from_str(&line).with_context(|| format!("failed to parse {line}"))?);
        }
        Ok(Section(events))
    }
}

/// A section of the log.
#[derive(Debug)]
pub(crate) struct Section(Vec<Event>);

impl Section {
    /// Counts the requests by verb, including rejected ones.
    pub(crate) fn count(&self, sender: Sender) -> BTreeMap<String, u64> {
        let mut seen = HashSet::new();
        let mut counts = BTreeMap::new();
        for event in self.0.iter().filter(|event| event.is_by(sender) && seen.insert(event.id.as_str())) {
            *counts.entry(event.verb.clone()).or_default() += 1;
        }
        counts
    }

    /// Counts the requests by verb and resource; those of subresources count for their resource.
    pub(crate) fn by_resource(&self, sender: Sender) -> BTreeMap<(String, String), u64> {
        let mut seen = HashSet::new();
        let mut counts = BTreeMap::new();
        for event in self.0.iter().filter(|event| event.is_by(sender) && seen.insert(event.id.as_str())) {
            *counts.entry((event.verb.clone(), event.resource().to_owned())).or_default() += 1;
        }
        counts
    }

    /// Returns the milliseconds from the response to the request that removed the last object of a kind until the first
    /// DELETE of the next kind was received.
    pub(crate) fn gaps(&self, sender: Sender) -> Vec<f64> {
        let mut ends: HashMap<&str, Timestamp> = HashMap::new();
        let mut begins: HashMap<&str, Timestamp> = HashMap::new();
        for event in &self.0 {
            let good = event.response_status.as_ref().and_then(|status| status.code).is_some_and(|code| code < 300);
            if event.verb == "patch" && event.user_agent == controller::AGENT && good {
                let end = ends.entry(event.resource()).or_insert(event.stage_timestamp);
                *end = event.stage_timestamp.max(*end);
            } else if event.verb == "delete" && event.is_by(sender) {
                let begin = begins.entry(event.resource()).or_insert(event.request_received_timestamp);
                *begin = event.request_received_timestamp.min(*begin);
            }
        }
        let pairs = Kind::CUSTOM.windows(2).filter_map(|pair| {
            let (end, begin) = (ends.get(pair.first()?.plural())?, begins.get(pair.last()?.plural())?);
            Some(begin.duration_since(*end).as_secs_f64() * 1000.0)
        });
        pairs.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str, verb: &str, agent: &str, resource: &str, from: u32, to: u32) -> Event {
        let time = |at: u32| format!("2026-11-21T00:00:00.{at:06}Z").parse().unwrap();
        Event {
            id: id.to_owned(),
            verb: verb.to_owned(),
            user_agent: agent.to_owned(),
            object_ref: Some(ObjectRef { resource: resource.to_owned() }),
            request_received_timestamp: time(from),
            stage_timestamp: time(to),
            response_status: Some(Status { code: Some(200) }),
        }
    }

    #[test]
    fn a_watch_counts_once_and_others_do_not_count() {
        let section = Section(vec![
            event("1", "watch", "", "configmaps", 0, 1),
            event("1", "watch", "", "configmaps", 0, 9),
            event("2", "delete", "", "configmaps", 2, 3),
            event("3", "list", "kube-controller-manager/v1.36.3", "configmaps", 2, 3),
            event("4", "delete", floor::AGENT, "configmaps", 2, 3),
        ]);
        let counts = |sender| section.count(sender).into_iter().collect::<Vec<_>>();
        assert_eq!(counts(Sender::Billhook), [("delete".to_owned(), 1), ("watch".to_owned(), 1)]);
        assert_eq!(counts(Sender::Floor), [("delete".to_owned(), 1)]);
    }

    #[test]
    fn a_gap_is_from_the_last_finalizer_to_the_first_delete_of_the_next_kind() {
        let section = Section(vec![
            event("1", "delete", "", "alphas", 0, 1_000),
            event("2", "patch", controller::AGENT, "alphas", 500_000, 502_000),
            event("3", "patch", controller::AGENT, "alphas", 499_000, 501_000),
            event("4", "delete", "", "betas", 506_000, 507_000),
            event("5", "delete", "", "betas", 505_000, 508_000),
        ]);
        let gaps = section.gaps(Sender::Billhook);
        assert_eq!(gaps.len(), 1);
        assert!((gaps[0] - 3.0).abs() < 1e-9, "{gaps:?}");
    }
}
