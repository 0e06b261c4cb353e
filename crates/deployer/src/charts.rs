//! Charts of the helm deployer's items: rendered to manifests, or deployed and deleted by helm itself.

use std::{pin::pin, sync::Arc, time::Duration};

use billhook_charts::{Capabilities, Chart, Credentials, DeployOptions, RepositoryAuth, TimeLimit};
use billhook_cluster::{Cluster, DeleteOptions, ListedLease, Patch, PatchKind};
use billhook_objects::{Catalog, Manifest, ObjectKey, Uid, wellknown};
use billhook_plan::{Directives, Listed, Observed, Operation, Query, Resource, Select};
use billhook_policy::{ChartSource, HelmConfiguration, HelmDeployment, HelmOptions, ManifestPolicy};
use futures::FutureExt as _;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    api::{self, Context, ErrorCode},
    error::{INVALID_MANIFESTS, ItemFailure},
    fair::{FairSlot, FairSlots, Party},
    halt::{Halt, Stop},
    helms::Helms,
    item::Item,
    managed::HELM_RELEASE,
    objects::Objects,
    owner::{OWNER, Owner},
    progress::Report,
    readiness::watched::{Wanted, Which},
    slots::PER_PLACE,
    target::{OpenTarget, RENDER_AGE, read_secret},
    waited::{WAITING_FOR_HELM, Waited},
};

/// The label that Landscaper's helm deployer sets on objects.
const LABEL: &str = "helm.deployer.landscaper.gardener.cloud/deployitem";
/// What to do about a release that another helm may be working on.
const UNPROVEN: &str = "; nothing proves that the helm that began it has ended: if none is running, run helm rollback, or delete \
                        the Secret of the pending revision";
/// What the time limit interrupts, for [`Halt::stoppable`].
const RUNNING_HELM: &str = "running helm";
/// The same for reading what helm needs.
const READING_INPUT: &str = "reading the Context and the version of the cluster";
/// How long a helm may take that renders or reads: others wait for its slot, and the API server that it asks may never answer. Longer
/// than fetching a chart and rendering it may take.
const SHORT_RUN: Duration = Duration::from_secs(180);
/// After this wait for a slot the condition says so.
const SHORT_WAIT: Duration = Duration::from_secs(5);
/// The Context of items that do not name one.
const DEFAULT_CONTEXT: &str = "default";
/// The key in the configurations of a Context that holds the credentials of chart repositories.
const REPOSITORY_CREDENTIALS: &str = "helmChartRepoCredentials";
/// helm's error if values do not match the chart's schema (`pkg/chart/common/util/values.go`).
const SCHEMA_ERROR: &str = "values don't meet the specifications of the schema";

/// The operation and reason of Landscaper's error if a chart cannot be fetched or rendered (`Reconcile` in
/// `pkg/deployer/helm/deployer.go`).
const TEMPLATE: (&str, &str) = ("Reconcile", "Template");
/// The same if helm fails, from `pkg/deployer/helm/realhelmdeployer`.
const INSTALL: (&str, &str) = ("RealHelmDeployer.Deploy", "installRelease");
const UPGRADE: (&str, &str) = ("RealHelmDeployer.Deploy", "upgradeRelease");
const UNINSTALL: (&str, &str) = ("DeleteHelmRelease", "Uninstall");
const GET: (&str, &str) = ("GetHelmRelease", "GetRelease");

/// Returns a failure with Landscaper's operation and reason.
fn failed((operation, reason): (&'static str, &'static str), error: billhook_charts::Error) -> ItemFailure {
    ItemFailure::from(error).of(operation, reason)
}

