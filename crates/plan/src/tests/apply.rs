use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use billhook_objects::{Catalog, GroupKind, Manifest, ObjectKey, ResourceType, yaml};
use billhook_policy::{DeploymentGroup, Policy, Propagation, UpdateStrategy, WaitFor};

use super::cluster::*;
use crate::*;

mod graph;
mod guards;
mod versions;

const CRD: &str = "CustomResourceDefinition/gadgets.c.example";

/// Reads manifests, each as `APIVERSION KIND/[NAMESPACE/]NAME [@NAME=VALUE]…`, where `@` is the prefix of billhook's annotations and
/// `@@` that of Gardener's.
fn manifests(lines: &[&str]) -> Vec<Manifest> {
    let document = |line: &&str| {
        let mut words = line.split_whitespace();
        let (version, object) = (words.next().unwrap(), words.next().unwrap());
        let parts: Vec<&str> = object.split('/').collect();
        let annotations: String =
            words.filter_map(annotation).map(|(key, value)| format!("{key}: \"{value}\", ")).collect();
        let namespace = if parts.len() == 3 { format!("namespace: \"{}\", ", parts[1]) } else { String::new() };
        let spec = if parts[0] == "CustomResourceDefinition" {
            "spec: {group: c.example, scope: Namespaced, names: {kind: Gadget, plural: gadgets}, versions: [{name: v1, served: true, storage: true}]}\n"
        } else {
            ""
        };
        let (kind, name) = (parts[0], parts[parts.len() - 1]);
        format!(
            "---\napiVersion: {version}\nkind: {kind}\nmetadata: {{{namespace}name: \"{name}\", annotations: {{{annotations}}}}}\n{spec}"
        )
    };
    let text: String = lines.iter().map(document).collect();
    let file = Arc::from("f.yaml");
    let documents = yaml::parse(&text).unwrap();
    documents.into_iter().flat_map(|document| Manifest::from_document(document, &file).unwrap()).collect()
}

pub(super) struct TestDeployment {
    pub(super) manifests: Vec<Manifest>,
    pub(super) directives: BTreeMap<ObjectKey, Directives>,
    pub(super) strategy: UpdateStrategy,
    pub(super) inventory: Option<Inventory>,
    pub(super) policy: Policy,
    pub(super) catalogs: Catalogs,
    pub(super) not_served: BTreeSet<GroupKind>,
    pub(super) missing_namespaces: MissingNamespaces,
    pub(super) adopt: bool,
    pub(super) unlabelled: Unlabelled,
    pub(super) gone: BTreeSet<String>,
    pub(super) prune: bool,
    pub(super) wait: Wait,
    pub(super) record_here: bool,
    pub(super) graph: Option<TaskGraph>,
}

pub(super) fn deployment(lines: &[&str]) -> TestDeployment {
    let (mut catalog, mut not_served) = (catalog(), BTreeSet::new());
    for kind in manifests(lines).iter().filter_map(|manifest| ResourceType::from_crd(&manifest.value())) {
        if catalog.get(&kind.kind).is_none() {
            not_served.insert(kind.kind.clone());
        }
        catalog.insert_missing(kind);
    }
    let manifests = prepare(manifests(lines), &release(), Some(release().namespace()), &catalog, None).unwrap();
    let (inventory, policy, catalogs) = (None, Policy::default(), Catalogs::own(catalog));
    TestDeployment {
        manifests,
        directives: BTreeMap::new(),
        strategy: UpdateStrategy::default(),
        inventory,
        policy,
        catalogs,
        not_served,
        missing_namespaces: MissingNamespaces::Leave,
        adopt: false,
        unlabelled: Unlabelled::Refuse,
        gone: BTreeSet::new(),
        prune: true,
        wait: Wait::Nothing,
        record_here: true,
        graph: None,
    }
}

