//! Deploys an item: applies its objects, waits until they are ready, and exports values.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use billhook_cluster::ApplyOptions;
use billhook_engine::{
    ApplyInput, Clusters, DeploymentOrder, MissingNamespaces, PreparedApply, RunOptions, Unowned, Unrecorded,
};
use billhook_objects::ObjectKey;
use billhook_plan::{Catalogs, Resource, Wait};
use billhook_policy::{Provider, ProviderConfiguration};
use futures::FutureExt as _;
use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::{
    api::{ObjectReference, Phase},
    charts,
    error::{INVALID_MANIFESTS, ItemFailure},
    exports, foresight,
    halt::{Halt, Stop},
    item::Item,
    managed,
    objects::Objects,
    progress::{ItemProgress, Report},
    readiness::{self, watched::Wanted},
    target::{OpenTarget, RENDER_AGE},
};

/// The maximum age of the catalog of kinds. If a kind is not in it, the catalog is read again.
const CATALOG_AGE: Duration = Duration::from_secs(600);

/// Deploys an item, from reading its Target to phase `Succeeded`.
pub(super) async fn deploy(item: &mut Item, configuration: ProviderConfiguration, halt: &Halt) -> Result<(), Stop> {
    let target = halt.stoppable(item.deadline, "reading the Target", item.target()).await??;
    let clusters = item.clusters(&target, configuration.targets_of_deployment()).await?;
    let helm = configuration.helm.as_ref().filter(|helm| helm.helm_deployment);
    if managed::is_by_helm(item.status.provider_status.as_ref()).is_some_and(|by_helm| by_helm != helm.is_some()) {
        let problem = "helmDeployment cannot be changed after the item was deployed: change it back, or delete and recreate the \
                       item (annotate it with delete-without-uninstall first to keep its objects)";
        return Err(ItemFailure::configuration("HelmDeploymentChanged", problem).into());
    }
    let mut can_hang = None;
    let workloads = match helm {
        Some(helm) => {
            let ran = item.measure("run");
            let message = format!("helm is deploying release {} in namespace {}", helm.name, helm.namespace);
            item.report(Report { running: true, reason: "Applying", message }).await?;
            let objects = charts::install(item, helm, &target, halt).await?;
            ran();
            item.status.provider_status = Some(charts::provider_status(helm, &objects));
            if configuration.readiness.disable_default { Vec::new() } else { charts::workloads(helm, &objects) }
        }
        None => {
            can_hang = deploy_objects(item, &configuration, &target, &clusters, halt).await?;
            Vec::new()
        }
    };
    let now = item.now();
    item.status.begin_checks(now);
    let checked = item.measure("check");
    let exported = check_and_export(item, &configuration, workloads, &target, &clusters, halt).await?;
    checked();
    if !exported.is_empty() {
        item.status.export_ref = Some(export(item, exported).await?);
    }
    if let Some(age) = can_hang {
        item.foresee_deletion(&clusters, &configuration.policy, (&target, age), halt).await?;
    }
    let now = item.now();
    item.update(|status| {
        (status.last_error, status.last_errors, status.first_error) = (None, Vec::new(), None);
        let message = "all objects are deployed and ready".to_owned();
        status.report(&Report { running: false, reason: "Succeeded", message }, now);
        status.finish(Phase::Succeeded, now);
    })
    .await?;
    Ok(())
}

/// Waits for the workloads of a release that helm deployed and for the custom readiness checks, then reads the exported values.
async fn check_and_export(
    item: &mut Item,
    configuration: &ProviderConfiguration,
    workloads: Vec<Wanted>,
    target: &OpenTarget,
    clusters: &Clusters,
    halt: &Halt,
) -> Result<Map<String, Value>, Stop> {
    let checks = &configuration.readiness.custom;
    let deprecated = configuration.helm.as_ref().map(|helm| helm.exports_from_manifests.as_slice());
    let exports = [deprecated.unwrap_or_default(), &configuration.exports].concat();
    if workloads.is_empty() && checks.is_empty() && exports.is_empty() {
        return Ok(Map::new());
    }
    // Kinds that it lacks, such as those of other targets, are looked up when they are needed.
    let catalog = target.catalog(CATALOG_AGE).await?;
    let catalogs = Catalogs::own(Arc::clone(&catalog));
    let mut exported = match &configuration.helm {
        Some(helm) if exports.iter().any(|export| export.from_resource.is_none()) => {
            exports::from_values(&exports, &charts::values(item, helm, target, &catalog, halt).await?)?
        }
        _ => Map::new(),
    };
    let (deadline, stop) = (item.deadline, &halt.token);
    let (progress, receiver) =
        watch::channel(ItemProgress::awaiting("WaitingForReadiness", "waiting for readiness checks"));
    let work = async {
        let report = |reason| progress.send_replace(ItemProgress::awaiting("WaitingForReadiness", reason));
        let on_workload = |reason| drop(report(reason));
        readiness::wait_for_workloads(clusters, workloads, &catalogs, deadline, stop, on_workload).await?;
        readiness::wait_ready(clusters, checks, &catalogs, deadline, stop, |reason| drop(report(reason))).await?;
        progress.send_replace(ItemProgress::awaiting("Exporting", "waiting for the values of exports"));
        exports::export(clusters, &exports, &catalogs, deadline, stop).await
    };
    let from_objects = item.report_while(receiver, work.boxed()).await?;
    exports::merge(&mut exported, from_objects);
    Ok(exported)
}

