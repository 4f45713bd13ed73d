//! Handshake messages (RFC 6347, section 4.2): one file each, reading and writing together.

pub mod certificate;
pub mod certificate_request;
pub mod client_hello;
pub mod extension;
pub mod finished;
pub mod hello_verify_request;
pub mod key_exchange;
pub mod new_session_ticket;
pub mod server_hello;
pub mod server_key_exchange;

use super::VERSION;
use crate::buf::{Full, Reader, Truncated, Writer};

/// Bytes of a handshake header.
pub const HEADER_LEN: usize = 12;

/// The first byte of a handshake message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageType(pub u8);

impl MessageType {
    /// Asks for a renegotiation, which is refused here.
    pub const HELLO_REQUEST: Self = Self(0);
    /// Opens a handshake.
    pub const CLIENT_HELLO: Self = Self(1);
    /// Chooses what the client offered.
    pub const SERVER_HELLO: Self = Self(2);
    /// Asks the client to prove its address.
    pub const HELLO_VERIFY_REQUEST: Self = Self(3);
    /// Carries what the client can resume the session with.
    pub const NEW_SESSION_TICKET: Self = Self(4);
    /// Carries a chain of certificates, or a raw public key.
    pub const CERTIFICATE: Self = Self(11);
    /// Carries the PSK identity hint, and the server's share of an agreement.
    pub const SERVER_KEY_EXCHANGE: Self = Self(12);
    /// Asks the client for a certificate.
    pub const CERTIFICATE_REQUEST: Self = Self(13);
    /// Ends the server's flight; empty.
    pub const SERVER_HELLO_DONE: Self = Self(14);
    /// Proves that the client has the private key of its certificate.
    pub const CERTIFICATE_VERIFY: Self = Self(15);
    /// Carries the PSK identity, and the client's share of an agreement.
    pub const CLIENT_KEY_EXCHANGE: Self = Self(16);
    /// Proves that both saw the same handshake.
    pub const FINISHED: Self = Self(20);
}

/// A handshake message or a piece of one.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'r> {
    /// Where it lies: a mote keeps what it says in one register.
    pub(crate) header: &'r [u8; HEADER_LEN],
    /// The piece.
    pub body: &'r [u8],
}

impl<'r> Fragment<'r> {
    /// Reads one fragment; a piece that would reach past its message does not parse.
    pub fn read(reader: &mut Reader<'r>) -> Result<Self, Truncated> {
        let header = reader.array_ref::<HEADER_LEN>()?;
        let [.., before, high, middle, low] = *header;
        let body = reader.take(u24([before, high, middle, low]) as usize)?;
        let fragment = Self { header, body };
        match fragment.offset().wrapping_add(body.len() as u32) > fragment.length() {
            true => Err(Truncated),
            false => Ok(fragment),
        }
    }

    /// Type of the whole message.
    pub const fn message_type(&self) -> MessageType {
        let [kind, ..] = *self.header;
        MessageType(kind)
    }

    /// Length of the whole message in bytes, without this header.
    #[inline(never)]
    pub const fn length(&self) -> u32 {
        let [before, high, middle, low, ..] = *self.header;
        u24([before, high, middle, low])
    }

    /// Number of the message in its sender's handshake.
    pub const fn message_seq(&self) -> u16 {
        let [_, _, _, _, high, low, ..] = *self.header;
        u16::from_be_bytes([high, low])
    }

    /// Where this piece begins.
    #[inline(never)]
    pub const fn offset(&self) -> u32 {
        let [_, _, _, _, _, before, high, middle, low, ..] = *self.header;
        u24([before, high, middle, low])
    }

    /// True if this is the whole message.
    pub const fn is_whole(&self) -> bool {
        self.body.len() as u32 == self.length()
    }
}

/// Three bytes, and the one before them, which is not looked at: so they are loaded as one word.
#[inline(never)]
const fn u24(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & 0xff_ffff
}

/// A handshake header. The transcript hash takes it as if the message came in one piece (RFC 6347, section 4.2.6).
#[inline(never)]
pub(crate) fn header(kind: MessageType, length: u32, seq: u16, offset: u32, fragment: u32) -> [u8; HEADER_LEN] {
    let [_, l0, l1, l2] = length.to_be_bytes();
    let [s0, s1] = seq.to_be_bytes();
    let [_, o0, o1, o2] = offset.to_be_bytes();
    let [_, f0, f1, f2] = fragment.to_be_bytes();
    [kind.0, l0, l1, l2, s0, s1, o0, o1, o2, f0, f1, f2]
}

/// Protocol version, random and all else that both hellos begin with.
pub(crate) type Random = [u8; 32];

/// A body that is read to its last byte.
pub(crate) fn end(reader: &Reader<'_>) -> Result<(), Truncated> {
    if reader.is_empty() { Ok(()) } else { Err(Truncated) }
}

pub(crate) type Write = Result<(), Full>;

/// What both hellos begin with, before the session id (RFC 5246, sections 7.4.1.2 and 7.4.1.3).
fn write_hello(writer: &mut Writer<'_>, random: &Random) -> Write {
    writer.put(&VERSION)?;
    writer.put(random)
}

#[cfg(test)]
mod tests {
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

    /// Everything that reads a body; none may panic, whatever the bytes are.
    fn read_all(body: &[u8]) {
        let _ = client_hello::ClientHello::read(body, true);
        let _ = server_hello::ServerHello::read(body, true);
        let _ = hello_verify_request::read(body);
        let _ = key_exchange::read(body);
        let _ = new_session_ticket::read(body);
        let _ = Extensions::read(&mut Reader::new(body), true);
        let _ = Fragment::read(&mut Reader::new(body));
    }

    /// A body reads as a whole and in no other length: one that is cut, or has a byte more, is refused.
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
}