impl From<billhook_charts::Error> for ItemFailure {
    fn from(error: billhook_charts::Error) -> Self {
        use billhook_charts::ErrorKind;
        let cause = error.kind.to_string();
        let message = format!("failed to {error}: {cause}");
        match &error.kind {
            ErrorKind::Program(billhook_charts::ProgramError::Failed { stderr, .. })
                if stderr.contains(SCHEMA_ERROR) =>
            {
                Self::configuration(TEMPLATE.1, message)
            }
            ErrorKind::Fetch(error) if error.is_final() => Self::configuration(TEMPLATE.1, message),
            // helm's other errors do not tell a wrong chart from an unavailable cluster, nor those of servers a wrong address
            // from one that does not exist yet.
            ErrorKind::Program(billhook_charts::ProgramError::Failed { .. })
            | ErrorKind::Fetch(_)
            | ErrorKind::FetchTime => Self::configuration(TEMPLATE.1, message).transient(),
            ErrorKind::Source(_)
            | ErrorKind::Credentials(_)
            | ErrorKind::Archive(_)
            | ErrorKind::Yaml(_)
            | ErrorKind::Manifests(_)
            | ErrorKind::Program(
                billhook_charts::ProgramError::Limit { .. } | billhook_charts::ProgramError::TooMuchOutput { .. },
            ) => Self::configuration(TEMPLATE.1, message),
            _ => Self::new(TEMPLATE.1, message, ErrorCode::InternalProblem),
        }
    }
}

/// Waits for a slot to run helm. This does not count against the item's time, also not after a restart of the controller.
async fn slot(item: &mut Item, halt: &Halt, slots: impl FnOnce(&Helms) -> &FairSlots) -> Result<FairSlot, Stop> {
    let slots = slots(&item.shared.helms).clone();
    let (waited, mut turn) = (Waited::begin(), pin!(slots.acquire(Party::of(&item.object), halt)));
    let slot = match timeout(SHORT_WAIT, turn.as_mut()).await {
        Ok(slot) => slot?,
        Err(_) => {
            let message = "waiting until helm may run for this item: others are using all slots".to_owned();
            item.report(Report { running: true, reason: WAITING_FOR_HELM, message }).await?;
            let slot = turn.await?;
            waited.end(item);
            let reason = if item.operation() == Operation::Delete { "Deleting" } else { "Applying" };
            item.report(Report { running: true, reason, message: "helm is running".to_owned() }).await?;
            return Ok(slot);
        }
    };
    waited.end(item);
    Ok(slot)
}

/// Renders the chart of an item to objects. With `createNamespace` the release's namespace is one of them; as in
/// Landscaper, it is not deleted with the others.
pub(crate) async fn render(
    item: &mut Item,
    helm: &HelmConfiguration,
    target: &OpenTarget,
    catalog: &Catalog,
    halt: &Halt,
) -> Result<Objects, Stop> {
    let input = input(item, helm, target, catalog);
    let (capabilities, chart, release) = halt.stoppable(item.deadline, READING_INPUT, input).await??;
    let slot = slot(item, halt, |helms| &helms.renders).await?;
    let program = &item.shared.helms.program;
    let access = halt.stoppable(item.deadline, READING_INPUT, target.program_access(item.deadline)).await??;
    let kubeconfig = Some(access.kubeconfig());
    let work = billhook_charts::template(&chart, &release, Some(&capabilities), kubeconfig, program);
    let rendered = short_run(item, halt, work).await?;
    drop(slot);
    let rendered = rendered.map_err(|error| {
        let failure = failed(TEMPLATE, error);
        // Rendering an archive depends on the item alone, so a retry would fail in the same way.
        ItemFailure { transient: failure.transient && !matches!(helm.chart, ChartSource::Archive(_)), ..failure }
    })?;
    let namespaced = Some(helm.namespace.clone());
    let mut objects = Objects { manifests: rendered.manifests, namespace: namespaced, ..Objects::default() };
    let key = ObjectKey::new(wellknown::namespace(), None, helm.namespace.as_str());
    let rendered_namespace = objects.manifests.iter().any(|manifest| manifest.key == key);
    if helm.create_namespace && !rendered_namespace && helm.namespace != "default" {
        // The namespace may hold objects of others.
        let keep = Directives { policy: ManifestPolicy::Keep, ..Directives::default() };
        objects.push(namespace(&helm.namespace)?, keep);
    }
    objects.set_label(LABEL, &item.name);
    count(item, &objects.manifests)?;
    Ok(objects)
}

