//! Injection of faults.
//!
//! Faults select requests by the name of their client, among other things. All delays use tokio's clock, so that runs
//! with faults are as reproducible under a paused clock as runs without.

mod fault;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep},
};

use crate::{
    call::{Call, Target, Verb},
    status::ApiError,
};

use fault::{Effect, RequestFacts};
pub use fault::{Fault, Moment, Requests};

/// The faults of a sandbox. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    shared: Arc<SharedFaults>,
}

#[derive(Debug, Default)]
struct SharedFaults {
    state: Mutex<FaultState>,
    dead: watch::Sender<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct FaultState {
    faults: Vec<Fault>,
    logs: BTreeMap<String, Log>,
    /// Until when the server is unavailable.
    away: Option<Instant>,
    watches: Vec<Open>,
}

/// An open watch, which ends when the sender is used or dropped.
#[derive(Debug)]
struct Open {
    facts: RequestFacts,
    cut: oneshot::Sender<()>,
}

/// How many requests of each client are kept.
const LOGGED: usize = 10_000;

/// The requests of a client.
#[derive(Debug, Default)]
struct Log {
    count: usize,
    last: VecDeque<Logged>,
}

/// A request in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The verb.
    pub verb: Verb,
    /// Whether it is a dry run.
    pub dry_run: bool,
    /// Whether the request refers to a revision that may no longer be in the history.
    pub can_expire: bool,
    /// The target: a path, or `deployments.apps/shop/web/status`.
    pub target: String,
}

/// `patch deployments.apps/shop/web`
impl fmt::Display for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dry_run = if self.dry_run { " (dry run)" } else { "" };
        write!(f, "{} {}{dry_run}", self.verb.as_str(), self.target)
    }
}

impl Logged {
    fn new(call: &Call, facts: &RequestFacts) -> Self {
        let target = match &call.target {
            Target::Path(path) => path.clone(),
            Target::Resource(_) => facts.to_string(),
        };
        Self { verb: call.verb, dry_run: call.param("dryRun").is_some(), can_expire: facts.can_expire, target }
    }
}

/// The outcome that the faults decide for a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Fate {
    /// Answer it.
    Answer,
    /// Reject it without effect.
    Refuse(ApiError),
    /// Let it take effect, then answer with an error.
    RefuseAfter(ApiError),
    /// Refuse the connection.
    Away,
    /// Break the connection without effect.
    Break,
    /// Let it take effect, then break the connection.
    BreakAfter,
    /// Never answer, without effect, because the client has crashed.
    Never,
    /// Let it take effect, then call [`Faults::kill`] and never answer.
    NeverAfter,
}

impl Faults {
    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Removes all faults. Crashed clients remain crashed, and an unavailable server remains unavailable.
    pub fn clear(&self) {
        self.lock().faults.clear();
    }

    /// Returns how many requests a named client has sent, not counting refused connections.
    pub fn count(&self, client: &str) -> usize {
        self.lock().logs.get(client).map_or(0, |log| log.count)
    }

    /// Returns the last 10,000 requests of a named client in order.
    pub fn log(&self, client: &str) -> Vec<Logged> {
        self.lock().logs.get(client).map(|log| log.last.iter().cloned().collect()).unwrap_or_default()
    }

    /// Makes the server unavailable for a time: it refuses connections and breaks open ones, including watches.
    pub fn take_away(&self, how_long: Duration) {
        let mut state = self.lock();
        state.away = Some(Instant::now() + how_long);
        state.watches.clear();
    }

    /// Ends the open watches that match.
    pub fn cut_watches(&self, which: &Requests) {
        self.lock().watches.retain(|open| !which.matches(&open.facts));
    }

    /// Waits until a client crashes by [`Fault::crash`].
    pub async fn crashed(&self, client: &str) {
        let mut dead = self.shared.dead.subscribe();
        // This handle keeps the sender alive.
        let _dead = dead.wait_for(|dead| dead.contains(client)).await;
    }

    /// Ends the crash of a client.
    pub fn revive(&self, client: &str) {
        self.shared.dead.send_if_modified(|dead| dead.remove(client));
    }

    /// Crashes a client: ends its watches and stops answering its requests.
    pub(crate) fn kill(&self, client: &str) {
        // First, so that a watch that is opened concurrently also ends.
        self.shared.dead.send_if_modified(|dead| dead.insert(client.to_owned()));
        self.lock().watches.retain(|open| open.facts.client != client);
    }

