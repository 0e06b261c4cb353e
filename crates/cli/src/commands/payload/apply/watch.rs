//! `billhook payload apply --watch`: reconciles a payload until it is interrupted, while this process leads.

mod folder;
mod journal;
mod leader;
mod machine;
mod metrics;
mod reader;

use std::{
    future::pending,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use billhook_cluster::{Leadership, LeaseOptions};
use billhook_endpoints::Probes;
use billhook_engine::{Clusters, Status, until_gone};
use billhook_objects::{ObjectKey, ReleaseName, Uid};
use billhook_policy::Policy;
use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::{
    folder::{Folder, Stamp},
    journal::{Ended, Journal, keeps_changing},
    machine::{Effect, Machine, StopWhy, Why},
    metrics::{PassResult, PayloadMetrics},
    reader::{Input, Reader},
};
use super::{
    args::PayloadApplyArgs,
    content::Content,
    pass::{End, Passed, Tally, Turn},
    passes::Passes,
};
use crate::{
    clock::{now, timestamp},
    commands::{
        payload::{Chosen, open, publish::Publisher, read_folder, warn_unused},
        serving::Server,
        take_over::taking_over,
    },
    error::{CommandError, Exit, Problem},
    input,
    log::Log,
    session::{Interrupts, Session},
};

/// Something that is being done.
type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The reader that another thread returns, and what it has found.
type Examined = (Box<Reader>, Input);

/// A payload that is watched.
struct Watch<'a> {
    session: &'a Session,
    args: &'a PayloadApplyArgs,
    chosen: Chosen,
    policy: Option<Policy>,
    clusters: Clusters,
    release: ReleaseName,
    lease: LeaseOptions,
    /// Where the wait for the Lease logs.
    log: Log,
    journal: Journal,
    metrics: PayloadMetrics,
    /// It is notified of each change of the folder.
    reports: Arc<Notify>,
    /// Another thread has it while it looks at the folder or reads it.
    reader: Option<Box<Reader>>,
    examination: Option<Work<'a, Result<Examined, CommandError>>>,
    machine: Machine<Arc<Content>, Stamp>,
    /// When the payload in use was read.
    used_since: String,
    /// The wait for the Lease.
    standby: Option<Work<'a, Result<Leadership, CommandError>>>,
    leading: Option<Leading>,
    running: Option<Running<'a>>,
    /// The wait for the objects that the last pass left to be deleted; whether they are gone.
    deletions: Option<Work<'a, bool>>,
    /// How many passes were started.
    passes: u64,
    /// Whether no pass takes over any more: none is to, or one has.
    has_taken_over: Arc<AtomicBool>,
    /// The ClusterVersion to publish to.
    publisher: Option<Arc<Publisher>>,
}

/// The leadership of this process.
struct Leading {
    leadership: Leadership,
    /// The clusters, behind the fence of the leadership.
    clusters: Clusters,
    lost: bool,
}

/// The pass that runs.
struct Running<'a> {
    work: Work<'a, Result<Passed, CommandError>>,
    halt: CancellationToken,
    number: u64,
    since: Instant,
}

/// What has happened.
enum Happened {
    Interrupted,
    Lost,
    Leads(Result<Leadership, CommandError>),
    Ended(Result<Passed, CommandError>),
    Examined(Result<Examined, CommandError>),
    Reported,
    DeletionsEnded(bool),
    Time,
}

/// Runs the command.
pub(super) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: &PayloadApplyArgs,
    interval: Duration,
    chosen: Chosen,
    policy: Option<Policy>,
) -> Result<Exit, CommandError> {
    // Whatever is wrong with the path does not change by waiting.
    if !session.path(&args.folder).is_dir() {
        read_folder(&session.directory, &args.folder)?;
    }
    let opened = interrupts.unless(open(session, &chosen)).await?;
    let mut watch = Watch::new(session, args, interval, chosen, policy, opened)?;
    let stop = CancellationToken::new();
    let _stops_server = stop.clone().drop_guard();
    let server = watch.serve(&stop).await?;
    watch.journal.started(interval);
    let worked = watch.work(interrupts).await;
    let ended = watch.end(interrupts).await;
    stop.cancel();
    if let Some(server) = server {
        server.ended().await;
    }
    worked?;
    watch.journal.stopped();
    Ok(ended)
}

