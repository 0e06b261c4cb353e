//! Discovery, aggregated and by group.
//!
//! An APIService with a Service adds a group whose backend has no documents here: the group is listed, and all requests to
//! it fail, or are answered with `ok` if a server is put behind the Service. Hashes of storage versions are left out.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::{
    call::Target,
    conditions,
    controllers::is_reachable,
    kinds::{Kind, ResourceId, Subresource, version_rank},
    state::State,
    status::ApiError,
};

const JSON: &str = "application/json";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The priorities of Kubernetes' groups; all others have [`OTHER_GROUPS`].
const PRIORITIES: &[(&str, i64)] = &[
    ("", 20_000),
    ("apiregistration.k8s.io", 19_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("certificates.k8s.io", 17_300),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("admissionregistration.k8s.io", 16_700),
    ("apiextensions.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
];
const OTHER_GROUPS: i64 = 1000;
/// The priority of versions of CustomResourceDefinitions. An APIService has its own.
const OTHER_VERSIONS: i64 = 100;

/// Answers a discovery path with the body and its content type; none if the path is another one.
pub(crate) fn answer(state: &State, path: &str, accept: &str) -> Option<Result<(Value, &'static str), ApiError>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let aggregated = accept_kind(accept);
    let plain = |value: Value| Some(aggregated_or_plain(aggregated, false).map(|_| (value, JSON)));
    let either = |plain: &dyn Fn() -> Value, groups: &dyn Fn() -> Vec<Value>| {
        let chosen = aggregated_or_plain(aggregated, true);
        Some(chosen.map(|aggregated| if aggregated { (list(groups()), AGGREGATED) } else { (plain(), JSON) }))
    };
    match parts.as_slice() {
        ["version"] => plain(version()),
        ["api"] => either(&core_versions, &|| aggregated_groups(state, true)),
        ["apis"] => either(&|| group_list(state), &|| aggregated_groups(state, false)),
        ["api", "v1"] => plain(resource_list(state, "", "v1")?),
        ["apis", name] => plain(legacy_group(groups(state).get(*name)?, name, true)),
        ["apis", group, version]
            if dead_group_versions(state).iter().any(|dead| dead.0 == *group && dead.1 == *version) =>
        {
            Some(Err(dead_backend()))
        }
        ["apis", group, version] => match resource_list(state, group, version) {
            Some(found) => plain(found),
            None => no_such_version(state, group),
        },
        ["api", _] => no_such_version(state, ""),
        _ => None,
    }
}

/// Returns the error for a version that a group of Kubernetes lacks; none for other groups.
fn no_such_version(state: &State, group: &str) -> Option<Result<(Value, &'static str), ApiError>> {
    let own = state.kinds.iter().any(|kind| kind.group() == group && kind.crd.is_none());
    own.then(|| Err(ApiError::no_such_resource()))
}

/// Returns the error that the API server sends in place of a backend that does not answer.
pub(crate) fn dead_backend() -> ApiError {
    let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "service unavailable");
    ApiError { plain: true, ..error }
}

/// Returns the groups and versions that belong to a backend, which never answers.
pub(crate) fn dead_group_versions(state: &State) -> Vec<(String, String)> {
    dead_services(state).into_iter().map(|service| (service.group, service.version)).collect()
}

/// Returns whether a request goes to an available backend, which answers every path with `ok`.
pub(crate) fn answers_ok(state: &State, target: &Target) -> bool {
    if state.answering.is_empty() {
        return false;
    }
    let (group, version) = match target {
        Target::Resource(path) => (path.group.as_str(), path.version.as_str()),
        Target::Path(path) => match path.trim_matches('/').split('/').collect::<Vec<_>>().as_slice() {
            ["apis", group, version, ..] => (*group, *version),
            _ => return false,
        },
    };
    let resource = ResourceId::new("apiregistration.k8s.io", "apiservices");
    let service = state.store.get(&resource, "", &format!("{version}.{group}"));
    service.is_some_and(|service| service.value()["spec"]["service"].is_object() && is_available(&service.value()))
}

struct DeadService {
    group: String,
    version: String,
    group_priority: i64,
    version_priority: i64,
}

fn dead_services(state: &State) -> Vec<DeadService> {
    let resource = ResourceId::new("apiregistration.k8s.io", "apiservices");
    let services = state.store.list(&resource, None);
    let read = |service: Value| {
        let spec = &service["spec"];
        // The kinds of a backend that is assumed to work are not known here.
        let works = state.options.assume_backends && is_available(&service) && is_reachable(state, spec);
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        (spec["service"].is_object() && !works).then(|| DeadService {
            group: text("group"),
            version: text("version"),
            group_priority: spec["groupPriorityMinimum"].as_i64().unwrap_or_default(),
            version_priority: spec["versionPriority"].as_i64().unwrap_or_default(),
        })
    };
    services.filter_map(|service| read(service.value())).collect()
}

fn is_available(service: &Value) -> bool {
    conditions::is_true(service, "Available")
}

/// A group in discovery.
#[derive(Default)]
struct ServedGroup {
    priority: i64,
    versions: BTreeMap<String, ServedVersion>,
}

#[derive(Default)]
struct ServedVersion {
    priority: i64,
    /// Whether it belongs to a backend, which never answers.
    dead: bool,
    kinds: Vec<Arc<Kind>>,
}

impl ServedGroup {
    /// Returns the versions, the preferred one first.
    fn ranked(&self) -> Vec<(&str, &ServedVersion)> {
        let mut all: Vec<_> = self.versions.iter().map(|(name, version)| (name.as_str(), version)).collect();
        all.sort_by_key(|(name, version)| (Reverse(version.priority), version_rank(name)));
        all
    }
}

/// Returns all groups; the name of the core group is empty.
fn groups(state: &State) -> BTreeMap<String, ServedGroup> {
    let mut groups: BTreeMap<String, ServedGroup> = BTreeMap::new();
    for kind in state.kinds.iter() {
        for version in kind.versions.iter().filter(|version| version.served) {
            let group = groups.entry(kind.group().to_owned()).or_default();
            let known = PRIORITIES.iter().find(|(name, _)| *name == kind.group());
            group.priority = known.map_or(OTHER_GROUPS, |(_, priority)| *priority);
            let version = group.versions.entry(version.name.clone()).or_default();
            version.priority = OTHER_VERSIONS;
            version.kinds.push(Arc::clone(kind));
        }
    }
    for service in dead_services(state) {
        let group = groups.entry(service.group).or_default();
        group.priority = group.priority.max(service.group_priority);
        let dead = ServedVersion { priority: service.version_priority, dead: true, kinds: Vec::new() };
        group.versions.insert(service.version, dead);
    }
    groups
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Accepted {
    Plain,
    Aggregated,
    Both,
    Neither,
}

/// Returns which forms a client accepts. The first one counts, except that the plain form is the fallback where no
/// aggregated form exists.
fn accept_kind(accept: &str) -> Accepted {
    let mut first = Accepted::Neither;
    let mut plain = accept.trim().is_empty();
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        if !matches!(parts.next(), Some("application/json" | "application/*" | "*/*")) {
            continue;
        }
        let parameters: Vec<&str> = parts.filter(|parameter| !parameter.starts_with("q=")).collect();
        let has = |parameter: &str| parameters.contains(&parameter);
        let kind = if !parameters.iter().any(|parameter| parameter.starts_with("as=")) {
            plain = true;
            Accepted::Plain
        } else if has("as=APIGroupDiscoveryList") && has("g=apidiscovery.k8s.io") && has("v=v2") {
            Accepted::Aggregated
        } else {
            continue;
        };
        if first == Accepted::Neither {
            first = kind;
        }
    }
    match (first, plain) {
        (Accepted::Aggregated, true) => Accepted::Both,
        (Accepted::Neither, true) => Accepted::Plain,
        (first, _) => first,
    }
}

/// Returns whether to send the aggregated form, if there is one.
fn aggregated_or_plain(accepted: Accepted, exists: bool) -> Result<bool, ApiError> {
    match accepted {
        Accepted::Aggregated | Accepted::Both if exists => Ok(true),
        Accepted::Plain | Accepted::Both => Ok(false),
        Accepted::Aggregated | Accepted::Neither => {
            let message = "only the following media types are accepted: application/json";
            Err(ApiError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message))
        }
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36",
        "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.3", "gitCommit": "sandbox", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn legacy_group(group: &ServedGroup, name: &str, alone: bool) -> Value {
    let version = |version: &str| json!({"groupVersion": api_version(name, version), "version": version});
    let versions: Vec<Value> = group.ranked().into_iter().map(|(name, _)| version(name)).collect();
    let mut found = json!({"name": name, "preferredVersion": versions.first(), "versions": versions});
    if alone {
        found["kind"] = "APIGroup".into();
        found["apiVersion"] = "v1".into();
    }
    found
}

fn group_list(state: &State) -> Value {
    let groups = groups(state);
    let mut named: Vec<_> = groups.iter().filter(|(name, _)| !name.is_empty()).collect();
    // Groups of equal priority are ordered by the names of their APIServices, which start with the version.
    named.sort_by_cached_key(|(name, group)| {
        let versions = group.ranked();
        (Reverse(group.priority), versions.first().map(|(version, _)| format!("{version}.{name}")))
    });
    let groups: Vec<Value> = named.into_iter().map(|(name, group)| legacy_group(group, name, false)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn resource_list(state: &State, group: &str, version: &str) -> Option<Value> {
    let groups = groups(state);
    let found = groups.get(group)?.versions.get(version)?;
    let mut resources = Vec::new();
    for kind in &found.kinds {
        let Some(served) = kind.version(version) else { continue };
        let mut resource = json!({
            "name": *kind.id.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": kind.verbs(),
        });
        add_names(&mut resource, kind);
        resources.push(resource);
        for sub in kind.subresources(served) {
            let (group, version, own) = sub.kind.unwrap_or(("", "", &kind.kind));
            let mut resource = json!({
                "name": format!("{}/{}", kind.id.plural, sub.name), "singularName": "", "namespaced": kind.namespaced,
                "kind": own, "verbs": sub.verbs,
            });
            if !group.is_empty() {
                resource["group"] = group.into();
                resource["version"] = version.into();
            }
            resources.push(resource);
        }
    }
    let group_version = api_version(group, version);
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}))
}

fn add_names(resource: &mut Value, kind: &Kind) {
    for (field, names) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !names.is_empty() {
            resource[field] = names.as_slice().into();
        }
    }
}

