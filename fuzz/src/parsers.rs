//! Targets for parsers without state.

use tegmen::address::Path;
use tegmen::crypto::{Crypto as _, DIGEST_LEN, RustCrypto, hmac};
use tegmen::dtls::{
    CipherSuite, HandshakeFragment, HandshakeMessage, MessageType, PREMASTER_LEN, Records, premaster_secret,
};
use tegmen::secret::Secret;
use tegmen_lowpan::ip::{Datagram, headers};
use tegmen_lowpan::slip::{Control, Decoder, encode};

/// Reads a datagram. Its records must be consecutive parts of the datagram, and fragments must be within their
/// messages.
pub fn records(data: &[u8]) {
    let mut datagram = data.to_vec();
    let mut records = Records::new(&mut datagram);
    let mut at = 0;
    while let Some(outcome) = records.next_record() {
        let Ok(record) = outcome else {
            assert!(records.next_record().is_none());
            return;
        };
        at += 13;
        assert_eq!(data[at..at + record.body.len()], *record.body);
        at += record.body.len();
        for fragment in HandshakeFragment::each(record.body) {
            assert!(fragment.offset as usize + fragment.body.len() <= fragment.length as usize);
            if fragment.body.len() == fragment.length as usize {
                bodies(fragment.message_type.0, fragment.body);
            }
        }
    }
    assert_eq!(at, data.len());
}

/// Encrypts a plaintext as a CBC record, and opens the record. The first byte of `data` selects the variant of the
/// test, and the other bytes are the plaintext. If the lowest bit of the first byte is set, a valid MAC is put at the
/// position that the padding of the plaintext selects. The second bit selects SHA-1 for this MAC. If the third bit is
/// set, the plaintext is read as the result of an RSA decryption instead. The core must accept the same plaintexts as a
/// simple implementation that does not run in constant time.
pub fn cbc(data: &[u8]) {
    let Some((&choice, text)) = data.split_first() else { return };
    match choice & 6 {
        0 => record_of_cbc::<DIGEST_LEN>(CipherSuite::PSK_WITH_AES_128_CBC_SHA256, choice & 1 == 1, text),
        2 => record_of_cbc::<20>(CipherSuite::RSA_WITH_AES_128_CBC_SHA, choice & 1 == 1, text),
        _ => premaster(text),
    }
}

fn record_of_cbc<const LEN: usize>(suite: CipherSuite, with_code: bool, text: &[u8]) {
    let mut text = text.to_vec();
    text.truncate(text.len() / 16 * 16);
    if text.len() <= LEN {
        return;
    }
    let crypto = &mut RustCrypto::new([0; 32]);
    let [high, low] = (text.len() as u16 + 16).to_be_bytes();
    let header = [23, 254, 253, 0, 1, 0, 0, 0, 0, 0, 7, high, low];
    let (mac_key, rest) = KEY_BLOCK.split_at(LEN);
    let key: &[u8; 16] = rest[LEN..LEN + 16].try_into().unwrap();
    let code_of = |content: &[u8]| {
        let [high, low] = (content.len() as u16).to_be_bytes();
        let aad = [0, 1, 0, 0, 0, 0, 0, 7, 23, 254, 253, high, low];
        hmac::<RustCrypto, LEN>(&[mac_key], &[&aad, content])
    };
    let padding = usize::from(text[text.len() - 1]);
    let len = text.len().checked_sub(padding + LEN + 1);
    if let Some(len) = len.filter(|_| with_code) {
        let code = code_of(&text[..len]);
        text[len..len + LEN].copy_from_slice(&code);
    }
    let expected = len.filter(|&len| {
        let (code, padded) = text[len..].split_at(LEN);
        code == code_of(&text[..len]) && padded.iter().all(|byte| usize::from(*byte) == padding)
    });
    let content = expected.map(|len| text[..len].to_vec());
    crypto.cbc_encrypt(key, &[9; 16], &mut text).unwrap();
    let mut datagram = [&header[..], &[9; 16], &text].concat();
    let mut server = suite.channel(false, &KEY_BLOCK, false).unwrap();
    let mut records = Records::new(&mut datagram);
    let record = records.next_record().unwrap().unwrap();
    assert_eq!(server.open(crypto, record).ok().map(|opened| opened.to_vec()), content);
}

