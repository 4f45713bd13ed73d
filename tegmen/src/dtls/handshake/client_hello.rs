//! ClientHello (RFC 6347, section 4.2.1).

use super::extension::Extensions;
use super::{Random, Write, end};
use crate::buf::{Reader, Truncated, Writer};
use crate::dtls::record_size::MaxFragmentLength;
use crate::dtls::{CipherSuite, Suites, VERSION};

/// A ClientHello as it was received.
#[derive(Clone, Copy, Debug)]
pub struct ClientHello<'r> {
    /// The highest version the client speaks.
    pub version: [u8; 2],
    /// The client's random.
    pub random: &'r Random,
    /// Empty in a first hello.
    pub cookie: &'r [u8],
    /// The offered suites, two bytes each.
    cipher_suites: &'r [u8],
    compression_methods: &'r [u8],
    /// The offered extensions.
    pub extensions: Extensions,
    /// The body before the cookie, and behind it: what a cookie is bound to.
    pub around_cookie: [&'r [u8]; 2],
}

impl<'r> ClientHello<'r> {
    /// Reads a whole message body; `record_size` as in [`Extensions::read`].
    pub fn read(body: &'r [u8], record_size: bool) -> Result<Self, Truncated> {
        let mut reader = Reader::new(body);
        let version = reader.array()?;
        let random = reader.array_ref()?;
        let session_id = reader.with_len8()?;
        if session_id.len() > 32 {
            return Err(Truncated);
        }
        let before = body.get(..body.len().saturating_sub(reader.rest().len())).ok_or(Truncated)?;
        let cookie = reader.with_len8()?;
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

    /// True if the client offers `suite`.
    pub fn offers(&self, suite: CipherSuite) -> bool {
        self.cipher_suites.as_chunks::<2>().0.iter().any(|pair| u16::from_be_bytes(*pair) == suite.0)
    }

    /// True if the client can do without compression, as it must.
    #[expect(clippy::manual_contains, reason = "its search of bytes is long on a mote")]
    pub fn offers_null_compression(&self) -> bool {
        self.compression_methods.iter().any(|&method| method == 0)
    }

    /// True if the client knows RFC 5746, by extension or by signalling suite.
    pub fn signals_renegotiation_info(&self) -> bool {
        self.extensions.renegotiation_info || self.offers(CipherSuite::EMPTY_RENEGOTIATION_INFO_SCSV)
    }
}

/// Writes the body of our hello: the suites, and under the default profile extended master secret, the signalling suite of
/// RFC 5746, the limit of our records if there is one, and `more` extensions.
pub(crate) fn write(
    writer: &mut Writer<'_>,
    random: &Random,
    cookie: &[u8],
    minimal: bool,
    suites: Suites,
    record_size_limit: u16,
    more: &[u8],
) -> Write {
    writer.put(&VERSION)?;
    writer.put(random)?;
    writer.u8(0)?; // session_id
    writer.with_len8(cookie)?;
    let offer: &[u8] = match suites {
        _ if minimal => &MINIMAL_OFFER,
        Suites::Ccm8 => &DEFAULT_OFFER,
        Suites::Ccm8ThenGcm => &[0, 6, 0xc0, 0xa8, 0x00, 0xa8, 0x00, 0xff, 1, 0, 0, 4, 0x00, 0x17, 0, 0],
        Suites::GcmThenCcm8 => &[0, 6, 0x00, 0xa8, 0xc0, 0xa8, 0x00, 0xff, 1, 0, 0, 4, 0x00, 0x17, 0, 0],
        Suites::Gcm => &[0, 4, 0x00, 0xa8, 0x00, 0xff, 1, 0, 0, 4, 0x00, 0x17, 0, 0],
    };
    if record_size_limit == 0 && more.is_empty() || minimal {
        return writer.put(offer);
    }
    let (suites, _) = offer.split_last_chunk::<6>().unwrap_or((offer, &[0; 6]));
    writer.put(suites)?;
    let extensions = Extensions {
        extended_master_secret: true,
        record_size_limit: Some(record_size_limit).filter(|limit| *limit > 0),
        max_fragment_length: MaxFragmentLength::within(record_size_limit),
        ..Extensions::default()
    };
    extensions.write(writer, more)
}

/// What stands behind the cookie, as bytes, because it is always the same: cipher_suites (and among them the signal of
/// RFC 5746), compression_methods (null), extensions (extended_master_secret, empty).
const DEFAULT_OFFER: [u8; 14] = [0, 4, 0xc0, 0xa8, 0x00, 0xff, 1, 0, 0, 4, 0x00, 0x17, 0, 0];
/// The same under [`Profile::Minimal`](crate::dtls::Profile::Minimal): one suite, null compression.
const MINIMAL_OFFER: [u8; 6] = [0, 2, 0xc0, 0xa8, 1, 0];
