//! Splits the items between several controllers.

use sha2::{Digest as _, Sha256};

/// One of several parts of the items, each of which is handled by another controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    of: u32,
}

impl Default for Shard {
    fn default() -> Self {
        Self { index: 0, of: 1 }
    }
}

impl Shard {
    /// Returns whether an item belongs to this shard, by a hash of its namespace and name.
    pub fn holds(self, namespace: &str, name: &str) -> bool {
        let digest = Sha256::digest(format!("{namespace}/{name}"));
        let number = digest.iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
        number % u64::from(self.of) == u64::from(self.index)
    }

    /// Returns the suffix of this shard's Lease; empty if there is only one shard.
    pub fn suffix(self) -> String {
        if self.of == 1 { String::new() } else { format!("-{}-of-{}", self.index, self.of) }
    }
}

/// Prints `index/of`.
impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shard = text
            .split_once('/')
            .and_then(|(index, of)| Some(Self { index: index.parse().ok()?, of: of.parse().ok()? }));
        shard
            .filter(|shard| shard.index < shard.of)
            .ok_or_else(|| "expected INDEX/COUNT, such as 0/3, with INDEX below COUNT".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_in_exactly_one_shard() {
        let shards: Vec<Shard> = (0..3).map(|index| Shard { index, of: 3 }).collect();
        let mut sizes = [0; 3];
        for n in 0..3_000 {
            let holders: Vec<_> = (0..3).filter(|i| shards[*i].holds("default", &format!("item-{n}"))).collect();
            assert_eq!(holders.len(), 1);
            sizes[holders[0]] += 1;
        }
        assert!(sizes.iter().all(|size| (900..1_100).contains(size)), "{sizes:?}");
        assert!(Shard::default().holds("a", "b"));
        // The hash must never change: two controllers of different versions would both handle an item, or neither.
        assert!(
            Shard { index: 1, of: 2 }.holds("default", "my-secret")
                != Shard { index: 0, of: 2 }.holds("default", "my-secret")
        );
    }

    #[test]
    fn a_shard_is_parsed_from_index_and_count() {
        assert_eq!("1/3".parse(), Ok(Shard { index: 1, of: 3 }));
        for wrong in ["3/3", "1", "a/b", "-1/2", "0/0", ""] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