impl<'a> Watch<'a> {
    /// Starts to watch the folder.
    fn new(
        session: &'a Session,
        args: &'a PayloadApplyArgs,
        interval: Duration,
        chosen: Chosen,
        policy: Option<Policy>,
        (clusters, release): (Clusters, ReleaseName),
    ) -> Result<Self, CommandError> {
        let folder = Folder::watch(session.path(&args.folder)).map_err(|error| not_watched(args, &error))?;
        let reports = folder.reports();
        let log = session.log();
        let lease = leader::lease(session, &release);
        let journal = Journal::new(log.clone(), args, &lease);
        let publisher = chosen.cluster_version.as_deref().map(|name| Arc::new(Publisher::new(name, &release)));
        let reader = Reader::new(folder, &session.directory, &args.folder, &chosen.settings, log.clone());
        Ok(Self {
            lease,
            journal,
            metrics: PayloadMetrics::new(release.name(), release.namespace(), &args.version),
            reader: Some(Box::new(reader)),
            machine: Machine::new(interval, Instant::now()),
            session,
            args,
            chosen,
            policy,
            clusters,
            release,
            log,
            reports,
            examination: None,
            used_since: now(),
            standby: None,
            leading: None,
            running: None,
            deletions: None,
            passes: 0,
            has_taken_over: Arc::new(AtomicBool::new(!args.take_over)),
            publisher,
        })
    }

    /// Serves metrics and probes, if the user asked for it.
    async fn serve(&mut self, stop: &CancellationToken) -> Result<Option<Server>, CommandError> {
        let Some(address) = self.args.listen else { return Ok(None) };
        let metrics = self.metrics.clone();
        // A process that stands by is ready, too.
        let probes = Probes { live: Arc::new(|| Ok(())), ready: Arc::new(|| Ok(())) };
        let server = Server::start(address, Arc::new(move || metrics.encode()), probes, stop).await?;
        self.journal.serving(&format!("http://{}", server.address));
        Ok(Some(server))
    }

    /// Works until it is interrupted.
    async fn work(&mut self, interrupts: &mut Interrupts) -> Result<(), CommandError> {
        loop {
            match self.next(interrupts).await {
                Happened::Interrupted => return Ok(()),
                Happened::Lost => self.lost()?,
                Happened::Leads(leadership) => self.lead(leadership?)?,
                Happened::Ended(result) => self.ended(result)?,
                Happened::Examined(examined) => self.examined(examined?)?,
                Happened::Reported => self.on(Input::Reported)?,
                Happened::DeletionsEnded(gone) => {
                    self.deletions = None;
                    if gone {
                        self.on(Input::Gone)?;
                    }
                }
                Happened::Time => self.on(Input::Time)?,
            }
            // The Lease is released, or acquired again, when nothing of the former leadership runs any more.
            if self.running.is_none()
                && let Some(leading) = self.leading.take_if(|leading| leading.lost)
            {
                leading.leadership.release().await;
            }
            if self.machine.has_content() && self.leading.is_none() && self.standby.is_none() {
                let (cluster, lease) = (self.clusters.own.clone(), self.lease.clone());
                self.standby = Some(Box::pin(leader::acquire(cluster, lease, self.log.clone())));
            }
        }
    }

