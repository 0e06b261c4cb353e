//! Plays a scenario: creates the given objects, then plays each step, with commands in-process through the real program.

use std::collections::BTreeSet;

use anyhow::{Context as _, Error, Result, anyhow, ensure};
use billhook_sandbox::actors;

use super::{
    Admin, Expect, ItemAction, Lab, Scenario, Step, admin::parse_key, call::check_time, observe::Observer, stage::Stage,
};

/// Plays a scenario.
///
/// # Errors
///
/// Fails if any result differs from the file: the error names the step and shows the output.
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
    /// Returns the text of its action.
    pub(super) fn title(&self) -> String {
        match (&self.billhook, &self.deploy_item) {
            (Some(line), _) => line.clone(),
            (None, Some(action)) => format!("DeployItem: {action}"),
            (None, None) => "no call".to_owned(),
        }
    }
}

fn late(step: &Step) -> Error {
    anyhow!("it did not end within {:?}", step.within)
}

impl Stage<'_> {
    /// Returns the objects of the control plane, if the scenario compares them.
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
            (None, Some(action)) => {
                let done = self.done(step, action, &observer).await;
                match done {
                    Ok(()) => Ok(()),
                    Err(error) => Err(error.context(self.shown(action).await)),
                }
            }
            (None, None) => self.after(&step.expect).await,
        }
    }

    /// Runs the command of a step, and checks its result.
    async fn called(&self, step: &Step, line: &str, observer: &Observer) -> Result<()> {
        let called = tokio::time::timeout(step.within, self.call(step, line, "billhook")).await;
        let called = called.map_err(|_| late(step))??;
        let checked = async {
            called.check(&step.expect, line)?;
            self.observed(observer, &step.expect).await
        };
        checked.await.with_context(|| format!("after {}", called.shown()))
    }

    /// Performs the action of a step on a DeployItem, and checks its result.
    async fn done(&self, step: &Step, action: &ItemAction, observer: &Observer) -> Result<()> {
        let done = tokio::time::timeout(step.within, self.action(step, action)).await.map_err(|_| late(step))??;
        self.check_item(&step.expect, action, &done).await?;
        check_time(&step.expect, done.took)?;
        self.observed(observer, &step.expect).await
    }

    /// Checks the order of deletions and creations in a step, and the final objects.
    async fn observed(&self, observer: &Observer, expect: &Expect) -> Result<()> {
        if let Some(groups) = &expect.gone {
            observer.check(groups, &self.scenario.slug).await?;
        }
        if let Some(groups) = &expect.appeared {
            observer.check_births(groups).await?;
        }
        self.after(expect).await
    }

    /// Checks the objects after a step.
    pub(super) async fn after(&self, expect: &Expect) -> Result<()> {
        self.there(&self.admin, &expect.stays, &expect.absent).await?;
        if let Some(second) = &self.second {
            self.there(second, &expect.stays_on_second, &expect.absent_on_second).await?;
        }
        for (object, wanted) in &expect.holds {
            let found = self.admin.get(&parse_key(object)?).await?;
            let found = serde_json::to_value(found.ok_or_else(|| anyhow!("{object} does not exist"))?)?;
            ensure!(actors::holds(&found, wanted), "{object} does not match {wanted}; it is {found:#}");
        }
        Ok(())
    }

    async fn there(&self, admin: &Admin, stays: &[String], absent: &[String]) -> Result<()> {
        for object in stays {
            ensure!(admin.any(&parse_key(object)?).await?, "{object} should exist, but does not");
        }
        for object in absent {
            ensure!(!admin.any(&parse_key(object)?).await?, "{object} exists, but should not");
        }
        Ok(())
    }
}
