//! Actions on DeployItems in scenario files, and expectations of the items.
//!
//! The runner watches an item to wait for it. It recognizes a new reconcile by `lastReconcileTime`, which has a resolution
//! of seconds, so no action starts in the second of the last reconcile.

use std::{fmt, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use billhook_deployer::api::{DELETE_WITHOUT_UNINSTALL, GROUP, OPERATION};
use billhook_objects::{GroupKind, ObjectKey};
use billhook_sandbox::actors;
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use jiff::fmt::serde::unsigned_duration::friendly::compact as friendly;
use k8s_openapi::ByteString;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use super::{
    Expect, Step,
    freeze::Freezer,
    lab::Plane,
    release::{Release, Removal},
    stage::Stage,
};

/// The time limit for the conditions and Events of an item after its phase.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time without a write on a real control plane.
const QUIET: Duration = Duration::from_secs(3);

/// An action on a DeployItem, in the syntax of a file:
///
/// - `apply FILE`: creates or replaces the single DeployItem of a file;
/// - `annotate NAME KEY=VALUE`: sets an annotation;
/// - `job NAME ID`: sets a job, like Landscaper's execution controller;
/// - `interrupt NAME`: ends its job as failed, like Landscaper's execution controller;
/// - `delete NAME`: deletes it;
/// - `wait NAME`: does nothing.
///
/// Then the step waits for the final phase after this action, or for the expected phase.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub enum ItemAction {
    /// `apply FILE`.
    Apply(String),
    /// `annotate NAME KEY=VALUE`.
    Annotate(String, String, String),
    /// `job NAME ID`.
    Job(String, String),
    /// `interrupt NAME`.
    Interrupt(String),
    /// `delete NAME`.
    Delete(String),
    /// `wait NAME`.
    Wait(String),
    /// The equivalent of an `apply` command, which files cannot use.
    Release(Release),
    /// The equivalent of a `delete` command, which files cannot use.
    Remove(Removal),
}

impl TryFrom<String> for ItemAction {
    type Error = String;

    fn try_from(line: String) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let owned = |word: &str| word.to_owned();
        Ok(match words.as_slice() {
            ["apply", file] => Self::Apply(owned(file)),
            ["annotate", name, annotation] => {
                let (key, value) =
                    annotation.split_once('=').ok_or_else(|| format!("{annotation}: KEY=VALUE is needed"))?;
                Self::Annotate(owned(name), owned(key), owned(value))
            }
            ["job", name, job] => Self::Job(owned(name), owned(job)),
            ["interrupt", name] => Self::Interrupt(owned(name)),
            ["delete", name] => Self::Delete(owned(name)),
            ["wait", name] => Self::Wait(owned(name)),
            _ => {
                return Err(format!(
                    "deployItem: {line}: expected apply FILE, annotate NAME KEY=VALUE, job NAME ID, interrupt NAME, delete NAME or wait NAME"
                ));
            }
        })
    }
}

impl fmt::Display for ItemAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(file) => write!(f, "apply {file}"),
            Self::Annotate(name, key, value) => write!(f, "annotate {name} {key}={value}"),
            Self::Job(name, job) => write!(f, "job {name} {job}"),
            Self::Interrupt(name) => write!(f, "interrupt {name}"),
            Self::Delete(name) => write!(f, "delete {name}"),
            Self::Wait(name) => write!(f, "wait {name}"),
            Self::Release(release) => write!(f, "apply {} of {}", release.name, release.files.join(", ")),
            Self::Remove(removal) => write!(f, "delete {}", removal.name),
        }
    }
}

impl ItemAction {
    /// Returns whether this replaces a command, so that an exit code is expected.
    fn is_of_call(&self) -> bool {
        matches!(self, Self::Release(_) | Self::Remove(_))
    }
}

