//! What release payloads need of graphs: unchanged passes without further requests, and what the reference and its guide
//! disagree about.

use kube::api::GroupVersionKind;

use super::*;

/// What steps wait for is read with the list that the plan needs anyway, unless something changes.
#[tokio::test(start_paused = true)]
async fn an_unchanged_graph_with_awaited_objects_sends_one_list_for_each_kind() {
    let world = World::new();
    let text = format!("{}---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}}}", crd(0));
    let apply = async || {
        let order = graph(&["one: !0 1"], &["0", "1"]);
        let given = ApplyInput { order: DeploymentOrder::Graph(fixed(order)), ..input(documents(&text)) };
        let sent = world.target.faults().count(CLIENT);
        let summary = world.run(given, &world.options()).await.1;
        let log = world.target.faults().log(CLIENT);
        (summary.status, log[sent..].iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(apply().await.0, Status::Done);
    let quiet =
        ["get /api", "get /apis", "list configmaps/default", "list customresourcedefinitions.apiextensions.k8s.io"];
    for _ in 0..2 {
        let (status, mut sent) = apply().await;
        sent.sort();
        assert_eq!((status, sent), (Status::Done, quiet.map(str::to_owned).to_vec()));
    }
    // Something changes: then a watch decides. It begins with a list, and need not go on if that shows all objects ready.
    world.admin().delete("a", &DeleteParams::default()).await.unwrap();
    let (status, sent) = apply().await;
    assert_eq!(status, Status::Done);
    let lists = sent.iter().filter(|request| request.starts_with("list customresourcedefinitions"));
    assert_eq!(lists.count(), 2, "{sent:?}");
}

/// Returns the document of a ConfigMap.
fn map(name: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}\n")
}

impl World {
    fn definitions(&self) -> Api<DynamicObject> {
        let crds = ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(crds.0, crds.1, crds.2), crds.3);
        Api::all_with(self.target.client(User::admin(), ""), &kind)
    }

    /// Applies documents, which are deleted where the step says so.
    async fn apply_text(&self, text: &str, steps: &str) -> (Plan, Summary) {
        let count = documents(text).len();
        let names: Vec<String> = (0..count).map(|at| at.to_string()).collect();
        let order = graph(&[steps], &names.iter().map(String::as_str).collect::<Vec<_>>());
        let given = ApplyInput { order: DeploymentOrder::Graph(fixed(order)), ..input(documents(text)) };
        let (plan, summary) = self.run(given, &self.options()).await;
        assert_eq!(summary.status, Status::Done, "{summary:?}");
        (plan, summary)
    }
}