    /// Counts a request and returns its outcome, after any delay.
    pub(crate) async fn meet(&self, call: &Call) -> Fate {
        if self.is_dead(&call.client) {
            return Fate::Never;
        }
        let facts = RequestFacts::new(call);
        let (effect, delay) = {
            let mut state = self.lock();
            if state.is_away() {
                return Fate::Away;
            }
            state.note(call, &facts);
            state.decide(&facts)
        };
        if !delay.is_zero() {
            sleep(delay).await;
            if self.is_dead(&call.client) {
                return Fate::Never;
            }
            if self.lock().is_away() {
                return Fate::Break;
            }
        }
        match effect {
            None | Some(Effect::Delay(_) | Effect::Cut { .. }) => Fate::Answer,
            Some(Effect::Answer(Moment::Before, error)) => Fate::Refuse(error),
            Some(Effect::Answer(Moment::After, error)) => Fate::RefuseAfter(error),
            Some(Effect::Break(Moment::Before)) => Fate::Break,
            Some(Effect::Break(Moment::After)) => Fate::BreakAfter,
            Some(Effect::Crash(Moment::Before)) => {
                self.kill(&call.client);
                Fate::Never
            }
            Some(Effect::Crash(Moment::After)) => Fate::NeverAfter,
        }
    }

    /// Returns a future that completes when a watch must end.
    pub(crate) fn cut(&self, call: &Call) -> Cut {
        let facts = RequestFacts::new(call);
        let mut state = self.lock();
        state.watches.retain(|open| !open.cut.is_closed());
        let (events, after) = state.cut(&facts);
        let (cut, waits) = oneshot::channel();
        let away = state.is_away() || self.is_dead(&call.client);
        if !away {
            state.watches.push(Open { facts, cut });
        }
        drop(state);
        let until = async move {
            match after {
                Some(after) => drop(tokio::time::timeout(after, waits).await),
                None => drop(waits.await),
            }
        };
        Cut { events, until: Box::pin(until) }
    }

    fn is_dead(&self, client: &str) -> bool {
        self.shared.dead.borrow().contains(client)
    }

    fn lock(&self) -> MutexGuard<'_, FaultState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultState {
    fn is_away(&self) -> bool {
        self.away.is_some_and(|until| Instant::now() < until)
    }

    fn note(&mut self, call: &Call, facts: &RequestFacts) {
        if call.client.is_empty() {
            return;
        }
        let log = self.logs.entry(call.client.clone()).or_default();
        log.count += 1;
        log.last.push_back(Logged::new(call, facts));
        // A server that runs for days must not keep every request.
        if log.last.len() > LOGGED {
            log.last.pop_front();
        }
    }

    /// Returns the effect on a request and its delay. Delays add up; of all other effects the first one applies.
    fn decide(&mut self, facts: &RequestFacts) -> (Option<Effect>, Duration) {
        let (mut decided, mut delay) = (None, Duration::ZERO);
        for fault in self.faults.iter_mut().filter(|fault| !matches!(fault.effect, Effect::Cut { .. })) {
            match fault.meets(facts) {
                Some(Effect::Delay(more)) => delay += *more,
                Some(effect) => decided = decided.or_else(|| Some(effect.clone())),
                None => {}
            }
        }
        self.faults.retain(|fault| !fault.is_over());
        (decided, delay)
    }

    /// Returns after how many events and after what time a watch must end.
    fn cut(&mut self, facts: &RequestFacts) -> (Option<usize>, Option<Duration>) {
        let mut limits: (Option<usize>, Option<Duration>) = (None, None);
        for fault in self.faults.iter_mut().filter(|fault| matches!(fault.effect, Effect::Cut { .. })) {
            if let Some(Effect::Cut { events, after }) = fault.meets(facts) {
                limits.0 = [limits.0, *events].into_iter().flatten().min();
                limits.1 = [limits.1, *after].into_iter().flatten().min();
            }
        }
        self.faults.retain(|fault| !fault.is_over());
        limits
    }
}

/// A future that completes when a watch must end.
pub(crate) struct Cut {
    /// How many more events the watch may send.
    events: Option<usize>,
    until: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Cut {
    /// Counts events, one per line, and drops those beyond the limit.
    pub(crate) fn pass(&mut self, mut events: String) -> String {
        if let Some(left) = &mut self.events {
            let ends: Vec<_> = events.match_indices('\n').map(|(at, _)| at + 1).take(*left).collect();
            *left -= ends.len();
            if *left == 0 {
                events.truncate(ends.last().copied().unwrap_or_default());
            }
        }
        events
    }
}

impl Future for Cut {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.events == Some(0) { Poll::Ready(()) } else { self.until.as_mut().poll(context) }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::FutureExt as _;
    use http::{HeaderMap, Method};

    use super::*;
    use crate::call::User;

    fn call(client: &str, method: Method, uri: &str) -> Call {
        body(client, method, uri, "")
    }

