//! A cluster in a few lines: `ConfigMap/app/x uid=1 ours fin=a.example/f deleting owner=2 of=other tier=web`.

use std::fmt::Write as _;

use billhook_objects::{
    ApiVersion, Catalog, Digest, GroupKind, ObjectKey, ReleaseName, ResourceType, Scope, Uid,
    wellknown::{self, RELEASE_LABEL},
};
use billhook_policy::{
    DeletionGroup, Force, GoDuration, Members, Policy, Propagation, ResourceClass, ResourceSelector,
};

use crate::*;

/// Kind, group, plural, short name, versions; cluster-scoped kinds begin with `*`.
const KINDS: [(&str, &str, &str, &str, &str); 19] = [
    ("ConfigMap", "", "configmaps", "cm", "v1"),
    ("Secret", "", "secrets", "", "v1"),
    ("Service", "", "services", "svc", "v1"),
    ("ServiceAccount", "", "serviceaccounts", "sa", "v1"),
    ("Endpoints", "", "endpoints", "ep", "v1"),
    ("Event", "", "events", "ev", "v1"),
    ("Pod", "", "pods", "po", "v1"),
    ("PersistentVolumeClaim", "", "persistentvolumeclaims", "pvc", "v1"),
    ("*Namespace", "", "namespaces", "ns", "v1"),
    ("Deployment", "apps", "deployments", "deploy", "v1"),
    ("ReplicaSet", "apps", "replicasets", "rs", "v1"),
    ("EndpointSlice", "discovery.k8s.io", "endpointslices", "", "v1"),
    ("*ClusterRole", "rbac.authorization.k8s.io", "clusterroles", "", "v1"),
    ("*CustomResourceDefinition", "apiextensions.k8s.io", "customresourcedefinitions", "crd", "v1"),
    ("*APIService", "apiregistration.k8s.io", "apiservices", "", "v1"),
    ("Widget", "a.example", "widgets", "w", "v1 v1beta1"),
    ("Wheel", "a.example", "wheels", "w", "v1"),
    ("Widget", "b.example", "widgets", "", "v1"),
    ("*Planet", "a.example", "planets", "", "v1"),
];

pub(crate) fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    catalog.extend(KINDS.map(|(kind, group, plural, short, versions)| ResourceType {
        kind: GroupKind::new(group, kind.trim_start_matches('*')),
        plural: plural.into(),
        singular: kind.trim_start_matches('*').to_lowercase(),
        short_names: short.split_whitespace().map(str::to_owned).collect(),
        scope: if kind.starts_with('*') { Scope::Cluster } else { Scope::Namespaced },
        versions: versions.split_whitespace().map(str::to_owned).collect(),
        verbs: ["list", "watch", "delete"].map(str::to_owned).to_vec(),
    }));
    catalog
}

pub(crate) fn release() -> ReleaseName {
    ReleaseName::new("app", "web").unwrap()
}

/// Reads `Kind[.group]/[namespace/]name`.
pub(crate) fn key(text: &str) -> ObjectKey {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, group) = parts[0].split_once('.').unwrap_or((parts[0], ""));
    let group = match kind {
        "Deployment" | "ReplicaSet" => "apps",
        "EndpointSlice" => "discovery.k8s.io",
        "ClusterRole" => "rbac.authorization.k8s.io",
        "CustomResourceDefinition" => "apiextensions.k8s.io",
        "APIService" => "apiregistration.k8s.io",
        _ => group,
    };
    let kind = GroupKind::new(group, kind);
    match parts.as_slice() {
        [_, namespace, name] => ObjectKey::new(kind, Some(namespace), *name),
        [_, name] => ObjectKey::new(kind, None, *name),
        _ => panic!("{text}"),
    }
}

/// A wanted object: `KEY [uid=U] [keep] [fallback] [unlabelled] [patch=VALUE]`; without a UID no write has confirmed it.
pub(crate) fn wanted(text: &str) -> Wanted {
    let mut words = text.split_whitespace();
    let key = key(words.next().unwrap());
    let mut wanted = Wanted {
        key,
        version: "v1".into(),
        uid: None,
        keep: false,
        fallback: false,
        before_delete: None,
        unlabelled: false,
    };
    for word in words {
        match word.split_once('=') {
            Some(("uid", uid)) => wanted.uid = Some(Uid::new(uid)),
            Some(("patch", value)) => wanted.before_delete = Some(Box::new(serde_json::json!({ "a": value }))),
            _ if word == "keep" => wanted.keep = true,
            _ if word == "fallback" => wanted.fallback = true,
            _ if word == "unlabelled" => wanted.unlabelled = true,
            _ => panic!("{word}"),
        }
    }
    wanted
}

