//! Restores compressed packets.

use super::name::Short;
use super::{
    CHAINED, CIDS, COMPRESSED, CONTENT_TYPE, Context, DATA_RESERVED, DIGEST, FINAL_BLOCK, FRESH, HINT, HopId, IS_DATA,
    KEY_DIGEST, KIND, PAGE, PARAMETERS, PREFIX, has_key, time_value,
};
use crate::error::Error;
use crate::name::Name;
use crate::put_head;
use crate::tlv::{self, Type};
use tegmen_base::buf::{Frame, Reader, Writer};
use tegmen_base::crypto::DIGEST_LEN;

/// Restores the packet of a frame, in an empty frame with [`MAX_HEAD`](crate::MAX_HEAD) free bytes in front. `name_of` returns the name of the Interest that
/// this node sent with a HopID. Returns the HopID of an Interest.
///
/// # Errors
/// [`Error`]; the frame is then empty.
pub fn decompress<'n>(
    payload: &[u8],
    contexts: &[Context<'n>],
    name_of: impl FnOnce(HopId) -> Option<Name<'n>>,
    frame: &mut Frame<'_>,
) -> Result<Option<HopId>, Error> {
    let restored = restore(payload, contexts, name_of, frame);
    if restored.is_err() {
        frame.truncate(0);
    }
    restored
}

fn restore<'n>(
    payload: &[u8],
    contexts: &[Context<'n>],
    name_of: impl FnOnce(HopId) -> Option<Name<'n>>,
    frame: &mut Frame<'_>,
) -> Result<Option<HopId>, Error> {
    let mut reader = Reader::new(payload);
    let [page, first] = reader.array()?;
    if page != PAGE || first & !(KIND | 0xf) != 0 {
        return Err(Error::Compression);
    }
    if first & COMPRESSED == 0 {
        let kind = if first & IS_DATA == 0 { Type::INTEREST } else { Type::DATA };
        tlv::only(reader.rest(), kind)?;
        frame.append(reader.rest())?;
        return if first & 0xf == 0 { Ok(None) } else { Err(Error::Compression) };
    }
    let second = reader.u8()?;
    let mut cids = [0; 3];
    if second & CIDS != 0 {
        let mut places = cids.iter_mut();
        loop {
            let cid = reader.u8()?;
            *places.next().ok_or(Error::Compression)? = cid & !CHAINED;
            if cid & CHAINED == 0 {
                break;
            }
        }
    }
    let body = bytes(&mut reader)?;
    if !reader.is_empty() {
        return Err(Error::Trailing);
    }
    let mut body = Reader::new(body);
    let [hop, context, key_context] = cids;
    let hop = HopId::new(hop);
    let prefix_of = |cid| match cid {
        0 => Ok(Name::default()),
        id => contexts.iter().find(|known| known.id == id).map(|known| known.prefix).ok_or(Error::Compression),
    };
    if first & IS_DATA == 0 {
        if second & !(DIGEST | CIDS) != 0 || key_context != 0 {
            return Err(Error::Compression);
        }
        restore_interest(first, second, &mut body, prefix_of(context)?, frame)?;
        return Ok(hop);
    }
    if second & !CIDS != 0 || first & DATA_RESERVED != 0 {
        return Err(Error::Compression);
    }
    let prefix = match hop {
        Some(hop) => name_of(hop).ok_or(Error::Compression)?,
        None => prefix_of(context)?,
    };
    restore_data(first, &mut body, prefix, prefix_of(key_context)?, frame)?;
    Ok(None)
}

fn restore_interest<'f>(
    first: u8,
    second: u8,
    body: &mut Reader<'f>,
    prefix: Name<'f>,
    frame: &mut Frame<'_>,
) -> Result<(), Error> {
    let name = Short::read(prefix, body)?;
    let kind = match (first & PARAMETERS != 0, second & DIGEST != 0) {
        (true, false) => Some(Type::PARAMETERS_DIGEST),
        (false, true) => Some(Type::IMPLICIT_DIGEST),
        (false, false) => None,
        (true, true) => return Err(Error::Compression),
    };
    let digest = match kind {
        Some(kind) => Some((kind, body.take(DIGEST_LEN)?)),
        None => None,
    };
    let hint = if first & HINT == 0 { None } else { Some(bytes(body)?) };
    let hop_limit = body.u8()?;
    let parameters = if first & PARAMETERS == 0 { None } else { Some(bytes(body)?) };
    let nonce = if body.rest().len() >= 4 { body.take(4)? } else { &[] };
    let lifetime = if body.is_empty() { None } else { Some(body.u8()?) };
    if !body.is_empty() {
        return Err(Error::Trailing);
    }
    frame.append_with(|out| {
        let digest_len = digest.map_or(0, |(kind, digest)| tlv::element_len(kind, digest.len()));
        tlv::write_head(out, Type::NAME, name.len().saturating_add(digest_len))?;
        name.write(out)?;
        if let Some((kind, digest)) = digest {
            tlv::write(out, kind, digest)?;
        }
        if first & PREFIX != 0 {
            tlv::write(out, Type::CAN_BE_PREFIX, &[])?;
        }
        if first & FRESH != 0 {
            tlv::write(out, Type::MUST_BE_FRESH, &[])?;
        }
        if let Some(hint) = hint {
            write_hint(hint, out)?;
        }
        if !nonce.is_empty() {
            tlv::write(out, Type::NONCE, nonce)?;
        }
        if let Some(code) = lifetime {
            tlv::write_integer(out, Type::LIFETIME, time_value(code))?;
        }
        tlv::write(out, Type::HOP_LIMIT, &[hop_limit])?;
        if let Some(parameters) = parameters {
            tlv::write(out, Type::PARAMETERS, parameters)?;
        }
        Ok::<(), Error>(())
    })?;
    Ok(put_head(Type::INTEREST, frame)?)
}