impl TestDeployment {
    /// Adds objects to the inventory: `KEY UID`, without a UID if no write has confirmed them.
    pub(super) fn knowing(mut self, entries: &[&str]) -> Self {
        let mut inventory = Inventory::new(release());
        for line in entries {
            let mut words = line.split_whitespace();
            let key = key(words.next().unwrap());
            let manifest = self.manifests.iter().find(|manifest| manifest.key == key);
            let digest = manifest.map_or_else(|| billhook_objects::Digest::of(&false.into()), Manifest::digest);
            inventory.entries.insert(key, entry(words.next(), "1", digest));
        }
        self.inventory = Some(inventory);
        self
    }

    fn request<'a>(&'a self, release: &'a billhook_objects::ReleaseName) -> ApplyRequest<'a> {
        ApplyRequest {
            release,
            manifests: &self.manifests,
            directives: &self.directives,
            strategy: self.strategy,
            inventory: self.inventory.as_ref(),
            policy: &self.policy,
            catalogs: self.catalogs.clone(),
            not_served: &self.not_served,
            missing_namespaces: self.missing_namespaces,
            adopt: self.adopt,
            unlabelled: self.unlabelled,
            prune: self.prune,
            wait: self.wait,
            propagation: Propagation::Background,
            record_here: self.record_here,
            graph: self.graph.as_ref(),
        }
    }

    pub(super) fn plan(&self, live: &Cluster) -> Result<Plan, PlanError> {
        let release = release();
        let mut deployment = Deployment::new(self.request(&release))?;
        let mut snapshot = Snapshot { listings: live.answer(deployment.queries()) };
        snapshot.listings.extend(live.answer(&deployment.missing(&snapshot)));
        let claims = deployment.claims(&snapshot);
        deployment.ignore_claims(claims.intersection(&self.gone).cloned().collect());
        deployment.plan(&snapshot)
    }

    #[track_caller]
    pub(super) fn check(&self, live: &[&str], expected: &[&str]) -> Plan {
        let plan = self.plan(&cluster(live)).unwrap();
        assert_eq!(nodes(&plan), expected);
        plan
    }

    #[track_caller]
    fn fails(&self, live: &[&str], kind: PlanErrorKind, problems: &[&str]) {
        let error = self.plan(&cluster(live)).unwrap_err();
        assert_eq!((error.kind, texts(&error)), (kind, problems.iter().map(|p| (*p).to_owned()).collect()));
    }
}

fn deploy_group(text: &str, wait_for: WaitFor) -> DeploymentGroup {
    DeploymentGroup {
        title: text.into(),
        path: "deploymentGroups[0]".into(),
        members: members(text),
        excluded: Vec::new(),
        wait_for,
        timeout: None,
    }
}

#[test]
fn the_default_order_is_crds_then_cluster_scoped_then_namespaced() {
    let all = [
        "v1 ConfigMap/b",
        "v1 ConfigMap/x/a",
        "v1 Namespace/x",
        "apiextensions.k8s.io/v1 CustomResourceDefinition/gadgets.c.example",
        "c.example/v1 Gadget/g",
    ];
    let plan = deployment(&all).check(
        &[],
        &[
            "crds: CustomResourceDefinition.apiextensions.k8s.io/gadgets.c.example(create!)",
            "cluster-scoped-resources: Namespace/x(create)",
            "namespaced-resources: ConfigMap/app/b(create) ConfigMap/x/a(create) Gadget.c.example/app/g(create)",
        ],
    );
    assert_eq!(
        plan.nodes.iter().map(|n| n.barrier).collect::<Vec<_>>(),
        [Barrier::Ready, Barrier::Requested, Barrier::Requested]
    );
    assert!(plan.queries.is_empty());
}