/// Kinds that the reference has types for, a generic one, and one that it never looks at.
const KINDS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusteroperators.config.openshift.io}
spec:
  group: config.openshift.io
  scope: Cluster
  names: {kind: ClusterOperator, plural: clusteroperators}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
{apiVersion: config.openshift.io/v1, kind: ClusterOperator, metadata: {name: shop}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: shop}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: shop}, rules: []}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: shop}, spec: {podSelector: {}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
";

#[tokio::test(start_paused = true)]
async fn disagreement_objects_of_every_kind_are_deleted_and_verified() {
    let world = World::new();
    world.apply_text(KINDS, "all: !0 1 2 3 4 5").await;
    let (_, summary) = world.apply_text(KINDS, "all: -1 -2 -3 -4 -5 -0").await;
    assert_eq!(summary.requested.len(), 6);
    sleep(Duration::from_secs(60)).await;
    let (plan, _) = world.apply_text(KINDS, "all: -1 -2 -3 -4 -5 -0").await;
    let verified =
        |deletion: &billhook_plan::RequestedDeletion| deletion.state == DeletionState::NotFound && deletion.recorded;
    assert!(plan.requested_deletions.iter().all(verified), "{:?}", plan.requested_deletions);
    assert_eq!((world.names(), world.inventory().await.deleted.len()), (Vec::new(), 6));
}

#[tokio::test(start_paused = true)]
async fn disagreement_a_job_is_deleted_with_its_pods() {
    let world = World::new();
    let text = "
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}
";
    world.apply_text(text, "job: 0").await;
    let job = world.api("batch", "Job", "jobs").get("migrate").await.unwrap();
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "uid": job.metadata.uid}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "migrate-1", "ownerReferences": owner},
        "spec": {"containers": [{"name": "a", "image": "b"}]},
    });
    let pods = world.api("", "Pod", "pods");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let (_, summary) = world.apply_text(text, "job: -0").await;
    assert_eq!(summary.requested.len(), 1);
    sleep(Duration::from_secs(60)).await;
    assert!(pods.get_opt("migrate-1").await.unwrap().is_none());
    assert!(world.api("batch", "Job", "jobs").get_opt("migrate").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn disagreement_an_object_whose_kind_is_gone_counts_as_gone() {
    let world = World::new();
    let instance = "{apiVersion: c.example/v1, kind: K0, metadata: {name: a}}";
    world.apply_text(&format!("{}---\n{instance}", crd(0)), "all: !0 1").await;
    world.definitions().delete("k0s.c.example", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    let (plan, _) = world.apply_text(instance, "all: -0").await;
    let [deletion] = &plan.requested_deletions[..] else { panic!("{plan:?}") };
    assert!(deletion.state == DeletionState::NotFound && deletion.recorded, "{deletion:?}");
    assert_eq!(world.inventory().await.deleted.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn disagreement_an_object_that_reappeared_is_deleted_again_by_an_update_only() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a b"])).await;
    let next = || Payload::new(&["one: -a b"]).of_version("2");
    world.pass(&next()).await;
    world.pass(&next()).await;
    world.given("a", json!({"theirs": "yes"})).await;
    let reconciling = next().with(|graph| graph.deletes = false);
    assert_eq!(world.found(&reconciling).await, [DeletionState::Left]);
    world.pass(&reconciling).await;
    assert_eq!(world.data("a"), json!({"theirs": "yes"}));
    let summary = world.pass(&next().of_version("3")).await;
    assert_eq!((summary.requested, world.config_map("a")), (vec![key("a")], None));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_fails_its_manifest_alone_until_it_is() {
    let world = World::new();
    let instance = "{apiVersion: c.example/v1, kind: K0, metadata: {name: c}}";
    let text = format!("{}---\n{instance}\n---\n{}---\n{}", map("a"), map("b"), map("d"));
    let order = || graph(&["one: 0 1 2", "two: 3"], &["0", "1", "2", "3"]);
    let given = || ApplyInput {
        order: DeploymentOrder::Graph(fixed(order())),
        version: Some("1".to_owned()),
        ..input(documents(&text))
    };
    let (_, summary) = world.run(given(), &world.options()).await;
    assert_eq!((summary.status, world.names()), (Status::Failed, vec!["a".to_owned(), "d".to_owned()]));
    let failures: Vec<_> =
        summary.failures().map(|failed| (failed.object.name.clone(), failed.error.to_owned())).collect();
    assert_eq!(failures, [("c".to_owned(), "the cluster does not serve K0 in c.example/v1".to_owned())]);
    let inventory = world.inventory().await;
    assert_eq!((inventory.history[0].state, inventory.failures.objects.len()), (VersionState::Partial, 1));
    let definition = yaml::parse(&crd(0)).unwrap().remove(0).value;
    world.definitions().create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let (_, summary) = world.run(given(), &world.options()).await;
    assert_eq!((summary.status, world.names()), (Status::Done, ["a", "b", "c", "d"].map(str::to_owned).to_vec()));
    let inventory = world.inventory().await;
    assert_eq!((inventory.history[0].state, inventory.entries.len()), (VersionState::Completed, 4));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_created_only_is_left_to_a_client_that_creates_it_meanwhile() {
    let world = World::new();
    let only =
        Directives { policy: billhook_policy::ManifestPolicy::Immutable, leave_others: true, ..Directives::default() };
    let given = || ApplyInput {
        order: DeploymentOrder::Graph(fixed(graph(&["one: 0 1"], &["0", "1"]))),
        version: Some("1".to_owned()),
        directives: BTreeMap::from([(0, only.clone())]),
        ..input(documents(&format!("{}---\n{}", map("a"), map("b"))))
    };
    let prepared = prepare_apply(&world.clusters, given()).await.unwrap();
    world.given("a", json!({"theirs": "yes"})).await;
    let summary = billhook_engine::apply(&world.clusters, prepared, &world.options()).await.unwrap();
    assert_eq!((summary.status, summary.unchanged, world.names()), (Status::Done, 1, vec!["b".to_owned()]));
    assert_eq!(world.data("a"), json!({"theirs": "yes"}));
    let inventory = world.inventory().await;
    assert_eq!(inventory.history[0].state, VersionState::Completed);
    assert!(!inventory.entries.contains_key(&key("a")), "{inventory:?}");
    // The next pass finds it.
    let (_, summary) = world.run(given(), &world.options()).await;
    assert_eq!((summary.status, world.data("a")), (Status::Done, json!({"theirs": "yes"})));
}