/// Writes a ForwardingHint of compressed names.
fn write_hint(hint: &[u8], out: &mut Writer<'_>) -> Result<(), Error> {
    let name = |reader: &mut Reader<'_>| -> Result<usize, Error> {
        Ok(tlv::element_len(Type::NAME, Short::read(Name::default(), reader)?.len()))
    };
    let (mut reader, mut len) = (Reader::new(hint), 0usize);
    while !reader.is_empty() {
        len = len.saturating_add(name(&mut reader)?);
    }
    tlv::write_head(out, Type::FORWARDING_HINT, len)?;
    let mut reader = Reader::new(hint);
    while !reader.is_empty() {
        let name = Short::read(Name::default(), &mut reader)?;
        tlv::write_head(out, Type::NAME, name.len())?;
        name.write(out)?;
    }
    Ok(())
}

fn restore_data<'f>(
    first: u8,
    body: &mut Reader<'f>,
    prefix: Name<'f>,
    key_prefix: Name<'f>,
    frame: &mut Frame<'_>,
) -> Result<(), Error> {
    let name = Short::read(prefix, body)?;
    let content_type = if first & CONTENT_TYPE == 0 { None } else { Some(bytes(body)?) };
    let last = if first & FINAL_BLOCK == 0 { None } else { Some(Short::read(Name::default(), body)?) };
    let content = bytes(body)?;
    let mut info = Reader::new(bytes(body)?);
    let kind = bytes(&mut info)?;
    let has_key = has_key(kind).ok_or(Error::Compression)?;
    let (mut key_name, mut key_digest) = (None, None);
    match (has_key, first & KEY_DIGEST == 0) {
        (true, true) => key_name = Some(Short::read(key_prefix, &mut info)?),
        (true, false) => key_digest = Some(bytes(&mut info)?),
        (false, true) => {}
        (false, false) => return Err(Error::Compression),
    }
    let signature = bytes(body)?;
    let freshness = if body.is_empty() { None } else { Some(body.u8()?) };
    if !info.is_empty() || !body.is_empty() {
        return Err(Error::Trailing);
    }
    let mut number = [0; 8];
    let freshness = freshness.map(|code| tlv::integer_bytes(time_value(code), &mut number));
    let len = |kind, value: Option<usize>| value.map_or(0, |len| tlv::element_len(kind, len));
    frame.append_with(|out| {
        tlv::write_head(out, Type::NAME, name.len())?;
        name.write(out)?;
        let meta = len(Type::CONTENT_TYPE, content_type.map(<[u8]>::len))
            .saturating_add(len(Type::FRESHNESS, freshness.map(<[u8]>::len)))
            .saturating_add(len(Type::FINAL_BLOCK, last.as_ref().map(Short::len)));
        if meta != 0 {
            tlv::write_head(out, Type::META_INFO, meta)?;
        }
        if let Some(content_type) = content_type {
            tlv::write(out, Type::CONTENT_TYPE, content_type)?;
        }
        if let Some(freshness) = freshness {
            tlv::write(out, Type::FRESHNESS, freshness)?;
        }
        if let Some(last) = &last {
            tlv::write_head(out, Type::FINAL_BLOCK, last.len())?;
            last.write(out)?;
        }
        tlv::write(out, Type::CONTENT, content)?;
        let key = len(Type::NAME, key_name.as_ref().map(Short::len))
            .saturating_add(len(Type::KEY_DIGEST, key_digest.map(<[u8]>::len)));
        let locator = len(Type::KEY_LOCATOR, has_key.then_some(key));
        let kind_len = tlv::element_len(Type::SIGNATURE_TYPE, kind.len());
        tlv::write_head(out, Type::SIGNATURE_INFO, kind_len.saturating_add(locator))?;
        tlv::write(out, Type::SIGNATURE_TYPE, kind)?;
        if has_key {
            tlv::write_head(out, Type::KEY_LOCATOR, key)?;
        }
        if let Some(name) = &key_name {
            tlv::write_head(out, Type::NAME, name.len())?;
            name.write(out)?;
        }
        if let Some(digest) = key_digest {
            tlv::write(out, Type::KEY_DIGEST, digest)?;
        }
        tlv::write(out, Type::SIGNATURE_VALUE, signature)
    })?;
    Ok(put_head(Type::DATA, frame)?)
}

/// Reads a length below 2^21.
fn length(reader: &mut Reader<'_>) -> Result<usize, Error> {
    let mut len = 0;
    for _ in 0..3 {
        let byte = reader.u8()?;
        len = len << 7 | usize::from(byte & !CHAINED);
        if byte & CHAINED == 0 {
            return Ok(len);
        }
    }
    Err(Error::Compression)
}

/// Reads bytes behind their length.
fn bytes<'f>(reader: &mut Reader<'f>) -> Result<&'f [u8], Error> {
    let len = length(reader)?;
    Ok(reader.take(len)?)
}
