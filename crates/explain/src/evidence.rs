//! What a diagnosis asks, and the answers.

use billhook_objects::Resource;
use serde_json::Value;

/// One request. Queries are compared, so that many diagnoses can share the answer to one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Query {
    /// Reads one object.
    Get {
        /// Its kind.
        resource: Resource,
        /// Its namespace; none for a cluster-scoped object.
        namespace: Option<String>,
        /// Its name.
        name: String,
        /// How much of it.
        content: Content,
    },
    /// Lists objects: one page.
    List {
        /// Their kind.
        resource: Resource,
        /// Their namespace; none for all.
        namespace: Option<String>,
        /// A `fieldSelector`; empty for all.
        fields: String,
        /// The size of the page; what is beyond it stays unknown.
        limit: u32,
        /// How much of each.
        content: Content,
    },
    /// Reads the discovery document at this path, such as `/apis/metrics.k8s.io/v1beta1`.
    Discovery(String),
    /// Asks whether a request is allowed.
    Access(Access),
    /// A request with `dryRun=All`, which runs admission and changes nothing.
    Probe(Probe),
}

/// How much of an object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Content {
    /// Only its metadata.
    Metadata,
    /// All of it. Never asked of Secrets.
    Full,
}

/// A question to the authorizer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    /// The user, such as `system:serviceaccount:shop:operator`.
    pub user: String,
    /// The verb.
    pub verb: String,
    /// The kind.
    pub resource: Resource,
    /// The namespace; none for a cluster-scoped object.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// A request that is only tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Probe {
    /// The deletion of an object.
    Delete {
        /// Its kind.
        resource: Resource,
        /// Its namespace.
        namespace: Option<String>,
        /// Its name.
        name: String,
    },
    /// The removal of one finalizer, as its controller would do it.
    RemoveFinalizer {
        /// The kind of the object.
        resource: Resource,
        /// Its namespace.
        namespace: Option<String>,
        /// Its name.
        name: String,
        /// The finalizer.
        finalizer: String,
        /// Its position.
        position: usize,
    },
    /// The write to the subresource `finalize` that ends the deletion of a Namespace.
    Finalize(String),
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The object or document.
    Object(Value),
    /// The objects of the page.
    Objects {
        /// The objects.
        items: Vec<Value>,
        /// Whether there are no others.
        complete: bool,
    },
    /// A 404 that names the object: it does not exist.
    Missing,
    /// The API server does not serve the kind.
    NotServed,
    /// The answer to a question of access, with the authorizer's reason.
    Allowed(bool, String),
    /// The dry run would have succeeded.
    Accepted,
    /// The request failed or was rejected.
    Failed(Failure),
}

/// A request that failed or was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status; 0 if there was no answer.
    pub status: u16,
    /// The `reason` of the API server's status.
    pub reason: String,
    /// Its message.
    pub message: String,
}

impl Failure {
    /// Returns whether the caller lacks the right.
    pub fn is_forbidden(&self) -> bool {
        self.status == 403 && (self.reason.is_empty() || self.reason == "Forbidden")
    }
}
