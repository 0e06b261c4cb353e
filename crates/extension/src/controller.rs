//! The controller: works on the objects of a kind while it leads and the seed serves the kind.

use std::{fmt, future::pending, sync::Arc, time::Duration};

use billhook_cluster::{Cluster as Seed, Fence, LeaseOptions, Options};
use billhook_objects::GroupKind;
use billhook_plan::Resource;
use kube::core::ApiResource;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    actuator::Actuator,
    attempt::Worker,
    context::{Context, FORCE_DELETE_GRACE},
    driver::{Driver, StartOver},
    monitor::{Monitor, Reporter, State},
    object::DEFAULT_CLASS,
    queue::Rules,
    trigger::Mode,
};

/// The API group of extension objects and Clusters.
const GROUP: &str = "extensions.gardener.cloud";
/// The version of Clusters.
const VERSION: &str = "v1alpha1";
/// How many attempts run at once, unless the extension sets it.
const CONCURRENCY: usize = 10;
/// The time limit of a call of the actuator, unless the extension sets it: Gardener's.
const TIME_LIMIT: Duration = Duration::from_secs(180);
/// The pause before the controller starts over and checks again whether the kinds are served. It doubles with each panic.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before the controller starts over. One that has worked for longer than this has the first pause again.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// An error that ends a controller.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// [`Controller::kind_type`] was not called.
    #[error("the controller of {0} handles no type: set one with kind_type, as in spec.type of the objects")]
    NoType(String),
    /// The seed does not serve a kind.
    #[error("the seed does not serve {0}: install its CustomResourceDefinition")]
    NotServed(String),
    /// The seed cannot be reached or rejects requests.
    #[error("failed to {0}")]
    Seed(Box<dyn std::error::Error + Send + Sync>),
}

/// A controller that calls an [`Actuator`] for the objects of one kind.
///
/// It needs these rights in the seed: `get`, `list`, `watch` and `patch` for the objects, `patch` for their `status`, `list`
/// and `watch` for `clusters.extensions.gardener.cloud`, `create` for `events`, and with leader election `get`, `create` and
/// `update` for `leases`. The default [`force_delete`](Actuator::force_delete) needs `get`, `delete` and `patch` for each kind
/// that [`seed_objects`](Actuator::seed_objects) names.
pub struct Controller<A> {
    client: kube::Client,
    actuator: Arc<A>,
    kind: ApiResource,
    finalizer: String,
    kind_types: Vec<String>,
    classes: Vec<String>,
    namespace: Option<String>,
    lease: Option<LeaseOptions>,
    concurrency: usize,
    time_limit: Duration,
    force_delete_grace: Duration,
    generations: bool,
    monitor: Monitor,
}

impl<A> fmt::Debug for Controller<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("kind", &self.kind.kind).finish_non_exhaustive()
    }
}

/// The kinds as the seed serves them.
struct Kinds {
    objects: Resource,
    /// None if no object belongs to a Cluster.
    clusters: Option<Resource>,
}

impl<A: Actuator> Controller<A> {
    /// Creates a controller for a kind that is known at compile time. It sends no requests yet.
    ///
    /// The client's own retries would not pass the check whether this process still leads: make it with
    /// [`client`](crate::client()), or switch them off with `default_retry` of its configuration.
    pub fn new(client: kube::Client, actuator: A) -> Self
    where
        A::Object: kube::Resource<DynamicType = ()>,
    {
        Self::of_kind(client, actuator, &())
    }

    /// Creates a controller for any kind, such as one of [`kube::core::DynamicObject`]. It sends no requests yet.
    pub fn of_kind(client: kube::Client, actuator: A, kind: &<A::Object as kube::Resource>::DynamicType) -> Self {
        let kind = ApiResource::erase::<A::Object>(kind);
        Self {
            client,
            actuator: Arc::new(actuator),
            finalizer: format!("{GROUP}/{}", kind.kind.to_lowercase()),
            kind,
            kind_types: Vec::new(),
            classes: Vec::new(),
            namespace: None,
            lease: None,
            concurrency: CONCURRENCY,
            time_limit: TIME_LIMIT,
            force_delete_grace: FORCE_DELETE_GRACE,
            generations: false,
            monitor: Monitor::new(),
        }
    }

