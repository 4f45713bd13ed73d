//! Restores compressed packets.

use super::bytes::{In, Out};
use super::{
    CHAINED, CIDS, COMPRESSED, CONTENT_TYPE, Context, DIGEST, FINAL_BLOCK, FRESH, HINT, HopId, IS_DATA, KEY_DIGEST,
    PAGE, PARAMETERS, PREFIX, append, is_known, name, time_value,
};
use crate::error::Error;
use crate::name::Name;
use crate::put_head;
use crate::tlv::{self, Type};
use tegmen_base::buf::{Frame, Writer};
use tegmen_base::crypto::DIGEST_LEN;

/// The reserved bits of the first byte of a dispatch. A Data packet has one more reserved bit, `RESERVED_IN_DATA`.
const RESERVED: u8 = 0xc0;
const RESERVED_IN_DATA: u8 = 1;

/// Restores the packet from `payload`, which was received in one or more link frames. Writes the packet into an empty
/// output frame with [`MAX_HEAD`](crate::MAX_HEAD) free bytes in front. `name_of` returns the name of the Interest that
/// this node sent with a HopID. If the packet is an Interest with a HopID, returns this HopID.
///
/// # Errors
/// [`Error`]. The output frame is then empty.
pub fn decompress<'n>(
    payload: &[u8],
    contexts: &[Context<'n>],
    name_of: impl FnOnce(HopId) -> Option<Name<'n>>,
    frame: &mut Frame<'_>,
) -> Result<Option<HopId>, Error> {
    let mut rest = In::of(payload);
    let (page, first) = (rest.byte(), rest.byte());
    let is_data = first & IS_DATA != 0;
    let kind = if is_data { Type::DATA } else { Type::INTEREST };
    if page != PAGE || first & RESERVED != 0 {
        return Err(Error::Compression);
    }
    if first & COMPRESSED == 0 {
        if first & !IS_DATA != 0 {
            return Err(Error::Compression);
        }
        append(rest.rest(), kind, frame)?;
        return Ok(None);
    }
    let second = rest.byte();
    let mut cids = [0; 3];
    let mut follows = second & CIDS != 0;
    for place in &mut cids {
        if follows {
            let cid = rest.byte();
            (*place, follows) = (cid & !CHAINED, cid & CHAINED != 0);
        }
    }
    let mut body = In::of(rest.bytes());
    rest.require(!follows);
    rest.finish()?;
    let [hop, context, key_context] = cids;
    let hop = HopId::new(hop);
    let prefix_of = |id| match id {
        0 => Some(Name::default()),
        _ => contexts.iter().find(|known| known.id == id).map(|known| known.prefix),
    };
    let prefix = match hop {
        // The HopID replaces the whole name, and another context would replace a part that the RFC does not name.
        Some(hop) if is_data => name_of(hop).filter(|_| context == 0),
        _ => prefix_of(context),
    };
    let names = prefix.zip(prefix_of(key_context)).map(|(prefix, key)| (prefix.as_bytes(), key.as_bytes()));
    let (prefix, key_prefix) = names.ok_or(Error::Compression)?;
    let reserved =
        if is_data { first & RESERVED_IN_DATA | second & !CIDS } else { second & !(DIGEST | CIDS) | key_context };
    body.require(reserved == 0);
    let written = frame.append_with(|out| {
        let out = &mut Out::new(out);
        out.put(prefix);
        name::restore(&mut body, out);
        if is_data {
            restore_data(first, key_prefix, &mut body, out);
        } else {
            restore_interest(first, second, &mut body, out);
        }
        body.finish()?;
        Ok::<(), Error>(out.finish()?)
    });
    let written = written.and_then(|()| Ok(put_head(kind, frame)?));
    if let Err(error) = written {
        frame.truncate(0);
        return Err(error);
    }
    Ok(hop.filter(|_| !is_data))
}

