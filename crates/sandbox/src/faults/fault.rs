//! One fault: on which requests, when, and what.

use std::{fmt, time::Duration};

use http::StatusCode;

use crate::{
    call::{Call, Target, Verb},
    status::{ApiError, Qualified},
};

/// Whether something goes wrong before a request takes effect or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before: it has no effect.
    Before,
    /// After: it has all of its effect, and the client does not learn of it.
    After,
}

/// Which requests: all those for which every condition holds.
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
    /// All requests.
    pub fn all() -> Self {
        Self::default()
    }

    /// All requests of a client.
    pub fn of(client: impl Into<String>) -> Self {
        Self { client: Some(client.into()), ..Self::default() }
    }

    /// Only those with this verb, or another one that is named so.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verbs.push(verb);
        self
    }

    /// Only those that may change something.
    #[must_use]
    pub fn writes(mut self) -> Self {
        self.verbs.extend([Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection]);
        self
    }

    /// Only those about this resource: `apps`, `deployments`.
    #[must_use]
    pub fn resource(mut self, group: impl Into<String>, plural: impl Into<String>) -> Self {
        self.resource = Some(Qualified::new(group, plural));
        self
    }

    /// Only those in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only those about objects of this name, their creation too.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only those about this subresource: `status`.
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

/// What is known of a request.
#[derive(Debug)]
pub(super) struct RequestFacts {
    pub(super) client: String,
    verb: Verb,
    /// Whether it asks for a revision that the server may have forgotten.
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
        // The path of what is yet to be made does not name it.
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

/// Something that goes wrong, with each request unless it says otherwise.
#[derive(Clone, Debug)]
pub struct Fault {
    which: Requests,
    when: When,
    pub(super) effect: Effect,
    /// How many requests matched so far.
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
    /// Refuses with this code, reason and message: nothing happens.
    pub fn refuse(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Effect::Answer(Moment::Before, ApiError::new(code, reason, message)))
    }

    /// 429, to be tried again after so many seconds.
    pub fn too_many_requests(retry_after: u64) -> Self {
        let message = "Too many requests, please try again later.";
        let mut error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        error.retry_after = Some(retry_after);
        Self::new(Effect::Answer(Moment::Before, error))
    }

    /// 500, as the API server answers while etcd elects a leader.
    pub fn internal_error() -> Self {
        Self::refuse(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "etcdserver: leader changed")
    }

    /// 503, as an API server answers that begins or ends.
    pub fn unavailable() -> Self {
        let message = "the server is currently unable to handle the request";
        Self::refuse(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// 504, after the request took effect.
    pub fn timeout() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(Effect::Answer(Moment::After, ApiError::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)))
    }

    /// 410: the revision that is facts for is forgotten. Only watches from a revision on, and lists that go on, ask so.
    pub fn expired() -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                       new list without the continue parameter.";
        Self::new(Effect::Answer(Moment::Before, ApiError::expired(message)))
    }

    /// Answers only after so long.
    pub fn delay(by: Duration) -> Self {
        Self::new(Effect::Delay(by))
    }

    /// Breaks the connection.
    pub fn broken(moment: Moment) -> Self {
        Self::new(Effect::Break(moment))
    }

    /// The client dies: no answer comes, ever, not to its other requests either, until it lives again
    /// ([`Faults::revive`](super::Faults::revive)). [`Faults::crashed`](super::Faults::crashed) tells of it.
    pub fn crash(moment: Moment) -> Self {
        Self::new(Effect::Crash(moment))
    }

    /// Ends a watch after so many events.
    pub fn cut_after_events(events: usize) -> Self {
        Self::new(Effect::Cut { events: Some(events), after: None })
    }

    /// Ends a watch after so long.
    pub fn cut_after(after: Duration) -> Self {
        Self::new(Effect::Cut { events: None, after: Some(after) })
    }

    fn new(effect: Effect) -> Self {
        Self { which: Requests::all(), when: When::Each, effect, met: 0 }
    }

    /// Only with these requests.
    #[must_use]
    pub fn on(mut self, which: Requests) -> Self {
        self.which = which;
        self
    }

    /// Only with one of the requests, the first of them being 1.
    #[must_use]
    pub fn nth(mut self, n: usize) -> Self {
        self.when = When::Nth(n);
        self
    }

    /// Only with so many of the requests, from the first one on.
    #[must_use]
    pub fn first(mut self, count: usize) -> Self {
        self.when = When::First(count);
        self
    }

    /// Counts a request and says what goes wrong with it.
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

    /// Whether it never meets a request any more.
    pub(super) fn is_over(&self) -> bool {
        match self.when {
            When::Each => false,
            When::Nth(count) | When::First(count) => self.met >= count,
        }
    }
}
