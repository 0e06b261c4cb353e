//! Conformance: recorded requests that are replayed on two servers, whose answers must be the same.
//!
//! The files under `conformance/` hold sequences of requests and what each is answered with by Kubernetes. A sequence is
//! played on one server at a time. What it recorded is checked there and then; the answers of two servers, with all
//! that differs by nature replaced, are compared afterwards.
//!
//! `$S` in any text of a sequence stands for a name of its own, so that sequences can run side by side on one server;
//! `$name` for what an earlier request has saved under `name`.

mod compare;
mod normalise;
mod play;

use std::{collections::BTreeMap, path::Path, str::FromStr};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

pub use compare::{Difference, differences};
pub use play::{Clients, Played, play};

/// Requests that follow one another, in a namespace of their own.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sequence {
    /// A name that no other sequence has.
    pub name: String,
    /// Whether it needs a control plane of its own, since it breaks discovery or admission for all.
    #[serde(default)]
    pub exclusive: bool,
    /// Whether the namespace `$S` is made beforehand.
    #[serde(default = "yes")]
    pub namespace: bool,
    /// Whether `managedFields` count, too. They do where a sequence is about them; elsewhere they would only repeat
    /// what was sent.
    #[serde(default)]
    pub managed_fields: bool,
    /// Objects that are made beforehand, in the namespace `$S` where they name none and their kind has one.
    #[serde(default)]
    pub given: Vec<Value>,
    /// What is sent, in order.
    pub requests: Vec<Request>,
}

/// A request, and what Kubernetes answers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// Method and path: `GET /api/v1/namespaces/$S/configmaps?limit=2`.
    #[serde(default)]
    pub request: String,
    /// Who sends it.
    #[serde(default, rename = "as")]
    pub user: Who,
    /// Further headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The content type: in full, or the `json`, `merge`, `strategic` or `apply` of a patch. Otherwise it is JSON, and
    /// of a patch `json` for a list and `merge` for the rest.
    #[serde(default, rename = "type")]
    pub content_type: Option<String>,
    /// What is sent: as JSON, or a text as it is.
    #[serde(default)]
    pub body: Option<Value>,
    /// Send it again and again until it is answered as recorded. Only for what may be done twice.
    #[serde(default)]
    pub eventually: bool,
    /// The code and the reason of the answer: `201`, `409 AlreadyExists`.
    #[serde(default)]
    pub expect: Expect,
    /// What the answer holds, by path; `null` for what is not there.
    #[serde(default)]
    pub holds: BTreeMap<String, Value>,
    /// The parts of a successful answer that must be the same on both servers; all by default. Of a refusal, everything.
    #[serde(default)]
    pub compare: Option<Vec<String>>,
    /// The parts that need not be the same, for a reason that is given beside them.
    #[serde(default)]
    pub except: Vec<String>,
    /// What later requests may name, by path.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// Begin a watch under this name and read nothing of it yet.
    #[serde(default)]
    pub open: Option<String>,
    /// Go on reading the watch of this name. Nothing is sent.
    #[serde(default)]
    pub read: Option<String>,
    /// The events that are read: `ADDED name`, `BOOKMARK`, `ERROR Expired`. The list's length is the number that is read.
    #[serde(default)]
    pub events: Option<Vec<String>>,
    /// Whether nothing follows those events: the server ends the watch.
    #[serde(default)]
    pub ends: bool,
}

/// Who sends a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Who {
    /// A member of `system:masters`.
    #[default]
    Admin,
    /// A user without rights, but for those that the sequence gives to the user `restricted`.
    Restricted,
}

/// A code and a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The HTTP status code.
    pub code: u16,
    /// The `reason` of the `Status`; empty for success and for answers that are no `Status`.
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
        let code = code.parse().with_context(|| format!("{text}: a code and perhaps a reason are expected"))?;
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
    /// When it cannot be read or holds something else.
    pub fn load(path: &Path) -> Result<Vec<Self>> {
        let read = || -> Result<Vec<Self>> {
            let documents = billhook_objects::yaml::parse(&std::fs::read_to_string(path)?)?;
            let [document] = <[_; 1]>::try_from(documents).map_err(|_| anyhow!("it must hold one document"))?;
            let sequences: Vec<Self> = serde_json::from_value(document.value)?;
            sequences.iter().try_for_each(Self::check)?;
            Ok(sequences)
        };
        read().with_context(|| format!("read {}", path.display()))
    }

    /// Refuses what could not be played as it is meant.
    fn check(&self) -> Result<()> {
        let sound = self.name.len() <= 40 && self.name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'));
        ensure!(sound, "{}: a short name of a-z, 0-9 and - is needed", self.name);
        for request in &self.requests {
            let sends = request.request.split_once(' ').is_some_and(|(_, path)| path.starts_with('/'));
            ensure!(sends != request.read.is_some(), "{}: {:?} is no request", self.name, request.request);
            let reads = request.events.is_some() && !request.eventually;
            ensure!(reads || (request.read.is_none() && !request.ends), "{}: no events are told", self.name);
        }
        Ok(())
    }

    /// The same under a name of its own: what `$S` stands for.
    fn under(&self, slug: &str) -> Self {
        let mut own = self.clone();
        let names = BTreeMap::from([("S".to_owned(), Value::from(slug))]);
        own.given.iter_mut().for_each(|object| fill_in(object, &names));
        own.requests = own.requests.iter().map(|request| request.filled_in(&names)).collect();
        own
    }
}

impl Request {
    /// How it is called in what is said about it.
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

/// Puts the saved values in the place of their names; a text that is nothing but a name becomes the value itself.
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
    // Backwards: where one name begins with another, the longer one first.
    names.iter().rev().fold(text.to_owned(), |text, (name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.replace(&format!("${name}"), &value)
    })
}

fn yes() -> bool {
    true
}
