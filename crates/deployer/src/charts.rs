//! Charts of the helm deployer's items: rendered to manifests, or deployed and deleted by helm itself.

use std::{sync::Arc, time::Duration};

use billhook_charts::{Capabilities, Chart, Credentials, DeployOptions, RepositoryAuth};
use billhook_cluster::{Cluster, DeleteOptions, Patch, PatchKind};
use billhook_objects::{Catalog, Manifest, ObjectKey, Uid, wellknown};
use billhook_plan::{Directives, Listed, Query, Resource, Select};
use billhook_policy::{ChartSource, HelmConfiguration, HelmDeployment, HelmOptions, ManifestPolicy};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    api::{self, Context, ErrorCode},
    error::{INVALID_MANIFESTS, ItemFailure},
    halt::{Halt, Stop},
    item::Item,
    managed::HELM_RELEASE,
    objects::Objects,
    target::{OpenTarget, RENDER_AGE, read_secret},
};

/// The label that Landscaper's helm deployer sets on objects.
const LABEL: &str = "helm.deployer.landscaper.gardener.cloud/deployitem";
/// What the time limit interrupts, for [`Halt::stoppable`].
const RUNNING_HELM: &str = "running helm";
/// The Context of items that do not name one.
const DEFAULT_CONTEXT: &str = "default";
/// The key in the configurations of a Context that holds the credentials of chart repositories.
const REPOSITORY_CREDENTIALS: &str = "helmChartRepoCredentials";
/// helm's error if values do not match the chart's schema (`pkg/chart/common/util/values.go`).
const SCHEMA_ERROR: &str = "values don't meet the specifications of the schema";

impl From<billhook_charts::Error> for ItemFailure {
    fn from(error: billhook_charts::Error) -> Self {
        use billhook_charts::ErrorKind;
        let cause = error.kind.to_string();
        let message = format!("failed to {error}: {cause}");
        match &error.kind {
            ErrorKind::Program(billhook_charts::ProgramError::Failed { stderr, .. })
                if stderr.contains(SCHEMA_ERROR) =>
            {
                Self::configuration("ChartFailed", message)
            }
            ErrorKind::Program(billhook_charts::ProgramError::Failed { .. }) => {
                // helm's other errors do not tell a wrong chart from an unavailable registry.
                Self::configuration("ChartFailed", message).transient()
            }
            ErrorKind::Source(_) | ErrorKind::Credentials(_) | ErrorKind::Yaml(_) | ErrorKind::Manifests(_) => {
                Self::configuration("ChartFailed", message)
            }
            _ => Self::new("ChartFailed", message, ErrorCode::InternalProblem),
        }
    }
}

