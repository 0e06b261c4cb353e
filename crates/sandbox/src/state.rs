//! The state of the server, behind one lock. Each request is one step on it.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
};

use serde_json::Value;
use tokio::time::Instant;

use crate::{
    controllers::Controllers,
    kinds::{Kinds, ResourceId},
    options::Options,
    store::{Change, Store},
    tokens::IssuedToken,
    webhooks::Memory,
};

/// Everything that requests and controllers use.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) kinds: Kinds,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    pub(crate) controllers: Controllers,
    pub(crate) tokens: HashMap<String, IssuedToken>,
    /// The Services, by namespace and name, behind which a server answers every request with `ok`.
    pub(crate) answering: BTreeSet<(Box<str>, Box<str>)>,
    /// What the request that is being answered knows from webhooks.
    pub(crate) memory: RefCell<Memory>,
}

impl State {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            kinds: Kinds::new(),
            store: Store::new(options.history),
            clock: Clock::new(options.start),
            ids: Ids { state: options.seed },
            controllers: Controllers::new(&options),
            tokens: HashMap::new(),
            answering: BTreeSet::new(),
            memory: RefCell::default(),
            options,
        }
    }

    /// Stores an object and adds the resulting work of the controllers.
    pub(crate) fn put(&mut self, resource: &ResourceId, object: Value) -> Change {
        let change = self.store.put(resource, object);
        self.controllers.observe(resource, &change, Instant::now());
        change
    }

    /// Removes an object and adds the resulting work of the controllers.
    pub(crate) fn remove(&mut self, resource: &ResourceId, namespace: &str, name: &str) -> Option<Change> {
        let change = self.store.remove(resource, namespace, name)?;
        self.controllers.observe(resource, &change, Instant::now());
        Some(change)
    }
}

/// The clock for objects: tokio's, relative to a start time.
#[derive(Debug)]
pub(crate) struct Clock {
    start: jiff::Timestamp,
    begun: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the only use of the system clock; everything else uses tokio's")]
    fn new(start: Option<jiff::Timestamp>) -> Self {
        let now = || jiff::Timestamp::try_from(std::time::SystemTime::now()).unwrap_or_default();
        Self { start: start.unwrap_or_else(now), begun: Instant::now() }
    }

    pub(crate) fn now(&self) -> jiff::Timestamp {
        let elapsed = jiff::SignedDuration::try_from(self.begun.elapsed()).unwrap_or_default();
        self.start.checked_add(elapsed).unwrap_or(self.start)
    }

    /// Returns the current time as `2026-01-01T00:00:00Z`. `metav1.Time` has no fractions of a second.
    pub(crate) fn text(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

/// A reproducible sequence (splitmix64) for UIDs and generated names.
#[derive(Debug)]
pub(crate) struct Ids {
    state: u64,
}

impl Ids {
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a version 4 UUID.
    pub(crate) fn uid(&mut self) -> String {
        let (high, low) = (self.next(), self.next());
        let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, (high & 0xfff) | 0x4000);
        let (d, e) = (((low >> 48) & 0x3fff) | 0x8000, low & 0xffff_ffff_ffff);
        format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }

    /// Returns the five characters at the end of a generated name, from the API server's alphabet.
    pub(crate) fn suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut bits = self.next();
        let mut draw = || {
            let index = usize::try_from(bits % ALPHABET.len() as u64).unwrap_or_default();
            bits /= ALPHABET.len() as u64;
            char::from(ALPHABET[index])
        };
        (0..5).map(|_| draw()).collect()
    }
}
