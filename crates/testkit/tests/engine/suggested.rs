//! A suggested policy, written as a file and read again, leaves no note about the order; nor does the safe order of one run.

use billhook_engine::{DeletionOrder, PreparedDelete, prepare_delete_foreseen};
use billhook_plan::Note;
use billhook_policy::{read_policy_file, write_policy};
use proptest::{
    prelude::{Just, Strategy, any, prop_oneof},
    test_runner::{Config, TestRunner},
};

use super::*;

/// A product of the release: an operator, its kind, and instances with a finalizer.
#[derive(Clone, Debug)]
struct Product {
    has_crd: bool,
    /// Whether the rights are bound in the namespace only.
    is_bound_in_namespace: bool,
    is_stateful: bool,
    has_webhook: bool,
    has_api_service: bool,
    /// Whether the operator's own finalizer is also on a built-in object.
    holds_config: bool,
    instances: usize,
}

fn product() -> impl Strategy<Value = Product> {
    (any::<[bool; 6]>(), 1..4_usize).prop_map(|(flags, instances)| {
        let [has_crd, is_bound_in_namespace, is_stateful, has_webhook, has_api_service, holds_config] = flags;
        Product { has_crd, is_bound_in_namespace, is_stateful, has_webhook, has_api_service, holds_config, instances }
    })
}

/// The policies of authors: the default, everything in one order or another, and operators first.
fn policies() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just(""),
        Just(
            "deletionGroups: [{predefinedResourceGroup: {type: namespaced-resources}}, {predefinedResourceGroup: {type: cluster-scoped-resources}}, {predefinedResourceGroup: {type: crds}}]"
        ),
        Just(
            "deletionGroups: [{predefinedResourceGroup: {type: crds}}, {predefinedResourceGroup: {type: cluster-scoped-resources}}, {predefinedResourceGroup: {type: namespaced-resources}}]"
        ),
        Just(
            "deletionGroups: [{customResourceGroup: {resources: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: v1, kind: ServiceAccount}]}}, {predefinedResourceGroup: {type: namespaced-resources}}, {predefinedResourceGroup: {type: cluster-scoped-resources}}, {predefinedResourceGroup: {type: crds}}]"
        ),
    ]
}

/// Returns the CRD of a product, and its other objects.
fn objects(at: usize, product: &Product) -> (Value, Vec<Value>) {
    let (group, name) = (format!("p{at}.example"), format!("operator-{at}"));
    let named = |name: &str| json!({"name": name, "namespace": "default"});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"}, "versions": [{
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let workload = if product.is_stateful { "StatefulSet" } else { "Deployment" };
    let rbac = "rbac.authorization.k8s.io";
    let rules = json!([{"apiGroups": [group], "resources": ["*"], "verbs": ["*"]}, {"apiGroups": [""], "resources":
        ["configmaps"], "verbs": ["*"]}]);
    let binding = if product.is_bound_in_namespace { "RoleBinding" } else { "ClusterRoleBinding" };
    let bound = if product.is_bound_in_namespace { named(&name) } else { json!({"name": name}) };
    let service = json!({"name": name, "namespace": "default"});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named(&name)}),
        json!({"apiVersion": "apps/v1", "kind": workload, "metadata": named(&name), "spec": {
            "selector": {"matchLabels": {"app": name}}, "serviceName": name, "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"serviceAccountName": name, "containers": [{"name": "operator", "image": "operator"}]}}}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": binding, "metadata": bound,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": named(&name), "spec": {"selector": {"app": name},
            "ports": [{"port": 443}]}}),
    ];
    if workload == "Deployment" {
        objects[1]["spec"].as_object_mut().unwrap().remove("serviceName");
    }
    let finalizer = format!("{group}/cleanup");
    for instance in 0..product.instances {
        objects.push(
            json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": format!("t{instance}"),
            "namespace": "default", "finalizers": [finalizer]}}),
        );
    }
    if product.holds_config {
        objects.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("config-{at}"),
            "namespace": "default", "finalizers": [finalizer]}}));
    }
    if product.has_webhook {
        objects.push(json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name}, "webhooks": [{"name": format!("guard.{group}"), "clientConfig": {"service": service},
            "rules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": ["*"], "operations": ["DELETE", "UPDATE"],
            "scope": "*"}], "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"]}]}));
    }
    if product.has_api_service {
        objects.push(json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("v1.api-{at}.example")}, "spec": {"group": format!("api-{at}.example"), "version": "v1",
            "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true, "service": service}}));
    }
    (crd, objects)
}