/// Counts what was rendered until the work on the item ends. An item may wait for long, and its chart may be much larger than its
/// configuration.
fn count(item: &mut Item, manifests: &[Manifest]) -> Result<(), ItemFailure> {
    /// What each object needs besides its text.
    const PER_OBJECT: usize = 1024;
    let size: usize = manifests.iter().map(|manifest| manifest.json().len() + PER_OBJECT).sum();
    // That of an earlier attempt to plan.
    item.rendered = None;
    let slots = &item.shared.helms.rendered;
    let slot = slots.take_many(Party::of(&item.object), size.div_ceil(PER_PLACE).max(1)).now_or_never().flatten();
    let problem = "the rendered charts of the items at work need too much memory together; trying again";
    item.rendered =
        Some(slot.ok_or_else(|| ItemFailure::new("Busy", problem, ErrorCode::InternalProblem).transient())?);
    Ok(())
}

fn namespace(name: &str) -> Result<Manifest, ItemFailure> {
    let value = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let document = billhook_objects::yaml::Document { value, line: 1 };
    let manifests = Manifest::from_document(document, &"config.createNamespace".into());
    let first = manifests.ok().and_then(|manifests| manifests.into_iter().next());
    first.ok_or_else(|| {
        ItemFailure::configuration(INVALID_MANIFESTS, format!("{name:?} is not a valid name for a namespace"))
    })
}

fn release(helm: &HelmConfiguration) -> billhook_charts::Release<'_> {
    billhook_charts::Release {
        name: &helm.name,
        namespace: &helm.namespace,
        values: Some(&helm.values).filter(|values| !values.is_null()),
        ..Default::default()
    }
}

/// Returns helm's input for rendering a chart: the capabilities of the target cluster, the chart, and the release.
async fn input<'h>(
    item: &Item,
    helm: &'h HelmConfiguration,
    target: &OpenTarget,
    catalog: &Catalog,
) -> Result<(Capabilities, Chart, billhook_charts::Release<'h>), ItemFailure> {
    let capabilities = Capabilities::of(target.version(RENDER_AGE).await?, catalog);
    Ok((capabilities, chart(item, helm).await?, release(helm)))
}

/// Returns the values that the templates of a chart see: those of the item merged into the chart's defaults. Exports
/// without `fromResource` are read from them.
pub(crate) async fn values(
    item: &mut Item,
    helm: &HelmConfiguration,
    target: &OpenTarget,
    catalog: &Catalog,
    halt: &Halt,
) -> Result<Value, Stop> {
    let input = input(item, helm, target, catalog);
    let (capabilities, chart, release) = halt.stoppable(item.deadline, READING_INPUT, input).await??;
    let HelmDeployment { install, upgrade, .. } = &helm.deployment;
    let skip = helm.helm_deployment && (install.skip_schema_validation || upgrade.skip_schema_validation);
    let _slot = slot(item, halt, |helms| &helms.renders).await?;
    let work = billhook_charts::values(&chart, &release, Some(&capabilities), skip, &item.shared.helms.program);
    Ok(short_run(item, halt, work).await?.map_err(|error| failed(TEMPLATE, error))?)
}

/// Runs a helm that renders or reads.
async fn short_run<T>(item: &Item, halt: &Halt, work: impl Future<Output = T>) -> Result<T, Stop> {
    let work = timeout(SHORT_RUN, work);
    halt.stoppable(item.deadline, RUNNING_HELM, work).await?.map_err(|_| {
        let message =
            format!("helm did not render the chart, or read the release, within {} seconds", SHORT_RUN.as_secs());
        ItemFailure::configuration(TEMPLATE.1, message).of(TEMPLATE.0, TEMPLATE.1).transient().into()
    })
}

/// Returns the chart of an item with the credentials in the item's Context. Its host is checked before any is read.
async fn chart(item: &Item, helm: &HelmConfiguration) -> Result<Chart, ItemFailure> {
    let mut chart = Chart::from(helm.chart.clone());
    if let Some(host) = chart.host()? {
        item.shared.options.connections.dialer.check(&host).await?;
        chart.credentials = credentials(item).await?;
    }
    Ok(chart)
}

