//! Requests for the names of groups (RFC 9594, section 4.2.1).

use super::super::creds::each;
use crate::cbor::{Malformed, MapWriter, Sink, bytes, read_array, read_message, text};
use crate::group::groupcomm::GROUPS;
use minicbor::Encoder;

const GID: i64 = 0;
const GNAME: i64 = 1;
const GURI: i64 = 2;

/// Maximum number of Group Identifiers in a request. The search compares each of them with each group.
const MOST_GIDS: usize = 16;

/// Reads the payload of a request. Returns the Group Identifiers, at most 16.
///
/// # Errors
/// [`Malformed`]; [`Malformed::Value`] for more Group Identifiers.
pub fn parse_gids(message: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut gids = None;
    read_message(message, |label, decoder| {
        let is_it = label == GID;
        if is_it {
            let gids = gids.insert(Vec::new());
            read_array(decoder, |decoder| {
                gids.push(decoder.bytes()?.to_vec());
                Ok(())
            })?;
        }
        Ok(is_it)
    })?;
    let gids = gids.filter(|gids| !gids.is_empty()).ok_or(Malformed::Missing(GID))?;
    if gids.len() > MOST_GIDS { Err(Malformed::Value(GID)) } else { Ok(gids) }
}

/// Writes the payload of the response. Each group has its Group Identifier and its name. Without a group, the payload
/// is a byte string of zero length.
pub fn encode_names(groups: &[(Vec<u8>, String)]) -> Vec<u8> {
    if groups.is_empty() {
        let mut empty = Vec::new();
        let written = bytes(&mut Encoder::new(Sink::new(&mut empty)), &[]);
        debug_assert!(written.is_ok(), "a write to memory does not fail");
        return empty;
    }
    let mut map = MapWriter::default();
    map.entry(GID, |encoder| each(encoder, groups, |encoder, (gid, _)| bytes(encoder, gid)));
    map.entry(GNAME, |encoder| each(encoder, groups, |encoder, (_, name)| text(encoder, name)));
    map.entry(GURI, |encoder| each(encoder, groups, |encoder, (_, name)| text(encoder, &format!("/{GROUPS}/{name}"))));
    map.finish().to_vec()
}