#[test]
fn uid_and_label_decide_the_action() {
    for (entry, live, adopt, expected) in [
        ("", "", false, Ok("create")),
        ("ConfigMap/a/x", "", false, Ok("create")),
        ("ConfigMap/a/x 1", "", false, Ok("create")),
        ("ConfigMap/a/x 1", "ConfigMap/a/x uid=1 ours", false, Ok("unchanged")),
        (
            "ConfigMap/a/x 1",
            "ConfigMap/a/x uid=1",
            false,
            Err("ConfigMap a/x is in the record of the release, but does not carry its label"),
        ),
        ("ConfigMap/a/x 1", "ConfigMap/a/x uid=1", true, Ok("adopt")),
        ("ConfigMap/a/x 1", "ConfigMap/a/x uid=1 of=db.app", true, Err("ConfigMap a/x belongs to release app/db")),
        ("ConfigMap/a/x 1", "ConfigMap/a/x uid=1 rv=2 ours", false, Ok("update")),
        ("ConfigMap/a/x 1", "ConfigMap/a/x uid=2 ours", false, Ok("update")),
        ("ConfigMap/a/x", "ConfigMap/a/x uid=2 ours", false, Ok("update")),
        ("ConfigMap/a/x", "ConfigMap/a/x uid=2", false, Err("ConfigMap a/x exists and belongs to no release")),
        (
            "",
            "ConfigMap/a/x uid=2 ours",
            false,
            Err("ConfigMap a/x carries the label of the release, but is not in its record"),
        ),
        ("", "ConfigMap/a/x uid=2 ours", true, Ok("adopt")),
        ("ConfigMap/a/x 1", "ConfigMap/a/x uid=2", false, Err("ConfigMap a/x exists and belongs to no release")),
        ("", "ConfigMap/a/x uid=2", true, Ok("adopt")),
        ("", "ConfigMap/a/x uid=2 of=db.app", true, Err("ConfigMap a/x belongs to release app/db")),
        (
            "",
            "ConfigMap/a/x uid=2 of=gone.app",
            false,
            Err("ConfigMap a/x exists and belongs to no release: release app/gone no longer exists"),
        ),
        ("", "ConfigMap/a/x uid=2 of=gone.app", true, Ok("adopt")),
        ("ConfigMap/a/x 1", "ConfigMap/a/x uid=1 ours deleting", false, Err("ConfigMap a/x is being deleted")),
    ] {
        let mut deployment = deployment(&["v1 ConfigMap/a/x"]).knowing(if entry.is_empty() {
            &[]
        } else {
            std::slice::from_ref(&entry)
        });
        deployment.adopt = adopt;
        deployment.gone.insert("gone.app".to_owned());
        let found = deployment.plan(&cluster(if live.is_empty() { &[] } else { std::slice::from_ref(&live) }));
        let found = found.map(|plan| nodes(&plan).concat()).map_err(|error| (error.kind, texts(&error).concat()));
        let expected = expected.map(|action| format!("namespaced-resources: ConfigMap/a/x({action})"));
        let kind = |problem: &str| match problem.contains("is being deleted") {
            true => PlanErrorKind::Busy,
            false => PlanErrorKind::Refused,
        };
        assert_eq!(found, expected.map_err(|problem| (kind(problem), problem.to_owned())), "{entry} {live}");
    }
}

#[test]
fn the_state_apart_from_the_status_decides_about_server_side_apply() {
    use UpdateStrategy::{ServerSide, Update};
    for (strategy, recorded, live, expected) in [
        (ServerSide, Some("s"), "ConfigMap/a/x uid=1 rv=2 ours state=s", "unchanged"),
        (ServerSide, Some("s"), "ConfigMap/a/x uid=1 rv=1 ours state=t", "unchanged"),
        (ServerSide, Some("s"), "ConfigMap/a/x uid=1 rv=2 ours state=t", "update"),
        (ServerSide, Some("s"), "ConfigMap/a/x uid=2 rv=2 ours state=s", "update"),
        (ServerSide, Some("s"), "ConfigMap/a/x uid=1 rv=2 ours", "update"),
        (ServerSide, None, "ConfigMap/a/x uid=1 rv=2 ours state=s", "update"),
        (ServerSide, None, "ConfigMap/a/x uid=1 rv=2 ours", "update"),
        // The object is read and compared.
        (Update, Some("s"), "ConfigMap/a/x uid=1 rv=2 ours state=s", "update"),
        (Update, Some("s"), "ConfigMap/a/x uid=1 rv=1 ours state=s", "unchanged"),
    ] {
        let mut deployment = deployment(&["v1 ConfigMap/a/x"]).knowing(&["ConfigMap/a/x 1"]);
        deployment.strategy = strategy;
        let entries = &mut deployment.inventory.as_mut().unwrap().entries;
        entries.values_mut().for_each(|entry| entry.fingerprint = recorded.map(fingerprint));
        let plan = deployment.plan(&cluster(&[live])).unwrap();
        let expected = format!("namespaced-resources: ConfigMap/a/x({expected})");
        assert_eq!(nodes(&plan), [expected], "{strategy:?} {recorded:?} {live}");
    }
}

