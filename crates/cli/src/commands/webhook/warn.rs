//! `/warn-on-delete`: answers reviews of deletions with warnings. It never denies.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use billhook_engine::{Expected, Outlook, Prospect};
use billhook_explain::{Foreseen, ObjectRef, ResponsibleState};
use billhook_extension::admission::MAX_REVIEW;
use billhook_objects::{GroupKind, ObjectKey, wellknown};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use crate::output::Paint;

/// How many warnings an answer has, and how long each is, in bytes: API servers drop what is longer than 4 KiB together.
const MAX_WARNINGS: usize = 5;
const MAX_LENGTH: usize = 256;
/// How long the receipt of a review may take, and the whole answer: API servers wait for one second, as registered in `deploy/`.
const RECEIPT: Duration = Duration::from_millis(500);
const BUDGET: Duration = Duration::from_millis(800);
/// How many reviews are received at once.
const AT_ONCE: usize = 16;
/// How many answers are computed at once.
const COMPUTED: usize = 8;
/// How many reviews of a user are answered with warnings in a period.
const REVIEWS: u32 = 30;
const PERIOD: Duration = Duration::from_secs(60);
/// How many users are remembered.
const USERS: usize = 4096;
/// How many objects and parts a warning names.
const NAMED: usize = 3;

/// What answers reviews.
pub(super) struct Warner {
    look: Arc<Look>,
    computing: Arc<Semaphore>,
    budget: Duration,
    /// Whether service accounts are warned, too.
    accounts: bool,
    users: Mutex<HashMap<String, (Instant, u32)>>,
}

/// Returns what will happen if an object is deleted.
type Look = dyn Fn(&ObjectKey) -> Prospect + Send + Sync;

/// What is read of a review.
#[derive(Deserialize)]
struct Review {
    #[serde(rename = "apiVersion")]
    api_version: String,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    kind: Kind,
    operation: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    user_info: User,
    #[serde(default)]
    old_object: Option<Object>,
}

#[derive(Deserialize)]
struct Kind {
    group: String,
    kind: String,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Meta,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default)]
    name: String,
}

impl Warner {
    pub(super) fn new(outlook: Arc<Outlook>, accounts: bool) -> Self {
        Self::with(Arc::new(move |target| outlook.prospect(target)), accounts, BUDGET)
    }

    fn with(look: Arc<Look>, accounts: bool, budget: Duration) -> Self {
        Self { look, computing: Arc::new(Semaphore::new(COMPUTED)), budget, accounts, users: Mutex::default() }
    }

    /// Returns the router with the endpoint.
    pub(super) fn router(self) -> Router {
        let (warner, turns) = (Arc::new(self), Arc::new(Semaphore::new(AT_ONCE)));
        Router::new().route(
            "/warn-on-delete",
            post(move |body: Body| {
                let (warner, turns) = (Arc::clone(&warner), Arc::clone(&turns));
                async move { warner.respond(&turns, body).await }
            }),
        )
    }

