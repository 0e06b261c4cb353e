//! Plays a sequence on one server.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, bail};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Expect, Request, Sequence, Who, compare::find, normalise::normalise};

/// The time limit for waiting. The namespace controller retries only after 5 to 15 s; and a CRD whose instances remain, such as that
/// of another sequence, occupies one of the few workers of the API server that end CRDs for a minute at a time.
const LIMIT: Duration = Duration::from_secs(180);

/// The interval between attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// The cluster-scoped kinds of given objects.
const CLUSTER_SCOPED: [&str; 12] = [
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "APIService",
    "PersistentVolume",
    "CertificateSigningRequest",
    "MutatingWebhookConfiguration",
    "Node",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];

/// A server with a client for each user.
#[derive(Clone)]
pub struct Clients {
    /// The client of a member of `system:masters`.
    pub admin: kube::Client,
    /// The client of the user `restricted`.
    pub restricted: kube::Client,
}

/// A response.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    /// The `Warning` headers.
    pub(super) warnings: Value,
    /// JSON, a plain text, or the list of the events of a watch.
    pub(super) body: Value,
}

/// The result of a sequence on one server.
#[derive(Debug)]
pub struct Played {
    /// The normalised responses, one for each request.
    pub(super) answers: Vec<Answer>,
    /// The differences from the recorded responses.
    pub wrong: Vec<String>,
}

/// Plays a sequence under a name that is not yet used on the server, with other names and their values.
///
/// # Errors
///
/// Fails if the given objects cannot be created, or the server cannot be reached. A wrong response is not an error.
pub async fn play(
    sequence: &Sequence,
    slug: &str,
    names: &BTreeMap<String, Value>,
    clients: &Clients,
) -> Result<Played> {
    let own = sequence.under(slug, names);
    let mut player = Player { clients, watches: BTreeMap::new(), saved: BTreeMap::new() };
    player.give(&own, slug).await?;
    let (mut answers, mut wrong) = (Vec::new(), Vec::new());
    for (at, request) in own.requests.iter().enumerate() {
        let title = || format!("{}. {}", at + 1, request.title());
        let request = request.filled_in(&player.saved);
        let answer = player.answer(&request).await.with_context(title)?;
        wrong.extend(mistakes(&request, &answer).into_iter().map(|mistake| format!("{}\n   {mistake}", title())));
        for (name, path) in &request.save {
            player.saved.insert(name.clone(), find(&answer.body, path));
        }
        answers.push(answer);
    }
    normalise(&mut answers, slug, sequence.managed_fields);
    Ok(Played { answers, wrong })
}

/// Returns the differences of a response from the recorded one.
fn mistakes(request: &Request, answer: &Answer) -> Vec<String> {
    let mut all = Vec::new();
    let refused = answer.body["kind"] == "Status" && answer.body["status"] == "Failure";
    let reason = answer.body["reason"].as_str().filter(|_| refused).unwrap_or_default();
    let got = Expect { code: answer.code, reason: reason.to_owned() };
    if got != request.expect {
        all.push(format!("answered with {got} instead of {}: {}", request.expect, short(&answer.body)));
    }
    for (path, wanted) in &request.holds {
        let is = find(&answer.body, path);
        if is != *wanted {
            all.push(format!("has {} instead of {wanted} at {path}", short(&is)));
        }
    }
    if let Some(wanted) = &request.events {
        let events: Vec<_> = answer.body.as_array().into_iter().flatten().map(event).collect();
        if events != *wanted {
            all.push(format!("sent the events {events:?} instead of {wanted:?}"));
        }
    }
    all
}

/// Formats an event as `ADDED name`, `BOOKMARK` or `ERROR Expired`.
fn event(event: &Value) -> String {
    let object = &event["object"];
    let name = [&object["metadata"]["name"], &object["reason"]].into_iter().find_map(Value::as_str);
    let kind = event["type"].as_str().unwrap_or("?");
    name.map_or_else(|| kind.to_owned(), |name| format!("{kind} {name}"))
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    let end = text.char_indices().nth(600).map_or(text.len(), |(at, _)| at);
    text[..end].to_owned()
}

struct Player<'a> {
    clients: &'a Clients,
    watches: BTreeMap<String, Watch>,
    saved: BTreeMap<String, Value>,
}

