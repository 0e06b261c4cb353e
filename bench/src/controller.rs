//! A controller that removes its finalizer some time after an object is marked for deletion.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use crate::progress;
use crate::workload::{FINALIZER, Item, Kind, List, Meta};

/// The user agent of its requests in the audit log.
pub(crate) const AGENT: &str = "billhook-bench-controller";

/// The delay before it removes the finalizer.
const HOLD: Duration = Duration::from_millis(500);

/// The maximum number of concurrent requests.
const IN_FLIGHT: usize = 32;

/// A running controller for the custom kinds, which stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Controller(Vec<JoinHandle<()>>);

impl Controller {
    /// Starts the controller.
    pub(crate) fn start(client: &Client) -> Self {
        let slots = Arc::new(Semaphore::new(IN_FLIGHT));
        let watch = |kind| {
            let (client, slots) = (client.clone(), Arc::clone(&slots));
            tokio::spawn(async move {
                loop {
                    if let Err(error) = follow(&client, kind, &slots).await {
                        progress(&format!("the controller of {}: {error:#}", kind.plural()));
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            })
        };
        Self(Kind::CUSTOM.into_iter().map(watch).collect())
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Lists and watches until the watch ends; then waits for the pending removals.
async fn follow(client: &Client, kind: Kind, slots: &Arc<Semaphore>) -> Result<()> {
    let path = Request::new(kind.path(None));
    let list: List = client.request(path.list_metadata(&ListParams::default())?).await.context("failed to list")?;
    let mut removals = Removals { client, kind, slots, seen: HashSet::new(), running: JoinSet::new() };
    list.items.into_iter().for_each(|item| removals.consider(item.metadata));

    let params = WatchParams::default().disable_bookmarks();
    let request = path.watch_metadata(&params, &list.metadata.resource_version)?;
    let mut events = std::pin::pin!(client.request_events::<Item>(request).await.context("failed to watch")?);
    while let Some(event) = events.try_next().await.context("failed to watch")? {
        if let WatchEvent::Added(item) | WatchEvent::Modified(item) = event {
            removals.consider(item.metadata);
        }
        while removals.running.try_join_next().is_some() {}
    }
    while removals.running.join_next().await.is_some() {}
    Ok(())
}

struct Removals<'a> {
    client: &'a Client,
    kind: Kind,
    slots: &'a Arc<Semaphore>,
    seen: HashSet<String>,
    running: JoinSet<()>,
}

impl Removals<'_> {
    fn consider(&mut self, meta: Meta) {
        let held = meta.deletion_timestamp.is_some() && meta.finalizers.iter().any(|name| name == FINALIZER);
        if !held || !self.seen.insert(meta.uid.clone()) {
            return;
        }
        let (client, kind, slots) = (self.client.clone(), self.kind, Arc::clone(self.slots));
        self.running.spawn(async move {
            tokio::time::sleep(HOLD).await;
            let Ok(_slot) = slots.acquire().await else { return };
            if let Err(error) = release(&client, kind, &meta).await {
                progress(&format!("failed to remove the finalizer of {}: {error:#}", meta.name));
            }
        });
    }
}

async fn release(client: &Client, kind: Kind, meta: &Meta) -> Result<()> {
    let patch = json!({"metadata": {"uid": meta.uid, "finalizers": null}});
    let path = Request::new(kind.path(Some(&meta.namespace)));
    let request = path.patch(&meta.name, &PatchParams::default(), &Patch::Merge(patch))?;
    client.request_text(request).await?;
    Ok(())
}