#[derive(Clone, Default)]
pub(crate) struct Cluster {
    objects: Vec<(Option<String>, GroupKind, Observed)>,
    /// Lists by this selection of these plurals are forbidden; `=plural` forbids single reads too.
    pub(crate) forbidden: Vec<String>,
    pub(crate) unwatchable: bool,
}

pub(crate) fn cluster(lines: &[&str]) -> Cluster {
    let mut cluster = Cluster::default();
    lines.iter().for_each(|line| cluster.add(None, line));
    cluster
}

impl Cluster {
    pub(crate) fn add(&mut self, on: Option<&str>, line: &str) {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap();
        let key = key(name);
        let mut object = Observed {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: Uid::new(format!("uid-{name}")),
            resource_version: "1".into(),
            labels: Default::default(),
            created_at: None,
            finalizers: Vec::new(),
            deleting: false,
            deleted_at: None,
            owners: Vec::new(),
            annotations: Annotations::default(),
            tracked: None,
            ready: false,
        };
        for word in words {
            match word.split_once('=') {
                None if word == "ours" => object.labels.insert(RELEASE_LABEL, release().label_value()),
                None if word == "deleting" => object.deleting = true,
                None if word == "protected" => annotate(&mut object, wellknown::PROTECT_ANNOTATION, "true"),
                None if word == "ready" => object.ready = true,
                Some(("of", other)) => object.labels.insert(RELEASE_LABEL, other),
                Some(("uid", uid)) => object.uid = Uid::new(uid),
                Some(("rv", version)) => object.resource_version = version.into(),
                // `state=STATE`, or `state=STATE,MANAGER,…` where these managers of billhook have applied fields.
                Some(("state", state)) => {
                    let (state, managers) = state.split_once(',').unwrap_or((state, ""));
                    let managers =
                        managers.split(',').filter(|manager| !manager.is_empty()).map(str::to_owned).collect();
                    object.tracked = Some(Tracked { fingerprint: fingerprint(state), managers });
                }
                Some(("fin", finalizer)) => object.finalizers.push(finalizer.into()),
                // `owner=d`, or `owner=Deployment.apps/d` where its kind matters.
                Some(("owner", owner)) => {
                    let (kind, uid) = owner.split_once('/').unwrap_or(("Owner", owner));
                    let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
                    object.owners.push(Owner { kind: GroupKind::new(group, kind), uid: Uid::new(uid) });
                }
                Some(_) if let Some((key, value)) = annotation(word) => annotate(&mut object, &key, &value),
                Some((label, value)) => object.labels.insert(label, value),
                None => panic!("{word}"),
            }
        }
        self.objects.push((on.map(str::to_owned), key.kind, object));
    }

    pub(crate) fn answer(&self, queries: &[Query]) -> Vec<Listing> {
        queries.iter().map(|query| Listing { query: query.clone(), found: self.list(query) }).collect()
    }

    fn list(&self, query: &Query) -> Listed {
        let plural = &query.resource.plural;
        let single = query.select.names(None, "").is_some();
        if self.forbidden.contains(&format!("={plural}")) || (!single && self.forbidden.contains(plural)) {
            return Listed::Failed("forbidden".into());
        }
        let shown = |(cluster, kind, object): &&(Option<String>, GroupKind, Observed)| {
            *cluster == query.cluster
                && *kind == query.resource.kind
                && (query.covers(object.namespace.as_deref()) || matches!(query.select, Select::Labels(_)))
                && (query.namespace.is_none() || query.namespace == object.namespace)
                && match &query.select {
                    Select::All => true,
                    Select::Labels(text) => text.split(',').all(|part| {
                        part.split_once('=').is_some_and(|(k, v)| object.labels.get(k).is_some_and(|value| value == v))
                    }),
                    select => select.names(object.namespace.as_deref(), &object.name) == Some(true),
                }
        };
        let mut items: Vec<Observed> = self.objects.iter().filter(shown).map(|(_, _, object)| object.clone()).collect();
        items.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let resource_version = (!self.unwatchable).then(|| "9".to_owned());
        Listed::Items { resource_version, items }
    }
}

