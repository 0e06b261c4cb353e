//! The counted runs of the real payload.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;

use super::{Payload, Selected};
use crate::audit::{Log, Sender};
use crate::cases::{Case, Sizes};
use crate::counting::{own_count, section};
use crate::lab::Lab;
use crate::progress;
use crate::samples::{Contender, Samples};

/// Counts the requests of an installation, and of an apply that changes nothing.
pub(crate) async fn count(
    lab: &Lab,
    log: &mut Log,
    selected: &[Case],
    sizes: &Sizes,
    program: &Path,
    samples: &mut Samples,
) -> Result<()> {
    let chosen = Selected::of(selected);
    if let Some(real) = chosen.prepare_real(lab, program, samples).await? {
        let cases = [Some(Case::PayloadInstall), Some(Case::PayloadUnchanged)];
        of_payload(lab, log, program, &real, cases, samples).await?;
    }
    if selected.contains(&Case::PayloadMany) {
        let large = Payload::large(lab, program, sizes).await?;
        of_payload(lab, log, program, &large, [Some(Case::PayloadMany), None], samples).await?;
    }
    Ok(())
}

async fn of_payload(
    lab: &Lab,
    log: &mut Log,
    program: &Path,
    payload: &Payload,
    cases: [Option<Case>; 2],
    samples: &mut Samples,
) -> Result<()> {
    progress(&format!("counting the requests of {}", payload.name));
    for case in cases.into_iter().flatten() {
        let mut args = payload.apply();
        args.extend(["-o", "json"].map(OsString::from));
        log.skip()?;
        match lab.billhook(program, args, false).await {
            Ok(ended) => {
                let (section, own) = (section(log).await?, own_count(&ended.stdout));
                samples.count_of(case, Contender::Billhook, &section, Sender::Billhook, own);
            }
            Err(error) => samples.fail(format!("{} (counted): {error:#}", payload.name)),
        }
    }
    lab.billhook(program, payload.delete(), false).await.map(drop)
}
