//! `/warn-on-delete`, with the registration and the rights of `deploy/`: what real kubectl prints, and that nothing waits for it.

use std::{collections::BTreeMap, io::Write as _, net::TcpListener, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use billhook_testkit::control_plane::{ControlPlane, Options};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    eventually, kubectl,
    webhook::{Webhook, deploy, run},
};

const NAME: &str = "billhook-warn-on-delete";
/// `timeoutSeconds` of the registration.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How much longer than that a deletion may take on a busy machine.
const MARGIN: Duration = Duration::from_millis(700);

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: databases.warned.example}
spec:
  group: warned.example
  scope: Namespaced
  names: {kind: Database, plural: databases}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// The operator; its Lease shows that it works, as no Pod runs here.
const OPERATOR: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: database-operator, namespace: warned}
spec:
  selector: {matchLabels: {app: operator}}
  template:
    metadata: {labels: {app: operator}}
    spec: {serviceAccountName: operator, containers: [{name: operator, image: operator}]}
";

const GIVEN: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: warned}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: billhook-webhook}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: billhook-webhook, namespace: billhook-webhook}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: operator, namespace: warned}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: warned-operator}
rules: [{apiGroups: [warned.example], resources: ['*'], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: warned-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: warned-operator}
subjects: [{kind: ServiceAccount, name: operator, namespace: warned}]
---
{apiVersion: warned.example/v1, kind: Database, metadata: {name: a, namespace: warned, finalizers: [warned.example/last-backup]}}
---
{apiVersion: warned.example/v1, kind: Database, metadata: {name: b, namespace: warned, finalizers: [warned.example/last-backup]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: warned}}
---
{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: warned}}
";

/// What owners of clusters add for custom resources.
const MORE_RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: warned-read}
rules: [{apiGroups: [warned.example], resources: ['*'], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: warned-read}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: warned-read}
subjects: [{kind: ServiceAccount, name: billhook-webhook, namespace: billhook-webhook}]
";

const NAMESPACE: [&str; 2] = ["namespace", "warned"];
const KIND: [&str; 2] = ["crd", "databases.warned.example"];
const DEPLOYMENT: [&str; 4] = ["deployment", "database-operator", "-n", "warned"];

#[test]
fn kubectl_prints_what_will_hang_and_never_waits_for_it() -> Result<()> {
    // Its own, because the warnings name every kind of the cluster that the webhook may not read.
    let control_plane = &ControlPlane::start(&Options::default())?;
    run(control_plane, &["create", "-f", "-"], CRD)?;
    run(control_plane, &["wait", "--for=condition=Established", "crd", KIND[1], "--timeout=60s"], "")?;
    run(control_plane, &["create", "-f", "-"], GIVEN)?;
    run(control_plane, &["create", "-f", "-"], OPERATOR)?;
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z");
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "operator",
        "namespace": "warned"}, "spec": {"holderIdentity": "database-operator-0", "leaseDurationSeconds": 3600,
        "renewTime": now.to_string()}});
    run(control_plane, &["create", "-f", "-"], &lease.to_string())?;
    let rights = deploy("kustomize/components/webhook-warn-on-delete/rbac.yaml");
    run(control_plane, &["apply", "-f", &rights], "")?;

    let webhook = Webhook::start_with("--warn-on-delete", Some(&kubeconfig(control_plane)?))?;
    register(control_plane, &webhook.url, &webhook.certificate)?;
    let unread = ["billhook could not read Database.warned.example, so more may hang"];
    let contents = "Namespace/warned contains at least 3 objects, which are deleted with it: 1 ConfigMap, 1 ServiceAccount, 1 Deployment.apps";
    until(control_plane, &NAMESPACE, &[&[contents], &unread[..]].concat())?;

    run(control_plane, &["create", "-f", "-"], MORE_RIGHTS)?;
    let have = "2 Database.warned.example in warned have the finalizer warned.example/last-backup; its controller, \
                Deployment warned/database-operator, is deleted with Namespace/warned";
    let contents = "Namespace/warned contains at least 5 objects, which are deleted with it: 1 ConfigMap, 1 ServiceAccount, \
                    1 Deployment.apps, 2 Database.warned.example";
    let advice = "delete these objects first, or run \"billhook plan delete\" on a release to see a safe order";
    let of_namespace = [have, contents, advice];
    let of_kind = [
        "CustomResourceDefinition.apiextensions.k8s.io/databases.warned.example contains at least 2 objects, which are \
                    deleted with it, and no webhook is asked: 2 Database.warned.example",
    ];
    let have = "2 Database.warned.example have the finalizer warned.example/last-backup; its controller, Deployment \
                warned/database-operator, is deleted";
    let of_deployment = [have, advice];
    until(control_plane, &NAMESPACE, &of_namespace)?;
    until(control_plane, &KIND, &of_kind)?;
    until(control_plane, &DEPLOYMENT, &of_deployment)?;

    // Nothing waits for a webhook that is stopped, or for one that never answers.
    drop(webhook);
    stopped(control_plane)?;

    let webhook = Webhook::start_with("--warn-on-delete", Some(&kubeconfig(control_plane)?))?;
    register(control_plane, &webhook.url, &webhook.certificate)?;
    until(control_plane, &DEPLOYMENT, &of_deployment)?;
    assert_eq!(warnings(control_plane, &DEPLOYMENT, "--wait=false")?, of_deployment, "of the deletion itself");
    run(control_plane, &["create", "-f", "-"], OPERATOR)?;
    until(control_plane, &NAMESPACE, &of_namespace)?;
    assert_eq!(warnings(control_plane, &KIND, "--wait=false")?, of_kind, "of the deletion itself");
    until(control_plane, &NAMESPACE, &of_namespace)?;
    assert_eq!(warnings(control_plane, &NAMESPACE, "--wait=false")?, of_namespace, "of the deletion itself");
    Ok(())
}

