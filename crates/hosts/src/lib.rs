//! Rules about the hosts that a program connects to on behalf of others.
//!
//! Whoever writes a Target or names a chart chooses the address of a server, and the program that connects to it may reach
//! servers that the author cannot: on the machine itself, or the metadata service of a cloud, which hands out credentials.
//! [`HostRules`] decide about hosts and their addresses; [`Dialer`] connects only to what they allow, and [`Relay`] does so for
//! another program.

mod address;
mod dial;
mod pattern;
mod relay;

use std::net::IpAddr;

use address::{is_ambiguous, is_link_local, reached};
pub use dial::{DialError, Dialer, Resolve, Resolved};
pub use pattern::{HostPattern, PatternError};
pub use relay::{Behind, Gate, Relay};

/// Which hosts may be connected to. Without patterns, all except those with link-local addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRules {
    /// If there are any, only hosts that match one of them are allowed. A link-local address is allowed only if one of them
    /// matches the address itself, not the name.
    pub allow: Vec<HostPattern>,
    /// Hosts that match one of these are not allowed, even if they match one of `allow`.
    pub deny: Vec<HostPattern>,
}

/// A host that may not be connected to.
///
/// The text does not contain the address, because names of an internal network could be resolved with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connections to {host} are not allowed: {reason}")]
pub struct Denied {
    /// The host.
    pub host: String,
    /// The reason.
    pub reason: Reason,
}

/// Why a host may not be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A pattern denies it.
    #[error("it is denied by the configuration")]
    Pattern,
    /// There are patterns of allowed hosts, but none matches.
    #[error("it is not among the hosts that the configuration allows")]
    NotAllowed,
    /// It has a link-local address, or that of a metadata service.
    #[error("it has a link-local address, or that of a cloud's metadata service")]
    LinkLocal,
    /// Programs read it differently.
    #[error("it must be a name in ASCII, an IPv4 address of four decimal numbers, or an IPv6 address")]
    Ambiguous,
}

