//! Two or three commands that apply and delete one release at once. A history decides at each of their requests who continues,
//! who is frozen and who is killed. No object may be written without the lock of the release, and no labelled object may be
//! outside its record.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use billhook::{Cluster, ClusterOptions, World};
use billhook_objects::ReleaseName;
use billhook_sandbox::{
    Options, Sandbox, User,
    actors::{self, Script},
};
use billhook_testkit::scenario::{disturb::EXPIRY, freeze::Freezer};
use http::{Method, Request};
use k8s_openapi::ByteString;
use kube::{Client, client::Body};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, mpsc},
    task::{JoinHandle, LocalSet},
};

/// What one of the commands does.
#[derive(Clone, Copy, Debug)]
pub enum Actor {
    Apply {
        version: usize,
        take_over: bool,
    },
    Delete {
        take_over: bool,
    },
    /// Makes passes over a payload.
    Payload {
        version: usize,
        take_over: bool,
        to_completion: bool,
    },
}

/// A step of a history.
#[derive(Clone, Copy, Debug)]
pub enum Turn {
    /// An actor gets the answers of this many requests.
    Go { actor: usize, requests: usize },
    /// An actor is frozen while this many seconds pass.
    Freeze { actor: usize, seconds: u64 },
    /// An actor is killed.
    Kill { actor: usize },
    /// Time passes.
    Wait { seconds: u64 },
}

pub fn actors() -> impl Strategy<Value = Vec<Actor>> {
    let take_over = || prop::bool::weighted(0.2);
    let apply = (0..2_usize, take_over()).prop_map(|(version, take_over)| Actor::Apply { version, take_over });
    let delete = take_over().prop_map(|take_over| Actor::Delete { take_over });
    prop::collection::vec(prop_oneof![3 => apply, 2 => delete], 2..=3)
}

/// Returns commands on one payload: at least one applies it.
pub fn payloads() -> impl Strategy<Value = Vec<Actor>> {
    let take_over = || prop::bool::weighted(0.2);
    let payload =
        || {
            (0..PAYLOADS.len(), take_over(), any::<bool>())
                .prop_map(|(version, take_over, to_completion)| Actor::Payload { version, take_over, to_completion })
        };
    let delete = take_over().prop_map(|take_over| Actor::Delete { take_over });
    let others = prop::collection::vec(prop_oneof![3 => payload(), 1 => delete], 1..=2);
    (payload(), others).prop_map(|(first, others)| [vec![first], others].concat())
}

pub fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let actor = || 0..3_usize;
    let turn = prop_oneof![
        12 => (actor(), 1..6_usize).prop_map(|(actor, requests)| Turn::Go { actor, requests }),
        3 => (actor(), 1..60_u64).prop_map(|(actor, seconds)| Turn::Freeze { actor, seconds }),
        1 => actor().prop_map(|actor| Turn::Kill { actor }),
        2 => (1..40_u64).prop_map(|seconds| Turn::Wait { seconds }),
    ];
    prop::collection::vec(turn, 1..40)
}

const VERSIONS: [&str; 2] = [
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [model.example/slow]}, data: {v: '1'}}\n---\n\
     {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n---\n\
     {apiVersion: v1, kind: Secret, metadata: {name: c}}",
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {v: '2'}}\n---\n\
     {apiVersion: v1, kind: Secret, metadata: {name: c}}\n---\n\
     {apiVersion: v1, kind: Secret, metadata: {name: d, finalizers: [model.example/slow]}}",
];

/// Versions of a payload, each with its files. The second one deletes an object that a finalizer keeps for a while, and the
/// third one has neither its manifest nor that of another object.
const PAYLOADS: [&[(&str, &str)]; 3] = [
    &[
        ("0000_10_a_01.yaml", "kind: ConfigMap, name: a, finalizers: [model.example/slow]"),
        ("0000_10_b_01.yaml", "kind: ConfigMap, name: b"),
        ("0000_20_c_01.yaml", "kind: Secret, name: c"),
    ],
    &[
        ("0000_10_a_01.yaml", "kind: ConfigMap, name: a, annotations: {release.openshift.io/delete: 'true'}"),
        ("0000_10_b_01.yaml", "kind: ConfigMap, name: b, labels: {version: second}"),
        ("0000_20_c_01.yaml", "kind: Secret, name: c"),
        ("0000_30_d_01.yaml", "kind: Secret, name: d, finalizers: [model.example/slow]"),
    ],
    &[
        ("0000_10_b_01.yaml", "kind: ConfigMap, name: b, annotations: {release.openshift.io/delete: 'true'}"),
        ("0000_30_d_01.yaml", "kind: Secret, name: d, labels: {version: third}"),
    ],
];

