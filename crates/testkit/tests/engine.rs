//! Tests of directives, update strategies and records in another cluster, which the command line has no flags for, on
//! sandboxes under a paused clock.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "engine/annotations.rs"]
mod annotations;
#[path = "engine/announce.rs"]
mod announce;
#[path = "engine/claims.rs"]
mod claims;
#[path = "engine/clean.rs"]
mod clean;
#[path = "engine/gone.rs"]
mod gone;
#[path = "engine/locks.rs"]
mod locks;
#[path = "engine/logs.rs"]
mod logs;
#[path = "engine/outlook.rs"]
mod outlook;
#[path = "engine/records.rs"]
mod records;
#[path = "engine/restores.rs"]
mod restores;
#[path = "engine/sequences.rs"]
mod sequences;
#[path = "engine/suggested.rs"]
mod suggested;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use billhook_cluster::{Cluster, Holder, Options as ClusterOptions};
use billhook_engine::{
    ApplyInput, BackupMode, Blocker, Clusters, DeleteInput, DeploymentOrder, Event, Inherited, MissingNamespaces,
    OperationError, RunOptions, Status, Subject, Summary, Unowned, Unrecorded,
};
use billhook_objects::{ApiVersion, Manifest, ObjectKey, ReleaseName, Uid, wellknown, yaml};
use billhook_plan::{Directives, Entry, Unlabelled, Wait};
use billhook_policy::{DeletionGroup, ManifestPolicy, Members, Policy, Propagation, UpdateStrategy};
use billhook_sandbox::{
    Options, Sandbox, User, Verb,
    faults::{Fault, Requests},
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    discovery::ApiResource,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const CLIENT: &str = "billhook";

/// A cluster with the objects, and another cluster with the record.
struct World {
    home: Sandbox,
    target: Sandbox,
    clusters: Clusters,
    events: Arc<Mutex<Vec<Event>>>,
}

impl World {
    fn new() -> Self {
        let (home, target) = (Sandbox::start(Options::default()), Sandbox::start(Options::default()));
        let cluster =
            |sandbox: &Sandbox| Cluster::from_client(sandbox.client(User::admin(), CLIENT), ClusterOptions::default());
        let clusters = Clusters {
            own: cluster(&target),
            records: Some(cluster(&home)),
            targets: BTreeMap::new(),
            now: "2026-01-01T00:00:00Z".to_owned(),
            holder: Holder::new("test", 1, None),
        };
        Self { home, target, clusters, events: Arc::default() }
    }

    fn options(&self) -> RunOptions {
        let events = Arc::clone(&self.events);
        RunOptions {
            timeout: Some(Duration::from_secs(60)),
            stop: CancellationToken::new(),
            sink: Arc::new(move |event| events.lock().unwrap().push(event)),
            force_conflicts: false,
        }
    }

    /// Applies manifests, one per line as `KIND NAME JSON`, each with its directives.
    async fn apply(&self, manifests: &[(&str, Directives)]) -> Summary {
        self.apply_with(manifests, |_| {}).await.unwrap()
    }

    async fn apply_with(
        &self,
        manifests: &[(&str, Directives)],
        edit: impl FnOnce(&mut ApplyInput),
    ) -> Result<Summary, OperationError> {
        let directives = manifests.iter().map(|(_, directives)| directives.clone()).enumerate().collect();
        let manifests = manifests.iter().flat_map(|(text, _)| manifest(text)).collect();
        let mut input = ApplyInput {
            directives,
            unowned: Unowned::TakeNew,
            prune: true,
            order: DeploymentOrder::Groups(Wait::Workloads),
            ..ApplyInput::new(release(), manifests)
        };
        edit(&mut input);
        let prepared = billhook_engine::prepare_apply(&self.clusters, input).await?;
        billhook_engine::apply(&self.clusters, prepared, &self.options()).await
    }

    async fn delete(&self) -> Summary {
        self.delete_with(|_| {}).await.unwrap()
    }

    async fn delete_with(&self, edit: impl FnOnce(&mut DeleteInput)) -> Result<Summary, OperationError> {
        let prepared = billhook_engine::prepare_delete(&self.clusters, delete_input(edit)).await?;
        billhook_engine::delete(&self.clusters, prepared, &self.options()).await
    }

    fn config_map(&self, name: &str) -> Option<Value> {
        self.target.object("", "configmaps", "default", name)
    }

    fn data(&self, name: &str) -> Value {
        self.config_map(name).map_or(Value::Null, |object| object["data"].clone())
    }

    fn has_record(&self) -> bool {
        self.home.object("", "secrets", "default", "billhook.web").is_some()
    }

    async fn entry(&self, name: &str) -> Option<Entry> {
        let stored = self.clusters.records.as_ref()?.inventory().load(&release()).await.unwrap()?;
        stored.inventory.entries.get(&key(name)).cloned()
    }

    /// Returns the writes of the target, such as `patch configmaps/default/a`.
    fn writes(&self) -> Vec<String> {
        writes_to(&self.target)
    }

    fn admin(&self) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: String::new(),
            version: "v1".into(),
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            plural: "configmaps".into(),
        };
        Api::namespaced_with(self.target.client(User::admin(), ""), "default", &resource)
    }

    /// Creates a ConfigMap as another client.
    async fn given(&self, name: &str, data: Value) -> Uid {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        let object = serde_json::from_value(object).unwrap();
        let made: DynamicObject = self.admin().create(&PostParams::default(), &object).await.unwrap();
        Uid::new(made.metadata.uid.unwrap())
    }

    async fn patch(&self, name: &str, patch: Value) {
        self.admin().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

fn writes_to(sandbox: &Sandbox) -> Vec<String> {
    let log = sandbox.faults().log(CLIENT);
    let writes = log.iter().filter(|request| {
        matches!(request.verb, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection)
    });
    writes.map(ToString::to_string).collect()
}

fn release() -> ReleaseName {
    ReleaseName::new("default", "web").unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(billhook_objects::GroupKind::new("", "ConfigMap"), Some("default"), name)
}

/// Parses a ConfigMap from `NAME DATA`.
fn manifest(text: &str) -> Vec<Manifest> {
    let (name, data) = text.split_once(' ').unwrap();
    let text = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {data}}}");
    let documents = yaml::parse(&text).unwrap();
    documents.into_iter().flat_map(|document| Manifest::from_document(document, &"f".into()).unwrap()).collect()
}

