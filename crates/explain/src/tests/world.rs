//! A cluster at one moment, as a situation records it, that answers queries.
//!
//! Situations are written in short forms, which are expanded here to objects as an API server returns them.

use std::collections::BTreeMap;

use billhook_objects::{ApiVersion, Catalog, GroupKind, ResourceType, Scope, yaml};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{Answer, Content, Diagnosis, Failure, Finding, ObjectRef, Options, Probe, Query, rule::Rule};

/// The time of all situations.
pub(crate) const NOW: &str = "2026-11-22T12:00:00Z";

const BUILTIN: &str = "
v1 Namespace namespaces -
v1 Node nodes -
v1 Pod pods
v1 Service services
v1 ServiceAccount serviceaccounts
v1 Secret secrets
v1 ConfigMap configmaps
v1 Event events
v1 PersistentVolumeClaim persistentvolumeclaims
v1 PersistentVolume persistentvolumes -
apps/v1 Deployment deployments
apps/v1 ReplicaSet replicasets
apps/v1 StatefulSet statefulsets
apps/v1 DaemonSet daemonsets
batch/v1 Job jobs
batch/v1 CronJob cronjobs
storage.k8s.io/v1 CSIDriver csidrivers -
networking.k8s.io/v1 Ingress ingresses
policy/v1 PodDisruptionBudget poddisruptionbudgets
storage.k8s.io/v1 VolumeAttachment volumeattachments -
discovery.k8s.io/v1 EndpointSlice endpointslices
coordination.k8s.io/v1 Lease leases
rbac.authorization.k8s.io/v1 Role roles
rbac.authorization.k8s.io/v1 RoleBinding rolebindings
rbac.authorization.k8s.io/v1 ClusterRole clusterroles -
rbac.authorization.k8s.io/v1 ClusterRoleBinding clusterrolebindings -
apiregistration.k8s.io/v1 APIService apiservices -
apiextensions.k8s.io/v1 CustomResourceDefinition customresourcedefinitions -
admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration validatingwebhookconfigurations -
admissionregistration.k8s.io/v1 MutatingWebhookConfiguration mutatingwebhookconfigurations -
";

/// A situation, as its file describes it.
pub(crate) struct World {
    pub(crate) description: Value,
    pub(crate) catalog: Catalog,
    objects: Vec<Value>,
    /// The objects that differ at the second look.
    later: Vec<Value>,
    /// Of which requests the caller lacks the right: a seed; none if of none.
    pub(crate) restricted: Option<u64>,
}

/// Reads the situations of a file.
pub(crate) fn read(text: &str) -> Vec<World> {
    yaml::parse(text).unwrap().into_iter().map(|document| World::new(document.value)).collect()
}

impl World {
    pub(crate) fn new(description: Value) -> Self {
        let mut catalog = Catalog::default();
        let custom = texts(&description, "kinds");
        for line in BUILTIN.lines().filter(|line| !line.is_empty()).chain(custom.iter().map(String::as_str)) {
            catalog.insert(kind(line));
        }
        catalog.stale = texts(&description, "stale");
        let mut world = Self { catalog, objects: Vec::new(), later: Vec::new(), restricted: None, description };
        world.objects = world.crowd();
        world.objects.extend(world.expand("objects"));
        world.later = world.expand("later");
        for line in &custom {
            world.define(line);
        }
        world.operators();
        world
    }

    /// Makes many objects that differ only in their names: `{kind: Pod, namespace: shop, count: 600}`.
    fn crowd(&self) -> Vec<Value> {
        let Some(crowd) = self.description.get("crowd") else { return Vec::new() };
        let named = |number| json!({"kind": crowd["kind"], "name": format!("{}/crowd-{number}", crowd["namespace"].as_str().unwrap())});
        (0..crowd["count"].as_u64().unwrap()).map(|number| self.object(&named(number))).collect()
    }

    fn expand(&self, list: &str) -> Vec<Value> {
        let short = self.description.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
        short.iter().map(|short| self.object(short)).collect()
    }

