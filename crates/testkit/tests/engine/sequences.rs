//! Graphs of tasks: sequences side by side, failures, deletions, and what the record keeps of them.

#[path = "sequences/deletions.rs"]
mod deletions;
#[path = "sequences/payloads.rs"]
mod payloads;
#[path = "sequences/readiness.rs"]
mod readiness;

use billhook_engine::{ApplyResult, GraphOf, prepare_apply};
use billhook_plan::{DeletionState, Health, Inventory, Plan, StepAction, TaskGraph, TaskNode, TaskStep, VersionState};
use billhook_policy::GoDuration;
use billhook_sandbox::faults::Moment;
use tokio::time::{Instant, sleep};

use super::*;

/// Reads a graph, one node a line: `TITLE [after 0 1]: [!]a -b`, where `!` waits until ready, `?` looks at the health once, `*`
/// waits until healthy, and `-` deletes.
fn graph(lines: &[&str], names: &[&str]) -> TaskGraph {
    let node = |line: &&str| {
        let (head, steps) = line.split_once(':').unwrap();
        let (title, after) = head.split_once(" after ").unwrap_or((head, ""));
        let step = |text: &str| {
            let action = match text.as_bytes()[0] {
                b'-' => StepAction::Delete,
                b'?' => StepAction::Check { wait: false, health: Health::Installed },
                b'*' => StepAction::Check { wait: true, health: Health::Installed },
                mark => StepAction::Apply { wait: mark == b'!' },
            };
            let name = text.trim_start_matches(['-', '!', '?', '*']);
            TaskStep { manifest: names.iter().position(|of| *of == name).unwrap(), action }
        };
        TaskNode {
            title: title.to_owned(),
            after: after.split_whitespace().map(|at| at.parse().unwrap()).collect(),
            steps: steps.split_whitespace().map(step).collect(),
        }
    };
    TaskGraph { nodes: lines.iter().map(node).collect(), deletes: true, ..TaskGraph::default() }
}

/// A graph of ConfigMaps, whose names are those of its steps.
struct Payload {
    version: &'static str,
    names: Vec<String>,
    graph: TaskGraph,
}

impl Payload {
    fn new(lines: &[&str]) -> Self {
        let steps = lines.iter().flat_map(|line| line.split_once(':').unwrap().1.split_whitespace());
        let names: Vec<&str> = steps.map(|step| step.trim_start_matches(['-', '!'])).collect();
        let graph = graph(lines, &names);
        Self { version: "1", names: names.into_iter().map(str::to_owned).collect(), graph }
    }

    fn with(mut self, edit: impl FnOnce(&mut TaskGraph)) -> Self {
        edit(&mut self.graph);
        self
    }

    fn of_version(self, version: &'static str) -> Self {
        Self { version, ..self }
    }

    fn input(&self) -> ApplyInput {
        let manifests = self.names.iter().flat_map(|name| manifest(&format!("{name} {{k: v}}"))).collect();
        ApplyInput {
            order: DeploymentOrder::Graph(fixed(self.graph.clone())),
            version: Some(self.version.to_owned()),
            ..input(manifests)
        }
    }
}

/// Returns the input of an apply that neither prunes nor adopts, and waits for nothing.
pub(super) fn input(manifests: Vec<Manifest>) -> ApplyInput {
    ApplyInput { order: DeploymentOrder::Groups(Wait::Nothing), ..ApplyInput::new(release(), manifests) }
}

impl World {
    async fn pass(&self, payload: &Payload) -> Summary {
        self.run(payload.input(), &self.options()).await.1
    }

    async fn run(&self, input: ApplyInput, options: &RunOptions) -> (Plan, Summary) {
        let prepared = prepare_apply(&self.clusters, input).await.unwrap();
        let plan = prepared.plan.clone();
        (plan, billhook_engine::apply(&self.clusters, prepared, options).await.unwrap())
    }