fn premaster(block: &[u8]) {
    let version = [254, 253];
    let secret = || {
        let rest = block.strip_prefix(&[0, 2])?;
        let end = rest.iter().position(|byte| *byte == 0).filter(|end| *end >= 8)?;
        let secret: [u8; PREMASTER_LEN] = rest[end + 1..].try_into().ok()?;
        secret.starts_with(&version).then_some(secret)
    };
    let random = Secret::new([0xaa; PREMASTER_LEN]);
    let expected = secret().unwrap_or(*random.expose());
    assert_eq!(*premaster_secret(block, block.len(), version, &random).expose(), expected);
    assert_eq!(premaster_secret(block, block.len() + 1, version, &random).expose(), random.expose());
}

/// The key block. It contains, in this order, the MAC key of the client, the MAC key of the server, the key of the
/// client and the key of the server.
const KEY_BLOCK: [u8; 96] = {
    let mut block = [0; 96];
    let mut i = 0;
    while i < block.len() {
        block[i] = i as u8;
        i += 1;
    }
    block
};

/// Reads a byte with the type of a handshake message, and the other bytes as the body of this message.
pub fn hello(data: &[u8]) {
    if let Some((&kind, body)) = data.split_first() {
        bodies(kind, body);
    }
}

fn bodies(kind: u8, body: &[u8]) {
    let read = HandshakeMessage::read(MessageType(kind), body);
    if let Ok(HandshakeMessage::ClientHello { cookie, around_cookie: [before, behind], .. }) = read {
        assert_eq!(before.len() + 1 + cookie.len() + behind.len(), body.len());
    }
}

/// Reads the bytes of a serial line: frames, and the packets in them. Frames and packets must be unchanged after they
/// are written and parsed again.
pub fn slip_ip(data: &[u8]) {
    let mut storage = [0; 300];
    let mut decoder = Decoder::new(&mut storage);
    for &byte in data {
        let Some(frame) = decoder.push(byte) else { continue };
        let line: Vec<u8> = encode(&*frame).collect();
        let mut again = [0; 300];
        let mut second = Decoder::new(&mut again);
        let decoded = line.iter().filter_map(|&byte| second.push(byte).map(|frame| frame.to_vec()));
        assert_eq!(decoded.collect::<Vec<_>>(), [frame.to_vec()]);
        let _ = Control::parse(frame);
        packet(frame);
    }
    packet(&mut data.to_vec());
}

fn packet(bytes: &mut [u8]) {
    let Ok(datagram) = Datagram::parse(bytes) else { return };
    // The datagram must be unchanged after it is written and parsed again.
    let path = Path { local: datagram.path.remote, remote: datagram.path.local };
    let headers = headers(&path, 64, datagram.payload).expect("it has the length of a datagram");
    assert_eq!(Datagram::parse(&mut [&headers[..], datagram.payload].concat()), Ok(datagram));
}

/// Reads formats that hosts use: representations that are shown to a user, SenML packs, problem details and URIs. A
/// SenML pack and the details of a problem must be unchanged after they are written and parsed again.
pub fn formats(data: &[u8]) {
    let Some((&format, bytes)) = data.split_first() else { return };
    for number in [u32::from(format), 40, 50, 60, 110, 112, 257] {
        let _ = tegmen_host::formats::show(Some(number), bytes);
    }
    // The readers accept a record whose value has an unknown label. The writers refuse such a record.
    if let Ok(pack) = tegmen_host::senml::from_json(bytes)
        && let Ok(written) = tegmen_host::senml::to_json(&pack)
    {
        assert_eq!(tegmen_host::senml::from_json(&written).expect("our own"), pack);
    }
    if let Ok(pack) = tegmen_host::senml::from_cbor(bytes)
        && let Ok(written) = tegmen_host::senml::to_cbor(&pack)
    {
        assert_eq!(tegmen_host::senml::from_cbor(&written).expect("our own"), pack);
    }
    if let Ok(problem) = tegmen_host::problem::Problem::from_cbor(bytes) {
        assert_eq!(tegmen_host::problem::Problem::from_cbor(&problem.to_cbor()), Ok(problem));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(uri) = tegmen_host::uri::Uri::parse(text)
    {
        assert!(uri.path.iter().all(|segment| segment.len() <= text.len()));
    }
}
