//! `billhook demo`: shows ordered deletion on a sandbox.

use std::{collections::BTreeMap, fs, io, pin::Pin, sync::Arc, time::Duration};

use billhook_cluster::Cluster;
use billhook_objects::{Manifest, ObjectKey, yaml};
use billhook_sandbox::{
    Options, Sandbox, User,
    actors::{self, Script},
};
use clap::Args;
use kube::{
    Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject},
};
use serde_json::Value;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    error::{CommandError, Exit},
    output::Printer,
    render, sandbox,
    session::Session,
    world::World,
};

/// Show ordered deletion on an in-memory Kubernetes API server, without a cluster
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {}

/// Runs the program: the demo calls it as a user would.
pub(crate) type RunProgram = fn(World) -> ProgramFuture;
pub(crate) type ProgramFuture = Pin<Box<dyn Future<Output = Exit> + Send>>;

/// The files of the repository that the demo uses.
const FILES: [(&str, &str); 5] = [
    ("demo/policy.yaml", include_str!("../../../../demo/policy.yaml")),
    ("demo/reports.yaml", include_str!("../../../../demo/reports.yaml")),
    ("demo/shop/1-crd.yaml", include_str!("../../../../demo/shop/1-crd.yaml")),
    ("demo/shop/2-operator.yaml", include_str!("../../../../demo/shop/2-operator.yaml")),
    ("demo/shop/3-databases.yaml", include_str!("../../../../demo/shop/3-databases.yaml")),
];

/// The kubeconfig of the demo's commands, which are connected to the sandbox whatever it contains.
const KUBECONFIG: &str = "\
{apiVersion: v1, kind: Config, current-context: demo, contexts: [{name: demo, context: {cluster: demo, user: demo}}],
 clusters: [{name: demo, cluster: {server: 'http://sandbox'}}], users: [{name: demo, user: {}}]}";

/// How long the operator takes to back up a database.
const BACKUP: Duration = Duration::from_millis(300);

/// Runs the command.
pub(crate) async fn run(session: &Session, _: DemoArgs, run_program: RunProgram) -> Result<Exit, CommandError> {
    if session.json() {
        return Err(CommandError::input("the demo cannot be combined with -o json"));
    }
    sandbox::reject_cluster_flags(session, "the demo")?;
    // On a real cluster, the deletion of a namespace takes at least 5 s.
    let sandbox = Sandbox::start(Options::default().namespace_delay(Duration::from_millis(200)));
    // A sandbox runs no containers: this script does the operator's work while its Deployment exists.
    let operator = Script::RemoveFinalizer {
        kind: "Database.shop.example".to_owned(),
        finalizer: "shop.example/last-backup".to_owned(),
        after: BACKUP,
        while_exists: vec!["Deployment.apps/shop/database-operator".to_owned()],
    };
    let mut operators = JoinSet::new();
    operators.spawn(actors::run(sandbox.client(User::admin(), ""), operator, |_| true));
    let folder =
        unpack().map_err(|error| CommandError::new(Exit::Failed, format!("failed to unpack the demo: {error}")))?;
    Story { printer: session.printer.clone(), sandbox, folder, run_program }.tell().await?;
    Ok(Exit::Done)
}

/// Writes the files to a temporary folder.
fn unpack() -> io::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    fs::create_dir_all(folder.path().join("demo/shop"))?;
    for (name, text) in FILES.iter().chain(&[("kubeconfig", KUBECONFIG)]) {
        fs::write(folder.path().join(name), text)?;
    }
    Ok(folder)
}

struct Story {
    printer: Printer,
    sandbox: Sandbox,
    folder: tempfile::TempDir,
    run_program: RunProgram,
}

impl Story {
    async fn tell(&self) -> Result<(), CommandError> {
        self.print("This demo runs on an in-memory Kubernetes API server; it does not access any cluster.");
        self.print(
            "\nDeploy an operator, its CRD and two databases. Only the operator removes the databases' finalizers.",
        );
        self.billhook("apply shop -f demo/shop --policy demo/policy.yaml --wait=false", Exit::Done).await?;
        self.print("\nAnother user creates a third database. What would deleting the release do?");
        self.create("demo/reports.yaml").await?;
        self.billhook("plan delete shop", Exit::Done).await?;
        self.print("\nThe databases are deleted first, while the operator can still back them up.");
        self.billhook("delete shop", Exit::Done).await?;

        self.print(
            "\nNow the same objects again, deleted file by file with the requests of kubectl delete -f demo/shop:\n",
        );
        self.create("demo/shop/").await?;
        self.delete_file_by_file().await?;
        self.print("\nbillhook names what blocks the deletion:");
        let line = "delete -f demo/shop --policy demo/policy.yaml --yes --timeout 2s";
        self.billhook(line, Exit::Unfinished).await?;

        self.print("\nTo continue in a checkout, serve a sandbox to kubectl and billhook:");
        self.print("  cargo run --release -- sandbox -f demo/shop");
        self.print("or run a single command on a sandbox of its own:");
        self.print("  cargo run --release -- --sandbox plan apply shop -f demo/shop --policy demo/policy.yaml");
        Ok(())
    }

    fn print(&self, text: &str) {
        self.printer.out_lines(text);
    }

