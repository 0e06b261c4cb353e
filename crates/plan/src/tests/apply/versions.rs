use super::*;

/// Returns an update whose CRD for Widgets serves the given versions and stores the first.
fn update(served: &[&str], others: &[&str]) -> TestDeployment {
    let mut deployment = deployment(others);
    let version = |(at, name): (usize, &&str)| format!("{{name: {name}, served: true, storage: {}}}", at == 0);
    let mut versions: Vec<_> = served.iter().enumerate().map(version).collect();
    versions.push("{name: v1alpha1, served: false, storage: false}".into());
    let crd = format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: widgets.a.example}}\n\
         spec: {{group: a.example, scope: Namespaced, names: {{kind: Widget, plural: widgets}}, versions: [{}]}}\n",
        versions.join(", ")
    );
    let documents = yaml::parse(&crd).unwrap();
    let crds = documents.into_iter().flat_map(|d| Manifest::from_document(d, &Arc::from("crd.yaml")).unwrap());
    deployment
        .manifests
        .extend(prepare(crds.collect(), &release(), Some(release().namespace()), &catalog(), None).unwrap());
    let mut knowing = deployment.knowing(&["Widget.a.example/a/x 1", "CustomResourceDefinition/widgets.a.example 2"]);
    let known = knowing.inventory.as_mut().unwrap().entries.values_mut();
    known.for_each(|entry| entry.api_version = billhook_objects::ApiVersion::parse("a.example/v1").unwrap());
    knowing
}

const LIVE: [&str; 2] = ["Widget.a.example/a/x uid=1 ours", "CustomResourceDefinition/widgets.a.example uid=2 ours"];

/// Returns the version of every query for Widgets, before and in the plan.
fn versions(deployment: &TestDeployment) -> Vec<String> {
    let (release, live) = (release(), cluster(&LIVE));
    let plan = deployment.plan(&live).unwrap();
    let deployment = Deployment::new(deployment.request(&release)).unwrap();
    let missing = deployment.missing(&Snapshot { listings: live.answer(deployment.queries()) });
    let all = deployment.queries().iter().chain(&missing).chain(&plan.queries);
    all.filter(|query| query.resource.plural == "widgets").map(|query| query.resource.version.clone()).collect()
}

#[test]
fn pruning_uses_versions_that_outlast_the_update() {
    // The cluster serves v1 and v1beta1, and the entry says v1.
    for (served, used) in [(&["v1beta1", "v1"][..], "v1"), (&["v1"], "v1"), (&["v1beta1"], "v1beta1")] {
        let mut update = update(served, &[]);
        assert_eq!(versions(&update), [used, used], "{served:?}");
        update.policy.during_update = groups(&["a.example/v1 widgets all"]);
        assert_eq!(versions(&update), [used, used], "{served:?}");
    }
    let kept = update(&["v1beta1", "v2"], &["a.example/v1beta1 Widget/a/y"]);
    assert!(versions(&kept).iter().all(|version| version == "v1beta1"));
}

#[test]
fn pruning_needs_a_version_that_outlasts_the_update() {
    let problem = "CustomResourceDefinition.apiextensions.k8s.io widgets.a.example: objects of Widget.a.example cannot be pruned because no version is served both before the update (v1, v1beta1) and after it (v2)";
    let mut update = update(&["v2"], &[]);
    update.fails(&LIVE, PlanErrorKind::Input, &[problem]);
    update.policy.during_update = groups(&["a.example/v1 widgets all"]);
    update.fails(&LIVE[1..], PlanErrorKind::Input, &[problem]);
    update.policy.during_update = groups(&["v1 cm"]);
    update.plan(&cluster(&LIVE)).unwrap();
    update.prune = false;
    update.plan(&cluster(&LIVE)).unwrap();
}

#[test]
fn a_manifest_in_a_version_that_its_crd_drops_is_rejected() {
    let problem = "f.yaml:2: Widget is not served in a.example/v1: the release's own CustomResourceDefinition.apiextensions.k8s.io widgets.a.example serves v1beta1";
    update(&["v1beta1"], &["a.example/v1 Widget/a/y"]).fails(&LIVE, PlanErrorKind::Input, &[problem]);
}