/// Deploys the objects of the manifest deployer, or of a chart that helm only renders. Returns the age of the catalog to look ahead
/// with, if they can make the deletion hang.
async fn deploy_objects(
    item: &mut Item,
    configuration: &ProviderConfiguration,
    target: &OpenTarget,
    clusters: &Clusters,
    halt: &Halt,
) -> Result<Option<Duration>, Stop> {
    let planned = item.measure("prepare");
    let mut prepared = match prepare(item, configuration, target, clusters, CATALOG_AGE, halt).boxed().await {
        // The catalog may be older than the kind.
        Err(Stop::Failed(failure)) if failure.reason == INVALID_MANIFESTS => {
            prepare(item, configuration, target, clusters, Duration::ZERO, halt).boxed().await?
        }
        prepared => prepared?,
    };
    let api_version = match configuration.provider {
        Provider::Manifest => "manifest.deployer.landscaper.gardener.cloud/v1alpha2",
        Provider::Helm => "helm.deployer.landscaper.gardener.cloud/v1alpha1",
    };
    planned();
    // It is written even if the run fails, because the run records the objects before it applies them.
    let PreparedApply { plan, manifests, directives, .. } = &prepared;
    let status = managed::provider_status(
        api_version,
        (&item.record_name(), managed::room(&item.object)),
        plan,
        manifests,
        directives,
    );
    let can_hang = foresight::can_hang(manifests.values(), CATALOG_AGE);
    item.status.provider_status = Some(status);
    item.warn(&mut prepared.plan);
    let mut uids = BTreeMap::new();
    let known = &mut uids;
    let run = |options: RunOptions| async move {
        let mut summary = billhook_engine::apply(clusters, prepared, &options).boxed().await?;
        *known = summary.recorded.as_mut().map(|recorded| std::mem::take(&mut recorded.uids)).unwrap_or_default();
        Ok(summary)
    };
    let ran = item.run_plan(halt, run).await;
    if let Some(status) = &mut item.status.provider_status {
        managed::add_uids(status, &uids);
    }
    ran.map(|_| can_hang)
}

async fn prepare(
    item: &mut Item,
    configuration: &ProviderConfiguration,
    target: &OpenTarget,
    clusters: &Clusters,
    age: Duration,
    halt: &Halt,
) -> Result<PreparedApply, Stop> {
    const PLANNING: &str = "planning the deployment";
    // A chart may silently omit objects of kinds that the catalog lacks.
    let age = if configuration.helm.is_some() { age.min(RENDER_AGE) } else { age };
    let catalog = halt.stoppable(item.deadline, PLANNING, target.catalog(age)).await??;
    let objects = match &configuration.helm {
        Some(helm) => charts::render(item, helm, target, &catalog, halt).await?,
        None => Objects::from_configuration(&item.name, configuration)?,
    };
    let inherited = managed::inherited(item.status.provider_status.as_ref(), &target.cluster, &catalog);
    let inherited = halt.stoppable(item.deadline, PLANNING, inherited).await??;
    let wait = if configuration.readiness.disable_default { Wait::Nothing } else { Wait::Workloads };
    let input = ApplyInput {
        directives: objects.directives,
        namespace: objects.namespace,
        policy: Some(configuration.policy.clone()),
        strategy: configuration.update_strategy,
        unrecorded: if item.is_new() { Unrecorded::New } else { Unrecorded::Inherits(inherited) },
        unowned: Unowned::TakeNew,
        prune: true,
        order: DeploymentOrder::Groups(wait),
        missing_namespaces: MissingNamespaces::Leave,
        catalog: Some(catalog),
        ..ApplyInput::new(item.release(), objects.manifests)
    };
    // Its writes require that the objects do not exist. If one exists after all, the next attempt reads it.
    let recent = Clusters { own: clusters.own.with_recent_names(), ..clusters.clone() };
    let clusters = if item.is_new() { &recent } else { clusters };
    let prepare = billhook_engine::prepare_apply(clusters, input).boxed();
    Ok(halt.stoppable(item.deadline, PLANNING, prepare).await??)
}

/// Writes the exported values to the item's Secret, and returns its name.
async fn export(item: &Item, values: Map<String, Value>) -> Result<ObjectReference, ItemFailure> {
    let known = item.status.export_ref.clone();
    let reference = known.unwrap_or_else(|| ObjectReference {
        name: format!("{}-export", item.name),
        namespace: Some(item.namespace.clone()),
    });
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": reference.name,
            "namespace": item.namespace,
            "ownerReferences": [{
                "apiVersion": "landscaper.gardener.cloud/v1alpha1",
                "kind": "DeployItem",
                "name": item.name,
                "uid": item.object.metadata.uid,
            }],
        },
        "data": { "config": ByteString(Value::Object(values).to_string().into_bytes()) },
    });
    let resource = Resource::secrets();
    let key = ObjectKey::new(resource.kind.clone(), Some(&item.namespace), reference.name.as_str());
    if item.status.export_ref.is_none() {
        // Our owner reference lets Kubernetes delete the Secret with the item, so it must not belong to another owner.
        let found = item.shared.home.get(&resource, &key).await?;
        let owner = found.as_ref().map(|found| found.pointer("/metadata/ownerReferences/0/uid"));
        if owner.is_some_and(|owner| owner.and_then(Value::as_str) != item.object.metadata.uid.as_deref()) {
            let problem = format!(
                "{key} exists and does not belong to this item: delete it, so that it can hold the exported values"
            );
            return Err(ItemFailure::configuration("ExportNotWritten", problem));
        }
    }
    let options = ApplyOptions { force_conflicts: true, ..ApplyOptions::default() };
    item.shared.home.apply(&resource, &key, &secret.to_string(), &options).await?;
    Ok(reference)
}
