//! The manifests of a real payload, planned for three feature sets. The expected counts come from an independent reading of the
//! rules: lines of text, without a YAML parser.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a panic fails the test")]

use std::{collections::BTreeSet, path::PathBuf};

use billhook_payload::{
    Decisions, File, Outcome, Payload, Settings, State, graph,
    lint::{Decided, Lint},
};

/// The files of the payload, with their names; `None` if they are not there.
fn files() -> Option<Vec<(String, String)>> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures");
    let root = std::env::var_os("BILLHOOK_FIXTURES").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let folder = root.join("openshift-payload");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: {} does not exist; set BILLHOOK_FIXTURES to the folder of the fixtures", folder.display());
        return None;
    };
    let files = entries.map(|entry| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
    });
    Some(files.collect())
}

fn read(files: &[(String, String)]) -> Payload {
    let files: Vec<_> = files.iter().map(|(path, text)| File { path, text }).collect();
    let (payload, problems) = Payload::read(&files);
    assert_eq!(problems, []);
    payload
}

/// Returns the documents of all files: those with a line `kind:` at the margin.
fn documents(files: &[(String, String)]) -> Vec<(&str, &str)> {
    let of_file = |file| {
        let (name, text): &(String, String) = file;
        let documents = text.split("\n---").filter(|document| document.lines().any(|line| line.starts_with("kind:")));
        documents.map(|document| (name.as_str(), document))
    };
    files.iter().flat_map(of_file).collect()
}

/// Returns the value of an annotation in the text of a document.
fn annotation(document: &str, name: &str) -> Option<String> {
    let line = document.lines().map(str::trim).find(|line| line.starts_with(&format!("{name}:")))?;
    Some(line[name.len() + 1..].trim().trim_matches('"').to_owned())
}

/// Returns whether a document counts, without any feature gate and with all capabilities.
fn counts(document: &str, feature_set: &str) -> bool {
    let sets = annotation(document, "release.openshift.io/feature-set");
    let known = ["Default", "OKD", "CustomNoUpgrade", "DevPreviewNoUpgrade", "TechPreviewNoUpgrade"];
    let in_set = sets.is_none_or(|sets| {
        sets.split(',').all(|set| known.contains(&set)) && sets.split(',').any(|set| set == feature_set)
    });
    let gate = annotation(document, "release.openshift.io/feature-gate");
    let profile = annotation(document, "include.release.openshift.io/self-managed-high-availability");
    in_set && gate.is_none_or(|gate| gate.starts_with('-')) && profile.as_deref() == Some("true")
}

fn check(feature_set: &str, expected: usize) {
    let Some(files) = files() else { return };
    let payload = read(&files);
    let settings = Settings { feature_set: feature_set.to_owned(), ..Settings::default() };
    let decisions = Decisions::new(&payload, &settings);
    assert_eq!(decisions.problems, []);
    let documents = documents(&files);
    assert_eq!((files.len(), documents.len()), (148, payload.entries.len()));
    let independent: Vec<_> = documents.iter().filter(|(_, document)| counts(document, feature_set)).collect();
    assert_eq!((decisions.count(Outcome::Applied), independent.len()), (expected, expected), "{feature_set}");
    assert_eq!(decisions.count(Outcome::LeftOut), payload.entries.len() - expected);
    let counted: BTreeSet<_> = decisions.counting().map(|at| payload.entries[at].file_name()).collect();
    assert_eq!(counted, independent.iter().map(|(name, _)| *name).collect());
    for state in [State::Initializing, State::Updating, State::Reconciling] {
        let graph = graph(&payload, &decisions, state, 7);
        let mut steps: Vec<_> = graph.nodes.iter().flat_map(|node| &node.steps).map(|step| step.manifest).collect();
        steps.sort_unstable();
        assert_eq!(steps, (0..expected).collect::<Vec<_>>(), "{state:?}");
    }
}

#[test]
fn default_counts_as_an_independent_reading() {
    check("Default", 78);
}

#[test]
fn tech_preview_counts_as_an_independent_reading() {
    check("TechPreviewNoUpgrade", 83);
}

#[test]
fn an_unknown_feature_set_counts_as_an_independent_reading() {
    check("Nonsense", 61);
}

#[test]
fn the_levels_of_an_update_are_in_order() {
    let Some(files) = files() else { return };
    let payload = read(&files);
    let decisions = Decisions::new(&payload, &Settings::default());
    let titles: Vec<_> =
        graph(&payload, &decisions, State::Updating, 0).nodes.into_iter().map(|node| node.title).collect();
    let levels: Vec<_> =
        titles.iter().filter_map(|title| title.split(' ').next()).filter(|level| !level.is_empty()).collect();
    assert!(levels.is_sorted(), "{titles:#?}");
    assert_eq!(titles[0], "00 apiserver, 03 config-operator");
}

#[test]
fn lint_finds_nothing_in_a_payload_without_mistakes() {
    let Some(files) = files() else { return };
    let payload = read(&files);
    let decisions = Decisions::new(&payload, &Settings::default());
    let new = Decided { payload: &payload, decisions: &decisions };
    let lint = Lint { new, old: Some(new), version: Some("4.21.0"), old_version: Some("4.20.0") };
    assert_eq!(lint.findings(), []);
}

/// Prints how long planning 5,000 manifests takes: `cargo test --release -p billhook-payload -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
#[expect(clippy::disallowed_methods, reason = "a measurement in real time")]
fn planning_five_thousand_manifests() {
    let files: Vec<_> = (0..5000)
        .map(|at| {
            let name = format!("0000_{:02}_component-{}_{at:04}.yaml", at / 100, at / 10 % 10);
            let include = "include.release.openshift.io/self-managed-high-availability: \"true\"";
            let text = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c{at}\n  namespace: shop\n  annotations:\n    {include}\ndata:\n  key: value\n"
            );
            (name, text)
        })
        .collect();
    for state in [State::Initializing, State::Updating, State::Reconciling] {
        let start = std::time::Instant::now();
        let payload = read(&files);
        let parsed = start.elapsed();
        let decisions = Decisions::new(&payload, &Settings::default());
        let graph = graph(&payload, &decisions, state, 0);
        eprintln!("{state:?}: {:?}, of which parsing {parsed:?}; {} nodes", start.elapsed(), graph.nodes.len());
    }
}
