//! Reads the options for resources whose observers get one notification together.

use super::config_file::Mistake;
use std::collections::HashSet;
use tegmen_host::server::GroupObservation;
use tegmen_host::uri::{Scheme, Uri};

/// Reads [GROUP=]URI. The host and the port of the URI are those of the multicast group, and its path is the path of the
/// resource. GROUP is the name of the OSCORE group that protects the notifications.
pub(super) fn group_observation(text: &str) -> Result<GroupObservation, String> {
    let wrong = || "write it as coap://239.255.79.2%eth0:61616/temp, or as GROUP=URI with the name of an OSCORE group";
    let (oscore, uri) = match text.split_once('=') {
        Some((group, uri)) if !group.contains(':') => (Some(group), uri),
        _ => (None, text),
    };
    let uri = Uri::parse(uri).map_err(|error| error.to_string())?;
    if uri.scheme != Scheme::Coap || !uri.query.is_empty() || uri.path.is_empty() || oscore.is_some_and(str::is_empty) {
        return Err(wrong().to_owned());
    }
    let group = uri.host.parse().map_err(|error: tegmen_host::group::GroupError| error.to_string())?;
    Ok(GroupObservation { path: uri.path.join("/"), group, port: uri.port, oscore: oscore.map(str::to_owned) })
}

/// Returns all mistakes in the settings of group observations. `plain` is true if the server serves unprotected
/// requests, and `oscore` is true if it has OSCORE contexts of files.
pub(super) fn mistakes(observations: &[GroupObservation], plain: bool, oscore: bool) -> Vec<Mistake> {
    let mut seen = HashSet::new();
    let wrong = observations.iter().filter_map(|GroupObservation { path, oscore: group, .. }| {
        let why = match group {
            _ if !seen.insert((path, group)) => format!("/{path} has two groups with the same protection: remove one"),
            None if !plain => format!(
                "the observers of /{path} register in clear: it needs --plain, or the name of an OSCORE group in front of the URI"
            ),
            Some(group) if !oscore => format!("it needs --oscore with the context of a member of the group {group}"),
            _ => return None,
        };
        Some(Mistake::new("group-observation", why))
    });
    wrong.collect()
}

#[cfg(test)]
mod tests;
