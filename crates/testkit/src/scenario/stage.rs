//! The environment of a scenario: its clusters with the given objects, its files, and its scripted controllers.

use std::{
    collections::BTreeMap,
    io::{Cursor, Write},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use billhook::World;
use billhook_objects::{ApiVersion, GroupKind, ObjectKey};
use billhook_sandbox::{Sandbox, Served, actors};
use kube::{ResourceExt as _, api::DynamicObject};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::{
    Admin, During, Lab, Scenario, Step,
    admin::{is_of, parse_key},
    call::{Call, Called, Sent, Shared, words},
    console,
    controller::Controllers,
    freeze::Freezer,
    lab::{Plane, connect},
    pack,
};
use crate::control_plane::{Binaries, User};

/// The exit code of a killed command, as a shell shows it.
const KILLED: u8 = 137;

/// The environment of a scenario.
pub(super) struct Stage<'a> {
    pub(super) scenario: &'a Scenario,
    /// Its cluster, and the second cluster if it needs one.
    pub(super) planes: Vec<Plane>,
    pub(super) admin: Admin,
    pub(super) second: Option<Admin>,
    /// The controllers of DeployItems.
    pub(super) controllers: Controllers,
    /// The folder with the scenario's files and kubeconfigs.
    directory: tempfile::TempDir,
    acting: JoinSet<()>,
    /// The sandbox as a server for helm, if DeployItems need it.
    served: Option<Served>,
    /// The port of the server behind Services, if a step has started one.
    pub(super) port: OnceLock<u16>,
    /// The time at which the environment was created.
    pub(super) begun: Instant,
}

impl<'a> Stage<'a> {
    /// Creates the given objects, and starts the controller of DeployItems if the scenario has some.
    pub(super) async fn set(scenario: &'a Scenario, lab: &Lab) -> Result<Self> {
        let stage = Self::set_without_controller(scenario, lab).await?;
        if scenario.deploys_items() {
            stage.start_controller("controller").await?;
        }
        Ok(stage)
    }

