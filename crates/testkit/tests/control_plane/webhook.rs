//! `billhook webhook`, registered with the manifests of `deploy/`: only its address is replaced.

use std::{
    io::{self, Write},
    path::Path,
    process::Stdio,
    sync::{Arc, mpsc as channel},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use billhook::{Cluster, World};
use billhook_testkit::control_plane::{Binaries, ControlPlane};
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{ValidatingWebhookConfiguration, WebhookClientConfig},
};
use kube::{
    Api, Client, Error,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{GroupVersionKind, Status},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::{User, eventually, kubectl, shared};

const FORCE_DELETION: &str = "confirmation.gardener.cloud/force-deletion";
const DELETION: &str = "confirmation.gardener.cloud/deletion";
const FIELD: &str = "metadata.annotations[confirmation.gardener.cloud/force-deletion]";
const NOT_DELETING: &str = "force-deletion annotation cannot be set when Shoot deletionTimestamp is nil";
const REMOVED: &str = "force-deletion annotation cannot be removed once set";
const NO_CODE: &str = "force-deletion annotation cannot be set when Shoot status does not contain one of these error codes: \
                       [ERR_CLEANUP_CLUSTER_RESOURCES ERR_CONFIGURATION_PROBLEM ERR_INFRA_DEPENDENCIES \
                       ERR_INFRA_UNAUTHENTICATED ERR_INFRA_UNAUTHORIZED]";

/// The kinds that the webhook guards, and a namespace for their objects.
const GIVEN: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shoots.core.gardener.cloud}
spec:
  group: core.gardener.cloud
  scope: Namespaced
  names: {kind: Shoot, plural: shoots}
  versions:
  - name: v1beta1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: dnsrecords.extensions.gardener.cloud}
spec:
  group: extensions.gardener.cloud
  scope: Namespaced
  names: {kind: DNSRecord, plural: dnsrecords}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: webhook}}
";

/// Returns a path in `deploy/`.
pub fn deploy(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path).display().to_string()
}

/// Runs kubectl, which must succeed, with this input.
pub fn run(control_plane: &ControlPlane, args: &[&str], input: &str) -> Result<String> {
    let mut command = control_plane.kubectl();
    let mut child = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("failed to run kubectl")?;
    child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    ensure!(output.status.success(), "kubectl {args:?}: {said}");
    Ok(said)
}

/// The command, running in this process until it is dropped.
pub struct Webhook {
    pub url: String,
    pub certificate: String,
    interrupt: mpsc::Sender<()>,
    thread: Option<JoinHandle<u8>>,
    _folder: TempDir,
}

impl Webhook {
    fn start() -> Result<Self> {
        Self::start_with("", None)
    }

