//! What a 404 means: only one that names the object says that the object is gone.
//!
//! A path that is not served answers 404, too: its CRD is gone, or it stopped serving this version while the objects
//! live on in another one. So does a gateway on the way that knows no backend. Discovery tells these apart.

use std::{borrow::Cow, time::Duration};

use billhook_objects::GroupKind;
use billhook_plan::Resource;
use tokio::time::{Instant, sleep};

use crate::{
    cluster::Cluster,
    error::{Error, ErrorKind},
    transport::{Call, Reply},
};

/// How long the answer of discovery counts: of many requests that met the same 404 one asks.
const FRESH: Duration = Duration::from_millis(500);
/// How often a request is sent anew whose path should be there: the list of kinds may lag behind a CRD that went.
const AGAIN: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// What a 404 that names no object means.
pub(crate) enum Missing {
    /// The kind is not served in any version: it is gone with all its objects.
    Kind,
    /// The kind is served in this version, and not in the one that was asked.
    Elsewhere(String),
    /// It is served in this very version, or nobody can say. The failure counts as one that passes.
    Unclear(Error),
}

/// What discovery says of a kind.
#[derive(Clone, Debug)]
pub(crate) enum Served {
    /// In these versions, the preferred one first.
    In(Vec<String>),
    /// A version of its group does not answer, or discovery itself.
    Perhaps,
}

/// The last answers of discovery, and when each was asked for.
pub(crate) type Answers = std::collections::HashMap<GroupKind, (Instant, Served)>;

impl Cluster {
    /// Sends a request about one object; none where the object is gone, or its kind with it. A kind that is served in
    /// another version is asked in that one.
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
            match self.missing(&resource, error).await {
                Missing::Kind => return Ok(None),
                Missing::Elsewhere(version) if attempt < AGAIN => resource.to_mut().version = version,
                Missing::Unclear(_) if call.retry && attempt < AGAIN => sleep(PAUSE).await,
                Missing::Elsewhere(version) => {
                    let message = format!("{} is served in version {version} now", resource.kind);
                    return Err(Error::new(call.what, ErrorKind::Unreachable).because(message));
                }
                Missing::Unclear(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Asks discovery what a 404 means that names no object.
    pub(crate) async fn missing(&self, resource: &Resource, mut error: Error) -> Missing {
        match self.served(&resource.kind).await {
            Served::In(versions) if versions.is_empty() => return Missing::Kind,
            Served::In(versions) if !versions.contains(&resource.version) => {
                if let Some(version) = versions.into_iter().next() {
                    return Missing::Elsewhere(version);
                }
            }
            Served::In(_) | Served::Perhaps => {}
        }
        error.kind = ErrorKind::Unreachable;
        Missing::Unclear(error)
    }

    /// One request, whoever asks at the same time. It reads the list of all groups and not that of one: that list is
    /// always there, where the absence of a single group would be one more 404 to be judged.
    async fn served(&self, kind: &GroupKind) -> Served {
        let asked = Instant::now();
        let mut answers = self.inner.served.lock().await;
        if let Some((at, served)) = answers.get(kind)
            && asked.saturating_duration_since(*at) < FRESH
        {
            return served.clone();
        }
        let at = Instant::now();
        let (at, served) = match self.discover(kind).await {
            Ok(served) => (at, served),
            Err(error) => {
                tracing::debug!(%error, "whether a kind is still served cannot be told");
                // Who waited meanwhile need not wait as long once more.
                (Instant::now(), Served::Perhaps)
            }
        };
        answers.insert(kind.clone(), (at, served.clone()));
        served
    }
}
