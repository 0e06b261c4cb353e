//! Faults of the requests of a command, in the syntax of scenario files. Only the sandbox can inject them.

use std::time::Duration;

use anyhow::{Result, anyhow};
use billhook_sandbox::{
    Verb,
    faults::{self, Moment, Requests},
};
use http::StatusCode;
use jiff::fmt::serde::unsigned_duration::friendly::compact as friendly;
use serde::Deserialize;

/// A fault of some requests of a command: of all that match, unless `nth` or `first` is set.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// The kind of fault.
    what: What,
    /// The seconds after which the client may retry, for `tooManyRequests`.
    #[serde(default)]
    retry_after: u64,
    /// The delay of the response, for `delay`.
    #[serde(default, with = "friendly::required")]
    by: Duration,
    /// The number of events before the watch ends, for `cutWatch`.
    #[serde(default)]
    events: usize,
    /// The verb as in RBAC, such as `create` or `watch`.
    #[serde(default)]
    verb: Option<String>,
    /// The resource, such as `configmaps` or `deployments.apps`.
    #[serde(default)]
    resource: Option<String>,
    /// The name of the object.
    #[serde(default)]
    name: Option<String>,
    /// The number of the only affected request, counted from 1.
    #[serde(default)]
    nth: Option<usize>,
    /// The number of affected requests, from the first one on.
    #[serde(default)]
    first: Option<usize>,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum What {
    TooManyRequests,
    /// The request is rejected with 403.
    Forbidden,
    InternalError,
    Unavailable,
    /// The request is answered with 504 after it took effect.
    Timeout,
    Expired,
    /// The connection breaks before the request takes effect.
    Broken,
    /// The connection breaks after the request took effect.
    LostAnswer,
    Delay,
    CutWatch,
}

impl Fault {
    /// Returns the fault of the sandbox for the requests of this client.
    pub(super) fn of(&self, client: &str) -> Result<faults::Fault> {
        let fault = match self.what {
            What::TooManyRequests => faults::Fault::too_many_requests(self.retry_after),
            What::Forbidden => faults::Fault::refuse(StatusCode::FORBIDDEN, "Forbidden", "forbidden by the scenario"),
            What::InternalError => faults::Fault::internal_error(),
            What::Unavailable => faults::Fault::unavailable(),
            What::Timeout => faults::Fault::timeout(),
            What::Expired => faults::Fault::expired(),
            What::Broken => faults::Fault::broken(Moment::Before),
            What::LostAnswer => faults::Fault::broken(Moment::After),
            What::Delay => faults::Fault::delay(self.by),
            What::CutWatch => faults::Fault::cut_after_events(self.events),
        };
        let mut which = Requests::of(client);
        if let Some(verb) = &self.verb {
            which = which.verb(verb_of(verb)?);
        }
        if let Some(resource) = &self.resource {
            let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
            which = which.resource(group, plural);
        }
        if let Some(name) = &self.name {
            which = which.name(name);
        }
        let fault = fault.on(which);
        Ok(match (self.nth, self.first) {
            (Some(nth), _) => fault.nth(nth),
            (None, Some(first)) => fault.first(first),
            (None, None) => fault,
        })
    }
}

fn verb_of(text: &str) -> Result<Verb> {
    use Verb::{Create, Delete, DeleteCollection, Get, List, Patch, Update, Watch};
    let all = [Get, List, Watch, Create, Update, Patch, Delete, DeleteCollection];
    all.into_iter().find(|verb| verb.as_str() == text).ok_or_else(|| anyhow!("{text} is not a verb"))
}
