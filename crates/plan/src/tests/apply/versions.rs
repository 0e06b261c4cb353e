use super::*;

/// The manifests of an update whose CRD for Widgets serves the given versions, the first of them stored.
fn update(served: &[&str], others: &[&str]) -> Deployment {
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
    deployment.manifests.extend(prepare(crds.collect(), &release(), Some(release().namespace()), &catalog()).unwrap());
    let mut knowing = deployment.knowing(&["Widget.a.example/a/x 1"]);
    let known = knowing.inventory.as_mut().unwrap().entries.values_mut();
    known.for_each(|entry| entry.api_version = billhook_objects::ApiVersion::parse("a.example/v1").unwrap());
    knowing
}

const LIVE: [&str; 2] = ["Widget.a.example/a/x uid=1 ours", "CustomResourceDefinition/widgets.a.example uid=2 ours"];

/// The version of every query for Widgets: those of the plan, and those that are asked for it.
fn versions(deployment: &Deployment) -> Vec<String> {
    let (release, live) = (release(), cluster(&LIVE));
    let request = deployment.request(&release);
    let asked = apply_queries(&request).unwrap();
    let missing = missing_apply_queries(&request, &Snapshot { listings: live.answer(&asked) });
    let plan = deployment.plan(&live).unwrap();
    let all = asked.iter().chain(&missing).chain(&plan.queries);
    all.filter(|query| query.resource.plural == "widgets").map(|query| query.resource.version.clone()).collect()
}

#[test]
fn pruning_talks_versions_that_outlast_the_update() {
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
fn nothing_is_pruned_where_no_version_outlasts_the_update() {
    let problem = "CustomResourceDefinition.apiextensions.k8s.io/widgets.a.example: objects of Widget.a.example are to be pruned, but no version is served before and after the update (now v1, v1beta1, then v2): let the new CRD serve one of the old versions, or use --prune=false";
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
fn a_manifest_in_a_version_that_goes_away_is_a_mistake() {
    let problem = "f.yaml:2: Widget in a.example/v1 is not what the release's own CustomResourceDefinition.apiextensions.k8s.io/widgets.a.example serves: versions v1beta1";
    update(&["v1beta1"], &["a.example/v1 Widget/a/y"]).fails(&LIVE, PlanErrorKind::Input, &[problem]);
}
