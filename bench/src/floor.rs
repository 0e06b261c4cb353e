//! The floor: bare concurrent requests through the `kube` crate's own HTTP/1.1 connector.
//!
//! There is no discovery, no record and no reading of files, but only the necessary requests, 32 of them concurrently.
//! Creation is one PATCH (server-side apply) or one POST per object. Deletion is one metadata list per kind, one DELETE
//! with the UID as precondition per object, and one metadata watch per kind until all of its objects are gone.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Subcommand, ValueEnum};
use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;

use crate::workload::{Item, Kind, LABEL, List, Meta, Object, Set};

/// The maximum number of concurrent requests, without watches.
pub(crate) const IN_FLIGHT: usize = 32;

/// The user agent of the floor's requests in the audit log.
pub(crate) const AGENT: &str = "billhook-bench-floor";

/// The request that creates objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Method {
    /// Server-side apply, as billhook does it
    Patch,
    /// A plain create
    Post,
}

/// The operation of the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Action {
    /// Create the set
    Create {
        /// The request
        #[arg(long, value_enum)]
        method: Method,
    },
    /// Delete the set kind by kind, and wait until all objects are gone
    Delete,
}

/// The arguments of the floor.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// The cluster
    #[arg(long, global = true, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The name of the set
    #[arg(long, global = true, default_value = "floor")]
    set: String,
    /// Its kinds, in their order
    #[arg(long, global = true, value_enum, value_delimiter = ',', default_value = "configmaps")]
    kinds: Vec<Kind>,
    /// Number of objects per kind
    #[arg(long, global = true, default_value_t = 1)]
    each: usize,
    /// The namespaces
    #[arg(long, global = true, value_delimiter = ',', default_value = "default")]
    namespaces: Vec<String>,
}

impl Args {
    /// Returns the arguments of the helper process.
    pub(crate) fn of(action: Action, set: &Set) -> Vec<String> {
        let mut args = vec!["floor".to_owned()];
        match action {
            Action::Create { method: Method::Patch } => args.extend(["create", "--method=patch"].map(str::to_owned)),
            Action::Create { method: Method::Post } => args.extend(["create", "--method=post"].map(str::to_owned)),
            Action::Delete => args.push("delete".to_owned()),
        }
        let kinds: Vec<&str> = set.kinds.iter().map(|kind| kind.plural()).collect();
        args.push(format!("--set={}", set.name));
        args.push(format!("--kinds={}", kinds.join(",")));
        args.push(format!("--each={}", set.each));
        args.push(format!("--namespaces={}", set.namespaces.join(",")));
        args
    }
}

/// Runs the helper process.
pub(crate) async fn run(args: &Args) -> Result<()> {
    let path = args.kubeconfig.as_ref().context("the kubeconfig is missing")?;
    let client = client(path, AGENT).await?;
    let (name, kinds) = (args.set.clone(), args.kinds.clone());
    let set = Set { name, kinds, each: args.each, namespaces: args.namespaces.clone() };
    match args.action {
        Action::Create { method } => create(&client, &set, method).await,
        Action::Delete => delete(&client, &set).await,
    }
}

/// Creates a client with a user agent and without retries.
pub(crate) async fn client(kubeconfig: &Path, agent: &'static str) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("failed to read a kubeconfig")?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.context("failed to create a client configuration")?;
    config.default_retry = false;
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    Client::try_from(config).context("failed to create a client")
}

/// Creates the objects of a set.
pub(crate) async fn create(client: &Client, set: &Set, method: Method) -> Result<()> {
    for &kind in &set.kinds {
        let one = Set { kinds: vec![kind], ..set.clone() };
        let requests = one.objects().map(|object| send_new(client, kind, object, method));
        stream::iter(requests).buffer_unordered(IN_FLIGHT).try_for_each(future::ok).await?;
    }
    Ok(())
}

