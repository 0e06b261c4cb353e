//! Tokens of ServiceAccounts.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::{cluster::Cluster, counts::Verb, error::Error, request::Call, url};

/// A token of a ServiceAccount.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceToken {
    /// The token.
    pub token: String,
    /// How long it is valid from when it was requested.
    pub lasts: Duration,
    /// The audiences that it is meant for.
    pub audiences: Vec<String>,
}

impl fmt::Debug for ServiceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lasts, audiences, .. } = self;
        f.debug_struct("ServiceToken").field("lasts", lasts).field("audiences", audiences).finish_non_exhaustive()
    }
}

/// The answer to a request for a token.
#[derive(Deserialize)]
struct TokenRequest {
    spec: Spec,
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    audiences: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: String,
    expiration_timestamp: Timestamp,
}

impl Cluster {
    /// Requests a token of a ServiceAccount. Without audiences, it is meant for the API server. The server may choose another
    /// lifetime than this one.
    ///
    /// # Errors
    ///
    /// When the ServiceAccount does not exist, when the caller lacks the right to create `serviceaccounts/token`, or when the
    /// request fails.
    pub async fn request_token(
        &self,
        namespace: &str,
        account: &str,
        audiences: &[String],
        lasts: Duration,
    ) -> Result<ServiceToken, Error> {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": audiences, "expirationSeconds": lasts.as_secs()},
        });
        let what = format!("request a token of ServiceAccount {namespace}/{account}");
        let call = Call::new(Verb::Create, what, url::service_account_token(namespace, account));
        let reply = self.send(&call.body("application/json", request.to_string())).await?;
        let answer: TokenRequest = reply.json()?;
        // Both times are the server's.
        let now = reply.date().map(Timestamp::as_second).or_else(|| self.server_time());
        let expires = answer.status.expiration_timestamp.as_second();
        let left = now.and_then(|now| u64::try_from(expires.saturating_sub(now)).ok()).map(Duration::from_secs);
        Ok(ServiceToken {
            token: answer.status.token,
            lasts: left.map_or(lasts, |left| left.min(lasts)),
            audiences: answer.spec.audiences,
        })
    }
}
