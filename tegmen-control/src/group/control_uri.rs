//! The URI at which a member of a Group OSCORE group takes requests of the Group Manager (RFC 9594, section 4.3.1).

use std::net::{IpAddr, SocketAddr};
use tegmen_host::group::groupcomm::GROUPS;
use tegmen_host::uri::{Scheme, Uri};

/// Maximum number of bytes of a `control_uri`.
const LONGEST_URI: usize = 255;

/// Checks the `control_uri` in a request to join. `remote` is the address of the session of the device.
///
/// # Errors
/// The reason of the refusal, and what the device has to change.
pub(super) fn check(uri: &str, group: &str, remote: Option<SocketAddr>) -> Result<(), &'static str> {
    if uri.len() > LONGEST_URI {
        return Err("It has more than 255 bytes: send a shorter one.");
    }
    let Ok(uri) = Uri::parse(uri) else { return Err("It is no URI: send coaps://ADDRESS:PORT/PATH.") };
    if uri.scheme != Scheme::Coaps {
        return Err("Its scheme is not coaps: the Group Manager sends keys over DTLS only.");
    }
    let remote = remote.map(|remote| remote.ip().to_canonical());
    if remote.is_none() || address(&uri).map(|to| to.ip()) != remote {
        return Err("Its host is not the IP address of this session: send the address from which the request comes.");
    }
    if uri.path.is_empty() || uri.path == [GROUPS, group] || !uri.query.is_empty() {
        return Err("It has no path, a query, or the path of the group: send the default path /ace-group/GROUP/node.");
    }
    Ok(())
}

/// Returns the address in a URI whose host is an IP address.
pub(super) fn address(uri: &Uri) -> Option<SocketAddr> {
    let ip: IpAddr = uri.host.parse().ok()?;
    Some(SocketAddr::new(ip.to_canonical(), uri.port)).filter(|to| to.port() > 0)
}