    /// Returns what a pass finds of the objects to delete.
    async fn found(&self, payload: &Payload) -> Vec<DeletionState> {
        let prepared = prepare_apply(&self.clusters, payload.input()).await.unwrap();
        prepared.plan.requested_deletions.iter().map(|deletion| deletion.state).collect()
    }

    fn revision(&self, name: &str) -> u64 {
        self.config_map(name).unwrap()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let all = self.target.objects();
        let ours = all.iter().filter(|object| !object["metadata"]["labels"][wellknown::RELEASE_LABEL].is_null());
        let mut names: Vec<_> = ours.map(|o| o["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    async fn inventory(&self) -> Inventory {
        let records = self.clusters.records.as_ref().unwrap();
        records.inventory().load(&release()).await.unwrap().unwrap().inventory
    }

    fn fail(&self, name: &str, times: Option<usize>) {
        let fault = forbidden().on(Requests::of(CLIENT).writes().name(name));
        self.target.faults().inject(match times {
            Some(times) => fault.first(times),
            None => fault,
        });
    }

    fn requests(&self, text: &str) -> usize {
        self.target.faults().log(CLIENT).iter().filter(|request| request.to_string().contains(text)).count()
    }

    fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.events.lock().unwrap().iter().filter(|event| wanted(event)).count()
    }
}

fn documents(text: &str) -> Vec<Manifest> {
    let documents = yaml::parse(text).unwrap();
    documents.into_iter().flat_map(|document| Manifest::from_document(document, &"f".into()).unwrap()).collect()
}

fn crd(n: usize) -> String {
    format!(
        "---\n{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: k{n}s.c.example}},
  spec: {{group: c.example, scope: Namespaced, names: {{kind: K{n}, plural: k{n}s}},
  versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}]}}}}\n"
    )
}

fn seconds(seconds: u64) -> GoDuration {
    GoDuration(Duration::from_secs(seconds))
}

fn left(summary: &Summary) -> Vec<(&str, &Blocker)> {
    summary.left.iter().map(|left| (left.object.name.as_str(), &left.blockers[0])).collect()
}

#[tokio::test(start_paused = true)]
async fn nodes_run_in_the_order_of_the_graph() {
    let world = World::new();
    let payload = Payload::new(&["one: a b", "two: c", "three after 0 1: d e", "four after 2: f"]);
    let summary = world.pass(&payload).await;
    assert_eq!((summary.status, summary.applied, summary.incomplete), (Status::Done, 6, None));
    let order = ["a", "b", "d", "e", "f"].map(|name| world.revision(name));
    assert!(order.is_sorted() && world.revision("c") < world.revision("d"), "{order:?}");
    // Nothing has changed: one list for the kind, and no write.
    let sent = world.target.faults().count(CLIENT);
    let summary = world.pass(&payload).await;
    assert_eq!((summary.status, summary.unchanged), (Status::Done, 6));
    let log = world.target.faults().log(CLIENT);
    let sent: Vec<_> = log[sent..].iter().map(ToString::to_string).collect();
    assert_eq!(sent, ["get /api", "get /apis", "list configmaps/default"]);
}

