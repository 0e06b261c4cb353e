//! Restorations: two at once, one beside an apply, and those of many and of large objects.

use billhook_engine::{RestoreInput, prepare_restore};

use super::*;

impl World {
    /// Starts a cluster that holds the record, too, and deletes a release of so many ConfigMaps with a backup.
    async fn backed_up(count: usize) -> Self {
        Self::backed_up_with(count, |at| format!("v{at}")).await
    }

    /// Does so with a value for each.
    async fn backed_up_with(count: usize, value: impl Fn(usize) -> String) -> Self {
        let mut world = Self::new();
        world.clusters.records = None;
        let texts: Vec<String> = (0..count).map(|at| format!("c{at} {{k: {}}}", value(at))).collect();
        let manifests: Vec<_> = texts.iter().map(|text| (text.as_str(), nothing())).collect();
        assert_eq!(world.apply(&manifests).await.status, Status::Done);
        let deleted =
            world.delete_with(|input| (input.backup, input.retain) = (BackupMode::Always, true)).await.unwrap();
        assert_eq!((deleted.status, deleted.gone, deleted.backup), (Status::Done, count, Some(count)));
        world
    }

    /// Returns the access of another process to the cluster.
    fn process(&self, number: u32) -> Clusters {
        let client = self.target.client(User::admin(), CLIENT);
        Clusters {
            own: Cluster::from_client(client, ClusterOptions::default()),
            records: None,
            targets: BTreeMap::new(),
            now: self.clusters.now.clone(),
            holder: Holder::new(format!("process-{number}"), number, None),
        }
    }

    async fn restore(&self, clusters: &Clusters) -> Result<Summary, OperationError> {
        let input = RestoreInput {
            release: release(),
            adopt: false,
            missing_namespaces: MissingNamespaces::Refuse,
            wait: Wait::Nothing,
        };
        let prepared = prepare_restore(clusters, input).await?;
        billhook_engine::apply(clusters, prepared, &self.options()).await
    }

    fn restored(&self) -> usize {
        let objects = self.target.objects();
        let ours = objects
            .iter()
            .filter(|object| object["kind"] == "ConfigMap" && object["metadata"]["namespace"] == "default");
        ours.filter(|object| {
            object["data"]["k"].as_str().is_some_and(|value| {
                object["metadata"]["name"].as_str().map(|name| name.replacen('c', "v", 1)).as_deref() == Some(value)
            })
        })
        .count()
    }
}

#[tokio::test(start_paused = true)]
async fn two_restorations_at_once_restore_everything_once() {
    const COUNT: usize = 12;
    let mut refused = 0;
    for offset in 0..12_u64 {
        let world = World::backed_up(COUNT).await;
        world.target.faults().inject(Fault::delay(Duration::from_millis(10)).on(Requests::of(CLIENT)));
        let (one, two) = (world.process(1), world.process(2));
        let second = async {
            tokio::time::sleep(Duration::from_millis(5 * offset)).await;
            world.restore(&two).await
        };
        let (first, second) = tokio::join!(world.restore(&one), second);
        let results = [first, second];
        let done = results.iter().flatten().filter(|summary| summary.status == Status::Done).count();
        assert!(done >= 1, "after {offset}: {:?}", results.map(|result| result.map(|summary| summary.status)));
        refused += results.iter().filter(|result| result.is_err()).count();
        assert_eq!(world.restored(), COUNT, "after {offset}");
        // No create succeeded twice, and the record has all objects.
        world.target.faults().clear();
        let deleted = world.delete().await;
        assert_eq!((deleted.status, deleted.gone), (Status::Done, COUNT), "after {offset}: {deleted:?}");
        assert_eq!(world.restored(), 0);
    }
    assert!(refused > 0, "they never met");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_objects_are_restored() {
    const COUNT: usize = 10_000;
    let world = World::backed_up(COUNT).await;
    let sent = world.target.faults().count(CLIENT);
    let summary = world.restore(&world.clusters).await.unwrap();
    assert_eq!((summary.status, world.restored()), (Status::Done, COUNT));
    let requests = world.target.faults().count(CLIENT) - sent;
    // One request for each object, and some for lists, the backup and the record.
    assert!(requests <= COUNT + 150, "{requests} requests");
}

/// Returns a text that cannot be compressed to less than three quarters.
fn noise(seed: usize, length: usize) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = u64::try_from(seed).unwrap() + 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(SIGNS[usize::try_from(state >> 58).unwrap()])
    };
    (0..length).map(next).collect()
}

