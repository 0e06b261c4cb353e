//! Plays a scenario: creates the given objects, then plays each step, with commands in-process through the real program.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Error, Result, anyhow, ensure};
use billhook_objects::ObjectKey;
use billhook_sandbox::actors;

use super::{
    Admin, Expect, ItemAction, Lab, Scenario, Step,
    admin::{is_of, parse_key},
    call::check_time,
    observe::Observer,
    stage::Stage,
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
        let bystanders = self.bystanders().await?;
        for (index, step) in self.scenario.steps.iter().enumerate() {
            let what = || format!("step {} ({})", index + 1, step.title());
            self.step(step).await.with_context(what)?;
        }
        let after = self.bystanders().await?;
        let touched = bystanders.iter().filter(|(key, version)| after.get(*key) != Some(*version));
        let touched: Vec<String> = touched.map(|(key, _)| key.to_string()).collect();
        ensure!(touched.is_empty(), "no step concerns these objects, but they were changed or deleted: {touched:#?}");
        Ok(())
    }

    /// Lists all objects of the namespace that no step concerns, each with its version.
    async fn bystanders(&self) -> Result<BTreeMap<ObjectKey, Option<String>>> {
        if !self.scenario.has_bystanders() {
            return Ok(BTreeMap::new());
        }
        let all = self.admin.contents(&self.scenario.bystanders()).await?.into_iter();
        let all: BTreeMap<_, _> = all.map(|(key, object)| (key, object.metadata.resource_version)).collect();
        ensure!(all.len() >= 2, "bystanders were deleted: {:?} remain", all.keys());
        Ok(all)
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
        let before = if step.expect.loses.is_some() { self.listed().await? } else { BTreeMap::new() };
        let called = tokio::time::timeout(step.within, self.call(step, line, "billhook")).await;
        let called = called.map_err(|_| late(step))??;
        let checked = async {
            called.check(&step.expect, line)?;
            self.explained(&called, &step.expect.why).await?;
            self.observed(observer, &step.expect).await?;
            self.lost(&step.expect, &before).await
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

    /// Lists all objects of the scenario, each with its UID: if it is exclusive, those of the whole control plane.
    async fn listed(&self) -> Result<BTreeMap<ObjectKey, Option<String>>> {
        let is_own = |key: &ObjectKey| self.scenario.exclusive || is_of(key, &self.scenario.slug);
        let all = self.admin.everything().await?.into_iter().filter(|(key, _)| is_own(key));
        Ok(all.map(|(key, object)| (key, object.metadata.uid)).collect())
    }

    /// Checks which objects were lost since a listing. Controllers may need a while to delete what depends on them.
    async fn lost(&self, expect: &Expect, before: &BTreeMap<ObjectKey, Option<String>>) -> Result<()> {
        let Some(expected) = &expect.loses else { return Ok(()) };
        let matches = |pattern: &String, key: &String| match pattern.strip_suffix('*') {
            Some(prefix) => key.starts_with(prefix),
            None => key == pattern,
        };
        let (mut missing, mut extra) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            let after = self.listed().await?;
            let lost = before.iter().filter(|(key, uid)| after.get(*key) != Some(*uid));
            let lost: Vec<String> = lost.map(|(key, _)| key.to_string()).collect();
            missing = expected.iter().filter(|key| !key.ends_with('*') && !lost.contains(key)).cloned().collect();
            extra = lost.into_iter().filter(|key| !expected.iter().any(|pattern| matches(pattern, key))).collect();
            if missing.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        ensure!(missing.is_empty(), "should have been lost, but exists or never existed: {missing:#?}");
        ensure!(extra.is_empty(), "should exist, but was lost: {extra:#?}");
        Ok(())
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