/// Reads `@NAME=VALUE`, or `@@NAME=VALUE` with the prefix of Gardener.
pub(crate) fn annotation(word: &str) -> Option<(String, String)> {
    let (name, value) = word.strip_prefix('@')?.split_once('=')?;
    let key = match name.strip_prefix('@') {
        Some(name) => format!("resources.gardener.cloud/{name}"),
        None => format!("billhook.dev/{name}"),
    };
    Some((key, value.to_owned()))
}

fn annotate(object: &mut Observed, key: &str, value: &str) {
    let one: Annotations = [(key.to_owned(), value.to_owned())].into_iter().collect();
    object.annotations = object.annotations.with(&one);
}

/// `v1 configmaps [all] [name=N] [ns=NS] [label=value]`.
pub(crate) fn selector(text: &str) -> ResourceSelector {
    let mut words = text.split_whitespace();
    let mut selector = ResourceSelector {
        api_version: ApiVersion::parse(words.next().unwrap()).unwrap(),
        kind: words.next().unwrap().to_owned(),
        names: Vec::new(),
        namespaces: Vec::new(),
        label_selector: Default::default(),
        all: false,
    };
    for word in words {
        match word.split_once('=') {
            None if word == "all" => selector.all = true,
            Some(("name", name)) => selector.names.push(name.into()),
            Some(("ns", namespace)) => selector.namespaces.push(namespace.into()),
            Some((k, v)) => drop(selector.label_selector.match_labels.insert(k.into(), v.into())),
            None => panic!("{word}"),
        }
    }
    selector
}

pub(crate) fn members(text: &str) -> Members {
    match text {
        "namespaced" => Members::Class(ResourceClass::Namespaced),
        "cluster" => Members::Class(ResourceClass::ClusterScoped),
        "crds" => Members::Class(ResourceClass::Crds),
        "empty" => Members::Class(ResourceClass::Empty),
        selectors => Members::Resources(selectors.split('+').map(selector).collect()),
    }
}

/// `SELECTOR [+ SELECTOR]… [| -SELECTOR | force[=AFTER] | target=NAME]…`, or a class.
pub(crate) fn groups(lines: &[&str]) -> Vec<DeletionGroup> {
    let group = |(at, line): (usize, &&str)| {
        let mut parts = line.split('|').map(str::trim);
        let text = parts.next().unwrap();
        let mut group = DeletionGroup::new(text, members(text));
        group.path = format!("deletionGroups[{at}]");
        for part in parts {
            match part.split_once('=') {
                None if part == "force" => group.force = Some(Force::default()),
                Some(("force", after)) => {
                    group.force = Some(Force {
                        after: after.parse().unwrap(),
                        finalizers: vec!["a.example/f".into()],
                        ..Force::default()
                    });
                }
                Some(("timeout", time)) => group.timeout = Some(time.parse::<GoDuration>().unwrap()),
                Some(("target", name)) => group.target = Some(name.into()),
                _ if part == "orphan" => group.propagation = Some(Propagation::Orphan),
                _ => group.excluded.push(selector(part.trim_start_matches('-'))),
            }
        }
        group
    };
    lines.iter().enumerate().map(group).collect()
}

/// The parts of a delete request.
pub(crate) struct TestDeletion {
    pub(crate) release: Option<ReleaseName>,
    pub(crate) objects: Vec<Wanted>,
    pub(crate) groups: Vec<DeletionGroup>,
    pub(crate) catalogs: Catalogs,
    pub(crate) operation: Operation,
    pub(crate) record_here: bool,
    pub(crate) unlabelled: Unlabelled,
}

pub(crate) fn deletion(objects: &[&str], group_lines: &[&str]) -> TestDeletion {
    let groups = if group_lines.is_empty() { Policy::default().deletion } else { groups(group_lines) };
    let objects = objects.iter().map(|text| wanted(text)).collect();
    let catalogs = Catalogs::own(catalog());
    TestDeletion {
        release: Some(release()),
        objects,
        groups,
        catalogs,
        operation: Operation::Delete,
        record_here: true,
        unlabelled: Unlabelled::Leave,
    }
}

