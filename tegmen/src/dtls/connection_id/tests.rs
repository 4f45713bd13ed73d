use super::*;
use crate::buf::Frame;
use crate::crypto::RustCrypto;
use crate::dtls::record::connection_id::inner;
use crate::dtls::record::tests::pair_of;
use crate::dtls::record::{Cipher, ContentType, Records};
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

#[test]
fn what_a_server_may_not_answer_ends_the_handshake() {
    let id = ConnectionId::new(b"abc").unwrap();
    let answer = |connection_id, rrc| Hello { connection_id, rrc };
    let mut without_check = ConnectionIds::offered(id, false);
    assert_eq!(without_check.answered(&answer(Some(b"x"), true)), Err(Fatal::UnsupportedExtension));
    let mut offered = ConnectionIds::offered(id, true);
    assert_eq!(offered.answered(&answer(None, true)), Err(Fatal::UnsupportedExtension));
    assert_eq!(offered.answered(&answer(Some(&[0; 21]), false)), Err(Fatal::TooLarge));
    assert_eq!((offered.answered(&answer(None, false)), offered.received()), (Ok(()), None));
    assert_eq!((offered.answered(&answer(Some(b"x"), true)), offered.received()), (Ok(()), Some(&id)));
}

proptest! {
    #[test]
    fn a_record_with_an_id_opens_as_it_was_sealed_and_not_when_a_bit_of_it_changed(
        content in vec(any::<u8>(), 0..60),
        id in vec(any::<u8>(), 1..21),
        padding in 0usize..40,
        kind in 1u8..,
        cipher in 0u8..5,
        flip: u16,
    ) {
        let crypto = &mut RustCrypto::new([2; 32]);
        let (mut client, mut server) = pair_of(Cipher::from_byte(cipher).unwrap());
        let id = ConnectionId::new(&id).unwrap();
        let len = id.bytes().len();
        let mut storage = [0xaa; 200];
        let before = client.headroom::<RustCrypto>() + len;
        let mut frame = Frame::new(&mut storage, before);
        frame.append(&content).unwrap();
        let inner = content.len() + 1 + padding;
        let behind = 1 + padding + client.tailroom::<RustCrypto>(inner);
        let record = frame.widen(before, behind).unwrap();
        client.seal_with_id(crypto, ContentType(kind), &id, content.len(), inner, record).unwrap();
        let sealed: Vec<u8> = record.to_vec();
        for bit in [Some(usize::from(flip) % (sealed.len() * 8)), None] {
            let mut datagram = sealed.clone();
            if let Some(bit) = bit {
                datagram[bit / 8] ^= 1 << (bit % 8);
            }
            // A record with another id is not opened: nobody is found by it.
            let mut records = Records::new(&mut datagram);
            let found = records.take_with_id(len).filter(|(found, _)| *found == id.bytes());
            let opened = found.map(|(_, record)| server.open_with_id(crypto, &id, record));
            match bit {
                None => prop_assert_eq!(opened, Some(Ok((ContentType(kind), &mut content.clone()[..])))),
                Some(_) => prop_assert!(!matches!(opened, Some(Ok(_))), "bit {:?}", bit),
            }
        }
    }

    #[test]
    fn readers_of_hellos_and_of_inner_plaintexts_are_total(mut bytes in vec(any::<u8>(), 0..120)) {
        let _ = Hello::of_client(&bytes);
        let _ = Hello::of_server(&bytes);
        if let Some(packed) = bytes.first_chunk() {
            let _ = ConnectionIds::unpack(packed);
        }
        let zeros = bytes.iter().all(|byte| *byte == 0);
        prop_assert_eq!(inner(&mut bytes).is_none(), zeros);
    }
}
