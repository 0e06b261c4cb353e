//! Access to a cluster by tokens of a ServiceAccount in the namespace of the Target: `oidcConfig` and `selfConfig`.

use std::{sync::Arc, time::Duration};

use billhook_cluster::{Bearer, Cluster, Error, ErrorKind, ServiceToken};
use serde_json::{Value, json};
use tokio::{sync::watch, task::AbortHandle, time::Instant};

use super::access::{base64, parse_yaml, to_base64};
use crate::error::ItemFailure;

/// The lifetime of tokens that Landscaper requests by default.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(86_400);
/// The shortest lifetime that an API server accepts.
const SHORTEST: Duration = Duration::from_secs(600);
/// How much longer than the work a token must be valid.
const RESERVE: Duration = Duration::from_secs(60);
/// The pause after a renewal that failed.
const PAUSE: Duration = Duration::from_secs(30);

/// The cluster that a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The home cluster.
    Home,
    /// Another one, which trusts the issuer of the home cluster's tokens. It is a kubeconfig without credentials.
    Other { kubeconfig: String, audiences: Vec<String> },
}

/// `oidcConfig` or `selfConfig` in the configuration of a Target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenConfig {
    pub(super) place: Place,
    /// The ServiceAccount in the namespace of the Target.
    account: String,
    lifetime: Duration,
}

impl TokenConfig {
    /// Reads the configuration of a Target in this namespace; none if it names no ServiceAccount.
    pub(super) fn read(config: &Value, namespace: &str) -> Result<Option<Self>, String> {
        let field = |name: &'static str| match config.get(name) {
            None | Some(Value::Null) => Ok(None),
            // In a Secret, each field is a text.
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => parse_yaml(text).map(|value| Some((name, value))),
            Some(value) => Ok(Some((name, value.clone()))),
        };
        let (oidc, own) = (field("oidcConfig")?, field("selfConfig")?);
        let has_kubeconfig =
            config.get("kubeconfig").is_some_and(|kubeconfig| !kubeconfig.is_null() && kubeconfig != "");
        let (name, value) = match (oidc, own) {
            (None, None) => return Ok(None),
            (Some(found), None) | (None, Some(found)) if !has_kubeconfig => found,
            _ => return Err("only one of kubeconfig, oidcConfig and selfConfig may be set".to_owned()),
        };
        Self::of(name, &value, namespace).map(Some).map_err(|problem| format!("{name}{problem}"))
    }

    fn of(name: &str, value: &Value, namespace: &str) -> Result<Self, String> {
        let fields = value.as_object().ok_or(" must be an object")?;
        let known: &[&str] = match name {
            "oidcConfig" => &["server", "caData", "audience", "serviceAccount", "expirationSeconds"],
            _ => &["serviceAccount", "expirationSeconds"],
        };
        if let Some(unknown) = fields.keys().find(|field| !known.contains(&field.as_str())) {
            return Err(format!(".{unknown} is not a field of it"));
        }
        let account = &value["serviceAccount"];
        let elsewhere = account["namespace"].as_str().is_some_and(|of| !of.is_empty() && of != namespace);
        if elsewhere {
            return Err(".serviceAccount.namespace: only a ServiceAccount in the namespace of the Target can be used"
                .to_owned());
        }
        let account = account["name"].as_str().filter(|name| is_name(name));
        let account = account.ok_or(".serviceAccount.name must be the name of a ServiceAccount")?.to_owned();
        let lifetime = match &value["expirationSeconds"] {
            Value::Null => DEFAULT_LIFETIME,
            seconds => seconds
                .as_u64()
                .map(Duration::from_secs)
                .filter(|lifetime| (SHORTEST..=Duration::from_secs(1 << 32)).contains(lifetime))
                .ok_or(".expirationSeconds must be at least 600")?,
        };
        if name != "oidcConfig" {
            return Ok(Self { place: Place::Home, account, lifetime });
        }
        let server = value["server"].as_str().ok_or(".server must be an address such as https://api.example:6443")?;
        let mut cluster = json!({ "server": server });
        match &value["caData"] {
            Value::Null => {}
            Value::String(data) if data.is_empty() => {}
            Value::String(data) => {
                cluster["certificate-authority-data"] = base64(data).ok_or(".caData must be in base64")?.into();
            }
            _ => return Err(".caData must be in base64".to_owned()),
        }
        let audiences = value["audience"].as_array().map(Vec::as_slice).unwrap_or_default();
        let audiences: Option<Vec<_>> =
            audiences.iter().map(|one| one.as_str().filter(|one| !one.is_empty()).map(str::to_owned)).collect();
        let audiences = audiences.filter(|audiences| !audiences.is_empty()).ok_or(
            ".audience must be a list with the audience of the target cluster: without it, the tokens would give access to \
             the home cluster",
        )?;
        let kubeconfig = kubeconfig(cluster);
        Ok(Self { place: Place::Other { kubeconfig, audiences }, account, lifetime })
    }

    fn audiences(&self) -> &[String] {
        match &self.place {
            Place::Home => &[],
            Place::Other { audiences, .. } => audiences,
        }
    }
}