    /// Sets the finalizer. The default is Gardener's: `extensions.gardener.cloud/` and the kind in lower case.
    #[must_use]
    pub fn finalizer(mut self, name: impl Into<String>) -> Self {
        self.finalizer = name.into();
        self
    }

    /// Adds a value of `spec.type` whose objects are handled. At least one is required.
    #[must_use]
    pub fn kind_type(mut self, kind_type: impl Into<String>) -> Self {
        self.kind_types.push(kind_type.into());
        self
    }

    /// Adds a value of `spec.class` whose objects are handled: `shoot`, `seed` or `garden`. Without any, these are objects of
    /// the class `shoot`, which is also the class of objects that name none.
    #[must_use]
    pub fn class(mut self, class: impl Into<String>) -> Self {
        self.classes.push(class.into());
        self
    }

    /// Handles only objects in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Lets only one of several replicas work: the one that holds this Lease. The identity must be unique to the process,
    /// such as the name of its Pod.
    #[must_use]
    pub fn leader_election(
        mut self,
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        self.lease = Some(LeaseOptions::new(namespace, name, identity));
        self
    }

    /// Sets how many objects are worked on at once: this many force deletions, and this many others. Default: 10, minimum: 1.
    #[must_use]
    pub fn concurrency(mut self, objects: usize) -> Self {
        self.concurrency = objects.max(1);
        self
    }

    /// Sets the time limit of one call of the actuator. Default: 3 minutes, as in Gardener.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Sets how long `delete` may take within the default [`force_delete`](Actuator::force_delete). Default: 30 s. It is at
    /// most half of the time limit of a call, because what follows needs time too.
    #[must_use]
    pub fn force_delete_grace(mut self, grace: Duration) -> Self {
        self.force_delete_grace = grace;
        self
    }

    /// Reconciles whenever an object or its Shoot has a new generation, and once after each start. By default, as in Gardener,
    /// objects are reconciled when gardenlet asks for it by the operation annotation, or when the last operation has not
    /// succeeded.
    #[must_use]
    pub fn ignore_operation_annotation(mut self, ignore: bool) -> Self {
        self.generations = ignore;
        self
    }

    /// Sets the monitor, which several controllers of a process may share.
    #[must_use]
    pub fn monitor(mut self, monitor: &Monitor) -> Self {
        self.monitor = monitor.clone();
        self
    }