    /// Creates the given objects.
    pub(super) async fn set_without_controller(scenario: &'a Scenario, lab: &Lab) -> Result<Self> {
        let (directory, begun) = (tempfile::TempDir::new()?, Instant::now());
        let plane = lab.plane(scenario)?;
        let kubeconfig = |plane: &Plane, name: &str, user: User| {
            let text = kubeconfig(&plane.kubeconfig(), Some(user), &scenario.slug)?;
            std::fs::write(directory.path().join(name), text).map_err(anyhow::Error::from)
        };
        kubeconfig(&plane, "admin.kubeconfig", User::Admin)?;
        kubeconfig(&plane, "restricted.kubeconfig", User::Restricted)?;
        let admin = Admin::new(plane.admin().await?, &scenario.slug);
        if scenario.namespace {
            let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {}}}}}", scenario.slug);
            admin.create(&namespace).await?;
            // A namespace is complete only with the objects that controllers create in it.
            let account = ObjectKey::new(GroupKind::new("", "ServiceAccount"), Some(&scenario.slug), "default");
            admin.wait(&account, |_| true).await?;
        }
        if scenario.has_bystanders() {
            let namespace = scenario.bystanders();
            let objects = format!(
                "{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}\n---\n\
                 {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, namespace: {namespace}}}}}\n---\n\
                 {{apiVersion: v1, kind: Secret, metadata: {{name: a, namespace: {namespace}, finalizers: [{namespace}.example/x]}}}}"
            );
            admin.create(&objects).await.context("create the bystanders")?;
        }
        let mut planes = vec![plane];
        let mut second = None;
        if scenario.second_cluster {
            let plane = lab.second()?;
            kubeconfig(&plane, "second.kubeconfig", User::Admin)?;
            let admin = Admin::new(plane.admin().await?, &scenario.slug);
            admin.create(&scenario.given_on_second).await.context("create the given objects on the second cluster")?;
            planes.push(plane);
            second = Some(admin);
        }
        write_files(scenario, directory.path())?;
        let (controllers, acting) = (Controllers::default(), JoinSet::new());
        let mut stage = Self {
            scenario,
            planes,
            admin,
            second,
            controllers,
            directory,
            acting,
            served: None,
            port: OnceLock::new(),
            begun,
        };
        if scenario.deploys_items() {
            stage.served = stage.prepare_items().await.context("create the objects that DeployItems need")?;
        }
        stage.admin.create(&stage.fill(&scenario.given).await?).await.context("create the given objects")?;
        for script in &scenario.controllers {
            let (slug, bystanders) = (scenario.slug.clone(), scenario.bystanders());
            let mine = move |object: &DynamicObject| {
                is_own(object, &slug) && object.metadata.namespace.as_ref() != Some(&bystanders)
            };
            stage.acting.spawn(actors::run(stage.admin.client().clone(), script.clone(), mine));
        }
        Ok(stage)
    }

    /// The folder with the scenario's files and kubeconfigs.
    pub(super) fn folder(&self) -> &Path {
        self.directory.path()
    }

    /// Prepares the command of a step.
    pub(super) async fn begin(&self, step: &Step) -> Result<()> {
        tokio::time::sleep(step.after).await;
        self.prepare_servers(step).await?;
        self.admin.create(&self.fill(&step.create).await?).await?;
        for object in &step.delete {
            self.admin.delete(&parse_key(object)?).await?;
        }
        for text in &step.deleting {
            let (object, policy) = text.split_once(' ').unwrap_or((text, "Background"));
            self.admin.request_deletion(&parse_key(object)?, policy).await?;
        }
        for (object, patch) in &step.patch {
            self.admin.patch(&parse_key(object)?, patch).await.with_context(|| format!("patch {object}"))?;
        }
        self.send(&step.requests).await?;
        self.corrupt(&step.corrupt).await?;
        for (object, wanted) in &step.until {
            let holds =
                |found: &DynamicObject| serde_json::to_value(found).is_ok_and(|found| actors::holds(&found, wanted));
            self.admin.wait(&parse_key(object)?, holds).await?;
        }
        for (object, deletable) in &step.until_deletable {
            self.admin.wait_deletable(&parse_key(object)?, *deletable).await?;
        }
        Ok(())
    }

    /// Plays a console session with the real kubectl, over TCP.
    pub(super) async fn console(&self, transcript: &str) -> Result<()> {
        let folder = self.directory.path();
        let (path, _served) = (folder.join("console.kubeconfig"), self.serve("console.kubeconfig").await?);
        console::play(transcript, &path, Path::new(&kubectl()?), folder).await
    }

    /// Writes a kubeconfig that external programs can use until the result is dropped.
    pub(super) async fn serve(&self, name: &str) -> Result<Option<Served>> {
        let path = self.folder().join(name);
        let Plane::Sandbox(sandbox, _) = &self.planes[0] else {
            std::fs::copy(self.folder().join("admin.kubeconfig"), path)?;
            return Ok(None);
        };
        let served = sandbox.serve().await?;
        std::fs::write(path, kubeconfig(&served.kubeconfig(), None, &self.scenario.slug)?)?;
        Ok(Some(served))
    }

    /// Returns the sandbox whose requests can be disturbed.
    pub(super) fn sandbox(&self) -> Result<&Sandbox> {
        match &self.planes[0] {
            Plane::Sandbox(sandbox, _) => Ok(sandbox),
            Plane::Real(_) => Err(anyhow!("a real control plane cannot be disturbed")),
        }
    }

    /// Returns a command that is ready to run.
    fn prepare(&self, step: &Step, line: &str, client: &str, interrupts: mpsc::Receiver<()>) -> Result<Call> {
        let (stdout, stderr, sent) = (Shared::default(), Shared::default(), Sent::default());
        let freezer = Freezer::default();
        let config = if step.restricted { "restricted.kubeconfig" } else { "admin.kubeconfig" };
        let mut env: BTreeMap<String, String> = std::env::vars().filter(|(name, _)| name == "PATH").collect();
        env.insert("KUBECONFIG".into(), self.directory.path().join(config).display().to_string());
        if self.scenario.kubectl {
            env.insert("BILLHOOK_KUBECTL".into(), kubectl()?);
        }
        if self.scenario.helm {
            env.insert("BILLHOOK_HELM".into(), helm()?);
        }
        let connect = {
            let (sent, planes, client) = (sent.clone(), self.planes.clone(), client.to_owned());
            let freezer = freezer.clone();
            move |config, options| {
                let cluster = connect(&planes, &client, &freezer, config, options)?;
                sent.add(cluster.clone());
                Ok(cluster)
            }
        };
        let typed = step.terminal.clone();
        let world = World {
            args: std::iter::once("billhook".to_owned()).chain(words(line)).map(Into::into).collect(),
            env,
            directory: self.directory.path().to_owned(),
            stdin_terminal: typed.is_some(),
            stdin: Box::new(Cursor::new(typed.unwrap_or_else(|| step.stdin.clone()))),
            stdout: Box::new(stdout.clone()),
            stdout_terminal: false,
            stderr: Box::new(stderr.clone()),
            stderr_terminal: false,
            interrupts,
            connect: Arc::new(connect),
        };
        Ok(Call { world, stdout, stderr, sent, freezer })
    }

    /// Runs a command; on sandboxes its requests have this client name.
    pub(super) async fn call(&self, step: &Step, line: &str, client: &str) -> Result<Called> {
        let (interrupt, interrupts) = mpsc::channel(2);
        let Call { world, stdout, stderr, sent, freezer } = self.prepare(step, line, client, interrupts)?;
        for fault in &step.faults {
            self.sandbox()?.faults().inject(fault.of(client)?);
        }
        let begun = Instant::now();
        let printed = || stdout.text() + &stderr.text();
        let run = async {
            let exit = freezer.run(Box::pin(billhook::run(world))).await;
            (exit.unwrap_or(KILLED), begun.elapsed())
        };
        let (exit, took) = self
            .beside(step, run, (&interrupt, &freezer), &printed)
            .await
            .with_context(|| format!("--- stdout\n{}--- stderr\n{}---", stdout.text(), stderr.text()))?;
        let (requests, writes) = (sent.requests(), sent.writes());
        Ok(Called { exit, stdout: stdout.text(), stderr: stderr.text(), requests, writes, took })
    }

    /// Runs `work` concurrently with the events during a step.
    pub(super) async fn beside<T>(
        &self,
        step: &Step,
        work: impl Future<Output = T>,
        program: (&mpsc::Sender<()>, &Freezer),
        printed: &impl Fn() -> String,
    ) -> Result<T> {
        let mut meanwhile = std::pin::pin!(async {
            futures::future::try_join_all(
                step.during.iter().map(|during| Box::pin(self.during(step, during, program, printed))),
            )
            .await?;
            anyhow::Ok(())
        });
        let mut work = std::pin::pin!(work);
        let mut quiet = step.during.is_empty();
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                ended = &mut meanwhile, if !quiet => { ended?; quiet = true; }
            }
        };
        if !quiet {
            // The last event may have caused the end, and may be a command that has not ended.
            let meanwhile = tokio::time::timeout(Duration::from_secs(30), meanwhile).await;
            meanwhile.map_err(|_| anyhow!("it ended before all events of the step"))??;
        }
        Ok(done)
    }

    async fn during(
        &self,
        step: &Step,
        during: &During,
        (interrupt, freezer): (&mpsc::Sender<()>, &Freezer),
        printed: &impl Fn() -> String,
    ) -> Result<()> {
        while during.when.as_ref().is_some_and(|text| !printed().contains(text)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(during.after).await;
        if during.compact {
            self.sandbox()?.compact();
        }
        if during.interrupt {
            interrupt.send(()).await.ok();
        }
        if during.kill {
            freezer.kill();
        }
        if let Some(time) = during.freeze {
            freezer.freeze(time).await;
        }
        if let Some(line) = &during.billhook {
            let (_interrupt, interrupts) = mpsc::channel(1);
            let call = self.prepare(step, line, "another", interrupts)?;
            let called = call.run().await;
            let checked = called.check(&during.expect, line);
            checked.with_context(|| format!("{line}: {}", called.shown()))?;
            self.after(&during.expect).await.with_context(|| format!("after {line}: {}", called.shown()))?;
        }
        for object in &during.delete {
            self.admin.delete(&parse_key(object)?).await?;
        }
        self.admin.create(&during.create).await?;
        for (object, patch) in &during.patch {
            self.admin.patch(&parse_key(object)?, patch).await?;
        }
        if let Some(away) = during.stop_server {
            ensure!(self.scenario.exclusive, "only an exclusive scenario may stop its server");
            self.planes[0].take_away(away).await?;
        }
        Ok(())
    }
}