/// The expected state of a DeployItem.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ItemExpect {
    /// Its phase, or `Gone` if it must not exist any more. The default is `Succeeded`, and `Gone` after `delete`.
    pub phase: Option<String>,
    /// The partial status that must match.
    pub status: Value,
    /// Texts that the message of its last error must contain.
    pub error: Vec<String>,
    /// Codes that its last error must have.
    pub codes: Vec<String>,
    /// Texts that the messages of its conditions must contain.
    pub condition: Vec<String>,
    /// All of its exports.
    pub exports: Option<Value>,
    /// Texts that its Events must contain, in the form `Reason: message`.
    pub events: Vec<String>,
    /// The time without any write of the item (3 seconds on a real control plane).
    #[serde(with = "friendly::optional")]
    pub untouched: Option<Duration>,
}

impl ItemExpect {
    /// Returns whether it has any expectation.
    pub(super) fn checks_anything(&self) -> bool {
        let Self { phase, status, exports, untouched, .. } = self;
        let texts = [&self.error, &self.codes, &self.condition, &self.events];
        let any = texts.iter().any(|texts| !texts.is_empty());
        any || phase.is_some() || !status.is_null() || exports.is_some() || untouched.is_some()
    }

    /// Rejects expectations that cannot be checked.
    pub(super) fn check(&self, action: &ItemAction, expect: &Expect) -> Result<()> {
        let Expect { exit, stdout, stderr, silent, requests_at_most, requests_of, .. } = expect;
        let printed = [stdout, stderr, silent].iter().any(|texts| !texts.is_empty());
        let counted = requests_at_most.is_some() || !requests_of.is_empty();
        ensure!(!printed && !counted, "a DeployItem has no output, and its requests are not counted");
        ensure!(action.is_of_call() || *exit == 0, "a DeployItem has a phase, but no exit code");
        Ok(())
    }

    /// Returns the expected phase; `None` for any final phase, for an action that replaces a command.
    fn wanted(&self, action: &ItemAction) -> Option<&str> {
        match (&self.phase, action) {
            (Some(phase), _) => Some(phase),
            (None, ItemAction::Release(_) | ItemAction::Remove(_)) => None,
            (None, ItemAction::Delete(_)) => Some(GONE),
            (None, _) => Some("Succeeded"),
        }
    }

    /// Checks the expectations that may be met only some time after the phase.
    fn compare(&self, item: &DynamicObject, exports: Option<&Value>, events: &[String]) -> Result<()> {
        let none = Value::Null;
        let status = item.data.get("status").unwrap_or(&none);
        ensure!(
            actors::holds(status, &self.status) || self.status.is_null(),
            "its status does not match {}",
            self.status
        );
        let error = status["lastError"]["message"].as_str().unwrap_or_default();
        for text in &self.error {
            ensure!(error.contains(text.as_str()), "its last error does not contain {text:?}");
        }
        for code in &self.codes {
            let codes = status["lastError"]["codes"].as_array();
            ensure!(
                codes.into_iter().flatten().any(|found| found == code),
                "its last error does not have the code {code}"
            );
        }
        for text in &self.condition {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let mut messages = conditions.filter_map(|condition| condition["message"].as_str());
            ensure!(messages.any(|message| message.contains(text.as_str())), "no condition contains {text:?}");
        }
        if let Some(wanted) = &self.exports {
            ensure!(exports == Some(wanted), "it exports {} instead of {wanted}", exports.unwrap_or(&none));
        }
        for text in &self.events {
            ensure!(
                events.iter().any(|event| event.contains(text.as_str())),
                "no Event contains {text:?}: {events:#?}"
            );
        }
        Ok(())
    }
}

/// The phase of an item that does not exist any more.
pub(super) const GONE: &str = "Gone";

/// Returns the phase of an item.
pub(super) fn phase(item: Option<&DynamicObject>) -> &str {
    item.map_or(GONE, |item| item.data.get("status").and_then(|status| status["phase"].as_str()).unwrap_or_default())
}

fn is_final(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed" | "DeleteFailed" | GONE)
}