/// Reads the credentials in an item's Context. The default Context need not exist.
async fn credentials(item: &Item) -> Result<Credentials, ItemFailure> {
    let wrong = |problem: String| ItemFailure::configuration("ReadContext", problem);
    let name = item.object.spec.context.as_deref().unwrap_or(DEFAULT_CONTEXT);
    let contexts = api::resource("Context", "contexts");
    let key = ObjectKey::new(contexts.kind.clone(), Some(&item.namespace), name);
    let home = &item.shared.home;
    let context: Context = match home.get(&contexts, &key).await? {
        Some(found) => serde_json::from_value(found).map_err(|error| wrong(format!("Context {name}: {error}")))?,
        None if item.object.spec.context.is_none() => return Ok(Credentials::default()),
        None => {
            return Err(ItemFailure::missing(
                "ReadContext",
                format!("Context {}/{name} does not exist", item.namespace),
            ));
        }
    };
    let mut credentials = Credentials::default();
    for secret in &context.spec.registry_pull_secrets {
        let data = read_secret(home, &item.namespace, &secret.name).await?;
        let config = data.get(".dockerconfigjson").ok_or_else(|| {
            wrong(format!(
                "Secret {} has no key .dockerconfigjson: use a Secret of type kubernetes.io/dockerconfigjson",
                secret.name
            ))
        })?;
        credentials.add_docker_config(config).map_err(|error| wrong(format!("Secret {}: {error}", secret.name)))?;
    }
    let configured = context.spec.configurations.as_ref().and_then(|all| all.get(REPOSITORY_CREDENTIALS));
    if let Some(configured) = configured {
        let mut auths = RepositoryAuth::list(configured)
            .map_err(|error| wrong(format!("Context {name}, configurations.{REPOSITORY_CREDENTIALS}: {error}")))?;
        for auth in &mut auths {
            if let Some(reference) = auth.secret_ref.take() {
                auth.auth_header = Some(header(item, &reference).await?);
            }
        }
        credentials.repositories = auths;
    }
    Ok(credentials)
}

/// Reads an `Authorization` header from a Secret.
async fn header(item: &Item, reference: &billhook_charts::SecretReference) -> Result<String, ItemFailure> {
    let data = read_secret(&item.shared.home, &item.namespace, &reference.name).await?;
    let key = reference.key.as_deref().unwrap_or("authHeader");
    data.get(key).cloned().ok_or_else(|| {
        ItemFailure::configuration("ReadContext", format!("Secret {} has no key {key:?}", reference.name))
    })
}