impl World {
    async fn create(&self, object: &Value) {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let kind = kube::core::GroupVersionKind::try_from(object.types.clone().unwrap()).unwrap();
        let (client, resource) = (self.target.client(User::admin(), ""), ApiResource::from_gvk(&kind));
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        api.create(&PostParams::default(), &object).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    async fn planned(&self, policy: Option<Policy>, order: DeletionOrder) -> PreparedDelete {
        let input = delete_input(|input| input.policy = policy);
        prepare_delete_foreseen(&self.clusters, input, order).await.unwrap()
    }
}

fn about_order(prepared: &PreparedDelete) -> Vec<String> {
    prepared.plan.notes.iter().filter(|note| note.is_about_order()).map(ToString::to_string).collect()
}

/// Returns how many notes about the order the author's policy has.
async fn check(products: &[Product], policy: &str) -> usize {
    let world = World::new();
    let mut objects_of_release = Vec::new();
    for (at, product) in products.iter().enumerate() {
        let (crd, objects) = objects(at, product);
        match product.has_crd {
            true => objects_of_release.push(crd),
            false => world.create(&crd).await,
        }
        objects_of_release.extend(objects);
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects_of_release}).to_string();
    check_release(&world, &list, policy, &[]).await
}

/// Deploys a release, lets others create objects, and returns how many notes about the order the author's policy has.
async fn check_release(world: &World, release: &str, policy: &str, others: &[Value]) -> usize {
    let own = (!policy.is_empty()).then(|| read_policy_file(policy, &"own".into()).unwrap().0);
    let recorded = own.clone();
    let summary = world
        .apply_with(&[], |input| {
            let documents = yaml::parse(release).unwrap();
            input.manifests =
                documents.into_iter().flat_map(|found| Manifest::from_document(found, &"f".into()).unwrap()).collect();
            (input.policy, input.order) = (recorded, DeploymentOrder::Groups(Wait::Nothing));
        })
        .await
        .unwrap();
    assert_eq!(summary.status, Status::Done, "{summary:?}");
    for other in others {
        world.create(other).await;
    }
    let before = world.planned(None, DeletionOrder::Policy).await;
    let file = write_policy(before.safe_policy.as_ref().unwrap()).unwrap();
    let notes = about_order(&before).len();
    if notes == 0 && !before.plan.notes.iter().any(Note::leaves_order_open) {
        assert_eq!(file, write_policy(&own.unwrap_or_default()).unwrap(), "nothing is to be changed");
    }
    let (suggested, warnings) = read_policy_file(&file, &"suggested".into()).unwrap();
    assert!(warnings.is_empty(), "{file}");
    let with_it = world.planned(Some(suggested), DeletionOrder::Policy).await;
    assert_eq!(about_order(&with_it), [""; 0], "with the suggested policy:\n{file}");
    assert_eq!(write_policy(with_it.safe_policy.as_ref().unwrap()).unwrap(), file, "it is suggested again");
    let safe = world.planned(None, DeletionOrder::Safe).await;
    assert_eq!(about_order(&safe), [""; 0], "in the safe order");
    // Whatever the order, the same objects are deleted.
    let deleted = |prepared: &PreparedDelete| {
        let mut all: Vec<ObjectKey> = prepared.plan.deleted().map(|(_, object, ..)| object.clone()).collect();
        all.sort();
        all
    };
    let planned = deleted(&before);
    let with_it = deleted(&with_it);
    // What others own and is deleted with its Namespace or CRD anyway may have to be deleted before.
    let added: Vec<&ObjectKey> = with_it.iter().filter(|key| !planned.contains(key)).collect();
    let is_others = |key: &&&ObjectKey| others.iter().any(|other| other["metadata"]["name"] == *key.name);
    assert!(added.iter().all(|key| is_others(&key)), "{added:?} with\n{file}");
    assert!(planned.iter().all(|key| with_it.contains(key)), "{file}");
    assert_eq!(with_it, deleted(&safe));
    notes
}

/// The release of `billhook demo`, with the object of another user, by its own policy and by the default.
#[test]
fn the_policy_of_the_demo_remains_and_the_default_is_made_safe() {
    let file = |name: &str| {
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/").to_owned() + name).unwrap()
    };
    let shop = ["shop/1-crd.yaml", "shop/2-operator.yaml", "shop/3-databases.yaml"].map(&file).join("\n---\n");
    let policy = file("policy.yaml");
    for (policy, others, hangs) in
        [(policy.as_str(), true, false), ("", true, true), (policy.as_str(), false, false), ("", false, true)]
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let others: Vec<Value> = yaml::parse(&file("reports.yaml"))
            .unwrap()
            .into_iter()
            .map(|document| document.value)
            .filter(|_| others)
            .collect();
        let notes = runtime.block_on(async { check_release(&World::new(), &shop, policy, &others).await });
        assert_eq!(notes > 0, hangs, "{policy}");
    }
}

#[test]
fn a_suggested_policy_leaves_no_note_about_the_order() {
    let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let with_notes = std::cell::Cell::new(0);
    let worlds = (proptest::collection::vec(product(), 1..4), policies());
    let result = runner.run(&worlds, |(products, policy)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let notes = runtime.block_on(check(&products, policy));
        with_notes.set(with_notes.get() + usize::from(notes > 0));
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(with_notes.get() >= 10, "only {} worlds have an order that hangs", with_notes.get());
}
