//! When a cleaning removes finalizers, to the second.

use std::pin::pin;

use billhook_engine::CleanSubject;
use billhook_policy::read_stages;
use tokio::time::{Instant, sleep, sleep_until};

use super::*;

const GRACE: Duration = Duration::from_secs(300);
const SECOND: Duration = Duration::from_secs(1);
const STAGES: &str = "stages: [{name: settings, resources: [{apiVersion: v1, kind: ConfigMap, namespaces: [shop]}], finalizeAfter: 5m, timeout: 1h}]";

impl World {
    /// Creates a namespace with a ConfigMap `held` that has a finalizer, and one that has none.
    async fn namespace(&self, name: &str) {
        let held = json!({"name": "held", "finalizers": ["x.example/nobody"]});
        for (kind, plural, namespace, metadata) in [
            ("Namespace", "namespaces", None, json!({"name": name})),
            ("ConfigMap", "configmaps", Some(name), held),
            ("ConfigMap", "configmaps", Some(name), json!({"name": "free"})),
        ] {
            let object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
            let object = serde_json::from_value(object).unwrap();
            self.objects(kind, plural, namespace).create(&PostParams::default(), &object).await.unwrap();
        }
    }

    fn objects(&self, kind: &str, plural: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let client = self.target.client(User::admin(), "");
        let resource = ApiResource {
            group: String::new(),
            version: "v1".into(),
            api_version: "v1".into(),
            kind: kind.into(),
            plural: plural.into(),
        };
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    /// Cleans the ConfigMaps of the namespace `shop` within a time limit.
    async fn clean_within(&self, limit: Duration) -> Summary {
        let stages = read_stages(STAGES, &"stages.yaml".into()).unwrap().policy();
        let subject = CleanSubject::Cluster { stages, exclude: Vec::new() };
        let prepared = billhook_engine::prepare_clean(&self.clusters, subject).await.unwrap();
        let options = RunOptions { timeout: Some(limit), ..self.options() };
        billhook_engine::clean(&self.clusters, prepared, &options).await
    }

    fn finalizers(&self) -> Value {
        let held = self.target.object("", "configmaps", "shop", "held");
        held.map_or(Value::Null, |held| held["metadata"]["finalizers"].clone())
    }

    /// Returns all objects but the ConfigMaps that are cleaned, as they are stored.
    fn others(&self) -> Vec<Value> {
        let is_cleaned = |object: &Value| {
            let metadata = &object["metadata"];
            metadata["namespace"] == "shop" && (metadata["name"] == "held" || metadata["name"] == "free")
        };
        self.target.objects().into_iter().filter(|object| !is_cleaned(object)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn finalizers_are_removed_after_the_grace_has_passed_and_not_before() {
    // As in Gardener, exactly the grace is not enough.
    for (offset, is_removed) in [(-1, false), (0, false), (1, true)] {
        let world = World::new();
        world.namespace("shop").await;
        world.namespace("other").await;
        world.objects("ConfigMap", "configmaps", Some("shop")).delete("held", &DeleteParams::default()).await.unwrap();
        let deleted = Instant::now();
        sleep_until(deleted + GRACE - SECOND + u32::try_from(offset + 1).unwrap() * SECOND).await;
        let others = world.others();
        // What a request takes, and no more.
        let summary = world.clean_within(SECOND / 2).await;
        let expected = if is_removed { (Status::Done, 2, 1) } else { (Status::TimedOut, 1, 0) };
        let found = (summary.status, summary.gone, summary.finalizers_removed.len());
        assert_eq!(found, expected, "{offset} s after the grace");
        let finalizers = if is_removed { Value::Null } else { json!(["x.example/nobody"]) };
        assert_eq!(world.finalizers(), finalizers, "{offset} s after the grace");
        assert_eq!(world.others(), others, "{offset} s after the grace");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cleaning_waits_for_the_grace_of_what_it_deletes() {
    let world = World::new();
    world.namespace("shop").await;
    world.namespace("other").await;
    // Controllers add what every namespace has.
    sleep(SECOND).await;
    let (begun, others) = (Instant::now(), world.others());
    let mut cleaning = pin!(world.clean_within(2 * GRACE));
    for seconds in [1, 299] {
        tokio::select! {
            summary = &mut cleaning => panic!("the cleaning ended after {:?}: {summary:?}", begun.elapsed()),
            () = sleep_until(begun + seconds * SECOND) => {}
        }
        assert_eq!(world.finalizers(), json!(["x.example/nobody"]), "after {seconds} s");
        assert!(world.target.object("", "configmaps", "shop", "free").is_none());
    }
    let summary = cleaning.await;
    assert_eq!((summary.status, summary.gone), (Status::Done, 2));
    assert!((GRACE..=GRACE + SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(world.others(), others);
}
