//! Workloads in a cluster without nodes.

use super::*;

fn web() -> ObjectId {
    id("apps", "deployments", "default", "web")
}

fn job_id() -> ObjectId {
    id("batch", "jobs", "default", "pi")
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}})
}

fn deployment(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template(),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        },
    })
}

async fn world(replicas: i64) -> World {
    let mut world = World::new();
    world.create(deployment(replicas));
    world.settle().await;
    world
}

/// Checks that controllers only wait for progress deadlines.
fn assert_idle(world: &World) {
    let soon = Instant::now() + Duration::from_secs(500);
    assert!(world.state.controllers.next().is_none_or(|next| next > soon));
}

/// Returns the replicas of each ReplicaSet in ascending order.
fn replicas(world: &World) -> Vec<i64> {
    let sets = objects(&world.state, "apps", "replicasets", "default");
    let mut replicas: Vec<_> = sets.iter().map(|set| set.value()["spec"]["replicas"].as_i64().unwrap_or(-1)).collect();
    replicas.sort_unstable();
    replicas
}

fn pods(world: &World) -> Vec<String> {
    world.names("", "pods", "default")
}

#[tokio::test(start_paused = true)]
async fn deployments_create_pods_that_remain_pending() {
    let world = world(2).await;
    let status = world.get(&web()).expect("there")["status"].clone();
    let now = "2026-01-01T00:00:00Z";
    let set = &world.names("apps", "replicasets", "default")[0];
    assert_eq!(
        status,
        json!({
            "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "unavailableReplicas": 2,
            "terminatingReplicas": 0,
            "conditions": [
                {
                    "type": "Available", "status": "False", "lastUpdateTime": now, "lastTransitionTime": now,
                    "reason": "MinimumReplicasUnavailable",
                    "message": "Deployment does not have minimum availability.",
                },
                {
                    "type": "Progressing", "status": "True", "lastUpdateTime": now, "lastTransitionTime": now,
                    "reason": "ReplicaSetUpdated", "message": format!("ReplicaSet \"{set}\" is progressing."),
                },
            ],
        })
    );
    let set = world.get(&id("apps", "replicasets", "default", set)).expect("there");
    assert_eq!(
        set["status"],
        json!({"replicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 1, "terminatingReplicas": 0})
    );
    assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().expect("a hash").to_owned();
    assert!(pods(&world).iter().all(|pod| pod.starts_with(&format!("web-{hash}-"))));
    let pod = world.get(&id("", "pods", "default", &pods(&world)[0])).expect("there");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["controller"], true);
    assert_idle(&world);
}

#[tokio::test(start_paused = true)]
async fn deployments_are_scaled() {
    let mut world = world(2).await;
    for wanted in [5, 1, 0, 3] {
        world.edit(&web(), None, |object| object["spec"]["replicas"] = wanted.into());
        world.settle().await;
        assert_eq!((pods(&world).len(), replicas(&world)), (usize::try_from(wanted).expect("small"), vec![wanted]));
    }
    let gone = id("", "pods", "default", &pods(&world)[0]);
    world.delete(&gone, None);
    world.settle().await;
    assert_eq!(pods(&world).len(), 3, "a deleted pod is replaced");
}

#[tokio::test(start_paused = true)]
async fn rollouts_stall_without_running_pods() {
    // The numbers of a real cluster without nodes: 1 replica may surge by 1; of 4, 1 may be unavailable and 1 may be
    // added.
    for (wanted, expected) in [(1, vec![1, 1]), (4, vec![2, 3])] {
        let mut world = world(wanted).await;
        world
            .edit(&web(), None, |object| object["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into());
        world.settle().await;
        assert_eq!(replicas(&world), expected);
        assert_idle(&world);
    }
    let mut world = world(3).await;
    world.edit(&web(), None, |object| {
        object["spec"]["strategy"] = json!({"type": "Recreate"});
        object["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into();
    });
    world.settle().await;
    assert_eq!((replicas(&world), pods(&world).len()), (vec![0, 3], 3));
}

#[tokio::test(start_paused = true)]
async fn rollouts_complete_with_ready_pods() {
    let mut world = world(4).await;
    let ready = |world: &mut World| {
        for pod in pods(world) {
            let pod = id("", "pods", "default", &pod);
            let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            world.edit(&pod, Some("status"), |object| object["status"] = status);
        }
    };
    ready(&mut world);
    world.settle().await;
    let available = expected_condition("True", "MinimumReplicasAvailable", "Deployment has minimum availability.");
    assert_eq!(world.condition(&web(), "Available"), available);
    world.edit(&web(), None, |object| object["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into());
    for _ in 0..8 {
        world.settle().await;
        ready(&mut world);
    }
    world.settle().await;
    assert_eq!((replicas(&world), pods(&world).len()), (vec![0, 4], 4));
    assert_eq!(world.condition(&web(), "Progressing").expect("a condition").1, "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn rollouts_exceed_their_deadline() {
    let mut world = World::new();
    let mut web_1 = deployment(2);
    web_1["spec"]["progressDeadlineSeconds"] = 5.into();
    world.create(web_1);
    let reason = |world: &World| world.condition(&web(), "Progressing").map(|(status, reason, _)| (status, reason));
    let expected = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
    world.pass(Duration::from_secs(4)).await;
    assert_eq!(reason(&world), expected("True", "ReplicaSetUpdated"));
    let pod = id("", "pods", "default", &pods(&world)[0]);
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    world.edit(&pod, Some("status"), |object| object["status"] = ready);
    world.pass(Duration::from_secs(4)).await;
    assert_eq!(reason(&world), expected("True", "ReplicaSetUpdated"), "a ready pod is progress");
    world.pass(Duration::from_secs(4)).await;
    assert_eq!(reason(&world), expected("False", "ProgressDeadlineExceeded"));
    assert_eq!(world.state.controllers.next(), None);
    world.edit(&web(), None, |object| object["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into());
    world.settle().await;
    assert_eq!(reason(&world), expected("True", "ReplicaSetUpdated"), "a new rollout has its own deadline");
    world.pass(Duration::from_secs(9)).await;
    assert_eq!(reason(&world), expected("False", "ProgressDeadlineExceeded"));
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(reason(&world), expected("False", "ProgressDeadlineExceeded"));
}

#[tokio::test(start_paused = true)]
async fn orphaned_replica_sets_are_adopted() {
    for propagation in [None, Some(Propagation::Foreground)] {
        let mut world = world(2).await;
        world.delete(&web(), propagation);
        world.settle().await;
        assert_eq!((replicas(&world), pods(&world).len(), world.has(&web())), (vec![], 0, false));
        assert_idle(&world);
    }
    let mut world = world(2).await;
    let before = pods(&world);
    world.delete(&web(), Some(Propagation::Orphan));
    world.settle().await;
    assert_eq!((pods(&world), world.has(&web())), (before.clone(), false));
    world.create(deployment(2));
    world.settle().await;
    assert_eq!((pods(&world), replicas(&world)), (before, vec![2]), "the new Deployment adopts the ReplicaSet");
}

async fn with_job() -> World {
    let mut world = World::new();
    world.create(json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pi", "namespace": "default"},
        "spec": {
            "parallelism": 1, "completions": 1, "backoffLimit": 6,
            "selector": {"matchLabels": {"batch.kubernetes.io/job-name": "pi"}},
            "template": {
                "metadata": {"labels": {"batch.kubernetes.io/job-name": "pi"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "pi", "image": "pi"}]},
            },
        },
    }));
    world.settle().await;
    world
}

#[tokio::test(start_paused = true)]
async fn jobs_track_their_pods() {
    let world = with_job().await;
    let status = world.get(&job_id()).expect("there")["status"].clone();
    assert_eq!(
        status,
        json!({
            "active": 1, "ready": 0, "startTime": "2026-01-01T00:00:00Z", "terminating": 0,
            "uncountedTerminatedPods": {},
        })
    );
    let pod = world.get(&id("", "pods", "default", &pods(&world)[0])).expect("there");
    assert_eq!(pod["metadata"]["finalizers"], json!(["batch.kubernetes.io/job-tracking"]));
    assert_eq!(world.state.controllers.next(), None);
}

#[tokio::test(start_paused = true)]
async fn jobs_release_their_pods_on_deletion() {
    for (propagation, left) in [
        (Some(Propagation::Background), 0),
        (Some(Propagation::Foreground), 0),
        (Some(Propagation::Orphan), 1),
        (None, 1),
    ] {
        let mut world = with_job().await;
        world.delete(&job_id(), propagation);
        world.settle().await;
        assert_eq!((world.has(&job_id()), pods(&world).len()), (false, left), "{propagation:?}");
        if let Some(pod) = pods(&world).first() {
            let pod = world.get(&id("", "pods", "default", pod)).expect("there");
            assert!(pod["metadata"]["finalizers"].is_null() && pod["metadata"]["ownerReferences"].is_null());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failed_pods_of_jobs_are_replaced_after_a_delay() {
    let mut world = with_job().await;
    let first = pods(&world);
    world.delete(&id("", "pods", "default", &first[0]), None);
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(pods(&world), Vec::<String>::new());
    assert_eq!(world.get(&job_id()).expect("there")["status"]["failed"], 1);
    world.pass(Duration::from_secs(6)).await;
    assert_eq!(pods(&world).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn jobs_complete_with_their_pods() {
    let mut world = with_job().await;
    let pod = id("", "pods", "default", &pods(&world)[0]);
    world.edit(&pod, Some("status"), |object| object["status"] = json!({"phase": "Succeeded"}));
    world.settle().await;
    let reached = expected_condition("True", "CompletionsReached", "Reached expected number of succeeded pods");
    assert_eq!(world.condition(&job_id(), "Complete"), reached);
    assert_eq!(world.get(&job_id()).expect("there")["status"]["succeeded"], 1);
    assert!(world.get(&pod).expect("kept")["metadata"]["finalizers"].is_null());
}
