//! Network prefixes: strangers of one prefix share what strangers may take, so that one of them leaves room for others.

use std::net::IpAddr;

/// The /24 of an IPv4 address, the /56 of an IPv6 address, as a number.
pub(crate) fn of(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => u64::from(ip.to_bits() >> 8),
        IpAddr::V6(ip) => (ip.to_bits() >> 72) as u64 | 1 << 63,
    }
}