/// Each object has nearly the size that API servers accept, and all together need several Secrets.
#[tokio::test(start_paused = true)]
async fn objects_of_a_mebibyte_are_restored() {
    const COUNT: usize = 4;
    const LENGTH: usize = (1 << 20) - 2000;
    let world = World::backed_up_with(COUNT, |at| noise(at, LENGTH)).await;
    let secrets = world.target.objects().into_iter().filter(|object| object["kind"] == "Secret");
    let sizes: Vec<usize> = secrets
        .map(|secret| secret["data"].as_object().unwrap().values().map(|value| value.as_str().unwrap().len()).sum())
        .collect();
    // An API server accepts a mebibyte, before base64.
    assert!(sizes.len() > COUNT && sizes.iter().all(|size| size / 4 * 3 < 1 << 20), "{sizes:?}");
    assert_eq!(world.restore(&world.clusters).await.unwrap().status, Status::Done);
    for at in 0..COUNT {
        let restored = world.data(&format!("c{at}"))["k"] == noise(at, LENGTH);
        assert!(restored, "c{at} has another content");
    }
}

/// What does not fit into the record is refused before anything is deleted, and nothing of it remains.
#[tokio::test(start_paused = true)]
async fn a_backup_that_is_too_large_is_refused() {
    const COUNT: usize = 60;
    let mut world = World::new();
    world.clusters.records = None;
    let texts: Vec<String> = (0..COUNT).map(|at| format!("c{at} {{k: {}}}", noise(at, (1 << 20) - 2000))).collect();
    let manifests: Vec<_> = texts.iter().map(|text| (text.as_str(), nothing())).collect();
    assert_eq!(world.apply(&manifests).await.status, Status::Done);
    let names =
        || world.target.objects().iter().map(|object| object["metadata"]["name"].to_string()).collect::<Vec<_>>();
    let before = names();
    let refused = world.delete_with(|input| input.backup = BackupMode::Always).await;
    let Err(OperationError::NotSaved { why, .. }) = refused else { panic!("it does not fit") };
    assert_eq!(why, "the backup would need more than 64 Secrets");
    assert_eq!(names(), before);
}

/// Whichever comes first, all objects exist in the end, with the content of the last one that succeeded.
#[tokio::test(start_paused = true)]
async fn a_restoration_and_an_apply_at_once_end_with_all_objects() {
    const COUNT: usize = 6;
    let (mut refused, mut both) = (0, 0);
    for offset in 0..16_u64 {
        let world = World::backed_up(COUNT).await;
        world.target.faults().inject(Fault::delay(Duration::from_millis(10)).on(Requests::of(CLIENT)));
        let two = world.process(2);
        let texts: Vec<String> = (0..COUNT).map(|at| format!("c{at} {{k: v{at}}}")).collect();
        let manifests: Vec<_> = texts.iter().map(|text| (text.as_str(), nothing())).collect();
        let restoring = async {
            tokio::time::sleep(Duration::from_millis(5 * offset)).await;
            world.restore(&two).await
        };
        let (applied, restored) = tokio::join!(world.apply_with(&manifests, |_| {}), restoring);
        let results = [applied, restored];
        let done = results.iter().flatten().filter(|summary| summary.status == Status::Done).count();
        assert!(done >= 1, "after {offset}: {:?}", results.map(|result| result.map(|summary| summary.status)));
        (refused, both) =
            (refused + results.iter().filter(|result| result.is_err()).count(), both + usize::from(done == 2));
        assert_eq!(world.restored(), COUNT, "after {offset}");
        world.target.faults().clear();
        let deleted = world.delete().await;
        assert_eq!((deleted.status, deleted.gone), (Status::Done, COUNT), "after {offset}: {deleted:?}");
        assert_eq!(world.restored(), 0);
    }
    assert!(refused > 0, "they never met: {both} of both succeeded");
}
