//! The messages between a member of a protected group and its controller (RFC 9594), as `tegmen_host::group::groupcomm` has them:
//! maps of CBOR (RFC 8949) with integers as keys, and no values of indefinite length.

use super::axiom_group::{LEVELS, Provisioning};
use tegmen::address::Address;
use tegmen::axiom::{Admission, Association, Suite};
use tegmen::buf::{Full, Reader, Writer};

/// Writes the request to join as a listener that does not check signatures, and whose responses come from `address`.
///
/// # Errors
/// [`Full`].
pub fn write_join(group: &str, address: &[u8; 16], out: &mut Writer<'_>) -> Result<(), Full> {
    head(MAP, 3, out)?;
    head(NEGATIVE, OF_AXIOM, out)?;
    out.u8(FALSE)?;
    head(UNSIGNED, SCOPE, out)?;
    let role = "responder";
    // The array, and the heads of two texts below 24 bytes.
    head(BYTES, 3 + group.len() + role.len(), out)?;
    head(ARRAY, 2, out)?;
    text(&[group.as_bytes(), role.as_bytes()], out)?;
    head(UNSIGNED, CONTROL_URI, out)?;
    head(TEXT, URI_LEN, out)?;
    out.put(b"coap://[")?;
    for (number, byte) in address.iter().enumerate() {
        if number > 0 && number % 2 == 0 {
            out.u8(b':')?;
        }
        for digit in [byte >> 4, byte & 15] {
            out.u8(if digit < 10 { b'0' + digit } else { b'a' - 10 + digit })?;
        }
    }
    out.u8(b']')
}

fn text(parts: &[&[u8]], out: &mut Writer<'_>) -> Result<(), Full> {
    for part in parts {
        head(TEXT, part.len(), out)?;
        out.put(part)?;
    }
    Ok(())
}

fn head(major: u8, value: usize, out: &mut Writer<'_>) -> Result<(), Full> {
    match value {
        0..24 => out.u8(major << 5 | value as u8),
        24..0x100 => {
            out.u8(major << 5 | 24)?;
            out.u8(value as u8)
        }
        _ => {
            out.u8(major << 5 | 26)?;
            out.put(&(value as u32).to_be_bytes())
        }
    }
}

/// Reads the response to a request to join, or for the keys. Returns `None` if the bytes are something else, or the path is longer
/// than the tree of this image has levels.
pub fn parse(message: &[u8]) -> Option<Provisioning<'_>> {
    let mut keys = Provisioning { association: NOTHING, admission: NO_ADMISSION, senders: &[] };
    let mut of_axiom = false;
    let reader = &mut Reader::new(message);
    read_map(reader, |label, reader| {
        match label {
            GKTY => of_axiom = value(NEGATIVE, reader)? == OF_AXIOM,
            KEY => read_map(reader, |label, reader| take_key(&mut keys, label, reader))?,
            NUM => keys.association.epoch = number(reader)?.try_into().ok()?,
            MGT_KEY_MATERIAL => {
                let reader = &mut Reader::new(bytes(reader)?);
                read_map(reader, |label, reader| take_secret(&mut keys.admission, label, reader))?;
                return reader.is_empty().then_some(());
            }
            _ => return skip(reader, MAX_DEPTH),
        }
        Some(())
    })?;
    keys.admission.epoch = keys.association.epoch;
    let fits = (1..=LEVELS).contains(&keys.admission.path.len());
    (of_axiom && fits && reader.is_empty()).then_some(keys)
}

fn take_key<'m>(keys: &mut Provisioning<'m>, label: usize, reader: &mut Reader<'m>) -> Option<()> {
    let Provisioning { association, admission, senders } = keys;
    match label {
        1 => association.group_id = number(reader)?.try_into().ok()?,
        2 => association.sender_id = Some(number(reader)?.try_into().ok()?),
        3 => {
            let found = number(reader)?;
            association.suite = SUITES.iter().find(|(_, suite)| *suite == found)?.0;
        }
        4 => admission.secret = array(reader)?,
        5 => association.client_random = array(reader)?,
        6 => association.server_random = array(reader)?,
        7 => association.senders = number(reader)?.try_into().ok()?,
        8 => *senders = bytes(reader)?,
        9 => admission.group = array(reader)?,
        10 => association.address = *array(reader)?,
        11 => association.group.ip = *array(reader)?,
        12 => association.group.port = number(reader)?.try_into().ok()?,
        _ => return skip(reader, MAX_DEPTH),
    }
    Some(())
}

