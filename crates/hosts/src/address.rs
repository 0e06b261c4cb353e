//! What a written host and an address stand for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns whether programs may read a host differently: it ends in a number, so that some read it as an IPv4 address (the
/// WHATWG's URL standard), or it has other characters than a name, which some decode or replace (Go turns `１` into `1`).
pub(crate) fn is_ambiguous(name: &str) -> bool {
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        return true;
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    name.is_empty() || hexadecimal || (!last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the address that a connection to this one reaches.
pub(crate) fn reached(address: IpAddr) -> IpAddr {
    /// The prefix of IPv4 addresses behind NAT64 (RFC 6052).
    const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
    let address = match address.to_canonical() {
        IpAddr::V6(v6) if v6.segments().starts_with(&NAT64) => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        address => address,
    };
    match address {
        // Linux connects to loopback.
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        address => address,
    }
}

/// The metadata services of Alibaba Cloud, Azure, Oracle Cloud, AWS (of instances and of Pods in EKS) and Google Cloud that have other
/// than link-local addresses.
const METADATA: [IpAddr; 6] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Returns whether an address is link-local, or that of a metadata service.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    link_local || METADATA.contains(&address)
}