impl HostRules {
    /// Decides about a host, as it is written in a URL without the port: before it is resolved, and again for each address
    /// that it resolves to.
    ///
    /// # Errors
    ///
    /// When the host may not be connected to.
    pub fn check(&self, host: &str, resolved: Option<IpAddr>) -> Result<(), Denied> {
        let denied = |reason| Err(Denied { host: host.to_owned(), reason });
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
        let literal = literal.parse::<IpAddr>().ok();
        if literal.is_none() && is_ambiguous(&name) {
            return denied(Reason::Ambiguous);
        }
        let name = Some(name.as_str()).filter(|_| literal.is_none());
        let address = literal.or(resolved).map(reached);
        let any_name = |patterns: &[HostPattern]| {
            name.is_some_and(|name| patterns.iter().any(|pattern| pattern.matches_name(name)))
        };
        let any_address = |patterns: &[HostPattern]| {
            address.is_some_and(|address| patterns.iter().any(|pattern| pattern.matches_address(address)))
        };
        if any_name(&self.deny) || any_address(&self.deny) {
            return denied(Reason::Pattern);
        }
        let allowed_address = any_address(&self.allow);
        if address.is_some_and(is_link_local) && !allowed_address {
            return denied(Reason::LinkLocal);
        }
        // A host that is not resolved yet may have an allowed address.
        let may_match = address.is_none() && self.allow.iter().any(HostPattern::is_for_addresses);
        if self.allow.is_empty() || allowed_address || may_match || any_name(&self.allow) {
            return Ok(());
        }
        denied(Reason::NotAllowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(patterns: &[&str]) -> Vec<HostPattern> {
        patterns.iter().map(|pattern| pattern.parse().unwrap()).collect()
    }

    /// Checks the decision about a host that resolves to an address, or is one (`""`).
    fn check(allow: &[&str], deny: &[&str], host: &str, resolved: &str, expected: Result<(), Reason>) {
        let rules = HostRules { allow: patterns(allow), deny: patterns(deny) };
        let resolved = (!resolved.is_empty()).then(|| resolved.parse().unwrap());
        let found = rules.check(host, resolved).map_err(|denied| denied.reason);
        assert_eq!(found, expected, "{host} {resolved:?}, allow {allow:?}, deny {deny:?}");
    }

    #[test]
    fn link_local_addresses_are_denied() {
        let denied = Err(Reason::LinkLocal);
        for address in [
            "169.254.169.254",
            "169.254.0.1",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "192.0.0.192",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            check(&[], &[], "a.example", address, denied);
            check(&[], &[], address, "", denied);
            check(&[], &[], &format!("[{address}]"), "", denied);
            check(&["a.example"], &[], "a.example", address, denied);
            check(&[address], &[], "a.example", address, Ok(()));
        }
        for address in ["10.0.0.1", "127.0.0.1", "169.253.0.1", "::1", "fd00::1", "fec0::1", "2001:db8::1"] {
            check(&[], &[], "a.example", address, Ok(()));
            check(&[], &[], address, "", Ok(()));
        }
        check(&["169.254.0.0/16"], &[], "169.254.1.1", "", Ok(()));
        check(&["169.254.0.0/16"], &["169.254.169.254"], "169.254.169.254", "", Err(Reason::Pattern));
    }

    #[test]
    fn loopback_is_denied_under_all_of_its_names() {
        for (host, resolved) in [
            ("localhost", ""),
            ("LOCALHOST.", ""),
            ("a.localhost", ""),
            ("127.0.0.1", ""),
            ("127.1.2.3", ""),
            ("0.0.0.0", ""),
            ("[::1]", ""),
            ("[::]", ""),
            ("[::ffff:127.0.0.1]", ""),
            ("a.example", "127.0.0.1"),
            ("a.example", "0.0.0.0"),
            ("a.example", "::1"),
            ("a.example", "64:ff9b::7f00:1"),
        ] {
            check(&[], &["loopback"], host, resolved, Err(Reason::Pattern));
            check(&[], &[], host, resolved, Ok(()));
        }
        check(&[], &["loopback"], "localhost.example", "10.0.0.1", Ok(()));
    }

    #[test]
    fn patterns_select_names_and_addresses() {
        let (no, pattern) = (Err(Reason::NotAllowed), Err(Reason::Pattern));
        check(&["a.example"], &[], "A.example.", "10.0.0.1", Ok(()));
        check(&["a.example"], &[], "b.example", "", no);
        check(&["*.example"], &[], "b.example", "", Ok(()));
        check(&["*.example"], &[], "example", "", no);
        check(&["*.example"], &[], "badexample", "", no);
        check(&["*.example"], &["b.example"], "b.example", "", pattern);
        check(&["10.0.0.0/8"], &[], "10.1.2.3", "", Ok(()));
        check(&["10.0.0.0/8"], &[], "11.1.2.3", "", no);
        check(&["10.0.0.0/8"], &[], "a.example", "", Ok(()));
        check(&["10.0.0.0/8"], &[], "a.example", "10.1.2.3", Ok(()));
        check(&["10.0.0.0/8"], &[], "a.example", "11.1.2.3", no);
        check(&["10.0.0.0/8", "a.example"], &[], "a.example", "11.1.2.3", Ok(()));
        check(&["10.0.0.0/8"], &["10.0.0.0/24"], "a.example", "10.0.0.9", pattern);
        check(&["2001:db8::/32"], &[], "[2001:db8:1::1]", "", Ok(()));
        check(&["2001:db8::/32"], &[], "[2001:db9::1]", "", no);
        check(&[], &["10.0.0.0/8"], "a.example", "::ffff:10.0.0.1", pattern);
        check(&[], &["0.0.0.0/0"], "a.example", "2001:db8::1", Ok(()));
        check(&[], &["0.0.0.0/0", "::/0"], "a.example", "", Ok(()));
        check(&["10.0.0.1"], &[], "10.0.0.1", "", Ok(()));
        // Only the name is the author's: a name that looks like an allowed one of another domain is not.
        check(&["a.example"], &[], "a.example.evil", "", no);
    }

    #[test]
    fn hosts_that_programs_read_differently_are_denied() {
        for host in [
            "2130706433",
            "0x7f000001",
            "127.1",
            "0177.0.0.1",
            "1.2.3.0x4",
            "a.1",
            "",
            ".",
            "１０.0.0.1",
            "10。0。0。1",
            "a%2eb",
            "a:b",
        ] {
            check(&[], &[], host, "10.0.0.1", Err(Reason::Ambiguous));
        }
        check(&[], &[], "1a.example1", "", Ok(()));
    }

    #[test]
    fn the_error_does_not_contain_the_address() {
        let error = HostRules::default().check("a.example", Some([169, 254, 1, 2].into())).unwrap_err().to_string();
        let (what, why) = error.split_once(": ").unwrap();
        assert_eq!(what, "connections to a.example are not allowed");
        assert_eq!(why, "it has a link-local address, or that of a cloud's metadata service");
    }
}