    /// Starts the command with further flags, and with a kubeconfig.
    pub fn start_with(flags: &str, kubeconfig: Option<&str>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let generated = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let certificate = generated.cert.pem();
        std::fs::write(folder.path().join("tls.crt"), &certificate)?;
        std::fs::write(folder.path().join("tls.key"), generated.signing_key.serialize_pem())?;
        let (interrupt, interrupts) = mpsc::channel(1);
        let (output, printed) = channel::channel();
        let args = "billhook -o json webhook --listen 127.0.0.1:0 --tls-cert tls.crt --tls-key tls.key";
        if let Some(kubeconfig) = kubeconfig {
            std::fs::write(folder.path().join("kubeconfig"), kubeconfig)?;
        }
        let path = folder.path().join("kubeconfig").display().to_string();
        let world = World {
            args: args.split(' ').chain(flags.split_whitespace()).map(Into::into).collect(),
            env: kubeconfig.map(|_| ("KUBECONFIG".to_owned(), path)).into_iter().collect(),
            directory: folder.path().to_owned(),
            stdin: Box::new(io::empty()),
            stdin_terminal: false,
            stdout: Box::new(Output(output)),
            stdout_terminal: false,
            stderr: Box::new(io::stderr()),
            stderr_terminal: false,
            interrupts,
            connect: Arc::new(Cluster::connect),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || runtime.block_on(billhook::run(world)));
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            line.extend(printed.recv_timeout(Duration::from_secs(60)).context("the webhook printed no line")?);
        }
        let started: Value = serde_json::from_slice(&line)?;
        let url = started["url"].as_str().context("no URL")?.to_owned();
        Ok(Self { url, certificate, interrupt, thread: Some(thread), _folder: folder })
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        let _ended = self.interrupt.try_send(());
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

struct Output(channel::Sender<Vec<u8>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nobody reads what follows the first line.
        let _unread = self.0.send(bytes.to_vec());
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A cluster with the webhook.
struct Guarded {
    registrations: Api<ValidatingWebhookConfiguration>,
    shoots: Objects,
    records: Objects,
}

/// The objects of a kind.
struct Objects {
    api: Api<DynamicObject>,
    resource: ApiResource,
}

impl Objects {
    fn new(client: &Client, group: &str, version: &str, kind: &str) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Self { api: Api::namespaced_with(client.clone(), "webhook", &resource), resource }
    }

    /// Returns an object to be created.
    fn object(&self, name: &str, annotation: Option<(&str, &str)>) -> DynamicObject {
        let mut object = DynamicObject::new(name, &self.resource).data(json!({}));
        object.metadata.annotations = annotation.map(|(key, value)| [(key.to_owned(), value.to_owned())].into());
        object
    }

    /// Sets or removes an annotation.
    async fn annotate(&self, name: &str, key: &str, value: Option<&str>, dry_run: bool) -> kube::Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        self.api.patch(name, &PatchParams { dry_run, ..PatchParams::default() }, &patch).await.map(drop)
    }

    async fn names(&self) -> Result<Vec<String>> {
        let list = self.api.list(&ListParams::default()).await?;
        Ok(list.items.into_iter().filter_map(|object| object.metadata.name).collect())
    }
}

/// A Shoot before an update.
#[derive(Clone, Copy)]
struct Before {
    annotation: Option<&'static str>,
    is_deleting: bool,
    codes: &'static [&'static str],
}

/// Returns every combination of what the rules read of a Shoot before an update.
fn shoots() -> Vec<(String, Before)> {
    let mut all = Vec::new();
    for annotation in [None, Some("1"), Some("no")] {
        for is_deleting in [false, true] {
            for codes in
                [&[][..], &["ERR_PROBLEMATIC_WEBHOOK"], &["ERR_PROBLEMATIC_WEBHOOK", "ERR_CONFIGURATION_PROBLEM"]]
            {
                all.push((format!("shoot-{}", all.len()), Before { annotation, is_deleting, codes }));
            }
        }
    }
    all
}

impl Guarded {
    async fn new(control_plane: &ControlPlane) -> Result<Self> {
        let client = Client::try_from(control_plane.client_config(User::Admin).await?)?;
        Ok(Self {
            registrations: Api::all(client.clone()),
            shoots: Objects::new(&client, "core.gardener.cloud", "v1beta1", "Shoot"),
            records: Objects::new(&client, "extensions.gardener.cloud", "v1alpha1", "DNSRecord"),
        })
    }