fn delete_input(edit: impl FnOnce(&mut DeleteInput)) -> DeleteInput {
    let mut input = DeleteInput {
        subject: Subject::Release(release()),
        policy: None,
        propagation: Propagation::Background,
        max_deletions: None,
        namespace: "default".into(),
        inherited: Vec::new(),
        require_record: false,
        unlabelled: Unlabelled::Leave,
        retain: false,
        verify: false,
        backup: BackupMode::Never,
        catalog: None,
    };
    edit(&mut input);
    input
}

fn inherited(name: &str, uid: &Uid) -> Inherited {
    Inherited {
        key: key(name),
        api_version: ApiVersion::parse("v1").unwrap(),
        uid: Some(uid.clone()),
        before_delete: None,
        keep: false,
        fallback: false,
    }
}

fn nothing() -> Directives {
    Directives::default()
}

fn policy(policy: ManifestPolicy) -> Directives {
    Directives { policy, ..nothing() }
}

fn after(patch: Value) -> Directives {
    Directives { patch_after: Some(patch), ..nothing() }
}

fn before(patch: Value) -> Directives {
    Directives { before_delete: Some(patch), ..nothing() }
}

#[tokio::test(start_paused = true)]
async fn the_record_is_in_one_cluster_and_the_objects_in_another() {
    let world = World::new();
    let summary = world.apply(&[("a {k: v}", nothing())]).await;
    assert_eq!((summary.status, summary.applied, world.has_record()), (Status::Done, 1, true));
    assert!(world.target.object("", "secrets", "default", "billhook.web").is_none());
    let sent = world.home.faults().count(CLIENT) + world.target.faults().count(CLIENT);
    assert_eq!(summary.requests.values().sum::<u64>(), sent as u64);
    let summary = world.delete().await;
    assert_eq!((summary.status, summary.gone, world.has_record()), (Status::Done, 1, false));
    assert_eq!(world.config_map("a"), None);
}

