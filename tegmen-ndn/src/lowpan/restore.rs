//! Restores compressed packets.

use super::bytes::{In, Out};
use super::name::Short;
use super::{
    CHAINED, CIDS, COMPRESSED, CONTENT_TYPE, Context, DIGEST, FINAL_BLOCK, FRESH, HINT, HopId, IS_DATA, KEY_DIGEST,
    PAGE, PARAMETERS, PREFIX, has_key_locator, time_value,
};
use crate::error::Error;
use crate::name::{Component, Name};
use crate::put_head;
use crate::tlv::{self, Type};
use tegmen_base::buf::Frame;
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
        tlv::only(rest.rest(), kind)?;
        frame.append(rest.rest())?;
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
        if is_data {
            restore_data(first, prefix, key_prefix, &mut body, out);
        } else {
            restore_interest(first, second, prefix, &mut body, out);
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

fn restore_interest<'f>(first: u8, second: u8, prefix: &'f [u8], body: &mut In<'f>, out: &mut Out<'_, '_>) {
    let mut name = Short::read(prefix, body);
    let (has_parameters, is_full) = (first & PARAMETERS != 0, second & DIGEST != 0);
    body.require(!has_parameters || !is_full);
    if has_parameters || is_full {
        let kind = if is_full { Type::IMPLICIT_DIGEST } else { Type::PARAMETERS_DIGEST };
        name.digest = Component { kind, value: body.take(DIGEST_LEN) };
    }
    name.write(Type::NAME, out);
    for (bit, kind) in [(PREFIX, Type::CAN_BE_PREFIX), (FRESH, Type::MUST_BE_FRESH)] {
        if first & bit != 0 {
            out.element(kind, &[]);
        }
    }
    if first & HINT != 0 {
        let hint = body.bytes();
        let (mut names, mut len) = (In::of(hint), 0usize);
        while !names.rest().is_empty() {
            let name = Short::read(&[], &mut names);
            len = len.saturating_add(tlv::element_len(Type::NAME, name.len()));
        }
        body.require(names.finish().is_ok());
        out.head(Type::FORWARDING_HINT, len);
        let mut names = In::of(hint);
        while !names.rest().is_empty() {
            Short::read(&[], &mut names).write(Type::NAME, out);
        }
    }
    let hop_limit = body.take(1);
    let parameters = if has_parameters { Some(body.bytes()) } else { None };
    if body.rest().len() >= 4 {
        out.element(Type::NONCE, body.take(4));
    }
    if !body.rest().is_empty() {
        let millis = time_value(body.byte());
        out.element(Type::LIFETIME, tlv::integer_bytes(millis, &mut [0; 8]));
    }
    out.element(Type::HOP_LIMIT, hop_limit);
    if let Some(parameters) = parameters {
        out.element(Type::PARAMETERS, parameters);
    }
}

fn restore_data<'f>(first: u8, prefix: &'f [u8], key_prefix: &'f [u8], body: &mut In<'f>, out: &mut Out<'_, '_>) {
    Short::read(prefix, body).write(Type::NAME, out);
    let content_type = if first & CONTENT_TYPE != 0 { Some(body.bytes()) } else { None };
    let last = if first & FINAL_BLOCK != 0 { Some(Short::read(&[], body)) } else { None };
    let content = body.bytes();
    let mut info = In::of(body.bytes());
    let kind = info.bytes();
    let (has_key, is_digest) = (has_key_locator(kind), first & KEY_DIGEST != 0);
    let key_name = if has_key == Some(true) && !is_digest { Some(Short::read(key_prefix, &mut info)) } else { None };
    let key_digest = if is_digest { Some(info.bytes()) } else { None };
    let signature = body.bytes();
    // At most one byte can remain: the code of the FreshnessPeriod.
    let mut number = [0; 8];
    let code = if body.rest().is_empty() { None } else { Some(body.byte()) };
    let freshness = code.map(|code| tlv::integer_bytes(time_value(code), &mut number));
    body.require(has_key == Some(key_name.is_some() || key_digest.is_some()) && info.finish().is_ok());

    let len = |kind, value: Option<usize>| value.map_or(0, |len| tlv::element_len(kind, len));
    let meta = len(Type::CONTENT_TYPE, content_type.map(<[u8]>::len))
        .saturating_add(len(Type::FRESHNESS, freshness.map(<[u8]>::len)))
        .saturating_add(len(Type::FINAL_BLOCK, last.as_ref().map(Short::len)));
    if meta != 0 {
        out.head(Type::META_INFO, meta);
    }
    for (kind, value) in [(Type::CONTENT_TYPE, content_type), (Type::FRESHNESS, freshness)] {
        if let Some(value) = value {
            out.element(kind, value);
        }
    }
    if let Some(last) = &last {
        last.write(Type::FINAL_BLOCK, out);
    }
    out.element(Type::CONTENT, content);
    let key = len(Type::NAME, key_name.as_ref().map(Short::len))
        .saturating_add(len(Type::KEY_DIGEST, key_digest.map(<[u8]>::len)));
    let locator = len(Type::KEY_LOCATOR, has_key.filter(|has_key| *has_key).map(|_| key));
    out.head(Type::SIGNATURE_INFO, tlv::element_len(Type::SIGNATURE_TYPE, kind.len()).saturating_add(locator));
    out.element(Type::SIGNATURE_TYPE, kind);
    if locator != 0 {
        out.head(Type::KEY_LOCATOR, key);
    }
    if let Some(name) = &key_name {
        name.write(Type::NAME, out);
    }
    if let Some(digest) = key_digest {
        out.element(Type::KEY_DIGEST, digest);
    }
    out.element(Type::SIGNATURE_VALUE, signature);
}
