//! `--take-over`: the lock of a release that a command takes over, until it ends.

use std::time::Duration;

use billhook_sandbox::{
    Verb,
    faults::{Fault, Moment},
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    call::Called,
    stage::{Stage, requests},
};

const MANIFEST: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";
const PAYLOAD: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default, annotations: {\
                       include.release.openshift.io/self-managed-high-availability: 'true'}}}";
const FILES: &[(&str, &str)] = &[("m.yaml", MANIFEST), ("p/0000_10_a_01.yaml", PAYLOAD)];
/// The first pause after a failed pass is 10 s long, which is shorter than the wait for the former holder of a lock.
const WATCH: &str = "payload apply p --version 1.0.0 --take-over --watch=160s";
const WAITS: &str = "until it has stopped\n";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Called {
    #[track_caller]
    fn ended_with(&self, exit: u8, words: &[&str]) {
        assert_eq!(self.exit, exit, "{}{}", self.out, self.err);
        for words in words {
            assert!(self.err.contains(words), "{words:?} is not in {}", self.err);
        }
    }
}

#[test]
fn a_command_that_fails_removes_the_lock() {
    for (args, rejected, exit, words) in [
        ("apply web -f m.yaml", Some((Verb::Get, "secrets", 2)), 1, "failed to read"),
        ("delete web", Some((Verb::Get, "secrets", 2)), 1, "failed to read"),
        ("delete web --backup", Some((Verb::Create, "secrets", 1)), 1, "not today"),
        ("delete web --max-deletions 0", None, 4, "the plan has 1 dangerous note"),
        ("restore web", None, 2, "has no backup"),
        ("forget web", Some((Verb::Get, "secrets", 2)), 1, "failed to read"),
        ("payload apply p --name web --version 1.0.0", Some((Verb::Get, "secrets", 2)), 1, "failed to read"),
    ] {
        Stage::play(FILES, async |stage| {
            stage.call("apply web -f m.yaml").await.ended_with(0, &[]);
            let _lock = stage.lock("web").await;
            if let Some((verb, plural, number)) = rejected {
                stage.reject(verb, plural, number);
            }
            let start = Instant::now();
            let called = stage.call(&format!("{args} --take-over")).await;
            called.ended_with(exit, &[words]);
            assert!(start.elapsed() >= seconds(20), "{args}: {}", called.err);
            assert_eq!(stage.locked_by("web"), None, "{args}: {}", called.err);
        });
    }
}

#[test]
fn a_command_that_is_interrupted_while_it_plans_removes_the_lock() {
    for args in ["apply web -f m.yaml", "delete web", "forget web", "payload apply p --name web --version 1.0.0"] {
        Stage::play(FILES, async |stage| {
            stage.call("apply web -f m.yaml").await.ended_with(0, &[]);
            let _lock = stage.lock("web").await;
            let called = stage
                .beside(&format!("{args} --take-over"), async |_, err, interrupt| {
                    err.until(WAITS).await;
                    // The first read is that of the take-over.
                    stage.hang(Verb::Get, "secrets");
                    sleep(seconds(25)).await;
                    assert_eq!(stage.locked_by("web").as_deref(), Some("take-over"), "{args}");
                    interrupt.send(()).await.unwrap();
                    stage.sandbox.faults().clear();
                })
                .await;
            called.ended_with(3, &["error: interrupted; nothing was changed\n"]);
            assert!(!called.err.contains("hint"), "{args}: {}", called.err);
            assert_eq!(stage.locked_by("web"), None, "{args}");
        });
    }
}

#[test]
fn a_lock_remains_when_the_wait_for_its_former_holder_is_interrupted() {
    Stage::play(FILES, async |stage| {
        stage.call("apply web -f m.yaml").await.ended_with(0, &[]);
        let _lock = stage.lock("web").await;
        let called = stage
            .beside("delete web --take-over", async |_, err, interrupt| {
                err.until(WAITS).await;
                interrupt.send(()).await.unwrap();
            })
            .await;
        called.ended_with(
            3,
            &["interrupted; nothing was changed", "hint: run the same command again to resume when the"],
        );
        stage.call("delete web").await.ended_with(4, &["another operation works on release", "take-over by"]);
        sleep(seconds(31)).await;
        stage.call("delete web").await.ended_with(0, &[]);
    });
}

#[test]
fn a_watch_waits_for_the_former_holder_also_after_a_pass_that_failed() {
    Stage::play(FILES, async |stage| {
        let _lock = stage.lock("payload").await;
        let lost = Fault::broken(Moment::After).on(requests(Verb::Patch, "secrets")).nth(1);
        stage.sandbox.faults().inject(lost);
        let watched = stage
            .beside(WATCH, async |out, err, interrupt| {
                err.until("pass 1 failed after").await;
                let failed = Instant::now();
                out.until("created ConfigMap default/a").await;
                assert!(failed.elapsed() >= seconds(20), "{:?}: {}", failed.elapsed(), err.text());
                err.until("pass 2 done").await;
                interrupt.send(()).await.unwrap();
            })
            .await;
        watched.ended_with(0, &["took over release default/payload from another operation"]);
        assert_eq!(stage.locked_by("payload"), None);
    });
}

#[test]
fn a_watch_repeats_a_take_over_that_failed() {
    Stage::play(FILES, async |stage| {
        let _lock = stage.lock("payload").await;
        stage.reject(Verb::Get, "secrets", 1);
        let watched = stage
            .beside(WATCH, async |_, err, interrupt| {
                err.until("pass 1 failed after").await;
                err.until("pass 2 done").await;
                interrupt.send(()).await.unwrap();
            })
            .await;
        watched
            .ended_with(0, &["took over release default/payload from another operation: apply by other (process 7)"]);
    });
}

#[test]
fn one_ctrl_c_ends_a_watch_that_waits_for_a_former_holder() {
    Stage::play(FILES, async |stage| {
        let _lock = stage.lock("payload").await;
        let watch = stage.beside(WATCH, async |_, err, interrupt| {
            err.until(WAITS).await;
            interrupt.send(()).await.unwrap();
        });
        timeout(seconds(10), watch).await.unwrap().ended_with(0, &["stopping: waiting for pass 1\n", " stopped\n"]);
        // Its Lease was released, but the former holder may go on.
        let applied = stage.call("payload apply p --version 1.0.0").await;
        applied.ended_with(4, &["another operation works on release default/payload"]);
        sleep(seconds(25)).await;
        stage.call("payload apply p --version 1.0.0").await.ended_with(0, &[]);
    });
}
