//! A cache of charts and index files that were fetched.
//!
//! Nobody gets anything out of it that the same credentials have not fetched: they are part of the key. What can change is
//! used only after the server has confirmed that it has not.

use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use crate::{http::Validators, packed::Packed};

/// What identifies something in the cache.
pub(crate) type Key = [u8; 32];

/// Returns the key of something that was fetched from an address with these credentials and certificates.
pub(crate) fn key(kind: &str, address: &str, credentials: Option<&str>, authorities: Option<&str>) -> Key {
    Sha256::digest(serde_json::json!([kind, address, credentials, authorities]).to_string()).into()
}

/// What was fetched.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Chart(Arc<Packed>),
    Index(Arc<str>),
}

impl Content {
    fn size(&self) -> usize {
        match self {
            Self::Chart(chart) => chart.bytes.len(),
            Self::Index(text) => text.len(),
        }
    }
}

/// Something in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) content: Content,
    /// Those of the answer; none for what cannot change, because its digest names it.
    pub(crate) validators: Option<Validators>,
}

/// The entries, those that were used last at the end.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<Vec<(Key, Entry)>>);

impl Cache {
    /// The maximum size of all entries.
    const SIZE: usize = 64 << 20;
    /// The maximum number of entries.
    const COUNT: usize = 1000;

    pub(crate) fn get(&self, key: Key) -> Option<Entry> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = entries.iter().position(|(known, _)| *known == key)?;
        let found = entries.remove(index);
        let entry = found.1.clone();
        entries.push(found);
        Some(entry)
    }

    pub(crate) fn insert(&self, key: Key, entry: Entry) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|(known, _)| *known != key);
        entries.push((key, entry));
        let mut size: usize = entries.iter().map(|(_, entry)| entry.content.size()).sum();
        let mut count = entries.len();
        let surplus = entries.iter().take_while(|(_, entry)| {
            let too_many = size > Self::SIZE || count > Self::COUNT;
            size -= if too_many { entry.content.size() } else { 0 };
            count -= usize::from(too_many);
            too_many
        });
        let surplus = surplus.count();
        entries.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(size: usize) -> Entry {
        Entry { content: Content::Index("x".repeat(size).into()), validators: None }
    }

    #[test]
    fn the_cache_drops_what_was_not_used_for_longest() {
        let cache = Cache::default();
        let held = |keys: &[u8]| keys.iter().map(|key| cache.get([*key; 32]).is_some()).collect::<Vec<_>>();
        for key in [1, 2, 3] {
            cache.insert([key; 32], entry(Cache::SIZE / 3));
        }
        assert_eq!(held(&[1, 2, 3, 1]), [true; 4]);
        cache.insert([4; 32], entry(Cache::SIZE / 3));
        assert_eq!(held(&[1, 2, 3, 4]), [true, false, true, true]);
        cache.insert([4; 32], entry(Cache::SIZE / 3));
        assert_eq!(held(&[1, 3, 4]), [true; 3]);
        cache.insert([5; 32], entry(Cache::SIZE + 1));
        assert_eq!(held(&[1, 3, 4, 5]), [false; 4]);
    }

    #[test]
    fn the_number_of_entries_is_limited() {
        let cache = Cache::default();
        let keys: Vec<_> = (0..=Cache::COUNT).map(|number| key("index", &number.to_string(), None, None)).collect();
        keys.iter().for_each(|key| cache.insert(*key, entry(1)));
        assert!(cache.get(keys[0]).is_none() && cache.get(keys[1]).is_some());
    }

    #[test]
    fn other_credentials_have_other_keys() {
        let keys = [
            key("index", "https://a.example", None, None),
            key("chart", "https://a.example", None, None),
            key("index", "https://b.example", None, None),
            key("index", "https://a.example", Some("Basic x"), None),
            key("index", "https://a.example", Some("Basic y"), None),
            key("index", "https://a.example", None, Some("Basic x")),
        ];
        assert!((0..keys.len()).all(|one| (0..one).all(|two| keys[one] != keys[two])));
    }
}