    async fn next(&mut self, interrupts: &mut Interrupts) -> Happened {
        let wake = self.machine.wake_at();
        let Self { standby, leading, running, examination, reports, deletions, .. } = self;
        let lost = async {
            match leading.as_mut().filter(|leading| !leading.lost) {
                Some(leading) => leading.leadership.lost().await,
                None => pending().await,
            }
        };
        let time = async {
            match wake {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = interrupts.next() => Happened::Interrupted,
            () = lost => Happened::Lost,
            leadership = result(standby.as_mut()) => Happened::Leads(leadership),
            passed = result(running.as_mut().map(|running| &mut running.work)) => Happened::Ended(passed),
            examined = result(examination.as_mut()) => Happened::Examined(examined),
            gone = result(deletions.as_mut()) => Happened::DeletionsEnded(gone),
            () = time => Happened::Time,
            // There may always be another one.
            () = reports.notified() => Happened::Reported,
        }
    }

    /// Gives an input to the machine, and does what it says.
    fn on(&mut self, input: Input) -> Result<(), CommandError> {
        let effects = self.machine.on(input, Instant::now());
        self.carry_out(effects)
    }

    fn carry_out(&mut self, effects: Vec<Effect<Arc<Content>>>) -> Result<(), CommandError> {
        self.metrics.set_usable(self.machine.is_usable());
        for effect in effects {
            match effect {
                Effect::Look => self.examine(Reader::look),
                Effect::Read => self.examine(Reader::read),
                Effect::Start(content, why) => self.start(content, why),
                Effect::Stop(why) => self.stop(why),
                Effect::Reject => {
                    let problem = self.reader.as_mut().and_then(|reader| reader.problem.take());
                    return Err(problem.unwrap_or_else(|| CommandError::input("no payload")));
                }
                Effect::TellUnusable(problem) => self.tell_unusable(&problem),
                Effect::TellChanging => {
                    let last = self.reader.as_ref().and_then(|reader| reader.changed.as_deref());
                    self.tell_unusable(&keeps_changing(last));
                }
                Effect::TellUsable => self.journal.usable(),
            }
        }
        Ok(())
    }

    fn tell_unusable(&self, problem: &str) {
        let meanwhile = if self.machine.has_content() {
            let how = if self.leading.is_some() { "still reconciling" } else { "standing by with" };
            format!("{how} what was read at {}", self.used_since)
        } else {
            "nothing is reconciled until then".to_owned()
        };
        self.journal.unusable(problem, &meanwhile);
    }

    /// Lets another thread look at the folder or read it, because the Lease is renewed by this one.
    fn examine(&mut self, examine: fn(&mut Reader) -> Input) {
        let Some(mut reader) = self.reader.take() else { return };
        let examined = spawn_blocking(move || {
            let input = examine(&mut reader);
            (reader, input)
        });
        let folder = self.args.folder.display();
        self.examination = Some(Box::pin(async move {
            examined.await.map_err(|error| CommandError::failed_to(format_args!("read {folder}"), error))
        }));
    }

    fn examined(&mut self, (reader, input): Examined) -> Result<(), CommandError> {
        self.examination = None;
        self.reader = Some(reader);
        self.on(input)
    }

    fn lead(&mut self, leadership: Leadership) -> Result<(), CommandError> {
        self.standby = None;
        self.journal.leads();
        self.metrics.set_leader(true);
        let clusters = Clusters {
            own: self.clusters.own.fenced(leadership.fence()),
            holder: self.session.holder(Some(self.lease.held())),
            ..self.clusters.clone()
        };
        self.leading = Some(Leading { leadership, clusters, lost: false });
        self.on(Input::Leads)
    }

    fn lost(&mut self) -> Result<(), CommandError> {
        self.journal.leads_no_longer();
        self.metrics.set_leader(false);
        self.deletions = None;
        if let Some(leading) = &mut self.leading {
            leading.lost = true;
        }
        self.on(Input::Lost)
    }

    fn start(&mut self, content: Arc<Content>, why: Why) {
        let Some(leading) = &self.leading else { return };
        if matches!(why, Why::Changed) || self.passes == 0 {
            self.used_since = now();
            warn_unused(self.session, &content.payload, &self.chosen.settings);
        }
        let number = self.passes;
        self.passes += 1;
        self.journal.pass_started(number, content.decisions.counting().count(), why);
        let (session, args, clusters) = (self.session, self.args, leading.clusters.clone());
        let (settings, policy) = (self.chosen.settings.clone(), self.policy.clone());
        let release = self.release.clone();
        let publisher = self.publisher.clone();
        let passes = Passes { session, args, release, content, settings, policy, publisher };
        let halt = CancellationToken::new();
        let deadline = input::time_limit(args.timeout, None).and_then(|limit| Instant::now().checked_add(limit));
        let turn = Turn { number, deadline, halt: halt.clone(), quiet: true };
        let has_taken_over = Arc::clone(&self.has_taken_over);
        let work = Box::pin(async move {
            let taken = Some(&passes.release).filter(|_| !has_taken_over.load(Ordering::Relaxed));
            let halt = turn.halt.clone();
            let pass = async |interrupts: &mut Interrupts| {
                has_taken_over.store(true, Ordering::Relaxed);
                let clusters = Clusters { now: now(), ..clusters.clone() };
                passes.pass(interrupts, &clusters, turn).await
            };
            taking_over(session, &mut Interrupts::never(), &halt, (&clusters, taken), pass).await
        });
        self.deletions = None;
        self.running = Some(Running { work, halt, number, since: Instant::now() });
    }

    fn stop(&self, why: StopWhy) {
        let Some(Running { halt, number, .. }) = &self.running else { return };
        halt.cancel();
        self.journal.pass_stopped(*number, why);
    }

    fn ended(&mut self, result: Result<Passed, CommandError>) -> Result<(), CommandError> {
        let Some(Running { halt, number, since, .. }) = self.running.take() else { return Ok(()) };
        let (result, tally, pending) = self.outcome(result, halt.is_cancelled());
        let (now, deleting) = (Instant::now(), pending.len());
        let effects = self.machine.on(Input::Ended { failed: result == PassResult::Failed }, now);
        let next = self.machine.pass_at().map(|at| at.saturating_duration_since(now));
        self.metrics.passed(result, tally, deleting, timestamp().as_second());
        self.journal.pass_ended(&Ended { number, since, result, tally, deleting, next });
        self.await_deletions(pending);
        self.carry_out(effects)
    }

    /// Returns how a pass ended, and prints its error.
    fn outcome(
        &self,
        result: Result<Passed, CommandError>,
        stopped: bool,
    ) -> (PassResult, Tally, Vec<(ObjectKey, Uid)>) {
        let failed = if stopped { PassResult::Stopped } else { PassResult::Failed };
        if let Ok(Passed { unpublished: Some(error), .. }) = &result {
            self.session.printer.error(error);
        }
        match result {
            Ok(Passed { end: End::Final(Exit::Done), tally, .. }) => (PassResult::Done, tally, Vec::new()),
            Ok(Passed { end: End::Pending(pending), tally, .. }) => (PassResult::Done, tally, pending),
            Ok(Passed { end: End::Final(_), tally, .. }) => (failed, tally, Vec::new()),
            Err(error) => {
                if !stopped {
                    self.session.printer.error(&error);
                }
                (failed, Tally::default(), Vec::new())
            }
        }
    }

    /// Waits until objects are gone, so that a pass confirms it at once.
    fn await_deletions(&mut self, pending: Vec<(ObjectKey, Uid)>) {
        let Some(leading) = self.leading.as_ref().filter(|leading| !leading.lost && !pending.is_empty()) else {
            return;
        };
        let clusters = leading.clusters.clone();
        self.deletions = Some(Box::pin(async move {
            let waited = until_gone(&clusters, pending, None, &CancellationToken::new()).await;
            waited.is_ok_and(|waited| waited.status == Status::Done)
        }));
    }

    /// Stops the pass that runs, and releases the Lease.
    async fn end(&mut self, interrupts: &mut Interrupts) -> Exit {
        (self.standby, self.deletions) = (None, None);
        if let Some(running) = &mut self.running {
            running.halt.cancel();
            self.journal.stopping(running.number);
            tokio::select! {
                result = &mut running.work => {
                    let (ended, tally, pending) = self.outcome(result, true);
                    self.metrics.passed(ended, tally, pending.len(), timestamp().as_second());
                }
                () = interrupts.next() => return Exit::Unfinished,
            }
            self.running = None;
        }
        if let Some(leading) = self.leading.take() {
            leading.leadership.release().await;
        }
        Exit::Done
    }
}

/// Returns the result of some work; never without work.
async fn result<T>(work: Option<&mut Work<'_, T>>) -> T {
    match work {
        Some(work) => work.await,
        None => pending().await,
    }
}

fn not_watched(args: &PayloadApplyArgs, error: &notify::Error) -> CommandError {
    let problem = Problem::caused(format!("failed to watch {}", args.folder.display()), error);
    CommandError::new(Exit::Failed, problem)
        .hint("if a limit of Linux is reached, raise fs.inotify.max_user_instances or fs.inotify.max_user_watches")
}
