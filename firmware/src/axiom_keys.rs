//! The messages between a member of a protected group and its controller (RFC 9594), in the format of
//! `tegmen_host::group::groupcomm`: maps of CBOR (RFC 8949) with integers as keys, without values of indefinite length.

use super::axiom_group::{LEVELS, Provisioning};
use tegmen::address::Address;
use tegmen::axiom::{Admission, Association, Suite};
use tegmen::buf::{Full, Reader, Writer};
use tegmen_base::cbor::{ARRAY, BYTES, MAP, NEGATIVE, TEXT, UNSIGNED, read, read_bytes, read_head, skip, write_head};

/// Writes the request to join as a listener that does not check signatures. `address` is the address from which the
/// member sends its responses.
///
/// # Errors
/// [`Full`] if `out` has no space.
pub fn write_join(group: &str, address: &[u8; 16], out: &mut Writer<'_>) -> Result<(), Full> {
    write_head(MAP, 3, out)?;
    write_head(NEGATIVE, OF_AXIOM, out)?;
    out.u8(FALSE)?;
    write_head(UNSIGNED, SCOPE, out)?;
    let role = "responder";
    // The byte string contains a CBOR array of two texts. The head of the array and the heads of the texts (below 24
    // bytes each) have 1 byte each.
    write_head(BYTES, 3 + group.len() + role.len(), out)?;
    write_head(ARRAY, 2, out)?;
    text(&[group.as_bytes(), role.as_bytes()], out)?;
    write_head(UNSIGNED, CONTROL_URI, out)?;
    write_head(TEXT, URI_LEN, out)?;
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
        write_head(TEXT, part.len(), out)?;
        out.put(part)?;
    }
    Ok(())
}

/// Reads the response to a join request or to a request for keys. Returns `None` if the bytes are no such response, or
/// if the path in the key tree has more levels than the tree of this image.
pub fn parse(message: &[u8]) -> Option<Provisioning<'_>> {
    let mut keys = Provisioning { association: NOTHING, admission: NO_ADMISSION, senders: &[] };
    let mut of_axiom = false;
    let reader = &mut Reader::new(message);
    read_map(reader, |label, reader| {
        match label {
            GKTY => of_axiom = read(NEGATIVE, reader)? == OF_AXIOM,
            KEY => read_map(reader, |label, reader| take_key(&mut keys, label, reader))?,
            NUM => keys.association.epoch = number(reader)?.try_into().ok()?,
            MGT_KEY_MATERIAL => {
                let reader = &mut Reader::new(read_bytes(reader)?);
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
        8 => *senders = read_bytes(reader)?,
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
            let (path, rest) = read_bytes(reader)?.as_chunks();
            if !rest.is_empty() {
                return None;
            }
            admission.path = path;
        }
        _ => return skip(reader, MAX_DEPTH),
    }
    Some(())
}

/// Reads a map. `take` reads the value of each label that is an unsigned integer. Other entries are skipped.
fn read_map<'m>(reader: &mut Reader<'m>, mut take: impl FnMut(usize, &mut Reader<'m>) -> Option<()>) -> Option<()> {
    for _ in 0..read(MAP, reader)? {
        match read_head(reader)? {
            (UNSIGNED, label) => take(label, reader)?,
            // Skips a label of another type, and its value: a text, whose bytes follow, or a negative number.
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

fn number(reader: &mut Reader<'_>) -> Option<usize> {
    read(UNSIGNED, reader)
}

fn array<'m, const N: usize>(reader: &mut Reader<'m>) -> Option<&'m [u8; N]> {
    read_bytes(reader)?.try_into().ok()
}

const FALSE: u8 = 0xf4;
/// Maximum nesting depth of a value that is skipped.
const MAX_DEPTH: u8 = 4;

/// This constant and the next six constants are the labels of RFC 9594 that this module reads or writes. `OF_AXIOM`
/// represents the label -65537, which is for private use: CBOR encodes it as 65,536.
const SCOPE: usize = 3;
const GKTY: usize = 7;
const KEY: usize = 8;
const NUM: usize = 9;
const CONTROL_URI: usize = 26;
const MGT_KEY_MATERIAL: usize = 27;
const OF_AXIOM: usize = 65_536;
/// Length of `coap://[`, an address of 39 characters, and `]`, in bytes.
const URI_LEN: usize = 48;
/// The suites of Axiom, each with the number of the DTLS cipher suite that defines its protection. Images with short
/// keys do not support the suite with HMAC.
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
