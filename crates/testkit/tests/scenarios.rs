//! Every file under `scenarios/` is a test: played against a real control plane.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use billhook_testkit::scenario::{Lab, Scenario, play};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    // Each scenario waits most of its time; more at once than this only slows the one control plane they share.
    arguments.test_threads.get_or_insert(4);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let lab = Arc::new(Lab::default());
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let mut trials: Vec<_> = files.iter().map(|file| trial(&root, file, &lab)).collect();
    let stems: Vec<_> = files.iter().filter_map(|file| file.file_stem()?.to_str().map(str::to_owned)).collect();
    trials.push(Trial::test("names", move || check_names(&stems)));
    let conclusion = libtest_mimic::run(&arguments, trials);
    lab.close();
    conclusion.exit();
}

fn trial(root: &Path, file: &Path, lab: &Arc<Lab>) -> Trial {
    let name = file.strip_prefix(root).unwrap_or(file).with_extension("").display().to_string();
    let scenario = Scenario::load(file);
    let missing = scenario.as_ref().map(Scenario::missing_fixtures).unwrap_or_default();
    let lab = Arc::clone(lab);
    let trial = Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let played = scenario.and_then(|scenario| runtime.block_on(play(&scenario, &lab)));
        played.map_err(|error| Failed::from(explain(&error)))
    });
    match missing.first() {
        // Not green: nothing was shown.
        Some(missing) => trial.with_kind(format!("ignored: {missing} is not there")).with_ignored_flag(true),
        None => trial,
    }
}

/// What went wrong first, where it happened and what was printed below.
fn explain(error: &anyhow::Error) -> String {
    let causes: Vec<_> = error.chain().map(ToString::to_string).collect();
    causes.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Scenarios tell their objects by their names: none may be found in another one.
fn check_names(stems: &[String]) -> Result<(), Failed> {
    for one in stems {
        let sound = one.len() <= 40 && one.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'));
        if !sound {
            return Err(format!("{one}: a short name of a-z, 0-9 and - is needed").into());
        }
        let same = stems.iter().filter(|other| format!("s-{other}").contains(&format!("s-{one}"))).count();
        if same > 1 {
            return Err(format!("{one} is part of the name of another scenario").into());
        }
    }
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
}
