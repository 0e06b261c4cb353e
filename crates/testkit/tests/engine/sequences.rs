//! Graphs of tasks: sequences side by side, failures, deletions, and what the record keeps of them.

#[path = "sequences/payloads.rs"]
mod payloads;

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
            graph: Some(fixed(self.graph.clone())),
            version: Some(self.version.to_owned()),
            ..input(manifests)
        }
    }
}

/// Returns the input of an apply that neither prunes nor adopts.
pub(super) fn input(manifests: Vec<Manifest>) -> ApplyInput {
    ApplyInput {
        release: release(),
        manifests,
        directives: BTreeMap::new(),
        strategy: UpdateStrategy::ServerSide,
        inherited: Vec::new(),
        policy: None,
        adopt: false,
        prune: false,
        max_deletions: None,
        require_objects: false,
        sweep: false,
        graph: None,
        version: None,
        wait: Wait::Nothing,
        namespace: Some("default".to_owned()),
        is_new: false,
        missing_namespaces: MissingNamespaces::Refuse,
        own_namespaces: false,
        unlabelled: Unlabelled::Leave,
        propagation: Propagation::Background,
        notes: Vec::new(),
        catalog: None,
    }
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

#[tokio::test(start_paused = true)]
async fn a_deletion_is_requested_once_and_verified_by_a_later_pass() {
    let world = World::new();
    assert_eq!(world.pass(&Payload::new(&["one: a b c"])).await.status, Status::Done);
    world.patch("a", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
    let next = || Payload::new(&["one: -a -b c"]).of_version("2");

    let summary = world.pass(&next()).await;
    assert_eq!((summary.status, summary.gone, summary.left.len()), (Status::Done, 0, 0));
    assert_eq!(summary.requested, [key("a"), key("b")]);
    assert_eq!(world.requests("delete "), 2);
    assert!(world.config_map("a").unwrap()["metadata"]["deletionTimestamp"].is_string());
    let inventory = world.inventory().await;
    assert!(inventory.entries.contains_key(&key("a")) && inventory.entries.contains_key(&key("b")));

    // The status reads the same from the cluster and the record.
    let status = billhook_engine::release_status(&world.clusters, &release()).await.unwrap();
    let of_a = status.objects.iter().find(|object| object.object == key("a")).unwrap();
    assert!(of_a.deleted_at.is_some() && of_a.state == billhook_engine::ObjectState::Deleting, "{of_a:?}");
    assert!(matches!(&of_a.blockers[..], [Blocker::Finalizer { finalizer, .. }] if finalizer == "a.example/x"));
    assert_eq!(status.history.len(), 2);

    // A restart while the finalizer blocks it: the live object shows the deletion, and no request is sent.
    let states = world.found(&next()).await;
    assert!(
        matches!(states[..], [DeletionState::Deleting { deleted_at: Some(_) }, DeletionState::NotFound]),
        "{states:?}"
    );
    assert_eq!(world.pass(&next()).await.status, Status::Done);
    assert_eq!(world.requests("delete "), 2);
    let inventory = world.inventory().await;
    assert!(inventory.entries.contains_key(&key("a")) && !inventory.entries.contains_key(&key("b")));
    assert_eq!(inventory.deleted.keys().collect::<Vec<_>>(), [&key("b")]);

    world.patch("a", json!({"metadata": {"finalizers": null}})).await;
    world.pass(&next()).await;
    let inventory = world.inventory().await;
    assert_eq!(inventory.deleted.into_keys().collect::<Vec<_>>(), [key("a"), key("b")]);
    assert_eq!(inventory.entries.into_keys().collect::<Vec<_>>(), [key("c")]);
    let versions: Vec<_> = inventory.history.iter().map(|of| (of.version.as_str(), of.state)).collect();
    assert_eq!(versions, [("2", VersionState::Completed), ("1", VersionState::Completed)]);

    // Everything is done: neither cluster is written.
    let (writes, records) = (world.writes().len(), world.home.count());
    let revision = inventory.revision;
    world.pass(&next()).await;
    assert_eq!((world.writes().len(), world.home.count()), (writes, records));
    assert_eq!(world.inventory().await.revision, revision);

    // Another client recreates it.
    world.given("b", json!({"theirs": "yes"})).await;
    let summary = world.pass(&next()).await;
    assert_eq!((summary.status, summary.requested), (Status::Done, vec![key("b")]));
    assert_eq!(world.config_map("b"), None);

    // A version that applies it again.
    world.pass(&Payload::new(&["one: b c"]).of_version("3")).await;
    let inventory = world.inventory().await;
    assert!(inventory.deleted.is_empty() && inventory.entries.contains_key(&key("b")));
}

/// The object tells what the lost answer said: there is no other request, and no failure.
#[tokio::test(start_paused = true)]
async fn a_deletion_without_an_answer_is_recognized_by_its_object() {
    let lost: [fn() -> Fault; 2] = [|| Fault::broken(Moment::After), Fault::timeout];
    for (fault, held) in [(lost[0], false), (lost[0], true), (lost[1], false), (lost[1], true)] {
        let world = World::new();
        world.pass(&Payload::new(&["one: a b"])).await;
        if held {
            world.patch("a", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
        }
        world.target.faults().inject(fault().on(Requests::of(CLIENT).verb(Verb::Delete)).first(1));
        let summary = world.pass(&Payload::new(&["one: -a", "two after 0: b"])).await;
        assert_eq!((summary.status, &summary.requested, summary.left.len()), (Status::Done, &vec![key("a")], 0));
        assert_eq!(world.requests("delete "), 1);
        assert_eq!(world.config_map("a").is_some(), held);
        let finalizers = |event: &Event| match event {
            Event::Deleting { finalizers, .. } => Some(finalizers.len()),
            _ => None,
        };
        let events: Vec<_> = world.events.lock().unwrap().iter().filter_map(finalizers).collect();
        assert_eq!(events, [usize::from(held)]);
        assert_eq!(world.count(|event| matches!(event, Event::Refused { .. } | Event::Gone { .. })), 0);
    }
}

/// A connection that breaks before the request took effect: the object shows that, and it is sent again.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_took_no_effect_is_sent_again() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a b"])).await;
    world.target.faults().inject(Fault::broken(Moment::Before).on(Requests::of(CLIENT).verb(Verb::Delete)).first(2));
    let summary = world.pass(&Payload::new(&["one: -a b"])).await;
    assert_eq!((summary.status, summary.requested), (Status::Done, vec![key("a")]));
    assert_eq!((world.requests("delete "), world.config_map("a")), (3, None));
}

/// Without the right to read, another request is the only way to know.
#[tokio::test(start_paused = true)]
async fn a_deletion_without_an_answer_is_sent_again_if_its_object_may_not_be_read() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a b"])).await;
    world.patch("a", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
    world.target.faults().inject(Fault::broken(Moment::After).on(Requests::of(CLIENT).verb(Verb::Delete)).first(1));
    world.target.faults().inject(forbidden().on(Requests::of(CLIENT).verb(Verb::Get).name("a")));
    let summary = world.pass(&Payload::new(&["one: -a b"])).await;
    assert_eq!((summary.status, summary.requested), (Status::Done, vec![key("a")]));
    assert_eq!(world.requests("delete "), 2);
}

/// An interruption while the object is read: whether the request took effect is not known, so the object is listed.
#[tokio::test(start_paused = true)]
async fn an_interruption_after_a_lost_answer_lists_the_object() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a b"])).await;
    world.patch("a", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
    let faults = world.target.faults();
    faults.inject(Fault::broken(Moment::After).on(Requests::of(CLIENT).verb(Verb::Delete)).first(1));
    faults.inject(Fault::delay(Duration::from_secs(3)).on(Requests::of(CLIENT).verb(Verb::Get).name("a")).first(1));
    faults.inject(Fault::unavailable().on(Requests::of(CLIENT).verb(Verb::Get).name("a")).nth(1));
    let options = world.options();
    let stop = options.stop.clone();
    let interrupt = async {
        sleep(Duration::from_secs(1)).await;
        stop.cancel();
    };
    let payload = Payload::new(&["one: -a b"]);
    let ((_, summary), ()) = tokio::join!(world.run(payload.input(), &options), interrupt);
    assert_eq!(summary.status, Status::Interrupted);
    let left = left(&summary);
    assert!(matches!(left[..], [("a", Blocker::Finalizer { .. }), ("b", Blocker::NotRequested)]), "{left:?}");
    assert_eq!(world.requests("delete "), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_unless_the_graph_says_so() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a b"])).await;
    let quiet = Payload::new(&["one: -a b"]).with(|graph| graph.deletes = false);
    let (writes, summary) = (world.writes().len(), world.pass(&quiet).await);
    assert_eq!((summary.status, world.writes().len()), (Status::Done, writes));
    assert_eq!(world.found(&quiet).await, [DeletionState::Left]);
    // Not even an object of another client is a problem then.
    world.given("theirs", json!({})).await;
    let theirs = |deletes| Payload::new(&["one: -theirs b"]).with(|graph| graph.deletes = deletes);
    assert_eq!(world.found(&theirs(false)).await, [DeletionState::Left]);
    let refused = prepare_apply(&world.clusters, theirs(true).input()).await.err().unwrap();
    assert!(refused.to_string().contains("ConfigMap/default/theirs exists and belongs to no release"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_recreated_since_the_plan_is_not_deleted() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a"])).await;
    let prepared = prepare_apply(&world.clusters, Payload::new(&["one: -a"]).input()).await.unwrap();
    world.admin().delete("a", &DeleteParams::default()).await.unwrap();
    world.given("a", json!({"theirs": "yes"})).await;
    let summary = billhook_engine::apply(&world.clusters, prepared, &world.options()).await.unwrap();
    let failures: Vec<_> = summary.failures().map(|failed| failed.error.to_owned()).collect();
    assert_eq!((summary.status, failures), (Status::Failed, vec!["another client has created it again".to_owned()]));
    assert_eq!((summary.recreated, world.data("a")), (vec![key("a")], json!({"theirs": "yes"})));
    // The manifest still asks for its deletion, so the version is only complete without it.
    let summary = world.pass(&Payload::new(&["one: -a"])).await;
    assert_eq!((summary.status, world.config_map("a")), (Status::Done, None));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_being_deleted_fails_its_step_until_it_is_gone() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a", "two: b"])).await;
    world.patch("a", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
    world.admin().delete("a", &DeleteParams::default()).await.unwrap();
    let next = || Payload::new(&["one: a", "two: b c"]).of_version("2");
    let prepared = prepare_apply(&world.clusters, next().input()).await.unwrap();
    let summary = billhook_engine::apply(&world.clusters, prepared, &world.options()).await.unwrap();
    let failures: Vec<_> = summary.failures().map(|failed| failed.error.to_owned()).collect();
    assert_eq!((summary.status, failures), (Status::Failed, vec!["it is being deleted".to_owned()]));
    assert!(world.config_map("c").is_some(), "the other node does not depend on it");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_another_client_has_created_again_fails_its_step() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a"])).await;
    world.patch("a", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
    world.admin().delete("a", &DeleteParams::default()).await.unwrap();
    let prepared = prepare_apply(&world.clusters, Payload::new(&["one: a"]).of_version("2").input()).await.unwrap();
    world.patch("a", json!({"metadata": {"finalizers": null}})).await;
    world.given("a", json!({"theirs": "yes"})).await;
    let summary = billhook_engine::apply(&world.clusters, prepared, &world.options()).await.unwrap();
    let failures: Vec<_> = summary.failures().map(|failed| failed.error.to_owned()).collect();
    assert_eq!((summary.status, failures), (Status::Failed, vec!["another client has created it again".to_owned()]));
    assert_eq!(world.data("a"), json!({"theirs": "yes"}));
}

/// Its annotations are read in each version that another client writes.
#[tokio::test(start_paused = true)]
async fn an_object_that_keeps_changing_is_not_deleted_unread() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a"])).await;
    let prepared = prepare_apply(&world.clusters, Payload::new(&["one: -a"]).input()).await.unwrap();
    world.patch("a", json!({"metadata": {"annotations": {"example.org/n": "1"}}})).await;
    // The answer to the first read is delayed, so that the object changes again before the next DELETE.
    let reads = Requests::of(CLIENT).verb(Verb::Get).name("a");
    world.target.faults().inject(Fault::delay(Duration::from_secs(5)).on(reads).first(1));
    let options = world.options();
    let mut apply = std::pin::pin!(billhook_engine::apply(&world.clusters, prepared, &options));
    tokio::select! {
        _ = &mut apply => panic!("the apply ended"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    world.patch("a", json!({"metadata": {"annotations": {"billhook.dev/keep-object": "true"}}})).await;
    let summary = apply.await.unwrap();
    assert_eq!((summary.status, summary.uncovered.len()), (Status::Done, 1));
    assert!(world.config_map("a").is_some());
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

#[tokio::test(start_paused = true)]
async fn a_step_waits_for_its_object_and_all_share_one_watch() {
    let world = World::new();
    let text: String = (0..20)
        .map(|n| crd(n) + &format!("---\n{{apiVersion: c.example/v1, kind: K{n}, metadata: {{name: a}}}}\n"))
        .collect();
    let names: Vec<_> = (0..40).map(|n| n.to_string()).collect();
    let lines: Vec<_> = (0..20).map(|n| format!("n{n}: {} {}", 2 * n, 2 * n + 1)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let graph = graph(&lines.iter().map(String::as_str).collect::<Vec<_>>(), &names);
    let given = || ApplyInput { graph: Some(fixed(graph.clone())), ..input(documents(&text)) };
    let summary = world.run(given(), &world.options()).await.1;
    assert_eq!((summary.status, summary.applied), (Status::Done, 40));
    assert_eq!(world.count(|event| matches!(event, Event::Ready { .. })), 20);
    assert_eq!(world.requests("watch customresourcedefinitions"), 1);
    let summary = world.run(given(), &world.options()).await.1;
    assert_eq!((summary.status, summary.unchanged), (Status::Done, 40));
    // What is unchanged is Established.
    assert_eq!(world.requests("watch customresourcedefinitions"), 1);
    assert_eq!(world.count(|event| matches!(event, Event::Ready { .. })), 20);
}

#[tokio::test(start_paused = true)]
async fn a_job_is_done_when_it_is_complete_and_fails_with_it() {
    for (failed, expected) in [(false, Status::Done), (true, Status::Failed)] {
        let world = World::new();
        let text = "
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: after}}
";
        let graph = graph(&["job: !0", "next after 0: 1"], &["0", "1"]);
        let given = ApplyInput { graph: Some(fixed(graph)), ..input(documents(text)) };
        let options = world.options();
        let end = async {
            sleep(Duration::from_secs(5)).await;
            assert!(world.config_map("after").is_none());
            let jobs =
                ApiResource::from_gvk_with_plural(&kube::api::GroupVersionKind::gvk("batch", "v1", "Job"), "jobs");
            let jobs: Api<DynamicObject> =
                Api::namespaced_with(world.target.client(User::admin(), ""), "default", &jobs);
            let r#type = if failed { "Failed" } else { "Complete" };
            let status = json!({"status": {"conditions": [{"type": r#type, "status": "True", "reason": "Over"}]}});
            jobs.patch_status("migrate", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        };
        let ((_, summary), ()) = tokio::join!(world.run(given, &options), end);
        assert_eq!(summary.status, expected);
        assert_eq!(world.config_map("after").is_some(), !failed);
    }
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  progressDeadlineSeconds: 5
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: after}}
";

impl World {
    fn namespaced(&self, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let resource =
            ApiResource::from_gvk_with_plural(&kube::api::GroupVersionKind::gvk(group, version, kind), plural);
        Api::namespaced_with(self.target.client(User::admin(), ""), "default", &resource)
    }

    /// Reports the status of the only Pod.
    async fn pod_reports(&self, status: Value) {
        let pods = self.namespaced("", "v1", "Pod", "pods");
        let pod = pods.list(&kube::api::ListParams::default()).await.unwrap().items.remove(0);
        let (name, patch) = (pod.metadata.name.unwrap(), json!({ "status": status }));
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

/// Returns the input of a pass that checks the Deployment, then writes the ConfigMap.
fn checked(lines: &[&str], retries: Vec<GoDuration>) -> ApplyInput {
    let graph = TaskGraph { retries, ..graph(lines, &["0", "1"]) };
    ApplyInput { graph: Some(fixed(graph)), ..input(documents(DEPLOYMENT)) }
}

/// A Deployment that is stuck fails its step, also if nothing is written; one that is rolled out slowly does not.
#[tokio::test(start_paused = true)]
async fn an_unhealthy_object_fails_its_step() {
    let world = World::new();
    let given = || checked(&["n: ?0", "next after 0: 1"], vec![seconds(10), seconds(13)]);
    let begun = Instant::now();
    assert_eq!(world.run(given(), &world.options()).await.1.status, Status::Done);
    assert!(begun.elapsed() < Duration::from_secs(2), "no Pod runs, and it is not waited for");

    world.admin().delete("after", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    let begun = Instant::now();
    let summary = world.run(given(), &world.options()).await.1;
    assert_eq!((summary.status, summary.unchanged, begun.elapsed().as_secs()), (Status::Failed, 1, 23));
    let [("web", Blocker::Unhealthy { code, message }), ("after", Blocker::NotStarted)] = left(&summary)[..] else {
        panic!("{summary:?}")
    };
    let begins = "deployment default/web is not available MinimumReplicasUnavailable (Deployment does not have minimum \
                  availability.) or progressing ProgressDeadlineExceeded (ReplicaSet";
    assert!(code == "WorkloadNotAvailable" && message.starts_with(begins), "{code} {message}");
    assert_eq!(world.count(|event| matches!(event, Event::Failed { reason, .. } if reason == message)), 1);
    assert_eq!(world.count(|event| matches!(event, Event::Waiting { reason, .. } if reason == message)), 2);

    // It recovers between two tries.
    let options = world.options();
    let recover = async {
        sleep(Duration::from_secs(5)).await;
        world.pod_reports(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})).await;
    };
    let begun = Instant::now();
    let ((_, summary), ()) = tokio::join!(world.run(given(), &options), recover);
    assert_eq!((summary.status, begun.elapsed().as_secs()), (Status::Done, 10));
    assert!(world.config_map("after").is_some());
}

/// The conditions are awaited, and what they say is reported; one that says that it is over ends the wait.
#[tokio::test(start_paused = true)]
async fn a_step_waits_until_its_object_is_healthy() {
    for works in [true, false] {
        let world = World::new();
        let text = "
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: after}}
";
        let graph = graph(&["job: *0", "next after 0: 1"], &["0", "1"]);
        let given = ApplyInput { graph: Some(fixed(graph)), ..input(documents(text)) };
        let options = world.options();
        let end = async {
            sleep(Duration::from_secs(5)).await;
            world.pod_reports(json!({"phase": if works { "Succeeded" } else { "Failed" }})).await;
        };
        let ((_, summary), ()) = tokio::join!(world.run(given, &options), end);
        assert_eq!(world.config_map("after").is_some(), works);
        let reason = "deadline exceeded, reason: \"BackoffLimitExceeded\", message: \"Job has reached the specified \
                      backoff limit\"";
        match (works, &left(&summary)[..]) {
            (true, []) => assert_eq!(summary.status, Status::Done),
            (false, [("migrate", Blocker::NotReady { reason: found }), ("after", Blocker::NotStarted)]) => {
                assert_eq!((summary.status, found.as_str()), (Status::Failed, reason));
            }
            (_, left) => panic!("{left:?}"),
        }
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
    let given = ApplyInput { graph: Some(fixed(first)), ..input(documents(text)) };
    assert_eq!(world.run(given, &world.options()).await.1.status, Status::Done);
    let next = || {
        let namespace = documents("{apiVersion: v1, kind: Namespace, metadata: {name: old}}");
        ApplyInput { graph: Some(fixed(graph(&["one: -0"], &["0"]))), ..input(namespace) }
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
