//! The format in which helm stores releases.

use std::io::{Read as _, Write as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::Value;

/// The maximum unpacked size of a release; a Secret holds up to 1 MiB of packed data.
const LIMIT: u64 = 100 << 20;

/// Returns the data `release` of a release's Secret with the status set to `failed`; `None` if it cannot be parsed
/// (`pkg/storage/driver/util.go` in helm).
pub fn as_failed(stored: &str) -> Option<String> {
    let packed = STANDARD.decode(stored.trim()).ok()?;
    let mut text = Vec::new();
    GzDecoder::new(packed.as_slice()).take(LIMIT).read_to_end(&mut text).ok()?;
    let mut release: Value = serde_json::from_slice(&text).ok()?;
    *release.pointer_mut("/info/status")? = "failed".into();
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(release.to_string().as_bytes()).ok()?;
    Some(STANDARD.encode(packed.finish().ok()?))
}
