//! Single faults: which requests they affect, when, and how.

use std::{fmt, time::Duration};

use http::StatusCode;

use crate::{
    call::{Call, Target, Verb},
    status::{ApiError, Qualified},
};

/// Whether a fault occurs before or after the request takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the request takes effect.
    Before,
    /// After the request took effect, of which the client does not learn.
    After,
}

/// A filter for requests. All conditions must match.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    client: Option<String>,
    verbs: Vec<Verb>,
    resource: Option<Qualified>,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
}

impl Requests {
    /// Matches all requests.
    pub fn all() -> Self {
        Self::default()
    }

    /// Matches all requests of a client.
    pub fn of(client: impl Into<String>) -> Self {
        Self { client: Some(client.into()), ..Self::default() }
    }

    /// Matches only this verb, in addition to other verbs given.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verbs.push(verb);
        self
    }

    /// Matches only verbs that may change something.
    #[must_use]
    pub fn writes(mut self) -> Self {
        self.verbs.extend([Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection]);
        self
    }

    /// Matches only this resource: `apps`, `deployments`.
    #[must_use]
    pub fn resource(mut self, group: impl Into<String>, plural: impl Into<String>) -> Self {
        self.resource = Some(Qualified::new(group, plural));
        self
    }

    /// Matches only this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Matches only objects of this name, including their creation.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Matches only this subresource: `status`.
    #[must_use]
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    pub(super) fn matches(&self, facts: &RequestFacts) -> bool {
        let same = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        self.client.as_ref().is_none_or(|client| *client == facts.client)
            && (self.verbs.is_empty() || self.verbs.contains(&facts.verb))
            && (self.resource.is_none() || self.resource == facts.resource)
            && same(&self.namespace, &facts.namespace)
            && same(&self.name, &facts.name)
            && same(&self.subresource, &facts.subresource)
    }
}

/// The properties of a request by which faults select it.
#[derive(Debug)]
pub(super) struct RequestFacts {
    pub(super) client: String,
    verb: Verb,
    /// Whether the request refers to a revision that may no longer be in the history.
    pub(super) can_expire: bool,
    resource: Option<Qualified>,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
}

impl RequestFacts {
    pub(super) fn new(call: &Call) -> Self {
        let (client, verb) = (call.client.clone(), call.verb);
        let revision = call.text("resourceVersion").is_some_and(|revision| revision != "0");
        let can_expire = match verb {
            Verb::Watch => revision,
            Verb::List => revision || call.text("continue").is_some(),
            _ => false,
        };
        let Target::Resource(path) = &call.target else {
            return Self { client, verb, can_expire, resource: None, namespace: None, name: None, subresource: None };
        };
        // The path of a POST does not contain the name.
        let name = path.name.clone().or_else(|| {
            let body = (verb == Verb::Create).then(|| call.json().ok()).flatten()?;
            body["metadata"]["name"].as_str().map(str::to_owned)
        });
        let resource = Some(Qualified::new(&path.group, &path.plural));
        let (namespace, subresource) = (path.namespace.clone(), path.subresource.clone());
        Self { client, verb, can_expire, resource, namespace, name, subresource }
    }
}

/// `deployments.apps/shop/web/status`
impl fmt::Display for RequestFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.resource.as_ref().map_or(Ok(()), |resource| resource.fmt(f))?;
        let parts = [&self.namespace, &self.name, &self.subresource];
        parts.into_iter().flatten().try_for_each(|part| write!(f, "/{part}"))
    }
}

/// A fault that affects every matching request, unless limited.
#[derive(Clone, Debug)]
pub struct Fault {
    which: Requests,
    when: When,
    pub(super) effect: Effect,
    /// How many requests have matched so far.
    met: usize,
}

#[derive(Clone, Copy, Debug)]
enum When {
    Each,
    Nth(usize),
    First(usize),
}

