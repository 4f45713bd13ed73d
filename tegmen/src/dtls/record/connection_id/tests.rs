use super::*;
use crate::crypto::RustCrypto;

#[test]
fn the_associated_data_is_that_of_section_5_3() {
    let header = [25, 254, 253, 0, 1, 0, 0, 0, 0, 0, 7, 0, 99];
    let id = ConnectionId::new(b"abc").unwrap();
    let expected = [
        &[0xff; 8][..],            // seq_num_placeholder
        &[25, 3],                  // tls12_cid, cid_length
        &[25, 254, 253],           // tls12_cid, version
        &[0, 1, 0, 0, 0, 0, 0, 7], // epoch, sequence_number
        b"abc",                    // cid
        &[1, 2],                   // length_of_DTLSInnerPlaintext
    ];
    assert_eq!(associated_data(&header, &id, 0x102).as_ref(), expected.concat());
}

#[test]
fn an_id_is_of_twenty_bytes_at_most_and_begins_with_its_shard() {
    assert!(ConnectionId::new(&[1; 20]).is_some() && ConnectionId::new(&[1; 21]).is_none());
    let crypto = &mut RustCrypto::new([1; 32]);
    for len in [0, 1, 8, 20, 255] {
        let (one, two) = (ConnectionId::random(crypto, len, 9), ConnectionId::random(crypto, len, 9));
        assert_eq!(one.bytes().len(), usize::from(len.min(20)));
        assert!(one.bytes().first().is_none_or(|shard| *shard == 9));
        assert_eq!(one == two, len < 2, "{len}");
    }
}
