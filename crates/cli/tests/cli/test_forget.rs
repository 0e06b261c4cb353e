//! `forget`: how it ends when it is interrupted.

use std::time::Duration;

use billhook_sandbox::Verb;
use tokio::time::sleep;

use crate::stage::Stage;

const MANIFEST: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";

#[test]
fn an_interruption_tells_whether_labels_may_be_lost_already() {
    for (verb, plural, words, locked) in [
        (Verb::Get, "secrets", "error: interrupted; nothing was changed\n", None),
        (Verb::Patch, "configmaps", "error: interrupted; some objects may have lost the label", Some("forget")),
    ] {
        Stage::play(&[("m.yaml", MANIFEST)], async |stage| {
            stage.call("apply web -f m.yaml").await;
            stage.hang(verb, plural);
            let forgotten = stage
                .beside("forget web", async |_, _, interrupt| {
                    sleep(Duration::from_secs(5)).await;
                    interrupt.send(()).await.unwrap();
                })
                .await;
            assert_eq!(forgotten.exit, 3, "{}", forgotten.err);
            assert!(forgotten.err.starts_with(words), "{}", forgotten.err);
            assert_eq!(forgotten.err.contains("in about 30s"), locked.is_some(), "{}", forgotten.err);
            assert_eq!(stage.locked_by("web").as_deref(), locked);
        });
    }
}
