//! `billhook demo`: the main job, told on a sandbox: nothing is needed, and nothing else is touched.

use std::{collections::BTreeMap, fs, io, sync::Arc, time::Duration};

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
    World,
    error::{CommandError, Exit},
    output::Printer,
    render, sandbox,
    session::Session,
};

/// Show the main job on a Kubernetes API server in memory; needs nothing and touches nothing
#[derive(Debug, Args)]
pub(crate) struct Demo {}

/// The files, as they lie in the repository.
const FILES: [(&str, &str); 5] = [
    ("demo/policy.yaml", include_str!("../../../../demo/policy.yaml")),
    ("demo/reports.yaml", include_str!("../../../../demo/reports.yaml")),
    ("demo/shop/1-crd.yaml", include_str!("../../../../demo/shop/1-crd.yaml")),
    ("demo/shop/2-operator.yaml", include_str!("../../../../demo/shop/2-operator.yaml")),
    ("demo/shop/3-databases.yaml", include_str!("../../../../demo/shop/3-databases.yaml")),
];

/// What the calls read before they are connected to the sandbox.
const KUBECONFIG: &str = "\
{apiVersion: v1, kind: Config, current-context: demo, contexts: [{name: demo, context: {cluster: demo, user: demo}}],
 clusters: [{name: demo, cluster: {server: 'http://sandbox'}}], users: [{name: demo, user: {}}]}";

/// How long the operator takes to back a database up.
const BACKUP: Duration = Duration::from_millis(300);

/// Runs the command.
pub(crate) async fn run(session: &Session, Demo {}: Demo) -> Result<Exit, CommandError> {
    if session.json() {
        return Err(CommandError::input("the demo is a story for people: it has no JSON"));
    }
    sandbox::refuse_kubeconfig(session, "demo")?;
    // On a real cluster every namespace takes 5 s.
    let sandbox = Sandbox::start(Options::default().namespace_delay(Duration::from_millis(200)));
    // Nothing runs in a sandbox, so a stand-in does the operator's work, and only while its Deployment is there.
    let operator = Script::RemoveFinalizer {
        kind: "Database.shop.example".to_owned(),
        finalizer: "shop.example/last-backup".to_owned(),
        after: BACKUP,
        while_exists: Some("Deployment.apps/shop/database-operator".to_owned()),
    };
    let mut acting = JoinSet::new();
    acting.spawn(actors::run(sandbox.client(User::admin(), ""), operator, |_| true));
    let folder = unpack().map_err(|error| CommandError::new(Exit::Failed, format!("failed to unpack: {error}")))?;
    Story { printer: session.printer.clone(), sandbox, folder }.tell().await?;
    Ok(Exit::Done)
}

/// Writes the files where the calls read them.
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
}

impl Story {
    async fn tell(&self) -> Result<(), CommandError> {
        self.say("This is a Kubernetes API server in the memory of this program: no cluster of yours is touched.");
        self.say("\nAn operator, its CRD and two databases. Each has a finalizer that only the operator removes.");
        self.billhook("apply shop -f demo/shop --policy demo/policy.yaml --wait=false", Exit::Done).await?;
        self.say("\nSomebody else makes a third database. What would a deletion do?");
        self.create("demo/reports.yaml").await?;
        self.billhook("plan delete shop", Exit::Done).await?;
        self.say("\nThe databases go first, while the operator can still take its last backups.");
        self.billhook("delete shop", Exit::Done).await?;

        self.say(
            "\nThe same objects once more, and the requests that kubectl delete -f demo/shop sends: file by file.\n",
        );
        self.create("demo/shop/").await?;
        self.delete_file_by_file().await?;
        self.say("\nWhat does billhook say of it?");
        let line = "delete -f demo/shop --policy demo/policy.yaml --yes --timeout 2s";
        self.billhook(line, Exit::Unfinished).await?;

        self.say("\nTo go on by yourself in a checkout, with kubectl and billhook on a sandbox that stays:");
        self.say("  cargo run --release -- sandbox -f demo/shop");
        self.say("or with one command on a sandbox of its own:");
        self.say("  cargo run --release -- --sandbox plan apply shop -f demo/shop --policy demo/policy.yaml");
        Ok(())
    }

    fn say(&self, text: &str) {
        self.printer.out(text);
    }

