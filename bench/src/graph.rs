//! The floor of a payload: the same PATCHes in the same order, and nothing else.
//!
//! A node starts when the nodes before it are done, and its steps run one after another. A step ends when the API server has
//! answered, or, for the kinds that billhook waits for, when one watch of the kind has shown the condition.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use futures::stream::FuturesUnordered;
use futures::{StreamExt as _, TryStreamExt as _, future};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use crate::floor::{self, IN_FLIGHT};

/// The arguments of the helper process.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The cluster
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// The file with the graph
    file: PathBuf,
}

/// Runs the helper process.
pub(crate) async fn run(args: &Args) -> Result<()> {
    let client = floor::client(&args.kubeconfig, floor::AGENT).await?;
    let text = std::fs::read(&args.file).with_context(|| format!("failed to read {}", args.file.display()))?;
    serde_json::from_slice::<Graph>(&text).context("failed to read a graph")?.create(&client).await
}

/// Steps in their order, read by the floor from a file.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
}

/// Steps that run one after another.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Node {
    /// The indexes of the nodes that are done before; all of them are lower.
    pub(crate) after: Vec<usize>,
    pub(crate) steps: Vec<Step>,
}

/// An object to create.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Step {
    /// The path of the objects of its kind, in its namespace.
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) body: Value,
    /// The condition to wait for.
    pub(crate) condition: Option<String>,
}

impl Graph {
    fn steps(&self) -> impl DoubleEndedIterator<Item = &Step> {
        self.nodes.iter().flat_map(|node| &node.steps)
    }

    /// Creates the objects.
    async fn create(&self, client: &Client) -> Result<()> {
        let awaited = self.steps().filter_map(|step| Some((step.path.as_str(), step.condition.as_deref()?)));
        let awaited: BTreeMap<&str, &str> = awaited.collect();
        let kinds = awaited.into_iter().map(|(path, condition)| (path, condition, watch::Sender::default()));
        let kinds: Vec<(&str, &str, Seen)> = kinds.collect();
        let watches =
            future::try_join_all(kinds.iter().map(|(path, condition, seen)| follow(client, path, condition, seen)));
        tokio::select! {
            ended = watches, if !kinds.is_empty() => ended.map(drop),
            done = self.run(client, &kinds) => done,
        }
    }

    async fn run(&self, client: &Client, kinds: &[(&str, &str, Seen)]) -> Result<()> {
        let turns = Semaphore::new(IN_FLIGHT);
        let mut before: Vec<usize> = self.nodes.iter().map(|node| node.after.len()).collect();
        let mut next: Vec<Vec<usize>> = self.nodes.iter().map(|_| Vec::new()).collect();
        for (at, node) in self.nodes.iter().enumerate() {
            node.after.iter().for_each(|before| next[*before].push(at));
        }
        let start = |at: usize| {
            let turns = &turns;
            async move {
                for step in &self.nodes[at].steps {
                    step.create(client, turns, kinds).await?;
                }
                anyhow::Ok(at)
            }
        };
        let mut running: FuturesUnordered<_> = (0..self.nodes.len()).filter(|at| before[*at] == 0).map(start).collect();
        while let Some(done) = running.try_next().await? {
            for &at in &next[done] {
                before[at] -= 1;
                if before[at] == 0 {
                    running.push(start(at));
                }
            }
        }
        Ok(())
    }

    /// Deletes the objects, the last first, and waits until they are gone. Not measured.
    pub(crate) async fn delete(&self, client: &Client) -> Result<()> {
        for step in self.steps().rev() {
            let request = Request::new(&step.path).delete(&step.name, &DeleteParams::background())?;
            is_gone(client.request_text(request).await)?;
        }
        self.until_gone(client).await
    }

    /// Waits until none of the objects exists.
    async fn until_gone(&self, client: &Client) -> Result<()> {
        for step in self.steps() {
            let mut attempt = 0;
            while !is_gone(client.request_text(Request::new(&step.path).get(&step.name, &Default::default())?).await)? {
                attempt += 1;
                if attempt == 3000 {
                    bail!("{}/{} is not gone after 5 minutes", step.path, step.name);
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    /// Fails unless all objects exist.
    pub(crate) async fn exists(&self, client: &Client) -> Result<()> {
        let reads = self.steps().map(|step| async move {
            let request = Request::new(&step.path).get_metadata(&step.name, &Default::default())?;
            let answer = client.request_text(request).await;
            answer.map(drop).with_context(|| format!("{}/{} does not exist", step.path, step.name))
        });
        futures::stream::iter(reads).buffer_unordered(IN_FLIGHT).try_for_each(future::ok).await
    }
}

/// The names of the objects whose condition was true.
type Seen = watch::Sender<HashSet<String>>;

fn is_gone(answer: kube::Result<String>) -> Result<bool> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        answer => Ok(answer.map(|_| false)?),
    }
}

impl Step {
    async fn create(&self, client: &Client, turns: &Semaphore, kinds: &[(&str, &str, Seen)]) -> Result<()> {
        let request =
            Request::new(&self.path).patch(&self.name, &PatchParams::apply("floor"), &Patch::Apply(&self.body))?;
        {
            let _turn = turns.acquire().await;
            let answer = client.request_text(request).await;
            answer.with_context(|| format!("failed to create {}/{}", self.path, self.name))?;
        }
        if self.condition.is_some()
            && let Some((_, _, seen)) = kinds.iter().find(|(path, ..)| *path == self.path)
        {
            seen.subscribe().wait_for(|seen| seen.contains(&self.name)).await.context("the watch has ended")?;
        }
        Ok(())
    }
}

/// Watches a kind, and adds the names of objects whose condition is true.
async fn follow(client: &Client, path: &str, condition: &str, seen: &Seen) -> Result<()> {
    let params = WatchParams::default().disable_bookmarks();
    loop {
        let request = Request::new(path).watch(&params, "")?;
        let events = client.request_events::<Object>(request).await;
        let mut events = std::pin::pin!(events.with_context(|| format!("failed to watch {path}"))?);
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                && object.status.conditions.iter().flatten().any(|one| one.r#type == condition && one.status == "True")
            {
                seen.send_if_modified(|seen| seen.insert(object.metadata.name));
            }
        }
    }
}

/// The fields of an object that its condition is read from.
#[derive(Clone, Debug, Deserialize)]
struct Object {
    metadata: Name,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Deserialize)]
struct Name {
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    /// Null in a CRD that was just created.
    conditions: Option<Vec<Condition>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}