#[derive(Clone, Debug)]
pub(super) enum Effect {
    Answer(Moment, ApiError),
    Delay(Duration),
    Break(Moment),
    Crash(Moment),
    Cut { events: Option<usize>, after: Option<Duration> },
}

impl Fault {
    /// Rejects requests with a code, a reason and a message, without effect.
    pub fn refuse(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Effect::Answer(Moment::Before, ApiError::new(code, reason, message)))
    }

    /// Rejects requests with 429 and a `Retry-After` in seconds.
    pub fn too_many_requests(retry_after: u64) -> Self {
        let message = "Too many requests, please try again later.";
        let mut error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        error.retry_after = Some(retry_after);
        Self::new(Effect::Answer(Moment::Before, error))
    }

    /// Rejects requests with 500, as the API server does while etcd elects a leader.
    pub fn internal_error() -> Self {
        Self::refuse(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "etcdserver: leader changed")
    }

    /// Rejects requests with 503, as an API server does while it starts or stops.
    pub fn unavailable() -> Self {
        let message = "the server is currently unable to handle the request";
        Self::refuse(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// Answers requests with 504 after they took effect.
    pub fn timeout() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(Effect::Answer(Moment::After, ApiError::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)))
    }

    /// Answers requests with 410, as if their revision were no longer in the history. This only affects watches that
    /// start at a revision, and lists that refer to one.
    pub fn expired() -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                       new list without the continue parameter.";
        Self::new(Effect::Answer(Moment::Before, ApiError::expired(message)))
    }

    /// Delays the answer.
    pub fn delay(by: Duration) -> Self {
        Self::new(Effect::Delay(by))
    }

    /// Breaks the connection.
    pub fn broken(moment: Moment) -> Self {
        Self::new(Effect::Break(moment))
    }

    /// Makes the client crash: neither this nor any other of its requests is ever answered, until
    /// [`Faults::revive`](super::Faults::revive). [`Faults::crashed`](super::Faults::crashed) waits for the crash.
    pub fn crash(moment: Moment) -> Self {
        Self::new(Effect::Crash(moment))
    }

    /// Ends a watch after a number of events.
    pub fn cut_after_events(events: usize) -> Self {
        Self::new(Effect::Cut { events: Some(events), after: None })
    }

    /// Ends a watch after a time.
    pub fn cut_after(after: Duration) -> Self {
        Self::new(Effect::Cut { events: None, after: Some(after) })
    }

    fn new(effect: Effect) -> Self {
        Self { which: Requests::all(), when: When::Each, effect, met: 0 }
    }

    /// Limits the fault to matching requests.
    #[must_use]
    pub fn on(mut self, which: Requests) -> Self {
        self.which = which;
        self
    }

    /// Limits the fault to the nth matching request, counted from 1.
    #[must_use]
    pub fn nth(mut self, n: usize) -> Self {
        self.when = When::Nth(n);
        self
    }

    /// Limits the fault to the first matching requests.
    #[must_use]
    pub fn first(mut self, count: usize) -> Self {
        self.when = When::First(count);
        self
    }

    /// Counts a request and returns the effect on it, if the fault affects it.
    pub(super) fn meets(&mut self, facts: &RequestFacts) -> Option<&Effect> {
        let possible = match &self.effect {
            Effect::Answer(_, error) => error.code != StatusCode::GONE || facts.can_expire,
            Effect::Cut { .. } => facts.verb == Verb::Watch,
            _ => true,
        };
        if !possible || !self.which.matches(facts) {
            return None;
        }
        self.met += 1;
        let now = match self.when {
            When::Each => true,
            When::Nth(n) => self.met == n,
            When::First(count) => self.met <= count,
        };
        now.then_some(&self.effect)
    }

    /// Returns whether the fault cannot affect any more requests.
    pub(super) fn is_over(&self) -> bool {
        match self.when {
            When::Each => false,
            When::Nth(count) | When::First(count) => self.met >= count,
        }
    }
}