/// Returns an item's `status.FIELD`.
fn status<'i>(item: &'i DynamicObject, field: &str) -> &'i Value {
    item.data.get("status").and_then(|status| status.get(field)).unwrap_or(&Value::Null)
}

/// The condition, in addition to a final phase, under which an action has been handled.
pub(super) enum Until {
    /// None: the action did not trigger work.
    Now,
    /// It was reconciled in its current generation, at another time than this.
    Reconciled(Value),
    /// This job is finished.
    Job(String),
    /// The operation annotation is removed.
    NoOperation,
    /// It does not exist any more.
    Gone,
}

impl Until {
    /// Returns the condition for the next reconcile of an item.
    pub(super) fn next(before: Option<&DynamicObject>) -> Self {
        Self::Reconciled(before.map_or(Value::Null, |item| status(item, "lastReconcileTime").clone()))
    }

    fn is_over(&self, item: &DynamicObject) -> bool {
        let asked = item.annotations().contains_key(OPERATION);
        match self {
            Self::Now => true,
            Self::Reconciled(before) => !asked && is_observed(item) && status(item, "lastReconcileTime") != before,
            Self::Job(job) => status(item, "jobIDFinished") == job,
            Self::NoOperation => !asked,
            Self::Gone => false,
        }
    }
}

fn is_deleting(item: Option<&DynamicObject>) -> bool {
    item.is_some_and(|item| item.metadata.deletion_timestamp.is_some())
}

fn is_observed(item: &DynamicObject) -> bool {
    status(item, "observedGeneration").as_i64() == item.metadata.generation
}

