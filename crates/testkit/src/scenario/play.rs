//! Plays a scenario: what is given, then step by step, each call in-process through the very program.

use std::{
    collections::BTreeMap,
    future::Future as _,
    io::{Cursor, Write},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use billhook::{Cluster, World};
use kube::{Client, api::DynamicObject};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::{Admin, During, Expect, Lab, Scenario, Step, admin::parse_key, controllers, observe::Observer};
use crate::control_plane::{Binaries, ControlPlane, User};

/// Plays a scenario.
///
/// # Errors
///
/// When anything comes out otherwise than the file says: the error names the step and shows what was printed.
pub async fn play(scenario: &Scenario, lab: &Lab) -> Result<()> {
    if !scenario.is_killed() {
        return play_once(scenario, lab, 0).await.map(drop);
    }
    for request in 1..MOST_KILLS {
        let ended = play_once(&scenario.again(request)?, lab, request).await;
        if ended.with_context(|| format!("killed at request {request}"))? {
            ensure!(request > 3, "only {} requests were there to be killed at", request - 1);
            return Ok(());
        }
    }
    bail!("a call with more than {MOST_KILLS} requests is not killed at each of them")
}

/// A call is not killed more often than this.
const MOST_KILLS: u64 = 60;

/// Says whether the call that is to be killed at a request ended before.
async fn play_once(scenario: &Scenario, lab: &Lab, kill_at: u64) -> Result<bool> {
    let plane = if scenario.exclusive { lab.exclusive()? } else { lab.shared()? };
    let second = if scenario.second_cluster { Some(lab.second()?) } else { None };
    let stage = Stage::set(scenario, &plane, second.as_deref()).await?;
    let mut acting = JoinSet::new();
    for controller in &scenario.controllers {
        acting.spawn(controllers::run(stage.admin.clone(), controller.clone(), scenario.slug.clone()));
    }
    let before = if scenario.leaves_nothing { stage.admin.everything().await? } else { Vec::new() };
    let mut ended = true;
    for (index, step) in scenario.steps.iter().enumerate() {
        let what = || format!("step {} ({})", index + 1, step.billhook.as_deref().unwrap_or("no call"));
        if step.killed_at_each_request
            && let Some(line) = &step.billhook
        {
            ended &= stage.kill(step, line, kill_at).await.with_context(what)?;
        }
        stage.step(step).await.with_context(what)?;
    }
    if scenario.leaves_nothing {
        let after = stage.admin.everything().await?;
        let new: Vec<_> = after.iter().filter(|object| !before.contains(object)).collect();
        let lost: Vec<_> = before.iter().filter(|object| !after.contains(object)).collect();
        ensure!(new.is_empty() && lost.is_empty(), "left behind: {new:#?}; lost: {lost:#?}");
    }
    Ok(ended)
}

/// Where a scenario plays.
struct Stage<'a> {
    scenario: &'a Scenario,
    plane: &'a Arc<ControlPlane>,
    admin: Admin,
    second: Option<Admin>,
    /// Holds the scenario's files and kubeconfigs.
    directory: tempfile::TempDir,
}

/// A call that can be made.
struct Call {
    world: World,
    stdout: Shared,
    stderr: Shared,
    sent: Sent,
}

/// The clusters that a call has connected to, which count its requests.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<Cluster>>>);

impl Sent {
    fn requests(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|cluster| cluster.requests().total()).sum()
    }

    fn writes(&self) -> u64 {
        let clusters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = clusters.iter().map(|cluster| cluster.requests());
        counts.map(|sent| sent.create + sent.update + sent.patch + sent.delete).sum()
    }
}

/// What a call printed and how it ended.
struct Called {
    exit: u8,
    stdout: String,
    stderr: String,
    requests: u64,
    /// Those among them that may change something.
    writes: u64,
    took: Duration,
}

