//! The limits of a document.

/// The maximum depth of a document before aliases are expanded.
pub(super) const MAX_NESTING: usize = 255;

/// The maximum depth of a document after aliases are expanded.
pub(super) const MAX_HEIGHT: usize = 1000;

/// The maximum weight of all copies that aliases and their anchors need.
pub(super) const MAX_COPIED: usize = 16 << 20;
