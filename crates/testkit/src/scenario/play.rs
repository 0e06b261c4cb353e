//! Plays a scenario: what is given, then step by step, each call in-process through the very program.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, anyhow, ensure};
use billhook_sandbox::actors;

use super::{Admin, Expect, Lab, Scenario, Step, admin::parse_key, observe::Observer, stage::Stage};

/// Plays a scenario.
///
/// # Errors
///
/// When anything comes out otherwise than the file says: the error names the step and shows what was printed.
pub fn play(scenario: &Scenario, lab: &Lab) -> Result<()> {
    lab.block_on(scenario, async {
        let stage = Stage::set(scenario, lab).await?;
        let before = stage.everything().await?;
        for (index, step) in scenario.steps.iter().enumerate() {
            let what = || format!("step {} ({})", index + 1, step.billhook.as_deref().unwrap_or("no call"));
            stage.step(step).await.with_context(what)?;
        }
        let after = stage.everything().await?;
        let (new, lost): (Vec<_>, Vec<_>) = (after.difference(&before).collect(), before.difference(&after).collect());
        ensure!(new.is_empty() && lost.is_empty(), "left behind: {new:#?}; lost: {lost:#?}");
        Ok(())
    })
}

impl Stage<'_> {
    /// What is there, where it matters.
    async fn everything(&self) -> Result<BTreeSet<String>> {
        if !self.scenario.leaves_nothing {
            return Ok(BTreeSet::new());
        }
        Ok(self.admin.everything().await?.keys().map(ToString::to_string).collect())
    }

    async fn step(&self, step: &Step) -> Result<()> {
        self.begin(step).await?;
        if let Some(transcript) = &step.console {
            self.console(transcript).await?;
        }
        let Some(line) = &step.billhook else { return self.after(&step.expect).await };
        let ordered = [&step.expect.gone, &step.expect.appeared];
        let observed = ordered.into_iter().flatten().flatten().flatten();
        let observer = Observer::start(&self.admin, observed).await?;
        let called = tokio::time::timeout(step.within, self.call(step, line, "billhook"))
            .await
            .map_err(|_| anyhow!("it had not ended after {:?}", step.within))??;
        let checked = async {
            called.check(&step.expect, line)?;
            if let Some(groups) = &step.expect.gone {
                observer.check(groups, &self.scenario.slug).await?;
            }
            if let Some(groups) = &step.expect.appeared {
                observer.check_births(groups).await?;
            }
            self.after(&step.expect).await
        };
        checked.await.with_context(|| format!("after {}", called.shown()))
    }

    /// What the cluster holds after a step.
    async fn after(&self, expect: &Expect) -> Result<()> {
        self.there(&self.admin, &expect.stays, &expect.absent).await?;
        if let Some(second) = &self.second {
            self.there(second, &expect.stays_on_second, &expect.absent_on_second).await?;
        }
        for (object, wanted) in &expect.holds {
            let found = self.admin.get(&parse_key(object)?).await?;
            let found = serde_json::to_value(found.ok_or_else(|| anyhow!("{object} is not there"))?)?;
            ensure!(actors::holds(&found, wanted), "{object} should hold {wanted} and is {found:#}");
        }
        Ok(())
    }

    async fn there(&self, admin: &Admin, stays: &[String], absent: &[String]) -> Result<()> {
        for object in stays {
            ensure!(admin.any(&parse_key(object)?).await?, "{object} should be there and is not");
        }
        for object in absent {
            ensure!(!admin.any(&parse_key(object)?).await?, "{object} should not be there and is");
        }
        Ok(())
    }
}