fn take_secret<'m>(admission: &mut Admission<'m>, label: usize, reader: &mut Reader<'m>) -> Option<()> {
    match label {
        1 => admission.chain = array(reader)?,
        2 => admission.leaf = number(reader)?.try_into().ok()?,
        3 => {
            let (path, rest) = bytes(reader)?.as_chunks();
            if !rest.is_empty() {
                return None;
            }
            admission.path = path;
        }
        _ => return skip(reader, MAX_DEPTH),
    }
    Some(())
}

/// Reads a map. `take` reads the value of each label that is a number from 0; other entries are skipped.
fn read_map<'m>(reader: &mut Reader<'m>, mut take: impl FnMut(usize, &mut Reader<'m>) -> Option<()>) -> Option<()> {
    for _ in 0..value(MAP, reader)? {
        match read_head(reader)? {
            (UNSIGNED, label) => take(label, reader)?,
            // A text, whose bytes follow, or a negative number.
            (TEXT, len) => {
                reader.take(len).ok()?;
                skip(reader, MAX_DEPTH)?;
            }
            (NEGATIVE, _) => skip(reader, MAX_DEPTH)?,
            _ => return None,
        }
    }
    Some(())
}

/// Reads the head of a value: its major type and its number.
fn read_head(reader: &mut Reader<'_>) -> Option<(u8, usize)> {
    let first = reader.u8().ok()?;
    let number = match first & 31 {
        low @ 0..24 => low.into(),
        24 => reader.u8().ok()?.into(),
        25 => reader.u16().ok()?.into(),
        26 => reader.u32().ok()? as usize,
        _ => return None,
    };
    Some((first >> 5, number))
}

/// Reads the head of a value of this major type.
fn value(major: u8, reader: &mut Reader<'_>) -> Option<usize> {
    read_head(reader).filter(|(found, _)| *found == major).map(|(_, number)| number)
}

fn number(reader: &mut Reader<'_>) -> Option<usize> {
    value(UNSIGNED, reader)
}

fn bytes<'m>(reader: &mut Reader<'m>) -> Option<&'m [u8]> {
    let len = value(BYTES, reader)?;
    reader.take(len).ok()
}

fn array<'m, const N: usize>(reader: &mut Reader<'m>) -> Option<&'m [u8; N]> {
    bytes(reader)?.try_into().ok()
}

/// Skips a value with at most `depth` levels.
fn skip(reader: &mut Reader<'_>, depth: u8) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    let (major, number) = read_head(reader)?;
    let parts = match major {
        BYTES | TEXT => return reader.take(number).ok().map(|_| ()),
        ARRAY => number,
        MAP => number.checked_mul(2)?,
        TAG => 1,
        _ => 0,
    };
    (0..parts).try_for_each(|_| skip(reader, depth))
}

/// Major types (RFC 8949, section 3.1).
const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;
const FALSE: u8 = 0xf4;
/// Levels of a value that is skipped.
const MAX_DEPTH: u8 = 4;

/// Labels (RFC 9594), and the private number of Axiom, -65537, as CBOR has it.
const SCOPE: usize = 3;
const GKTY: usize = 7;
const KEY: usize = 8;
const NUM: usize = 9;
const CONTROL_URI: usize = 26;
const MGT_KEY_MATERIAL: usize = 27;
const OF_AXIOM: usize = 65_536;
/// `coap://[`, an address of 39 characters, and `]`.
const URI_LEN: usize = 48;
/// Suites by the DTLS cipher suites that they have their protection from. An image whose keys are short has no HMAC.
const SUITES: [(Suite, usize); 2] = [(Suite::Ccm, 0xc0a4), (Suite::Ccm8, 0xc0a8)];

const NO_ADMISSION: Admission<'static> =
    Admission { group: &[0; 16], epoch: 0, chain: &[0; 32], secret: &[0; 32], leaf: 0, path: &[] };
const NOTHING: Association<'static> = Association {
    group_id: 0,
    group: Address { ip: [0; 16], port: 0, scope: 0 },
    suite: Suite::Ccm,
    epoch: 0,
    senders: 0,
    sender_id: None,
    address: [0; 16],
    master_secret: &[0; 48],
    client_random: &[0; 32],
    server_random: &[0; 32],
};
