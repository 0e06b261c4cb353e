//! Patterns of hosts.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use crate::address::{is_ambiguous, reached};

/// A pattern that matches hosts by name or by address.
///
/// `api.example` matches this name, `*.example` all names below this domain, `10.0.0.1` and `fd00::1` an address, `10.0.0.0/8`
/// and `fd00::/8` a network, and `loopback` the names and addresses of the machine itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern(Pattern);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Name(String),
    /// A domain with a leading dot.
    Below(String),
    Network(IpAddr, u32),
    Loopback,
}

/// A text that is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} must be a name, *.DOMAIN, an address, a network such as 10.0.0.0/8, or loopback")]
pub struct PatternError(String);

impl HostPattern {
    /// Returns whether a name in lower case, without a dot at its end, matches.
    pub(crate) fn matches_name(&self, name: &str) -> bool {
        match &self.0 {
            Pattern::Name(own) => name == own,
            Pattern::Below(domain) => name.len() > domain.len() && name.ends_with(domain.as_str()),
            Pattern::Loopback => name == "localhost" || name.ends_with(".localhost"),
            Pattern::Network(..) => false,
        }
    }

    pub(crate) fn matches_address(&self, address: IpAddr) -> bool {
        match (&self.0, address) {
            (Pattern::Loopback, address) => address.is_loopback(),
            (Pattern::Network(network, length), address) => is_within(address, *network, *length),
            _ => false,
        }
    }

    /// Returns whether it can match the addresses of any name.
    pub(crate) fn is_for_addresses(&self) -> bool {
        matches!(self.0, Pattern::Network(..) | Pattern::Loopback)
    }
}

/// Returns whether an address has the first `length` bits of a network.
fn is_within(address: IpAddr, network: IpAddr, length: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(Ipv4Addr::BITS - length).unwrap_or_default();
            (address.to_bits() ^ network.to_bits()) & mask == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(Ipv6Addr::BITS - length).unwrap_or_default();
            (address.to_bits() ^ network.to_bits()) & mask == 0
        }
        _ => false,
    }
}

impl FromStr for HostPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let wrong = || PatternError(text.to_owned());
        if text == "loopback" {
            return Ok(Self(Pattern::Loopback));
        }
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        if let Ok(address) = address.parse::<IpAddr>() {
            let address = if length.is_none() { reached(address) } else { address };
            let bits = if address.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
            let length = length.map_or(Ok(bits), str::parse).ok().filter(|length| *length <= bits);
            return Ok(Self(Pattern::Network(address, length.ok_or_else(wrong)?)));
        }
        let below = text.strip_prefix('*');
        let name = below.map_or(Some(text), |below| below.strip_prefix('.')).unwrap_or_default();
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if is_ambiguous(&name) || name.split('.').any(str::is_empty) {
            return Err(wrong());
        }
        Ok(Self(if below.is_some() { Pattern::Below(format!(".{name}")) } else { Pattern::Name(name) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_parsed() {
        let network = |address: &str, length| Pattern::Network(address.parse().unwrap(), length);
        for (text, pattern) in [
            ("API.example.", Pattern::Name("api.example".to_owned())),
            ("*.example", Pattern::Below(".example".to_owned())),
            ("10.0.0.1", network("10.0.0.1", 32)),
            ("::ffff:10.0.0.1", network("10.0.0.1", 32)),
            ("10.0.0.0/8", network("10.0.0.0", 8)),
            ("0.0.0.0/0", network("0.0.0.0", 0)),
            ("fd00::/8", network("fd00::", 8)),
            ("loopback", Pattern::Loopback),
        ] {
            assert_eq!(text.parse(), Ok(HostPattern(pattern)), "{text}");
        }
        for text in
            ["", "*", "*.", ".example", "a..example", "*a.example", "a.*.example", "https://a.example", "a.example:443"]
        {
            text.parse::<HostPattern>().unwrap_err();
        }
        for text in ["10.0.0", "10.0.0.0/33", "10.0.0.0/-1", "fd00::/129", "10.0.0.0/", "a.example/8"] {
            text.parse::<HostPattern>().unwrap_err();
        }
    }
}