async fn send_new(client: &Client, kind: Kind, object: Object, method: Method) -> Result<()> {
    let path = Request::new(kind.path(Some(&object.namespace)));
    let request = match method {
        Method::Post => path.create(&PostParams::default(), serde_json::to_vec(&object.body)?),
        Method::Patch => path.patch(&object.name, &PatchParams::apply("floor"), &Patch::Apply(&object.body)),
    };
    let answer = client.request_text(request?).await;
    answer.map(drop).with_context(|| format!("failed to create {} {}", kind.plural(), object.name))
}

/// Deletes the objects of a set kind by kind, and waits until they are gone.
pub(crate) async fn delete(client: &Client, set: &Set) -> Result<()> {
    // All kinds are listed at the start, so that the next kind can be deleted without delay.
    let lists = set.kinds.iter().map(|&kind| list(client, Scope::of(kind, set)));
    let lists = future::try_join_all(lists).await?;
    for (&kind, (scope, list)) in set.kinds.iter().zip(&lists) {
        let path = |item: &Item| kind.path(Some(&item.metadata.namespace));
        let deletes = list.items.iter().map(|item| send_delete(client, path(item), &item.metadata));
        let deletes = stream::iter(deletes).buffer_unordered(IN_FLIGHT).try_for_each(future::ok);
        future::try_join(deletes, until_gone(client, scope, list)).await?;
    }
    Ok(())
}

/// The objects of one kind: the path of their list, and a label selector, which may be empty.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) path: String,
    pub(crate) labels: String,
}

impl Scope {
    /// Returns the objects of a set that are of a kind.
    pub(crate) fn of(kind: Kind, set: &Set) -> Self {
        Self { path: kind.path(set.namespace()), labels: format!("{LABEL}={}", set.name) }
    }
}

/// Lists the metadata of objects.
pub(crate) async fn list(client: &Client, scope: Scope) -> Result<(Scope, List)> {
    let params = ListParams::default().labels(&scope.labels);
    let request = Request::new(&scope.path).list_metadata(&params)?;
    let list = client.request(request).await.with_context(|| format!("failed to list {}", scope.path))?;
    Ok((scope, list))
}

/// Deletes an object in the collection at a path.
pub(crate) async fn send_delete(client: &Client, path: String, meta: &Meta) -> Result<()> {
    let preconditions = Preconditions { uid: Some(meta.uid.clone()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    let request = Request::new(&path).delete(&meta.name, &params)?;
    let answer = client.request_text(request).await;
    answer.map(drop).with_context(|| format!("failed to delete {path}/{}", meta.name))
}

/// Watches until the objects of a list are gone.
pub(crate) async fn until_gone(client: &Client, scope: &Scope, list: &List) -> Result<()> {
    let mut left: HashSet<String> = list.items.iter().map(|item| item.metadata.uid.clone()).collect();
    let mut version = list.metadata.resource_version.clone();
    let params = WatchParams::default().labels(&scope.labels).disable_bookmarks();
    while !left.is_empty() {
        let request = Request::new(&scope.path).watch_metadata(&params, &version)?;
        let events = client.request_events::<Item>(request).await;
        let mut events = std::pin::pin!(events.with_context(|| format!("failed to watch {}", scope.path))?);
        while let Some(event) = events.try_next().await? {
            ensure!(!matches!(event, WatchEvent::Error(_)), "the watch of {} failed: {event:?}", scope.path);
            if let WatchEvent::Deleted(item) = event {
                left.remove(&item.metadata.uid);
            }
            if left.is_empty() {
                return Ok(());
            }
        }
        // The API server ends watches of custom resources soon after their CRD is created.
        let (_, list) = self::list(client, scope.clone()).await?;
        let there: HashSet<String> = list.items.into_iter().map(|item| item.metadata.uid).collect();
        left.retain(|uid| there.contains(uid));
        version = list.metadata.resource_version;
    }
    Ok(())
}
