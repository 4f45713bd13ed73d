//! The configuration of a device.

use crate::access::policy::OwnedParty;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tegmen_coap::Rule;

/// The index of a scope that no device has. A peer with this index has no rights.
pub(super) const NO_SCOPE: u8 = u8::MAX;
/// Maximum number of scopes of a device, because a ticket contains the index of a scope in one byte.
pub(crate) const MAX_SCOPES: usize = NO_SCOPE as usize;
/// Maximum number of rules of a scope.
const MAX_RULES: usize = 64;
/// Maximum number of bytes of a rule.
const MAX_RULE: usize = 256;
/// Maximum number of bytes of a name.
const MAX_NAME: usize = 64;
/// Maximum lifetime of a delegation in seconds: 31 days.
const MAX_LIFETIME: u32 = 31 * 24 * 3600;

/// The configuration of a device, which an operator sets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// The tags of the device. Rules of the policy can name the device by a tag.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The address at which the device receives requests from its server.
    pub address: SocketAddr,
    /// The scopes that the device knows, each a list of rules such as `GET /temp`. A ticket contains the index of a
    /// scope. A peer gets the first scope whose rules are all allowed by the policy.
    pub scopes: Vec<Vec<String>>,
    /// Maximum number of entries in the device's list of refused connections.
    pub places: u32,
    /// The lifetime of a delegation in seconds: the time for which a peer can use the device without authenticating
    /// itself again.
    pub lifetime: u32,
}

impl DeviceConfig {
    /// Returns the device as a party of the policy.
    ///
    /// # Errors
    /// A text that explains how to correct the name or a value that is not valid.
    pub(super) fn party(&self, name: &str) -> Result<OwnedParty, String> {
        check_name(name)?;
        let ip = self.address.ip();
        if self.address.port() == 0 || ip.is_unspecified() || ip.is_multicast() {
            return Err(format!("{} is no address of one device: give its IP address and its UDP port", self.address));
        }
        if self.scopes.is_empty() || self.scopes.len() > MAX_SCOPES {
            return Err(format!("a device has 1 to {MAX_SCOPES} scopes; this has {}", self.scopes.len()));
        }
        if self.places == 0 {
            return Err("the list of refused connections of a device has a place at least".to_owned());
        }
        if self.lifetime == 0 || self.lifetime > MAX_LIFETIME {
            return Err(format!("a delegation lasts 1 to {MAX_LIFETIME} seconds; this lasts {}", self.lifetime));
        }
        self.scopes.iter().try_for_each(|scope| check_scope(scope))?;
        OwnedParty::new(name, self.tags.clone())
    }
}

fn check_scope(scope: &[String]) -> Result<(), String> {
    if scope.is_empty() || scope.len() > MAX_RULES {
        return Err(format!("a scope has 1 to {MAX_RULES} rules; this has {}", scope.len()));
    }
    match scope.iter().find(|rule| rule.len() > MAX_RULE || Rule::parse(rule).is_none()) {
        Some(rule) => Err(format!("{} is no rule: a rule is {}", rule.escape_debug(), Rule::EXPECTED)),
        None => Ok(()),
    }
}

/// Checks the name of a device: a host name in lower case. Peers send this name as server_name in their ClientHello
/// (RFC 6066, section 3), so a label has no underscore, and the last label is not a number (RFC 1123, section 2.1). The
/// name has at most 64 bytes, because it is the common name in the certificate of the device (RFC 5280, appendix A.1).
fn check_name(name: &str) -> Result<(), String> {
    let is_known = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let is_label = |label: &str| {
        let has_right_ends = !label.starts_with('-') && !label.ends_with('-');
        (1..=63).contains(&label.len()) && label.bytes().all(is_known) && has_right_ends
    };
    let is_number = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    match name.len() <= MAX_NAME && name.split('.').all(is_label) && !is_number {
        true => Ok(()),
        false => Err(format!(
            "the name of a delegated device is a host name in lower case, by which peers ask for it, of at most \
             {MAX_NAME} bytes; this is {}",
            name.escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests;
