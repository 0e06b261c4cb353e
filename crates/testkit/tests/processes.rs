//! Tests of the controller as a separate process with a real control plane: killed at random moments, frozen while another
//! replica takes over, and beside another shard. Also of commands on one release, and of a payload that two processes watch.
//!
//! This program is also the controller: it starts itself again. `BILLHOOK_SEED` determines random values.

#[path = "processes/controller.rs"]
mod controller;
#[path = "processes/exclusion.rs"]
mod exclusion;
#[path = "processes/frozen.rs"]
mod frozen;
#[path = "processes/killed.rs"]
mod killed;
#[path = "processes/leaders.rs"]
mod leaders;
#[path = "processes/payload.rs"]
mod payload;
#[path = "processes/shards.rs"]
mod shards;
#[path = "processes/world.rs"]
mod world;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    if let Some(arguments) = controller::arguments() {
        std::process::exit(controller::run(arguments));
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let trials = vec![
        Trial::test("killed_at_random_moments_it_comes_to_the_same_end", || block_on(killed::test())),
        Trial::test("a_frozen_leader_does_nothing_once_another_leads", || block_on(frozen::test())),
        Trial::test("operations_on_one_release_exclude_each_other", || block_on(exclusion::test())),
        Trial::test("one_of_two_processes_reconciles_a_watched_payload", || block_on(payload::test())),
        Trial::test("shards_share_the_items", || block_on(shards::test())),
        Trial::test("shards_of_another_count_wait", || block_on(shards::counts())),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn block_on(test: impl Future<Output = anyhow::Result<()>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(test).map_err(|error| format!("{error:?}").into())
}
