//! Takes the lock of a release over from another operation.

use std::time::Duration;

use billhook_cluster::TakeOver;
use billhook_objects::ReleaseName;
use billhook_plan::{Locked, PlanError, Problem};
use tokio::time::timeout;

use super::{error::OperationError, record::LAST_WRITE};
use crate::Clusters;

/// Takes the lock of a release over from another operation, and waits until that one has certainly stopped. `notify` is called
/// before the wait, with the operation and the time.
///
/// # Errors
///
/// When a controller holds the lock and is alive, another process takes it over meanwhile, or a request fails.
pub async fn take_over(
    clusters: &Clusters,
    release: &ReleaseName,
    notify: impl FnOnce(&Locked, Duration),
) -> Result<(), OperationError> {
    match clusters.inventory().take_over(release, &clusters.holder).await? {
        TakeOver::Free => {}
        TakeOver::Refused(locked) => return Err(PlanError::from(Problem::Locked(locked)).into()),
        TakeOver::Taken(taken) => {
            notify(&taken.from, taken.wait);
            if !taken.wait().await? {
                return Err(OperationError::LockLost(release.clone()));
            }
        }
    }
    Ok(())
}

/// Removes the lock that [`take_over`] took, if the operation that it was for has left it, and its former holder has stopped.
/// Otherwise, or if this takes longer than 10 s, the lock expires.
pub async fn give_back(clusters: &Clusters, release: &ReleaseName) {
    let store = clusters.inventory();
    let removal = async {
        if let Ok(Some(token)) = store.head(release).await
            && token.is_locked_by(&clusters.holder)
        {
            store.unlock(release, token).await.ok();
        }
    };
    timeout(LAST_WRITE, removal).await.ok();
}
