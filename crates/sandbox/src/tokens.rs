//! The tokens that the server has issued.

use jiff::Timestamp;

/// The issuer of all tokens, and the audience of those that are meant for the API server.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc";

/// A token of a service account.
#[derive(Clone, Debug)]
pub(crate) struct IssuedToken {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The UID of the object without which the token is not valid.
    pub(crate) bound: Option<String>,
    pub(crate) audiences: Vec<String>,
    pub(crate) expires: Timestamp,
}
