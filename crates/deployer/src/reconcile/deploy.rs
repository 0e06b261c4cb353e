//! The deployment of an item: its objects, their readiness, its exports.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use billhook_cluster::ApplyOptions;
use billhook_engine::{ApplyInput, Clusters, MissingNamespaces, OperationError, Prepared};
use billhook_objects::{Manifest, ObjectKey, yaml::Document};
use billhook_plan::{Catalogs, Directives, Resource, Wait};
use billhook_policy::{ManifestPolicy, Propagation, Provider, ProviderConfiguration};
use futures::FutureExt as _;
use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::{Halt, Stop};
use crate::{
    api::{ObjectReference, Phase},
    charts,
    error::ItemFailure,
    exports,
    item::Item,
    managed,
    progress::{ItemProgress, Report},
    readiness,
    target::{OpenTarget, RENDER_AGE},
};

/// The label that Landscaper's manifest deployer puts on objects.
const LABEL: &str = "manifest.deployer.landscaper.gardener.cloud/deployitem";
/// How old the list of kinds may be. A kind that it lacks is looked for in a new one.
const AGE: Duration = Duration::from_secs(600);

/// The objects of an item, and what its configuration says of each (by index).
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) manifests: Vec<Manifest>,
    pub(crate) directives: BTreeMap<usize, Directives>,
    /// The namespace of objects that name none.
    pub(crate) namespace: Option<String>,
}

pub(super) async fn deploy(item: &mut Item, configuration: ProviderConfiguration, halt: &Halt) -> Result<(), Stop> {
    let target = halt.stoppable(item.deadline, "its Target was read", item.target()).await??;
    let clusters = item.clusters(&target, configuration.targets_of_deployment()).await?;
    let helm = configuration.helm.as_ref().filter(|helm| helm.helm_deployment);
    if managed::is_by_helm(item.status.provider_status.as_ref()).is_some_and(|by_helm| by_helm != helm.is_some()) {
        let problem = "helmDeployment cannot be changed once the item is deployed: change it back, or delete the item, \
                       with delete-without-uninstall if its objects are to stay, and create it anew";
        return Err(ItemFailure::configuration("HelmDeploymentChanged", problem).into());
    }
    match helm {
        Some(helm) => {
            let ran = item.measure("run");
            let message = format!("helm deploys release {} in namespace {}", helm.name, helm.namespace);
            item.report(Report { running: true, reason: "Applying", message }).await?;
            let objects = charts::install(item, helm, &target, halt).await?;
            ran();
            let catalog = target.catalog(AGE).await?;
            item.status.provider_status = Some(charts::provider_status(helm, &objects, &catalog));
        }
        None => deploy_objects(item, &configuration, &target, &clusters, halt).await?,
    }
    let now = item.now();
    item.status.waits(now);
    let checked = item.measure("check");
    let exported = check_and_export(item, &configuration, &target, &clusters, halt).await?;
    checked();
    if !exported.is_empty() {
        item.status.export_ref = Some(export(item, exported).await?);
    }
    let now = item.now();
    item.update(|status| {
        (status.last_error, status.last_errors, status.first_error) = (None, Vec::new(), None);
        let message = "all is deployed and ready".to_owned();
        status.report(&Report { running: false, reason: "Succeeded", message }, now);
        status.finish(Phase::Succeeded, now);
    })
    .await?;
    Ok(())
}

/// What comes after the objects: custom readiness, then the values that others want to know.
async fn check_and_export(
    item: &mut Item,
    configuration: &ProviderConfiguration,
    target: &OpenTarget,
    clusters: &Clusters,
    halt: &Halt,
) -> Result<Map<String, Value>, Stop> {
    let checks = &configuration.readiness.custom;
    let deprecated = configuration.helm.as_ref().map(|helm| helm.exports_from_manifests.as_slice());
    let exports = [deprecated.unwrap_or_default(), &configuration.exports].concat();
    if checks.is_empty() && exports.is_empty() {
        return Ok(Map::new());
    }
    // Kinds that it lacks, those of other targets among them, are looked for where they are needed.
    let catalog = target.catalog(AGE).await?;
    let catalogs = Catalogs::own(Arc::clone(&catalog));
    let (deadline, stop) = (item.deadline, &halt.token);
    let mut exported = match &configuration.helm {
        Some(helm) if exports.iter().any(|export| export.from_resource.is_none()) => {
            exports::from_values(&exports, &charts::values(item, helm, target, &catalog, halt).await?)?
        }
        _ => Map::new(),
    };
    let (progress, receiver) =
        watch::channel(ItemProgress::awaiting("WaitingForReadiness", "custom readiness checks run"));
    let work = async {
        let report = |reason| progress.send_replace(ItemProgress::awaiting("WaitingForReadiness", reason));
        readiness::wait_ready(clusters, checks, &catalogs, deadline, stop, |reason| drop(report(reason))).await?;
        progress.send_replace(ItemProgress::awaiting("Exporting", "values are exported as soon as they are there"));
        Ok::<_, ItemFailure>(exports::export(clusters, &exports, &catalogs, deadline, stop).await?)
    };
    match item.report_while(receiver, work.boxed()).await {
        Ok(of_objects) => exports::merge(&mut exported, of_objects),
        // They end with an error when they are stopped, as with any other.
        Err(_) if stop.is_cancelled() => return Err(Stop::Halted),
        Err(failure) => return Err(failure.into()),
    }
    Ok(exported)
}