    /// Runs until `shutdown` is ready; waits while another replica leads. Calls of the actuator are cancelled at the end, and
    /// the next leader starts them again.
    ///
    /// # Errors
    ///
    /// When no type is set, or when the seed does not serve the kind or does not answer at the start. Later outages and
    /// missing rights are logged and waited out.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ControllerError> {
        let monitor = self.monitor.reporter(&self.kind.kind, &self.kind_types);
        monitor.set_state(State::Starting);
        let stop = CancellationToken::new();
        let running = self.run_until(&monitor, &stop);
        tokio::pin!(running, shutdown);
        let ended = tokio::select! {
            ended = &mut running => ended,
            () = shutdown => {
                stop.cancel();
                running.await
            }
        };
        if let Err(problem) = &ended {
            monitor.set_state(State::Failed(problem.to_string()));
        }
        ended
    }

    async fn run_until(&self, monitor: &Reporter, stop: &CancellationToken) -> Result<(), ControllerError> {
        if self.kind_types.is_empty() {
            return Err(ControllerError::NoType(self.kind.kind.clone()));
        }
        if self.lease.is_some() {
            monitor.set_leader(false);
        }
        let seed = Seed::from_client(self.client.clone(), Options::default());
        let Some(found) = stop.run_until_cancelled(self.kinds(&seed)).await else { return Ok(()) };
        let mut kinds = found?;
        monitor.set_state(State::Running);
        let mut pause = PAUSE;
        while !stop.is_cancelled() {
            let (begun, ended) = match &self.lease {
                None => (Instant::now(), self.work(&seed, &kinds, Fence::open(), pending(), monitor, stop).await),
                Some(lease) => {
                    let Some(mut leadership) = stop.run_until_cancelled(seed.acquire(lease)).await else { break };
                    tracing::info!(lease = %lease.name, identity = %lease.identity, "leading");
                    monitor.set_leader(true);
                    let (begun, fence) = (Instant::now(), leadership.fence());
                    let ended = self.work(&seed, &kinds, fence, leadership.lost(), monitor, stop).await;
                    monitor.set_leader(false);
                    tracing::info!(lease = %lease.name, identity = %lease.identity, "no longer leading");
                    leadership.release().await;
                    (begun, ended)
                }
            };
            let Some(reason) = ended else { continue };
            if reason == StartOver::WatchEnded || begun.elapsed() > LONGEST_PAUSE {
                pause = PAUSE;
            }
            stop.run_until_cancelled(tokio::time::sleep(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match stop.run_until_cancelled(self.kinds(&seed)).await {
                Some(Ok(found)) => kinds = found,
                Some(Err(problem @ ControllerError::NotServed(_))) => return Err(problem),
                // The watches wait for a seed that does not answer.
                Some(Err(_)) | None => {}
            }
        }
        Ok(())
    }

    /// Works until it has to start over, which it returns, until the leadership is lost, or until the controller is stopped.
    async fn work(
        &self,
        seed: &Seed,
        kinds: &Kinds,
        fence: Fence,
        lost: impl Future<Output = ()>,
        monitor: &Reporter,
        stop: &CancellationToken,
    ) -> Option<StartOver> {
        let grace = self.force_delete_grace.min(self.time_limit / 2);
        let worker = Worker {
            actuator: Arc::clone(&self.actuator),
            context: Context::fenced(&self.client, seed, fence, grace),
            resource: kinds.objects.clone(),
            finalizer: self.finalizer.clone(),
            time_limit: self.time_limit,
            monitor: monitor.clone(),
        };
        let rules = Rules {
            kind: self.kind.kind.clone(),
            finalizer: self.finalizer.clone(),
            kind_types: self.kind_types.clone(),
            classes: self.classes(),
            mode: Mode { generations: self.generations },
            concurrency: self.concurrency,
        };
        let mut driver = Driver::new(worker, kinds.clusters.as_ref(), self.namespace.clone(), rules);
        let ended = tokio::select! {
            reason = driver.run() => Some(reason),
            () = lost => None,
            () = stop.cancelled() => None,
        };
        driver.shut_down().await;
        ended
    }

    /// Asks the seed for the kinds.
    async fn kinds(&self, seed: &Seed) -> Result<Kinds, ControllerError> {
        let catalog = seed.catalog().await.map_err(|error| ControllerError::Seed(error.into()))?;
        let find = |group: &str, version: &str, kind: &str| {
            let served = catalog.get(&GroupKind::new(group, kind)).map(|found| Resource::of(found, Some(version)));
            let served = served.filter(|found| found.version == version);
            served.ok_or_else(|| ControllerError::NotServed(format!("{kind} of {group}/{version}")))
        };
        let ApiResource { group, version, kind, .. } = &self.kind;
        let objects = find(group, version, kind)?;
        let has_clusters = self.classes().iter().any(|class| class == DEFAULT_CLASS);
        let clusters = has_clusters.then(|| find(GROUP, VERSION, "Cluster")).transpose()?;
        Ok(Kinds { objects, clusters })
    }

    fn classes(&self) -> Vec<String> {
        if self.classes.is_empty() { vec![DEFAULT_CLASS.to_owned()] } else { self.classes.clone() }
    }
}