    async fn respond(&self, turns: &Semaphore, body: Body) -> Response {
        let refused = |status: StatusCode, text: &str| (status, format!("{text}\n")).into_response();
        let begun = Instant::now();
        let received = timeout_at(begun + RECEIPT, async {
            let _turn = turns.acquire().await;
            to_bytes(body, MAX_REVIEW).await
        });
        let body = match received.await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => {
                return refused(StatusCode::PAYLOAD_TOO_LARGE, "the review could not be received, or is too large");
            }
            Err(_) => return refused(StatusCode::REQUEST_TIMEOUT, "the review was not received in time"),
        };
        match serde_json::from_slice::<Review>(&body) {
            Ok(review) if review.api_version == "admission.k8s.io/v1" => {
                let answer = self.answer(&review.request, begun).await;
                ([(header::CONTENT_TYPE, "application/json")], answer.to_string()).into_response()
            }
            _ => refused(StatusCode::BAD_REQUEST, "expected an AdmissionReview of admission.k8s.io/v1 with a request"),
        }
    }

    async fn answer(&self, request: &Request, begun: Instant) -> Value {
        let mut warnings = Vec::new();
        if request.operation == "DELETE" && self.is_warned(&request.user_info.username, begun) {
            let named = Some(&request.name).filter(|name| !name.is_empty());
            let name = named.or(request.old_object.as_ref().map(|object| &object.metadata.name));
            let kind = GroupKind::new(&request.kind.group, &request.kind.kind);
            let is_cluster_scoped = kind == wellknown::namespace() || request.namespace.is_empty();
            let namespace = Some(request.namespace.as_str()).filter(|_| !is_cluster_scoped);
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                let target = ObjectKey::new(kind, namespace, name.as_str());
                warnings = warn(&target, &self.prospect(&target, begun + self.budget).await);
            }
        }
        let mut response = json!({"uid": request.uid, "allowed": true});
        if !warnings.is_empty() {
            response["warnings"] = json!(warnings);
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    /// Computes what will happen, in another thread, so that other reviews do not wait for it. If it takes too long, nothing is known.
    async fn prospect(&self, target: &ObjectKey, until: Instant) -> Prospect {
        let computed = async {
            let turn = Arc::clone(&self.computing).acquire_owned().await.ok()?;
            let (look, target) = (Arc::clone(&self.look), target.clone());
            let compute = move || {
                let _turn = turn;
                look(&target)
            };
            spawn_blocking(compute).await.ok()
        };
        let prospect = timeout_at(until, computed).await.ok().flatten();
        prospect.unwrap_or_else(|| Prospect { incomplete: true, ..Prospect::default() })
    }

    /// Returns whether a user is warned: programs are not unless asked for, and nobody too often.
    fn is_warned(&self, user: &str, now: Instant) -> bool {
        let is_account = user.starts_with("system:serviceaccount:");
        let is_component =
            ["system:kube-", "system:node:", "system:apiserver"].iter().any(|start| user.starts_with(start));
        if is_component || (is_account && !self.accounts) {
            return false;
        }
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if users.len() >= USERS && !users.contains_key(user) {
            users.retain(|_, (since, _)| now.duration_since(*since) < PERIOD);
            if users.len() >= USERS {
                return false;
            }
        }
        let (since, reviews) = users.entry(user.to_owned()).or_insert((now, 0));
        if now.duration_since(*since) >= PERIOD {
            (*since, *reviews) = (now, 0);
        }
        *reviews += 1;
        *reviews <= REVIEWS
    }
}

/// Returns the warnings about the deletion of an object: what hangs first, then what is lost, and what to do.
fn warn(target: &ObjectKey, prospect: &Prospect) -> Vec<String> {
    let mut foreseen: Vec<(u8, String)> = prospect.foreseen.iter().filter_map(|one| sentence(target, one)).collect();
    foreseen.sort();
    let hangs = foreseen.iter().any(|(rank, _)| *rank == 0);
    let mut warnings: Vec<String> = foreseen.into_iter().map(|(_, text)| text).collect();
    let count = prospect.contents.total();
    if count > 0 {
        let admission = if target.kind == wellknown::crd() { ", and no webhook is asked" } else { "" };
        let objects = if count == 1 { "object, which is" } else { "objects, which are" };
        warnings.push(format!(
            "{target} contains at least {count} {objects} deleted with it{admission}: {}",
            prospect.contents
        ));
    }
    // What must be said in any case comes last, and the rest makes room for it.
    let mut last = Vec::new();
    if hangs {
        last.push(
            "delete these objects first, or run \"billhook plan delete\" on a release to see a safe order".to_owned(),
        );
    }
    let is_said = !warnings.is_empty() || is_container(target);
    if is_said && (prospect.incomplete || !prospect.unread.is_empty()) {
        last.push(unread(&prospect.unread));
    }
    warnings.truncate(MAX_WARNINGS - last.len());
    warnings.extend(last);
    warnings.iter().map(|text| shown(text)).collect()
}