impl Player<'_> {
    /// Creates the namespace and the given objects.
    async fn give(&mut self, sequence: &Sequence, slug: &str) -> Result<()> {
        if sequence.namespace {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": slug}});
            self.give_one(namespace, slug).await?;
        }
        for object in &sequence.given {
            self.give_one(object.clone(), slug).await.with_context(|| format!("give {}", short(object)))?;
        }
        Ok(())
    }

    async fn give_one(&mut self, object: Value, slug: &str) -> Result<()> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let (kind, version) = (text("/kind").context("no kind")?, text("/apiVersion").context("no apiVersion")?);
        let gvk: kube::api::TypeMeta = serde_json::from_value(object.clone())?;
        let resource = kube::discovery::ApiResource::from_gvk(&kube::api::GroupVersionKind::try_from(gvk)?);
        let prefix = if version.contains('/') { "apis" } else { "api" };
        let place = match text("/metadata/namespace") {
            _ if CLUSTER_SCOPED.contains(&kind) => String::new(),
            namespace => format!("namespaces/{}/", namespace.unwrap_or(slug)),
        };
        let path = format!("/{prefix}/{version}/{place}{}", resource.plural);
        let name = text("/metadata/name").unwrap_or_default().to_owned();
        let established = ("/status/conditions/type=Established/status".to_owned(), json!("True"));
        let holds = (kind == "CustomResourceDefinition").then_some(established);
        // A new namespace may not have the objects that admission requires yet, and a new kind may not be served yet.
        let request = format!("POST {path}");
        let expect = Expect { code: 201, reason: String::new() };
        let post = Request { request, body: Some(object), expect, eventually: true, ..Request::default() };
        let made = self.answer(&post).await?;
        if made.code != 201 {
            bail!("{}", mistakes(&post, &made).concat());
        }
        let request = format!("GET {path}/{name}");
        let look = Request { request, holds: holds.into_iter().collect(), eventually: true, ..Request::default() };
        self.answer(&look).await?;
        Ok(())
    }

    /// Sends a request, and repeats it until the response is as recorded if the sequence says so.
    async fn answer(&mut self, request: &Request) -> Result<Answer> {
        let start = Instant::now();
        loop {
            let answer = match tokio::time::timeout(LIMIT, self.answer_once(request)).await {
                Ok(answer) => answer?,
                Err(_) => Answer { code: 0, warnings: Value::Null, body: "no response in time".into() },
            };
            if !request.eventually || mistakes(request, &answer).is_empty() || start.elapsed() > LIMIT {
                return Ok(answer);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn answer_once(&mut self, request: &Request) -> Result<Answer> {
        let count = request.events.as_ref().map(Vec::len);
        if let Some(name) = &request.read {
            let watch = self.watches.get_mut(name).with_context(|| format!("no watch {name} was started"))?;
            let body = watch.read(count.unwrap_or_default(), request.ends).await?;
            return Ok(Answer { code: 200, warnings: Value::Null, body });
        }
        let client = if request.user == Who::Restricted { &self.clients.restricted } else { &self.clients.admin };
        let (head, body) = client.send(assemble(request)?).await?.into_parts();
        let warnings = head.headers.get_all("warning").iter().map(|text| String::from_utf8_lossy(text.as_bytes()));
        let mut answer = Answer { code: head.status.as_u16(), warnings: warnings.collect(), body: Value::Null };
        let mut watch = Watch { body, rest: Vec::new() };
        match (&request.open, count) {
            (Some(name), _) if head.status.is_success() => drop(self.watches.insert(name.clone(), watch)),
            (_, Some(count)) if head.status.is_success() => answer.body = watch.read(count, request.ends).await?,
            _ => answer.body = parse(&watch.body.collect().await?.to_bytes()),
        }
        Ok(answer)
    }
}

fn assemble(request: &Request) -> Result<http::Request<Body>> {
    let (method, path) = request.request.split_once(' ').context("expected a method and a path")?;
    let of_patch = |kind: &str| match kind {
        "json" | "merge" | "strategic" => {
            let dashed = if kind == "strategic" { "strategic-merge" } else { kind };
            format!("application/{dashed}-patch+json")
        }
        "apply" => "application/apply-patch+yaml".to_owned(),
        full => full.to_owned(),
    };
    let usual = match (method, &request.body) {
        ("PATCH", Some(Value::Array(_))) => "json",
        ("PATCH", _) => "merge",
        _ => "application/json",
    };
    let mut builder = http::Request::builder().method(method).uri(path);
    if !request.headers.contains_key("Accept") {
        builder = builder.header("Accept", "application/json");
    }
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    let body = match &request.body {
        None => Vec::new(),
        Some(Value::String(text)) => text.clone().into_bytes(),
        Some(value) => serde_json::to_vec(value)?,
    };
    if request.body.is_some() {
        builder = builder.header("Content-Type", of_patch(request.content_type.as_deref().unwrap_or(usual)));
    }
    Ok(builder.body(Body::from(body))?)
}

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).trim_end().into())
}

/// A watch that is being read.
struct Watch {
    body: Body,
    /// The incomplete line received so far.
    rest: Vec<u8>,
}

impl Watch {
    /// Reads `count` events, and all further ones if the watch is expected to end.
    async fn read(&mut self, count: usize, to_the_end: bool) -> Result<Value> {
        let mut events = Vec::new();
        while to_the_end || events.len() < count {
            let Some(line) = self.line().await? else { break };
            events.push(parse(&line));
        }
        Ok(events.into())
    }

    async fn line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.rest.drain(..=end).collect()));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}