/// Checks that deletions are not delayed by more than the timeout while the webhook is stopped or hangs.
fn stopped(control_plane: &ControlPlane) -> Result<()> {
    run(control_plane, &["delete", "validatingwebhookconfiguration", NAME], "")?;
    let mut before = BTreeMap::new();
    for object in [&NAMESPACE[..], &KIND, &DEPLOYMENT] {
        before.insert(object[0], fastest(control_plane, object)?);
    }
    // Nothing listens at the first address; the second takes connections and never answers.
    let closed = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?.cert.pem();
    for (is_silent, address) in [(false, closed), (true, silent.local_addr()?)] {
        register(control_plane, &format!("https://{address}"), &certificate)?;
        if is_silent {
            // From now on it is asked.
            eventually("the deletion waits for the webhook", || Ok(took(control_plane, &NAMESPACE)? >= TIMEOUT))?;
        }
        for object in [&NAMESPACE[..], &KIND, &DEPLOYMENT] {
            let (took, before) = (fastest(control_plane, object)?, before[object[0]]);
            ensure!(took <= before + TIMEOUT + MARGIN, "{object:?}: {took:?}, {before:?} without the webhook");
            ensure!(!is_silent || took >= TIMEOUT, "{object:?} did not ask the webhook: {took:?}");
            writeln!(std::io::stderr(), "{object:?} silent={is_silent}: {took:?}, {before:?} without the webhook")?;
        }
    }
    Ok(())
}

/// Returns how long the fastest of some deletions takes, as other work may delay single ones.
fn fastest(control_plane: &ControlPlane, object: &[&str]) -> Result<Duration> {
    let all: Vec<_> = (0..3).map(|_| took(control_plane, object)).collect::<Result<_>>()?;
    all.into_iter().min().context("nothing was measured")
}

fn took(control_plane: &ControlPlane, object: &[&str]) -> Result<Duration> {
    let start = Instant::now();
    let printed = warnings(control_plane, object, "--dry-run=server")?;
    ensure!(printed.is_empty(), "{printed:?}");
    Ok(start.elapsed())
}

/// Deletes an object with kubectl, and returns the warnings that it prints.
fn warnings(control_plane: &ControlPlane, object: &[&str], how: &str) -> Result<Vec<String>> {
    let (deleted, said) = kubectl(control_plane, &[&["delete"][..], object, &[how]].concat())?;
    ensure!(deleted, "{said}");
    Ok(said.lines().filter_map(|line| line.strip_prefix("Warning: ")).map(str::to_owned).collect())
}

/// Waits until exactly these warnings are printed; until then, none may say something else than that something is not known.
fn until(control_plane: &ControlPlane, object: &[&str], expected: &[&str]) -> Result<()> {
    let mut last = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(90) {
        last = warnings(control_plane, object, "--dry-run=server")?;
        if last == expected {
            return Ok(());
        }
        ensure!(last.len() <= 5 && last.iter().all(|warning| warning.chars().count() <= 256), "{last:?}");
        // A user gets 30 answers in a minute.
        std::thread::sleep(Duration::from_millis(2500));
    }
    bail!("{object:?}: expected {expected:#?}, got {last:#?}")
}

/// Returns the kubeconfig of the webhook's ServiceAccount.
fn kubeconfig(control_plane: &ControlPlane) -> Result<String> {
    let token = run(control_plane, &["create", "token", "billhook-webhook", "-n", "billhook-webhook"], "")?;
    let mut config = billhook_objects::yaml::parse(control_plane.kubeconfig())?.remove(0).value;
    let users = config["users"].as_array_mut().context("no users")?;
    for user in users {
        user["user"] = json!({"token": token.trim()});
    }
    Ok(config.to_string())
}

/// Registers the webhook as `deploy/` does, at another address.
fn register(control_plane: &ControlPlane, url: &str, certificate: &str) -> Result<()> {
    let file = deploy("kustomize/components/webhook-warn-on-delete/registration.yaml");
    let mut registration: Value = billhook_objects::yaml::parse(&std::fs::read_to_string(file)?)?.remove(0).value;
    let webhook = &mut registration["webhooks"][0];
    ensure!(webhook["failurePolicy"] == "Ignore" && webhook["timeoutSeconds"] == 1, "{webhook}");
    let path = webhook["clientConfig"]["service"]["path"].as_str().context("no path")?.to_owned();
    let bundle = serde_json::to_value(k8s_openapi::ByteString(certificate.as_bytes().to_vec()))?;
    webhook["clientConfig"] = json!({"url": format!("{url}{path}"), "caBundle": bundle});
    run(control_plane, &["apply", "-f", "-"], &registration.to_string())?;
    Ok(())
}