fn write_files(scenario: &Scenario, directory: &Path) -> Result<()> {
    for (name, text) in &scenario.files {
        let path = directory.join(name);
        path.parent().map(std::fs::create_dir_all).transpose()?;
        std::fs::write(path, text.text())?;
    }
    for (name, source) in &scenario.fixtures {
        copy(&super::fixtures().join(source), &directory.join(name))
            .with_context(|| format!("copy the fixture {source}"))?;
    }
    for (name, text) in &scenario.files {
        let text = text.text();
        let filled = pack::fill(&text, directory).with_context(|| format!("write {name}"))?;
        if filled != text {
            std::fs::write(directory.join(name), filled)?;
        }
    }
    Ok(())
}

/// Restricts a scripted controller to the objects of the scenario.
fn is_own(object: &DynamicObject, slug: &str) -> bool {
    let types = object.types.as_ref();
    let group = types.and_then(|types| ApiVersion::parse(&types.api_version).ok());
    let kind = GroupKind::new(group.as_ref().map_or("", |version| version.group()), "");
    is_of(&ObjectKey::new(kind, object.namespace().as_deref(), object.name_any()), slug)
}

/// Returns the `kubectl` program of `BILLHOOK_KUBECTL`, or of the testbed, which is built if it is missing.
fn kubectl() -> Result<String> {
    program("BILLHOOK_KUBECTL", || Ok(Binaries::locate_or_build(progress)?.kubectl().to_owned()))
}

