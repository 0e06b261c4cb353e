//! How a sandbox behaves.

use std::{collections::BTreeMap, time::Duration};

use crate::call::User;

/// How a sandbox behaves; [`Options::default`] is a cluster that allows everything to everybody.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) rbac: bool,
    pub(crate) users: BTreeMap<String, User>,
    pub(crate) history: usize,
    pub(crate) reaction: Duration,
    pub(crate) namespace_delay: Duration,
    pub(crate) start: Option<jiff::Timestamp>,
    pub(crate) seed: u64,
    pub(crate) bookmarks: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rbac: false,
            users: BTreeMap::new(),
            history: 10_000,
            reaction: Duration::from_millis(1),
            namespace_delay: Duration::from_secs(5),
            start: None,
            seed: 0,
            bookmarks: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// Evaluates Roles and bindings; without this everybody may do everything.
    #[must_use]
    pub fn rbac(mut self, on: bool) -> Self {
        self.rbac = on;
        self
    }

    /// Knows a user by this bearer token. Requests without a token are an administrator's.
    #[must_use]
    pub fn user(mut self, token: impl Into<String>, user: User) -> Self {
        self.users.insert(token.into(), user);
        self
    }

    /// How many changes of each resource are remembered for watches and for lists that go on; 10,000 by default.
    #[must_use]
    pub fn history(mut self, changes: usize) -> Self {
        self.history = changes;
        self
    }

    /// How long after a change a controller acts on it; a millisecond by default.
    #[must_use]
    pub fn reaction(mut self, after: Duration) -> Self {
        self.reaction = after;
        self
    }

    /// How long the namespace controller waits before it empties a namespace. 5 s by default, as
    /// `namespaceDeletionGracePeriod` of Kubernetes has it.
    #[must_use]
    pub fn namespace_delay(mut self, delay: Duration) -> Self {
        self.namespace_delay = delay;
        self
    }

    /// The time at which the sandbox's clock starts; the system's by default. From there on it is tokio's clock.
    #[must_use]
    pub fn start(mut self, at: jiff::Timestamp) -> Self {
        self.start = Some(at);
        self
    }

    /// Seeds UIDs and generated names, which are the same in every run with the same seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How often a watch that asks for bookmarks gets one; every minute by default.
    #[must_use]
    pub fn bookmarks(mut self, every: Duration) -> Self {
        self.bookmarks = every;
        self
    }
}
