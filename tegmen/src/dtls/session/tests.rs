use super::*;
use crate::crypto::Compact;
use crate::dtls::record::connection_id::ConnectionId;
use std::vec::Vec;

fn ids() -> ConnectionIds {
    let id = |bytes| ConnectionId::new(bytes).unwrap();
    ConnectionIds::agreed(id(b"12345678"), id(&[9; 20]), true)
}

fn session(cipher: Cipher) -> Session {
    let long = |byte| LongKey::of_bytes(&[byte; LONG_KEY_LEN]);
    let key = |byte| TrafficKey { key: Secret::new([byte; 16]), salt: [byte; 4] };
    let keys = match cipher.is_long() {
        true => Keys { long: LongKeys::new(long(5), long(6)), ..Keys::none() },
        false => Keys { write: key(1), read: key(3), ..Keys::none() },
    };
    let window = ReplayWindow::seen_up_to(99);
    Session { keys, cipher, record_size: RecordSize::from_bits(512), next: 70_000, window, ids: Some(ids()) }
}

fn sealed(cipher: Cipher, purpose: &[u8]) -> Vec<u8> {
    let mut storage = [0; SEALED_SESSION_LEN];
    let mut writer = Writer::new(&mut storage);
    session(cipher).seal(&mut Compact::new([0; 32]), &[9; 16], purpose, &mut writer).unwrap();
    writer.written().to_vec()
}

#[test]
fn a_sealed_session_opens_as_it_was_and_only_as_it_was() {
    for (cipher, len) in [
        (Cipher::Gcm, SEALED_SESSION_LEN - 56),
        (Cipher::ChaCha20Poly1305, SEALED_SESSION_LEN),
        (Cipher::CbcSha256, SEALED_SESSION_LEN),
        (Cipher::CbcShaEncryptThenMac, SEALED_SESSION_LEN),
    ] {
        opens_as_it_was(cipher, len);
    }
}

fn opens_as_it_was(cipher: Cipher, len: usize) {
    let crypto = &mut Compact::new([7; 32]);
    let (before, bytes) = (session(cipher), sealed(cipher, b"peer"));
    assert_eq!(bytes.len(), len);
    let got = Session::open(crypto, &[9; 16], b"peer", &bytes).unwrap();
    assert_eq!(
        (got.cipher, got.record_size.to_bits(), got.next, got.window.parts()),
        (cipher, 512, 70_000, (100, u64::MAX))
    );
    assert_eq!(got.ids, Some(ids()));
    let short = |session: &Session| {
        let (write, read) = (&session.keys.write, &session.keys.read);
        (*write.key.expose(), write.salt, *read.key.expose(), read.salt)
    };
    let long = |session: &Session| session.keys.long.get().map(|keys| keys.each_ref().map(|key| *key.bytes()));
    assert_eq!((short(&got), long(&got)), (short(&before), long(&before)));
    for cut in 0..bytes.len() {
        assert_eq!(Session::open(crypto, &[9; 16], b"peer", &bytes[..cut]).err(), Some(NotAuthentic));
    }
    for bit in 0..bytes.len() * 8 {
        let mut forged = bytes.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert!(Session::open(crypto, &[9; 16], b"peer", &forged).is_err());
    }
    assert_eq!(Session::open(crypto, &[8; 16], b"peer", &bytes).err(), Some(NotAuthentic));
    assert_eq!(Session::open(crypto, &[9; 16], b"else", &bytes).err(), Some(NotAuthentic));
    assert_eq!(Session::open(crypto, &[9; 16], b"peer", &[&bytes[..], &[0]].concat()).err(), Some(NotAuthentic));
}

#[test]
fn a_session_is_usable_as_long_as_its_key_has_numbers() {
    let mut session = session(Cipher::Gcm);
    session.go_on(MAX_SEALED - 1, None);
    assert!(session.is_usable());
    session.go_on(MAX_SEALED, None);
    assert!(!session.is_usable());
}
