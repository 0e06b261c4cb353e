//! What the kubelet's probes tell about a controller.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use billhook_cluster::Cluster;
use billhook_endpoints::{Probes, Pulse};

/// After this time in which the loop has not turned, the kubelet is to restart the process.
const STUCK: Duration = Duration::from_secs(60);

/// How a controller is. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Health {
    /// The pulse of the controller's loop.
    pub pulse: Pulse,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
enum State {
    /// The home cluster has not answered yet.
    #[default]
    Starting,
    /// Another replica may lead. The cluster gets the requests for the Lease.
    Standby(Cluster),
    /// This replica leads. Each cache tells whether its objects are known as they are now.
    Leading(Vec<Arc<AtomicBool>>),
}

impl Health {
    /// Notes that another replica may lead.
    pub(crate) fn stand_by(&self, cluster: &Cluster) {
        self.set(State::Standby(cluster.clone()));
    }

    /// Notes that this replica leads.
    pub(crate) fn lead(&self, caches: Vec<Arc<AtomicBool>>) {
        self.set(State::Leading(caches));
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    pub(crate) fn probes(&self) -> Probes {
        let (pulse, own) = (self.pulse.clone(), self.clone());
        let live = move || match pulse.silence() {
            silence if silence < STUCK => Ok(()),
            silence => Err(format!("the controller's loop has not turned for {} seconds", silence.as_secs())),
        };
        Probes { live: Arc::new(live), ready: Arc::new(move || own.ready()) }
    }

    fn ready(&self) -> Result<(), String> {
        let problem = match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Starting => "the home cluster has not answered yet",
            State::Standby(cluster) if cluster.answers() == Some(false) => "the home cluster does not answer",
            State::Leading(caches) if !caches.iter().all(|current| current.load(Ordering::Relaxed)) => {
                "the DeployItems are not known as they are now: the home cluster does not answer, or denies to watch them"
            }
            State::Standby(_) | State::Leading(_) => return Ok(()),
        };
        Err(problem.to_owned())
    }
}