    pub(crate) fn title(&self) -> String {
        let text = |key: &str| self.description[key].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("situation"), text("title"))
    }

    /// Expands `{kind: Database, name: shop/main, deleted: 6h, finalizers: [a], by: operator, conditions: [Ready=False X: y]}`.
    fn object(&self, short: &Value) -> Value {
        let mut object = short.as_object().unwrap_or_else(|| panic!("{}: {short}", self.title())).clone();
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_else(|| panic!("{short}")).to_owned();
        let mut take = |key: &str| object.remove(key).filter(|value| !value.is_null());
        let name = take("name").and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
        let (namespace, name) = name.split_once('/').map_or((None, name.as_str()), |(ns, name)| (Some(ns), name));
        let mut metadata = json!({"name": name, "uid": format!("uid-{kind}-{name}")});
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
        for (short, key) in [
            ("labels", "labels"),
            ("annotations", "annotations"),
            ("finalizers", "finalizers"),
            ("uid", "uid"),
            ("ownerReferences", "ownerReferences"),
        ] {
            if let Some(value) = take(short) {
                metadata[key] = value;
            }
        }
        if let Some(length) = take("fill").and_then(|length| length.as_u64()) {
            let used = metadata.to_string().len();
            object.insert("fill".into(), "x".repeat(length as usize - used).into());
        }
        let mut take = |key: &str| object.remove(key).filter(|value| !value.is_null());
        if let Some(ago) = take("deleted") {
            metadata["deletionTimestamp"] = time(ago.as_str().unwrap()).into();
        }
        if let Some(ago) = take("created") {
            metadata["creationTimestamp"] = time(ago.as_str().unwrap()).into();
        }
        if let Some(manager) = take("by") {
            let owned: Map<String, Value> =
                texts(&metadata, "finalizers").iter().map(|f| (format!("v:{}", json!(f)), json!({}))).collect();
            metadata["managedFields"] = json!([{"manager": manager, "operation": "Update", "time": "2026-11-01T00:00:00Z",
                "fieldsV1": {"f:metadata": {"f:finalizers": owned}}}]);
        }
        if let Some(owner) = take("owner") {
            // `Kind name`, or `Kind name uid`.
            let parts: Vec<&str> = owner.as_str().unwrap().split(' ').collect();
            let uid = parts.get(2).map_or_else(|| format!("uid-{}-{}", parts[0], parts[1]), |uid| (*uid).to_owned());
            let version = self.version(parts[0]);
            metadata["ownerReferences"] = json!([{"apiVersion": version, "kind": parts[0], "name": parts[1], "uid": uid,
                "controller": true, "blockOwnerDeletion": true}]);
        }
        if let Some(conditions) = take("conditions") {
            let conditions: Vec<Value> =
                conditions.as_array().unwrap().iter().map(|c| condition(c.as_str().unwrap())).collect();
            let status = object.entry("status").or_insert_with(|| json!({}));
            status["conditions"] = conditions.into();
        }
        object.insert("metadata".into(), metadata);
        if !object.contains_key("apiVersion") {
            object.insert("apiVersion".into(), self.version(&kind).into());
        }
        Value::Object(object)
    }

    fn version(&self, kind: &str) -> String {
        let found = self.catalog.iter().find(|known| known.kind.kind == kind);
        found.unwrap_or_else(|| panic!("{}: unknown kind {kind}", self.title())).api_version(None).to_string()
    }

    /// Adds the CRD of a custom kind, unless the situation has one of its own, or says that there is none.
    fn define(&mut self, line: &str) {
        let kind = kind(line);
        let name = format!("{}.{}", kind.plural, kind.kind.group);
        if self
            .objects
            .iter()
            .any(|object| object["kind"] == "CustomResourceDefinition" && object["metadata"]["name"] == *name)
        {
            return;
        }
        let versions: Vec<_> = kind
            .versions
            .iter()
            .enumerate()
            .map(|(i, v)| json!({"name": v, "served": true, "storage": i == 0}))
            .collect();
        let scope = if kind.scope == Scope::Namespaced { "Namespaced" } else { "Cluster" };
        self.objects.push(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name, "uid": name},
            "spec": {"group": kind.kind.group, "scope": scope, "names": {"kind": kind.kind.kind, "plural": kind.plural}, "versions": versions},
            "status": {"storedVersions": [kind.versions[0]]},
        }));
    }

    /// Adds the parts of each operator: `{name: shop/operator, group: shop.example, replicas: 1, available: 1, lease: 5s,
    /// without: [deployment, account, roles, namespace]}`.
    fn operators(&mut self) {
        for operator in self.description.get("operators").and_then(Value::as_array).cloned().unwrap_or_default() {
            let (namespace, name) = operator["name"].as_str().unwrap().split_once('/').unwrap();
            let without = texts(&operator, "without");
            let has = |part: &str| !without.iter().any(|missing| missing == part);
            let number = |key: &str, default: i64| operator.get(key).and_then(Value::as_i64).unwrap_or(default);
            let created = operator.get("created").and_then(Value::as_str).map(time);
            let place = |name: &str| json!({"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "creationTimestamp": created});
            let groups = json!([operator["group"]]);
            let labels = operator.get("labels").cloned().unwrap_or_else(|| json!({"app": name}));
            let mut parts = Vec::new();
            if has("deployment") {
                let kind = operator.get("kind").and_then(Value::as_str).unwrap_or("Deployment");
                parts.push(json!({"apiVersion": "apps/v1", "kind": kind, "metadata": place(name),
                    "spec": {"replicas": number("replicas", 1), "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                        "serviceAccountName": name, "containers": [{"name": "manager", "image": format!("registry.example/{name}:v1")}]}}},
                    "status": {"availableReplicas": number("available", 1)}}));
            }
            if has("account") {
                parts.push(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place(name)}));
            }
            if has("roles") {
                let version = "rbac.authorization.k8s.io/v1";
                parts.push(json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name},
                    "rules": [{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}]}));
                parts.push(json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
                    "roleRef": {"kind": "ClusterRole", "name": name},
                    "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}]}));
            }
            if let Some(ago) = operator.get("lease").and_then(Value::as_str) {
                parts.push(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": place(name),
                    "spec": {"holderIdentity": format!("{name}-7d4b9f6c5-x2v8k"), "leaseDurationSeconds": 15, "renewTime": time(ago)}}));
            }
            self.objects.extend(parts);
        }
        // Namespaces exist, unless the situation says otherwise.
        let absent = texts(&self.description, "absent");
        let used: Vec<String> =
            self.objects.iter().filter_map(|o| o["metadata"]["namespace"].as_str().map(str::to_owned)).collect();
        for namespace in used.into_iter().chain(["default".to_owned(), "kube-system".to_owned()]) {
            let exists = self
                .objects
                .iter()
                .any(|object| object["kind"] == "Namespace" && object["metadata"]["name"] == *namespace);
            if !exists && !absent.contains(&namespace) {
                let labels = json!({"kubernetes.io/metadata.name": namespace});
                self.objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "uid": namespace, "labels": labels}}));
            }
        }
    }

    /// Returns an object as it is.
    pub(crate) fn object_of(&self, object: &ObjectRef) -> Option<&Value> {
        let is_it = |live: &&Value| {
            is_of(live, &object.group_kind())
                && live["metadata"]["name"] == *object.name
                && live["metadata"]["namespace"].as_str() == object.namespace.as_deref()
        };
        self.objects.iter().find(is_it)
    }

    /// Parses `Kind namespace/name`, with the UID `was` if the situation has one.
    pub(crate) fn reference(&self, text: &str) -> ObjectRef {
        let (kind, name) = text.split_once(' ').unwrap();
        let (namespace, name) = name.split_once('/').map_or((None, name), |(ns, name)| (Some(ns), name));
        let known = self.catalog.iter().find(|known| known.kind.kind == kind);
        let version = known.map_or_else(
            || ApiVersion::parse(self.description["version"].as_str().unwrap_or("v1")).unwrap(),
            |known| known.api_version(None),
        );
        ObjectRef::new(version, kind, namespace, name)
    }

    pub(crate) fn subject(&self) -> ObjectRef {
        let mut subject = self.reference(self.description["why"].as_str().unwrap());
        subject.uid = self.description["was"].as_str().map(billhook_objects::Uid::new);
        subject
    }

    /// Runs the rounds of a diagnosis, and a second look if the situation has one. Returns the finding and the requests.
    pub(crate) fn diagnose(&self, rules: Option<Vec<Rule>>) -> (Finding, usize) {
        let diagnosis = self.diagnosis(rules);
        (diagnosis.finding(), diagnosis.requests())
    }

    /// Returns what a diagnosis could not read.
    pub(crate) fn unread(&self) -> Vec<String> {
        self.diagnosis(None).unread().map(|unread| format!("{}: {}", unread.what, unread.why)).collect()
    }

    fn diagnosis(&self, rules: Option<Vec<Rule>>) -> Diagnosis<'_> {
        let now: Timestamp = NOW.parse().unwrap();
        let probe = self.description["probe"].as_bool().unwrap_or(false);
        let budget = self.description["budget"].as_u64().map_or(Options::default().budget, |budget| budget as usize);
        let mut diagnosis = Diagnosis::new(self.subject(), &self.catalog, Options { probe, budget }, now);
        if let Some(rules) = rules {
            diagnosis = diagnosis.with_rules(rules);
        }
        self.rounds(&mut diagnosis, now, false);
        if self.description.get("later").is_some() {
            let then = now + jiff::SignedDuration::from_secs(10);
            let again = diagnosis.second_look();
            diagnosis.learn(then, again.into_iter().map(|query| (query.clone(), self.answer(&query, true))));
            self.rounds(&mut diagnosis, then, true);
        }
        diagnosis
    }

    fn rounds(&self, diagnosis: &mut Diagnosis<'_>, now: Timestamp, later: bool) {
        loop {
            let queries = diagnosis.queries();
            if queries.is_empty() {
                break;
            }
            diagnosis.learn(now, queries.into_iter().map(|query| (query.clone(), self.answer(&query, later))));
        }
    }

    pub(crate) fn answer(&self, query: &Query, later: bool) -> Answer {
        if let Some(failure) = self.failure(query) {
            return failure;
        }
        if self.restricted.is_some_and(|seed| self.is_denied(query, seed)) {
            let (reason, message) = ("Forbidden".to_owned(), "a right is missing".to_owned());
            return Answer::Failed(Failure { status: 403, reason, message });
        }
        match query {
            Query::Get { resource, namespace, name, content } => {
                if resource.kind.is("", "Secret") {
                    assert_eq!(*content, Content::Metadata, "the content of a Secret is read");
                }
                if self.catalog.get(&resource.kind).is_none() && !is_builtin(&resource.kind) {
                    return Answer::NotServed;
                }
                let is_it = |object: &&Value| {
                    is_of(object, &resource.kind)
                        && object["metadata"]["name"] == **name
                        && object["metadata"]["namespace"].as_str() == namespace.as_deref()
                };
                let changed = later.then(|| self.later.iter().find(is_it)).flatten();
                let found = changed.or_else(|| self.objects.iter().find(is_it));
                found.map_or(Answer::Missing, |object| Answer::Object(object.clone()))
            }
            Query::List { resource, namespace, fields, limit, .. } => {
                let uid = fields.strip_prefix("involvedObject.uid=");
                let not = fields.strip_prefix("metadata.namespace!=");
                let selected = |object: &&Value| {
                    is_of(object, &resource.kind)
                        && namespace.as_deref().is_none_or(|namespace| object["metadata"]["namespace"] == *namespace)
                        && uid.is_none_or(|uid| object["involvedObject"]["uid"] == *uid)
                        && not.is_none_or(|namespace| object["metadata"]["namespace"] != *namespace)
                };
                let mut items: Vec<_> = self.objects.iter().filter(selected).cloned().collect();
                let complete = items.len() <= *limit as usize;
                items.truncate(*limit as usize);
                Answer::Objects { items, complete }
            }
            Query::Discovery(path) if path == "/version" => match self.description["server"].as_str() {
                Some(minor) => Answer::Object(json!({"major": "1", "minor": minor})),
                None => Answer::Object(json!({})),
            },
            Query::Discovery(_) => Answer::Object(json!({"resources": [{"name": "x"}]})),
            Query::Access(access) => {
                let denied = texts(&self.description, "denied").iter().any(|user| access.user.ends_with(user));
                Answer::Allowed(!denied, String::new())
            }
            Query::Probe(_) => Answer::Accepted,
        }
    }

    /// Returns whether this caller may not send a query: a third of all, but never the read of the subject.
    fn is_denied(&self, query: &Query, seed: u64) -> bool {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let subject = self.subject();
        if matches!(query, Query::Get { resource, name, .. } if *name == subject.name && resource.kind == subject.group_kind())
        {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        (seed, query).hash(&mut hasher);
        hasher.finish().is_multiple_of(3)
    }

    /// Returns the failure that the situation has for a query: `{list: databases.shop.example, status: 500, message: …}`.
    fn failure(&self, query: &Query) -> Option<Answer> {
        let (how, what) = match query {
            Query::Get { resource, name, .. } => ("get", format!("{} {name}", resource.kind.kind)),
            Query::List { resource, .. } if resource.kind.group.is_empty() => ("list", resource.plural.clone()),
            Query::List { resource, .. } => ("list", format!("{}.{}", resource.plural, resource.kind.group)),
            Query::Discovery(path) => ("discovery", path.clone()),
            Query::Access(_) => ("access", "any".to_owned()),
            Query::Probe(Probe::Delete { .. }) => ("probe", "delete".to_owned()),
            Query::Probe(Probe::RemoveFinalizer { .. }) => ("probe", "finalizer".to_owned()),
            Query::Probe(Probe::Finalize(_)) => ("probe", "finalize".to_owned()),
        };
        let failures = self.description.get("failures").and_then(Value::as_array)?;
        let failure = failures.iter().find(|failure| failure[how] == *what)?;
        let text = |key: &str| failure[key].as_str().unwrap_or_default().to_owned();
        let status = failure["status"].as_u64().unwrap_or(500) as u16;
        Some(Answer::Failed(Failure { status, reason: text("reason"), message: text("message") }))
    }
}

