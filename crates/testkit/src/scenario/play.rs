//! Plays a scenario: what is given, then step by step, each call in-process through the very program.

use std::collections::BTreeSet;

use anyhow::{Context as _, Error, Result, anyhow, ensure};
use billhook_sandbox::actors;

use super::{
    Admin, Deed, Expect, Lab, Scenario, Step, admin::parse_key, call::check_time, observe::Observer, stage::Stage,
};

/// Plays a scenario.
///
/// # Errors
///
/// When anything comes out otherwise than the file says: the error names the step and shows what was printed.
pub fn play(scenario: &Scenario, lab: &Lab) -> Result<()> {
    lab.block_on(scenario, async {
        let stage = Stage::set(scenario, lab).await?;
        let before = stage.everything().await?;
        stage.steps().await?;
        let after = stage.everything().await?;
        let (new, lost): (Vec<_>, Vec<_>) = (after.difference(&before).collect(), before.difference(&after).collect());
        ensure!(new.is_empty() && lost.is_empty(), "left behind: {new:#?}; lost: {lost:#?}");
        Ok(())
    })
}

impl Step {
    /// What is done in it.
    pub(super) fn title(&self) -> String {
        match (&self.billhook, &self.deploy_item) {
            (Some(line), _) => line.clone(),
            (None, Some(deed)) => format!("DeployItem: {deed}"),
            (None, None) => "no call".to_owned(),
        }
    }
}

fn late(step: &Step) -> Error {
    anyhow!("it had not ended after {:?}", step.within)
}

impl Stage<'_> {
    /// What is there, where it matters.
    async fn everything(&self) -> Result<BTreeSet<String>> {
        if !self.scenario.leaves_nothing {
            return Ok(BTreeSet::new());
        }
        Ok(self.admin.everything().await?.keys().map(ToString::to_string).collect())
    }

    /// Plays all steps.
    pub(super) async fn steps(&self) -> Result<()> {
        for (index, step) in self.scenario.steps.iter().enumerate() {
            let what = || format!("step {} ({})", index + 1, step.title());
            self.step(step).await.with_context(what)?;
        }
        Ok(())
    }

    async fn step(&self, step: &Step) -> Result<()> {
        self.begin(step).await?;
        if let Some(transcript) = &step.console {
            self.console(transcript).await?;
        }
        let ordered = [&step.expect.gone, &step.expect.appeared];
        let observed = ordered.into_iter().flatten().flatten().flatten();
        let observer = Observer::start(&self.admin, observed).await?;
        match (&step.billhook, &step.deploy_item) {
            (Some(line), _) => self.called(step, line, &observer).await,
            (None, Some(deed)) => {
                let done = self.done(step, deed, &observer).await;
                match done {
                    Ok(()) => Ok(()),
                    Err(error) => Err(error.context(self.shown(deed).await)),
                }
            }
            (None, None) => self.after(&step.expect).await,
        }
    }

    /// Makes the call of a step, and sees what comes of it.
    async fn called(&self, step: &Step, line: &str, observer: &Observer) -> Result<()> {
        let called = tokio::time::timeout(step.within, self.call(step, line, "billhook")).await;
        let called = called.map_err(|_| late(step))??;
        let checked = async {
            called.check(&step.expect, line)?;
            self.observed(observer, &step.expect).await
        };
        checked.await.with_context(|| format!("after {}", called.shown()))
    }

    /// Does what a step says with a DeployItem, and sees what comes of it.
    async fn done(&self, step: &Step, deed: &Deed, observer: &Observer) -> Result<()> {
        let done = tokio::time::timeout(step.within, self.deed(step, deed)).await.map_err(|_| late(step))??;
        self.check_item(&step.expect, deed, &done).await?;
        check_time(&step.expect, done.took)?;
        self.observed(observer, &step.expect).await
    }

    /// What happened in a step, and what the cluster holds after it.
    async fn observed(&self, observer: &Observer, expect: &Expect) -> Result<()> {
        if let Some(groups) = &expect.gone {
            observer.check(groups, &self.scenario.slug).await?;
        }
        if let Some(groups) = &expect.appeared {
            observer.check_births(groups).await?;
        }
        self.after(expect).await
    }

    /// What the cluster holds after a step.
    pub(super) async fn after(&self, expect: &Expect) -> Result<()> {
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
