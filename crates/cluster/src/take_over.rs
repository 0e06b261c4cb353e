//! Moves the fields of other field managers of billhook to the release's own.

use billhook_objects::{ObjectKey, Uid};
use billhook_plan::Resource;
use serde_json::json;

use crate::{
    cluster::Cluster,
    decode::Managed,
    error::{Error, ErrorKind},
    managed::taken_over,
    patch::{Patch, PatchKind},
};

/// How often it is tried while other clients change the object.
const TRIES: u32 = 8;

impl Cluster {
    /// Moves the fields that the `former` managers have applied to an object with this UID to `manager`, so that an apply by
    /// it neither conflicts with them nor keeps those that its manifest no longer has.
    ///
    /// # Errors
    ///
    /// When the object cannot be read or patched.
    pub(crate) async fn take_over_fields(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        uid: &Uid,
        manager: &str,
        former: &[String],
    ) -> Result<(), Error> {
        let mut last = Ok(());
        for _ in 0..TRIES {
            let found = self.fetch_one::<Managed>(resource, key.namespace.as_deref(), &key.name, true).await?;
            let Some(Managed { meta, entries }) = found.filter(|found| found.meta.uid == *uid) else { return Ok(()) };
            let Some(entries) = taken_over(entries, manager, former) else { return Ok(()) };
            // As `csaupgrade` of client-go: the version is the lock, and the entries are replaced as a whole.
            let body = json!([
                {"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version},
                {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            ]);
            let patch = Patch { subresource: None, kind: PatchKind::Json, body: &body };
            match self.patch_as(manager, resource, key, &patch, false).await {
                Err(error) if matches!(error.kind(), ErrorKind::Conflict(_)) => last = Err(error),
                done => return done.map(drop),
            }
        }
        last
    }
}
