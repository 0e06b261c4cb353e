//! Conformance: recorded requests that are replayed on two servers, which must respond alike.
//!
//! The files under `conformance/` contain sequences of requests and the responses of Kubernetes. A sequence is played on one
//! server at a time, which checks the recorded responses. Then the responses of both servers are compared, after values that
//! necessarily differ are replaced.
//!
//! In every text of a sequence, `$S` is a name that is unique to the sequence, so that sequences can run side by side on one
//! server, and `$name` is the value that an earlier request saved under `name`. `$HOOK` is the URL of a server of webhooks
//! that answer as their paths say, and `$CA` its `caBundle`.

mod compare;
mod normalise;
mod play;

use std::{collections::BTreeMap, path::Path, str::FromStr};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

pub use compare::{Difference, differences};
pub use play::{Clients, Played, play};

/// A sequence of requests in its own namespace.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sequence {
    /// The unique name of the sequence.
    pub name: String,
    /// Whether it needs its own control plane, because it breaks discovery or admission for all clients.
    #[serde(default)]
    pub exclusive: bool,
    /// Whether the namespace `$S` is created before the sequence.
    #[serde(default = "yes")]
    pub namespace: bool,
    /// Whether `managedFields` are compared. Only sequences about them need this; elsewhere they repeat what was sent.
    #[serde(default)]
    pub managed_fields: bool,
    /// Objects that are created before the sequence, in the namespace `$S` if they are namespaced and name none.
    #[serde(default)]
    pub given: Vec<Value>,
    /// The requests, in order.
    pub requests: Vec<Request>,
}

/// A request and the response of Kubernetes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// Method and path: `GET /api/v1/namespaces/$S/configmaps?limit=2`.
    #[serde(default)]
    pub request: String,
    /// The user that sends it.
    #[serde(default, rename = "as")]
    pub user: Who,
    /// Additional headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The content type: in full, or `json`, `merge`, `strategic` or `apply` for a patch. The default is JSON, and for a
    /// patch `json` if the body is a list and `merge` otherwise.
    #[serde(default, rename = "type")]
    pub content_type: Option<String>,
    /// The body: JSON, or a string that is sent unchanged.
    #[serde(default)]
    pub body: Option<Value>,
    /// Whether to repeat the request until the response is as recorded; only for idempotent requests.
    #[serde(default)]
    pub eventually: bool,
    /// The code and the reason of the response: `201`, `409 AlreadyExists`.
    #[serde(default)]
    pub expect: Expect,
    /// The values in the response, by path; `null` for missing ones.
    #[serde(default)]
    pub holds: BTreeMap<String, Value>,
    /// The parts of a successful response that must be equal on both servers; all by default. Errors are compared in full.
    #[serde(default)]
    pub compare: Option<Vec<String>>,
    /// The parts that may differ, with the reason.
    #[serde(default)]
    pub except: Vec<String>,
    /// The values to save for later requests, by path.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// Starts a watch under this name without reading any event.
    #[serde(default)]
    pub open: Option<String>,
    /// Continues to read the watch of this name, without a request.
    #[serde(default)]
    pub read: Option<String>,
    /// The events to read: `ADDED name`, `BOOKMARK`, `ERROR Expired`. The length of the list is the number of events.
    #[serde(default)]
    pub events: Option<Vec<String>>,
    /// Whether the server ends the watch after these events.
    #[serde(default)]
    pub ends: bool,
}

/// The user that sends a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Who {
    /// A member of `system:masters`.
    #[default]
    Admin,
    /// A user with only the permissions that the sequence grants to the user `restricted`.
    Restricted,
}

/// A code and a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The HTTP status code.
    pub code: u16,
    /// The `reason` of the `Status`; empty for success and for responses that are not a `Status`.
    pub reason: String,
}

impl Default for Expect {
    fn default() -> Self {
        Self { code: 200, reason: String::new() }
    }
}

impl std::fmt::Display for Expect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, if self.reason.is_empty() { "without a reason" } else { &self.reason })
    }
}