/// Restores an Interest, whose name is restored except for a digest.
fn restore_interest(first: u8, second: u8, body: &mut In<'_>, out: &mut Out<'_, '_>) {
    let (has_parameters, is_full) = (first & PARAMETERS != 0, second & DIGEST != 0);
    body.require(!has_parameters || !is_full);
    if has_parameters || is_full {
        let kind = if is_full { Type::IMPLICIT_DIGEST } else { Type::PARAMETERS_DIGEST };
        out.element(kind, body.take(DIGEST_LEN));
    }
    out.enclose(0, Type::NAME);
    if first & PREFIX != 0 {
        out.element(Type::CAN_BE_PREFIX, &[]);
    }
    if first & FRESH != 0 {
        out.element(Type::MUST_BE_FRESH, &[]);
    }
    if first & HINT != 0 {
        let (mut names, start) = (In::of(body.bytes()), out.len());
        while !names.rest().is_empty() {
            let start = out.len();
            name::restore(&mut names, out);
            out.enclose(start, Type::NAME);
        }
        body.require(names.finish().is_ok());
        out.enclose(start, Type::FORWARDING_HINT);
    }
    let hop_limit = body.take(1);
    let parameters = if has_parameters { Some(body.bytes()) } else { None };
    if body.rest().len() >= 4 {
        out.element(Type::NONCE, body.take(4));
    }
    restore_time(out.len(), Type::LIFETIME, body, out);
    out.element(Type::HOP_LIMIT, hop_limit);
    if let Some(parameters) = parameters {
        out.element(Type::PARAMETERS, parameters);
    }
}

/// Restores a Data packet, whose name is restored.
fn restore_data(first: u8, key_prefix: &[u8], body: &mut In<'_>, out: &mut Out<'_, '_>) {
    out.enclose(0, Type::NAME);
    let meta = out.len();
    if first & CONTENT_TYPE != 0 {
        out.element(Type::CONTENT_TYPE, body.bytes());
    }
    let last = out.len();
    if first & FINAL_BLOCK != 0 {
        name::restore(body, out);
        out.enclose(last, Type::FINAL_BLOCK);
    }
    let content = body.bytes();
    let (mut info, signature) = (In::of(body.bytes()), body.bytes());
    restore_time(last, Type::FRESHNESS, body, out);
    if out.len() != meta {
        out.enclose(meta, Type::META_INFO);
    }
    out.element(Type::CONTENT, content);
    let start = out.len();
    let kind = info.bytes();
    out.element(Type::SIGNATURE_TYPE, kind);
    let key = out.len();
    let kind = if let [kind] = kind { *kind } else { u8::MAX };
    let is_digest = first & KEY_DIGEST != 0;
    let has_key = is_digest || is_known(kind, true);
    if has_key {
        if is_digest {
            out.element(Type::KEY_DIGEST, info.bytes());
        } else {
            out.put(key_prefix);
            name::restore(&mut info, out);
            out.enclose(key, Type::NAME);
        }
        out.enclose(key, Type::KEY_LOCATOR);
    }
    body.require(is_known(kind, has_key) && info.finish().is_ok());
    out.enclose(start, Type::SIGNATURE_INFO);
    out.element(Type::SIGNATURE_VALUE, signature);
}

/// Restores the element with the time whose code is the last byte of `body`. Inserts the element at the position
/// `place`. Does nothing if no byte is left.
#[inline(never)]
fn restore_time(place: usize, kind: Type, body: &mut In<'_>, out: &mut Out<'_, '_>) {
    if body.rest().is_empty() {
        return;
    }
    let mut bytes = [0; MAX_TIME];
    let mut time = Writer::new(&mut bytes);
    let is_written = tlv::write_integer(&mut time, kind, time_value(body.byte())).is_ok();
    out.require(is_written);
    out.insert(place, time.written());
}

/// Maximum number of bytes of the element of a time.
const MAX_TIME: usize = 10;