/// Installs or upgrades the release of an item with helm, and returns its objects.
pub(crate) async fn install(
    item: &mut Item,
    helm: &HelmConfiguration,
    target: &Arc<OpenTarget>,
    halt: &Halt,
) -> Result<Vec<Manifest>, Stop> {
    let chart = halt.stoppable(item.deadline, READING_INPUT, chart(item, helm)).await??;
    let chart = fetch(item, chart, halt).await?;
    let known = manifest(item, helm, target, halt).await?;
    // One command installs and upgrades, but an item has separate options for each.
    let HelmDeployment { install, upgrade, .. } = &helm.deployment;
    let (options, names) = if known.is_some() { (upgrade, UPGRADE) } else { (install, INSTALL) };
    let slot = slot(item, halt, |helms| &helms.releases).await?;
    let options = DeployOptions {
        wait: options.wait,
        time: limit(item, options),
        atomic: options.atomic,
        force: options.force,
        create_namespace: helm.create_namespace,
        skip_schema_validation: options.skip_schema_validation,
        take_ownership: options.take_ownership,
    };
    if known.is_none() && item.status.provider_status.is_none() {
        // From now on the item cannot be deleted without its cluster.
        item.status.provider_status = Some(provider_status(helm, &[]));
        item.update(|_| {}).await?;
    }
    let release = release(helm);
    let owner = Owner::of(item);
    let (chart, release, options) = (&chart, &release, &options);
    let program = item.shared.helms.program.labelling(owner.label());
    let leases = item.shared.options.leader_election.as_ref().map(|lease| lease.namespace.as_str());
    let home = &item.shared.home;
    let access = halt.stoppable(item.deadline, READING_INPUT, target.program_access(item.deadline)).await??;
    let kubeconfig = access.kubeconfig();
    let work = move |stop: CancellationToken| async move {
        let program = program.stopped_by(stop);
        let run = || billhook_charts::install_or_upgrade(chart, release, options, kubeconfig, &program);
        match run().await {
            // A helm process that was killed leaves the release pending, and helm itself never recovers from that.
            Err(error) if is_pending(&error) => {
                let leases = match leases {
                    Some(namespace) => home.leases(namespace).await.unwrap_or_default(),
                    None => Vec::new(),
                };
                if unlock(target, helm, &owner, &leases).await { run().await } else { Err(error) }
            }
            done => done,
        }
    };
    let ended = halt.stoppable_helm(item.deadline, RUNNING_HELM, work).await?;
    drop(slot);
    if let Err(error) = ended {
        let advice = if is_pending(&error) { UNPROVEN } else { "" };
        let failure = failed(names, error);
        if known.is_none() && matches!(manifest(item, helm, target, halt).await, Ok(None)) {
            // helm has rejected the chart before it recorded a release.
            item.status.provider_status = None;
        }
        return Err(ItemFailure { message: failure.message.clone() + advice, ..failure }.into());
    }
    Ok(manifest(item, helm, target, halt).await?.unwrap_or_default())
}

/// Fetches the chart of an item: a slow server does not need a slot for releases.
async fn fetch(item: &mut Item, chart: Chart, halt: &Halt) -> Result<Chart, Stop> {
    let _slot = slot(item, halt, |helms| &helms.renders).await?;
    let work = billhook_charts::fetch(chart, &item.shared.helms.program);
    Ok(short_run(item, halt, work).await?.map_err(|error| failed(TEMPLATE, error))?)
}

/// Returns the objects of the release of an item, if it exists.
async fn manifest(
    item: &mut Item,
    helm: &HelmConfiguration,
    target: &OpenTarget,
    halt: &Halt,
) -> Result<Option<Vec<Manifest>>, Stop> {
    let _slot = slot(item, halt, |helms| &helms.renders).await?;
    let program = &item.shared.helms.program;
    let access = halt.stoppable(item.deadline, READING_INPUT, target.program_access(item.deadline)).await??;
    let work = billhook_charts::manifest_of(&helm.name, &helm.namespace, access.kubeconfig(), program);
    Ok(short_run(item, halt, work).await?.map_err(|error| failed(GET, error))?)
}

/// Returns whether helm failed because an earlier run is still pending (`errPending` in `pkg/action` of helm).
fn is_pending(error: &billhook_charts::Error) -> bool {
    error.kind.to_string().contains("another operation (install/upgrade/rollback) is in progress")
}

/// Ends the pending revisions of a release if the helm of each has ended, and returns whether there were any.
async fn unlock(target: &OpenTarget, helm: &HelmConfiguration, owner: &Owner, leases: &[ListedLease]) -> bool {
    let status = "status in (pending-install,pending-upgrade,pending-rollback)";
    let query = Query {
        cluster: None,
        resource: Resource::secrets(),
        namespace: Some(helm.namespace.clone()),
        select: Select::Labels(format!("owner=helm,name={},{status}", helm.name)),
        namespaces: Vec::new(),
    };
    let mut pending = Vec::new();
    for listing in target.cluster.snapshot(&[query]).await {
        let Listed::Items { items, .. } = listing.found else { return false };
        pending.extend(items);
    }
    let has_ended = |item: &Observed| item.labels.get(OWNER).is_some_and(|label| owner.has_survived(label, leases));
    if pending.is_empty() || !pending.iter().all(has_ended) {
        return false;
    }
    let mut ended = true;
    for item in pending {
        ended &= end_revision(&target.cluster, &helm.namespace, &item.name, item.uid).await.is_ok();
    }
    ended
}

