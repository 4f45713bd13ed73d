//! The members that answered requests of this member. The controller does not report which members of the group listen,
//! so a sender learns this only from responses.

use super::file::replace;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

pub(super) const ANSWERED: &str = "answered.toml";

/// Number of consecutive requests without an answer after which a member is no longer expected to answer.
const SILENT: u32 = 5;

/// For each member, the number of consecutive requests that it has not answered.
#[derive(Default, Serialize, Deserialize)]
struct Answered {
    silent: BTreeMap<IpAddr, u32>,
}

impl Answered {
    /// Reads the file of the members that answered. A file that cannot be read counts as empty, because the security of
    /// the member does not depend on this file.
    fn read(dir: &Path) -> Self {
        let text = std::fs::read_to_string(dir.join(ANSWERED)).unwrap_or_default();
        toml::from_str(&text).unwrap_or_default()
    }
}

/// Returns the members that are expected to answer the next request.
pub(super) fn expected(dir: &Path) -> Vec<IpAddr> {
    Answered::read(dir).silent.into_keys().collect()
}

/// Notes that `members` answered the last request, and that the other members did not answer it.
pub(super) fn note(dir: &Path, members: &[IpAddr]) {
    let mut known = Answered::read(dir);
    known.silent.values_mut().for_each(|silent| *silent = silent.saturating_add(1));
    known.silent.extend(members.iter().map(|member| (*member, 0)));
    known.silent.retain(|_, silent| *silent < SILENT);
    let text = toml::to_string(&known).unwrap_or_default();
    // Without the file the next request only does not know who is missing.
    let _ = replace(&dir.join(ANSWERED), &[b"# Requests in a row without an answer.\n", text.as_bytes()]);
}
