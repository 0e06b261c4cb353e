//! Claims of DeployItems that do not exist, on objects of the target.

use kube::core::ObjectMeta;

use super::*;

fn item(namespace: &str, name: &str) -> ReleaseName {
    ReleaseName::of_deploy_item(namespace, name)
}

/// Creates a ConfigMap with the label of an item that does not exist, and applies it as the item `default/new`. The controller
/// may not send requests of this kind.
async fn taken_over(claimed_by: &ReleaseName, forbidden: Requests) -> Result<(), String> {
    let world = World::new();
    world.given("a", json!({"k": "old"})).await;
    let label = claimed_by.label_value();
    world.patch("a", json!({"metadata": {"labels": {wellknown::RELEASE_LABEL: label}}})).await;
    let resource =
        ApiResource::from_gvk_with_plural(&kube::api::GroupVersionKind::gvk("", "v1", "Namespace"), "namespaces");
    let namespaces = Api::<DynamicObject>::all_with(world.home.client(User::admin(), ""), &resource);
    let metadata = ObjectMeta { name: Some("other".to_owned()), ..ObjectMeta::default() };
    let namespace = DynamicObject { metadata, ..DynamicObject::new("other", &resource) };
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    world.home.faults().inject(Fault::refuse(http::StatusCode::FORBIDDEN, "Forbidden", "no right").on(forbidden));
    let applied = world.apply_with(&[("a {k: new}", nothing())], |input| input.release = item("default", "new")).await;
    applied.map(drop).map_err(|error| error.to_string())
}

fn namespaces() -> Requests {
    Requests::of(CLIENT).resource("", "namespaces")
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_gone_item_of_the_same_namespace_needs_no_right_to_read_namespaces() {
    assert_eq!(taken_over(&item("default", "gone"), namespaces()).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_an_item_that_cannot_be_looked_up_counts() {
    let refused = "belongs to release DeployItem other/gone";
    let items = Requests::of(CLIENT).resource("landscaper.gardener.cloud", "deployitems").namespace("other");
    let records = Requests::of(CLIENT).resource("", "secrets").namespace("other");
    for forbidden in [namespaces(), items, records] {
        let error = taken_over(&item("other", "gone"), forbidden).await.unwrap_err();
        assert!(error.contains(refused), "{error}");
    }
    let readable = Requests::of("nobody");
    assert_eq!(taken_over(&item("other", "gone"), readable.clone()).await, Ok(()));
    let error = taken_over(&item("elsewhere", "gone"), readable).await.unwrap_err();
    assert!(error.contains("belongs to release DeployItem elsewhere/gone"), "{error}");
}
