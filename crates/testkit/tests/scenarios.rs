//! Every file under `scenarios/` is a test: played against a real control plane.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use billhook_testkit::scenario::{Lab, play};
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
    let trials = files.into_iter().map(|file| {
        let name = file.strip_prefix(&root).unwrap_or(&file).with_extension("").display().to_string();
        let lab = Arc::clone(&lab);
        Trial::test(name, move || play_one(&file, &lab))
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    lab.close();
    conclusion.exit();
}

fn play_one(file: &Path, lab: &Lab) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(play(file, lab)).map_err(|error| Failed::from(format!("{error:?}")))
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