#[tokio::test(start_paused = true)]
async fn a_patch_is_applied_after_the_deployment_and_again_only_after_a_change() {
    let world = World::new();
    let v1 = [("a {k: v}", after(json!({"data": {"patched": "1"}})))];
    let summary = world.apply(&v1).await;
    assert_eq!((summary.status, summary.applied), (Status::Done, 1));
    assert_eq!(world.data("a"), json!({"k": "v", "patched": "1"}));
    let writes = world.writes().len();
    let summary = world.apply(&v1).await;
    assert_eq!((summary.unchanged, world.writes().len()), (1, writes), "the version after the patch is recorded");
    world.apply(&[("a {k: v}", after(json!({"data": {"patched": "2"}})))]).await;
    assert_eq!(world.data("a"), json!({"k": "v", "patched": "2"}));
    let patched =
        |event: &&Event| matches!(event, Event::Applied { result: billhook_engine::ApplyResult::Patched, .. });
    assert_eq!(world.events.lock().unwrap().iter().filter(patched).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_patch_is_repeated_by_the_next_apply() {
    let world = World::new();
    let manifests = [("a {k: v}", after(json!({"data": {"patched": "1"}})))];
    let patches = Requests::of(CLIENT).verb(Verb::Patch).resource("", "configmaps");
    // The first request is the server-side apply itself.
    world.target.faults().inject(forbidden().on(patches).nth(2));
    let summary = world.apply(&manifests).await;
    assert_eq!((summary.status, summary.left.len(), world.data("a")), (Status::Failed, 1, json!({"k": "v"})));
    assert_eq!(summary.left[0].group, "patches after deployment");
    let summary = world.apply(&manifests).await;
    assert_eq!((summary.status, world.data("a")), (Status::Done, json!({"k": "v", "patched": "1"})));
}

fn forbidden() -> Fault {
    Fault::refuse(http::StatusCode::FORBIDDEN, "Forbidden", "not today")
}

#[tokio::test(start_paused = true)]
async fn objects_are_patched_before_any_is_deleted() {
    let world = World::new();
    world
        .apply(&[("a {k: v}", nothing()), ("b {k: v}", before(json!({"metadata": {"annotations": {"go": "yes"}}})))])
        .await;
    world.patch("b", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
    let summary = world.delete().await;
    assert_eq!((summary.status, summary.gone), (Status::TimedOut, 1));
    assert_eq!(world.config_map("b").unwrap()["metadata"]["annotations"]["go"], "yes");
    let writes = world.writes();
    let at = |request: &str| writes.iter().rposition(|write| write == request).unwrap();
    assert!(at("patch configmaps/default/b") < at("delete configmaps/default/a"), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_if_a_patch_before_is_rejected() {
    let world = World::new();
    world.apply(&[("a {k: v}", nothing()), ("b {k: v}", before(json!({"data": {"go": "yes"}})))]).await;
    let patches = Requests::of(CLIENT).verb(Verb::Patch).resource("", "configmaps");
    world.target.faults().inject(forbidden().on(patches));
    let summary = world.delete().await;
    assert_eq!((summary.status, summary.gone, world.has_record()), (Status::Failed, 0, true));
    assert!(world.config_map("a").is_some() && world.config_map("b").is_some());
    let left: Vec<_> = summary.left.iter().map(|left| (left.object.name.as_str(), &left.blockers[0])).collect();
    assert!(
        matches!(left[..], [("b", Blocker::Refused { .. }), ("a", Blocker::NotStarted)]),
        "each object is listed once: {left:?}"
    );
    world.target.faults().clear();
    assert_eq!(world.delete().await.status, Status::Done);
    assert!(world.config_map("b").is_none() && !world.has_record());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_or_recreated_object_is_not_patched() {
    let world = World::new();
    let go = || before(json!({"data": {"go": "yes"}}));
    world.apply(&[("gone {k: v}", go()), ("other {k: v}", go())]).await;
    let prepared = billhook_engine::prepare_delete(&world.clusters, delete_input(|_| {})).await.unwrap();
    for name in ["gone", "other"] {
        world.admin().delete(name, &DeleteParams::default()).await.unwrap();
    }
    world.given("other", json!({"theirs": "yes"})).await;
    let summary = billhook_engine::delete(&world.clusters, prepared, &world.options()).await.unwrap();
    assert_eq!((summary.status, world.data("other")), (Status::Done, json!({"theirs": "yes"})));
}

#[tokio::test(start_paused = true)]
async fn an_immutable_object_is_not_written_and_its_manifest_not_recorded_as_applied() {
    let world = World::new();
    let immutable = || policy(ManifestPolicy::Immutable);
    world.apply(&[("a {rev: '1'}", immutable())]).await;
    let summary = world.apply(&[("a {rev: '2'}", immutable())]).await;
    assert_eq!((summary.unchanged, world.data("a")), (1, json!({"rev": "1"})));
    world.apply(&[("a {rev: '2'}", nothing())]).await;
    assert_eq!(world.data("a"), json!({"rev": "2"}));
    assert_eq!(world.delete().await.gone, 1);
}

/// It carries the label, so that nothing has to be recorded about it when it is left unchanged.
#[tokio::test(start_paused = true)]
async fn an_unchanged_release_with_an_immutable_object_writes_nothing() {
    let world = World::new();
    let manifests = [("a {rev: '1'}", policy(ManifestPolicy::Immutable)), ("b {rev: '1'}", nothing())];
    world.apply(&manifests).await;
    let before = (writes_to(&world.home).len(), world.writes().len());
    for _ in 0..2 {
        let summary = world.apply(&manifests).await;
        assert_eq!((summary.status, summary.unchanged), (Status::Done, 2));
        assert_eq!((writes_to(&world.home).len(), world.writes().len()), before, "{:?}", writes_to(&world.home));
    }
    // Its label is lost: from then on the record says that it has none.
    world.patch("a", json!({"metadata": {"labels": null}})).await;
    world.apply(&manifests).await;
    assert!(world.entry("a").await.unwrap().unlabelled);
    assert_eq!((world.delete().await.gone, world.config_map("a")), (2, None));
}

#[tokio::test(start_paused = true)]
async fn an_immutable_object_without_owner_is_adopted_unchanged() {
    let world = World::new();
    let uid = world.given("a", json!({"rev": "0"})).await;
    world.apply(&[("a {rev: '1'}", policy(ManifestPolicy::Immutable))]).await;
    assert_eq!((world.data("a"), world.writes()), (json!({"rev": "0"}), Vec::<String>::new()));
    assert_eq!(world.entry("a").await.unwrap().uid, Some(uid));
    assert_eq!((world.delete().await.gone, world.config_map("a")), (1, None));
}

#[tokio::test(start_paused = true)]
async fn objects_of_other_managers_are_not_changed() {
    let world = World::new();
    world.given("theirs", json!({"rev": "0"})).await;
    let fallback = || policy(ManifestPolicy::Fallback);
    let summary = world.apply(&[("theirs {rev: '1'}", fallback()), ("new {rev: '1'}", fallback())]).await;
    assert_eq!((summary.status, summary.applied, world.data("theirs")), (Status::Done, 1, json!({"rev": "0"})));
    assert_eq!((world.entry("theirs").await, world.entry("new").await.is_some()), (None, true));
    assert_eq!(world.apply(&[("theirs {rev: '1'}", fallback()), ("new {rev: '2'}", fallback())]).await.applied, 1);
    assert_eq!((world.delete().await.gone, world.data("theirs")), (1, json!({"rev": "0"})));
}

#[tokio::test(start_paused = true)]
async fn kept_objects_remain_after_updates_and_the_deletion() {
    let world = World::new();
    let all: Members = Members::Resources(vec![billhook_policy::ResourceSelector {
        api_version: ApiVersion::parse("v1").unwrap(),
        kind: "configmaps".into(),
        names: Vec::new(),
        namespaces: vec!["default".into()],
        label_selector: Default::default(),
        all: true,
    }]);
    let group = DeletionGroup::new("all", all);
    let groups = Policy { deletion: vec![group.clone()], during_update: vec![group], deployment: Vec::new() };
    let input = |input: &mut ApplyInput| input.policy = Some(groups);
    let v1 = [("kept {rev: '1'}", policy(ManifestPolicy::Keep)), ("b {rev: '1'}", nothing())];
    world.apply_with(&v1, input).await.unwrap();
    world.apply(&[("b {rev: '1'}", nothing())]).await;
    assert!(world.entry("kept").await.is_some_and(|entry| entry.keep && entry.obsolete));
    let summary = world.delete().await;
    assert_eq!((summary.status, world.data("kept"), world.data("b")), (Status::Done, json!({"rev": "1"}), Value::Null));
    assert_eq!(summary.uncovered[0].reason(), "its policy is keep");
    assert!(!world.has_record());
}

#[tokio::test(start_paused = true)]
async fn objects_of_an_earlier_deployer_are_recorded_before_they_are_deleted() {
    let world = World::new();
    let uid = world.given("old", json!({"rev": "0"})).await;
    let old = || vec![Inherited { before_delete: Some(json!({"data": {"go": "yes"}})), ..inherited("old", &uid) }];
    let deletions = Requests::of(CLIENT).verb(Verb::Delete).resource("", "configmaps");
    world.target.faults().inject(forbidden().on(deletions));
    let summary = world.delete_with(|input| input.inherited = old()).await.unwrap();
    assert_eq!((summary.status, world.data("old")), (Status::Failed, json!({"rev": "0", "go": "yes"})));
    assert_eq!(world.entry("old").await.unwrap().uid, Some(uid));
    world.target.faults().clear();
    // From now on the record is used.
    assert_eq!(world.delete().await.gone, 1);
    assert!(world.config_map("old").is_none() && !world.has_record());
}

#[tokio::test(start_paused = true)]
async fn objects_of_an_earlier_deployer_are_updated_and_pruned() {
    let world = World::new();
    let (old, stays) = (world.given("old", json!({})).await, world.given("stays", json!({"rev": "0"})).await);
    let left = || vec![inherited("old", &old), inherited("stays", &stays)];
    let edit = |input: &mut ApplyInput| {
        (input.unowned, input.unrecorded) = (Unowned::Refuse, Unrecorded::Inherits(left()));
    };
    let summary = world.apply_with(&[("stays {more: '1'}", nothing())], edit).await.unwrap();
    assert_eq!((summary.status, summary.applied, summary.gone), (Status::Done, 1, 1));
    assert_eq!((world.config_map("old"), world.data("stays")), (None, json!({"more": "1", "rev": "0"})));
    // Inherited objects are only used if there is no record yet.
    world.given("old", json!({})).await;
    world.apply_with(&[("stays {more: '1'}", nothing())], edit).await.unwrap();
    assert!(world.config_map("old").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_release_without_a_record_is_an_error_only_if_one_is_required() {
    let world = World::new();
    let refused = world.delete_with(|input| input.require_record = true).await;
    assert!(matches!(refused, Err(OperationError::NoRelease(..))));
    let summary = world.delete().await;
    assert_eq!((summary.status, summary.gone, world.has_record()), (Status::Done, 0, false));
}

#[tokio::test(start_paused = true)]
async fn every_strategy_creates_objects_with_their_annotations() {
    for strategy in [UpdateStrategy::ServerSide, UpdateStrategy::Update, UpdateStrategy::Merge] {
        let world = World::new();
        let annotate_before_create = BTreeMap::from([("a.example/b".to_owned(), "c".to_owned())]);
        let directives = Directives { annotate_before_create, ..nothing() };
        let summary = world.apply_with(&[("a {k: v}", directives)], |input| input.strategy = strategy).await.unwrap();
        assert_eq!(summary.applied, 1);
        assert_eq!(world.writes().len(), 1, "{strategy:?}");
        let object = world.config_map("a").unwrap();
        assert_eq!(object["metadata"]["annotations"]["a.example/b"], "c", "{strategy:?}");
        assert!(object["metadata"]["labels"].get(wellknown::RELEASE_LABEL).is_some());
    }
}
