//! Parsing of requests.

use bytes::Bytes;
use http::{HeaderMap, Method, Uri, header};
use serde_json::Value;

use crate::{
    protobuf,
    status::{ApiError, Cause},
};

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, such as `system:serviceaccount:shop:operator`.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl User {
    /// Returns a user in `system:masters`, who is allowed everything.
    pub fn admin() -> Self {
        Self::new("admin", ["system:masters"])
    }

    /// Returns a user with this name in these groups and in `system:authenticated`.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        groups.push("system:authenticated".to_owned());
        Self { name: name.into(), groups }
    }
}

/// The verb of a request, as in RBAC and the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Read one object, or a path that is not a resource.
    Get,
    /// Read a list.
    List,
    /// Watch changes.
    Watch,
    /// Create an object.
    Create,
    /// Replace an object.
    Update,
    /// Patch an object, including server-side apply.
    Patch,
    /// Delete one object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
}

impl Verb {
    /// Returns whether the verb may change something.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// Returns the verb as RBAC spells it: `deletecollection`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A path that is not a resource: `/apis`, `/version`.
    Path(String),
    Resource(ResourcePath),
}

/// The parts of a resource path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) user: User,
    /// The name of the client, by which faults select its requests and logs record them; empty for other clients.
    pub(crate) client: String,
    pub(crate) verb: Verb,
    pub(crate) method: Method,
    pub(crate) target: Target,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call {
    /// Parses a request.
    pub(crate) fn new(
        user: User,
        client: String,
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Self, ApiError> {
        let query = parse_query(uri.query().unwrap_or_default());
        let (target, watch) = parse_path(&decode(uri.path()));
        let flag = |name: &str| query.iter().any(|(key, value)| key == name && matches!(value.as_str(), "true" | "1"));
        let one = matches!(&target, Target::Resource(path) if path.name.is_some());
        let resource = matches!(target, Target::Resource(_));
        let verb = match method {
            Method::GET | Method::HEAD if !resource => Verb::Get,
            Method::GET | Method::HEAD if watch || flag("watch") && !one => Verb::Watch,
            Method::GET | Method::HEAD if one => Verb::Get,
            Method::GET | Method::HEAD => Verb::List,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if one || !resource => Verb::Delete,
            Method::DELETE => Verb::DeleteCollection,
            _ => return Err(ApiError::method_not_allowed()),
        };
        Ok(Self { user, client, verb, method, target, query, headers, body })
    }

    /// Returns a query parameter.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns a query parameter that is not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.param(name).filter(|value| !value.is_empty())
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.param(name), Some("true" | "1"))
    }

    /// Returns whether the request is a dry run; rejects values other than `All`.
    pub(crate) fn dry_run(&self, options: &str) -> Result<bool, ApiError> {
        let given = self.query.iter().filter(|(key, value)| key == "dryRun" && !value.is_empty());
        let values: Vec<&str> = given.map(|(_, value)| value.as_str()).collect();
        if values.iter().any(|value| *value != "All") {
            let cause = Cause::unsupported("dryRun", &values.into(), &["All".to_owned()]);
            return Err(ApiError::options(options, vec![cause]));
        }
        Ok(!values.is_empty())
    }

    /// Returns the type of the body without parameters.
    pub(crate) fn content_type(&self) -> &str {
        let value = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }

    pub(crate) fn accept(&self) -> &str {
        self.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the field manager: the one in the query, or else the first part of the `User-Agent`.
    pub(crate) fn manager(&self) -> String {
        let agent = self.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("unknown");
        let manager = self.text("fieldManager").unwrap_or_else(|| agent.split('/').next().unwrap_or("unknown"));
        manager.chars().take(128).collect()
    }

    /// Parses the body, which is JSON, YAML or Kubernetes' protobuf.
    pub(crate) fn json(&self) -> Result<Value, ApiError> {
        if self.content_type() == protobuf::CONTENT_TYPE { protobuf::decode(&self.body) } else { read(&self.body) }
    }
}