#[test]
fn a_write_carries_the_uid_that_was_seen() {
    let task = |deployment: &TestDeployment, live: &[&str]| {
        let plan = deployment.plan(&cluster(live)).unwrap();
        let Work::Apply(work) = &plan.nodes[0].work else { panic!("{plan:?}") };
        let task = &work.objects[0];
        (task.uid.clone().map(|uid| uid.to_string()), task.left().is_some(), task.takes_over.join(" "))
    };
    let seen = |uid: Option<&str>, takes_over: &str| (uid.map(str::to_owned), false, takes_over.to_owned());
    let mut deployment = deployment(&["v1 ConfigMap/a/x"]).knowing(&["ConfigMap/a/x 1"]);
    deployment.adopt = true;
    assert_eq!(task(&deployment, &[]), seen(None, ""));
    let ours = |state: &str| format!("ConfigMap/a/x uid=7 rv=2 ours state={state}");
    assert_eq!(task(&deployment, &[&ours("s")]), seen(Some("7"), ""));
    assert_eq!(task(&deployment, &[&ours("s,billhook,billhook/a/gone")]), seen(Some("7"), "billhook"));
    assert_eq!(task(&deployment, &["ConfigMap/a/x uid=8"]), seen(Some("8"), ""));
    assert_eq!(task(&deployment, &["ConfigMap/a/x uid=1 rv=1 ours state=s,billhook"]), seen(None, ""));
    // The fields of a release that no longer exists are taken over with the object.
    let adopted = "ConfigMap/a/x uid=8 state=s,billhook/a/gone,billhook/a/there,billhook";
    deployment.gone.insert("gone.a".to_owned());
    assert_eq!(task(&deployment, &[adopted]), seen(Some("8"), "billhook/a/gone billhook"));
    deployment.strategy = UpdateStrategy::Update;
    assert_eq!(task(&deployment, &[&ours("s,billhook")]), seen(Some("7"), ""));
}

#[test]
fn without_a_record_the_label_alone_decides() {
    let lost = deployment(&["v1 ConfigMap/a/x"]);
    lost.check(&["ConfigMap/a/x ours"], &["namespaced-resources: ConfigMap/a/x(update)"]);
    let unowned = ["ConfigMap a/x exists and belongs to no release"];
    lost.fails(&["ConfigMap/a/x"], PlanErrorKind::Refused, &unowned);
}

#[test]
fn pruned_objects_need_the_label_too() {
    let live = ["ConfigMap/a/old uid=1", "ConfigMap/a/x uid=2 ours"];
    let mut deployment = deployment(&["v1 ConfigMap/a/x"]).knowing(&["ConfigMap/a/old 1", "ConfigMap/a/x 2"]);
    let unlabelled = ["ConfigMap a/old is in the record of the release, but does not carry its label"];
    deployment.fails(&live, PlanErrorKind::Refused, &unlabelled);
    let (apply, prune) = ("namespaced-resources: ConfigMap/a/x(unchanged)", "namespaced-resources: ConfigMap/a/old");
    deployment.unlabelled = Unlabelled::Take;
    deployment.check(&live, &[apply, prune]);
    deployment.unlabelled = Unlabelled::Leave;
    let plan = deployment.check(&live, &[apply]);
    assert_eq!(uncovered(&plan), ["ConfigMap/a/old: it does not carry the release's label"]);
    assert!(is_dangerous(&plan));
}

#[test]
fn a_changed_manifest_is_an_update() {
    let mut deployment = deployment(&["v1 ConfigMap/a/x"]).knowing(&["ConfigMap/a/x 1"]);
    deployment.manifests[0].set_label("tier", "web");
    deployment.check(&["ConfigMap/a/x uid=1 ours"], &["namespaced-resources: ConfigMap/a/x(update)"]);
}

