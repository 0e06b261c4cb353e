//! The timed runs of payloads.

use std::path::Path;

use anyhow::Result;

use super::{Payload, Selected};
use crate::Options;
use crate::cases::{Case, Sizes};
use crate::lab::Lab;
use crate::samples::{Contender, Samples};
use crate::timing::settle;

/// The minimum number of runs of what takes only a few hundredths of a second.
const FEW_RUNS: u32 = 7;

/// Runs the floor and billhook in turn.
pub(crate) async fn time(
    lab: &Lab,
    options: &Options,
    selected: &[Case],
    sizes: &Sizes,
    program: &Path,
    samples: &mut Samples,
) -> Result<()> {
    let chosen = Selected::of(selected);
    if let Some(real) = chosen.prepare_real(lab, program, samples).await? {
        for run in 0..options.runs {
            floor(lab, &real, Case::PayloadInstall, run, samples).await?;
            let cases = [Some(Case::PayloadInstall), Some(Case::PayloadUnchanged)];
            attempt(lab, program, &real, cases, run, samples).await?;
        }
    }
    if chosen.large {
        let large = Payload::large(lab, program, sizes).await?;
        for run in 0..options.runs.max(FEW_RUNS) {
            settle().await;
            let ended = lab.billhook(program, large.plan(), false).await?;
            samples.take(Case::PayloadPlan, false, Contender::Billhook, run, &ended);
        }
        if selected.contains(&Case::PayloadMany) {
            for run in 0..options.runs.div_ceil(2) {
                floor(lab, &large, Case::PayloadMany, run, samples).await?;
                attempt(lab, program, &large, [Some(Case::PayloadMany), None], run, samples).await?;
            }
        }
    }
    samples.times.retain(|sample| selected.contains(&sample.case));
    Ok(())
}

async fn floor(lab: &Lab, payload: &Payload, case: Case, run: u32, samples: &mut Samples) -> Result<()> {
    settle().await;
    let ended = lab.floor_of(&payload.file).await?;
    samples.take(case, false, Contender::Floor, run, &ended);
    payload.graph.exists(&lab.client).await?;
    payload.graph.delete(&lab.client).await
}

/// Runs billhook; a failure is noted, and what it left is deleted.
async fn attempt(
    lab: &Lab,
    program: &Path,
    payload: &Payload,
    cases: [Option<Case>; 2],
    run: u32,
    samples: &mut Samples,
) -> Result<()> {
    if let Err(error) = billhook(lab, program, payload, cases, run, samples).await {
        samples.fail(format!("{} (run {}): {error:#}", payload.name, run + 1));
    }
    lab.billhook(program, payload.delete(), false).await?;
    payload.graph.delete(&lab.client).await
}

/// Installs a payload, and applies it again.
async fn billhook(
    lab: &Lab,
    program: &Path,
    payload: &Payload,
    cases: [Option<Case>; 2],
    run: u32,
    samples: &mut Samples,
) -> Result<()> {
    for case in cases.into_iter().flatten() {
        settle().await;
        let ended = lab.billhook(program, payload.apply(), false).await?;
        samples.take(case, false, Contender::Billhook, run, &ended);
        payload.graph.exists(&lab.client).await?;
    }
    Ok(())
}
