//! Control planes for scenarios: one that they share, a second one, and some of their own for those that break things.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use crate::control_plane::{ControlPlane, Options};

/// Starts control planes when a scenario first needs them, and ends them when the last scenario has let go.
#[derive(Default)]
pub struct Lab {
    shared: Mutex<Option<Arc<ControlPlane>>>,
    second: Mutex<Option<Arc<ControlPlane>>>,
}

impl Lab {
    /// The control plane that most scenarios share.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn shared(&self) -> Result<Arc<ControlPlane>> {
        Self::once(&self.shared)
    }

    /// The second cluster, shared too.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn second(&self) -> Result<Arc<ControlPlane>> {
        Self::once(&self.second)
    }

    /// A control plane for one scenario alone; it ends when the scenario lets go of it.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn exclusive(&self) -> Result<Arc<ControlPlane>> {
        Ok(Arc::new(ControlPlane::start(&Options::default())?))
    }

    fn once(place: &Mutex<Option<Arc<ControlPlane>>>) -> Result<Arc<ControlPlane>> {
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = place.as_ref() {
            return Ok(Arc::clone(running));
        }
        let started = Arc::new(ControlPlane::start(&Options::default())?);
        *place = Some(Arc::clone(&started));
        Ok(started)
    }

    /// Ends all that is still running. Call it when the tests are over: a `static` is never dropped.
    pub fn close(&self) {
        for place in [&self.shared, &self.second] {
            place.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}