#[test]
fn all_refusals_are_reported_at_once() {
    deployment(&["v1 ConfigMap/a/x", "v1 ConfigMap/a/y"]).fails(
        &["ConfigMap/a/x of=db.app", "ConfigMap/a/y"],
        PlanErrorKind::Refused,
        &["ConfigMap a/x belongs to release app/db", "ConfigMap a/y exists and belongs to no release"],
    );
}

#[test]
fn known_objects_are_listed_by_label_and_new_ones_by_name() {
    let selects = |deployment: &TestDeployment| {
        let release = release();
        let deployment = Deployment::new(deployment.request(&release)).unwrap();
        deployment.queries().iter().map(|q| (q.scope().to_string(), q.select.clone())).collect::<Vec<_>>()
    };
    let label = || Select::Labels("billhook.dev/release=web.app".into());
    let two = ["v1 ConfigMap/a/x", "v1 ConfigMap/b/y"];
    assert_eq!(
        selects(&deployment(&two).knowing(&["ConfigMap/a/x 1", "ConfigMap/b/y"])),
        [
            ("configmaps in namespace b".into(), Select::Names(vec!["y".into()])),
            ("configmaps in namespace a".into(), label()),
        ]
    );
    let pruned = deployment(&two).knowing(&["ConfigMap/a/x 1", "ConfigMap/b/y 2", "Secret/a/old 3"]);
    let places: Vec<_> = selects(&pruned).into_iter().map(|(place, _)| place).collect();
    assert_eq!(places, ["configmaps in namespace a", "configmaps in namespace b", "secrets in namespace a"]);
}

#[test]
fn new_objects_are_ready_before_old_ones_are_pruned() {
    let mut deployment = deployment(&["apps/v1 Deployment/a/d", "v1 ConfigMap/a/x"]).knowing(&[
        "ConfigMap/a/old 1",
        "ClusterRole/r 2",
        "ConfigMap/a/x 3",
    ]);
    deployment.wait = Wait::All;
    let live = ["ConfigMap/a/old uid=1 ours", "ClusterRole/r uid=2 ours", "ConfigMap/a/x uid=3 ours"];
    let apply = "namespaced-resources: ConfigMap/a/x(unchanged) Deployment.apps/a/d(create)";
    let plan = deployment.check(
        &live,
        &[
            apply,
            "ready: Deployment.apps/a/d(await!)",
            "namespaced-resources: ConfigMap/a/old",
            "cluster-scoped-resources: ClusterRole.rbac.authorization.k8s.io/r",
        ],
    );
    assert_eq!(
        plan.nodes.iter().map(|node| node.after.clone()).collect::<Vec<_>>(),
        [vec![], vec![0], vec![1], vec![2]]
    );
    assert_eq!(plan.queries.len(), 2);
    deployment.wait = Wait::Nothing;
    deployment.policy.during_update = groups(&["v1 cm"]);
    let plan = deployment.check(&live, &[apply, "v1 cm: ConfigMap/a/old"]);
    assert_eq!(uncovered(&plan), ["ClusterRole.rbac.authorization.k8s.io/r: no group covers it"]);
    deployment.prune = false;
    let plan = deployment.check(&live, &[apply]);
    assert_eq!(
        notes(&plan),
        [
            "info uncovered: 2 objects that the new version no longer contains will not be pruned: 1 ConfigMap, 1 ClusterRole.rbac.authorization.k8s.io"
        ]
    );
}

#[test]
fn containers_of_the_new_version_are_not_pruned() {
    let deployment = deployment(&["v1 ConfigMap/x/a", "a.example/v1 Widget/y/w"]).knowing(&[
        "Namespace/x 1",
        "CustomResourceDefinition/widgets.a.example 2",
        "Namespace/z 3",
    ]);
    let live = ["Namespace/x uid=1", "CustomResourceDefinition/widgets.a.example uid=2", "Namespace/z uid=3 ours"];
    let plan = deployment.check(
        &live,
        &[
            "namespaced-resources: ConfigMap/x/a(create) Widget.a.example/y/w(create)",
            "cluster-scoped-resources: Namespace/z",
        ],
    );
    assert_eq!(
        uncovered(&plan),
        [
            "Namespace/x: objects of the new version need it",
            "CustomResourceDefinition.apiextensions.k8s.io/widgets.a.example: objects of the new version need it",
        ]
    );
}

