//! ClientHello (RFC 6347, section 4.2.1).

use super::extension::{self, ExtensionType, Extensions};
use super::{Random, Write, end, write_hello};
use crate::buf::{Reader, Truncated, Writer};
use crate::dtls::CipherSuite;

/// A received ClientHello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientHello<'r> {
    /// The highest version that the client supports.
    pub(crate) version: [u8; 2],
    /// The random of the client.
    pub(crate) random: &'r Random,
    /// The cookie; empty in the first ClientHello of a handshake.
    pub(crate) cookie: &'r [u8],
    /// The cipher suites that the client offers, two bytes each.
    cipher_suites: &'r [u8],
    compression_methods: &'r [u8],
    /// The supported extensions in the message.
    pub(crate) extensions: Extensions,
    /// The body without its cookie, in two parts: the bytes before the length of the cookie, and the bytes after the
    /// cookie.
    pub(crate) around_cookie: [&'r [u8]; 2],
}

impl<'r> ClientHello<'r> {
    /// Reads the body of a ClientHello. `record_size` has the same meaning as in [`Extensions::read`].
    pub(crate) fn read(body: &'r [u8], record_size: bool) -> Result<Self, Truncated> {
        let mut reader = Reader::new(body);
        let Front { version, random, before, cookie } = Front::read(&mut reader)?;
        let behind = reader.rest();
        let cipher_suites = reader.with_len16()?;
        let compression_methods = reader.with_len8()?;
        if cipher_suites.is_empty() || cipher_suites.len() & 1 == 1 || compression_methods.is_empty() {
            return Err(Truncated);
        }
        let extensions = Extensions::read(&mut reader, record_size)?;
        end(&reader)?;
        let around_cookie = [before, behind];
        Ok(Self { version, random, cookie, cipher_suites, compression_methods, extensions, around_cookie })
    }

    /// Returns the session id. It identifies the session that the client wants to resume. If the client sends a ticket
    /// instead, the id identifies no session, but a server that accepts the ticket repeats the id in the ServerHello.
    pub(crate) fn session_id(&self) -> &'r [u8] {
        let [before, _] = self.around_cookie;
        before.get(2 + 32 + 1..).unwrap_or(&[]) // behind version, random and its own length
    }

    /// True if the client offers `suite`.
    pub(crate) fn offers(&self, suite: CipherSuite) -> bool {
        self.cipher_suites.as_chunks::<2>().0.iter().any(|pair| u16::from_be_bytes(*pair) == suite.0)
    }

    /// Returns the parameters that a client must repeat together with a cookie (RFC 6347, section 4.2.1). The first
    /// element contains the version, the random and the session id, the second the cipher suites, and the third the
    /// compression methods.
    pub(crate) const fn parameters(&self) -> [&'r [u8]; 3] {
        let [before, _] = self.around_cookie;
        [before, self.cipher_suites, self.compression_methods]
    }

    /// Returns the content of an extension; `None` if the extension is absent.
    pub(crate) fn extension(&self, kind: ExtensionType) -> Option<&'r [u8]> {
        let [_, behind] = self.around_cookie;
        let mut reader = Reader::new(behind);
        reader.with_len16().ok()?;
        reader.with_len8().ok()?;
        let list = reader.with_len16().ok()?;
        extension::each(list).find(|(found, _)| *found == kind).map(|(_, data)| data)
    }

    /// True if the client offers the null compression method, as RFC 5246 requires.
    #[expect(clippy::manual_contains, reason = "its search of bytes is long on a mote")]
    pub(crate) fn offers_null_compression(&self) -> bool {
        self.compression_methods.iter().any(|&method| method == 0)
    }

    /// True if the client supports RFC 5746: it sends the extension renegotiation_info, or the signalling cipher suite.
    pub(crate) fn signals_renegotiation_info(&self) -> bool {
        self.extensions.renegotiation_info || self.offers(CipherSuite::EMPTY_RENEGOTIATION_INFO_SCSV)
    }
}

/// The beginning of a ClientHello, from the version to the cookie.
pub(crate) struct Front<'r> {
    version: [u8; 2],
    pub(crate) random: &'r Random,
    /// The bytes of the body before the length of the cookie.
    pub(crate) before: &'r [u8],
    pub(crate) cookie: &'r [u8],
}

impl<'r> Front<'r> {
    #[inline(always)]
    pub(crate) fn read(reader: &mut Reader<'r>) -> Result<Self, Truncated> {
        let body = reader.rest();
        let version = reader.array()?;
        let random = reader.array_ref()?;
        let session_id = reader.with_len8()?;
        if session_id.len() > 32 {
            return Err(Truncated);
        }
        let before = body.get(..body.len().saturating_sub(reader.rest().len())).ok_or(Truncated)?;
        let cookie = reader.with_len8()?;
        Ok(Self { version, random, before, cookie })
    }
}

/// Writes the beginning of the body of our ClientHello, from the version to the cookie.
#[inline]
pub(crate) fn write_front(writer: &mut Writer<'_>, random: &Random, session_id: &[u8], cookie: &[u8]) -> Write {
    write_hello(writer, random)?;
    match session_id.is_empty() {
        true => writer.u8(0)?,
        false => writer.with_len8(session_id)?,
    }
    writer.with_len8(cookie)
}

/// The constant bytes that follow the cookie in our ClientHello. They are cipher_suites (with the signalling suite of
/// RFC 5746), compression_methods (null), and the extensions (an empty extended_master_secret).
pub(crate) const DEFAULT_OFFER: [u8; 14] = [0, 4, 0xc0, 0xa8, 0x00, 0xff, 1, 0, 0, 4, 0x00, 0x17, 0, 0];
/// The constant bytes that follow the cookie in our ClientHello under
/// [`Profile::Minimal`](crate::dtls::Profile::Minimal). They are cipher_suites with one suite, and compression_methods
/// (null).
pub(crate) const MINIMAL_OFFER: [u8; 6] = [0, 2, 0xc0, 0xa8, 1, 0];
