//! Connects to hosts that others choose, at addresses that the rules allow.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::net::TcpStream;

use crate::{Denied, HostRules};

/// Returns the addresses of a name.
pub type Resolve = Arc<dyn Fn(String) -> Resolved + Send + Sync>;
/// The addresses of a name, once they are known.
pub type Resolved = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// How long a connection to one of several addresses may take before the next one is tried.
const PATIENCE: Duration = Duration::from_secs(5);

/// Resolves hosts and connects to them, if the rules allow all of their addresses.
///
/// A connection goes to an address that was checked: a name that resolves to another address later makes no difference.
#[derive(Clone)]
pub struct Dialer {
    /// None for hosts that the operator has chosen.
    rules: Option<Arc<HostRules>>,
    resolve: Resolve,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Default for Dialer {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

/// Why there is no connection to a host.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The rules deny it.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Its name has no address, or cannot be resolved.
    #[error("{host} cannot be resolved: {source}")]
    Resolve {
        /// The host.
        host: String,
        /// The error of the resolver.
        source: io::Error,
    },
    /// It does not accept connections.
    #[error("connect to {host}, port {port}: {source}")]
    Connect {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The error of the last address.
        source: io::Error,
    },
}

impl Dialer {
    /// Creates a dialer that resolves names as the system does.
    pub fn new(rules: Arc<HostRules>) -> Self {
        Self { rules: Some(rules), ..Self::unrestricted() }
    }

    /// Creates a dialer without rules, for hosts that the operator has chosen.
    pub fn unrestricted() -> Self {
        let resolve: Resolve = Arc::new(|host| {
            Box::pin(async move {
                let found = tokio::net::lookup_host((host, 0)).await?;
                Ok(found.map(|address| address.ip()).collect())
            })
        });
        Self { rules: None, resolve }
    }

    /// Replaces the resolver.
    #[must_use]
    pub fn resolving_with(self, resolve: Resolve) -> Self {
        Self { resolve, ..self }
    }

    /// Returns the rules; none for hosts that the operator has chosen.
    pub fn rules(&self) -> Option<&Arc<HostRules>> {
        self.rules.as_ref()
    }

    /// Checks the name of a host, for a proxy that resolves it.
    ///
    /// # Errors
    ///
    /// When the rules deny it.
    pub fn check_name(&self, host: &str) -> Result<(), Denied> {
        self.rules.as_ref().map_or(Ok(()), |rules| rules.check(host, None))
    }

    /// Checks a host, as it is written in a URL without the port, before it is connected to: a wrong address is reported early
    /// and in plain words.
    ///
    /// # Errors
    ///
    /// When the rules deny the name or any of its addresses. A name that cannot be resolved here has none: there may be a
    /// proxy that resolves it.
    pub async fn check(&self, host: &str) -> Result<(), Denied> {
        match self.addresses(host).await {
            Err(DialError::Denied(denied)) => Err(denied),
            _ => Ok(()),
        }
    }

    /// Connects to a host, as it is written in a URL.
    ///
    /// # Errors
    ///
    /// When the rules deny the name or any of its addresses, or none of them accepts the connection.
    pub async fn dial(&self, host: &str, port: u16) -> Result<TcpStream, DialError> {
        let addresses = self.addresses(host).await?;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for (index, address) in addresses.iter().enumerate() {
            let connect = TcpStream::connect(SocketAddr::new(*address, port));
            let connected = match index + 1 < addresses.len() {
                true => tokio::time::timeout(PATIENCE, connect).await.unwrap_or(Err(io::ErrorKind::TimedOut.into())),
                false => connect.await,
            };
            match connected {
                Ok(stream) => {
                    // Only a hint: without it, small requests may be delayed.
                    let _unset = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(DialError::Connect { host: host.to_owned(), port, source: last })
    }

    /// Returns the addresses of a host, at least one, all of which the rules allow.
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, DialError> {
        self.check_name(host)?;
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = literal.parse() {
            return Ok(vec![address]);
        }
        let unknown = |source| DialError::Resolve { host: host.to_owned(), source };
        let addresses = (self.resolve)(host.to_owned()).await.map_err(unknown)?;
        if let Some(rules) = &self.rules {
            addresses.iter().try_for_each(|address| rules.check(host, Some(*address)))?;
        }
        if addresses.is_empty() {
            return Err(unknown(io::ErrorKind::NotFound.into()));
        }
        Ok(addresses)
    }
}