/// Returns a kubeconfig without credentials.
fn kubeconfig(cluster: Value) -> String {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "target",
        "contexts": [{ "name": "target", "context": { "cluster": "target" } }],
        "clusters": [{ "name": "target", "cluster": cluster }],
    });
    kubeconfig.to_string()
}

/// Returns a kubeconfig for the home cluster without credentials: with its address and certificates only.
pub(super) fn kubeconfig_of_home(home: &kube::Config) -> String {
    let mut cluster = json!({ "server": home.cluster_url.to_string() });
    if home.accept_invalid_certs {
        cluster["insecure-skip-tls-verify"] = true.into();
    } else if let Some(certificates) = &home.root_cert {
        let pem: String = certificates.iter().map(|der| pem(der)).collect();
        cluster["certificate-authority-data"] = to_base64(pem.as_bytes()).into();
    }
    if let Some(name) = &home.tls_server_name {
        cluster["tls-server-name"] = name.as_str().into();
    }
    if let Some(proxy) = &home.proxy_url {
        cluster["proxy-url"] = proxy.to_string().into();
    }
    kubeconfig(cluster)
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", to_base64(der))
}

/// Whether a text can be the name of an object, and no path.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !name.is_empty() && name.len() <= 253 && name.bytes().all(plain) && !name.contains("..") && !name.starts_with('.')
}

/// The tokens of a Target. One is renewed as long as this exists.
pub(super) struct Tokens {
    source: Arc<Source>,
    bearer: Bearer,
    newest: watch::Receiver<Current>,
    renewal: AbortHandle,
}

/// A token, and when it expires.
#[derive(Clone)]
struct Current {
    token: String,
    expires: Instant,
}

/// Where tokens come from.
struct Source {
    home: Cluster,
    namespace: String,
    config: TokenConfig,
}

impl Drop for Tokens {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl Tokens {
    /// Requests the first token of a Target in a namespace.
    ///
    /// # Errors
    ///
    /// When the ServiceAccount does not exist, when the controller may not request its tokens, or when the audience is that of
    /// the home cluster: the server that the author of the Target has chosen would get access to it.
    pub(super) async fn start(home: &Cluster, namespace: &str, config: TokenConfig) -> Result<Self, ItemFailure> {
        let source = Arc::new(Source { home: home.clone(), namespace: namespace.to_owned(), config });
        source.check_audiences().await?;
        let first = source.request(source.config.lifetime).await?;
        let bearer = Bearer::new(&first.token)?;
        let (sender, newest) = watch::channel(Current::from(first));
        let renewal = tokio::spawn(renew(Arc::clone(&source), bearer.clone(), sender)).abort_handle();
        Ok(Self { source, bearer, newest, renewal })
    }

