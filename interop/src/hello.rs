//! What a peer offers and what it answers, read from the bytes that passed.

use crate::capture::Capture;
use crate::cell::{Check, Trouble};

/// A hello, by its number (RFC 5246, section 7.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hello {
    Client = 1,
    Server = 2,
}

/// The last such hello that passed shows that the peer lacks an extension, given by name and number.
pub(crate) fn lacks(relay: &Capture, hello: Hello, (name, number): (&str, u16)) -> Check {
    let datagrams = relay.datagrams();
    let extensions = datagrams.iter().rev().find_map(|datagram| extensions(&datagram.bytes, hello));
    match extensions.ok_or_else(|| format!("no {hello:?}Hello passed"))?.contains(&number) {
        true => Err(format!("its {hello:?}Hello has {name}, and no row tries that").into()),
        false => Err(Trouble::Lacks(format!("its {hello:?}Hello has no {name} ({number})"))),
    }
}

/// The types of the extensions of a hello that a datagram begins with.
fn extensions(datagram: &[u8], hello: Hello) -> Option<Vec<u16>> {
    /// Header of the record, header of the message, version and random.
    const TO_SESSION_ID: usize = 13 + 12 + 2 + 32;
    if datagram.first() != Some(&HANDSHAKE) || datagram.get(13) != Some(&(hello as u8)) {
        return None;
    }
    let skip = |at: usize, len_len: usize| -> Option<usize> {
        let len = datagram.get(at..at.checked_add(len_len)?)?.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        at.checked_add(len_len)?.checked_add(len)
    };
    let mut at = skip(TO_SESSION_ID, 1)?;
    at = match hello {
        Hello::Client => skip(skip(skip(at, 1)?, 2)?, 1)?, // cookie, suites, compression methods
        Hello::Server => at.checked_add(3)?,               // suite, compression method
    };
    let end = skip(at, 2)?;
    let mut types = Vec::new();
    at = at.checked_add(2)?;
    while at < end {
        types.push(u16::from_be_bytes(*datagram.get(at..)?.first_chunk()?));
        at = skip(at.checked_add(2)?, 2)?;
    }
    Some(types)
}

/// The content type of a record.
const HANDSHAKE: u8 = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extensions_of_a_hello_are_found_in_order() {
        let header = |kind: u8| [&[22; 13][..], &[kind; 12], b"\xfe\xfd", &[7; 32]].concat();
        let lists = b"\x00\x08\x00\x17\x00\x00\xff\x01\x00\x00";
        let client = [&header(1)[..], b"\x00\x02cc\x00\x02\xc0\xa8\x01\x00", lists].concat();
        assert_eq!(extensions(&client, Hello::Client), Some(vec![0x17, 0xff01]));
        assert_eq!(extensions(&client, Hello::Server), None);
        let server = [&header(2)[..], b"\x02id\xc0\xa8\x00", lists].concat();
        assert_eq!(extensions(&server, Hello::Server), Some(vec![0x17, 0xff01]));
        assert_eq!(extensions(&server[..server.len() - 1], Hello::Server), None);
    }
}
