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
    /// All of them, one after the other.
    pub(crate) extension_list: &'r [u8],
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
        let extension_list = reader.rest().get(2..).unwrap_or(&[]);
        let extensions = Extensions::read(&mut reader, record_size)?;
        end(&reader)?;
        Ok(Self { version, random, cipher_suite, compression_method, extensions, extension_list })
    }
}

/// Writes the body up to the extensions: no session id (nothing can be resumed), the chosen suite.
pub(crate) fn write_front(writer: &mut Writer<'_>, random: &Random, suite: CipherSuite) -> Write {
    writer.put(&VERSION)?;
    writer.put(random)?;
    // session_id, cipher_suite, compression_method
    let [high, low] = suite.0.to_be_bytes();
    writer.put(&[0, high, low, 0])
}
