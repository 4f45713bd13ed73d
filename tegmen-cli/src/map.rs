//! A map from URIs to credentials, in the format of aiocoap.
//!
//! ```json
//! { "coap://host/*": { "oscore": { "basedir": "contexts/host" } },
//!   "coap://other.example*": ":shared",
//!   ":shared": { "oscore": { "basedir": "contexts/shared" } },
//!   "coap://localhost/public/*": { "unprotected": true } }
//! ```

use crate::output::Failure;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use tegmen_host::uri::Uri;

/// The entry of a map for a URI.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// The directory of the OSCORE context that protects requests to this URI.
    Oscore(PathBuf),
    /// The map allows unprotected requests to this URI.
    Unprotected,
}

/// Finds the entry for a URI: the entry of the longest pattern that matches.
pub(crate) fn find(file: &Path, uri: &Uri) -> Result<Credential, Failure> {
    let name = file.display();
    let wrong = |why: String| Failure::usage(format!("{name}: {why}"));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let map: Map<String, Value> = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let (asked, explicit) = spellings(uri);
    let matching = map.iter().filter(|(pattern, _)| matches(pattern, &asked) || matches(pattern, &explicit));
    let Some((pattern, mut found)) = matching.max_by_key(|(pattern, _)| pattern.len()) else {
        return Err(wrong(format!(
            "no pattern matches {asked}, and nothing was sent; add one, with {{\"unprotected\": true}} for no protection"
        )));
    };
    if let Some(alias) = found.as_str() {
        found = map.get(alias).ok_or_else(|| wrong(format!("{pattern}: there is no {alias}")))?;
    }
    if found["unprotected"] == Value::Bool(true) {
        return Ok(Credential::Unprotected);
    }
    let Some(dir) = found["oscore"]["basedir"].as_str() else {
        return Err(wrong(format!(
            "{pattern}: {{\"oscore\": {{\"basedir\": \"DIR\"}}}} or {{\"unprotected\": true}}; keys of DTLS go in --credentials"
        )));
    };
    Ok(Credential::Oscore(file.parent().unwrap_or(Path::new("")).join(dir)))
}

/// Returns two texts of a URI. The first text contains the port only if it is not the default port of the scheme. The
/// second text always contains the port.
fn spellings(uri: &Uri) -> (String, String) {
    let scheme = uri.scheme;
    let host = if uri.host.contains(':') { format!("[{}]", uri.host) } else { uri.host.clone() };
    let path = format!("/{}", uri.path.join("/"));
    let explicit = format!("{scheme}://{host}:{}{path}", uri.port);
    let short = if uri.port == scheme.default_port() { format!("{scheme}://{host}{path}") } else { explicit.clone() };
    (short, explicit)
}

/// Returns true if `text` matches `pattern`. A star matches any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    let mut starts = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    starts.any(|at| rest.get(at..).is_some_and(|rest| matches(tail, rest)))
}

#[cfg(test)]
mod tests;
