//! Measures the controller with items on many virtual clusters: Targets with kubeconfigs of their own for one sandbox.
//!
//! The home cluster is a second sandbox. Both are processes of their own, so that the memory of the controller is measured alone.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use kube::core::Request;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::deploy_items::{AGENT, Args, IN_FLIGHT, Running, item, path, say, send};
use crate::relay::{Counts, Relay};
use crate::{floor, progress};

/// How many Targets are in one namespace.
const TARGETS_PER_NAMESPACE: usize = 10;
/// The time limit of each stage.
const PATIENCE: Duration = Duration::from_secs(3600);
/// How long the restarted controller is measured after it is ready.
const AFTER_RESTART: Duration = Duration::from_secs(30);

/// Runs the measurement.
pub(crate) async fn run(args: &Args, program: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("failed to make a temporary folder")?;
    progress("starting two sandboxes");
    let home = Server::start(program, folder.path().join("home")).await?;
    let target = Server::start(program, folder.path().join("target")).await?;
    let (to_home, to_target) = (Relay::start(home.port).await?, Relay::start(target.port).await?);
    let kubeconfig = folder.path().join("controller");
    let text = home.text.replace(&format!(":{}", home.port), &format!(":{}", to_home.port()));
    std::fs::write(&kubeconfig, text).context("failed to write a kubeconfig")?;
    let client = floor::client(&home.kubeconfig, AGENT).await?;
    prepare(args, &client, &target, to_target.port()).await?;
    progress(&format!("creating {} DeployItems for {} Targets", args.items, args.targets));
    let create = (0..args.items).map(|index| {
        let (of, namespace) = place(args, index);
        let item = item(args, index, &format!("target-{of}"), &format!("target-{of}"));
        let client = &client;
        async move { send(client, Request::new(path(&namespace, "deployitems")), &item).await }
    });
    stream::iter(create).buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;

    progress("starting the controller");
    let begun = Instant::now();
    let mut controller = Metered::start(program, &kubeconfig)?;
    controller.until_succeeded(args.items).await?;
    let took = begun.elapsed();
    report(args, took, &to_home.take_counts(), &to_target.take_counts());
    let (now, peak) = controller.running.memory()?;
    say(&format!("memory: {now} MiB now, {peak} MiB at most"));

    progress("restarting the controller");
    controller.running.stop().await?;
    drop(controller);
    drop((to_home.take_counts(), to_target.take_counts()));
    let begun = Instant::now();
    let controller = Metered::start(program, &kubeconfig)?;
    controller.until_succeeded(args.items).await?;
    say(&format!("a restart with all items done: all are known after {:.1} s", begun.elapsed().as_secs_f64()));
    sleep(AFTER_RESTART).await;
    let (of_home, of_target) = (to_home.take_counts(), to_target.take_counts());
    say(&format!("requests until {} s later:", AFTER_RESTART.as_secs()));
    list(&of_home, "home");
    list(&of_target, "targets");
    let (now, peak) = controller.running.memory()?;
    say(&format!("memory: {now} MiB now, {peak} MiB at most"));
    Ok(())
}

/// Returns the number of the Target of an item, and its namespace.
fn place(args: &Args, index: usize) -> (usize, String) {
    let target = index % args.targets;
    (target, format!("tenant-{}", target / TARGETS_PER_NAMESPACE))
}

fn report(args: &Args, took: Duration, home: &Counts, target: &Counts) {
    say(&format!(
        "{} items of {} objects on {} Targets succeeded after {:.1} s",
        args.items,
        args.objects,
        args.targets,
        took.as_secs_f64()
    ));
    let (items, objects) = (args.items as f64, (args.items * args.objects) as f64);
    let of = |counts: &Counts, wanted: &dyn Fn(&str) -> bool| -> f64 {
        counts.iter().filter(|((_, resource), _)| wanted(resource)).map(|(_, count)| *count).sum::<u64>() as f64
    };
    let is_object = |resource: &str| resource == "configmaps";
    let others = of(home, &|_| true) + of(target, &|resource| !is_object(resource));
    say(&format!(
        "requests: {:.3} an object (of ConfigMaps), {:.3} an item (all others)",
        of(target, &is_object) / objects,
        others / items
    ));
    list(home, "home");
    list(target, "targets");
}

fn list(counts: &Counts, of: &str) {
    for ((verb, resource), count) in counts {
        say(&format!("  {count:>7} {of}: {verb} {resource}"));
    }
}