#[test]
fn an_object_under_another_group_is_not_pruned() {
    let deployment =
        deployment(&["b.example/v1 Widget/a/w"]).knowing(&["Widget.b.example/a/w 1", "Widget.a.example/a/w 1"]);
    let live = ["Widget.b.example/a/w uid=1 ours", "Widget.a.example/a/w uid=1 ours"];
    deployment.check(&live, &["namespaced-resources: Widget.b.example/a/w(unchanged)"]);
}

#[test]
fn deployment_groups_come_first_and_may_wait() {
    let mut deployment = deployment(&["apps/v1 Deployment/d", "v1 ConfigMap/a", "v1 Secret/s", "v1 ServiceAccount/t"]);
    deployment.policy.deployment =
        vec![deploy_group("apps/v1 deploy + v1 secrets", WaitFor::Ready), deploy_group("v1 pods", WaitFor::Exists)];
    let plan = deployment.check(
        &[],
        &[
            "apps/v1 deploy + v1 secrets: Secret/app/s(create) Deployment.apps/app/d(create!)",
            "namespaced-resources: ConfigMap/app/a(create) ServiceAccount/app/t(create)",
        ],
    );
    assert_eq!((plan.nodes[0].barrier, plan.nodes[0].path.as_str()), (Barrier::Ready, "deploymentGroups[0]"));
    assert_eq!(notes(&plan), ["info order: deploymentGroups[0] (v1 pods) matches no objects"]);
}

#[test]
fn kinds_without_readiness_are_not_awaited() {
    let crd = format!("apiextensions.k8s.io/v1 {CRD}");
    let mut deployment = deployment(&[&crd, "v1 ConfigMap/a", "v1 Service/s"]);
    let mut crds = deploy_group("crds", WaitFor::Ready);
    crds.members = members("crds");
    deployment.policy.deployment = vec![crds, deploy_group("v1 cm + v1 svc", WaitFor::Ready)];
    let plan = deployment.check(
        &[],
        &[
            "crds: CustomResourceDefinition.apiextensions.k8s.io/gadgets.c.example(create!)",
            "v1 cm + v1 svc: ConfigMap/app/a(create) Service/app/s(create)",
        ],
    );
    assert_eq!(plan.nodes.iter().map(|n| n.barrier).collect::<Vec<_>>(), [Barrier::Ready, Barrier::Requested]);
}

#[test]
fn missing_namespaces_are_created_or_rejected() {
    let mut deployment = deployment(&["v1 ConfigMap/x/a"]);
    deployment.missing_namespaces = MissingNamespaces::Create;
    let plan = deployment.check(&[], &["namespaced-resources: ConfigMap/x/a(create)"]);
    let expected =
        ["app", "x"].map(|ns| format!("info namespace-created: namespace {ns} does not exist and will be created"));
    assert_eq!((notes(&plan), plan.namespaces), (expected.to_vec(), vec!["app".to_owned(), "x".to_owned()]));
    let plan = deployment.plan(&cluster(&["Namespace/app"])).unwrap();
    assert_eq!(plan.namespaces, ["x"]);
    deployment.fails(&["Namespace/x deleting"], PlanErrorKind::Busy, &["Namespace x is being deleted"]);
    deployment.missing_namespaces = MissingNamespaces::Refuse;
    let missing = ["namespace app does not exist", "namespace x does not exist"];
    deployment.fails(&[], PlanErrorKind::Input, &missing);
    let mut unreadable = cluster(&[]);
    unreadable.forbidden = vec!["=namespaces".into()];
    assert_eq!(deployment.plan(&unreadable).unwrap().namespaces, [""; 0]);
}