/// The objects of the manifest deployer and of charts that are only rendered.
async fn deploy_objects(
    item: &mut Item,
    configuration: &ProviderConfiguration,
    target: &OpenTarget,
    clusters: &Clusters,
    halt: &Halt,
) -> Result<(), Stop> {
    let planned = item.measure("prepare");
    let prepare = async {
        match prepare(item, configuration, target, clusters, AGE).await {
            // The list of kinds may be older than the kind.
            Err(Unprepared::Operation(OperationError::Input(_))) => {
                prepare(item, configuration, target, clusters, Duration::ZERO).await
            }
            prepared => prepared,
        }
    };
    let prepared = halt.stoppable(item.deadline, "the deployment was planned", prepare.boxed()).await??;
    let api_version = match configuration.provider {
        Provider::Manifest => "manifest.deployer.landscaper.gardener.cloud/v1alpha2",
        Provider::Helm => "helm.deployer.landscaper.gardener.cloud/v1alpha1",
    };
    planned();
    // What is managed is known whether all goes well or not: it is in the record.
    let status = managed::provider_status(api_version, &item.record_name(), &prepared.manifests, &prepared.directives);
    item.status.provider_status = Some(status);
    item.carry_out(halt, |options| async move { billhook_engine::apply(clusters, prepared, &options).boxed().await })
        .await?;
    Ok(())
}

/// Why a plan could not be made.
enum Unprepared {
    Item(ItemFailure),
    Operation(OperationError),
}

impl From<Unprepared> for ItemFailure {
    fn from(error: Unprepared) -> Self {
        match error {
            Unprepared::Item(failure) => failure,
            Unprepared::Operation(error) => error.into(),
        }
    }
}

impl From<ItemFailure> for Unprepared {
    fn from(failure: ItemFailure) -> Self {
        Self::Item(failure)
    }
}

impl From<OperationError> for Unprepared {
    fn from(error: OperationError) -> Self {
        Self::Operation(error)
    }
}

async fn prepare(
    item: &Item,
    configuration: &ProviderConfiguration,
    target: &OpenTarget,
    clusters: &Clusters,
    age: Duration,
) -> Result<Prepared, Unprepared> {
    // A chart leaves out what it believes the cluster not to serve, and nobody would notice.
    let age = if configuration.helm.is_some() { age.min(RENDER_AGE) } else { age };
    let catalog = target.catalog(age).await.map_err(OperationError::from)?;
    let objects = match &configuration.helm {
        Some(helm) => charts::render(item, helm, target, &catalog).await?,
        None => of_configuration(item, configuration)?,
    };
    let provider_status = item.status.provider_status.as_ref();
    let inherited =
        managed::inherited(provider_status, &target.cluster, &catalog).await.map_err(OperationError::from)?;
    let input = ApplyInput {
        release: item.release(),
        is_new: item.is_new(),
        manifests: objects.manifests,
        directives: objects.directives,
        namespace: objects.namespace,
        policy: Some(configuration.policy.clone()),
        strategy: configuration.update_strategy,
        inherited,
        adopt: true,
        prune: true,
        wait: if configuration.readiness.disable_default { Wait::Nothing } else { Wait::Workloads },
        missing_namespaces: MissingNamespaces::Leave,
        propagation: Propagation::Background,
        notes: Vec::new(),
        catalog: Some(catalog),
    };
    Ok(billhook_engine::prepare_apply(clusters, input).boxed().await?)
}

/// Puts the label on manifests by which Landscaper's own deployers know what an item manages; a name that is too long for
/// a label they could not put there either.
pub(crate) fn labelled(manifests: &mut [Manifest], label: &str, name: &str) {
    if name.len() <= 63 {
        manifests.iter_mut().for_each(|manifest| manifest.set_label(label, name));
    }
}

/// The manifests of a configuration, lists expanded, with the label that Landscaper's own deployer knows them by.
fn of_configuration(item: &Item, configuration: &ProviderConfiguration) -> Result<Objects, OperationError> {
    let mut objects = Objects::default();
    let mut problems = Vec::new();
    for (index, entry) in configuration.manifests.iter().enumerate() {
        if entry.policy == ManifestPolicy::Ignore {
            continue;
        }
        let place = format!("config.manifests[{index}]");
        let document = Document { value: entry.manifest.clone(), line: index };
        match Manifest::from_document(document, &place.as_str().into()) {
            Ok(manifests) => {
                let directives = Directives {
                    policy: entry.policy,
                    annotate_before_create: entry.annotate_before_create.clone(),
                    patch_after: entry.patch_after_deployment.clone(),
                    before_delete: managed::before_delete(
                        &entry.annotate_before_delete,
                        entry.patch_before_delete.as_ref(),
                    ),
                };
                for manifest in manifests {
                    if directives != Directives::default() {
                        objects.directives.insert(objects.manifests.len(), directives.clone());
                    }
                    objects.manifests.push(manifest);
                }
            }
            Err(errors) => problems.extend(errors.iter().map(|error| format!("{place}: {}", error.problem))),
        }
    }
    labelled(&mut objects.manifests, LABEL, &item.name);
    if problems.is_empty() { Ok(objects) } else { Err(OperationError::Input(problems)) }
}

/// Writes the exported values into the Secret of the item, and says which it is.
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
        // With our owner reference the Secret goes when the item does: it must not be somebody else's.
        let found = item.shared.home.get(&resource, &key).await?;
        let owner = found.as_ref().map(|found| found.pointer("/metadata/ownerReferences/0/uid"));
        if owner.is_some_and(|owner| owner.and_then(Value::as_str) != item.object.metadata.uid.as_deref()) {
            let problem =
                format!("{key} exists and is not of this item: the exported values would replace it; remove it");
            return Err(ItemFailure::configuration("ExportNotWritten", problem));
        }
    }
    let options = ApplyOptions { force_conflicts: true, dry_run: false };
    item.shared.home.apply(&resource, &key, &secret.to_string(), &options).await?;
    Ok(reference)
}
