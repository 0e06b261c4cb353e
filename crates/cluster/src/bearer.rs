//! The token of a client that is renewed.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use http::{HeaderValue, header};
use kube::client::Body;

use crate::error::{Error, ErrorKind};

/// The token of a client, which can be replaced while it is used. Clones share it.
#[derive(Clone)]
pub struct Bearer(Arc<RwLock<HeaderValue>>);

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

impl Bearer {
    /// Creates a client's token.
    ///
    /// # Errors
    ///
    /// When it cannot be sent in a header.
    pub fn new(token: &str) -> Result<Self, Error> {
        Ok(Self(Arc::new(RwLock::new(value(token)?))))
    }

    /// Replaces the token: the next request has the new one.
    ///
    /// # Errors
    ///
    /// When it cannot be sent in a header.
    pub fn replace(&self, token: &str) -> Result<(), Error> {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value(token)?;
        Ok(())
    }

    pub(crate) fn add(&self, mut request: http::Request<Body>) -> http::Request<Body> {
        let value = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        request.headers_mut().insert(header::AUTHORIZATION, value);
        request
    }
}

fn value(token: &str) -> Result<HeaderValue, Error> {
    let invalid = |source| Error::new("use a token", ErrorKind::Other).with_source(source);
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(invalid)?;
    value.set_sensitive(true);
    Ok(value)
}
