//! Tests of records.

use super::*;
use crate::buf::Frame;
use crate::crypto::Compact;
use crate::crypto::Crypto as _;
use crate::crypto::RustCrypto;
use crate::crypto::hash::{DIGEST_LEN, Hmac, SHA1_LEN};
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

fn pair() -> (Channel, Channel) {
    pair_of(Cipher::Ccm8)
}

pub(crate) fn pair_of(cipher: Cipher) -> (Channel, Channel) {
    let block: [u8; KEY_BLOCK_LEN] = core::array::from_fn(|i| i as u8);
    let with_keys = |client| {
        let mut channel = Channel::none();
        channel.set_keys(&block, client, cipher).unwrap();
        channel
    };
    (with_keys(true), with_keys(false))
}

const CIPHERS: [Cipher; 7] = [
    Cipher::Ccm8,
    Cipher::Gcm,
    Cipher::ChaCha20Poly1305,
    Cipher::CbcSha256,
    Cipher::CbcSha256EncryptThenMac,
    Cipher::CbcSha,
    Cipher::CbcShaEncryptThenMac,
];

fn sealed(channel: &mut Channel, content_type: ContentType, content: &[u8]) -> Result<Vec<u8>, SealError> {
    let headroom = HEADER_LEN + cipher::BLOCK_LEN;
    let mut storage = std::vec![0; content.len() + headroom + cipher::MAX_TAIL_LEN];
    let mut frame = Frame::new(&mut storage, headroom);
    frame.append(content).unwrap();
    channel.seal(&mut RustCrypto::new([0; 32]), content_type, &mut frame)?;
    Ok(frame.finish().to_vec())
}

fn opened(channel: &mut Channel, mut datagram: Vec<u8>) -> Result<Vec<u8>, Discard> {
    let mut records = Records::new(&mut datagram);
    let record = records.next_record().unwrap()?;
    channel.open(&mut RustCrypto::new([0; 32]), record).map(|content| content.to_vec())
}

#[test]
fn the_sequence_limit_stops_the_sealing() {
    let (mut client, _) = pair();
    client.skip_to(MAX_SEALED - 1);
    assert!(!client.is_exhausted());
    sealed(&mut client, ContentType::APPLICATION_DATA, b"last").unwrap();
    assert!(client.is_exhausted());
    for _ in 0..3 {
        assert_eq!(sealed(&mut client, ContentType::ALERT, b"more"), Err(SealError::KeyExhausted));
        assert_eq!(client.sealed(), MAX_SEALED);
    }
}

#[test]
fn a_number_is_not_used_again_after_a_seal_that_failed() {
    let (mut client, _) = pair();
    for (room, headroom) in [(40, HEADROOM), (60, HEADROOM - 1), (60, 0)] {
        let mut storage = std::vec![0; room];
        let mut frame = Frame::new(&mut storage, headroom);
        frame.append(&[7; 12]).unwrap();
        let outcome = client.seal(&mut Compact::new([0; 32]), ContentType::APPLICATION_DATA, &mut frame);
        assert_eq!(outcome, Err(SealError::Full), "{room} {headroom}");
    }
    let next = sealed(&mut client, ContentType::APPLICATION_DATA, b"next").unwrap();
    assert!(u64::from_be_bytes(next[3..11].try_into().unwrap()) >= 1 << 48 | 2);
}

#[test]
fn too_many_failed_opens_exhaust_the_key() {
    let (mut client, mut server) = pair();
    let good = sealed(&mut client, ContentType::APPLICATION_DATA, b"good").unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    for _ in 0..MAX_FAILED {
        assert!(!server.is_exhausted());
        assert_eq!(opened(&mut server, bad.clone()), Err(Discard::NotAuthentic));
    }
    assert!(server.is_exhausted());
    assert_eq!(opened(&mut server, good), Err(Discard::NotAuthentic));
}

#[test]
fn forgeries_of_a_long_tag_do_not_exhaust_the_key() {
    for cipher in CIPHERS.into_iter().filter(|cipher| *cipher != Cipher::Ccm8) {
        let (mut client, mut server) = pair_of(cipher);
        let good = sealed(&mut client, ContentType::APPLICATION_DATA, b"good").unwrap();
        let mut bad = good.clone();
        *bad.last_mut().unwrap() ^= 1;
        for _ in 0..2 * MAX_FAILED {
            assert_eq!(opened(&mut server, bad.clone()), Err(Discard::NotAuthentic));
        }
        assert!(!server.is_exhausted());
        assert_eq!(opened(&mut server, good).unwrap(), b"good", "{cipher:?}");
    }
}