fn list(groups: Vec<Value>) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups})
}

/// Returns the core group, or all others.
fn aggregated_groups(state: &State, core: bool) -> Vec<Value> {
    let groups = groups(state);
    let mut chosen: Vec<_> = groups.iter().filter(|(name, _)| name.is_empty() == core).collect();
    chosen.sort_by_key(|(name, group)| (Reverse(group.priority), *name));
    chosen.into_iter().map(|(name, group)| aggregated_group(name, group)).collect()
}

fn aggregated_group(name: &str, group: &ServedGroup) -> Value {
    let version = |(version, found): (&str, &ServedVersion)| {
        if found.dead {
            return json!({"version": version, "freshness": "Stale"});
        }
        let resources: Vec<Value> = found.kinds.iter().filter_map(|kind| aggregated_resource(kind, version)).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    };
    let versions: Vec<Value> = group.ranked().into_iter().map(version).collect();
    // The core group has no name.
    let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(kind: &Kind, version: &str) -> Option<Value> {
    let served = kind.version(version)?;
    // For its own kinds, the API server leaves out the group and version of the response kind.
    let custom = kind.crd.is_some();
    let (group, own) = if custom { (kind.group(), version) } else { ("", "") };
    let response = json!({"group": group, "version": own, "kind": kind.kind});
    let mut resource = json!({
        "resource": *kind.id.plural, "responseKind": response, "singularResource": kind.singular, "verbs": kind.verbs(),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
    });
    add_names(&mut resource, kind);
    let subresources = kind.subresources(served);
    if !subresources.is_empty() {
        let value = |sub: Subresource| {
            let other = |(group, version, kind)| json!({"group": group, "version": version, "kind": kind});
            let response = sub.kind.map_or_else(|| response.clone(), other);
            let fields = [("subresource", sub.name.into()), ("responseKind", response), ("verbs", sub.verbs.into())];
            Value::Object(Map::from_iter(fields.map(|(field, value)| (field.to_owned(), value))))
        };
        resource["subresources"] = subresources.into_iter().map(value).collect();
    }
    Some(resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kinds::{Crd, Version},
        options::Options,
        schema::Schema,
    };

    fn crd_version(name: &str, served: bool, status: bool) -> Version {
        let name = name.to_owned();
        let (selectable, columns) = (Vec::new(), Vec::new());
        Version { name, served, schema: Schema::any(), status, scale: None, selectable, columns }
    }

    fn state() -> State {
        let mut state = State::new(Options::default());
        state.kinds.insert(Arc::new(Kind {
            id: ResourceId::new("example.com", "widgets"),
            kind: "Widget".to_owned(),
            list_kind: "WidgetList".to_owned(),
            singular: "widget".to_owned(),
            short_names: vec!["wi".to_owned()],
            categories: vec!["all".to_owned()],
            namespaced: true,
            versions: vec![
                crd_version("v1alpha1", true, false),
                crd_version("v1", true, true),
                crd_version("v1beta1", false, false),
            ],
            storage: 1,
            review: false,
            crd: Some(Crd { webhook: None }),
        }));
        let service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta1.dead.example.com", "uid": "s"},
            "spec": {
                "group": "dead.example.com", "version": "v1beta1", "groupPriorityMinimum": 1000, "versionPriority": 10,
                "service": {"name": "nope", "namespace": "shop"},
            },
        });
        state.put(&ResourceId::new("apiregistration.k8s.io", "apiservices"), service);
        let local = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1.apps", "uid": "l"}, "spec": {"group": "apps", "version": "v1"},
        });
        state.put(&ResourceId::new("apiregistration.k8s.io", "apiservices"), local);
        state
    }

    fn get(path: &str, accept: &str) -> (Value, &'static str) {
        answer(&state(), path, accept).expect(path).unwrap_or_else(|error| panic!("{path}: {error:?}"))
    }

    fn names(list: &Value, pointer: &str) -> Vec<String> {
        let items = list.as_array().into_iter().flatten();
        items.map(|item| item.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn aggregated_discovery_lists_everything() {
        let (found, content) = get("/apis", AGGREGATED);
        assert_eq!(content, AGGREGATED);
        let expected = [
            "apiregistration.k8s.io",
            "apps",
            "events.k8s.io",
            "authentication.k8s.io",
            "authorization.k8s.io",
            "autoscaling",
            "batch",
            "certificates.k8s.io",
            "networking.k8s.io",
            "policy",
            "rbac.authorization.k8s.io",
            "storage.k8s.io",
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "scheduling.k8s.io",
            "coordination.k8s.io",
            "node.k8s.io",
            "discovery.k8s.io",
            "dead.example.com",
            "example.com",
        ];
        let items = &found["items"];
        assert_eq!(names(items, "/metadata/name"), expected);
        assert_eq!(items[18]["versions"], json!([{"version": "v1beta1", "freshness": "Stale"}]));
        let widgets = json!({
            "resource": "widgets", "responseKind": {"group": "example.com", "version": "v1", "kind": "Widget"},
            "scope": "Namespaced", "singularResource": "widget", "shortNames": ["wi"], "categories": ["all"],
            "verbs": ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
            "subresources": [{
                "subresource": "status", "verbs": ["get", "patch", "update"],
                "responseKind": {"group": "example.com", "version": "v1", "kind": "Widget"},
            }],
        });
        let versions = &items[19]["versions"];
        assert_eq!(versions[0], json!({"version": "v1", "resources": [widgets], "freshness": "Current"}));
        assert_eq!(names(versions, "/version"), ["v1", "v1alpha1"]);
        let (core, _) = get("/api", AGGREGATED);
        let resources = &core["items"][0]["versions"][0]["resources"];
        let namespaces = resources.as_array().into_iter().flatten().find(|r| r["resource"] == "namespaces");
        let namespaces = namespaces.expect("namespaces");
        assert_eq!(namespaces["verbs"], json!(["create", "delete", "get", "list", "patch", "update", "watch"]));
        assert_eq!(names(&namespaces["subresources"], "/subresource"), ["finalize", "status"]);
        let (reviews, _) = get("/apis/authentication.k8s.io/v1", JSON);
        assert_eq!(names(&reviews["resources"], "/verbs/0"), ["create", "create"]);
    }

    #[test]
    fn plain_discovery_lists_everything() {
        let groups = get("/apis", "application/json, */*").0;
        let found = names(&groups["groups"], "/name");
        assert_eq!(
            found.iter().rev().take(3).collect::<Vec<_>>(),
            ["dead.example.com", "example.com", "discovery.k8s.io"]
        );
        let group = get("/apis/example.com", JSON).0;
        assert_eq!((&group["kind"], &group["preferredVersion"]["version"]), (&json!("APIGroup"), &json!("v1")));
        assert_eq!(get("/apis/dead.example.com", "").0["versions"][0]["groupVersion"], "dead.example.com/v1beta1");
        let widgets = get("/apis/example.com/v1", JSON).0;
        assert_eq!(names(&widgets["resources"], "/name"), ["widgets", "widgets/status"]);
        let scale = get("/apis/apps/v1/", "*/*").0;
        let scale = scale["resources"].as_array().into_iter().flatten().find(|r| r["name"] == "deployments/scale");
        let expected = json!({
            "name": "deployments/scale", "singularName": "", "namespaced": true,
            "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
        });
        assert_eq!(scale, Some(&expected));
        assert_eq!(get("/api", JSON).0["versions"], json!(["v1"]));
        assert_eq!(get("/version", JSON).0["gitVersion"], "v1.36.3");
    }

    #[test]
    fn unserved_groups_and_versions_are_not_found() {
        let state = state();
        for path in ["/apis/example.com/v1beta1", "/apis/no.example.com", "/healthz", "", "/apis/apps/v1/x"] {
            assert!(answer(&state, path, "").is_none(), "{path}");
        }
        for path in ["/api/v2", "/apis/apps/v1beta1"] {
            let unknown = answer(&state, path, "").expect("of Kubernetes").expect_err("not served");
            assert_eq!((unknown.code.as_u16(), unknown.plain), (404, false), "{path}");
        }
        let dead = answer(&state, "/apis/dead.example.com/v1beta1", "").expect("known").expect_err("no backend");
        assert_eq!((dead.code.as_u16(), &*dead.message), (503, "service unavailable"));
        assert_eq!(dead_group_versions(&state), [("dead.example.com".to_owned(), "v1beta1".to_owned())]);
    }

    #[test]
    fn the_first_acceptable_form_is_sent() {
        let both = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        let cases = [
            (both, "/apis", Some(AGGREGATED)),
            (both, "/apis/apps", Some(JSON)),
            ("application/json", "/api", Some(JSON)),
            ("application/vnd.kubernetes.protobuf,application/json;q=0.9", "/api", Some(JSON)),
            (old, "/apis", None),
            (AGGREGATED, "/apis/apps/v1", None),
            ("application/json;as=Table;v=v1;g=meta.k8s.io", "/apis", None),
        ];
        for (accept, path, expected) in cases {
            let found = answer(&state(), path, accept).expect(path);
            let found = found.map(|(_, content)| content).map_err(|error| error.code.as_u16());
            assert_eq!(found, expected.ok_or(406), "{accept} {path}");
        }
    }

    #[test]
    fn versions_are_ranked() {
        let mut names =
            ["foo1", "v1alpha1", "v11beta2", "v10", "v2", "v3beta1", "v12alpha1", "foo10", "v11alpha2", "v1"];
        names.sort_by_key(|name| version_rank(name));
        let expected =
            ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v11alpha2", "v1alpha1", "foo1", "foo10"];
        assert_eq!(names, expected);
    }
}
