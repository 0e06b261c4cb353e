//! A run of the program: its input, its output and its exit code.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Result, anyhow, bail, ensure};
use billhook::{Cluster, World};
use tokio::time::Instant;

use super::{Expect, freeze::Freezer};

/// A command that is ready to run.
pub(super) struct Call {
    pub(super) world: World,
    pub(super) stdout: Shared,
    pub(super) stderr: Shared,
    pub(super) sent: Sent,
    pub(super) freezer: Freezer,
}

impl Call {
    /// Runs the command undisturbed.
    pub(super) async fn run(self) -> Called {
        let Self { world, stdout, stderr, sent, .. } = self;
        let begun = Instant::now();
        let exit = Box::pin(billhook::run(world)).await;
        let (requests, writes) = (sent.requests(), sent.writes());
        Called { exit, stdout: stdout.text(), stderr: stderr.text(), requests, writes, took: begun.elapsed() }
    }
}

/// The clusters of a command, which count its requests.
#[derive(Clone, Default)]
pub(super) struct Sent(Arc<Mutex<Vec<Cluster>>>);

impl Sent {
    pub(super) fn add(&self, cluster: Cluster) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(cluster);
    }

    /// Returns the number of requests by verb.
    pub(super) fn requests(&self) -> BTreeMap<&'static str, u64> {
        let mut sum = BTreeMap::new();
        for cluster in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for (verb, count) in cluster.requests().by_verb() {
                *sum.entry(verb).or_default() += count;
            }
        }
        sum
    }

    pub(super) fn writes(&self) -> u64 {
        let clusters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = clusters.iter().map(|cluster| cluster.requests());
        counts.map(|sent| sent.create + sent.update + sent.patch + sent.delete).sum()
    }
}

/// The result of a command.
pub(super) struct Called {
    pub(super) exit: u8,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// The number of requests by verb.
    pub(super) requests: BTreeMap<&'static str, u64>,
    /// The number of requests that write.
    pub(super) writes: u64,
    pub(super) took: Duration,
}

impl Called {
    pub(super) fn check(&self, expect: &Expect, line: &str) -> Result<()> {
        ensure!(self.exit == expect.exit, "exit code {} instead of {}", self.exit, expect.exit);
        let command = line.split_whitespace().next().unwrap_or_default();
        // `--diff` and `--probe` send dry runs.
        let looks = !line.contains(" --diff")
            && !line.contains(" --probe")
            && ["plan", "rehearse", "status", "list", "validate", "why"].contains(&command);
        let refused = expect.exit == 2 || expect.exit == 4;
        // Questions about the rights of others are POSTs, which nothing stores.
        let questions = if command == "why" { self.requests.get("create").copied().unwrap_or_default() } else { 0 };
        let writes = self.writes - questions;
        ensure!(writes == 0 || !(looks || refused), "{writes} requests that write, but nothing may be changed");
        for (name, text, wanted) in
            [("output", &self.stdout, &expect.stdout), ("error output", &self.stderr, &expect.stderr)]
        {
            for wanted in wanted {
                ensure!(text.contains(wanted.as_str()), "standard {name} does not contain {wanted:?}");
            }
        }
        for unwanted in &expect.silent {
            ensure!(!self.stdout.contains(unwanted) && !self.stderr.contains(unwanted), "{unwanted:?} was printed");
        }
        let requests: u64 = self.requests.values().sum();
        if let Some(most) = expect.requests_at_most {
            ensure!(requests <= most, "{requests} requests, at most {most} were allowed: {:?}", self.requests);
        }
        for (verb, most) in &expect.requests_of {
            let sent = self.requests.get(verb.as_str()).ok_or_else(|| anyhow!("{verb} is not a verb"))?;
            ensure!(sent <= most, "{sent} requests to {verb}, at most {most} were allowed: {:?}", self.requests);
        }
        check_time(expect, self.took)
    }

    pub(super) fn shown(&self) -> String {
        let Self { exit, stdout, stderr, requests, took, .. } = self;
        format!("exit {exit}, {requests:?}, {took:.1?}\n--- stdout\n{stdout}--- stderr\n{stderr}---")
    }
}

/// Checks a duration.
pub(super) fn check_time(expect: &Expect, took: Duration) -> Result<()> {
    if let Some(limit) = expect.at_most.filter(|limit| took > *limit) {
        bail!("it took {took:?}, longer than {limit:?}");
    }
    if let Some(limit) = expect.at_least.filter(|limit| took < *limit) {
        bail!("it took {took:?}, less than {limit:?}");
    }
    Ok(())
}

/// Splits a command line at spaces; '…' keeps words together.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// The output of a command, which can be read while it runs.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    /// Returns what was written so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