/// Words that more may hang than is foreseen.
fn unread(kinds: &[GroupKind]) -> String {
    let named: Vec<String> = kinds.iter().take(NAMED).map(ToString::to_string).collect();
    match (named.is_empty(), kinds.len() - named.len()) {
        (true, _) => "billhook could not read everything that is needed to foresee what hangs".to_owned(),
        (false, 0) => format!("billhook could not read {}, so more may hang", named.join(", ")),
        (false, more) => {
            format!("billhook could not read {} and {more} other kinds, so more may hang", named.join(", "))
        }
    }
}

fn is_container(target: &ObjectKey) -> bool {
    target.kind == wellknown::namespace() || target.kind == wellknown::crd()
}

/// Returns a sentence about what is foreseen, after its rank: 0 for what hangs.
fn sentence(target: &ObjectKey, expected: &Expected) -> Option<(u8, String)> {
    let Expected { what, count } = expected;
    let counted = counted(*count, what.objects());
    let verb = if *count == 1 { "has" } else { "have" };
    let place = if target.kind == wellknown::namespace() { format!(" in {}", target.name) } else { String::new() };
    let found = match what {
        Foreseen::ControllerFirst { finalizer, controller, parts, .. } => {
            let is_target = |part: &ObjectRef| {
                part.group_kind() == target.kind && part.name == target.name && part.namespace == target.namespace
            };
            if !is_container(target) && !parts.iter().any(is_target) {
                return None;
            }
            let end = if is_container(target) { format!("is deleted with {target}") } else { "is deleted".to_owned() };
            (0, format!("{counted}{place} {verb} the finalizer {finalizer}; its controller, {controller}, {end}"))
        }
        Foreseen::NotWorking { finalizer, controller: Some(controller), state, problem, .. }
            if *state != ResponsibleState::Unknown =>
        {
            (
                0,
                format!(
                    "{counted}{place} {verb} the finalizer {finalizer}; {controller} does not remove it: {problem}"
                ),
            )
        }
        Foreseen::NotWorking { .. } => return None,
        Foreseen::BackendFirst { front, backend, remains, .. } => {
            let end =
                if *remains { "requests that need it will fail" } else { "requests that need it may fail in between" };
            (0, format!("{front} needs {backend}, which is deleted with {target}: {end}"))
        }
        Foreseen::VolumeData { objects, lost: true } => {
            (1, format!("the data of {counted} is lost: {}", named(*count, objects)))
        }
        Foreseen::VolumeData { objects, lost: false } => {
            (3, format!("the volumes of {counted} are kept, and their storage: {}", named(*count, objects)))
        }
        Foreseen::External { system, objects, .. } => {
            let named = named(*count, objects);
            (2, format!("{system} also deletes what {counted} created outside of the cluster: {named}"))
        }
    };
    Some(found)
}

/// Formats the number of some objects of one kind: `3 Database.shop.example`.
fn counted(count: usize, objects: &[ObjectRef]) -> String {
    let kind = objects.first().map(ObjectRef::group_kind).map(|kind| kind.to_string()).unwrap_or_default();
    format!("{count} {kind}")
}

fn named(count: usize, objects: &[ObjectRef]) -> String {
    let names: Vec<String> = objects.iter().take(NAMED).map(ToString::to_string).collect();
    let more = count.saturating_sub(names.len());
    if more == 0 { names.join(", ") } else { format!("{} and {more} more", names.join(", ")) }
}

/// Returns a warning in one line that API servers and terminals take: with escapes for what a terminal would act on, and not too
/// long.
fn shown(text: &str) -> String {
    let mut line = Paint(false).line(text);
    if line.len() > MAX_LENGTH {
        const END: &str = "…";
        line.truncate(line.floor_char_boundary(MAX_LENGTH - END.len()));
        line.push_str(END);
    }
    line
}

#[cfg(test)]
mod tests {
    use billhook_objects::ApiVersion;
    use billhook_plan::Counts;

    use super::*;

    fn database(name: &str) -> ObjectRef {
        ObjectRef::new(ApiVersion::new("shop.example", "v1"), "Database", Some("shop"), name)
    }

    fn deployment() -> ObjectRef {
        ObjectRef::new(ApiVersion::new("apps", "v1"), "Deployment", Some("shop"), "operator")
    }

