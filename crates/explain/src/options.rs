//! What a diagnosis may ask.

/// How many requests a diagnosis may ask for.
const BUDGET: usize = 30;

/// What a diagnosis may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many requests it may ask for.
    pub budget: usize,
    /// Whether it may ask for dry runs.
    pub probe: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { budget: BUDGET, probe: false }
    }
}