/// Writes the manifest of an object: `kind: KIND, METADATA`.
fn manifest(object: &str) -> String {
    const INCLUDED: &str = "include.release.openshift.io/self-managed-high-availability: 'true'";
    let (kind, metadata) = object.split_once(", ").unwrap_or((object, ""));
    let metadata = match metadata.contains("annotations: {") {
        true => metadata.replace("annotations: {", &format!("annotations: {{{INCLUDED}, ")),
        false => format!("{metadata}, annotations: {{{INCLUDED}}}"),
    };
    format!("{{apiVersion: v1, {kind}, metadata: {{namespace: default, {metadata}}}}}")
}

/// A running command.
struct Running {
    freezer: Freezer,
    /// One permit for each answer that it may get.
    answers: Arc<Semaphore>,
    task: JoinHandle<Option<u8>>,
}

/// The commands and their sandbox.
struct Contest {
    sandbox: Sandbox,
    folder: tempfile::TempDir,
    /// Writes without the lock.
    problems: Arc<Mutex<Vec<String>>>,
    printed: Rc<RefCell<Vec<Printed>>>,
}

/// Plays a history.
pub fn play(actors: &[Actor], turns: &[Turn]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let contest = Contest::start().await;
        let running: Vec<Running> = actors.iter().enumerate().map(|(n, actor)| contest.run(n, *actor)).collect();
        for turn in turns {
            contest.turn(&running, *turn).await;
        }
        for actor in running {
            actor.answers.add_permits(100_000);
            let _killed = actor.task.await;
        }
        contest.check().await;
    });
}

impl Contest {
    async fn start() -> Self {
        let sandbox = Sandbox::start(Options::default());
        let folder = tempfile::tempdir().expect("a folder");
        for (version, text) in VERSIONS.iter().enumerate() {
            std::fs::write(folder.path().join(format!("{version}.yaml")), text).expect("write a file");
        }
        for (version, files) in PAYLOADS.iter().enumerate() {
            let folder = folder.path().join(format!("payload{version}"));
            std::fs::create_dir(&folder).expect("create a folder");
            for (name, object) in *files {
                std::fs::write(folder.join(name), manifest(object)).expect("write a file");
            }
        }
        let config = "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: 'http://sandbox.invalid'}}], \
                      contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}";
        std::fs::write(folder.path().join("kubeconfig"), config).expect("write a file");
        for kind in ["ConfigMap", "Secret"] {
            let script = Script::RemoveFinalizer {
                kind: kind.to_owned(),
                finalizer: "model.example/slow".to_owned(),
                after: Duration::from_secs(2),
                while_exists: Vec::new(),
            };
            tokio::task::spawn_local(actors::run(sandbox.client(User::admin(), ""), script, |_| true));
        }
        Self { sandbox, folder, problems: Arc::default(), printed: Rc::default() }
    }

    fn run(&self, number: usize, actor: Actor) -> Running {
        let line = match actor {
            Actor::Apply { version, take_over } => {
                format!("apply release -f {version}.yaml --wait=false --timeout 90s{}", flag(take_over))
            }
            Actor::Delete { take_over } => format!("delete release --timeout 90s{}", flag(take_over)),
            Actor::Payload { version, take_over, to_completion } => {
                let completion = if to_completion { " --to-completion" } else { "" };
                format!(
                    "payload apply payload{version} --version 4.20.{version} --name release --force --timeout 90s{}{completion}",
                    flag(take_over)
                )
            }
        };
        let (freezer, answers) = (Freezer::default(), Arc::new(Semaphore::new(0)));
        let client = freezer.client(self.audited(number, Some(Arc::clone(&answers))));
        let work = self.command(number, &line, client);
        let frozen = freezer.clone();
        let task = tokio::task::spawn_local(async move { frozen.run(work).await });
        Running { freezer, answers, task }
    }

    /// Returns a run of the program.
    fn command(&self, number: usize, line: &str, client: Client) -> impl Future<Output = u8> + use<> {
        let (interrupt, interrupts) = mpsc::channel(1);
        let printed = Printed::default();
        printed.line(&format!("--- {line}"));
        self.printed.borrow_mut().push(printed.clone());
        let world = World {
            args: std::iter::once("billhook").chain(line.split_whitespace()).map(Into::into).collect(),
            env: BTreeMap::from([
                ("KUBECONFIG".to_owned(), "kubeconfig".to_owned()),
                ("USER".to_owned(), format!("actor{number}")),
            ]),
            directory: self.folder.path().to_owned(),
            stdin: Box::new(std::io::empty()),
            stdin_terminal: false,
            stdout: Box::new(printed.clone()),
            stdout_terminal: false,
            stderr: Box::new(printed.clone()),
            stderr_terminal: false,
            interrupts,
            connect: Arc::new(move |_, options| Ok(Cluster::from_client(client.clone(), options))),
        };
        async move {
            let exit = billhook::run(world).await;
            drop(interrupt);
            printed.line(&format!("exit {exit}"));
            exit
        }
    }

