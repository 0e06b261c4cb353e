//! What is foreseen from watches: on sandboxes whose watches expire, break or are forbidden.

use billhook_engine::{Expected, Outlook, Prospect};
use billhook_explain::Foreseen;
use billhook_objects::GroupKind;
use kube::core::GroupVersionKind;
use tokio::time::{Instant, sleep};

use super::*;

const GIVEN: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: databases.shop.example}
spec:
  group: shop.example
  scope: Namespaced
  names: {kind: Database, plural: databases}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: operator, namespace: shop}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: operator, namespace: shop}
spec:
  selector: {matchLabels: {app: operator}}
  template:
    metadata: {labels: {app: operator}}
    spec: {serviceAccountName: operator, containers: [{name: operator, image: operator}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operator}
rules: [{apiGroups: [shop.example], resources: ['*'], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operator}
subjects: [{kind: ServiceAccount, name: operator, namespace: shop}]
---
{apiVersion: shop.example/v1, kind: Database, metadata: {name: a, namespace: shop, finalizers: [shop.example/last-backup]}}
---
{apiVersion: shop.example/v1, kind: Database, metadata: {name: b, namespace: shop, finalizers: [shop.example/last-backup]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}}
---
{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: shop}}
";

/// A cluster, and what is known of it while the closure runs.
struct Watched {
    sandbox: Sandbox,
    outlook: Outlook,
}

impl Watched {
    async fn new(options: Options) -> Self {
        let watched = Self { sandbox: Sandbox::start(options), outlook: Outlook::new(false) };
        watched.create(GIVEN).await;
        watched
    }

    async fn create(&self, objects: &str) {
        for document in yaml::parse(objects).unwrap() {
            let object: DynamicObject = serde_json::from_value(document.value).unwrap();
            self.api(&object).create(&PostParams::default(), &object).await.unwrap();
            if object.types.is_some_and(|types| types.kind == "CustomResourceDefinition") {
                sleep(Duration::from_secs(1)).await;
            }
        }
    }

    fn api(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::try_from(object.types.clone().unwrap()).unwrap();
        let (client, resource) = (self.sandbox.client(User::admin(), ""), ApiResource::from_gvk(&gvk));
        match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    async fn delete(&self, object: Value) {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let name = object.metadata.name.clone().unwrap();
        self.api(&object).delete(&name, &DeleteParams::default()).await.unwrap();
    }

    /// Runs a test while a user of the cluster keeps the outlook current.
    async fn follow<T>(&self, user: User, test: impl Future<Output = T>) -> T {
        let cluster = Cluster::from_client(self.sandbox.client(user, CLIENT), ClusterOptions::default());
        tokio::select! {
            never = self.outlook.follow(&cluster) => match never {},
            result = test => result,
        }
    }

    /// Waits until a prospect is as expected; what is said until then must be incomplete, or be `before`.
    async fn until(
        &self,
        target: &ObjectKey,
        before: Option<&Prospect>,
        expected: impl Fn(&Prospect) -> bool,
    ) -> Prospect {
        let start = Instant::now();
        loop {
            let prospect = self.outlook.prospect(target);
            if expected(&prospect) {
                return prospect;
            }
            let is_allowed = prospect.incomplete || !prospect.unread.is_empty() || Some(&prospect) == before;
            assert!(is_allowed, "{prospect:?}");
            assert!(start.elapsed() < Duration::from_secs(120), "{prospect:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

fn namespace(name: &str) -> ObjectKey {
    ObjectKey::new(wellknown::namespace(), None, name)
}

fn crd() -> ObjectKey {
    ObjectKey::new(wellknown::crd(), None, "databases.shop.example")
}

fn deployment(name: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new("apps", "Deployment"), Some("shop"), name)
}

fn is_complete(prospect: &Prospect) -> bool {
    !prospect.incomplete && prospect.unread.is_empty()
}

/// Returns how many Databases hang because their controller is deleted.
fn hanging(prospect: &Prospect) -> usize {
    let hanging = |one: &Expected| match &one.what {
        Foreseen::ControllerFirst { finalizer, controller, .. } => {
            assert_eq!(
                (finalizer.as_str(), controller.as_str()),
                ("shop.example/last-backup", "Deployment shop/operator")
            );
            one.count
        }
        _ => 0,
    };
    prospect.foreseen.iter().map(hanging).sum()
}

fn database(namespace: &str, name: &str) -> String {
    format!(
        "{{apiVersion: shop.example/v1, kind: Database, metadata: {{name: {name}, namespace: {namespace}, \
         finalizers: [shop.example/last-backup]}}}}\n---\n"
    )
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_with_each_object_is_foreseen_without_a_request() {
    let watched = Watched::new(Options::default()).await;
    for target in [namespace("shop"), crd(), deployment("operator")] {
        let nothing = watched.outlook.prospect(&target);
        assert_eq!(nothing, Prospect { incomplete: true, ..Prospect::default() }, "{target} before anything was read");
    }
    watched
        .follow(User::admin(), async {
            let shop = watched.until(&namespace("shop"), None, is_complete).await;
            let sent = watched.sandbox.faults().count(CLIENT);
            assert_eq!(hanging(&shop), 2);
            // Without the Secret, which is not watched, and what Kubernetes creates in every namespace.
            assert_eq!(
                shop.contents.to_string(),
                "1 ConfigMap, 1 ServiceAccount, 2 Deployment.apps, 2 Database.shop.example"
            );
            let of_crd = watched.outlook.prospect(&crd());
            assert_eq!(
                (of_crd.contents.to_string(), is_complete(&of_crd)),
                ("2 Database.shop.example".to_owned(), true)
            );
            let operator = watched.outlook.prospect(&deployment("operator"));
            assert_eq!((hanging(&operator), operator.contents.total(), is_complete(&operator)), (2, 0, true));
            assert_eq!(watched.outlook.prospect(&deployment("web")), Prospect::default());
            assert_eq!(watched.sandbox.faults().count(CLIENT), sent);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn objects_in_many_namespaces_have_one_controller() {
    let watched = Watched::new(Options::default()).await;
    for name in ["a", "b", "c", "d", "e"] {
        watched.create(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")).await;
        watched.create(&database(name, "x")).await;
    }
    watched
        .follow(User::admin(), async {
            watched.until(&namespace("e"), None, is_complete).await;
            for name in ["a", "b", "c", "d", "e", "shop"] {
                let prospect = watched.outlook.prospect(&namespace(name));
                assert!(is_complete(&prospect), "{name}: {prospect:?}");
                assert_eq!(hanging(&prospect), if name == "shop" { 2 } else { 0 }, "{name}");
            }
            assert_eq!(hanging(&watched.outlook.prospect(&deployment("operator"))), 7);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn changes_are_seen_although_watches_expire_and_break() {
    let watched = Watched::new(Options::default()).await;
    let faults = watched.sandbox.faults();
    watched
        .follow(User::admin(), async {
            let shop = namespace("shop");
            let mut before = watched.until(&shop, None, is_complete).await;
            for (round, name) in ["c", "d", "e"].into_iter().enumerate() {
                match round {
                    0 => faults.cut_watches(&Requests::of(CLIENT)),
                    1 => faults.inject(Fault::expired().on(Requests::of(CLIENT)).first(4)),
                    _ => {
                        faults.cut_watches(&Requests::of(CLIENT));
                        watched.sandbox.compact();
                    }
                }
                watched.create(&database("shop", name)).await;
                let count = round + 3;
                let new = |prospect: &Prospect| is_complete(prospect) && hanging(prospect) == count;
                before = watched.until(&shop, Some(&before), new).await;
            }
            // An object that is gone while nothing is watched is not counted any more.
            watched.delete(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop"}})).await;
            let new = |prospect: &Prospect| is_complete(prospect) && !prospect.contents.to_string().contains("ConfigMap");
            watched.until(&shop, Some(&before), new).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_called_complete_while_the_api_server_does_not_answer() {
    let watched = Watched::new(Options::default()).await;
    watched
        .follow(User::admin(), async {
            let before = watched.until(&namespace("shop"), None, is_complete).await;
            let away = Instant::now();
            watched.sandbox.take_away(Duration::from_secs(300));
            sleep(Duration::from_secs(60)).await;
            while away.elapsed() < Duration::from_secs(300) {
                for target in [namespace("shop"), crd()] {
                    let prospect = watched.outlook.prospect(&target);
                    assert!(prospect.incomplete, "{:?}: {prospect:?}", away.elapsed());
                }
                sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(watched.until(&namespace("shop"), None, is_complete).await, before);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn kinds_come_and_go() {
    let watched = Watched::new(Options::default()).await;
    watched
        .follow(User::admin(), async {
            watched.until(&namespace("shop"), None, is_complete).await;
            let crd = GIVEN.split("---").next().unwrap().replace("atabase", "ackup");
            let crd = crd.replace("Dackup", "Backup").replace("dackup", "backup");
            watched.create(&crd).await;
            let backup = database("shop", "a").replace("Database", "Backup").replace("last-backup", "other");
            watched.create(&backup).await;
            let lists_it = |prospect: &Prospect| prospect.contents.to_string().contains("1 Backup.shop.example");
            let start = Instant::now();
            // What is not served for long is not known for as long.
            while !lists_it(&watched.outlook.prospect(&namespace("shop"))) {
                sleep(Duration::from_millis(100)).await;
                assert!(start.elapsed() < Duration::from_secs(5));
            }
            watched.delete(json!({"apiVersion": "shop.example/v1", "kind": "Database", "metadata": {"name": "b", "namespace": "shop"}})).await;
        })
        .await;
}

const BUILT_IN: &str = "'', apps, apiextensions.k8s.io, rbac.authorization.k8s.io, admissionregistration.k8s.io, \
                        apiregistration.k8s.io, coordination.k8s.io, batch, autoscaling, networking.k8s.io, policy, storage.k8s.io, \
                        resource.k8s.io, certificates.k8s.io, events.k8s.io, discovery.k8s.io";

/// Returns a role of the user `warner` for these API groups.
fn role(name: &str, groups: &str) -> String {
    let group = "rbac.authorization.k8s.io";
    format!(
        "{{apiVersion: {group}/v1, kind: ClusterRole, metadata: {{name: {name}}}, \
         rules: [{{apiGroups: [{groups}], resources: ['*'], verbs: [get, list, watch]}}]}}\n---\n\
         {{apiVersion: {group}/v1, kind: ClusterRoleBinding, metadata: {{name: {name}}}, \
         roleRef: {{apiGroup: {group}, kind: ClusterRole, name: {name}}}, subjects: [{{kind: User, apiGroup: {group}, name: warner}}]}}"
    )
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_read_is_named_and_read_once_it_may() {
    let watched = Watched::new(Options::default().rbac(true)).await;
    watched.create(&role("warner", BUILT_IN)).await;
    let user = User::new("warner", ["system:authenticated"]);
    watched
        .follow(user, async {
            let databases = [GroupKind::new("shop.example", "Database")];
            let is_read =
                |prospect: &Prospect| prospect.contents.to_string().contains("ConfigMap") && !prospect.incomplete;
            let shop = watched.until(&namespace("shop"), None, is_read).await;
            assert_eq!((shop.unread.as_slice(), hanging(&shop)), (&databases[..], 0));
            assert_eq!(shop.contents.to_string(), "1 ConfigMap, 1 ServiceAccount, 2 Deployment.apps");
            let sent = watched.sandbox.faults().count(CLIENT);
            sleep(Duration::from_secs(600)).await;
            let sent = watched.sandbox.faults().count(CLIENT) - sent;
            assert!(sent < 20 * 40, "{sent} requests in 10 minutes");
            watched.create(&role("databases", "shop.example")).await;
            let shop = watched.until(&namespace("shop"), None, is_complete).await;
            assert_eq!(hanging(&shop), 2);
        })
        .await;
}

/// Returns how long this thread has computed, whatever else the machine does.
fn computed() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// API servers wait for one second, also for builds that are not optimized.
#[tokio::test(start_paused = true)]
async fn ten_thousand_namespaces_are_answered_in_time() {
    const COUNT: usize = 10_000;
    let mut took_all = Vec::new();
    let watched = Watched::new(Options::default()).await;
    watched.create("
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: guard}
webhooks:
- name: guard.shop.example
  clientConfig: {service: {name: guard, namespace: shop}}
  rules: [{apiGroups: [shop.example], apiVersions: ['*'], resources: ['*'], operations: [DELETE], scope: '*'}]
  namespaceSelector: {matchLabels: {guarded: 'true'}}
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 1
  admissionReviewVersions: [v1]
---
{apiVersion: v1, kind: Service, metadata: {name: guard, namespace: shop}, spec: {selector: {app: operator}, ports: [{port: 443}]}}
").await;
    for n in 0..COUNT {
        watched
            .create(&format!(
                "{{apiVersion: v1, kind: Namespace, metadata: {{name: n{n}, labels: {{guarded: 'true'}}}}}}\n---\n{}",
                database(&format!("n{n}"), "x")
            ))
            .await;
    }
    watched
        .follow(User::admin(), async {
            let begun = Instant::now();
            while !is_complete(&watched.outlook.prospect(&namespace("n7"))) {
                assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", watched.outlook.prospect(&namespace("n7")));
                sleep(Duration::from_millis(10)).await;
            }
            for target in [namespace("n7"), namespace("shop"), crd(), deployment("operator"), deployment("web")] {
                let start = computed();
                let prospect = watched.outlook.prospect(&target);
                let took = computed() - start;
                assert!(took < Duration::from_millis(500), "{target}: {took:?}");
                assert!(is_complete(&prospect) || target == deployment("web"), "{target}: {prospect:?}");
                let count = match target.name.as_str() {
                    "databases.shop.example" => {
                        assert_eq!(prospect.contents.total(), COUNT + 2);
                        0
                    }
                    "operator" => COUNT + 2,
                    "shop" => 2,
                    _ => 0,
                };
                assert_eq!(hanging(&prospect), count, "{target}");
                took_all.push(format!("{target} {took:?}"));
            }
        })
        .await;
    // Shown if the test fails, or with --nocapture.
    drop(std::io::Write::write_all(&mut std::io::stdout(), format!("{}\n", took_all.join(", ")).as_bytes()));
}
