//! Measures a sandbox: its memory with many objects, how fast these are created and listed, and how soon a watch
//! reports a change.
//!
//! Run it with `cargo run --release -p billhook-sandbox --example measure [OBJECTS]`. It reads memory from `/proc`, so
//! it needs Linux.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use billhook_sandbox::{Options, Sandbox, User};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;

type Error = Box<dyn std::error::Error + Send + Sync>;

const NAMESPACES: usize = 100;
const EVENTS: usize = 1000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let objects = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    let sandbox = Sandbox::start(Options::default());
    let client = sandbox.client(User::admin(), "");
    print(&format!("empty: {} MiB", resident()?))?;

    let namespaces: Api<Namespace> = Api::all(client.clone());
    for index in 0..NAMESPACES {
        let namespace = serde_json::from_value(json!({"metadata": {"name": format!("n{index}")}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
    }
    let begun = now();
    let created = stream::iter(0..objects).map(|index| create(client.clone(), index)).buffer_unordered(32);
    created.try_collect::<()>().await?;
    let took = begun.elapsed();
    print(&format!("{objects} ConfigMaps created in {took:.1?}: {} MiB", resident()?))?;

    let begun = now();
    let all: Api<ConfigMap> = Api::all(client.clone());
    let mut parameters = ListParams::default().limit(1000);
    let mut count = 0;
    loop {
        let page = all.list_metadata(&parameters).await?;
        count += page.items.len();
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => break,
        }
    }
    print(&format!(
        "{count} listed, metadata only, in pages of 1,000, in {:.1?}: {} MiB",
        begun.elapsed(),
        resident()?
    ))?;

    print(&format!("a change reaches a watch in memory: {}", delays(&client).await?))?;
    let served = sandbox.serve().await?;
    let tcp = Client::try_from(Config::new(served.url().parse()?))?;
    print(&format!("a change reaches a watch over TCP: {}", delays(&tcp).await?))
}

async fn create(client: Client, index: usize) -> Result<(), Error> {
    let api: Api<ConfigMap> = Api::namespaced(client, &format!("n{}", index % NAMESPACES));
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("object-{index}"), "labels": {"app.kubernetes.io/name": "measure", "number": index.to_string()}},
        "data": {"a": "x".repeat(200), "b": "y".repeat(100)},
    });
    let apply = PatchParams::apply("measure");
    api.patch(&format!("object-{index}"), &apply, &Patch::Apply(object)).await?;
    Ok(())
}

/// Returns the times from the answer to a change, and from its request, until a watch reports it.
async fn delays(client: &Client) -> Result<String, Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "n0");
    let since = api.list(&ListParams::default().limit(1)).await?.metadata.resource_version.unwrap_or_default();
    let mut events = api.watch(&WatchParams::default().timeout(290), &since).await?.boxed();
    let mut delays = Vec::with_capacity(EVENTS);
    for number in 0..EVENTS {
        let patch = json!({"data": {"number": number.to_string()}});
        let begun = now();
        let seen = async {
            loop {
                match events.try_next().await? {
                    Some(WatchEvent::Modified(object)) if object.name_any() == "object-0" => {
                        return Ok::<_, Error>(now());
                    }
                    Some(_) => {}
                    None => return Err("the watch ended".into()),
                }
            }
        };
        let params = PatchParams::default();
        let patch = Patch::Merge(&patch);
        let changed = async {
            api.patch("object-0", &params, &patch).await?;
            Ok::<_, Error>(now())
        };
        let (seen, changed) = futures::try_join!(seen, changed)?;
        // The event may arrive before the answer.
        delays.push((seen.saturating_duration_since(changed), seen - begun));
    }
    let middle = |mut times: Vec<Duration>| {
        times.sort();
        format!(
            "median {:.0?}, 99 of 100 within {:.0?}, worst {:.0?}",
            times[EVENTS / 2],
            times[EVENTS * 99 / 100],
            times[EVENTS - 1]
        )
    };
    let (after, all): (Vec<_>, Vec<_>) = delays.into_iter().unzip();
    Ok(format!("{} after the answer; {} after the request", middle(after), middle(all)))
}

/// Returns the resident memory in MiB.
fn resident() -> Result<usize, Error> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = text.split_whitespace().nth(1).ok_or("no resident size")?.parse()?;
    Ok(pages * 4096 / (1 << 20))
}

#[expect(clippy::disallowed_methods, reason = "the example measures real time")]
fn now() -> Instant {
    Instant::now()
}

fn print(text: &str) -> Result<(), Error> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}