#[test]
fn a_record_opens_for_the_other_end_only() {
    for (cipher, overhead) in
        CIPHERS.into_iter().zip([OVERHEAD, 13 + 8 + 16, 13 + 16, 13 + 16 + 32 + 3, 13 + 16 + 3 + 32])
    {
        let (mut client, mut server) = pair_of(cipher);
        let record = sealed(&mut client, ContentType::APPLICATION_DATA, b"to the server").unwrap();
        assert_eq!(record.len(), 13 + overhead);
        assert_eq!(opened(&mut client, record.clone()), Err(Discard::NotAuthentic));
        assert_eq!(opened(&mut server, record.clone()).unwrap(), b"to the server");
        assert_eq!(opened(&mut server, record), Err(Discard::Replayed));
    }
}

#[test]
fn a_record_of_chacha20_is_what_rfc_7905_says() {
    let (mut client, _) = pair_of(Cipher::ChaCha20Poly1305);
    client.skip_to(7);
    let record = sealed(&mut client, ContentType::APPLICATION_DATA, b"content").unwrap();
    // Client key, server key, client iv, server iv: the block counts from 0.
    let key: [u8; 32] = core::array::from_fn(|i| i as u8);
    let mut nonce: [u8; 12] = core::array::from_fn(|i| 64 + i as u8);
    nonce[5] ^= 1; // epoch
    nonce[11] ^= 7; // sequence_number
    let aad = [0, 1, 0, 0, 0, 0, 0, 7, 23, 254, 253, 0, 7];
    let (mut body, mut tag) = (*b"content", [0; 16]);
    let chacha20 = RustCrypto::CHACHA20_POLY1305.unwrap();
    RustCrypto::new([0; 32]).seal(chacha20, &key, &nonce, &aad, &mut body, &mut tag).unwrap();
    assert_eq!(record, [&[23, 254, 253, 0, 1, 0, 0, 0, 0, 0, 7, 0, 23][..], &body, &tag].concat());
}

#[test]
fn keys_of_one_cipher_are_gone_when_those_of_another_are_set() {
    let (mut client, _) = pair_of(Cipher::ChaCha20Poly1305);
    assert!(client.keys().long.get().is_some());
    client.set_keys(&[9; KEY_BLOCK_LEN], true, Cipher::Ccm8).unwrap();
    assert!(client.keys().long.get().is_none());
    let (mut client, mut server) = pair_of(Cipher::ChaCha20Poly1305);
    let record = sealed(&mut client, ContentType::APPLICATION_DATA, b"late").unwrap();
    server.wipe();
    assert!(server.keys().long.get().is_none());
    assert_eq!(opened(&mut server, record), Err(Discard::NotAuthentic));
}

/// Returns the MAC of a record of CBC under the client's key. The hash has digests of `LEN` bytes.
fn code<const LEN: usize>(header: &[u8; HEADER_LEN], content: &[u8]) -> [u8; LEN] {
    let mac_key: [u8; LEN] = core::array::from_fn(|i| i as u8);
    let aad = cipher::associated_data(header, content.len() as u16);
    Hmac::<LEN>::new::<RustCrypto>(&[&mac_key]).mac::<RustCrypto>(&[&aad, content])
}

/// Returns the length of the content in a decrypted record of CBC. Follows the description in RFC 5246, section
/// 6.2.3.2, and does not run in constant time.
fn content_of<const LEN: usize>(text: &[u8], header: &[u8; HEADER_LEN]) -> Option<usize> {
    let padding = usize::from(*text.last()?);
    let behind = text.len().checked_sub(padding + 1)?;
    let len = behind.checked_sub(LEN)?;
    let right = text[len..behind] == code::<LEN>(header, &text[..len]);
    (text[behind..].iter().all(|byte| usize::from(*byte) == padding) && right).then_some(len)
}

/// Opens records of several lengths with every padding, right and wrong, and with right and wrong MACs. Asserts that
/// a record opens only if its padding and its MAC are right.
fn opens_when_padding_and_code_are_right<const LEN: usize>(cipher: Cipher, blocks: &[usize]) {
    let crypto = &mut RustCrypto::new([0; 32]);
    let key: [u8; 16] = core::array::from_fn(|i| (2 * LEN + i) as u8);
    let (mut taken, mut refused) = (0, 0);
    for blocks in blocks {
        for padding in 0..=255_usize {
            for wrong in 0..6 {
                let mut text: Vec<u8> = (0..blocks * 16).map(|i| i as u8).collect();
                let header = header(ContentType::APPLICATION_DATA, RecordNumber::new(1, 0), text.len() as u16 + 16);
                let (_, mut server) = pair_of(cipher);
                let total = text.len();
                // A padding that is too long is cut to the text.
                let behind = total.saturating_sub(padding + 1);
                text[behind..].fill(padding as u8);
                if let Some(len) = behind.checked_sub(LEN) {
                    let code = code::<LEN>(&header, &text[..len]);
                    text[len..behind].copy_from_slice(&code);
                }
                let at = match wrong {
                    0 => total,
                    1 => behind,
                    2 => behind + padding / 2,
                    3 => total - 1,
                    4 => behind.saturating_sub(1),
                    _ => behind.saturating_sub(LEN),
                };
                if let Some(byte) = text.get_mut(at) {
                    *byte ^= 0x10;
                }
                let expected = content_of::<LEN>(&text, &header).map(|len| text[..len].to_vec());
                crypto.cbc_encrypt(&key, &[9; 16], &mut text).unwrap();
                let datagram = [&header[..], &[9; 16], &text].concat();
                assert_eq!(opened(&mut server, datagram).ok(), expected, "{blocks} {padding} {wrong}");
                match expected {
                    Some(_) => taken += 1,
                    None => refused += 1,
                }
            }
        }
    }
    assert!(taken > 1000 && refused > 5000, "{taken} {refused}");
}