    fn controller_first() -> Expected {
        let what = Foreseen::ControllerFirst {
            finalizer: "shop.example/last-backup".into(),
            objects: ["a", "b", "c"].map(database).to_vec(),
            controller: "Deployment shop/operator".into(),
            parts: vec![deployment()],
        };
        Expected { what, count: 3 }
    }

    fn key(kind: GroupKind, namespace: Option<&str>, name: &str) -> ObjectKey {
        ObjectKey::new(kind, namespace, name)
    }

    #[test]
    fn a_namespace_warns_of_what_hangs_and_of_what_is_deleted() {
        let target = key(wellknown::namespace(), None, "shop");
        let contents = Counts::from((GroupKind::new("", "Secret"), 4));
        let prospect = Prospect { foreseen: vec![controller_first()], contents, ..Prospect::default() };
        assert_eq!(
            warn(&target, &prospect),
            [
                "3 Database.shop.example in shop have the finalizer shop.example/last-backup; its controller, Deployment shop/operator, is deleted with Namespace/shop",
                "Namespace/shop contains at least 4 objects, which are deleted with it: 4 Secret",
                "delete these objects first, or run \"billhook plan delete\" on a release to see a safe order",
            ]
        );
        assert_eq!(warn(&target, &Prospect::default()), [""; 0]);
        let incomplete = Prospect { incomplete: true, ..Prospect::default() };
        assert_eq!(warn(&target, &incomplete).len(), 1, "what is not known is never called safe");
        let kinds = ["Alpha", "Beta", "Gamma", "Delta"].map(|kind| GroupKind::new("x.example", kind));
        for (unread, expected) in [(1, "Alpha.x.example, so"), (4, "Gamma.x.example and 1 other kinds, so")] {
            let prospect = Prospect { unread: kinds[..unread].to_vec(), incomplete: true, ..Prospect::default() };
            let warnings = warn(&target, &prospect);
            assert!(warnings.len() == 1 && warnings[0].contains(expected), "{warnings:?}");
        }
    }

    #[test]
    fn a_workload_warns_only_of_what_it_is_needed_for() {
        let prospect = Prospect { foreseen: vec![controller_first()], ..Prospect::default() };
        let apps = GroupKind::new("apps", "Deployment");
        let own = warn(&key(apps.clone(), Some("shop"), "operator"), &prospect);
        assert!(own[0].ends_with("its controller, Deployment shop/operator, is deleted"), "{own:?}");
        assert_eq!(warn(&key(apps, Some("shop"), "web"), &prospect), [""; 0]);
    }

    #[test]
    fn hostile_texts_are_escaped_and_cut_at_a_character() {
        let foreseen = (0..9).map(|n| {
            let what = Foreseen::NotWorking {
                finalizer: format!("{n}.example/f"),
                objects: vec![database("a")],
                controller: Some("Deployment shop/operator".into()),
                state: ResponsibleState::Failing,
                problem: format!("\u{1b}[2J\n\u{202e}\u{9b}{}", "ü".repeat(300)),
            };
            Expected { what, count: 1 }
        });
        let prospect = Prospect { foreseen: foreseen.collect(), incomplete: true, ..Prospect::default() };
        let warnings = warn(&key(wellknown::namespace(), None, "shop"), &prospect);
        assert_eq!(warnings.len(), MAX_WARNINGS);
        for warning in &warnings {
            let is_hidden = |char: char| char.is_control() || char == '\u{202e}';
            assert!(warning.len() <= MAX_LENGTH && !warning.contains(is_hidden), "{warning:?}");
        }
        assert!(warnings[0].ends_with("ü…"), "{}", warnings[0]);
        assert!(warnings[4].contains("could not read"), "{warnings:?}");
    }

    fn request(user: &str, operation: &str) -> Request {
        serde_json::from_value(json!({"uid": "1", "kind": {"group": "", "kind": "Namespace"}, "operation": operation,
            "name": "shop", "namespace": "shop", "userInfo": {"username": user}}))
        .unwrap()
    }