fn is_of(object: &Value, kind: &GroupKind) -> bool {
    let version = ApiVersion::parse(object["apiVersion"].as_str().unwrap()).unwrap();
    object["kind"] == *kind.kind && version.group() == kind.group
}

fn is_builtin(kind: &GroupKind) -> bool {
    !kind.group.contains('.') || (kind.group.ends_with(".k8s.io") && kind.group != "snapshot.storage.k8s.io")
}

/// Parses `shop.example/v1,v1beta1 Database databases`; a `-` at the end is for cluster scope.
fn kind(line: &str) -> ResourceType {
    let mut words = line.split(' ');
    let (version, name, plural) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let (group, versions) = version.split_once('/').unwrap_or(("", version));
    ResourceType {
        kind: GroupKind::new(group, name),
        plural: plural.into(),
        singular: name.to_lowercase(),
        short_names: Vec::new(),
        scope: if words.next() == Some("-") { Scope::Cluster } else { Scope::Namespaced },
        versions: versions.split(',').map(str::to_owned).collect(),
        verbs: ["get", "list", "watch", "delete"].map(str::to_owned).to_vec(),
    }
}

/// Parses `Ready=False Reason: message`.
fn condition(text: &str) -> Value {
    let (head, message) = text.split_once(": ").unwrap_or((text, ""));
    let (state, reason) = head.split_once(' ').unwrap_or((head, ""));
    let (kind, status) = state.split_once('=').unwrap();
    json!({"type": kind, "status": status, "reason": reason, "message": message})
}

/// Returns the time that was so long ago: `90s`, `10m`, `6h`, `3d`; with a minus the time to come.
fn time(ago: &str) -> String {
    let (sign, ago) = ago.strip_prefix('-').map_or((1, ago), |ago| (-1, ago));
    let (number, unit) = ago.split_at(ago.len() - 1);
    let unit = BTreeMap::from([("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)])[unit];
    let now: Timestamp = NOW.parse().unwrap();
    (now - jiff::SignedDuration::from_secs(sign * number.parse::<i64>().unwrap() * unit)).to_string()
}

pub(crate) fn texts(value: &Value, key: &str) -> Vec<String> {
    value
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}