    /// Calls the very program.
    async fn billhook(&self, line: &str, expected: Exit) -> Result<(), CommandError> {
        let paint = self.printer.out_paint();
        self.say(&format!("\n{}", paint.bold(&format!("$ billhook {line}"))));
        let colour = if paint.0 { "CLICOLOR_FORCE" } else { "NO_COLOR" };
        let env = [("KUBECONFIG", "kubeconfig"), (colour, "1")];
        let sandbox = self.sandbox.clone();
        let (_interrupt, interrupts) = mpsc::channel(1);
        let world = World {
            args: std::iter::once("billhook").chain(line.split_whitespace()).map(Into::into).collect(),
            env: BTreeMap::from(env.map(|(name, value)| (name.to_owned(), value.to_owned()))),
            directory: self.folder.path().to_owned(),
            stdin: Box::new(io::empty()),
            stdin_terminal: false,
            stdout: Box::new(Through(self.printer.clone())),
            stdout_terminal: false,
            stderr: Box::new(Through(self.printer.clone())),
            stderr_terminal: false,
            interrupts,
            connect: Arc::new(move |_, options| {
                Ok(Cluster::from_client(sandbox.client(User::admin(), "billhook"), options))
            }),
        };
        // The program calls itself, so its future has to lie elsewhere.
        let exit = Box::pin(crate::run(world)).await;
        if exit == expected.code() {
            return Ok(());
        }
        let problem = format!("billhook {line} ended with {exit}, not with {}", expected.code());
        Err(CommandError::new(Exit::Failed, problem))
    }

    /// Creates the objects of the files whose names begin so, as somebody else.
    async fn create(&self, files: &str) -> Result<(), CommandError> {
        sandbox::fill(&self.client(), manifests(files)?, "default", "kubectl").await
    }

    fn client(&self) -> Client {
        self.sandbox.client(User::admin(), "")
    }

    /// Sends what `kubectl delete` sends, and says what the server answers.
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
        render::columns(&rows).iter().for_each(|line| self.say(line));
        // Time enough for backups, if anybody were there to take them.
        sleep((BACKUP * 4).saturating_sub(began.elapsed())).await;
        let waited = render::duration(BACKUP * 4);
        self.say(&format!("\nFor each 200 kubectl prints \"deleted\". After {waited} these are still there:\n"));
        let mut left = Vec::new();
        for manifest in &manifests {
            if let Some(state) = self.send(manifest, Request::Get).await? {
                left.push(vec![manifest.key.kind.to_string(), render::place(&manifest.key), state]);
            }
        }
        render::columns(&left).iter().for_each(|line| self.say(&format!("  {line}")));
        self.say("\nThe operator is gone, and nobody else removes its finalizers.");
        Ok(())
    }

    /// Sends a request about an object; none where it is not there.
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
                let what = format!("failed to ask for {}", render::object(&manifest.key));
                Err(sandbox::refused(Exit::Failed, what, &error))
            }
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
enum Request {
    Get,
    Delete,
}

/// What an answer says of an object: whether it goes, and what holds it.
fn state(object: &DynamicObject) -> String {
    // A Namespace has its finalizers elsewhere.
    let inner = object.data.pointer("/spec/finalizers").and_then(Value::as_array);
    let inner = inner.into_iter().flatten().filter_map(Value::as_str);
    let held: Vec<&str> = object.finalizers().iter().map(String::as_str).chain(inner).collect();
    match (object.metadata.deletion_timestamp.is_some(), held.as_slice()) {
        (true, []) => "being deleted".to_owned(),
        (true, held) => format!("being deleted, held by {}", held.join(", ")),
        // Some kinds are answered with what was there.
        (false, []) => "removed".to_owned(),
        (false, held) => format!("not being deleted, held by {}", held.join(", ")),
    }
}

/// The objects of the files whose names begin so.
fn manifests(files: &str) -> Result<Vec<Manifest>, CommandError> {
    let wrong = |error: String| CommandError::new(Exit::Failed, format!("{files}: {error}"));
    let mut manifests = Vec::new();
    for (name, text) in FILES.iter().filter(|(name, _)| name.starts_with(files)) {
        for document in yaml::parse(text).map_err(|error| wrong(error.to_string()))? {
            let read = Manifest::from_document(document, &Arc::from(*name));
            manifests.extend(read.map_err(|errors| wrong(format!("{errors:?}")))?);
        }
    }
    Ok(manifests)
}

/// Where the calls print: to the one gate, in the order of the story.
struct Through(Printer);

impl io::Write for Through {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.raw(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
