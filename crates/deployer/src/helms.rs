//! The helm program, and how often it runs at the same time.

use billhook_charts::Helm;
use billhook_hosts::Dialer;

use crate::{fair::FairSlots, slots::PER_PLACE};

const RENDERS: usize = 4;
const RELEASES: usize = 8;
/// How much the rendered charts of all items at work may have together, in bytes. The plan of each needs a few times as much.
const RENDERED: usize = 512 << 20;
/// How many helm programs of a controller run at the same time at most.
pub const MAX_HELMS: usize = RENDERS + RELEASES;

/// The helm program, with limits on how often it runs at the same time: each run uses about 60 MiB (helm 4.3), and the
/// controller has a memory limit.
pub(crate) struct Helms {
    /// The program.
    pub program: Helm,
    /// Slots for programs that fetch, render or read, which takes a short time.
    pub renders: FairSlots,
    /// Slots for programs that deploy or delete a release, which may wait for it.
    pub releases: FairSlots,
    /// Slots for what was rendered, which is in memory until the work on the item ends: one for each [`PER_PLACE`].
    pub rendered: FairSlots,
}

impl Helms {
    /// Creates the limits for a program. Charts are fetched with the dialer.
    pub(crate) fn new(program: Helm, dialer: Dialer) -> Self {
        let program = program.fetching_with(dialer);
        let [renders, releases, rendered] = [RENDERS, RELEASES, RENDERED / PER_PLACE].map(FairSlots::new);
        Self { program, renders, releases, rendered }
    }
}