impl FromStr for Expect {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (code, reason) = text.split_once(' ').unwrap_or((text, ""));
        let code = code.parse().with_context(|| format!("{text}: expected a code and an optional reason"))?;
        Ok(Self { code, reason: reason.to_owned() })
    }
}

impl<'de> Deserialize<'de> for Expect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            other => other.to_string(),
        };
        text.parse().map_err(D::Error::custom)
    }
}

impl Sequence {
    /// Reads the sequences of a file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is not a list of sequences.
    pub fn load(path: &Path) -> Result<Vec<Self>> {
        let read = || -> Result<Vec<Self>> {
            let documents = billhook_objects::yaml::parse(&std::fs::read_to_string(path)?)?;
            let [document] = <[_; 1]>::try_from(documents).map_err(|_| anyhow!("expected one document"))?;
            let sequences: Vec<Self> = serde_json::from_value(document.value)?;
            sequences.iter().try_for_each(Self::check)?;
            Ok(sequences)
        };
        read().with_context(|| format!("read {}", path.display()))
    }

    /// Rejects a sequence that could not be played as intended.
    fn check(&self) -> Result<()> {
        let sound = self.name.len() <= 40 && self.name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'));
        ensure!(sound, "{}: expected a short name of a-z, 0-9 and -", self.name);
        for request in &self.requests {
            let sends = request.request.split_once(' ').is_some_and(|(_, path)| path.starts_with('/'));
            ensure!(sends != request.read.is_some(), "{}: {:?} is not a request", self.name, request.request);
            let reads = request.events.is_some() && !request.eventually;
            ensure!(reads || (request.read.is_none() && !request.ends), "{}: no events are expected", self.name);
        }
        Ok(())
    }

    /// Returns the sequence with `$S` replaced by a unique name, and other names by their values.
    fn under(&self, slug: &str, names: &BTreeMap<String, Value>) -> Self {
        let mut own = self.clone();
        let mut names = names.clone();
        names.insert("S".to_owned(), Value::from(slug));
        own.given.iter_mut().for_each(|object| fill_in(object, &names));
        own.requests = own.requests.iter().map(|request| request.filled_in(&names)).collect();
        own
    }
}

impl Request {
    /// Returns the name of the request in messages.
    fn title(&self) -> String {
        self.read.as_ref().map_or_else(|| self.request.clone(), |name| format!("the watch {name}"))
    }

    fn filled_in(&self, names: &BTreeMap<String, Value>) -> Self {
        let mut own = self.clone();
        own.request = fill_in_text(&own.request, names);
        own.body.iter_mut().chain(own.holds.values_mut()).for_each(|value| fill_in(value, names));
        own.headers.values_mut().for_each(|text| *text = fill_in_text(text, names));
        let paths = own.compare.iter_mut().flatten().chain(&mut own.except).chain(own.save.values_mut());
        paths.chain(own.events.iter_mut().flatten()).for_each(|text| *text = fill_in_text(text, names));
        own.holds = own.holds.into_iter().map(|(path, value)| (fill_in_text(&path, names), value)).collect();
        own
    }
}

/// Replaces names by the saved values; a text that is only a name becomes the value itself.
fn fill_in(value: &mut Value, names: &BTreeMap<String, Value>) {
    match value {
        Value::String(text) => match text.strip_prefix('$').and_then(|name| names.get(name)) {
            Some(saved) => *value = saved.clone(),
            None => *text = fill_in_text(text, names),
        },
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(item, names)),
        Value::Object(map) => {
            let filled = std::mem::take(map).into_iter().map(|(key, mut value)| {
                fill_in(&mut value, names);
                (fill_in_text(&key, names), value)
            });
            *map = filled.collect();
        }
        _ => {}
    }
}

fn fill_in_text(text: &str, names: &BTreeMap<String, Value>) -> String {
    // In reverse order, so that a name that starts with another one is replaced first.
    names.iter().rev().fold(text.to_owned(), |text, (name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.replace(&format!("${name}"), &value)
    })
}

fn yes() -> bool {
    true
}
