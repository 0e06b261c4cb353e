//! Splits the items between several controllers.

use sha2::{Digest as _, Sha256};

/// The name of the Lease if there is only one shard.
const LEASE: &str = "billhook-controller";

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

    /// Returns the number of shards.
    pub(crate) fn count(self) -> u32 {
        self.of
    }

    /// Returns the name of this shard's Lease, which contains the number of shards if there are several.
    pub fn lease_name(self) -> String {
        if self.of == 1 { LEASE.to_owned() } else { format!("{LEASE}-{}-of-{}", self.index, self.of) }
    }

    /// Returns whether a Lease is that of a shard of another number of shards. Such a shard must not work at the same time.
    pub(crate) fn excludes(self, lease: &str) -> bool {
        let Some(rest) = lease.strip_prefix(LEASE) else { return false };
        let other = match rest.strip_prefix('-') {
            Some(rest) => rest.replacen("-of-", "/", 1).parse().ok(),
            None => rest.is_empty().then(Self::default),
        };
        other.is_some_and(|other| other.of != self.of)
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
    fn shards_of_different_numbers_exclude_each_other() {
        let shard = |text: &str| text.parse::<Shard>().unwrap();
        let all = ["0/1", "0/2", "1/2", "1/3"].map(shard);
        for (own, other) in all.iter().flat_map(|own| all.iter().map(move |other| (own, other))) {
            assert_eq!(own.excludes(&other.lease_name()), own.of != other.of, "{own} {other}");
        }
        for foreign in
            ["", "billhook-controllers", "billhook-controller-2-of-2", "billhook-controller-x", "other-0-of-2"]
        {
            assert!(!shard("0/3").excludes(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_shard_is_parsed_from_index_and_count() {
        assert_eq!("1/3".parse(), Ok(Shard { index: 1, of: 3 }));
        for wrong in ["3/3", "1", "a/b", "-1/2", "0/0", ""] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
