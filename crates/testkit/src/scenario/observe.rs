//! Watches the kinds of a scenario, and records the order in which objects were marked for deletion and deleted, by the
//! server's own revisions: `resourceVersion` is one counter for all kinds of an etcd.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Result, bail};
use billhook_objects::{GroupKind, ObjectKey};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, WatchEvent, WatchParams},
};
use tokio::task::JoinSet;

use super::{
    Admin,
    admin::{NotServed, is_of, parse_key},
};

/// The revisions at which an object was first marked for deletion (or deleted without a mark), and deleted.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// When it was marked.
    pub touched: u64,
    /// When it was deleted.
    pub gone: Option<u64>,
}

/// The lives of an object, which may be recreated.
type Fates = Arc<Mutex<BTreeMap<ObjectKey, Vec<Fate>>>>;

/// The revisions at which new objects were first observed. For an object that changed before that, this is the revision
/// of the change.
type Births = Arc<Mutex<BTreeMap<ObjectKey, u64>>>;

/// Returns whether a kind that discovery still names has been deleted.
async fn is_gone(api: &Api<DynamicObject>) -> bool {
    let list = api.list(&ListParams::default().limit(1)).await;
    matches!(list, Err(kube::Error::Api(status)) if status.code == 404)
}

/// Watches that run until this is dropped.
pub struct Observer {
    fates: Fates,
    births: Births,
    _tasks: JoinSet<()>,
}

