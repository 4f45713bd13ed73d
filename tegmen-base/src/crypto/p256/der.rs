//! ECDSA signatures in DER (RFC 3279, section 2.2.3): a sequence of two integers, in the only encoding that DER
//! allows.

use super::modulus::{self, Words};
use crate::buf::{Full, Reader, Writer, copy};
use crate::crypto::MAX_SIGNATURE;

const INTEGER: u8 = 2;
const SEQUENCE: u8 = 0x30;

/// Reads both integers of a signature. Returns `None` if DER does not allow the encoding, or an integer has more than
/// 256 bits.
pub(super) fn read(signature: &[u8], r: &mut Words, s: &mut Words) -> Option<()> {
    let mut reader = Reader::new(signature);
    let sequence = reader.u8().ok().filter(|tag| *tag == SEQUENCE).and_then(|_| reader.with_len8().ok())?;
    let mut integers = Reader::new(sequence);
    read_integer(&mut integers, r)?;
    read_integer(&mut integers, s)?;
    (integers.is_empty() && reader.is_empty()).then_some(())
}

#[inline(never)]
fn read_integer(reader: &mut Reader<'_>, to: &mut Words) -> Option<()> {
    let bytes = reader.u8().ok().filter(|tag| *tag == INTEGER).and_then(|_| reader.with_len8().ok())?;
    // DER has a leading zero only if the next bit is set, because the integer would be negative without it.
    let bytes = match bytes {
        [0, rest @ ..] if matches!(rest, [0x80..=0xff, ..]) => rest,
        [1..0x80, ..] => bytes,
        _ => return None,
    };
    let mut number = [0; 32];
    let at = number.len().checked_sub(bytes.len())?;
    copy(number.get_mut(at..)?, bytes).ok()?;
    modulus::read(to, &number);
    Some(())
}

/// Writes a signature. Returns its length in bytes.
pub(super) fn write(r: &Words, s: &Words, out: &mut [u8; MAX_SIGNATURE]) -> Result<usize, Full> {
    let mut writer = Writer::new(out);
    writer.u8(SEQUENCE)?;
    writer.behind_len::<1>(|writer| {
        write_integer(r, writer)?;
        write_integer(s, writer)
    })?;
    Ok(writer.len())
}

#[inline(never)]
fn write_integer(number: &Words, writer: &mut Writer<'_>) -> Result<(), Full> {
    let mut bytes = [0; 32];
    modulus::write(&mut bytes, number);
    let mut bytes = bytes.as_slice();
    while let [0, rest @ ..] = bytes {
        bytes = rest;
    }
    writer.u8(INTEGER)?;
    writer.behind_len::<1>(|writer| {
        if let [0x80..=0xff, ..] = bytes {
            writer.u8(0)?;
        }
        writer.put(bytes)
    })
}