/// Returns the `helm` program of `BILLHOOK_HELM`, or of the testbed, which is built if it is missing.
pub(super) fn helm() -> Result<String> {
    program("BILLHOOK_HELM", || Binaries::helm(progress))
}

fn program(variable: &str, ours: impl FnOnce() -> Result<PathBuf>) -> Result<String> {
    match std::env::var(variable).ok().filter(|named| !named.is_empty()) {
        Some(named) => Ok(named),
        None => Ok(ours()?.display().to_string()),
    }
}

fn progress(line: &str) {
    drop(writeln!(std::io::stderr(), "testbed: {line}"));
}

/// Copies a file, or a folder with its content.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        std::fs::copy(from, to)?;
        return Ok(());
    }
    std::fs::create_dir_all(to)?;
    for entry in from.read_dir()? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Returns a kubeconfig with this namespace, and with this user if one is given.
fn kubeconfig(text: &str, user: Option<User>, namespace: &str) -> Result<String> {
    let documents = billhook_objects::yaml::parse(text)?;
    let mut config = documents.into_iter().next().ok_or_else(|| anyhow!("the kubeconfig is empty"))?.value;
    if let Some(user) = user {
        config["current-context"] = user.name().into();
    }
    for context in config["contexts"].as_array_mut().into_iter().flatten() {
        context["context"]["namespace"] = namespace.into();
    }
    Ok(config.to_string())
}