    async fn create_shoot(&self, name: &str, before: Before) -> Result<()> {
        let mut shoot = self.shoots.object(name, before.annotation.map(|value| (FORCE_DELETION, value)));
        shoot.metadata.finalizers = Some(vec!["gardener".to_owned()]);
        self.shoots.api.create(&PostParams::default(), &shoot).await?;
        let status =
            json!({"status": {"lastErrors": [{"description": "a"}, {"description": "b", "codes": before.codes}]}});
        self.shoots.api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        if before.is_deleting {
            self.shoots.api.delete(name, &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// Lets the registrations of `deploy/` call this webhook. When the second takes effect, the first has, too.
    async fn redirect(&self, webhook: &Webhook) -> Result<()> {
        for name in ["billhook-deletion-confirmation", "billhook-force-deletion"] {
            let mut registration = self.registrations.get(name).await?;
            for entry in registration.webhooks.iter_mut().flatten() {
                ensure!(
                    entry.timeout_seconds == Some(5) && entry.failure_policy.as_deref() == Some("Fail"),
                    "{entry:?}"
                );
                let service = entry.client_config.service.take().context("no service")?;
                let url = format!("{}{}", webhook.url, service.path.context("no path")?);
                let ca_bundle = Some(ByteString(webhook.certificate.clone().into_bytes()));
                entry.client_config = WebhookClientConfig { ca_bundle, url: Some(url), service: None };
            }
            self.registrations.replace(name, &PostParams::default(), &registration).await?;
        }
        Ok(())
    }

    /// Waits until an update that the webhook forbids fails with this text.
    async fn until_rejected(&self, shoot: &str, text: &str) -> Result<()> {
        let mut last = String::new();
        for _ in 0..600 {
            let result = self.shoots.annotate(shoot, FORCE_DELETION, Some("1"), true).await;
            last = format!("{result:?}");
            if last.contains(text) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("not rejected within a minute: {last}")
    }

    /// Updates the annotation of every Shoot in every way.
    async fn force_deletion(&self) -> Result<()> {
        let mut rejected = 0;
        for (name, before) in shoots() {
            for new in [None, Some("T"), Some("FALSE")] {
                let (was, is) = (before.annotation == Some("1"), new == Some("T"));
                let is_set = is && !was;
                let conditions = [
                    (REMOVED, was && !is),
                    (NOT_DELETING, is_set && !before.is_deleting),
                    (NO_CODE, is_set && !before.codes.contains(&"ERR_CONFIGURATION_PROBLEM")),
                ];
                let expected: Vec<_> =
                    conditions.into_iter().filter(|(_, holds)| *holds).map(|(text, _)| text).collect();
                let result = self.shoots.annotate(&name, FORCE_DELETION, new, true).await;
                is_invalid(result, &name, &expected).with_context(|| format!("{:?} -> {new:?}", before.annotation))?;
                rejected += usize::from(!expected.is_empty());
            }
        }
        // Of 18 Shoots, 6 lose the annotation in two ways, and 10 of 12 may not get it.
        ensure!(rejected == 12 + 10, "{rejected} were rejected");

        // A new Shoot has no status, whatever the request contains.
        let mut new = self.shoots.object("new", Some((FORCE_DELETION, "true")));
        new.data = json!({"status": {"lastErrors": [{"codes": ["ERR_CONFIGURATION_PROBLEM"]}]}});
        let created = self.shoots.api.create(&PostParams::default(), &new).await.map(drop);
        is_invalid(created, "new", &[NOT_DELETING, NO_CODE])
    }

    async fn deletion_confirmation(&self) -> Result<()> {
        let denied = |name: &str| {
            format!(
                "admission webhook \"deletion-confirmation.billhook.dev\" denied the request: \
                 dnsrecords.extensions.gardener.cloud \"{name}\" is forbidden: must have a \
                 \"confirmation.gardener.cloud/deletion\" annotation to delete"
            )
        };
        for (name, confirmed) in [("a", None), ("b", Some("true")), ("c", Some("false")), ("d", Some("1"))] {
            let record = self.records.object(name, confirmed.map(|value| (DELETION, value)));
            self.records.api.create(&PostParams::default(), &record).await?;
        }
        for name in ["a", "c"] {
            let status = rejection(self.records.api.delete(name, &DeleteParams::default()).await.map(drop))?;
            ensure!((status.code, &*status.message) == (403, &*denied(name)), "{status:?}");
        }
        self.records.api.delete("b", &DeleteParams::default()).await?;

        // Each object of a collection is checked. Those that are confirmed may be deleted before the first that is not.
        let everything = ListParams::default();
        let deleted = self.records.api.delete_collection(&DeleteParams::default(), &everything).await.map(drop);
        let status = rejection(deleted)?;
        ensure!(status.code == 403 && [denied("a"), denied("c")].contains(&status.message), "{status:?}");
        let left = self.records.names().await?;
        ensure!(left.iter().filter(|name| *name != "d").eq(["a", "c"]), "{left:?}");
        for name in ["a", "c"] {
            self.records.annotate(name, DELETION, Some("true"), false).await?;
        }
        self.records.api.delete_collection(&DeleteParams::default(), &everything).await?;
        let left = self.records.names().await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    }
}

fn rejection(result: kube::Result<()>) -> Result<Box<Status>> {
    match result {
        Err(Error::Api(status)) => Ok(status),
        Err(error) => Err(error.into()),
        Ok(()) => bail!("the request succeeded"),
    }
}

/// Checks that a request was rejected for these reasons, or that it succeeded if there are none.
fn is_invalid(result: kube::Result<()>, name: &str, reasons: &[&str]) -> Result<()> {
    if reasons.is_empty() {
        return result.with_context(|| name.to_owned());
    }
    let status = rejection(result).with_context(|| format!("{name}: expected {reasons:?}"))?;
    let texts: Vec<String> = reasons.iter().map(|reason| format!("{FIELD}: Forbidden: {reason}")).collect();
    let listed = if texts.len() == 1 { texts[0].clone() } else { format!("[{}]", texts.join(", ")) };
    let message = format!(
        "admission webhook \"force-deletion.billhook.dev\" denied the request: Shoot.core.gardener.cloud \"{name}\" is invalid: {listed}"
    );
    ensure!((status.code, &*status.reason, &*status.message) == (422, "Invalid", &*message), "{status:?}");
    let causes = status.details.as_ref().map(|details| &details.causes);
    let found: Vec<_> = causes.into_iter().flatten().map(|cause| (&*cause.field, &*cause.message)).collect();
    let expected: Vec<_> = reasons.iter().map(|reason| format!("Forbidden: {reason}")).collect();
    ensure!(found == expected.iter().map(|message| (FIELD, &**message)).collect::<Vec<_>>(), "{status:?}");
    Ok(())
}

#[test]
fn a_registered_webhook_decides_about_requests() -> Result<()> {
    let control_plane = shared()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let played = play(&control_plane, &runtime);
    let cleaned = clean(&control_plane);
    played.and(cleaned)
}

fn play(control_plane: &ControlPlane, runtime: &tokio::runtime::Runtime) -> Result<()> {
    run(control_plane, &["create", "-f", "-"], GIVEN)?;
    for crd in ["shoots.core.gardener.cloud", "dnsrecords.extensions.gardener.cloud"] {
        run(control_plane, &["wait", "--for=condition=Established", "crd", crd, "--timeout=60s"], "")?;
    }
    let guarded = runtime.block_on(Guarded::new(control_plane))?;
    runtime.block_on(async {
        for (name, before) in shoots() {
            guarded.create_shoot(&name, before).await.with_context(|| format!("failed to create {name}"))?;
        }
        anyhow::Ok(())
    })?;
    run(control_plane, &["apply", "-k", &deploy("kustomize/webhook")], "")?;
    let confirmation = deploy("kustomize/components/webhook-deletion-confirmation/registration.yaml");
    run(control_plane, &["apply", "-f", &confirmation], "")?;

    let webhook = Webhook::start()?;
    runtime.block_on(async {
        // The Service has no endpoints yet: what the webhook need not see succeeds, everything else is rejected.
        guarded.until_rejected("shoot-0", "failed calling webhook").await?;
        guarded
            .shoots
            .annotate("shoot-0", "other", Some("1"), true)
            .await
            .context("an update without the annotation")?;
        guarded.redirect(&webhook).await?;
        guarded.until_rejected("shoot-0", "denied the request").await?;
        guarded.force_deletion().await?;
        guarded.deletion_confirmation().await
    })
}

/// Deletes everything, also after a failure.
fn clean(control_plane: &ControlPlane) -> Result<()> {
    let registrations = ["billhook-force-deletion", "billhook-deletion-confirmation"];
    let kind = "validatingwebhookconfigurations";
    run(control_plane, &[&["delete", kind, "--ignore-not-found"][..], &registrations].concat(), "")?;
    for (name, _) in shoots() {
        let patch =
            ["patch", "shoot", &name, "-n", "webhook", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#];
        // It may not exist, and the API server may still call the webhook.
        eventually("the Shoot has no finalizers", || {
            let (patched, said) = kubectl(control_plane, &patch)?;
            Ok(patched || said.contains("not found") || said.contains("the server doesn't have a resource type"))
        })?;
    }
    run(control_plane, &["delete", "-f", "-", "--ignore-not-found", "--timeout=60s"], GIVEN)?;
    run(control_plane, &["delete", "-k", &deploy("kustomize/webhook"), "--ignore-not-found", "--timeout=60s"], "")?;
    Ok(())
}

#[test]
fn the_other_manifests_of_the_webhook_are_accepted() -> Result<()> {
    let control_plane = shared()?;
    let example = run(&control_plane, &["kustomize", &deploy("kustomize/webhook-example")], "")?;
    assert_eq!(
        example.matches("cert-manager.io/inject-ca-from: billhook-webhook/billhook-webhook").count(),
        2,
        "{example}"
    );

    let helm = Binaries::helm(|line| drop(writeln!(io::stderr(), "testbed: {line}")))?;
    let template = |args: &[&str]| {
        let mut command = std::process::Command::new(&helm);
        command.args(["template", "billhook", &deploy("chart"), "--namespace=default", "--set=webhook.create=true"]);
        let output = command.args(args).stdin(Stdio::null()).output().context("failed to run helm")?;
        let said = if output.status.success() { output.stdout } else { output.stderr };
        anyhow::Ok((output.status.success(), String::from_utf8(said)?))
    };
    let (rendered, said) = template(&[])?;
    assert!(!rendered && said.contains("set webhook.caBundle, or webhook.certManager to true"), "{said}");

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("values.yaml");
    let pem = rcgen::generate_simple_self_signed(["localhost".to_owned()])?.cert.pem();
    let rules = json!([{"apiGroups": ["extensions.gardener.cloud"], "apiVersions": ["*"], "resources": ["*"]}]);
    let bundle = serde_json::to_value(ByteString(pem.into_bytes()))?;
    let values = json!({"webhook": {"caBundle": bundle, "deletionConfirmation": {"rules": rules}}});
    std::fs::write(&file, values.to_string())?;
    let (rendered, manifests) = template(&["--values", &file.display().to_string()])?;
    assert!(rendered, "{manifests}");
    let applied = run(&control_plane, &["apply", "--dry-run=server", "-f", "-"], &manifests)?;
    for object in [
        "validatingwebhookconfiguration.admissionregistration.k8s.io/billhook-force-deletion",
        "validatingwebhookconfiguration.admissionregistration.k8s.io/billhook-deletion-confirmation",
        "deployment.apps/billhook-webhook",
        "poddisruptionbudget.policy/billhook-webhook",
        "service/billhook-webhook",
        "serviceaccount/billhook-webhook",
    ] {
        assert!(applied.contains(&format!("{object} created (server dry run)")), "{object}: {applied}");
    }

    // The API server does not know the kinds of cert-manager.
    let (rendered, manifests) = template(&["--set=webhook.certManager=true"])?;
    assert!(rendered && manifests.contains("cert-manager.io/inject-ca-from: default/billhook-webhook"), "{manifests}");
    Ok(())
}
