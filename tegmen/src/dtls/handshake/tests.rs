use super::*;
use crate::dtls::CipherSuite;
use extension::Extensions;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

fn written(write: impl FnOnce(&mut Writer<'_>) -> Write) -> Vec<u8> {
    let mut storage = [0; 600];
    let mut writer = Writer::new(&mut storage);
    write(&mut writer).unwrap();
    writer.written().to_vec()
}

fn hello(random: &Random, cookie: &[u8], minimal: bool) -> Vec<u8> {
    written(|w| {
        client_hello::write_front(w, random, &[], cookie)?;
        w.put(if minimal { &client_hello::MINIMAL_OFFER } else { &client_hello::DEFAULT_OFFER })
    })
}

fn answer(random: &Random, extensions: Extensions) -> Vec<u8> {
    written(|w| {
        server_hello::write_front(w, random, &[], CipherSuite::PSK_WITH_AES_128_CCM_8)?;
        w.put(extensions.bytes())
    })
}

/// Calls all functions that read a body. None of them may panic, for any bytes.
fn read_all(body: &[u8]) {
    let _ = client_hello::ClientHello::read(body, true);
    let _ = server_hello::ServerHello::read(body, true);
    let _ = hello_verify_request::read(body);
    let _ = key_exchange::read(body);
    let _ = new_session_ticket::read(body);
    let _ = Extensions::read(&mut Reader::new(body), true);
    let _ = Fragment::read(&mut Reader::new(body));
}

/// Asserts that `read` accepts the whole body, and refuses it if bytes are cut off or a byte is added.
fn only_whole<T>(body: &[u8], read: impl Fn(&[u8]) -> Option<T>) {
    assert!(read(body).is_some());
    for len in 0..body.len() {
        assert!(read(&body[..len]).is_none(), "{len} of {} bytes", body.len());
    }
    assert!(read(&[body, &[0]].concat()).is_none());
}

#[test]
fn a_body_that_is_cut_or_longer_is_refused() {
    let hello = hello(&[7; 32], &[1; 16], true);
    only_whole(&hello, |body| client_hello::ClientHello::read(body, true).ok().map(|_| ()));
    only_whole(&written(|w| hello_verify_request::write(w, &[1; 16])), |body| {
        hello_verify_request::read(body).ok().map(|_| ())
    });
    only_whole(&written(|w| new_session_ticket::write(w, b"\0\0\x0e\x10ticket")), |body| {
        new_session_ticket::read(body).ok().filter(|read| *read == (3600, &b"ticket"[..])).map(|_| ())
    });
    only_whole(&written(|w| key_exchange::write(w, b"identity")), |body| key_exchange::read(body).ok().map(|_| ()));
    let hello = answer(&[7; 32], Extensions::default());
    only_whole(&hello, |body| server_hello::ServerHello::read(body, true).ok().map(|_| ()));
}

#[test]
fn a_certificate_request_takes_only_keys_of_the_types_that_it_lists() {
    use crate::crypto::SignatureScheme;
    // rsa_sign is 1, ecdsa_sign 64; both schemes are listed in each case.
    for (types, rsa, ecdsa) in
        [(&[2, 64, 1][..], true, true), (&[1, 1], true, false), (&[1, 64], false, true), (&[2, 2, 65], false, false)]
    {
        let body = [types, &[0, 4, 4, 3, 4, 1, 0, 0]].concat();
        let request = certificate_request::CertificateRequest::read(&body).unwrap();
        assert_eq!(request.accepts(SignatureScheme::RSA_PKCS1_SHA256), rsa, "{types:?}");
        assert_eq!(request.accepts(SignatureScheme::ECDSA_SECP256R1_SHA256), ecdsa, "{types:?}");
    }
}

#[test]
fn a_certificate_request_with_an_empty_list_is_refused() {
    let read = |body: &[u8]| certificate_request::CertificateRequest::read(body).is_ok();
    assert!(read(&[1, 64, 0, 2, 4, 3, 0, 0]));
    assert!(!read(&[0, 0, 2, 4, 3, 0, 0]), "no types of keys");
    assert!(!read(&[1, 64, 0, 0, 0, 0]), "no schemes of signatures");
}

#[test]
fn a_hello_with_an_extension_twice_is_refused() {
    let block = |kinds: &[u16]| {
        let list: Vec<u8> = kinds.iter().flat_map(|kind| [&kind.to_be_bytes()[..], &[0, 0]].concat()).collect();
        [&(list.len() as u16).to_be_bytes()[..], &list].concat()
    };
    let reads = |kinds: &[u16]| Extensions::read(&mut Reader::new(&block(kinds)), true).is_ok();
    assert!(reads(&[]) && reads(&[0x17]) && reads(&[0x17, 0x0a0a, 0x16]));
    assert!(!reads(&[0x17, 0x17]) && !reads(&[0x17, 0x16, 0x0a0a, 0x16]) && !reads(&[0x0a0a, 0x17, 0x0a0a]));
    let many: Vec<u16> = (100..164).collect();
    assert!(reads(&many), "as many as anybody needs");
    assert!(!reads(&[&many[..], &[164]].concat()), "more");
}

proptest! {
    #[test]
    fn a_client_hello_is_read_as_written(random: [u8; 32], cookie in vec(any::<u8>(), 0..256), minimal: bool) {
        let body = hello(&random, &cookie, minimal);
        let hello = client_hello::ClientHello::read(&body, true).unwrap();
        prop_assert_eq!((hello.version, hello.random, hello.cookie), (VERSION, &random, &cookie[..]));
        prop_assert!(hello.offers(CipherSuite::PSK_WITH_AES_128_CCM_8) && hello.offers_null_compression());
        prop_assert_eq!(hello.signals_renegotiation_info(), !minimal);
        prop_assert_eq!(hello.extensions.extended_master_secret, !minimal);
        let [before, behind] = hello.around_cookie;
        prop_assert_eq!(before.len() + 1 + cookie.len() + behind.len(), body.len());
    }

    #[test]
    fn a_server_hello_is_read_as_written(random: [u8; 32], extended_master_secret: bool, renegotiation_info: bool) {
        let extensions = Extensions { extended_master_secret, renegotiation_info, ..Extensions::default() };
        let body = answer(&random, extensions);
        let hello = server_hello::ServerHello::read(&body, true).unwrap();
        prop_assert_eq!((hello.version, hello.random, hello.extensions), (VERSION, &random, extensions));
        prop_assert_eq!(hello.cipher_suite, CipherSuite::PSK_WITH_AES_128_CCM_8);
    }

    #[test]
    fn texts_are_read_as_written(text in vec(any::<u8>(), 0..256)) {
        let body = written(|w| hello_verify_request::write(w, &text));
        prop_assert_eq!(hello_verify_request::read(&body).unwrap(), &text[..]);
        let body = written(|w| key_exchange::write(w, &text));
        prop_assert_eq!(key_exchange::read(&body).unwrap(), &text[..]);
    }

    #[test]
    fn a_fragment_is_read_as_written(kind: u8, seq: u16, before in 0u32..1000, body in vec(any::<u8>(), 0..100), behind in 0u32..1000) {
        let len = body.len() as u32;
        let bytes = [&header(MessageType(kind), before + len + behind, seq, before, len)[..], &body].concat();
        let fragment = Fragment::read(&mut Reader::new(&bytes)).unwrap();
        prop_assert_eq!((fragment.message_type().0, fragment.message_seq()), (kind, seq));
        prop_assert_eq!((fragment.offset(), fragment.length(), fragment.body), (before, before + len + behind, &body[..]));
        prop_assert_eq!(fragment.is_whole(), before == 0 && behind == 0);
    }

    #[test]
    fn a_fragment_that_is_read_lies_within_its_message(bytes in vec(any::<u8>(), 12..40), small: bool) {
        let mut bytes = bytes;
        if small {
            for at in [1, 2, 6, 7, 9, 10] {
                bytes[at] = 0;
            }
        }
        if let Ok(fragment) = Fragment::read(&mut Reader::new(&bytes)) {
            prop_assert!(u64::from(fragment.offset()) + fragment.body.len() as u64 <= u64::from(fragment.length()));
        }
    }

    #[test]
    fn any_bytes_are_total(bytes in vec(any::<u8>(), 0..120)) {
        read_all(&bytes);
    }

    #[test]
    fn a_damaged_hello_is_total(at in any::<prop::sample::Index>(), value: u8, cut in any::<prop::sample::Index>()) {
        let mut body = hello(&[7; 32], &[1; 16], false);
        let at = at.index(body.len());
        body[at] = value;
        read_all(&body);
        read_all(&body[..cut.index(body.len())]);
    }
}