impl Observer {
    /// Starts to watch the kinds of these objects, which are written as in scenarios.
    pub(super) async fn start<'a>(admin: &Admin, objects: impl Iterator<Item = &'a String>) -> Result<Self> {
        let keys = objects.map(|text| parse_key(text)).collect::<Result<Vec<_>>>()?;
        Self::of_kinds(admin, keys.into_iter().map(|key| key.kind).collect()).await
    }

    /// Starts to watch kinds.
    ///
    /// # Errors
    ///
    /// Fails if one of them cannot be listed.
    pub async fn of_kinds(admin: &Admin, kinds: BTreeSet<GroupKind>) -> Result<Self> {
        let (fates, births) = (Fates::default(), Births::default());
        let mut tasks = JoinSet::new();
        for kind in kinds {
            let (fates, births) = (Arc::clone(&fates), Arc::clone(&births));
            let watch =
                |api, kind| KindWatch { api, kind, version: String::new(), there: BTreeSet::new(), fates, births };
            match admin.all(&kind).await {
                Ok(api) if !is_gone(&api).await => {
                    let mut watch = watch(api, kind);
                    watch.list(true).await?;
                    tasks.spawn(watch.watch());
                }
                Err(error) if !error.is::<NotServed>() => return Err(error),
                // The command may create the kind itself.
                _ => {
                    let admin = admin.clone();
                    tasks.spawn(async move {
                        let api = loop {
                            if let Ok(api) = admin.all(&kind).await {
                                break api;
                            }
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        };
                        let mut watch = watch(api, kind);
                        while watch.list(false).await.is_err() {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        watch.watch().await;
                    });
                }
            }
        }
        Ok(Self { fates, births, _tasks: tasks })
    }

    /// Returns when each of these objects was marked for deletion and deleted, after waiting for the last event.
    ///
    /// # Errors
    ///
    /// Fails if one of them was not deleted.
    pub async fn fates<'a>(
        &self,
        keys: impl Iterator<Item = &'a ObjectKey> + Clone,
    ) -> Result<BTreeMap<ObjectKey, Fate>> {
        let mut left = String::new();
        for _ in 0..600 {
            {
                let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
                let last = |key: &ObjectKey| fates.get(key).and_then(|lives| lives.last()).copied();
                let is_gone = |key: &&ObjectKey| last(key).is_some_and(|fate| fate.gone.is_some());
                match keys.clone().find(|key| !is_gone(key)) {
                    Some(key) => left = key.to_string(),
                    None => return Ok(keys.filter_map(|key| Some((key.clone(), last(key)?))).collect()),
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("{left} was not deleted within a minute")
    }

    /// Checks that these objects were created in this order.
    pub(super) async fn check_births(&self, groups: &[Vec<String>]) -> Result<()> {
        let keys: Vec<_> = groups.iter().flatten().map(|text| parse_key(text)).collect::<Result<_>>()?;
        // The last event may not have arrived yet.
        for _ in 0..100 {
            let all = {
                let births = self.births.lock().unwrap_or_else(PoisonError::into_inner);
                keys.iter().all(|key| births.contains_key(key))
            };
            if all {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let births = self.births.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = (0, "nothing".to_owned());
        for group in groups {
            let mut last = before.clone();
            for text in group {
                let Some(at) = births.get(&parse_key(text)?) else { bail!("{text} was not created") };
                if *at <= before.0 {
                    bail!("{text} was created (at {at}) before {} was (at {})", before.1, before.0);
                }
                if *at > last.0 {
                    last = (*at, text.clone());
                }
            }
            before = last;
        }
        Ok(())
    }

    /// Checks that these objects of the scenario were deleted in this order, and no others.
    pub(super) async fn check(&self, groups: &[Vec<String>], slug: &str) -> Result<()> {
        let groups =
            groups.iter().map(|g| g.iter().map(|t| parse_key(t)).collect()).collect::<Result<Vec<Vec<_>>>>()?;
        let mut problem = String::new();
        // The last event may not have arrived yet.
        for _ in 0..100 {
            match self.compare(&groups, slug) {
                Ok(()) => return Ok(()),
                Err(found) => problem = found.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!(problem)
    }

    fn compare(&self, groups: &[Vec<ObjectKey>], slug: &str) -> Result<()> {
        let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        let expected: BTreeSet<_> = groups.iter().flatten().collect();
        let mut before = (0, "nothing".to_owned());
        for (index, group) in groups.iter().enumerate() {
            let mut last = before.clone();
            for key in group {
                let Some(fates) = fates.get(key) else {
                    bail!("{key} should have been deleted, but was not even marked")
                };
                for fate in fates {
                    let Some(gone) = fate.gone else { bail!("{key} was marked for deletion, but is not gone") };
                    if fate.touched <= before.0 {
                        let (touched, (at, other), group) = (fate.touched, &before, index + 1);
                        bail!("{key} of group {group} was marked (at {touched}) before {other} was gone (at {at})");
                    }
                    if gone > last.0 {
                        last = (gone, key.to_string());
                    }
                }
            }
            before = last;
        }
        // The record of a release is not one of its objects; it is deleted at the end.
        let ours = |key: &ObjectKey| is_of(key, slug) && !key.name.starts_with("billhook.");
        match fates.keys().find(|key| !expected.contains(key) && ours(key)) {
            Some(other) => bail!("{other} was deleted, but should have remained"),
            None => Ok(()),
        }
    }
}

/// Watches one kind.
struct KindWatch {
    api: Api<DynamicObject>,
    kind: GroupKind,
    version: String,
    /// The objects of the last list.
    there: BTreeSet<ObjectKey>,
    fates: Fates,
    births: Births,
}

impl KindWatch {
    /// Lists all objects. Changes since the last list are assumed to have started as early and ended as late as possible, so
    /// that a gap never makes a wrong order look right.
    async fn list(&mut self, first: bool) -> Result<()> {
        let list = self.api.list(&ListParams::default()).await?;
        let (since, version) = (number(&self.version), list.metadata.resource_version.unwrap_or_default());
        let mut gone = std::mem::take(&mut self.there);
        for object in &list.items {
            let key = self.key(object);
            if !gone.remove(&key) && !first {
                self.born(&key, object);
            }
            if object.metadata.deletion_timestamp.is_some() {
                self.touched(&key, since + 1);
            }
            self.there.insert(key);
        }
        for key in gone {
            self.touched(&key, since + 1);
            self.gone(&key, number(&version));
        }
        self.version = version;
        Ok(())
    }

    async fn watch(mut self) {
        loop {
            // Watches end when a CRD changes and when the server stops; they resume from the last observed version.
            let lost = match self.api.watch(&WatchParams::default(), &self.version).await {
                Ok(events) => self.read(events.boxed()).await,
                Err(kube::Error::Api(status)) => status.code == 410,
                Err(_) => false,
            };
            if lost {
                self.list(false).await.ok();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Reads events until the watch ends; returns whether the server has compacted the next ones.
    async fn read(
        &mut self,
        mut events: futures::stream::BoxStream<'_, kube::Result<WatchEvent<DynamicObject>>>,
    ) -> bool {
        while let Ok(Some(event)) = events.try_next().await {
            let (object, gone) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => return status.code == 410,
            };
            self.version = object.resource_version().unwrap_or_default();
            let (key, at) = (self.key(&object), number(&self.version));
            if gone || object.metadata.deletion_timestamp.is_some() {
                self.touched(&key, at);
            }
            if gone {
                self.gone(&key, at);
                self.there.remove(&key);
            } else if self.there.insert(key.clone()) {
                self.born(&key, &object);
            }
        }
        false
    }

    fn key(&self, object: &DynamicObject) -> ObjectKey {
        ObjectKey::new(self.kind.clone(), object.namespace().as_deref(), object.name_any())
    }

    fn born(&self, key: &ObjectKey, object: &DynamicObject) {
        let mut births = self.births.lock().unwrap_or_else(PoisonError::into_inner);
        births
            .entry(key.clone())
            .or_insert_with(|| number(object.metadata.resource_version.as_deref().unwrap_or_default()));
    }

    fn touched(&self, key: &ObjectKey, at: u64) {
        let mut fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        let lives = fates.entry(key.clone()).or_default();
        if lives.last().is_none_or(|fate| fate.gone.is_some()) {
            lives.push(Fate { touched: at, gone: None });
        }
    }

    fn gone(&self, key: &ObjectKey, at: u64) {
        let mut fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fate) = fates.get_mut(key).and_then(|lives| lives.last_mut()) {
            fate.gone = Some(at);
        }
    }
}

fn number(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}