/// A DeployItem in a cluster.
pub(super) struct Item {
    pub(super) api: Api<DynamicObject>,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Item {
    pub(super) async fn get(&self) -> Result<Option<DynamicObject>> {
        self.api.get_opt(&self.name).await.with_context(|| format!("get DeployItem {}", self.name))
    }

    /// Waits for the second after its last reconcile, and returns the item.
    pub(super) async fn rested(&self) -> Result<Option<DynamicObject>> {
        if self.get().await?.is_some_and(|item| !status(&item, "lastReconcileTime").is_null()) {
            tokio::time::sleep(Duration::from_millis(1100)).await;
        }
        self.get().await
    }

    /// Watches it until `matches` returns true; returns `None` if it is gone.
    pub(super) async fn watch(&self, matches: impl Fn(Option<&DynamicObject>) -> bool) -> Option<DynamicObject> {
        let field = format!("metadata.name={}", self.name);
        loop {
            if let Ok(list) = self.api.list(&ListParams::default().fields(&field)).await {
                let version = list.metadata.resource_version.clone().unwrap_or_default();
                let found = list.items.into_iter().next();
                if matches(found.as_ref()) {
                    return found;
                }
                if let Ok(events) = self.api.watch(&WatchParams::default().fields(&field), &version).await
                    && let Some(found) = first(events.boxed(), &matches).await
                {
                    return found;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits for a final phase after the action, or for an expected phase that is not final.
    pub(super) async fn end(&self, until: &Until, wanted: Option<&str>) -> Option<DynamicObject> {
        let passing = wanted.filter(|wanted| !is_final(wanted));
        self.watch(|found| {
            let Some(item) = found else { return true };
            let phase = phase(found);
            (is_final(phase) && until.is_over(item)) || (Some(phase) == passing && is_observed(item))
        })
        .await
    }

    pub(super) async fn patch(&self, patch: &Value) -> Result<DynamicObject> {
        let patched = self.api.patch(&self.name, &manager(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("patch DeployItem {}", self.name))
    }

    /// Creates or replaces it.
    async fn put(&self, mut item: DynamicObject) -> Result<DynamicObject> {
        for _ in 0..10 {
            let Some(current) = self.get().await? else {
                return self.api.create(&PostParams::default(), &item).await.context("create the DeployItem");
            };
            item.metadata.resource_version = current.resource_version();
            item.metadata.finalizers = current.metadata.finalizers.clone();
            match self.api.replace(&self.name, &PostParams::default(), &item).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                replaced => return replaced.context("replace the DeployItem"),
            }
        }
        bail!("DeployItem {} is changed continuously", self.name)
    }
}

/// Returns the first state of an item in a watch for which `matches` returns true; `None` if the watch ends before.
async fn first(
    mut events: BoxStream<'_, kube::Result<WatchEvent<DynamicObject>>>,
    matches: &impl Fn(Option<&DynamicObject>) -> bool,
) -> Option<Option<DynamicObject>> {
    while let Ok(Some(event)) = events.try_next().await {
        let found = match event {
            WatchEvent::Added(item) | WatchEvent::Modified(item) => Some(item),
            WatchEvent::Deleted(_) => None,
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(_) => return None,
        };
        if matches(found.as_ref()) {
            return Some(found);
        }
    }
    None
}

/// The result of an action on an item.
#[derive(Default)]
pub(super) struct Done {
    pub(super) item: Option<DynamicObject>,
    pub(super) took: Duration,
}

impl Done {
    /// Returns the exit code of the equivalent command.
    fn exit(&self) -> u8 {
        let Some(item) = self.item.as_ref().filter(|_| phase(self.item.as_ref()) != "Succeeded") else { return 0 };
        let codes = status(item, "lastError")["codes"].as_array().cloned().unwrap_or_default();
        match codes {
            codes if codes.iter().any(|code| code == "ERR_TIMEOUT") => 3,
            codes if codes.iter().any(|code| code == "ERR_CONFIGURATION_PROBLEM") => 2,
            _ => 1,
        }
    }
}

impl Stage<'_> {
    /// Returns the item of an action.
    pub(super) async fn item(&self, action: &ItemAction) -> Result<Item> {
        let own = self.scenario.slug.as_str();
        let (namespace, name) = match action {
            ItemAction::Apply(file) => (own, self.read_item(file)?.name_any()),
            ItemAction::Annotate(name, ..)
            | ItemAction::Job(name, _)
            | ItemAction::Interrupt(name)
            | ItemAction::Delete(name)
            | ItemAction::Wait(name) => (own, name.clone()),
            ItemAction::Release(release) => (release.namespace.as_deref().unwrap_or(own), release.name.clone()),
            ItemAction::Remove(removal) => (removal.namespace.as_deref().unwrap_or(own), removal.name.clone()),
        };
        let key = ObjectKey::new(GroupKind::new(GROUP, "DeployItem"), Some(namespace), &name);
        Ok(Item { api: self.admin.api(&key).await?, namespace: namespace.to_owned(), name })
    }

    /// Performs the action of a step and waits until it has been handled.
    pub(super) async fn action(&self, step: &Step, action: &ItemAction) -> Result<Done> {
        let item = self.item(action).await?;
        if let ItemAction::Remove(removal) = action {
            let prepared = self.controlled(self.prepare_removal(&item, removal)).await??;
            if let Some(done) = prepared {
                return Ok(done);
            }
        }
        let before = item.rested().await?;
        let begun = Instant::now();
        let work = async {
            let (until, version) = self.trigger(&item, action, before.as_ref()).await?;
            let found = match step.expect.item.untouched {
                Some(time) => self.untouched(&item, time, version).await?,
                None => item.end(&until, step.expect.item.wanted(action)).await,
            };
            anyhow::Ok(Done { item: found, took: begun.elapsed() })
        };
        let (interrupt, _interrupts) = mpsc::channel(1);
        self.beside(step, self.controlled(work), (&interrupt, &Freezer::default()), &String::new).await??
    }

    /// Performs an action; returns the condition under which it has been handled, and the new version of the item.
    async fn trigger(
        &self,
        item: &Item,
        action: &ItemAction,
        before: Option<&DynamicObject>,
    ) -> Result<(Until, Option<String>)> {
        let there = || before.ok_or_else(|| anyhow!("DeployItem {} does not exist", item.name));
        let (until, written) = match action {
            ItemAction::Apply(file) => {
                let written = item.put(self.read_item(file)?).await?;
                let same = before.is_some_and(|before| before.metadata.generation == written.metadata.generation);
                (if same { Until::Now } else { Until::next(before) }, written)
            }
            ItemAction::Annotate(_, key, value) => {
                let written = item.patch(&json!({"metadata": {"annotations": {key: value}}})).await?;
                let until = match (key.as_str(), value.as_str()) {
                    (OPERATION, "interrupt") => Until::NoOperation,
                    (OPERATION, _) => Until::next(before),
                    (DELETE_WITHOUT_UNINSTALL, _) if is_deleting(before) => Until::Gone,
                    _ => Until::Now,
                };
                (until, written)
            }
            ItemAction::Job(_, job) => {
                // Landscaper writes the whole status, which always has this field.
                let observed = status(there()?, "observedGeneration").as_i64().unwrap_or_default();
                let patch = Patch::Merge(json!({"status": {"jobID": job, "observedGeneration": observed}}));
                (Until::Job(job.clone()), item.api.patch_status(&item.name, &manager(), &patch).await?)
            }
            ItemAction::Interrupt(_) => {
                let end = json!({"phase": "Failed", "jobIDFinished": status(there()?, "jobID")});
                let patch = Patch::Merge(json!({"status": end}));
                (Until::Now, item.api.patch_status(&item.name, &manager(), &patch).await?)
            }
            ItemAction::Delete(_) => {
                there()?;
                let deleted = item.api.delete(&item.name, &DeleteParams::default()).await?;
                return Ok((Until::next(before), deleted.left().and_then(|item| item.resource_version())));
            }
            // It may already be gone.
            ItemAction::Wait(_) => return Ok((Until::Now, before.and_then(kube::ResourceExt::resource_version))),
            ItemAction::Release(release) => self.release(item, release, before).await?,
            ItemAction::Remove(_) => return Ok((item.remove(there()?).await?, None)),
        };
        Ok((until, written.resource_version()))
    }

    /// Checks that no client writes an item.
    async fn untouched(&self, item: &Item, time: Duration, version: Option<String>) -> Result<Option<DynamicObject>> {
        let time = if matches!(self.planes[0], Plane::Real(_)) { time.min(QUIET) } else { time };
        tokio::time::sleep(time).await;
        let found = item.get().await?.ok_or_else(|| anyhow!("it is gone"))?;
        ensure!(found.resource_version() == version, "it was changed");
        Ok(Some(found))
    }

    /// Checks the expectations of a step.
    pub(super) async fn check_item(&self, expect: &Expect, action: &ItemAction, done: &Done) -> Result<()> {
        if action.is_of_call() {
            ensure!(done.exit() == expect.exit, "the exit code would be {} instead of {}", done.exit(), expect.exit);
            return Ok(());
        }
        let wanted =
            expect.item.wanted(action).filter(|_| expect.item.phase.is_some() || expect.item.untouched.is_none());
        if let Some(wanted) = wanted {
            let phase = phase(done.item.as_ref());
            ensure!(phase == wanted, "its phase is {phase:?} instead of {wanted}");
        }
        let Some(_there) = &done.item else { return Ok(()) };
        let (item, begun) = (self.item(action).await?, Instant::now());
        loop {
            let found = item.get().await?.ok_or_else(|| anyhow!("it is gone"))?;
            let exports = self.exports(&found).await?;
            match expect.item.compare(&found, exports.as_ref(), &self.events(&item).await?) {
                Err(_) if begun.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(100)).await,
                compared => return compared,
            }
        }
    }

    /// Returns the exports of an item.
    async fn exports(&self, item: &DynamicObject) -> Result<Option<Value>> {
        let Some(name) = status(item, "exportRef")["name"].as_str() else { return Ok(None) };
        let key = ObjectKey::new(GroupKind::new("", "Secret"), item.namespace().as_deref(), name);
        let Some(secret) = self.admin.get(&key).await? else { return Ok(None) };
        let bytes: ByteString = serde_json::from_value(secret.data["data"]["config"].clone())?;
        Ok(Some(serde_json::from_slice(&bytes.0).context("read the exports")?))
    }

    /// Returns the Events of an item in both API groups.
    async fn events(&self, item: &Item) -> Result<Vec<String>> {
        let mut texts = Vec::new();
        for (group, object, message) in [("", "involvedObject", "message"), ("events.k8s.io", "regarding", "note")] {
            let kind = GroupKind::new(group, "Event");
            let Ok(events) = self.admin.list(&kind).await else { continue };
            let of = |event: &DynamicObject| {
                let about = &event.data[object];
                about["kind"] == "DeployItem"
                    && about["name"] == item.name
                    && event.namespace().as_ref() == Some(&item.namespace)
            };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let text =
                |event: &DynamicObject| format!("{}: {}", text(&event.data["reason"]), text(&event.data[message]));
            texts.extend(events.iter().filter(|event| of(event)).map(text));
        }
        Ok(texts)
    }

    /// Formats an item for error messages.
    pub(super) async fn shown(&self, action: &ItemAction) -> String {
        let Ok(item) = self.item(action).await else { return "the scenario has no DeployItems".to_owned() };
        let found = item.get().await.ok().flatten();
        let status = found.as_ref().and_then(|item| item.data.get("status"));
        let events = self.events(&item).await.unwrap_or_default();
        format!("phase {}, status {:#}, events {events:#?}", phase(found.as_ref()), status.unwrap_or(&Value::Null))
    }

    /// Reads the one DeployItem of a file.
    fn read_item(&self, file: &str) -> Result<DynamicObject> {
        let documents = self.documents(file)?;
        let [document] = <[_; 1]>::try_from(documents).map_err(|_| anyhow!("{file}: expected one DeployItem"))?;
        let mut item: DynamicObject = serde_json::from_value(document).with_context(|| format!("read {file}"))?;
        item.metadata.namespace.get_or_insert_with(|| self.scenario.slug.clone());
        Ok(item)
    }
}

fn manager() -> PatchParams {
    PatchParams { field_manager: Some("somebody-else".into()), ..PatchParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeds_are_read() {
        for line in ["apply web.yaml", "annotate web a.example/b=c=d", "job web 1", "delete web", "wait web"] {
            let action = ItemAction::try_from(line.to_owned()).unwrap();
            assert_eq!(action.to_string(), line);
        }
        for line in ["", "apply", "annotate web a", "aply web.yaml", "delete web now"] {
            ItemAction::try_from(line.to_owned()).unwrap_err();
        }
    }

    fn item(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_end_is_one_that_came_after_what_was_done() {
        let old = json!({"lastReconcileTime": "2026-01-01T00:00:00Z", "observedGeneration": 1, "jobIDFinished": "one"});
        let before = item(json!({"metadata": {"generation": 1}, "status": old}));
        let until = Until::next(Some(&before));
        let new = json!({"lastReconcileTime": "2026-01-01T00:00:02Z", "observedGeneration": 2});
        for (generation, status, annotations, over) in [
            (1, &old, json!({}), false),
            (2, &old, json!({}), false),
            (3, &new, json!({}), false),
            (2, &new, json!({OPERATION: "reconcile"}), false),
            (2, &new, json!({}), true),
        ] {
            let now =
                item(json!({"metadata": {"generation": generation, "annotations": annotations}, "status": status}));
            assert_eq!(until.is_over(&now), over, "{now:?}");
        }
        assert!(Until::Job("one".to_owned()).is_over(&before));
        assert!(!Until::Job("two".to_owned()).is_over(&before));
    }
}
