//! What the image contains, and how it is run. The Dockerfile says the same, as a test checks.

use std::path::Path;

use anyhow::{Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{Layer, VERSION, program, read};

/// A user without rights, by number, so that Kubernetes can check that it is not root.
pub(super) const USER: &str = "65532:65532";
pub(super) const ENTRYPOINT: &str = "/usr/local/bin/billhook";
/// Where the controller finds helm.
pub(super) const PATH: &str = "/usr/local/bin";
/// The folder that must be writable.
pub(super) const VOLUME: &str = "/tmp";

/// Labels of the image and annotations of its manifest.
pub(super) const LABELS: [(&str, &str); 4] = [
    ("org.opencontainers.image.description", "Ordered, explainable deployment and deletion for Kubernetes"),
    ("org.opencontainers.image.licenses", "Apache-2.0"),
    ("org.opencontainers.image.title", "billhook"),
    ("org.opencontainers.image.version", VERSION),
];

/// The users that programs may look up. There is no home: nothing in a volume may act as a kubeconfig or helm's settings.
const PASSWD: &str = "root:x:0:0:root:/nonexistent:/nonexistent
billhook:x:65532:65532:billhook:/nonexistent:/nonexistent
";
const GROUP: &str = "root:x:0:\nbillhook:x:65532:\n";

/// glibc's static resolver has these modules built in, and loads any other one as a library.
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// The licenses of billhook and helm, and of the list of certificate authorities, which ask for a copy.
const LICENSES: [(&str, &str); 2] = [
    ("usr/share/licenses/Apache-2.0.txt", include_str!("../../../LICENSE")),
    ("usr/share/licenses/CDLA-Permissive-2.0.txt", include_str!("../../licenses/CDLA-Permissive-2.0.txt")),
];

/// Returns the layers, those that change least first, and the architecture of the programs. kubectl is not among them: only
/// `-k` of the command line runs it, no command that runs in a cluster.
pub(super) fn layers(billhook: &Path, helm: &Path) -> Result<([Layer; 3], &'static str)> {
    let [billhook, helm] = [(billhook, "billhook"), (helm, "helm")].map(|(path, name)| {
        let content = read(path)?;
        let architecture = program::architecture_of_static(&content, path)?;
        anyhow::Ok((Layer::new(name).file(&format!("usr/local/bin/{name}"), 0o755, content), architecture))
    });
    let ((billhook, architecture), (helm, of_helm)) = (billhook?, helm?);
    ensure!(architecture == of_helm, "billhook is built for {architecture}, but helm for {of_helm}");
    let base = LICENSES.iter().fold(Layer::new("base"), |layer, (path, text)| layer.file(path, 0o644, *text));
    let base = base
        .file("etc/passwd", 0o644, PASSWD)
        .file("etc/group", 0o644, GROUP)
        .file("etc/nsswitch.conf", 0o644, NSSWITCH)
        .file("etc/ssl/certs/ca-certificates.crt", 0o644, authorities())
        .folder("tmp", 0o1777);
    Ok(([base, helm, billhook], architecture))
}

/// Returns the certificate authorities of Mozilla, in the version that Cargo.lock names, so that images do not depend on the
/// machine that builds them.
fn authorities() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let encoded = BASE64_STANDARD.encode(certificate);
        text += "-----BEGIN CERTIFICATE-----\n";
        for line in encoded.as_bytes().chunks(64) {
            text += &String::from_utf8_lossy(line);
            text += "\n";
        }
        text += "-----END CERTIFICATE-----\n";
    }
    text
}

/// Returns the configuration of the image, for layers with these digests of their tar archives.
pub(super) fn configuration(architecture: &str, uncompressed: &[String]) -> Value {
    let labels: serde_json::Map<_, _> = LABELS.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": USER,
            "Entrypoint": [ENTRYPOINT],
            "Env": [format!("PATH={PATH}")],
            "Volumes": { VOLUME: {} },
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": uncompressed },
    })
}
