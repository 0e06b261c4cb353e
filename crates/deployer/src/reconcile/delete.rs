//! The deletion of what an item deployed.

use std::time::Duration;

use billhook_engine::{DeleteInput, Prepared, Subject};
use billhook_plan::{NoteCode, Uncovered};
use billhook_policy::{Propagation, ProviderConfiguration};

use futures::FutureExt as _;

use super::{Halt, Stop};
use crate::{
    error::ItemFailure, events::Severity, item::Item, managed, progress::Report, target::OpenTarget,
    trigger::is_to_forget,
};

/// How old the list of kinds may be: items that are deleted together share one.
const AGE: Duration = Duration::from_secs(5);

pub(super) async fn delete(
    item: &mut Item,
    configuration: Result<ProviderConfiguration, ItemFailure>,
    halt: &Halt,
) -> Result<(), Stop> {
    if is_to_forget(&item.object) {
        return Ok(forget(item).await?);
    }
    let configuration = configuration?;
    let target = halt.stoppable(item.deadline, "its Target was read", item.target()).await??;
    // How it was deployed counts, whatever the configuration says by now.
    let by_helm = managed::is_by_helm(item.status.provider_status.as_ref());
    if let Some(helm) = configuration.helm.as_ref().filter(|helm| by_helm.unwrap_or(helm.helm_deployment)) {
        let ran = item.measure("run");
        let message = format!("helm deletes release {} in namespace {}", helm.name, helm.namespace);
        item.report(Report { running: true, reason: "Deleting", message }).await?;
        crate::charts::uninstall(item, helm, &target, halt).await?;
        ran();
        return Ok(item.let_go().await?);
    }
    let clusters = item.clusters(&target, configuration.targets_of_deletion()).await?;
    let planned = item.measure("prepare");
    let prepare = async {
        let prepared = prepare(item, &configuration, &target, &clusters, AGE).await?;
        // A kind that is not served has nothing to delete, so that must not rest on an old list.
        match prepared.plan.notes.iter().any(|note| note.code == NoteCode::NotServed) {
            true => prepare(item, &configuration, &target, &clusters, Duration::ZERO).await,
            false => Ok(prepared),
        }
    };
    let prepared = halt.stoppable(item.deadline, "the deletion was planned", prepare.boxed()).await??;
    planned();
    let clusters = &clusters;
    let stay = stay(&prepared.plan.uncovered);
    item.carry_out(halt, |options| async move { billhook_engine::delete(clusters, prepared, &options).boxed().await })
        .await?;
    if let Some(stay) = stay {
        item.record(Severity::Normal, "ObjectsStay", &stay);
    }
    Ok(item.let_go().await?)
}

/// Leaves the objects where they are, and the item goes.
async fn forget(item: &mut Item) -> Result<(), ItemFailure> {
    let again = |failure: ItemFailure| ItemFailure { passes: true, ..failure };
    billhook_engine::forget(&item.shared.home, &item.release()).await.map_err(|error| again(error.into()))?;
    item.let_go().await.map_err(again)
}

/// What the deletion leaves, and why; none where it leaves nothing.
fn stay(uncovered: &[Uncovered]) -> Option<String> {
    const SHOWN: usize = 10;
    let shown = uncovered.iter().take(SHOWN).map(|stays| format!("{} ({})", stays.object, stays.reason));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if uncovered.len() > SHOWN {
        text += &format!(" and {} more", uncovered.len() - SHOWN);
    }
    (!uncovered.is_empty()).then(|| format!("not deleted: {text}"))
}

async fn prepare(
    item: &Item,
    configuration: &ProviderConfiguration,
    target: &OpenTarget,
    clusters: &billhook_engine::Clusters,
    age: Duration,
) -> Result<Prepared, Stop> {
    let catalog = target.catalog(age).await?;
    let input = DeleteInput {
        subject: Subject::Release(item.release()),
        policy: Some(configuration.policy.clone()),
        propagation: Propagation::Background,
        max_deletions: None,
        look_for_foreign: false,
        namespace: item.namespace.clone(),
        inherited: managed::inherited(item.status.provider_status.as_ref(), &target.cluster, &catalog).await?,
        require_record: false,
        catalog: Some(catalog),
    };
    Ok(billhook_engine::prepare_delete(clusters, input).boxed().await?)
}