    fn body(client: &str, method: Method, uri: &str, body: &str) -> Call {
        let (user, body) = (User::admin(), Bytes::copy_from_slice(body.as_bytes()));
        Call::new(user, client.into(), method, &uri.parse().unwrap(), HeaderMap::new(), body).unwrap()
    }

    const A: &str = "/api/v1/namespaces/shop/configmaps/a";
    const ALL: &str = "/api/v1/configmaps";

    fn watch() -> Call {
        call("me", Method::GET, "/api/v1/configmaps?watch=1&resourceVersion=7")
    }

    /// Returns the outcomes of consecutive requests.
    async fn fates(faults: &Faults, calls: &[Call]) -> Vec<&'static str> {
        let mut fates = Vec::new();
        for call in calls {
            fates.push(match faults.meet(call).await {
                Fate::Answer => "answer",
                Fate::Refuse(_) => "refuse",
                Fate::RefuseAfter(_) => "refuse after",
                Fate::Away => "away",
                Fate::Break => "break",
                Fate::BreakAfter => "break after",
                Fate::Never => "never",
                Fate::NeverAfter => "never after",
            });
        }
        fates
    }

    #[tokio::test(start_paused = true)]
    async fn faults_affect_matching_requests() {
        let on = |which: Requests| Fault::broken(Moment::Before).on(which);
        let status = "/apis/apps/v1/namespaces/shop/deployments/web/status";
        let created = r#"{"metadata": {"name": "a"}}"#;
        let [get, other] = [call("me", Method::GET, A), call("you", Method::GET, A)];
        let [list, patched] = [call("me", Method::GET, ALL), call("me", Method::PATCH, status)];
        let post = body("me", Method::POST, "/api/v1/namespaces/shop/configmaps", created);
        let calls = [get, other, list, patched, post, call("me", Method::GET, "/apis")];
        for (which, expected) in [
            (Requests::all(), [true; 6]),
            (Requests::of("me"), [true, false, true, true, true, true]),
            (Requests::all().verb(Verb::Get), [true, true, false, false, false, true]),
            (Requests::all().verb(Verb::List).verb(Verb::Patch), [false, false, true, true, false, false]),
            (Requests::all().writes(), [false, false, false, true, true, false]),
            (Requests::all().resource("", "configmaps"), [true, true, true, false, true, false]),
            (Requests::all().resource("apps", "deployments"), [false, false, false, true, false, false]),
            (Requests::all().namespace("shop"), [true, true, false, true, true, false]),
            (Requests::all().name("a"), [true, true, false, false, true, false]),
            (Requests::all().subresource("status"), [false, false, false, true, false, false]),
            (Requests::of("you").name("b"), [false; 6]),
        ] {
            let faults = Faults::default();
            faults.inject(on(which.clone()));
            let broken: Vec<_> = fates(&faults, &calls).await.into_iter().map(|fate| fate == "break").collect();
            assert_eq!(broken, expected, "{which:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn faults_affect_limited_numbers_of_requests() {
        for (fault, expected) in [
            (Fault::broken(Moment::After), ["break after"; 4]),
            (Fault::broken(Moment::After).nth(2), ["answer", "break after", "answer", "answer"]),
            (Fault::too_many_requests(1).first(3), ["refuse", "refuse", "refuse", "answer"]),
            (Fault::timeout().nth(1), ["refuse after", "answer", "answer", "answer"]),
            (Fault::expired(), ["answer"; 4]),
            (Fault::crash(Moment::Before).nth(3), ["answer", "answer", "never", "never"]),
            (Fault::cut_after_events(0), ["answer"; 4]),
        ] {
            let faults = Faults::default();
            faults.inject(fault.clone());
            let calls: Vec<_> = std::iter::repeat_n(call("me", Method::GET, A), 4).collect();
            assert_eq!(fates(&faults, &calls).await, expected, "{fault:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_revisions_expire() {
        let faults = Faults::default();
        faults.inject(Fault::expired());
        let get = |query: &str| call("me", Method::GET, &format!("{ALL}?{query}"));
        let calls =
            ["", "resourceVersion=0", "continue=a", "resourceVersion=7", "watch=1", "watch=1&resourceVersion=7"];
        let fates = fates(&faults, &calls.map(get)).await;
        assert_eq!(fates, ["answer", "answer", "refuse", "refuse", "answer", "refuse"]);
    }

    #[tokio::test(start_paused = true)]
    async fn errors_are_those_of_the_api_server() {
        for (fault, code, reason, retry_after) in [
            (Fault::too_many_requests(7), 429, "TooManyRequests", Some(7)),
            (Fault::internal_error(), 500, "InternalError", None),
            (Fault::unavailable(), 503, "ServiceUnavailable", None),
            (Fault::timeout(), 504, "Timeout", None),
            (Fault::expired(), 410, "Expired", None),
        ] {
            let faults = Faults::default();
            faults.inject(fault);
            let (Fate::Refuse(error) | Fate::RefuseAfter(error)) = faults.meet(&watch()).await else {
                panic!("{code}")
            };
            assert_eq!((error.code.as_u16(), error.reason, error.retry_after), (code, reason, retry_after));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn delays_add_up() {
        let faults = Faults::default();
        faults.inject(Fault::delay(Duration::from_secs(2)));
        faults.inject(Fault::delay(Duration::from_secs(3)).on(Requests::of("me")));
        faults.inject(Fault::internal_error());
        let begun = Instant::now();
        assert_eq!(fates(&faults, &[watch()]).await, ["refuse"]);
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
        faults.clear();
        assert_eq!(fates(&faults, &[watch()]).await, ["answer"]);
    }

    #[tokio::test(start_paused = true)]
    async fn crashed_clients_get_no_answers_until_revived() {
        let faults = Faults::default();
        faults.inject(Fault::crash(Moment::Before).on(Requests::of("me")).nth(1));
        let mut cut = faults.cut(&watch());
        assert!(faults.crashed("me").now_or_never().is_none() && (&mut cut).now_or_never().is_none());
        let you = call("you", Method::GET, A);
        assert_eq!(fates(&faults, &[you.clone(), watch(), watch(), you]).await, ["answer", "never", "never", "answer"]);
        faults.crashed("me").await;
        cut.await;
        faults.revive("me");
        assert_eq!(fates(&faults, &[watch()]).await, ["answer"]);
        assert_eq!((faults.count("me"), faults.count("you")), (2, 2), "requests of a crashed client do not count");
    }

    #[tokio::test(start_paused = true)]
    async fn clients_can_crash_after_their_request_took_effect() {
        let faults = Faults::default();
        faults.inject(Fault::crash(Moment::After));
        assert_eq!(fates(&faults, &[watch()]).await, ["never after"]);
        assert!(faults.crashed("me").now_or_never().is_none());
        faults.kill("me");
        faults.crashed("me").await;
        assert_eq!(fates(&faults, &[watch()]).await, ["never"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_is_unavailable_for_a_time() {
        let faults = Faults::default();
        faults.inject(Fault::delay(Duration::from_secs(20)).nth(1));
        let cut = faults.cut(&watch());
        let waiting = tokio::spawn({
            let faults = faults.clone();
            async move { faults.meet(&watch()).await }
        });
        sleep(Duration::from_secs(15)).await;
        faults.take_away(Duration::from_secs(10));
        cut.await;
        assert_eq!(fates(&faults, &[watch()]).await, ["away"]);
        assert_eq!(waiting.await.unwrap(), Fate::Break);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(fates(&faults, &[watch()]).await, ["answer"]);
        assert_eq!(faults.count("me"), 2, "refused connections do not count");
    }

    #[tokio::test(start_paused = true)]
    async fn watches_are_cut() {
        let faults = Faults::default();
        let mut cuts = [faults.cut(&watch()), faults.cut(&call("you", Method::GET, "/api/v1/secrets?watch=true"))];
        faults.cut_watches(&Requests::all().resource("", "secrets"));
        let over: Vec<_> = cuts.iter_mut().map(|cut| cut.now_or_never().is_some()).collect();
        assert_eq!(over, [false, true]);

        faults.inject(Fault::cut_after_events(2).nth(1));
        faults.inject(Fault::cut_after(Duration::from_secs(3)));
        let (mut first, second) = (faults.cut(&watch()), faults.cut(&watch()));
        assert_eq!(first.pass("a\n".into()), "a\n");
        assert!((&mut first).now_or_never().is_none());
        assert_eq!(first.pass("b\nc\n".into()), "b\n");
        assert!((&mut first).now_or_never().is_some());
        let begun = Instant::now();
        second.await;
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_logged() {
        let faults = Faults::default();
        let deployment = "/apis/apps/v1/namespaces/shop/deployments/web/status?dryRun=All";
        let calls = [
            call("me", Method::GET, "/version"),
            watch(),
            call("me", Method::PATCH, deployment),
            call("", Method::GET, A),
        ];
        fates(&faults, &calls).await;
        let log: Vec<_> = faults.log("me").iter().map(ToString::to_string).collect();
        assert_eq!(log, ["get /version", "watch configmaps", "patch deployments.apps/shop/web/status (dry run)"]);
        assert!(faults.log("").is_empty());
    }
}
