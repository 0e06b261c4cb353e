//! Compiles the Go test in the documentation and runs it against a sandbox.

use std::{fs, path::Path, process::Command};

use billhook_sandbox::{ControllerSet, Options, Sandbox};

const DOCUMENTATION: &str = include_str!("../../../docs/sandbox.md");

#[tokio::test]
#[ignore = "compiles client-go, which takes minutes: cargo test -p billhook-sandbox --test go -- --ignored"]
async fn the_go_test_in_the_documentation_passes() {
    let (_, rest) = DOCUMENTATION.split_once("```go\n").expect("a block in Go");
    let (source, _) = rest.split_once("```").expect("the end of the block");
    let folder = tempfile::tempdir().expect("a folder");
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go");
    for file in ["go.mod", "go.sum"] {
        fs::copy(module.join(file), folder.path().join(file)).expect("a copy");
    }
    fs::write(folder.path().join("mirror_test.go"), source).expect("the test");
    let sandbox = Sandbox::start(Options::default().controllers(ControllerSet::none()));
    let served = sandbox.serve().await.expect("a port");
    // In place of the command line, which prints the same.
    let program = folder.path().join("billhook");
    fs::write(&program, format!("#!/bin/sh\necho '{{\"url\": \"{}\"}}'\n", served.url())).expect("a program");
    let executable = Command::new("chmod").arg("+x").arg(&program).status().expect("chmod");
    assert!(executable.success());
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").expect("a PATH"));
    let test = move || Command::new("go").args(["test", "./..."]).env("PATH", path).current_dir(folder.path()).output();
    let output = tokio::task::spawn_blocking(test).await.expect("a thread").expect("go");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    assert!(sandbox.object("", "secrets", "default", "a").is_some());
}
