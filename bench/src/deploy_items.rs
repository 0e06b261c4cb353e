//! Measures the controller with many DeployItems: from a cold start, when idle, and when some items hang.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use billhook_testkit::control_plane::{ControlPlane, Options};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use kube::core::Request;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::audit::{Log, Section, Sender};
use crate::{floor, lab, progress, virtual_targets};

const NAMESPACE: &str = "items";
pub(crate) const AGENT: &str = "billhook-bench";
/// The maximum number of concurrent requests of the benchmark itself.
pub(crate) const IN_FLIGHT: usize = 32;

/// Measure the controller with many DeployItems
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Program to measure; by default it is built and used from target/dist
    #[arg(long, value_name = "PATH")]
    billhook: Option<PathBuf>,
    /// Number of DeployItems
    #[arg(long, default_value_t = 2000)]
    pub(crate) items: usize,
    /// Number of objects per item
    #[arg(long, default_value_t = 5)]
    pub(crate) objects: usize,
    /// Spread the items over this number of virtual clusters, and measure a restart instead of the idle controller and of
    /// deletions [default: deploy them to the home cluster itself, a real control plane]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub(crate) targets: usize,
    /// Time to measure the idle controller, in seconds
    #[arg(long, default_value_t = 300)]
    idle: u64,
    /// Number of items to delete at once
    #[arg(long, default_value_t = 200)]
    delete: usize,
    /// Number of these items that hang
    #[arg(long, default_value_t = 10)]
    stuck: usize,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let program = match &args.billhook {
        Some(path) => path.clone(),
        None => lab::build_billhook()?,
    };
    if args.targets > 0 {
        return virtual_targets::run(&args, &program).await;
    }
    let folder = tempfile::tempdir().context("failed to make a temporary folder")?;
    let (mut log, options) = Log::prepare(folder.path(), Options::default())?;
    progress("starting a control plane");
    let plane = ControlPlane::start(&options)?;
    let client = floor::client(&plane.kubeconfig_path(), AGENT).await?;
    prepare(&client, &plane).await?;
    progress(&format!("creating {} DeployItems", args.items));
    let create = (0..args.items).map(|index| post(&client, item(&args, index, "own", NAMESPACE)));
    stream::iter(create).buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;

    progress("starting the controller");
    log.skip()?;
    let begun = Instant::now();
    let controller = Running::start(&program, &plane.kubeconfig_path(), NAMESPACE, &[])?;
    wait(&client, |items| items.iter().all(|item| item["status"]["phase"] == "Succeeded") && items.len() == args.items)
        .await?;
    report_start(&args, begun.elapsed(), &log.section()?, &controller)?;

    progress(&format!("measuring the idle controller for {} s", args.idle));
    log.skip()?;
    tokio::time::sleep(Duration::from_secs(args.idle)).await;
    let rest = log.section()?.by_resource(Sender::Billhook);
    let rest: Vec<_> = rest.into_iter().map(|((verb, resource), count)| format!("{count} {verb} {resource}")).collect();
    say(&format!(
        "at rest for {} s: {}",
        args.idle,
        if rest.is_empty() { "no request".into() } else { rest.join(", ") }
    ));

    progress(&format!("deleting {} items, {} of which hang", args.delete, args.stuck));
    let begun = Instant::now();
    let delete = (0..args.delete).map(|index| remove(&client, index));
    stream::iter(delete).buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;
    let left = args.items - args.delete + args.stuck;
    wait(&client, |items| items.len() <= left).await?;
    say(&format!(
        "{} items are gone after {:.1} s while {} hang",
        args.delete - args.stuck,
        begun.elapsed().as_secs_f64(),
        args.stuck
    ));
    Ok(())
}

fn report_start(args: &Args, took: Duration, section: &Section, controller: &Running) -> Result<()> {
    let by_resource = section.by_resource(Sender::Billhook);
    let of = |names: &[&str]| -> u64 {
        by_resource.iter().filter(|((_, resource), _)| names.contains(&resource.as_str())).map(|(_, count)| count).sum()
    };
    let objects = (args.items * args.objects) as f64;
    let total: u64 = by_resource.values().sum();
    let for_objects = of(&["configmaps"]);
    say(&format!("{} items of {} objects succeeded after {:.1} s", args.items, args.objects, took.as_secs_f64()));
    say(&format!(
        "requests: {total} in all, {:.2} an object (of ConfigMaps), {:.2} an item (all others)",
        for_objects as f64 / objects,
        (total - for_objects) as f64 / args.items as f64
    ));
    for ((verb, resource), count) in &by_resource {
        say(&format!("  {count:>7} {verb} {resource}"));
    }
    let (now, peak) = controller.memory()?;
    say(&format!("memory: {now} MiB now, {peak} MiB at most"));
    Ok(())
}