#[test]
fn a_record_with_mac_then_encrypt_opens_when_padding_and_code_are_right() {
    opens_when_padding_and_code_are_right::<DIGEST_LEN>(Cipher::CbcSha256, &[3, 4, 7, 16, 17, 18, 19, 23, 40]);
    opens_when_padding_and_code_are_right::<SHA1_LEN>(Cipher::CbcSha, &[2, 3, 4, 7, 16, 17, 18, 19, 23, 40]);
}

#[test]
fn a_record_of_cbc_has_another_vector_each_time_and_as_little_padding_as_can_be() {
    for (cipher, mac, before) in [
        (Cipher::CbcSha256, 32, 32),
        (Cipher::CbcSha256EncryptThenMac, 32, 0),
        (Cipher::CbcSha, 20, 20),
        (Cipher::CbcShaEncryptThenMac, 20, 0),
    ] {
        let (mut client, mut server) = pair_of(cipher);
        let mut generator = RustCrypto::new([3; 32]);
        let mut vectors = std::collections::HashSet::new();
        for len in 0..100_usize {
            let mut storage = [0; 300];
            let mut frame = Frame::new(&mut storage, 29);
            frame.append(&std::vec![7; len]).unwrap();
            client.seal(&mut generator, ContentType::APPLICATION_DATA, &mut frame).unwrap();
            let record = frame.finish().to_vec();
            assert_eq!(record.len(), 13 + 16 + (len + before + 1).next_multiple_of(16) + mac - before);
            assert!(vectors.insert(record[13..29].to_vec()));
            // In all of it each bit counts.
            for byte in 13..record.len() {
                let mut forged = record.clone();
                forged[byte] ^= 1 << (len % 8);
                let (_, mut other) = pair_of(cipher);
                assert!(opened(&mut other, forged).is_err(), "{len} {byte}");
            }
            assert_eq!(opened(&mut server, record).unwrap(), std::vec![7; len]);
        }
    }
}

proptest! {
    #[test]
    fn what_is_sealed_is_opened(
        contents in vec(vec(any::<u8>(), 0..200), 1..10),
        kind: u8,
        order: u64,
        cipher in 0u8..7,
    ) {
        let (mut client, mut server) = pair_of(Cipher::from_byte(cipher).unwrap());
        let mut records: Vec<_> = contents.iter().map(|content| {
            (content, sealed(&mut client, ContentType(kind), content).unwrap())
        }).collect();
        let turn = order as usize % records.len();
        records.rotate_left(turn);
        for (content, record) in records {
            prop_assert_eq!(&opened(&mut server, record).unwrap(), content);
        }
    }

    #[test]
    fn any_datagram_splits_into_records_without_a_byte_made_up(bytes in vec(any::<u8>(), 0..200), fix: bool) {
        let mut datagram = bytes.clone();
        if fix {
            // Headers that parse, and bodies of a few bytes.
            for header in datagram.chunks_mut(17) {
                for (to, from) in header.iter_mut().zip([22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]) {
                    *to = from;
                }
            }
        }
        let whole = datagram.clone();
        let mut at = 0;
        let mut records = Records::new(&mut datagram);
        while let Some(outcome) = records.next_record() {
            match outcome {
                Ok(record) => {
                    let len = HEADER_LEN + record.body.len();
                    prop_assert_eq!(&whole[at + HEADER_LEN..at + len], &*record.body);
                    prop_assert_eq!(&whole[at + 3..at + 11], &record.number().0.to_be_bytes()[..]);
                    at += len;
                }
                Err(_) => {
                    prop_assert!(records.next_record().is_none(), "what does not parse ends the datagram");
                    at = whole.len();
                }
            }
        }
        prop_assert_eq!(at, whole.len());
    }

    #[test]
    fn any_record_is_refused_or_was_sealed(bytes in vec(any::<u8>(), 0..80), sequence in 0u64..3, cipher in 0u8..7) {
        let (_, mut server) = pair_of(Cipher::from_byte(cipher).unwrap());
        let body = header(ContentType::APPLICATION_DATA, RecordNumber::new(1, sequence), bytes.len() as u16);
        prop_assert!(opened(&mut server, [&body[..], &bytes].concat()).is_err());
    }
}
