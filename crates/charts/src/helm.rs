//! The helm program that the operations of this crate run.

use std::{path::PathBuf, process::Output, sync::Arc};

use billhook_hosts::Dialer;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::{
    cache::Cache,
    error::ErrorKind,
    home::Home,
    http::Client,
    program::{Program, Script},
    users::HelmUsers,
};

/// The helm program, and what fetches charts for it, with a cache. Clones share the cache.
///
/// Dropping the future of an operation kills helm at once. A token in [`Helm::stopped_by`] lets a helm that changes a release
/// end by itself: it then records that the operation failed, and with `atomic` rolls back.
#[derive(Clone, Debug)]
pub struct Helm {
    path: PathBuf,
    stop: CancellationToken,
    users: Option<HelmUsers>,
    pub(crate) client: Client,
    label: Option<String>,
    pub(crate) cache: Arc<Cache>,
    script: Option<Script>,
}

impl Helm {
    /// Creates a handle of the program with this path, or with this name on the PATH.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let client = Client::new(Dialer::default());
        Self {
            path: path.into(),
            stop: CancellationToken::new(),
            users: None,
            client,
            label: None,
            cache: Arc::default(),
            script: None,
        }
    }

    /// Creates a handle that runs a script in place of the program, for tests: it gets the arguments, and returns what helm would.
    pub fn scripted(script: impl Fn(Vec<String>) -> BoxFuture<'static, Output> + Send + Sync + 'static) -> Self {
        Self { script: Some(Script(Arc::new(script))), ..Self::new("helm") }
    }

    /// Runs helm as other users when it works with the charts and clusters of others.
    #[must_use]
    pub fn running_as(self, users: Option<HelmUsers>) -> Self {
        Self { users, ..self }
    }

    /// Creates the private folder of a run.
    pub(crate) fn home(&self) -> Result<Home, ErrorKind> {
        Home::new(self.users.as_ref().map(HelmUsers::take)).map_err(ErrorKind::Folder)
    }

    /// Fetches charts only from hosts that this dialer connects to.
    #[must_use]
    pub fn fetching_with(self, dialer: Dialer) -> Self {
        Self { client: Client::new(dialer), ..self }
    }

    /// Returns a handle whose operations end soon after `stop` is cancelled: programs that change a release within
    /// [`STOP_GRACE`](crate::STOP_GRACE), all others at once.
    #[must_use]
    pub fn stopped_by(&self, stop: CancellationToken) -> Self {
        Self { stop, ..self.clone() }
    }

    /// Returns a handle that sets a label, `KEY=VALUE`, on the record of each release that it deploys. helm before 3.13 cannot.
    #[must_use]
    pub fn labelling(&self, label: String) -> Self {
        Self { label: Some(label), ..self.clone() }
    }

    /// Returns the flag for the label, if helm has this version and can set it.
    pub(crate) fn label_flag(&self, version: (u32, u32)) -> Option<String> {
        let label = self.label.as_ref().filter(|_| version >= (3, 13))?;
        Some(format!("--labels={label}"))
    }

    pub(crate) fn program(&self) -> Program {
        Program::new(&self.path, "install helm 3.8 or newer")
            .stopped_by(self.stop.clone())
            .scripted(self.script.clone())
    }
}
