//! The counted runs: not timed, with a separate control plane that writes an audit log.
//!
//! The log slows down the API server, so only times in the log itself are used here.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use billhook_testkit::control_plane::Options as PlaneOptions;
use serde_json::Value;

use crate::audit::{Log, Section, Sender};
use crate::cases::{Case, Flow, Sizes};
use crate::floor::{self, Action, Method};
use crate::lab::Lab;
use crate::samples::{Contender, Gap, Samples};
use crate::timing::Release;
use crate::workload::{self, Set};
use crate::{clean, payload, progress};

/// The number of runs of the ordered case for the gaps between its groups.
const GAP_RUNS: u32 = 3;

/// The time until the log is complete: a request is logged after its response, and a watch when its connection is closed.
const LOG_LAG: Duration = Duration::from_millis(500);

/// Runs the floor and billhook once each.
pub(crate) async fn run(
    selected: &[Case],
    sizes: &Sizes,
    billhook: Option<&Path>,
    samples: &mut Samples,
) -> Result<()> {
    let folder = tempfile::tempdir().context("failed to create a temporary folder")?;
    let (log, options) = Log::prepare(folder.path(), PlaneOptions::default())?;
    let lab = Lab::start(&options, false).await?;
    let mut counting = Counting { lab: &lab, log, samples };
    for flow in [Flow::Together, Flow::Spread, Flow::Ordered, Flow::Many, Flow::FewAlone, Flow::FewAmong] {
        if !flow.is_needed(selected) {
            continue;
        }
        progress(&format!("counting the requests of {}", flow.set(sizes).name));
        counting.flow(flow, sizes, billhook).await?;
    }
    let Counting { mut log, .. } = counting;
    if let Some(program) = billhook {
        clean::count(&lab, &mut log, selected, sizes, program, samples).await?;
        payload::count(&lab, &mut log, selected, sizes, program, samples).await?;
    }
    samples.counts.retain(|count| selected.contains(&count.case));
    Ok(())
}

/// Reads the requests since the start of a section, once the log is complete.
pub(crate) async fn section(log: &Log) -> Result<Section> {
    tokio::time::sleep(LOG_LAG).await;
    log.section()
}

struct Counting<'a> {
    lab: &'a Lab,
    log: Log,
    samples: &'a mut Samples,
}

impl Counting<'_> {
    async fn flow(&mut self, flow: Flow, sizes: &Sizes, billhook: Option<&Path>) -> Result<()> {
        let set = flow.set(sizes);
        let lab = self.lab;
        lab.prepare(&set).await?;
        if flow == Flow::FewAmong {
            floor::create(&lab.client, &Flow::others(sizes), Method::Post).await?;
        }
        let mut controller = None;
        if flow == Flow::Ordered {
            lab.define(workload::definitions()).await?;
            controller = Some(lab.controller().await?);
        }
        let runs = if flow == Flow::Ordered { GAP_RUNS } else { 1 };
        for run in 0..runs {
            self.floor(flow, &set, run == 0).await?;
            let Some(program) = billhook else { continue };
            if let Err(error) = self.billhook(program, flow, &set, run).await {
                self.samples.fail(format!("{} (counted): {error:#}", set.name));
                floor::delete(&lab.client, &set).await?;
            }
        }
        drop(controller);
        Ok(())
    }

    async fn floor(&mut self, flow: Flow, set: &Set, first: bool) -> Result<()> {
        let [create, _, delete] = flow.cases();
        let actions = [(create, Action::Create { method: Method::Patch }), (delete, Action::Delete)];
        for (case, action) in actions {
            self.log.skip()?;
            self.lab.floor(action, set, false).await?;
            let section = self.section().await?;
            if first {
                self.count(case, Contender::Floor, &section, Sender::Floor, None);
            }
            self.gaps(Contender::Floor, &section, Sender::Floor);
        }
        Ok(())
    }

    async fn billhook(&mut self, program: &Path, flow: Flow, set: &Set, run: u32) -> Result<()> {
        let [create, unchanged, delete] = flow.cases();
        let release = Release::of(self.lab, flow, set, format!("{}-{run}", set.name))?;
        let mut calls = vec![(create, release.apply())];
        if unchanged.is_some() {
            calls.push((unchanged, release.apply()));
        }
        calls.push((delete, release.delete()));
        for (case, mut args) in calls {
            args.extend(["-o", "json"].map(OsString::from));
            self.log.skip()?;
            let ended = self.lab.billhook(program, args, false).await?;
            let section = self.section().await?;
            if run == 0 {
                self.count(case, Contender::Billhook, &section, Sender::Billhook, own_count(&ended.stdout));
            }
            self.gaps(Contender::Billhook, &section, Sender::Billhook);
        }
        Ok(())
    }

    async fn section(&self) -> Result<Section> {
        section(&self.log).await
    }

    fn count(&mut self, case: Option<Case>, contender: Contender, section: &Section, sender: Sender, own: Option<u64>) {
        if let Some(case) = case {
            self.samples.count_of(case, contender, section, sender, own);
        }
    }

    fn gaps(&mut self, contender: Contender, section: &Section, sender: Sender) {
        let gaps = section.gaps(sender).into_iter().map(|milliseconds| Gap { contender, milliseconds });
        self.samples.gaps.extend(gaps);
    }
}

/// Returns the number of requests in the final summary, which is a number or numbers by verb.
pub(crate) fn own_count(stdout: &str) -> Option<u64> {
    let last = stdout.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok())?;
    let requests = find(&last, "requests")?;
    match requests {
        Value::Object(by_verb) => match by_verb.get("total") {
            Some(total) => total.as_u64(),
            None => Some(by_verb.values().filter_map(Value::as_u64).sum()),
        },
        number => number.as_u64(),
    }
}

/// Finds the first field of this name at any depth.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let object = value.as_object()?;
    object.get(name).or_else(|| object.values().find_map(|inner| find(inner, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_requests_as_a_number_or_by_verb() {
        assert_eq!(own_count("{\"event\":\"gone\"}\n{\"summary\":{\"requests\":7}}\n"), Some(7));
        assert_eq!(own_count("{\"requests\":{\"get\":1,\"delete\":10}}"), Some(11));
        assert_eq!(own_count("{\"requests\":{\"get\":1,\"total\":10}}"), Some(10));
        assert_eq!(own_count("deleted\n"), None);
    }
}