    /// Runs billhook, and checks its exit code.
    async fn billhook(&self, line: &str, expected: Exit) -> Result<(), CommandError> {
        let paint = self.printer.out_paint();
        self.print(&format!("\n{}", paint.bold(&format!("$ billhook {line}"))));
        let color = if paint.0 { "CLICOLOR_FORCE" } else { "NO_COLOR" };
        let env = [("KUBECONFIG", "kubeconfig"), (color, "1")];
        let sandbox = self.sandbox.clone();
        let (_interrupt, interrupts) = mpsc::channel(1);
        let world = World {
            args: std::iter::once("billhook").chain(line.split_whitespace()).map(Into::into).collect(),
            env: BTreeMap::from(env.map(|(name, value)| (name.to_owned(), value.to_owned()))),
            directory: self.folder.path().to_owned(),
            stdin: Box::new(io::empty()),
            stdin_terminal: false,
            stdout: Box::new(CommandOutput(self.printer.clone())),
            stdout_terminal: false,
            stderr: Box::new(CommandOutput(self.printer.clone())),
            stderr_terminal: false,
            interrupts,
            connect: Arc::new(move |_, options| {
                Ok(Cluster::from_client(sandbox.client(User::admin(), "billhook"), options))
            }),
        };
        let exit = (self.run_program)(world).await;
        if exit == expected {
            return Ok(());
        }
        let problem = format!("billhook {line} exited with {}, not with {}", exit.code(), expected.code());
        Err(CommandError::new(Exit::Failed, problem))
    }

    /// Creates the objects of the files with this prefix as kubectl would.
    async fn create(&self, files: &str) -> Result<(), CommandError> {
        sandbox::create_all(&self.client(), manifests(files)?, "default", "kubectl").await
    }

    fn client(&self) -> Client {
        self.sandbox.client(User::admin(), "")
    }

    /// Sends the requests of `kubectl delete -f` and prints the answers, then the objects that remain.
    async fn delete_file_by_file(&self) -> Result<(), CommandError> {
        let manifests = manifests("demo/shop/")?;
        let began = Instant::now();
        let mut rows = Vec::new();
        for manifest in &manifests {
            let answer = self.send(manifest, Request::Delete).await?;
            let code = if answer.is_none() { "404" } else { "200" };
            rows.push(vec![
                "DELETE".to_owned(),
                manifest.key.kind.to_string(),
                render::place(&manifest.key),
                code.to_owned(),
                answer.unwrap_or_else(|| "not found".to_owned()),
            ]);
        }
        render::columns(&rows).iter().for_each(|line| self.print(line));
        // Long enough for backups, if the operator still existed.
        sleep((BACKUP * 4).saturating_sub(began.elapsed())).await;
        let waited = render::duration(BACKUP * 4);
        self.print(&format!("\nkubectl prints \"deleted\" for each 200. After {waited}, these objects still exist:\n"));
        let mut left = Vec::new();
        for manifest in &manifests {
            if let Some(state) = self.send(manifest, Request::Get).await? {
                left.push(vec![manifest.key.kind.to_string(), render::place(&manifest.key), state]);
            }
        }
        render::columns(&left).iter().for_each(|line| self.print(&format!("  {line}")));
        self.print("\nThe operator is gone, and nothing else removes its finalizers.");
        Ok(())
    }

    /// Sends a request for an object and returns its state, or `None` if it does not exist.
    async fn send(&self, manifest: &Manifest, request: Request) -> Result<Option<String>, CommandError> {
        let ObjectKey { kind, namespace, name } = &manifest.key;
        let version = manifest.api_version.version();
        let client = self.client();
        let cluster = Cluster::from_client(client.clone(), billhook_cluster::Options::default());
        let catalog = cluster.catalog().await?;
        let Some(served) = catalog.get(kind) else { return Ok(None) };
        let api = sandbox::api(&client, served, version, namespace.as_deref().unwrap_or_default());
        let answer = match request {
            Request::Get => api.get(name).await.map(|object| state(&object)),
            Request::Delete => {
                let answer = api.delete(name, &DeleteParams::background()).await;
                answer.map(|answer| answer.either(|object| state(&object), |_| "removed".to_owned()))
            }
        };
        match answer {
            Ok(state) => Ok(Some(state)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => {
                let what = format!("failed to access {}", render::object(&manifest.key));
                Err(CommandError::new(Exit::Failed, sandbox::rejected(what, &error)))
            }
        }
    }
}

/// The requests that the demo sends itself.
#[derive(Clone, Copy)]
enum Request {
    Get,
    Delete,
}

/// Returns whether an object is being deleted, and its finalizers.
fn state(object: &DynamicObject) -> String {
    // A Namespace also has finalizers in its spec.
    let inner = object.data.pointer("/spec/finalizers").and_then(Value::as_array);
    let inner = inner.into_iter().flatten().filter_map(Value::as_str);
    let held: Vec<&str> = object.finalizers().iter().map(String::as_str).chain(inner).collect();
    match (object.metadata.deletion_timestamp.is_some(), held.as_slice()) {
        (true, []) => "being deleted".to_owned(),
        (true, held) => format!("being deleted, held by {}", held.join(", ")),
        // For some kinds, the answer to DELETE is the deleted object.
        (false, []) => "removed".to_owned(),
        (false, held) => format!("not being deleted, held by {}", held.join(", ")),
    }
}

/// Returns the objects of the files with this prefix.
fn manifests(files: &str) -> Result<Vec<Manifest>, CommandError> {
    let invalid = |error: String| CommandError::new(Exit::Failed, format!("{files}: {error}"));
    let mut manifests = Vec::new();
    for (name, text) in FILES.iter().filter(|(name, _)| name.starts_with(files)) {
        for document in yaml::parse(text).map_err(|error| invalid(error.to_string()))? {
            let read = Manifest::from_document(document, &Arc::from(*name));
            manifests.extend(read.map_err(|errors| invalid(format!("{errors:?}")))?);
        }
    }
    Ok(manifests)
}

/// Writes the output of the demo's commands to its own standard output.
struct CommandOutput(Printer);

impl io::Write for CommandOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.raw(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
