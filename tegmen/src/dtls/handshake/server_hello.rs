//! ServerHello (RFC 5246, section 7.4.1.3).

use super::extension::Extensions;
use super::{Random, Write, end};
use crate::buf::{Reader, Truncated, Writer};
use crate::dtls::{CipherSuite, VERSION};

/// A ServerHello as it was received.
#[derive(Clone, Copy, Debug)]
pub struct ServerHello<'r> {
    /// The chosen version.
    pub version: [u8; 2],
    /// The server's random.
    pub random: &'r Random,
    /// The chosen suite.
    pub cipher_suite: CipherSuite,
    /// The chosen compression: null, or the server is wrong.
    pub compression_method: u8,
    /// The answered extensions.
    pub extensions: Extensions,
}

impl<'r> ServerHello<'r> {
    /// Reads a whole message body; `record_size` as in [`Extensions::read`].
    pub fn read(body: &'r [u8], record_size: bool) -> Result<Self, Truncated> {
        let mut reader = Reader::new(body);
        let version = reader.array()?;
        let random = reader.array_ref()?;
        if reader.with_len8()?.len() > 32 {
            return Err(Truncated);
        }
        let cipher_suite = CipherSuite(reader.u16()?);
        let compression_method = reader.u8()?;
        let extensions = Extensions::read(&mut reader, record_size)?;
        end(&reader)?;
        Ok(Self { version, random, cipher_suite, compression_method, extensions })
    }
}

/// Writes the body: no session id (nothing can be resumed), the chosen suite, the extensions that the client offered, of
/// which `more` are written already.
pub(crate) fn write(writer: &mut Writer<'_>, random: &Random, gcm: bool, extensions: Extensions, more: &[u8]) -> Write {
    writer.put(&VERSION)?;
    writer.put(random)?;
    // session_id, cipher_suite, compression_method
    writer.put(if gcm { &[0, 0x00, 0xa8, 0] } else { &[0, 0xc0, 0xa8, 0] })?;
    extensions.write(writer, more)
}
