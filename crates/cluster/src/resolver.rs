//! Resolves the names of hosts that others choose, and checks the addresses.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use billhook_hosts::HostRules;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::{BoxError, Service};

/// The system's resolver. With rules, it fails for a name with any address that they deny.
///
/// The client connects to the addresses that it returns, so a name that resolves to another address later makes no difference.
#[derive(Clone)]
pub(crate) struct Resolver {
    system: GaiResolver,
    rules: Option<Arc<HostRules>>,
}

impl Resolver {
    pub(crate) fn new(rules: Option<Arc<HostRules>>) -> Self {
        Self { system: GaiResolver::new(), rules }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.system.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (found, rules) = (self.system.call(name.clone()), self.rules.clone());
        Box::pin(async move {
            let addresses: Vec<_> = found.await?.collect();
            if let Some(rules) = rules {
                addresses.iter().try_for_each(|address| rules.check(name.as_str(), Some(address.ip())))?;
            }
            Ok(addresses.into_iter())
        })
    }
}
