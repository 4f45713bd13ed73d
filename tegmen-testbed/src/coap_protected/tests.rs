use super::*;
use tegmen::crypto::RustCrypto;

fn resource(key_id: u16, uri: &str, kept: u64, end: u64) -> Resource {
    let mut resource = Resource::new::<RustCrypto>(Secret::new([7; KEY_LEN]), key_id, uri.as_bytes(), kept);
    resource.extend(end);
    resource
}

fn sealed(producer: &mut Resource, payload: &[u8]) -> Result<Vec<u8>, PayloadError> {
    let mut out = [0; 64];
    producer.seal(&mut RustCrypto::new([1; 32]), payload, &mut out).map(<[u8]>::to_vec)
}

fn opened(reader: &Resource, mut payload: Vec<u8>) -> Result<Vec<u8>, NotAuthentic> {
    reader.open(&mut RustCrypto::new([1; 32]), &mut payload).map(<[u8]>::to_vec)
}

#[test]
fn a_payload_grows_by_twelve_bytes_and_comes_back() {
    let (mut producer, reader) = (resource(3, "/t", 0, 10), resource(3, "/t", 0, 0));
    for payload in [&b""[..], b"2", b"21.5 degrees, measured in the shade"] {
        let wire = sealed(&mut producer, payload).unwrap();
        assert_eq!(wire.len(), payload.len() + OVERHEAD);
        assert_eq!((OVERHEAD, &wire[..3]), (12, &[0, 3, 0][..]));
        assert_eq!(opened(&reader, wire).unwrap(), payload);
    }
}

#[test]
fn whatever_is_changed_is_refused_and_so_is_the_content_of_another_uri_or_key() {
    let (mut producer, reader) = (resource(3, "/t", 0, 10), resource(3, "/t", 0, 0));
    let wire = sealed(&mut producer, b"ab").unwrap();
    for at in 0..wire.len() {
        let mut changed = wire.clone();
        changed[at] ^= 1;
        assert_eq!(opened(&reader, changed), Err(NotAuthentic), "byte {at}");
        assert_eq!(opened(&reader, wire[..at].to_vec()), Err(NotAuthentic), "{at} bytes");
    }
    for other in [resource(3, "/u", 0, 0), resource(4, "/t", 0, 0)] {
        assert_eq!(opened(&other, wire.clone()), Err(NotAuthentic));
    }
    // As the limits of the module state, an old one is accepted again.
    assert_eq!(opened(&reader, wire.clone()), opened(&reader, wire));
}

#[test]
fn no_number_comes_twice_and_the_last_is_the_last() {
    let mut producer = resource(3, "/t", 0, 2);
    let first = sealed(&mut producer, b"a").unwrap();
    let second = sealed(&mut producer, b"a").unwrap();
    assert_ne!(first, second);
    assert_eq!(sealed(&mut producer, b"a"), Err(PayloadError::LeaseSpent));
    // After a power cut it continues at the end that was kept.
    assert_eq!(sealed(&mut resource(3, "/t", 2, 3), b"a").unwrap()[2..4], [0, 2]);
    let mut last = resource(3, "/t", MAX_MESSAGES - 1, u64::MAX);
    assert_eq!(sealed(&mut last, b"a").unwrap()[2..4], [0xff, 0xff]);
    assert_eq!(sealed(&mut last, b"a"), Err(PayloadError::Exhausted));
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut producer = resource(3, "/t", 0, 100);
    for room in 0..OVERHEAD + 2 {
        let mut out = [0; 64];
        let sealed = producer.seal(&mut RustCrypto::new([1; 32]), b"ab", &mut out[..room]).map(<[u8]>::len);
        assert_eq!(sealed, Err(PayloadError::Full), "{room}");
    }
}