impl TestDeletion {
    pub(crate) fn request(&self) -> DeleteRequest<'_> {
        DeleteRequest {
            release: self.release.as_ref(),
            objects: self.objects.clone(),
            groups: &self.groups,
            catalogs: self.catalogs.clone(),
            propagation: Propagation::Background,
            operation: self.operation,
            record_here: self.record_here,
            unlabelled: self.unlabelled,
        }
    }

    pub(crate) fn plan(&self, cluster: &Cluster) -> Result<Plan, PlanError> {
        Ok(self.plan_from(cluster)?.0)
    }

    fn plan_from(&self, cluster: &Cluster) -> Result<(Plan, Snapshot), PlanError> {
        let deletion = Deletion::new(self.request())?;
        let mut snapshot = Snapshot { listings: cluster.answer(deletion.queries()) };
        let second = deletion.missing(&snapshot);
        snapshot.listings.extend(cluster.answer(&second));
        Ok((deletion.plan(&snapshot)?, snapshot))
    }

    /// Returns the plan with notes on the contents of what it deletes.
    pub(crate) fn blast(&self, cluster: &Cluster) -> Plan {
        let (mut plan, mut snapshot) = self.plan_from(cluster).unwrap();
        snapshot.listings.extend(cluster.answer(&blast_queries(&plan, &self.catalogs)));
        add_blast_notes(&mut plan, &snapshot, self.release.as_ref());
        plan
    }
}

/// Returns the nodes of a plan, one a line: `title: object object; all configmaps`.
pub(crate) fn nodes(plan: &Plan) -> Vec<String> {
    let line = |node: &Node| {
        let mut line = format!("{}:", node.title);
        match &node.work {
            Work::Apply(work) => {
                for task in &work.objects {
                    let action = serde_json::to_value(task.action).unwrap();
                    let wait = if task.wait { "!" } else { "" };
                    write!(line, " {}({}{wait})", task.object, action.as_str().unwrap()).unwrap();
                }
            }
            Work::Patch(work) => {
                let version = |task: &PatchTask| task.resource.version.clone();
                let all = work.objects.iter().map(|task| format!(" {}({} {})", task.object, version(task), task.patch));
                all.for_each(|text| line += &text);
            }
            Work::Sequence(work) => {
                for step in &work.steps {
                    let what = match step {
                        Step::Apply(task) => {
                            let wait = if task.wait { "!" } else { "" };
                            format!("{}{wait}", serde_json::to_value(task.action).unwrap().as_str().unwrap())
                        }
                        Step::Delete(step) => format!("delete {}", step.uid),
                        Step::Unserved(_) => "unserved".to_owned(),
                    };
                    write!(line, " {}({what})", step.object()).unwrap();
                }
            }
            Work::Delete(work) => {
                work.objects.iter().for_each(|task| write!(line, " {}", task.object).unwrap());
                let all = work.collections.iter().map(|collection| plan.queries[collection.query].scope());
                all.for_each(|query| write!(line, "; all {query}").unwrap());
            }
        }
        line
    };
    plan.nodes.iter().map(line).collect()
}

/// Returns the notes of a plan, one a line: `severity code: message`.
pub(crate) fn notes(plan: &Plan) -> Vec<String> {
    let line = |note: &Note| {
        let printed = serde_json::to_value(note).unwrap();
        let text = |field: &str| printed[field].as_str().unwrap();
        format!("{} {}: {}", text("severity"), text("code"), text("message"))
    };
    plan.notes.iter().map(line).collect()
}

pub(crate) fn is_dangerous(plan: &Plan) -> bool {
    plan.notes.iter().any(|note| note.severity == Severity::Dangerous)
}

pub(crate) fn texts(error: &PlanError) -> Vec<String> {
    error.problems.iter().map(ToString::to_string).collect()
}

pub(crate) fn uncovered(plan: &Plan) -> Vec<String> {
    plan.uncovered.iter().map(|u| format!("{}: {}", u.object, u.reason())).collect()
}

/// Returns an inventory entry as a write leaves it.
pub(crate) fn entry(uid: Option<&str>, version: &str, digest: Digest) -> Entry {
    Entry {
        uid: uid.map(Uid::new),
        resource_version: uid.map(|_| version.to_owned()),
        ..Entry::new(ApiVersion::parse("v1").unwrap(), digest)
    }
}

/// Returns the fingerprint of a state that is named by a letter.
pub(crate) fn fingerprint(state: &str) -> Fingerprint {
    Fingerprint::new([state.as_bytes()[0]; 16])
}