/// Marks a revision as failed: helm can upgrade from a failed revision, and the revision still lists its objects. Deletes a
/// revision that cannot be parsed.
async fn end_revision(cluster: &Cluster, namespace: &str, name: &str, uid: Uid) -> Result<(), ItemFailure> {
    let key = ObjectKey::new(Resource::secrets().kind, Some(namespace), name);
    let data = read_secret(cluster, namespace, name).await?;
    let Some(failed) = data.get("release").and_then(|stored| billhook_charts::as_failed(stored)) else {
        let options = DeleteOptions { uid: Some(uid), ..DeleteOptions::default() };
        cluster.delete(&Resource::secrets(), &key, &options).await?;
        return Ok(());
    };
    let body = json!({
        "metadata": { "uid": uid, "labels": { "status": "failed" } },
        "data": { "release": ByteString(failed.into_bytes()) },
    });
    cluster
        .patch(&Resource::secrets(), &key, &Patch { subresource: None, kind: PatchKind::Merge, body: &body })
        .await?;
    Ok(())
}

/// Uninstalls the release of an item with helm.
pub(crate) async fn uninstall(
    item: &mut Item,
    helm: &HelmConfiguration,
    target: &Arc<OpenTarget>,
    halt: &Halt,
) -> Result<(), Stop> {
    let options = &helm.deployment.uninstall;
    let _slot = slot(item, halt, |helms| &helms.releases).await?;
    let access = halt.stoppable(item.deadline, READING_INPUT, target.program_access(item.deadline)).await??;
    let kubeconfig = access.kubeconfig();
    let (time, program) = (limit(item, options), &item.shared.helms.program);
    let work = move |stop: CancellationToken| async move {
        let program = program.stopped_by(stop);
        billhook_charts::uninstall(&helm.name, &helm.namespace, options.wait, time, kubeconfig, &program).await
    };
    Ok(halt.stoppable_helm(item.deadline, RUNNING_HELM, work).await?.map_err(|error| failed(UNINSTALL, error))?)
}

/// Returns how long helm may work: the timeout of the item's options, but at most the rest of the item's time.
fn limit(item: &Item, options: &HelmOptions) -> TimeLimit {
    TimeLimit { timeout: options.timeout.map(|timeout| timeout.0), deadline: item.deadline }
}

/// The kinds that Landscaper lists for a release that helm deployed: those whose readiness it checks
/// (`IsRelevantForDefaultReadinessCheck` in `pkg/deployer/lib/readinesscheck`).
const WORKLOADS: [(&str, &str); 6] = [
    ("", "Pod"),
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
];

fn is_workload(manifest: &&Manifest) -> bool {
    WORKLOADS.iter().any(|(group, kind)| manifest.key.kind.is(group, kind))
}

/// Returns the workloads of a release.
pub(crate) fn workloads(helm: &HelmConfiguration, objects: &[Manifest]) -> Vec<Wanted> {
    let wanted = |manifest: &Manifest| {
        let namespace = manifest.key.namespace.clone().or_else(|| Some(helm.namespace.clone()));
        let which = Which::Object { namespace, name: manifest.key.name.clone() };
        Wanted::new(&manifest.api_version, &manifest.key.kind.kind, which)
    };
    objects.iter().filter(is_workload).map(wanted).collect()
}

/// Returns the provider status for a release that helm deployed, in the form that Landscaper's helm deployer writes.
pub(crate) fn provider_status(helm: &HelmConfiguration, objects: &[Manifest]) -> Value {
    let resource = |manifest: &Manifest| {
        json!({ "resource": {
            "apiVersion": manifest.api_version.to_string(), "kind": manifest.key.kind.kind,
            "name": manifest.key.name, "namespace": manifest.key.namespace.as_ref().unwrap_or(&helm.namespace),
        }})
    };
    json!({
        "apiVersion": "helm.deployer.landscaper.gardener.cloud/v1alpha1",
        "kind": "ProviderStatus",
        "managedResources": objects.iter().filter(is_workload).map(resource).collect::<Vec<_>>(),
        HELM_RELEASE: helm.name,
    })
}