/// Creates the CRDs, the namespaces and the Targets.
async fn prepare(args: &Args, home: &Client, target: &Server, port: u16) -> Result<()> {
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds");
    for file in std::fs::read_dir(crds).context("failed to find the CRDs")? {
        let text = std::fs::read_to_string(file?.path()).context("failed to read a CRD")?;
        let crd: Value = serde_saphyr::from_str(&text).context("failed to parse a CRD")?;
        send(home, Request::new("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"), &crd).await?;
    }
    let namespace = |name: String| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    for tenant in 0..args.targets.div_ceil(TARGETS_PER_NAMESPACE) {
        send(home, Request::new("/api/v1/namespaces"), &namespace(format!("tenant-{tenant}"))).await?;
    }
    let begun = Instant::now();
    while home.request::<Value>(Request::new(path("tenant-0", "targets")).list(&Default::default())?).await.is_err() {
        ensure!(begun.elapsed() < Duration::from_secs(60), "the CRDs are not served");
        sleep(Duration::from_millis(100)).await;
    }
    let of_target = floor::client(&target.kubeconfig, AGENT).await?;
    for index in 0..args.targets {
        let name = format!("target-{index}");
        send(&of_target, Request::new("/api/v1/namespaces"), &namespace(name.clone())).await?;
        // Each has a user of its own, so that no two share a connection.
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": name}}],
            "users": [{"name": name, "user": {}}],
        });
        let target = json!({
            "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "Target", "metadata": {"name": name},
            "spec": {"type": "landscaper.gardener.cloud/kubernetes-cluster", "config": {"kubeconfig": kubeconfig}},
        });
        let namespace = format!("tenant-{}", index / TARGETS_PER_NAMESPACE);
        send(home, Request::new(path(&namespace, "targets")), &target).await?;
    }
    Ok(())
}

/// A sandbox, which is killed when this is dropped.
struct Server {
    child: Child,
    kubeconfig: PathBuf,
    text: String,
    port: u16,
}

impl Server {
    async fn start(program: &Path, kubeconfig: PathBuf) -> Result<Self> {
        let mut child = Command::new(program)
            .args(["sandbox", "--kubeconfig-out"])
            .arg(&kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("failed to start a sandbox")?;
        let begun = Instant::now();
        loop {
            let text = std::fs::read_to_string(&kubeconfig).unwrap_or_default();
            if let Some(port) = port(&text) {
                return Ok(Self { child, kubeconfig, text, port });
            }
            ensure!(child.try_wait()?.is_none() && begun.elapsed().as_secs() < 60, "the sandbox does not start");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the port of the server in a kubeconfig that is complete.
fn port(kubeconfig: &str) -> Option<u16> {
    let kubeconfig: Value = serde_saphyr::from_str(kubeconfig).ok()?;
    let server = kubeconfig.pointer("/clusters/0/cluster/server")?.as_str()?;
    server.trim_end_matches('/').rsplit(':').next()?.parse().ok()
}

/// A controller that serves its metrics.
struct Metered {
    running: Running,
    port: u16,
}

impl Metered {
    fn start(program: &Path, kubeconfig: &Path) -> Result<Self> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let port = free.context("failed to find a free port")?.port();
        let running =
            Running::start(program, kubeconfig, "tenant-0", &["--listen".to_owned(), format!("127.0.0.1:{port}")])?;
        Ok(Self { running, port })
    }

    /// Waits until the controller is ready and knows that all items have succeeded.
    async fn until_succeeded(&self, items: usize) -> Result<()> {
        let begun = Instant::now();
        let succeeded = format!("billhook_items{{phase=\"Succeeded\"}} {items}");
        loop {
            let is_ready = get(self.port, "/readyz").await.is_some_and(|answer| answer.starts_with("HTTP/1.1 200"));
            let metrics = get(self.port, "/metrics").await.unwrap_or_default();
            if is_ready && metrics.lines().any(|line| line == succeeded) {
                return Ok(());
            }
            self.running.memory()?;
            ensure!(begun.elapsed() < PATIENCE, "the items did not succeed:\n{metrics}");
            sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Returns an answer of the controller. The relays run beside this.
async fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
        .await
        .ok()?;
    let mut answer = String::new();
    timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await.ok()?.ok()?;
    Some(answer)
}
