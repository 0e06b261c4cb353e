//! Evidence for explanations: single requests, each sent once, whose failure is an answer too.

use billhook_explain::{Access, Answer, Content, Failure, Probe, Query};
use billhook_objects::Resource;
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    counts::Verb,
    decode::{JSON, META, META_LIST, Page},
    error::{Error, object_name},
    request::Call,
    review::Review,
    url,
};

/// The reviews of the rights of others, which are answered and not stored.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The size of a page of a list of all objects.
const PAGE: u32 = 1000;

/// What a list covers.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The kind.
    pub resource: &'a Resource,
    /// The namespace; none for all.
    pub namespace: Option<&'a str>,
    /// A `fieldSelector`; empty for all.
    pub fields: &'a str,
    /// How much of each object.
    pub content: Content,
}

impl Cluster {
    /// Sends the request of a query once, and returns the answer, whatever it is. Queries read, or run dry.
    pub async fn look(&self, query: &Query) -> Answer {
        self.try_look(query).await.unwrap_or_else(|error| {
            if error.object_not_found() {
                return Answer::Missing;
            }
            match (error.code(), query) {
                // Not the document itself, but its path is missing.
                (Some(404), Query::Discovery(_)) => Answer::Missing,
                (Some(404), _) => Answer::NotServed,
                _ => Answer::Failed(failure(&error)),
            }
        })
    }

    async fn try_look(&self, query: &Query) -> Result<Answer, Error> {
        match query {
            Query::Get { resource, namespace, name, content } => {
                let what = format!("read {}", object_name(resource, namespace.as_deref(), name));
                let accept = if *content == Content::Metadata { META } else { JSON };
                let call = Call::get(what, url::object(resource, namespace.as_deref(), name)).accept(accept);
                Ok(Answer::Object(named(self.send(&call.retry(false)).await?.json()?, resource)))
            }
            Query::List { resource, namespace, fields, limit, content } => {
                let place = Place { resource, namespace: namespace.as_deref(), fields, content: *content };
                let page = self.page(&place, *limit, "").await?;
                Ok(Answer::Objects { items: page.items, complete: page.metadata.next.unwrap_or_default().is_empty() })
            }
            Query::Discovery(path) => {
                let call = Call::get(format!("read {path}"), path.clone()).retry(false);
                Ok(Answer::Object(self.send(&call).await?.json()?))
            }
            Query::Access(access) => self.review(access).await,
            Query::Probe(probe) => self.probe(probe).await,
        }
    }

    /// Lists objects page by page, each request sent once, until a number of pages is read. What `keep` does not keep is
    /// dropped; the answer is then not complete. Returns the answer and the number of requests.
    pub async fn look_at_all(&self, place: &Place<'_>, pages: usize, keep: impl Fn(&Value) -> bool) -> (Answer, usize) {
        let (mut items, mut next, mut complete) = (Vec::new(), String::new(), true);
        for request in 1..=pages {
            let page = match self.page(place, PAGE, &next).await {
                Ok(page) => page,
                Err(error) if error.code() == Some(404) => return (Answer::NotServed, request),
                Err(error) => return (Answer::Failed(failure(&error)), request),
            };
            let listed = page.items.len();
            let before = items.len();
            items.extend(page.items.into_iter().filter(&keep));
            complete &= items.len() - before == listed;
            next = page.metadata.next.unwrap_or_default();
            if next.is_empty() {
                return (Answer::Objects { items, complete }, request);
            }
        }
        (Answer::Objects { items, complete: false }, pages)
    }

    async fn page(&self, place: &Place<'_>, limit: u32, next: &str) -> Result<Page<Value>, Error> {
        let Place { resource, namespace, fields, content } = place;
        let accept = if *content == Content::Metadata { META_LIST } else { JSON };
        let limit = limit.to_string();
        let parameters = [("fieldSelector", *fields), ("limit", limit.as_str()), ("continue", next)];
        let url = url::with_query(&url::collection(resource, *namespace), &parameters);
        let call = Call::new(Verb::List, format!("list {}", resource.kind), url).accept(accept);
        let mut page: Page<Value> = self.send(&call.retry(false)).await?.json()?;
        page.items = page.items.into_iter().map(|item| named(item, resource)).collect();
        Ok(page)
    }

    async fn review(&self, access: &Access) -> Result<Answer, Error> {
        let Access { user, verb, resource, namespace, name } = access;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "groups": groups(user),
                "resourceAttributes": {
                    "verb": verb,
                    "group": resource.kind.group,
                    "version": resource.version,
                    "resource": resource.plural,
                    "namespace": namespace.as_deref().unwrap_or_default(),
                    "name": name,
                },
            },
        });
        let what =
            format!("ask for the right of {user} to {verb} {}", object_name(resource, namespace.as_deref(), name));
        let call = Call::new(Verb::Create, what, REVIEWS.to_owned()).body("application/json", review.to_string());
        let status = self.send(&call.retry(false)).await?.json::<Review>()?.status;
        Ok(Answer::Allowed(status.allowed, status.reason))
    }

    async fn probe(&self, probe: &Probe) -> Result<Answer, Error> {
        let address = |resource: &Resource, namespace: &Option<String>, name: &str| {
            url::with_query(&url::object(resource, namespace.as_deref(), name), &[("dryRun", "All")])
        };
        let call = match probe {
            Probe::Delete { resource, namespace, name } => {
                let what = format!("try to delete {}", object_name(resource, namespace.as_deref(), name));
                let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]});
                let url = url::object(resource, namespace.as_deref(), name);
                Call::new(Verb::Delete, what, url).body("application/json", options.to_string())
            }
            Probe::RemoveFinalizer { resource, namespace, name, finalizer, position } => {
                let what = format!("try to patch {}", object_name(resource, namespace.as_deref(), name));
                let path = format!("/metadata/finalizers/{position}");
                let patch = json!([
                    {"op": "test", "path": path, "value": finalizer},
                    {"op": "remove", "path": path},
                ]);
                let call = Call::new(Verb::Patch, what, address(resource, namespace, name));
                call.body("application/json-patch+json", patch.to_string())
            }
            Probe::Finalize(name) => {
                let resource = Resource::namespaces();
                let mut namespace: Value = {
                    let call = Call::get(format!("read Namespace/{name}"), url::object(&resource, None, name));
                    self.send(&call.retry(false)).await?.json()?
                };
                namespace["spec"]["finalizers"] = json!([]);
                let url = format!("{}/finalize", url::object(&resource, None, name));
                let url = url::with_query(&url, &[("dryRun", "All")]);
                let call = Call::new(Verb::Update, format!("try to finalize Namespace/{name}"), url);
                call.body("application/json", namespace.to_string())
            }
        };
        self.send(&call.accept(META).retry(false)).await?;
        Ok(Answer::Accepted)
    }
}

/// Sets the kind of an object: those in lists of built-in kinds have none, and metadata has another.
pub(crate) fn named(mut object: Value, resource: &Resource) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), resource.api_version().to_string().into());
        fields.insert("kind".to_owned(), resource.kind.kind.clone().into());
    }
    object
}

/// Returns the groups that the API server gives a user: a review does not add them.
fn groups(user: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned()];
    if let Some((namespace, _)) = user.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':')) {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups
}

fn failure(error: &Error) -> Failure {
    match error.status() {
        Some(status) => Failure { status: status.code, reason: status.reason.clone(), message: status.message.clone() },
        None => Failure { status: 0, reason: String::new(), message: error.message() },
    }
}