#[test]
fn an_impossible_order_is_rejected() {
    let crd = "apiextensions.k8s.io/v1 CustomResourceDefinition/gadgets.c.example";
    let mut early = deployment(&[crd, "c.example/v1 Gadget/g", "v1 Namespace/x", "v1 ConfigMap/x/a"]);
    early.policy.deployment = vec![deploy_group("v1 cm + c.example/v1 gadgets", WaitFor::Exists)];
    let crd_key = key(CRD);
    let problems = [
        "deploymentGroups[0]: 1 object needs Namespace x, which is not in an earlier deployment group".to_owned(),
        format!("deploymentGroups[0]: 1 object needs {crd_key:#}, which is not in an earlier deployment group"),
    ];
    early.fails(&[], PlanErrorKind::Input, &problems.each_ref().map(String::as_str));
    let mut same = deployment(&["v1 Namespace/x", "v1 ConfigMap/x/a"]);
    same.policy.deployment = vec![deploy_group("v1 cm + v1 ns", WaitFor::Exists)];
    same.fails(&[], PlanErrorKind::Input, &problems.each_ref().map(String::as_str)[..1]);
    same.check(&["Namespace/x ours"], &["v1 cm + v1 ns: ConfigMap/x/a(create) Namespace/x(update)"]);
}

#[test]
fn manifests_are_prepared() {
    let found = prepare(
        manifests(&["v1 ConfigMap/x", "v1 Namespace/z/y"]),
        &release(),
        Some(release().namespace()),
        &catalog(),
        None,
    )
    .unwrap();
    let keys: Vec<_> = found.iter().map(|manifest| manifest.key.to_string()).collect();
    assert_eq!(keys, ["ConfigMap/app/x", "Namespace/y"]);
    assert_eq!(found[0].value()["metadata"]["labels"]["billhook.dev/release"], "web.app");
    let wrong = [
        "v1 Gizmo/x",
        "v1 Deployment/x",
        "a.example/v2 Widget/x",
        "v1 ConfigMap/x",
        "v1 ConfigMap/app/x",
        "v1 configmap/y",
    ];
    let error = prepare(manifests(&wrong), &release(), Some(release().namespace()), &catalog(), None).unwrap_err();
    assert_eq!(error.kind, PlanErrorKind::Input);
    assert_eq!(
        texts(&error),
        [
            "f.yaml:2: neither the cluster nor a CRD of the release defines Gizmo",
            "f.yaml:6: neither the cluster nor a CRD of the release defines Deployment; did you mean apps/v1 Deployment?",
            "f.yaml:10: Widget is not served in a.example/v2, but in v1, v1beta1",
            "f.yaml:22: kind \"configmap\" must be spelled \"ConfigMap\"",
            "f.yaml:18: ConfigMap app/x is already defined at f.yaml:14",
        ]
    );
    assert!(prepare(Vec::new(), &release(), None, &Catalog::default(), None).unwrap().is_empty());
}

#[test]
fn objects_that_were_not_looked_up_are_not_created() {
    let deployment = deployment(&["v1 ConfigMap/a/x"]);
    let release = release();
    let error = Deployment::new(deployment.request(&release)).unwrap().plan(&Snapshot::default()).unwrap_err();
    assert_eq!(error.kind, PlanErrorKind::Unreadable);
}

#[test]
fn the_whole_policy_is_checked_before_anything_is_applied() {
    let mut deployment = deployment(&["v1 ConfigMap/a/x"]);
    deployment.policy.deletion = groups(&["a.example/v1 w"]);
    let problem = "deletionGroups[0]: w.a.example is ambiguous: it may be Wheel.a.example or Widget.a.example";
    deployment.fails(&[], PlanErrorKind::Input, &[problem]);
    // Together with the mistakes of the manifests.
    let error = prepare(manifests(&["v1 Gizmo/x"]), &release(), Some("app"), &catalog(), None).unwrap_err();
    let both = error.with(check_policy(&deployment.policy, &catalog()));
    assert_eq!(texts(&both), ["f.yaml:2: neither the cluster nor a CRD of the release defines Gizmo", problem]);
}
