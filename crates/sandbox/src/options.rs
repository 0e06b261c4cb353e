//! The options of a sandbox.

use std::{collections::BTreeMap, time::Duration};

use crate::{call::User, controllers::ControllerSet};

/// The options of a sandbox. [`Options::default`] describes a cluster where everyone is allowed everything.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) rbac: bool,
    pub(crate) users: BTreeMap<String, User>,
    pub(crate) history: usize,
    pub(crate) controllers: ControllerSet,
    pub(crate) reaction: Duration,
    pub(crate) namespace_delay: Duration,
    pub(crate) start: Option<jiff::Timestamp>,
    pub(crate) seed: u64,
    pub(crate) bookmarks: Duration,
    pub(crate) assume_backends: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rbac: false,
            users: BTreeMap::new(),
            history: 10_000,
            controllers: ControllerSet::all(),
            reaction: Duration::from_millis(1),
            namespace_delay: Duration::from_secs(5),
            start: None,
            seed: 0,
            bookmarks: Duration::from_secs(60),
            assume_backends: false,
        }
    }
}

impl Options {
    /// Enables RBAC. Without it, everyone is allowed everything.
    #[must_use]
    pub fn rbac(mut self, on: bool) -> Self {
        self.rbac = on;
        self
    }

    /// Adds a user with a bearer token. Requests without a token come from an administrator.
    #[must_use]
    pub fn user(mut self, token: impl Into<String>, user: User) -> Self {
        self.users.insert(token.into(), user);
        self
    }

    /// Sets how many changes of each resource are kept for watches and for continued lists. The default is 10,000.
    #[must_use]
    pub fn history(mut self, changes: usize) -> Self {
        self.history = changes;
        self
    }

    /// Sets the controllers that run. The default is all. Tests that are written for a bare API server run without any.
    #[must_use]
    pub fn controllers(mut self, set: ControllerSet) -> Self {
        self.controllers = set;
        self
    }

    /// Sets the delay between a change and the reaction of a controller. The default is 1 ms.
    #[must_use]
    pub fn reaction(mut self, after: Duration) -> Self {
        self.reaction = after;
        self
    }

    /// Sets how long the namespace controller waits before it empties a namespace. The default is 5 s, like Kubernetes'
    /// `namespaceDeletionGracePeriod`.
    #[must_use]
    pub fn namespace_delay(mut self, delay: Duration) -> Self {
        self.namespace_delay = delay;
        self
    }

    /// Sets the initial time of the sandbox, the system time by default. From there on it follows tokio's clock.
    #[must_use]
    pub fn start(mut self, at: jiff::Timestamp) -> Self {
        self.start = Some(at);
        self
    }

    /// Seeds UIDs and generated names. Runs with the same seed generate the same ones.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets whether what a [copy](crate::Sandbox::copy) of a cluster has behind its Services is assumed to work as long as there are
    /// ready endpoints. Webhooks then allow every request without a change, conversions change only the version, APIServices keep
    /// the availability that they have, and nothing is called. By default only webhooks on loopback are reachable, and called.
    #[must_use]
    pub fn assume_backends(mut self, assume: bool) -> Self {
        self.assume_backends = assume;
        self
    }

    /// Sets the interval between bookmarks in watches that request them. The default is one minute.
    #[must_use]
    pub fn bookmarks(mut self, every: Duration) -> Self {
        self.bookmarks = every;
        self
    }
}