    /// Returns the client of an actor: each write is checked when it takes effect, and each answer waits for its turn.
    fn audited(&self, number: usize, answers: Option<Arc<Semaphore>>) -> Client {
        let client = self.sandbox.client(User::admin(), format!("actor{number}"));
        let (sandbox, problems) = (self.sandbox.clone(), Arc::clone(&self.problems));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, sandbox) = (client.clone(), sandbox.clone());
            let (problems, answers) = (Arc::clone(&problems), answers.clone());
            async move {
                let path = request.uri().path().to_owned();
                if request.method() != Method::GET && !is_of_record(&request) {
                    let lock = lock(&sandbox);
                    let holder = lock["holder"].as_str().unwrap_or_default();
                    // Until the former holder notices, it may go on.
                    let allowed = holder.starts_with(&format!("actor{number}@")) || lock["operation"] == "take-over";
                    if !allowed {
                        let problem = format!("actor{number}: {} {path}, but the lock is {lock}", request.method());
                        problems.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
                    }
                }
                let answer = client.send(request).await.map_err(unwrapped);
                if let Some(answers) = answers
                    && let Ok(permit) = answers.acquire().await
                {
                    permit.forget();
                }
                answer
            }
        });
        Client::new(service, "default")
    }

    async fn turn(&self, running: &[Running], turn: Turn) {
        let pass = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        match turn {
            Turn::Go { actor, requests } => {
                for _ in 0..requests {
                    running[actor % running.len()].answers.add_permits(1);
                    // Virtual time passes when nothing else can happen.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            Turn::Freeze { actor, seconds } => {
                let freezer = &running[actor % running.len()].freezer;
                freezer.freeze(Duration::from_secs(seconds)).await;
            }
            Turn::Kill { actor } => running[actor % running.len()].freezer.kill(),
            Turn::Wait { seconds } => pass(seconds).await,
        }
    }

    async fn check(&self) {
        // The locks of killed commands expire, and deletions complete.
        tokio::time::sleep(EXPIRY).await;
        let problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(problems.is_empty(), "{}\n{}", problems.join("\n"), self.said());
        let release = ReleaseName::new("default", "release").expect("a name");
        let records =
            Cluster::from_client(self.sandbox.client(User::admin(), ""), ClusterOptions::default()).inventory();
        let stored = records.load(&release).await.expect("the record is readable");
        let known = |object: &String| {
            let mut keys = stored.iter().flat_map(|stored| stored.inventory.entries.keys());
            keys.any(|key| key.to_string() == *object)
        };
        let forgotten: Vec<String> = self.labelled().into_iter().filter(|object| !known(object)).collect();
        assert!(forgotten.is_empty(), "{forgotten:?} are in no record\n{}", self.said());
        let last = self.command(9, "delete release --yes", self.audited(9, None)).await;
        let expected = if stored.is_some() { 0 } else { 2 };
        assert!(
            last == expected && self.labelled().is_empty(),
            "objects remain: {:?}\n{}",
            self.labelled(),
            self.said()
        );
        assert!(lock(&self.sandbox).is_null(), "a lock remains");
    }

    /// Returns the objects with the label of the release.
    fn labelled(&self) -> Vec<String> {
        let objects = self.sandbox.objects().into_iter();
        let labelled = objects.filter(|object| object["metadata"]["labels"]["billhook.dev/release"].is_string());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        labelled
            .map(|object| {
                let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
                format!("{kind}/{}/{}", text(&metadata["namespace"]), text(&metadata["name"]))
            })
            .collect()
    }

    fn said(&self) -> String {
        self.printed.borrow().iter().map(Printed::text).collect::<Vec<_>>().join("\n")
    }
}

fn flag(take_over: bool) -> &'static str {
    if take_over { " --take-over" } else { "" }
}

/// Returns the lock in the head of the record.
fn lock(sandbox: &Sandbox) -> Value {
    let Some(secret) = sandbox.object("", "secrets", "default", "billhook.release") else { return Value::Null };
    let head: ByteString = serde_json::from_value(secret["data"]["head"].clone()).expect("a head");
    serde_json::from_slice::<Value>(&head.0).map_or(json!(null), |head| head["lock"].clone())
}

/// Returns whether a request writes, or may create, a Secret of the record.
fn is_of_record(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    path.contains("/billhook.") || request.method() == Method::POST && path.ends_with("/secrets")
}

/// Returns the error of the service itself, which another client wraps again.
fn unwrapped(error: kube::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        kube::Error::Service(inner) => inner,
        other => other.into(),
    }
}

/// The output of a command.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Printed {
    fn line(&self, text: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(text.as_bytes());
        all.push(b'\n');
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl std::io::Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