    /// Returns the token of our own client.
    pub(super) fn bearer(&self) -> Bearer {
        self.bearer.clone()
    }

    /// Returns whether the newest token is no longer valid.
    pub(super) fn is_expired(&self) -> bool {
        self.newest.borrow().expires <= Instant::now()
    }

    /// Returns a token for a program, which cannot renew it: one that is valid until this time, or for a day.
    ///
    /// # Errors
    ///
    /// When a new one is needed and cannot be requested.
    pub(super) async fn lasting(&self, until: Option<Instant>) -> Result<String, ItemFailure> {
        let needed = until.map_or(DEFAULT_LIFETIME, |until| until.saturating_duration_since(Instant::now())) + RESERVE;
        let newest = self.newest.borrow().clone();
        if newest.expires >= Instant::now() + needed {
            return Ok(newest.token);
        }
        let lifetime = needed.max(SHORTEST).max(self.source.config.lifetime);
        Ok(self.source.request(lifetime).await?.token)
    }
}

impl From<ServiceToken> for Current {
    fn from(token: ServiceToken) -> Self {
        Self { expires: Instant::now() + token.lasts, token: token.token }
    }
}

impl Source {
    async fn request(&self, lifetime: Duration) -> Result<ServiceToken, ItemFailure> {
        let requested =
            self.home.request_token(&self.namespace, &self.config.account, self.config.audiences(), lifetime);
        requested.await.map_err(|error| self.explain(error))
    }

    fn explain(&self, error: Error) -> ItemFailure {
        let account = format!("{}/{}", self.namespace, self.config.account);
        if *error.kind() == ErrorKind::Forbidden {
            let problem = format!(
                "the controller may not request tokens of ServiceAccount {account}: allow it to create serviceaccounts/token \
                 in namespace {}, or use a kubeconfig in the Target",
                self.namespace
            );
            return ItemFailure { message: problem, ..ItemFailure::from(error) }.transient();
        }
        if error.code() == Some(404) {
            return ItemFailure::missing("RequestToken", format!("ServiceAccount {account} does not exist"));
        }
        error.into()
    }

    /// Rejects audiences that the home cluster accepts for itself.
    async fn check_audiences(&self) -> Result<(), ItemFailure> {
        let Place::Other { audiences, .. } = &self.config.place else { return Ok(()) };
        let own = self.home.request_token(&self.namespace, &self.config.account, &[], SHORTEST).await;
        let own = own.map_err(|error| self.explain(error))?.audiences;
        match audiences.iter().find(|audience| own.contains(audience)) {
            Some(audience) => Err(ItemFailure::configuration(
                "ReadTarget",
                format!(
                    "oidcConfig.audience: {audience:?} is an audience of the home cluster, so that the server of the Target would \
                     get access to it: use another audience, or selfConfig to deploy to the home cluster"
                ),
            )),
            None => Ok(()),
        }
    }
}

/// Replaces the token when a fifth of its lifetime is left.
async fn renew(source: Arc<Source>, bearer: Bearer, newest: watch::Sender<Current>) {
    let mut pause = next(&newest.borrow());
    loop {
        tokio::time::sleep(pause).await;
        let renewed = match source.request(source.config.lifetime).await {
            Ok(token) => bearer.replace(&token.token).map(|()| token).map_err(ItemFailure::from),
            Err(failure) => Err(failure),
        };
        pause = match renewed {
            Ok(token) => {
                let current = Current::from(token);
                let pause = next(&current);
                newest.send_replace(current);
                pause
            }
            Err(failure) => {
                let account = format!("{}/{}", source.namespace, source.config.account);
                tracing::warn!(account, reason = failure.reason, "a token could not be renewed; trying again");
                PAUSE
            }
        };
    }
}

fn next(current: &Current) -> Duration {
    (current.expires.saturating_duration_since(Instant::now()) * 4 / 5).max(PAUSE)
}

#[cfg(test)]
mod tests;
