//! Reads the extensions and other fields of a ClientHello or a ServerHello from a datagram.

/// A ClientHello or a ServerHello. The value of a variant is its handshake type (RFC 5246, section 7.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hello {
    Client = 1,
    Server = 2,
}

/// The fields of a ClientHello or a ServerHello that the scenarios examine.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Read {
    pub(crate) random: Vec<u8>,
    pub(crate) session_id: Vec<u8>,
    extensions: Vec<(u16, Vec<u8>)>,
}

impl Read {
    /// Returns the body of the extension with this number.
    pub(crate) fn extension(&self, number: u16) -> Option<&[u8]> {
        self.extensions.iter().find(|(other, _)| *other == number).map(|(_, body)| body.as_slice())
    }
}

/// Reads the message of the type `hello` (ClientHello or ServerHello) at the beginning of a datagram. Returns `None` if
/// the datagram does not begin with a message of this type.
pub(crate) fn read(datagram: &[u8], hello: Hello) -> Option<Read> {
    /// Number of bytes before the random: header of the record, header of the message, and version.
    const TO_RANDOM: usize = 13 + 12 + 2;
    if datagram.first() != Some(&HANDSHAKE) || datagram.get(13) != Some(&(hello as u8)) {
        return None;
    }
    let mut rest = datagram.get(TO_RANDOM..)?;
    let random = take(&mut rest, 32)?.to_vec();
    let session_id = vector(&mut rest, 1)?.to_vec();
    match hello {
        // Cookie, suites, compression methods.
        Hello::Client => [1, 2, 1].into_iter().try_for_each(|len_len| vector(&mut rest, len_len).map(drop))?,
        // Suite, compression method.
        Hello::Server => take(&mut rest, 3).map(drop)?,
    }
    // A hello without extensions has no list of them, either.
    let mut list = if rest.is_empty() { rest } else { vector(&mut rest, 2)? };
    let mut extensions = Vec::new();
    while !list.is_empty() {
        let number = u16::from_be_bytes(*take(&mut list, 2)?.first_chunk()?);
        extensions.push((number, vector(&mut list, 2)?.to_vec()));
    }
    Some(Read { random, session_id, extensions })
}

fn take<'d>(rest: &mut &'d [u8], len: usize) -> Option<&'d [u8]> {
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}

/// Reads a length of `len_len` bytes, and then that number of bytes. Returns the bytes after the length.
fn vector<'d>(rest: &mut &'d [u8], len_len: usize) -> Option<&'d [u8]> {
    let len = take(rest, len_len)?.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
    take(rest, len)
}

/// Returns the types of the unencrypted handshake messages in a datagram. A fragment of a message also gives the type
/// of this message.
pub(crate) fn messages(datagram: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    let mut rest = datagram;
    while let Some(header) = take(&mut rest, 11) {
        let Some(record) = vector(&mut rest, 2) else { break };
        // Type, version, epoch.
        if header.first() != Some(&HANDSHAKE) || header.get(3..5) != Some(&[0, 0]) {
            continue;
        }
        let mut inner = record;
        // Type, length, message_seq, fragment_offset; then the fragment after its length.
        while let Some((&kind, _)) = take(&mut inner, 9).and_then(<[u8]>::split_first) {
            types.push(kind);
            if vector(&mut inner, 3).is_none() {
                break;
            }
        }
    }
    types
}

/// The content type of a record with handshake messages.
const HANDSHAKE: u8 = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_read_whole_or_not_at_all() {
        let header = |kind: u8| [&[22; 13][..], &[kind; 12], b"\xfe\xfd", &[7; 32]].concat();
        let lists = b"\x00\x09\x00\x17\x00\x00\x00\x23\x00\x01t";
        let client = [&header(1)[..], b"\x02id\x02cc\x00\x02\xc0\xa8\x01\x00", lists].concat();
        let extensions = vec![(0x17, vec![]), (0x23, vec![b't'])];
        let expected = Read { random: vec![7; 32], session_id: b"id".to_vec(), extensions };
        assert_eq!(read(&client, Hello::Client).unwrap(), expected);
        assert_eq!(read(&client, Hello::Server), None);
        let server = [&header(2)[..], b"\x02id\xc0\xa8\x00", lists].concat();
        assert_eq!(read(&server, Hello::Server).unwrap(), expected);
        assert_eq!(read(&server[..server.len() - 1], Hello::Server), None);
        assert_eq!(expected.extension(0x23), Some(&b"t"[..]));
        assert_eq!(expected.extension(0x24), None);
    }

    #[test]
    fn messages_in_the_clear_are_told_from_those_that_are_sealed() {
        let message = |kind: u8| [&[kind, 0, 0, 2, 0, 5, 0, 0, 0, 0, 0, 2][..], b"xy"].concat();
        let record = |kind: u8, epoch: u8, body: &[u8]| {
            [&[kind, 0xfe, 0xfd, 0, epoch, 0, 0, 0, 0, 0, 1, 0, body.len() as u8][..], body].concat()
        };
        let both = [message(11), message(16)].concat();
        let flight = [record(22, 0, &both), record(20, 0, &[1]), record(22, 1, &message(20))].concat();
        assert_eq!(messages(&flight), [11, 16]);
        assert!(messages(b"no record").is_empty());
    }
}
