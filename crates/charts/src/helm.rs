//! The helm program that the operations of this crate run.

use std::{path::PathBuf, process::Output, sync::Arc};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::{
    packed::Cache,
    program::{Program, Script},
};

/// The helm program, and a cache of charts that were fetched by a digest. Clones share the cache.
///
/// Dropping the future of an operation kills helm at once. A token in [`Helm::stopped_by`] lets a helm that changes a release
/// end by itself: it then records that the operation failed, and with `atomic` rolls back.
#[derive(Clone, Debug)]
pub struct Helm {
    path: PathBuf,
    stop: CancellationToken,
    pub(crate) cache: Arc<Cache>,
    script: Option<Script>,
}

impl Helm {
    /// Creates a handle of the program with this path, or with this name on the PATH.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), stop: CancellationToken::new(), cache: Arc::default(), script: None }
    }

    /// Creates a handle that runs a script in place of the program, for tests: it gets the arguments, and returns what helm would.
    pub fn scripted(script: impl Fn(Vec<String>) -> BoxFuture<'static, Output> + Send + Sync + 'static) -> Self {
        Self { script: Some(Script(Arc::new(script))), ..Self::new("helm") }
    }

    /// Returns a handle whose operations end soon after `stop` is cancelled: programs that change a release within
    /// [`STOP_GRACE`](crate::STOP_GRACE), all others at once.
    #[must_use]
    pub fn stopped_by(&self, stop: CancellationToken) -> Self {
        Self { stop, ..self.clone() }
    }

    pub(crate) fn program(&self) -> Program {
        Program::new(&self.path, "install helm 3.8 or newer")
            .stopped_by(self.stop.clone())
            .scripted(self.script.clone())
    }
}
