//! Deletes the objects of an item.

use std::time::Duration;

use billhook_engine::{BackupMode, DeleteInput, PreparedDelete, Subject};
use billhook_objects::ObjectKey;
use billhook_plan::{NoteKind, Resource, Uncovered, Unlabelled};
use billhook_policy::{Propagation, ProviderConfiguration};

use futures::FutureExt as _;

use crate::{
    charts,
    error::ItemFailure,
    events::Severity,
    halt::{Halt, Stop},
    item::Item,
    managed,
    progress::Report,
    target::OpenTarget,
    trigger::is_deleted_without_uninstall,
};

/// The maximum age of the catalog of kinds: items that are deleted together share one.
const CATALOG_AGE: Duration = Duration::from_secs(5);

/// Deletes the objects of an item in the order of its policy, then removes our finalizer.
pub(super) async fn delete(
    item: &mut Item,
    configuration: Result<ProviderConfiguration, ItemFailure>,
    halt: &Halt,
) -> Result<(), Stop> {
    if is_deleted_without_uninstall(&item.object) {
        return Ok(abandon(item).await?);
    }
    let untouched = is_untouched(item).await?;
    if untouched && configuration.is_err() {
        return Ok(item.remove_finalizer().await?);
    }
    let configuration = configuration?;
    let reached = async {
        let target = item.target().await?;
        if untouched {
            target.version(CATALOG_AGE).await?;
        }
        Ok::<_, ItemFailure>(target)
    };
    // An answer is not worth the item's time: whether the server answers is known after some seconds.
    let deadline = item.deadline.filter(|_| !untouched);
    let target = match halt.stoppable(deadline, "reading the Target", reached).await? {
        Err(_) if untouched => return Ok(item.remove_finalizer().await?),
        target => target?,
    };
    // The configuration may have changed since the item was deployed.
    let by_helm = managed::is_by_helm(item.status.provider_status.as_ref());
    if let Some(helm) = configuration.helm.as_ref().filter(|helm| by_helm.unwrap_or(helm.helm_deployment)) {
        let ran = item.measure("run");
        let message = format!("helm is deleting release {} in namespace {}", helm.name, helm.namespace);
        item.report(Report { running: true, reason: "Deleting", message }).await?;
        charts::uninstall(item, helm, &target, halt).await?;
        ran();
        return Ok(item.remove_finalizer().await?);
    }
    let clusters = item.clusters(&target, configuration.targets_of_deletion()).await?;
    let planned = item.measure("prepare");
    let prepare = async {
        let prepared = prepare(item, &configuration, &target, &clusters, CATALOG_AGE).await?;
        // The objects of a kind that is not served count as deleted, so only a new catalog can tell.
        match prepared.plan.notes.iter().any(|note| matches!(note.kind, NoteKind::NotServed(_))) {
            true => prepare(item, &configuration, &target, &clusters, Duration::ZERO).await,
            false => Ok(prepared),
        }
    };
    let mut prepared = halt.stoppable(item.deadline, "planning the deletion", prepare.boxed()).await??;
    planned();
    let clusters = &clusters;
    let remaining = remaining(&prepared.plan.uncovered);
    item.warn(&mut prepared.plan);
    item.run_plan(halt, |options| async move { billhook_engine::delete(clusters, prepared, &options).boxed().await })
        .await?;
    if let Some(remaining) = remaining {
        item.record(Severity::Normal, "ObjectsStay", &remaining);
    }
    Ok(item.remove_finalizer().await?)
}

/// Returns whether nothing of an item was ever applied: there is neither a record nor a provider status, which helm's releases
/// have from before helm first runs.
async fn is_untouched(item: &Item) -> Result<bool, ItemFailure> {
    if item.status.provider_status.is_some() {
        return Ok(false);
    }
    let secrets = Resource::secrets();
    let record = ObjectKey::new(secrets.kind.clone(), Some(&item.namespace), item.record_name());
    Ok(item.shared.home.get(&secrets, &record).await?.is_none())
}

/// Deletes the record and our finalizer, but none of the objects. Failures are retried.
async fn abandon(item: &mut Item) -> Result<(), ItemFailure> {
    let forgotten = billhook_engine::forget_record(&item.shared.home, &item.release()).await;
    forgotten.map_err(|error| ItemFailure::from(error).transient())?;
    item.remove_finalizer().await.map_err(ItemFailure::transient)
}

/// Lists the objects that the deletion leaves, with the reasons; `None` if it leaves none.
fn remaining(uncovered: &[Uncovered]) -> Option<String> {
    const NAMED: usize = 10;
    let uncovered: Vec<_> = uncovered.iter().filter(|uncovered| uncovered.deleted_with.is_none()).collect();
    let shown = uncovered.iter().take(NAMED).map(|remains| format!("{} ({})", remains.object, remains.reason()));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if uncovered.len() > NAMED {
        text += &format!(" and {} more", uncovered.len() - NAMED);
    }
    (!uncovered.is_empty()).then(|| format!("not deleted: {text}"))
}

async fn prepare(
    item: &Item,
    configuration: &ProviderConfiguration,
    target: &OpenTarget,
    clusters: &billhook_engine::Clusters,
    age: Duration,
) -> Result<PreparedDelete, Stop> {
    let catalog = target.catalog(age).await?;
    let input = DeleteInput {
        subject: Subject::Release(item.release()),
        policy: Some(configuration.policy.clone()),
        propagation: Propagation::Background,
        max_deletions: None,
        namespace: item.namespace.clone(),
        inherited: managed::inherited(item.status.provider_status.as_ref(), &target.cluster, &catalog).await?,
        require_record: false,
        unlabelled: Unlabelled::Leave,
        retain: false,
        verify: false,
        backup: BackupMode::Never,
        catalog: Some(catalog),
    };
    Ok(billhook_engine::prepare_delete(clusters, input).boxed().await?)
}
