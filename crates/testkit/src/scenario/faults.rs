//! What goes wrong with the requests of a call, as scenario files say it. It can be had of the sandbox only.

use std::time::Duration;

use anyhow::{Result, anyhow};
use billhook_sandbox::{
    Verb,
    faults::{self, Moment, Requests},
};
use jiff::fmt::serde::unsigned_duration::friendly::compact as friendly;
use serde::Deserialize;

/// Something that goes wrong with some requests of a call: with all that fit, unless `nth` or `first` is given.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// What goes wrong.
    what: What,
    /// Seconds after which the client may try again, for `tooManyRequests`.
    #[serde(default)]
    retry_after: u64,
    /// By how much `delay` delays the answer.
    #[serde(default, with = "friendly::required")]
    by: Duration,
    /// After how many events `cutWatch` cuts.
    #[serde(default)]
    events: usize,
    /// `create`, `watch`, as RBAC spells them.
    #[serde(default)]
    verb: Option<String>,
    /// `configmaps`, `deployments.apps`.
    #[serde(default)]
    resource: Option<String>,
    /// The name of the object.
    #[serde(default)]
    name: Option<String>,
    /// Only one of them, the first being 1.
    #[serde(default)]
    nth: Option<usize>,
    /// Only so many of them, from the first one on.
    #[serde(default)]
    first: Option<usize>,
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum What {
    TooManyRequests,
    InternalError,
    Unavailable,
    /// 504, after the effect.
    Timeout,
    Expired,
    /// The connection breaks, and nothing happened.
    Broken,
    /// The connection breaks after the effect.
    LostAnswer,
    Delay,
    CutWatch,
}

impl Fault {
    /// The same for the requests of this client.
    pub(super) fn of(&self, client: &str) -> Result<faults::Fault> {
        let fault = match self.what {
            What::TooManyRequests => faults::Fault::too_many_requests(self.retry_after),
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
    all.into_iter().find(|verb| verb.as_str() == text).ok_or_else(|| anyhow!("{text} is no verb"))
}