    #[test]
    fn volumes_are_counted_and_some_are_named() {
        let claim = |name: &str| ObjectRef::new(ApiVersion::new("", "v1"), "PersistentVolumeClaim", Some("shop"), name);
        let what = Foreseen::VolumeData { objects: ["a", "b", "c", "d"].map(claim).to_vec(), lost: true };
        let prospect = Prospect { foreseen: vec![Expected { what, count: 4 }], ..Prospect::default() };
        let claims = ["a", "b", "c"].map(|name| format!("PersistentVolumeClaim shop/{name}")).join(", ");
        let expected = format!("the data of 4 PersistentVolumeClaim is lost: {claims} and 1 more");
        assert_eq!(warn(&key(wellknown::namespace(), None, "shop"), &prospect), [expected]);
    }

    #[tokio::test(start_paused = true)]
    async fn programs_and_frequent_users_are_not_warned_and_nothing_is_denied() {
        // Nothing was read yet, so a warning says that.
        let warner = Warner::new(Arc::default(), false);
        let is_warned = async |warner: &Warner, user: &str, operation: &str| {
            let answer = warner.answer(&request(user, operation), Instant::now()).await;
            assert_eq!((&answer["response"]["allowed"], &answer["response"]["uid"]), (&json!(true), &json!("1")));
            answer["response"].get("warnings").is_some()
        };
        assert!(is_warned(&warner, "alice", "DELETE").await);
        assert!(!is_warned(&warner, "alice", "UPDATE").await);
        for silent in
            ["system:serviceaccount:kube-system:namespace-controller", "system:node:a", "system:kube-scheduler"]
        {
            assert!(!is_warned(&warner, silent, "DELETE").await, "{silent}");
        }
        let all = Warner::new(Arc::default(), true);
        assert!(is_warned(&all, "system:serviceaccount:ci:deployer", "DELETE").await);
        let mut warned = 0;
        for _ in 0..100 {
            warned += usize::from(is_warned(&warner, "bob", "DELETE").await);
        }
        assert_eq!(warned, REVIEWS as usize);
        assert!(is_warned(&warner, "carol", "DELETE").await, "each user has an own limit");
        tokio::time::advance(PERIOD).await;
        assert!(is_warned(&warner, "bob", "DELETE").await);
    }

    async fn review(warner: Arc<Warner>, name: &'static str) -> Value {
        let request = Request { name: name.to_owned(), ..request("alice", "DELETE") };
        warner.answer(&request, Instant::now()).await["response"].clone()
    }

    /// In one thread, as in the command: what computes must not keep it from answering.
    #[tokio::test]
    async fn reviews_that_take_too_long_are_answered_in_time_and_delay_no_others() {
        let gate = Arc::new(Semaphore::new(0));
        let closed = Arc::clone(&gate);
        let look = Arc::new(move |target: &ObjectKey| {
            if target.name == "slow" {
                drop(tokio::runtime::Handle::current().block_on(closed.acquire()));
            }
            Prospect { foreseen: vec![controller_first()], ..Prospect::default() }
        });
        // A review that nothing keeps up has much more time than it needs.
        let hasty = Arc::new(Warner::with(Arc::clone(&look) as Arc<Look>, false, Duration::from_millis(100)));
        let patient = Arc::new(Warner::with(look, false, Duration::from_secs(60)));
        let unknown = json!(["billhook could not read everything that is needed to foresee what hangs"]);
        let mut slow = tokio::task::JoinSet::new();
        for _ in 0..COMPUTED + 3 {
            slow.spawn(review(Arc::clone(&hasty), "slow"));
        }
        let other = review(Arc::clone(&patient), "other").await;
        assert_eq!(other["warnings"].as_array().map(Vec::len), Some(2), "{other}");
        for response in slow.join_all().await {
            assert_eq!((&response["allowed"], &response["warnings"]), (&json!(true), &unknown));
        }
        // As long as all turns are taken, further reviews learn nothing, but in time.
        assert_eq!(review(Arc::clone(&hasty), "other").await["warnings"], unknown);
        gate.close();
        let turns = u32::try_from(COMPUTED).unwrap();
        drop(hasty.computing.acquire_many(turns).await.unwrap());
        let slow = review(patient, "slow").await;
        assert_eq!(slow["warnings"].as_array().map(Vec::len), Some(2), "{slow}");
    }
}
