//! What a sequence waits for.

use super::*;

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
    let given = || ApplyInput { order: DeploymentOrder::Graph(fixed(graph.clone())), ..input(documents(&text)) };
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
        let given = ApplyInput { order: DeploymentOrder::Graph(fixed(graph)), ..input(documents(text)) };
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
    ApplyInput { order: DeploymentOrder::Graph(fixed(graph)), ..input(documents(DEPLOYMENT)) }
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
        let given = ApplyInput { order: DeploymentOrder::Graph(fixed(graph)), ..input(documents(text)) };
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
