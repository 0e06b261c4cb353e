//! What a watched payload logs: one function for each event, with its text.

use std::{ffi::OsStr, time::Duration};

use billhook_cluster::LeaseOptions;
use billhook_policy::GoDuration;
use serde_json::json;
use tokio::time::Instant;

use super::{
    machine::{QUIET, StopWhy, Why},
    metrics::PassResult,
};
use crate::{
    commands::payload::apply::{args::PayloadApplyArgs, pass::Tally},
    log::Log,
    render::{count, duration},
};

/// The log of a watched payload.
pub(super) struct Journal {
    log: Log,
    folder: String,
    version: String,
    /// The Lease, as `namespace/name`.
    lease: String,
}

/// A pass that has ended.
pub(super) struct Ended {
    pub(super) number: u64,
    pub(super) since: Instant,
    pub(super) result: PassResult,
    pub(super) tally: Tally,
    /// How many objects are being deleted.
    pub(super) deleting: usize,
    /// How long it takes until the next pass starts, if one is due.
    pub(super) next: Option<Duration>,
}

impl Journal {
    pub(super) fn new(log: Log, args: &PayloadApplyArgs, lease: &LeaseOptions) -> Self {
        let folder = args.folder.display().to_string();
        Self { log, folder, version: args.version.clone(), lease: format!("{}/{}", lease.namespace, lease.name) }
    }

    pub(super) fn serving(&self, url: &str) {
        self.log.say("watch-serving", json!({"url": url}), &format!("serving /metrics and /healthz at {url}"));
    }

    pub(super) fn started(&self, interval: Duration) {
        let (Self { folder, version, .. }, every) = (self, GoDuration(interval));
        let what = format!("watching {folder} for changes, and reconciling {version} every {every}");
        let fields = json!({"version": version, "interval": every});
        self.log.say("watch-started", fields, &format!("{what}; press Ctrl-C to stop"));
    }

    pub(super) fn stopping(&self, pass: u64) {
        self.log.say("watch-stopping", json!({}), &format!("stopping: waiting for pass {}", pass + 1));
    }

    pub(super) fn stopped(&self) {
        self.log.say("watch-ended", json!({}), "stopped");
    }

    pub(super) fn leads(&self) {
        self.log.say("watch-leading", json!({}), &format!("leading (Lease {})", self.lease));
    }

    pub(super) fn leads_no_longer(&self) {
        let why = format!("Lease {} could not be renewed in time, or another process took it over", self.lease);
        self.log.warn("watch-not-leading", json!({}), &format!("no longer leading: {why}"));
    }

    /// Tells that the folder cannot be used, and what happens meanwhile.
    pub(super) fn unusable(&self, problem: &str, meanwhile: &str) {
        let text = format!("{} cannot be used: {problem}; {meanwhile}", self.folder);
        self.log.warn("folder-unusable", json!({"problem": problem}), &text);
    }

    pub(super) fn usable(&self) {
        let text = format!("{} can be used again, and is as it was before", self.folder);
        self.log.say("folder-usable", json!({}), &text);
    }

    pub(super) fn pass_started(&self, number: u64, manifests: usize, why: Why) {
        let (pass, manifests, version) = (number + 1, count(manifests, "manifest"), &self.version);
        let text = format!("pass {pass}: {manifests} of {version}, because {}", self.why(why));
        self.log.say("pass-started", json!({"pass": pass, "version": version}), &text);
    }

    pub(super) fn pass_stopped(&self, number: u64, why: StopWhy) {
        let why = match why {
            StopWhy::Changed => self.why(Why::Changed),
            StopWhy::Lost => "this process no longer leads".to_owned(),
        };
        let pass = number + 1;
        self.log.say("pass-stopped", json!({"pass": pass}), &format!("pass {pass} is stopped: {why}"));
    }

    fn why(&self, why: Why) -> String {
        match why {
            Why::Leading => "this process leads".to_owned(),
            Why::Changed => format!("{} has changed", self.folder),
            Why::Interval => "the interval is over".to_owned(),
            Why::Retry => "the last pass failed".to_owned(),
            Why::Gone => "the objects to be deleted are gone".to_owned(),
        }
    }

    pub(super) fn pass_ended(&self, ended: &Ended) {
        let Ended { number, since, result, tally, deleting, next } = ended;
        let mut text = format!("pass {} {} after {}", number + 1, result.name(), duration(since.elapsed()));
        if *deleting > 0 {
            let be = if *deleting == 1 { "is" } else { "are" };
            text += &format!("; {} {be} being deleted", count(*deleting, "object"));
        }
        if let Some(pause) = next {
            text += &format!("; the next pass follows in {} at the latest", duration(*pause));
        }
        let fields = json!({
            "pass": number + 1,
            "result": result.name(),
            "succeeded": tally.succeeded,
            "failed": tally.failed,
            "notRun": tally.not_run,
            "deletionsPending": deleting,
        });
        match result {
            PassResult::Failed => self.log.warn("pass-ended", fields, &text),
            PassResult::Done | PassResult::Stopped => self.log.say("pass-ended", fields, &text),
        }
    }
}

/// The problem of a folder that is not read because its files keep changing.
pub(super) fn keeps_changing(last: Option<&OsStr>) -> String {
    let last = last.map(|name| format!(" (the last one is {})", name.display())).unwrap_or_default();
    let quiet = GoDuration(QUIET);
    format!("its files keep changing{last}; it is read once nothing in it has changed for {quiet}")
}