/// Creates the CRDs, a namespace and a Target for the cluster itself.
async fn prepare(client: &Client, plane: &ControlPlane) -> Result<()> {
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds");
    for file in std::fs::read_dir(crds).context("failed to find the CRDs")? {
        let kubectl =
            plane.kubectl().args(["apply", "--server-side", "-f"]).arg(file?.path()).stdout(Stdio::null()).status();
        ensure!(kubectl.context("failed to run kubectl")?.success(), "failed to create the CRDs");
    }
    let wait =
        plane.kubectl().args(["wait", "--for=condition=Established", "crd", "--all"]).stdout(Stdio::null()).status();
    ensure!(wait.context("failed to run kubectl")?.success(), "the CRDs are not Established");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    send(client, Request::new("/api/v1/namespaces"), &namespace).await?;
    let target = json!({
        "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "Target", "metadata": {"name": "own"},
        "spec": {"type": "landscaper.gardener.cloud/kubernetes-cluster", "config": {"kubeconfig": plane.kubeconfig()}},
    });
    send(client, Request::new(path(NAMESPACE, "targets")), &target).await
}

pub(crate) fn path(namespace: &str, plural: &str) -> String {
    format!("/apis/landscaper.gardener.cloud/v1alpha1/namespaces/{namespace}/{plural}")
}

/// Returns an item whose objects are in a namespace of a Target's cluster. If it is to hang, its last object has a finalizer that no controller removes.
pub(crate) fn item(args: &Args, index: usize, target: &str, namespace: &str) -> Value {
    let manifest = |n: usize| {
        let hangs = args.targets == 0 && index < args.stuck && n == 0;
        let finalizers = if hangs { json!(["bench.example/stuck"]) } else { json!([]) };
        json!({"policy": "manage", "manifest": {
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("item-{index}-{n}"), "namespace": namespace, "finalizers": finalizers},
            "data": {"key": "value"},
        }})
    };
    json!({
        "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "DeployItem",
        "metadata": {"name": format!("item-{index}")},
        "spec": {
            "type": "landscaper.gardener.cloud/kubernetes-manifest",
            "target": {"name": target},
            "config": {
                "apiVersion": "manifest.deployer.landscaper.gardener.cloud/v1alpha2", "kind": "ProviderConfiguration",
                "manifests": (0..args.objects).map(manifest).collect::<Vec<_>>(),
            },
        },
    })
}

async fn post(client: &Client, item: Value) -> Result<()> {
    send(client, Request::new(path(NAMESPACE, "deployitems")), &item).await
}

pub(crate) async fn send(client: &Client, request: Request, object: &Value) -> Result<()> {
    let request = request.create(&Default::default(), serde_json::to_vec(object)?)?;
    client.request_text(request).await.map(drop).context("failed to create an object")
}

async fn remove(client: &Client, index: usize) -> Result<()> {
    let request = Request::new(path(NAMESPACE, "deployitems")).delete(&format!("item-{index}"), &Default::default())?;
    client.request_text(request).await.map(drop).context("failed to delete an item")
}

/// Polls all items until they reach the expected state.
async fn wait(client: &Client, done: impl Fn(&[Value]) -> bool) -> Result<()> {
    for _ in 0..1200 {
        let request = Request::new(path(NAMESPACE, "deployitems")).list(&Default::default())?;
        let list: Value = client.request(request).await.context("failed to list items")?;
        if done(list["items"].as_array().map_or(&[], Vec::as_slice)) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    anyhow::bail!("the items did not reach the expected state within ten minutes")
}

/// A running controller, which is killed when this is dropped.
pub(crate) struct Running(Child);

impl Running {
    /// Starts it with a Lease in this namespace and these arguments.
    pub(crate) fn start(program: &Path, kubeconfig: &Path, lease: &str, args: &[String]) -> Result<Self> {
        let child = Command::new(program)
            .args(["controller", "--mode", "standalone", "--leader-election-namespace", lease, "--identity", "bench"])
            .args(args)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .spawn();
        Ok(Self(child.context("failed to start the controller")?))
    }

    /// Returns its current and peak resident memory, in MiB.
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).context("the controller ended")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        Ok((field("VmRSS:").unwrap_or_default() / 1024, field("VmHWM:").unwrap_or_default() / 1024))
    }

    /// Asks it to stop, and waits until it has ended.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        let id = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(id.context("no process")?, rustix::process::Signal::TERM)?;
        // The relays run beside this.
        while self.0.try_wait().context("failed to wait for the controller")?.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints results to standard output.
#[expect(clippy::print_stdout, reason = "the results of this program")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}
