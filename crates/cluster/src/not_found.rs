//! The meaning of a 404: only one that names the object proves that the object is gone.
//!
//! A path that is not served also answers 404: its CRD was deleted, or no longer serves this version while the objects
//! remain in another one. So does a gateway in between that has no backend. Discovery tells these cases apart.

use std::{
    borrow::Cow,
    sync::{Arc, PoisonError},
    time::Duration,
};

use billhook_objects::GroupKind;
use billhook_plan::Resource;
use tokio::time::sleep;

use crate::{
    cluster::{Cluster, ServedVersions},
    error::{Error, ErrorKind},
    request::{Call, Reply},
    shared_answer::SharedAnswer,
};

/// How long an answer of discovery is reused: of many requests that got the same 404, only one asks discovery.
const RECENT: Duration = Duration::from_millis(500);
/// How often a request whose path should be served is repeated: discovery may lag behind the deletion of a CRD.
const RETRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// Why the path of a kind answers 404.
pub(crate) enum NotServed {
    /// The kind is not served in any version: it is gone with all its objects.
    Anywhere,
    /// The kind is served in another version.
    InThisVersion { other: String },
    /// The kind is served in this version, or discovery cannot tell. The failure is transient.
    Unclear(Error),
}

impl Cluster {
    /// Sends a request about one object; none if the object, or its kind, is gone. If the kind is served in another
    /// version, the request is sent to that one.
    pub(crate) async fn send_about(
        &self,
        resource: &Resource,
        call: impl Fn(&Resource) -> Call,
    ) -> Result<Option<Reply>, Error> {
        let mut resource = Cow::Borrowed(resource);
        for attempt in 0.. {
            let call = call(&resource);
            let error = match self.send(&call).await {
                Ok(reply) => return Ok(Some(reply)),
                Err(error) if error.object_not_found() => return Ok(None),
                Err(error) if error.code() != Some(404) => return Err(error),
                Err(error) => error,
            };
            match self.why_not_served(&resource, error).await {
                NotServed::Anywhere => return Ok(None),
                NotServed::InThisVersion { other } if attempt < RETRIES => resource.to_mut().version = other,
                NotServed::Unclear(_) if call.retry && attempt < RETRIES => sleep(PAUSE).await,
                NotServed::InThisVersion { other } => {
                    let message = format!("{} is now served in version {other}", resource.kind);
                    return Err(Error::new(call.what, ErrorKind::Unreachable).because(message));
                }
                NotServed::Unclear(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Asks discovery for the reason of a 404 that names no object.
    pub(crate) async fn why_not_served(&self, resource: &Resource, error: Error) -> NotServed {
        let served = match self.served(&resource.kind).await {
            Some(versions) if versions.is_empty() => return NotServed::Anywhere,
            served => served.unwrap_or_default(),
        };
        let other = served.first().filter(|_| !served.contains(&resource.version));
        match other.cloned() {
            Some(other) => NotServed::InThisVersion { other },
            None => NotServed::Unclear(error.with_kind(ErrorKind::Unreachable)),
        }
    }

    /// Returns the versions of a kind by one request for all concurrent callers. It reads the list of all groups, which
    /// always exists: the document of a single group would be one more 404 to interpret.
    async fn served(&self, kind: &GroupKind) -> ServedVersions {
        let answer = {
            let mut answers = self.inner.served.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(answers.entry(kind.clone()).or_insert_with(|| Arc::new(SharedAnswer::new(RECENT))))
        };
        let discover = async {
            self.discover(kind)
                .await
                .inspect_err(|error| tracing::debug!(%error, "cannot tell whether a kind is still served"))
        };
        answer.get(RECENT, discover).await.unwrap_or_default()
    }
}