#[tokio::test(start_paused = true)]
async fn one_worker_runs_one_node_at_a_time() {
    let world = World::new();
    let lines: Vec<_> = (0..9).map(|n| format!("n{n}: c{n}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let payload = Payload::new(&lines).with(|graph| graph.workers = std::num::NonZeroUsize::new(1));
    assert_eq!(world.pass(&payload).await.applied, 9);
    let events = world.events.lock().unwrap();
    let nodes = events.iter().filter_map(|event| match event {
        Event::NodeStarted { node, .. } => Some((*node, true)),
        Event::NodeFinished { node, .. } => Some((*node, false)),
        _ => None,
    });
    assert!(nodes.eq((0..9).flat_map(|node| [(node, true), (node, false)])));
}

#[tokio::test(start_paused = true)]
async fn branches_that_do_not_depend_on_a_failure_continue() {
    let world = World::new();
    world.fail("b", None);
    let payload = Payload::new(&["one: a b c", "two after 0: d", "three: e", "four after 2: f"]);
    let summary = world.pass(&payload).await;
    assert_eq!((summary.status, summary.applied, world.names()), (Status::Failed, 3, names(&["a", "e", "f"])));
    let left = left(&summary);
    assert!(
        matches!(left[..], [("b", Blocker::Refused { .. }), ("c", Blocker::NotRequested), ("d", Blocker::NotStarted)]),
        "{left:?}"
    );
    let incomplete = summary.incomplete.unwrap();
    assert_eq!((incomplete.nodes, incomplete.title.as_str(), incomplete.object), (2, "one", key("a")));
    assert_eq!(world.inventory().await.history[0].state, VersionState::Partial);
    // The next pass continues.
    world.target.faults().clear();
    let summary = world.pass(&payload).await;
    assert_eq!((summary.status, summary.applied, summary.unchanged), (Status::Done, 3, 3));
    assert_eq!(world.inventory().await.history[0].state, VersionState::Completed);
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn two_errors_at_once_are_both_reported() {
    let world = World::new();
    world.fail("a", None);
    world.fail("b", None);
    let summary = world.pass(&Payload::new(&["one: a", "two: b", "three after 0 1: c"])).await;
    let left = left(&summary);
    assert!(
        matches!(
            left[..],
            [("a", Blocker::Refused { .. }), ("b", Blocker::Refused { .. }), ("c", Blocker::NotStarted)]
        ),
        "{left:?}"
    );
    assert_eq!(summary.incomplete.unwrap().nodes, 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_an_interruption() {
    let world = World::new();
    let lines: Vec<_> = (0..20).map(|n| format!("n{n}: a{n} b{n}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let payload = Payload::new(&lines).with(|graph| graph.workers = std::num::NonZeroUsize::new(2));
    let mut options = world.options();
    let (stop, sink) = (options.stop.clone(), Arc::clone(&options.sink));
    options.sink = Arc::new(move |event| {
        if matches!(&event, Event::Applied { object, .. } if object.name == "b3") {
            stop.cancel();
        }
        sink(event);
    });
    let summary = world.run(payload.input(), &options).await.1;
    // The other worker may have had a request in flight.
    assert_eq!(summary.status, Status::Interrupted);
    assert!((7..=9).contains(&summary.applied), "{}", summary.applied);
    let incomplete = summary.incomplete.unwrap();
    assert!(incomplete.nodes >= 16 && incomplete.title.starts_with('n'), "{incomplete:?}");
    assert_eq!(world.pass(&payload).await.status, Status::Done);
    assert_eq!(world.names().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_failed_step_is_repeated_after_each_pause() {
    let world = World::new();
    world.fail("b", Some(2));
    let retries = || vec![seconds(10), seconds(13), seconds(15)];
    let payload = Payload::new(&["one: a b c"]).with(|graph| graph.retries = retries());
    let begun = Instant::now();
    let summary = world.pass(&payload).await;
    assert_eq!((summary.status, summary.applied), (Status::Done, 3));
    let elapsed = begun.elapsed();
    assert!((23..25).contains(&elapsed.as_secs()), "{elapsed:?}");
    assert_eq!(world.count(|event| matches!(event, Event::Refused { retried: true, .. })), 2);
    assert_eq!(world.count(|event| matches!(event, Event::Applied { .. })), 3);
    // After the last pause it is final.
    let world = World::new();
    world.fail("b", None);
    let begun = Instant::now();
    let payload = Payload::new(&["one: a b c"]).with(|graph| graph.retries = retries());
    let summary = world.pass(&payload).await;
    assert_eq!((summary.status, summary.applied, begun.elapsed().as_secs()), (Status::Failed, 1, 38));
    let left = left(&summary);
    assert!(matches!(left[..], [("b", Blocker::Refused { .. }), ("c", Blocker::NotRequested)]), "{left:?}");
    assert_eq!(world.count(|event| matches!(event, Event::Refused { retried: false, .. })), 1);
}

/// A webhook that does not respond ends an attempt: its backend may wait for the worker.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_does_not_respond_keeps_no_worker() {
    let world = World::new();
    let message = "Internal error occurred: failed calling webhook \"a.example\": connection refused";
    let fault = Fault::refuse(http::StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message);
    world.target.faults().inject(fault.on(Requests::of(CLIENT).writes().name("a")));
    let payload = Payload::new(&["one: a", "two: b"]).with(|graph| {
        graph.workers = std::num::NonZeroUsize::new(1);
        graph.retries = vec![seconds(10)];
    });
    let begun = Instant::now();
    let summary = world.pass(&payload).await;
    assert_eq!((summary.status, summary.applied, world.names()), (Status::Failed, 1, names(&["b"])));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// The answer to the first write is lost: the object is recognized as ours.
#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_repeated() {
    let world = World::new();
    let creation = Requests::of(CLIENT).writes().name("a");
    world.target.faults().inject(Fault::broken(Moment::After).on(creation).first(1));
    let payload = Payload::new(&["one: a b"]).with(|graph| graph.retries = vec![seconds(1)]);
    assert_eq!(world.pass(&payload).await.status, Status::Done);
    assert_eq!(world.pass(&payload).await.unchanged, 2);
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_with_the_time_limit_and_with_an_interruption() {
    for interrupted in [false, true] {
        let world = World::new();
        world.fail("a", None);
        let payload = Payload::new(&["one: a b", "two: c"]).with(|graph| graph.retries = vec![seconds(1000)]);
        let options = RunOptions { timeout: Some(Duration::from_secs(20)), ..world.options() };
        let stop = options.stop.clone();
        let interrupt = async {
            sleep(Duration::from_secs(5)).await;
            if interrupted {
                stop.cancel();
            }
            std::future::pending::<()>().await;
        };
        let summary = tokio::select! {
            (_, summary) = world.run(payload.input(), &options) => summary,
            () = interrupt => unreachable!("it never ends"),
        };
        let expected = if interrupted { Status::Interrupted } else { Status::TimedOut };
        assert_eq!((summary.status, summary.applied), (expected, 1));
        let left = left(&summary);
        assert!(matches!(left[..], [("a", Blocker::Refused { .. }), ("b", Blocker::NotRequested)]), "{left:?}");
    }
}

/// Kills the program at each request in turn, before and after it takes effect, and runs it again.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_request_changes_nothing_about_the_result() {
    for on_home in [false, true] {
        for moment in [Moment::Before, Moment::After] {
            for nth in 1.. {
                let world = World::new();
                world.pass(&Payload::new(&["one: a b c", "two: d"])).await;
                let next = Payload::new(&["one: -a b x", "two: -d w", "three after 0 1: z"]).of_version("2");
                let crashing = if on_home { &world.home } else { &world.target };
                crashing.faults().inject(Fault::crash(moment).on(Requests::of(CLIENT)).nth(nth));
                let crashed = tokio::select! {
                    _ = world.pass(&next) => false,
                    () = crashing.faults().crashed(CLIENT) => true,
                };
                crashing.faults().clear();
                crashing.faults().revive(CLIENT);
                // Until the lock of the killed one has expired.
                sleep(Duration::from_secs(60)).await;
                for _ in 0..2 {
                    assert_eq!(world.pass(&next).await.status, Status::Done, "{moment:?} {nth}");
                }
                assert_eq!(world.names(), names(&["b", "c", "w", "x", "z"]), "{moment:?} {nth}");
                let inventory = world.inventory().await;
                let entries: Vec<_> = inventory.entries.keys().map(|key| key.name.clone()).collect();
                assert_eq!(entries, names(&["b", "c", "w", "x", "z"]), "{moment:?} {nth}");
                let deleted: Vec<_> = inventory.deleted.keys().map(|key| key.name.clone()).collect();
                assert_eq!(deleted, names(&["a", "d"]), "{moment:?} {nth}");
                if !crashed {
                    assert!(nth > 3, "only {nth} requests");
                    break;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn five_thousand_nodes_run_and_end_unchanged() {
    let world = World::new();
    let lines: Vec<_> = (0..5_000).map(|n| format!("n{n}: c{n:04}")).collect();
    let payload = Payload::new(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let summary = world.pass(&payload).await;
    assert_eq!((summary.status, summary.applied), (Status::Done, 5_000));
    let writes = world.writes().len();
    assert_eq!(writes, 5_000);
    let summary = world.pass(&payload).await;
    assert_eq!((summary.unchanged, world.writes().len()), (5_000, writes));
    assert_eq!(world.count(|event| matches!(event, Event::Applied { result: ApplyResult::Created, .. })), 5_000);
}

/// Selects ConfigMaps by their names.
fn named(names: &[&str]) -> DeletionGroup {
    let selector = billhook_policy::ResourceSelector {
        api_version: ApiVersion::parse("v1").unwrap(),
        kind: "ConfigMap".to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        namespaces: vec!["default".to_owned()],
        label_selector: Default::default(),
        all: false,
    };
    DeletionGroup::new(names.concat(), Members::Resources(vec![selector]))
}

#[tokio::test(start_paused = true)]
async fn the_recorded_groups_delete_in_the_reverse_order() {
    let world = World::new();
    let payload = Payload::new(&["one: a b", "two after 0: c", "three after 1: d"]);
    let deletion = vec![named(&["d"]), named(&["c"]), named(&["a", "b"])];
    let given = ApplyInput { policy: Some(Policy { deletion, ..Policy::default() }), ..payload.input() };
    assert_eq!(world.run(given, &world.options()).await.1.status, Status::Done);
    world.events.lock().unwrap().clear();
    let summary = world.delete().await;
    assert_eq!((summary.status, summary.gone, world.has_record()), (Status::Done, 4, false));
    let events = world.events.lock().unwrap();
    let gone = events.iter().filter_map(|event| match event {
        Event::Gone { object, .. } => Some(object.name.as_str()),
        _ => None,
    });
    let gone: Vec<&str> = gone.collect();
    assert_eq!((&gone[..2], gone.len()), (&["d", "c"][..], 4), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_gone_takes_its_dropped_objects_along() {
    let world = World::new();
    let text = "
{apiVersion: v1, kind: Namespace, metadata: {name: old}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: old}}
";
    let first = graph(&["one: 0 1"], &["0", "1"]);
    let given = ApplyInput { order: DeploymentOrder::Graph(fixed(first)), ..input(documents(text)) };
    assert_eq!(world.run(given, &world.options()).await.1.status, Status::Done);
    let next = || {
        let namespace = documents("{apiVersion: v1, kind: Namespace, metadata: {name: old}}");
        ApplyInput { order: DeploymentOrder::Graph(fixed(graph(&["one: -0"], &["0"]))), ..input(namespace) }
    };
    let (plan, summary) = world.run(next(), &world.options()).await;
    assert_eq!((summary.status, summary.requested.len()), (Status::Done, 1));
    let deleted_with = plan.uncovered.iter().map(|left| left.deleted_with.as_ref().map(|with| with.name.as_str()));
    assert!(deleted_with.eq([Some("old")]));
    let is_note = |note: &billhook_plan::Note| note.severity == billhook_plan::Severity::Dangerous;
    assert!(!plan.notes.iter().any(is_note), "{:?}", plan.notes);
    // Kubernetes deletes its contents, then the Namespace.
    sleep(Duration::from_secs(60)).await;
    world.run(next(), &world.options()).await;
    let inventory = world.inventory().await;
    assert!(inventory.entries.is_empty(), "{:?}", inventory.entries);
    assert_eq!(inventory.deleted.len(), 1);
}

/// Returns a graph that does not depend on the history.
fn fixed(graph: TaskGraph) -> GraphOf {
    Box::new(move |_| graph)
}
