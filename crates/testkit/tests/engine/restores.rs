//! Restorations: two at once, and one of many objects.

use billhook_engine::{RestoreInput, prepare_restore};

use super::*;

impl World {
    /// Starts a cluster that holds the record, too, and deletes a release of so many ConfigMaps with a backup.
    async fn backed_up(count: usize) -> Self {
        let mut world = Self::new();
        world.clusters.records = None;
        let texts: Vec<String> = (0..count).map(|at| format!("c{at} {{k: v{at}}}")).collect();
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
