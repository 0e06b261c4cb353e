//! What the controller logs by default and in detail: one line for each reconcile, and no value of a Secret.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use billhook_testkit::scenario::{Lab, Scenario, play};
use serde_json::Value;

/// In a Secret's manifest, in the values of a chart, and in the errors of an admission policy and of helm.
const MARKER: &str = "hunter2-marker";

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Plays the scenario, and returns what a controller with these flags logs.
fn logged(flags: &[&str]) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/deployitems/di-secret-quoted.yaml");
    let scenario = Scenario::load(&file).unwrap();
    let args: Vec<_> = ["billhook", "controller"].iter().chain(flags).map(Into::into).collect();
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = billhook::logging(&args, false).unwrap().subscriber(move || writer.clone(), false).unwrap();
    tracing::subscriber::with_default(subscriber, || play(&scenario, &Lab::Sandbox)).unwrap();
    String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn each_reconcile_is_a_line() {
    let text = logged(&[]);
    assert!(!text.contains(MARKER), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lines: Vec<_> = lines.iter().filter(|line| line["text"] == "reconciled" && line["result"] != "retry").collect();
    let field = |name: &str| lines.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
    assert_eq!(field("level"), ["warn", "warn", "info", "info"], "{text}");
    assert_eq!(field("operation"), ["apply", "apply", "apply", "delete"], "{text}");
    assert_eq!(field("result")[1..], ["failed", "done", "done"], "{text}");
    assert_eq!(field("generation"), [1, 2, 3, 4], "{text}");
    assert_eq!((field("target")[0].as_str(), field("reason")[1].is_string()), (Some("target"), true), "{text}");
    for line in &lines {
        let (item, duration) = (line["item"].as_str().unwrap(), line["duration"].as_f64().unwrap());
        assert!(item.ends_with("/web") && duration > 0.0 && line["requests"].as_u64().unwrap() >= 3, "{line}");
    }
}

#[test]
fn details_contain_no_values_of_secrets() {
    let text = logged(&["--log-level", "debug", "--log-format", "text"]);
    assert!(text.contains("create") && text.contains("reconciled"), "{text}");
    assert!(!text.contains(MARKER), "{text}");
}
