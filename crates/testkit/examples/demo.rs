//! `cargo xtask demo`: the main job on a control plane of its own, then the same deletion in kubectl's order.

use std::{
    io::{Write as _, stderr, stdout},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use billhook::{Cluster, World};
use billhook_testkit::{
    control_plane::{ControlPlane, Options, User},
    scenario::{Admin, Controller, run_controller},
};
use kube::Client;
use tokio::sync::mpsc;

const OPERATOR: &str = "Deployment.apps/shop/database-operator";

fn main() -> Result<()> {
    // The program finds the project's own files from where it was built.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    say("A control plane (etcd, kube-apiserver, kube-controller-manager) starts on loopback …")?;
    let plane = ControlPlane::start(&Options::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(demo(&Demo { plane, root }))
}

struct Demo {
    plane: ControlPlane,
    root: PathBuf,
}

async fn demo(demo: &Demo) -> Result<()> {
    let admin = Admin::new(Client::try_from(demo.plane.client_config(User::Admin).await?)?, "default");
    // There is no kubelet, so a stand-in does the operator's work, and only while its Deployment is there.
    let operator = Controller::RemoveFinalizer {
        kind: "Database.shop.example".into(),
        finalizer: "shop.example/last-backup".into(),
        after: Duration::from_millis(300),
        while_exists: Some(OPERATOR.into()),
    };
    let operator = tokio::spawn(run_controller(admin.clone(), operator, "shop".into()));

    say("\nAn operator, its CRD and two databases. Each database has a finalizer that only the operator removes.")?;
    demo.billhook("apply shop -f demo/shop --policy demo/policy.yaml --wait=false", 0).await?;
    say("\nSomebody else makes a third database. What would a deletion do?")?;
    admin.create(&std::fs::read_to_string(demo.root.join("demo/reports.yaml"))?).await?;
    demo.billhook("plan delete shop", 0).await?;
    say("\nThe databases go first, while the operator can still take its last backups.")?;
    demo.billhook("delete shop", 0).await?;

    say("\nThe same with kubectl, in the order of the files: CRD, operator, databases.")?;
    demo.kubectl("apply --server-side -f demo/shop/1-crd.yaml")?;
    demo.kubectl("apply --server-side -f demo/shop/2-operator.yaml")?;
    demo.kubectl("apply --server-side -f demo/shop/3-databases.yaml")?;
    demo.kubectl("delete -f demo/shop --timeout=3s")?;
    say("\nThe operator is gone, its databases hang for ever. What does billhook say of it?")?;
    demo.billhook("delete -f demo/shop --policy demo/policy.yaml --yes --timeout 2s", 3).await?;
    operator.abort();
    say(
        "\nTo go on by yourself:\n  eval \"$(cargo xtask testbed up)\"\n  cargo run --release -- apply shop -f demo/shop --policy demo/policy.yaml --wait=false",
    )
}

impl Demo {
    async fn billhook(&self, line: &str, expected: u8) -> Result<()> {
        say(&format!("\n$ billhook {line}"))?;
        let (_interrupt, interrupts) = mpsc::channel(1);
        let env = std::env::vars().chain([("KUBECONFIG".into(), self.plane.kubeconfig_path().display().to_string())]);
        let exit = billhook::run(World {
            args: std::iter::once("billhook").chain(line.split_whitespace()).map(Into::into).collect(),
            env: env.collect(),
            directory: self.root.clone(),
            stdin: Box::new(std::io::empty()),
            stdin_terminal: false,
            stdout: Box::new(stdout()),
            stdout_terminal: false,
            stderr: Box::new(stdout()),
            stderr_terminal: false,
            interrupts,
            connect: Arc::new(Cluster::connect),
        })
        .await;
        ensure!(exit == expected, "billhook {line} ended with {exit}, not with {expected}");
        Ok(())
    }

    fn kubectl(&self, line: &str) -> Result<()> {
        say(&format!("\n$ kubectl {line}"))?;
        stderr().flush()?;
        let arguments = line.split_whitespace();
        self.plane.kubectl().args(arguments).current_dir(&self.root).status().context("run kubectl")?;
        Ok(())
    }
}

fn say(text: &str) -> Result<()> {
    let mut out = stdout();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}