/// Parses JSON, or YAML if it is not JSON.
pub(crate) fn read(body: &[u8]) -> Result<Value, ApiError> {
    match serde_json::from_slice(body) {
        Ok(value) => Ok(value),
        Err(error) if body.first().is_some_and(|first| *first == b'{' || *first == b'[') => {
            // It may be YAML in flow style.
            let text = std::str::from_utf8(body).unwrap_or_default();
            serde_saphyr::from_str(text)
                .map_err(|_| ApiError::bad_request(format!("the body of the request is not JSON: {error}")))
        }
        Err(_) => {
            let text = std::str::from_utf8(body)
                .map_err(|_| ApiError::not_modelled("bodies in formats other than JSON, YAML and protobuf"))?;
            serde_saphyr::from_str(text)
                .map_err(|error| ApiError::bad_request(format!("the body of the request is not YAML: {error}")))
        }
    }
}

/// Parses a number in the query.
pub(crate) fn number<T: std::str::FromStr>(text: &str) -> Result<T, ApiError> {
    let wrong = |_| ApiError::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"));
    text.parse().map_err(wrong)
}

/// Parses a path like the API server's `RequestInfo`. Returns whether it is a watch with the deprecated path
/// `/api/v1/watch/…`.
fn parse_path(path: &str) -> (Target, bool) {
    let other = || (Target::Path(path.trim_end_matches('/').to_owned()), false);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return other(),
    };
    let text = |part: &str| part.to_owned();
    let mut found = ResourcePath { group: text(group), version: text(version), ..ResourcePath::default() };
    let (rest, watch) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (rest, true),
        rest => (rest, false),
    };
    let rest = match rest {
        [] => return other(),
        // Subresources of the Namespace itself, not resources in it.
        ["namespaces", name, sub @ ("status" | "finalize")] if group.is_empty() => {
            found.plural = text("namespaces");
            found.name = Some(text(name));
            found.subresource = Some(text(sub));
            return (Target::Resource(found), false);
        }
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
            found.namespace = Some(text(namespace));
            rest
        }
        rest => rest,
    };
    match rest {
        [plural] => found.plural = text(plural),
        [plural, name] => (found.plural, found.name) = (text(plural), Some(text(name))),
        [plural, name, sub @ ..] => {
            (found.plural, found.name) = (text(plural), Some(text(name)));
            found.subresource = Some(sub.join("/"));
        }
        [] => return other(),
    }
    (Target::Resource(found), watch)
}

fn parse_query(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
        })
        .collect()
}

/// Decodes percent-encoding.
pub(crate) fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        if byte == b'%' {
            let mut ahead = bytes.clone();
            if let (Some(high), Some(low)) = (hex(ahead.next()), hex(ahead.next())) {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                bytes = ahead;
                continue;
            }
        }
        out.push(byte);
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ResourcePath {
        match parse_path(text).0 {
            Target::Resource(path) => path,
            Target::Path(path) => panic!("{path} is not a resource"),
        }
    }

    #[test]
    fn paths_are_parsed() {
        let found = path("/api/v1/namespaces/shop/configmaps/a");
        assert_eq!(
            (found.namespace.as_deref(), &*found.plural, found.name.as_deref()),
            (Some("shop"), "configmaps", Some("a"))
        );
        let found = path("/api/v1/namespaces/shop/finalize");
        assert_eq!(
            (found.namespace, &*found.plural, found.subresource.as_deref()),
            (None, "namespaces", Some("finalize"))
        );
        let found = path("/api/v1/namespaces/shop");
        assert_eq!((&*found.plural, found.name.as_deref()), ("namespaces", Some("shop")));
        let found = path("/apis/apps/v1/deployments");
        assert_eq!((&*found.group, &*found.plural, found.name), ("apps", "deployments", None));
        assert_eq!(parse_path("/apis/apps/v1/"), (Target::Path("/apis/apps/v1".into()), false));
        assert!(parse_path("/api/v1/watch/namespaces/shop/configmaps").1);
        assert_eq!(decode("a%2Fb%zz"), "a/b%zz");
    }
}