/// Renders the chart of an item to objects. With `createNamespace` the release's namespace is one of them; as in
/// Landscaper, it is not deleted with the others.
pub(crate) async fn render(
    item: &Item,
    helm: &HelmConfiguration,
    target: &OpenTarget,
    catalog: &Catalog,
) -> Result<Objects, ItemFailure> {
    let (capabilities, chart, release) = input(item, helm, target, catalog).await?;
    let _one = item.shared.helms.renders.acquire().await;
    let rendered = billhook_charts::template(&chart, &release, Some(&capabilities), &item.shared.options.helm).await;
    let rendered = rendered.map_err(|error| {
        let failure = ItemFailure::from(error);
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
    Ok(objects)
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
    item: &Item,
    helm: &HelmConfiguration,
    target: &OpenTarget,
    catalog: &Catalog,
    halt: &Halt,
) -> Result<Value, Stop> {
    let (capabilities, chart, release) = input(item, helm, target, catalog).await?;
    let program = &item.shared.options.helm;
    let HelmDeployment { install, upgrade, .. } = &helm.deployment;
    let skip = helm.helm_deployment && (install.skip_schema_validation || upgrade.skip_schema_validation);
    let work = async {
        let _one = item.shared.helms.renders.acquire().await;
        billhook_charts::values(&chart, &release, Some(&capabilities), skip, program).await
    };
    Ok(halt.stoppable(item.deadline, RUNNING_HELM, work).await??)
}

/// Returns the chart of an item with the credentials in the item's Context.
async fn chart(item: &Item, helm: &HelmConfiguration) -> Result<Chart, ItemFailure> {
    let credentials = match helm.chart {
        ChartSource::Archive(_) => Credentials::default(),
        _ => credentials(item).await?,
    };
    Ok(Chart { credentials, ..helm.chart.clone().into() })
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
    item: &Item,
    helm: &HelmConfiguration,
    target: &Arc<OpenTarget>,
    halt: &Halt,
) -> Result<Vec<Manifest>, Stop> {
    let chart = chart(item, helm).await?;
    let program = &item.shared.options.helm;
    let manifest = async || {
        let _one = item.shared.helms.renders.acquire().await;
        billhook_charts::manifest_of(&helm.name, &helm.namespace, &target.kubeconfig, program).await
    };
    let known = halt.stoppable(item.deadline, RUNNING_HELM, manifest()).await??;
    // One command installs and upgrades, but an item has separate options for each.
    let options = if known.is_some() { &helm.deployment.upgrade } else { &helm.deployment.install };
    let options = DeployOptions {
        wait: options.wait,
        timeout: limit(item, options),
        atomic: options.atomic,
        force: options.force,
        create_namespace: helm.create_namespace,
        skip_schema_validation: options.skip_schema_validation,
        take_ownership: options.take_ownership,
    };
    let release = release(helm);
    let run = || billhook_charts::install_or_upgrade(&chart, &release, &options, &target.kubeconfig, program);
    let work = async {
        let _one = item.shared.helms.releases.acquire().await;
        match run().await {
            // A helm process that was killed leaves the release pending, and helm itself never recovers from that.
            Err(error) if is_pending(&error) && unlock(target, helm).await => run().await,
            done => done,
        }
    };
    halt.stoppable(item.deadline, RUNNING_HELM, work).await??;
    Ok(halt.stoppable(item.deadline, RUNNING_HELM, manifest()).await??.unwrap_or_default())
}

/// Returns whether helm failed because an earlier run is still pending (`errPending` in `pkg/action` of helm).
fn is_pending(error: &billhook_charts::Error) -> bool {
    error.kind.to_string().contains("another operation (install/upgrade/rollback) is in progress")
}

/// Ends the pending revisions of a release, and returns whether there were any.
async fn unlock(target: &OpenTarget, helm: &HelmConfiguration) -> bool {
    let status = "status in (pending-install,pending-upgrade,pending-rollback)";
    let query = Query {
        cluster: None,
        resource: Resource::secrets(),
        namespace: Some(helm.namespace.clone()),
        select: Select::Labels(format!("owner=helm,name={},{status}", helm.name)),
        namespaces: Vec::new(),
    };
    let mut found = false;
    for listing in target.cluster.snapshot(&[query]).await {
        let Listed::Items { items, .. } = listing.found else { continue };
        for item in items {
            found |= end_revision(&target.cluster, &helm.namespace, &item.name, item.uid).await.is_ok();
        }
    }
    found
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
    item: &Item,
    helm: &HelmConfiguration,
    target: &Arc<OpenTarget>,
    halt: &Halt,
) -> Result<(), Stop> {
    let options = &helm.deployment.uninstall;
    let program = &item.shared.options.helm;
    let work = async {
        let _one = item.shared.helms.releases.acquire().await;
        let (limit, kubeconfig) = (limit(item, options), &target.kubeconfig);
        billhook_charts::uninstall(&helm.name, &helm.namespace, options.wait, limit, kubeconfig, program).await
    };
    Ok(halt.stoppable(item.deadline, RUNNING_HELM, work).await??)
}

/// Returns the timeout for helm: that of the item's options, but at most the rest of the item's time limit.
fn limit(item: &Item, options: &HelmOptions) -> Option<Duration> {
    let left = item.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let own = options.timeout.map(|timeout| timeout.0);
    match (own, left) {
        (Some(own), Some(left)) => Some(own.min(left)),
        (own, left) => own.or(left),
    }
}

/// Returns the provider status for a release that helm deployed, in the form that Landscaper's helm deployer writes.
pub(crate) fn provider_status(helm: &HelmConfiguration, objects: &[Manifest], catalog: &Catalog) -> Value {
    let namespace = |manifest: &Manifest| {
        let namespaced =
            catalog.get(&manifest.key.kind).is_some_and(|kind| kind.scope == billhook_objects::Scope::Namespaced);
        manifest.key.namespace.clone().or_else(|| namespaced.then(|| helm.namespace.clone()))
    };
    let resource = |manifest: &Manifest| {
        json!({ "policy": "manage", "resource": {
            "apiVersion": manifest.api_version.to_string(), "kind": manifest.key.kind.kind,
            "name": manifest.key.name, "namespace": namespace(manifest),
        }})
    };
    json!({
        "apiVersion": "helm.deployer.landscaper.gardener.cloud/v1alpha1",
        "kind": "ProviderStatus",
        "managedResources": objects.iter().map(resource).collect::<Vec<_>>(),
        HELM_RELEASE: helm.name,
    })
}