impl<'a> Stage<'a> {
    async fn set(scenario: &'a Scenario, plane: &'a Arc<ControlPlane>, second: Option<&ControlPlane>) -> Result<Self> {
        let directory = tempfile::TempDir::new()?;
        let kubeconfig = |plane: &ControlPlane, name: &str, user: User| {
            let text = kubeconfig(plane.kubeconfig(), user, &scenario.slug)?;
            std::fs::write(directory.path().join(name), text).map_err(anyhow::Error::from)
        };
        kubeconfig(plane, "admin.kubeconfig", User::Admin)?;
        kubeconfig(plane, "restricted.kubeconfig", User::Restricted)?;
        let admin = Admin::new(Client::try_from(plane.client_config(User::Admin).await?)?, &scenario.slug);
        if scenario.namespace {
            let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {}}}}}", scenario.slug);
            admin.create(&namespace).await?;
        }
        admin.create(&scenario.given).await.context("create what is given")?;
        let second = match second {
            Some(plane) => {
                kubeconfig(plane, "second.kubeconfig", User::Admin)?;
                let admin = Admin::new(Client::try_from(plane.client_config(User::Admin).await?)?, &scenario.slug);
                admin.create(&scenario.given_on_second).await.context("create what is given on the second cluster")?;
                Some(admin)
            }
            None => None,
        };
        for (name, text) in &scenario.files {
            let path = directory.path().join(name);
            path.parent().map(std::fs::create_dir_all).transpose()?;
            std::fs::write(path, text.text())?;
        }
        for (name, source) in &scenario.fixtures {
            copy(&super::fixtures().join(source), &directory.path().join(name))
                .with_context(|| format!("copy the fixture {source}"))?;
        }
        Ok(Self { scenario, plane, admin, second, directory })
    }

    async fn step(&self, step: &Step) -> Result<()> {
        self.admin.create(&step.create).await?;
        for object in &step.delete {
            self.admin.delete(&parse_key(object)?).await?;
        }
        for (object, patch) in &step.patch {
            self.admin.patch(&parse_key(object)?, patch).await.with_context(|| format!("patch {object}"))?;
        }
        for (object, wanted) in &step.until {
            let holds = |found: &DynamicObject| {
                serde_json::to_value(found).is_ok_and(|found| controllers::holds(&found, wanted))
            };
            self.admin.wait(&parse_key(object)?, holds).await?;
        }
        for (object, deletable) in &step.until_deletable {
            self.admin.wait_deletable(&parse_key(object)?, *deletable).await?;
        }
        let Some(line) = &step.billhook else { return self.after(&step.expect).await };
        let ordered = [&step.expect.gone, &step.expect.appeared];
        let observed = ordered.into_iter().flatten().flatten().flatten();
        let observer = Observer::start(&self.admin, observed).await?;
        let called = tokio::time::timeout(step.within, self.call(step, line))
            .await
            .map_err(|_| anyhow!("it had not ended after {:?}", step.within))??;
        let checked = async {
            called.check(&step.expect, line)?;
            if let Some(groups) = &step.expect.gone {
                observer.check(groups, &self.scenario.slug).await?;
            }
            if let Some(groups) = &step.expect.appeared {
                observer.check_births(groups).await?;
            }
            self.after(&step.expect).await
        };
        checked.await.with_context(|| format!("after {}", called.shown()))
    }

    /// Makes a call and drops it at its `kill_at`th request; says whether it ended before.
    async fn kill(&self, step: &Step, line: &str, kill_at: u64) -> Result<bool> {
        let (interrupt, interrupts) = mpsc::channel(2);
        let call = self.prepare(step, line, interrupts)?;
        let mut run = std::pin::pin!(billhook::run(call.world));
        let killed = std::future::poll_fn(|context| match run.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(false),
            Poll::Pending if call.sent.requests() >= kill_at => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        });
        let killed = tokio::time::timeout(step.within, killed).await;
        drop(interrupt);
        Ok(!killed.map_err(|_| anyhow!("it had not ended after {:?}", step.within))?)
    }

    /// A call that can be made.
    fn prepare(&self, step: &Step, line: &str, interrupts: mpsc::Receiver<()>) -> Result<Call> {
        let (stdout, stderr, sent) = (Shared::default(), Shared::default(), Sent::default());
        let config = if step.restricted { "restricted.kubeconfig" } else { "admin.kubeconfig" };
        let binaries = self.plane.binaries();
        let mut env: BTreeMap<String, String> = std::env::vars().filter(|(name, _)| name == "PATH").collect();
        env.insert("KUBECONFIG".into(), self.directory.path().join(config).display().to_string());
        env.insert("BILLHOOK_KUBECTL".into(), binaries.kubectl().display().to_string());
        if self.scenario.helm {
            env.insert("BILLHOOK_HELM".into(), helm()?);
        }
        let connect = {
            let sent = sent.clone();
            move |config, options| {
                let cluster = Cluster::connect(config, options)?;
                sent.0.lock().unwrap_or_else(PoisonError::into_inner).push(cluster.clone());
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
        Ok(Call { world, stdout, stderr, sent })
    }

    async fn call(&self, step: &Step, line: &str) -> Result<Called> {
        let (interrupt, interrupts) = mpsc::channel(2);
        let Call { world, stdout, stderr, sent } = self.prepare(step, line, interrupts)?;
        let begun = Instant::now();
        let printed = || stdout.text() + &stderr.text();
        let mut meanwhile = std::pin::pin!(async {
            futures::future::try_join_all(step.during.iter().map(|during| self.during(during, &interrupt, &printed)))
                .await?;
            anyhow::Ok(())
        });
        let mut run = std::pin::pin!(billhook::run(world));
        let mut quiet = step.during.is_empty();
        let exit = loop {
            tokio::select! {
                exit = &mut run => break exit,
                ended = &mut meanwhile, if !quiet => { ended?; quiet = true; }
            }
        };
        let took = begun.elapsed();
        if !quiet {
            // The end of the call may be the very consequence of what happened meanwhile.
            let meanwhile = tokio::time::timeout(Duration::from_secs(5), meanwhile).await;
            let called = || format!("exit {exit}\n--- stdout\n{}--- stderr\n{}---", stdout.text(), stderr.text());
            meanwhile.map_err(|_| {
                anyhow!("it ended before all that should happen meanwhile had happened: {}", called())
            })??;
        }
        let (requests, writes) = (sent.requests(), sent.writes());
        Ok(Called { exit, stdout: stdout.text(), stderr: stderr.text(), requests, writes, took })
    }

    async fn during(&self, during: &During, interrupt: &mpsc::Sender<()>, printed: &impl Fn() -> String) -> Result<()> {
        while during.when.as_ref().is_some_and(|text| !printed().contains(text)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(during.after).await;
        if during.interrupt {
            interrupt.send(()).await.ok();
        }
        self.admin.create(&during.create).await?;
        for (object, patch) in &during.patch {
            self.admin.patch(&parse_key(object)?, patch).await?;
        }
        if let Some(away) = during.stop_server {
            ensure!(self.scenario.exclusive, "only an exclusive scenario may stop its server");
            self.plane.stop_api_server();
            tokio::time::sleep(away).await;
            let plane = Arc::clone(self.plane);
            tokio::task::spawn_blocking(move || plane.start_api_server()).await??;
        }
        Ok(())
    }

    /// What the cluster holds after a step.
    async fn after(&self, expect: &Expect) -> Result<()> {
        self.there(&self.admin, &expect.stays, &expect.absent).await?;
        if let Some(second) = &self.second {
            self.there(second, &expect.stays_on_second, &expect.absent_on_second).await?;
        }
        for (object, wanted) in &expect.holds {
            let found = self.admin.get(&parse_key(object)?).await?;
            let found = serde_json::to_value(found.ok_or_else(|| anyhow!("{object} is not there"))?)?;
            ensure!(controllers::holds(&found, wanted), "{object} should hold {wanted} and is {found:#}");
        }
        Ok(())
    }

    async fn there(&self, admin: &Admin, stays: &[String], absent: &[String]) -> Result<()> {
        for object in stays {
            ensure!(admin.any(&parse_key(object)?).await?, "{object} should be there and is not");
        }
        for object in absent {
            ensure!(!admin.any(&parse_key(object)?).await?, "{object} should not be there and is");
        }
        Ok(())
    }
}

impl Called {
    fn check(&self, expect: &Expect, line: &str) -> Result<()> {
        ensure!(self.exit == expect.exit, "exit code {} instead of {}", self.exit, expect.exit);
        let looks =
            ["plan", "status", "list", "validate"].contains(&line.split_whitespace().next().unwrap_or_default());
        let refused = expect.exit == 2 || expect.exit == 4;
        ensure!(
            self.writes == 0 || !(looks || refused),
            "{} requests that write, and nothing may be touched",
            self.writes
        );
        for (name, text, wanted) in
            [("output", &self.stdout, &expect.stdout), ("error output", &self.stderr, &expect.stderr)]
        {
            for wanted in wanted {
                ensure!(text.contains(wanted.as_str()), "standard {name} does not hold {wanted:?}");
            }
        }
        for unwanted in &expect.silent {
            ensure!(!self.stdout.contains(unwanted) && !self.stderr.contains(unwanted), "{unwanted:?} was printed");
        }
        if let Some(most) = expect.requests_at_most {
            ensure!(self.requests <= most, "{} requests, at most {most} were allowed", self.requests);
        }
        if let Some(limit) = expect.at_most.filter(|limit| self.took > *limit) {
            bail!("it took {:?}, longer than {limit:?}", self.took);
        }
        if let Some(limit) = expect.at_least.filter(|limit| self.took < *limit) {
            bail!("it took {:?}, less than {limit:?}", self.took);
        }
        Ok(())
    }

    fn shown(&self) -> String {
        let Self { exit, stdout, stderr, requests, took, .. } = self;
        format!("exit {exit}, {requests} requests, {took:.1?}\n--- stdout\n{stdout}--- stderr\n{stderr}---")
    }
}

/// The `helm` program: the one that `BILLHOOK_HELM` names, or our own, which is built if need be.
fn helm() -> Result<String> {
    if let Some(named) = std::env::var("BILLHOOK_HELM").ok().filter(|named| !named.is_empty()) {
        return Ok(named);
    }
    let progress = |line: &str| drop(writeln!(std::io::stderr(), "testbed: {line}"));
    Ok(Binaries::helm(progress)?.display().to_string())
}

/// Copies a file, or a folder with all that is in it.
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

/// A kubeconfig whose current context is this user in this namespace.
fn kubeconfig(text: &str, user: User, namespace: &str) -> Result<String> {
    let documents = billhook_objects::yaml::parse(text)?;
    let mut config = documents.into_iter().next().ok_or_else(|| anyhow!("an empty kubeconfig"))?.value;
    config["current-context"] = user.name().into();
    for context in config["contexts"].as_array_mut().into_iter().flatten() {
        context["context"]["namespace"] = namespace.into();
    }
    Ok(config.to_string())
}

/// Splits a command line at spaces; '…' keeps words together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// What a call prints, readable while it runs.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
