//! Clusters for scenarios: sandboxes, or real control planes, which are shared, except for exclusive scenarios.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Result;
use billhook::{Cluster, ClusterError, ClusterOptions};
use billhook_sandbox::Sandbox;
use kube::Client;

use super::{Scenario, freeze::Freezer};
use crate::control_plane::{ControlPlane, Options, User};

/// The kind of clusters on which scenarios are played.
pub enum Lab {
    /// Sandboxes, each scenario with its own, under a paused clock.
    Sandbox,
    /// Real control planes.
    Real(ControlPlanes),
}

impl Lab {
    /// Runs the work of a scenario to its end.
    ///
    /// # Errors
    ///
    /// Fails if the work fails.
    pub fn block_on<T>(&self, scenario: &Scenario, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all();
        // A paused clock does not wait for other processes, so they would exceed every time limit.
        runtime.start_paused(matches!(self, Self::Sandbox) && !scenario.runs_programs());
        runtime.build()?.block_on(work)
    }

    /// Returns the cluster of a scenario.
    pub(super) fn plane(&self, scenario: &Scenario) -> Result<Plane> {
        Ok(match self {
            Self::Sandbox => Plane::sandbox("own"),
            Self::Real(planes) if scenario.exclusive => Plane::Real(planes.exclusive(&options(scenario))?),
            Self::Real(planes) => Plane::Real(planes.shared()?),
        })
    }

    /// Returns the second cluster of a scenario.
    pub(super) fn second(&self) -> Result<Plane> {
        Ok(match self {
            Self::Sandbox => Plane::sandbox("second"),
            Self::Real(planes) => Plane::Real(planes.second()?),
        })
    }
}

/// A controller manager that is stopped must leave its Lease behind, as in a cluster.
fn options(scenario: &Scenario) -> Options {
    match scenario.stops_controllers() {
        true => Options::default().controller_manager_flag("--leader-elect=true"),
        false => Options::default(),
    }
}

/// A cluster on which a scenario plays.
#[derive(Clone)]
pub(super) enum Plane {
    /// A sandbox with its host name in kubeconfigs.
    Sandbox(Sandbox, &'static str),
    Real(Arc<ControlPlane>),
}

impl Plane {
    fn sandbox(host: &'static str) -> Self {
        let seed = host.bytes().map(u64::from).sum();
        Self::Sandbox(Sandbox::start(billhook_sandbox::Options::default().rbac(true).seed(seed)), host)
    }

    /// Returns a client with all permissions for requests of other clients.
    pub(super) async fn admin(&self) -> Result<Client> {
        match self {
            Self::Sandbox(sandbox, _) => Ok(sandbox.client(billhook_sandbox::User::admin(), "")),
            Self::Real(plane) => Ok(Client::try_from(plane.client_config(User::Admin).await?)?),
        }
    }

    /// Returns a kubeconfig with a context for each user.
    pub(super) fn kubeconfig(&self) -> String {
        let host = match self {
            Self::Sandbox(_, host) => host,
            Self::Real(plane) => return plane.kubeconfig().to_owned(),
        };
        let [admin, restricted] = [User::Admin, User::Restricted].map(User::name);
        let user = |name: &str| format!("{{name: {name}, user: {{username: {name}, password: none}}}}");
        let context = |name: &str| format!("{{name: {name}, context: {{cluster: testbed, user: {name}}}}}");
        format!(
            "{{apiVersion: v1, kind: Config, clusters: [{{name: testbed, cluster: {{server: 'http://{host}'}}}}], \
             contexts: [{}, {}], users: [{}, {}]}}",
            context(admin),
            context(restricted),
            user(admin),
            user(restricted)
        )
    }

    /// Stops the server for this time, and waits until it is ready again.
    pub(super) async fn take_away(&self, how_long: Duration) -> Result<()> {
        match self {
            Self::Sandbox(sandbox, _) => {
                sandbox.faults().take_away(how_long);
                tokio::time::sleep(how_long).await;
                Ok(())
            }
            Self::Real(plane) => {
                plane.stop_api_server();
                tokio::time::sleep(how_long).await;
                let plane = Arc::clone(plane);
                tokio::task::spawn_blocking(move || plane.start_api_server()).await?
            }
        }
    }
}

/// Connects to the clusters of a command, whose requests have this client name on sandboxes, where it can be frozen.
pub(super) fn connect(
    planes: &[Plane],
    client: &str,
    freezer: &Freezer,
    config: kube::Config,
    options: ClusterOptions,
) -> Result<Cluster, ClusterError> {
    let host = config.cluster_url.host().unwrap_or_default();
    let of = |plane: &Plane| match plane {
        Plane::Sandbox(sandbox, of) if *of == host => Some(sandbox.clone()),
        _ => None,
    };
    let Some(sandbox) = planes.iter().find_map(of) else { return Cluster::connect(config, options) };
    let auth = &config.auth_info;
    let user = match (&auth.impersonate, auth.username.as_deref()) {
        (Some(user), _) => billhook_sandbox::User::new(user, auth.impersonate_groups.as_deref().unwrap_or_default()),
        (None, Some("restricted")) => billhook_sandbox::User::new("restricted", [""; 0]),
        (None, _) => billhook_sandbox::User::admin(),
    };
    Ok(Cluster::from_client(freezer.client(sandbox.client(user, client)), options))
}

/// Starts control planes when a scenario first needs them.
#[derive(Default)]
pub struct ControlPlanes {
    shared: Mutex<Option<Arc<ControlPlane>>>,
    second: Mutex<Option<Arc<ControlPlane>>>,
}

impl ControlPlanes {
    /// Returns the control plane that most scenarios share.
    ///
    /// # Errors
    ///
    /// Fails if it does not start.
    pub fn shared(&self) -> Result<Arc<ControlPlane>> {
        Self::once(&self.shared)
    }

    /// Returns the second cluster, which is also shared.
    fn second(&self) -> Result<Arc<ControlPlane>> {
        Self::once(&self.second)
    }

    /// Starts a control plane for one scenario, which stops when it is dropped.
    ///
    /// # Errors
    ///
    /// Fails if it does not start.
    pub fn exclusive(&self, options: &Options) -> Result<Arc<ControlPlane>> {
        Ok(Arc::new(ControlPlane::start(options)?))
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

    /// Stops all control planes. Must be called after the tests, because a `static` is never dropped.
    pub fn close(&self) {
        for place in [&self.shared, &self.second] {
            place.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}
