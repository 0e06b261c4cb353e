//! The manifests of `deploy/`, as a real API server sees them.

use std::io::{self, Write as _};

use anyhow::Result;
use billhook_testkit::control_plane::{Binaries, ControlPlane};

use super::{
    shared,
    webhook::{deploy, run},
};

/// The namespaces of the manifests. The API server warns of workloads whose pods it would reject.
const NAMESPACES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: billhook-system, labels: {pod-security.kubernetes.io/warn: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: billhook-webhook, labels: {pod-security.kubernetes.io/warn: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
";

/// The groups of kinds that the control plane does not know.
const UNKNOWN: [&str; 2] = ["apiVersion: monitoring.coreos.com/", "apiVersion: cert-manager.io/"];

#[test]
fn a_server_side_dry_run_accepts_all_manifests_without_a_warning() -> Result<()> {
    let control_plane = shared()?;
    run(&control_plane, &["create", "-f", "-"], NAMESPACES)?;
    let checked = dry_run(&control_plane);
    let cleaned = run(&control_plane, &["delete", "-f", "-", "--timeout=60s"], NAMESPACES);
    checked.and(cleaned.map(drop))
}

fn dry_run(control_plane: &ControlPlane) -> Result<()> {
    let kustomize = |folder: &str| run(control_plane, &["kustomize", &deploy(&format!("kustomize/{folder}"))], "");
    let helm = Binaries::helm(|line| drop(writeln!(io::stderr(), "testbed: {line}")))?;
    let mut template = std::process::Command::new(helm);
    template.args(["template", "billhook", &deploy("chart"), "--namespace=billhook-system", "--set"]);
    template.arg(
        "shards=2,namespaces={shop},networkPolicy.create=true,dashboard.create=true,target.create=true,webhook.create=true,\
         webhook.certManager=true",
    );
    let rendered = template.output()?;
    assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));

    for (manifests, expected) in [
        (kustomize("base")?, ["deployment.apps/billhook-controller", "poddisruptionbudget.policy/billhook-controller"]),
        (
            kustomize("example")?,
            ["networkpolicy.networking.k8s.io/billhook-controller", "configmap/billhook-dashboard"],
        ),
        (
            kustomize("webhook-example")?,
            ["deployment.apps/billhook-webhook", "networkpolicy.networking.k8s.io/billhook-webhook"],
        ),
        (
            String::from_utf8(rendered.stdout)?,
            ["deployment.apps/billhook-controller-1", "priorityclass.scheduling.k8s.io/billhook-webhook"],
        ),
    ] {
        let known: Vec<_> =
            manifests.split("\n---\n").filter(|object| !UNKNOWN.iter().any(|group| object.contains(group))).collect();
        let said = run(control_plane, &["apply", "--dry-run=server", "-f", "-"], &known.join("\n---\n"))?;
        for object in expected {
            assert!(said.contains(&format!("{object} created (server dry run)")), "{object}: {said}");
        }
        let warnings: Vec<_> = said.lines().filter(|line| line.contains("Warning")).collect();
        // The namespaces of the kustomizations exist, so that the other objects can be checked.
        assert!(warnings.iter().all(|line| line.contains("last-applied-configuration")), "{warnings:?}");
    }
    Ok(())
}
