//! ServerHello (RFC 5246, section 7.4.1.3).

use super::extension::Extensions;
use super::{Random, Write, end, write_hello};
use crate::buf::{Reader, Truncated, Writer};
use crate::dtls::CipherSuite;

/// A received ServerHello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerHello<'r> {
    /// The chosen version.
    pub(crate) version: [u8; 2],
    /// The random of the server.
    pub(crate) random: &'r Random,
    /// The session id. If the server resumes the session, it is the id in the ClientHello. Otherwise it is usually
    /// empty, or a new id with which the client can resume this session.
    pub(crate) session_id: &'r [u8],
    /// The chosen cipher suite.
    pub(crate) cipher_suite: CipherSuite,
    /// The chosen compression method. Only null is valid.
    pub(crate) compression_method: u8,
    /// The supported extensions in the message, with which the server answers the extensions of the client.
    pub(crate) extensions: Extensions,
    /// The bytes of all extensions, without the length of the whole list.
    pub(crate) extension_list: &'r [u8],
}

impl<'r> ServerHello<'r> {
    /// Reads the body of a ServerHello. `record_size` has the same meaning as in [`Extensions::read`].
    pub(crate) fn read(body: &'r [u8], record_size: bool) -> Result<Self, Truncated> {
        let mut reader = Reader::new(body);
        let version = reader.array()?;
        let random = reader.array_ref()?;
        let session_id = reader.with_len8()?;
        if session_id.len() > 32 {
            return Err(Truncated);
        }
        let cipher_suite = CipherSuite(reader.u16()?);
        let compression_method = reader.u8()?;
        let extension_list = reader.rest().get(2..).unwrap_or(&[]);
        let extensions = Extensions::read(&mut reader, record_size)?;
        end(&reader)?;
        Ok(Self { version, random, session_id, cipher_suite, compression_method, extensions, extension_list })
    }
}

/// Writes the beginning of the body of a ServerHello. The extensions must follow it.
#[inline]
pub(crate) fn write_front(writer: &mut Writer<'_>, random: &Random, session_id: &[u8], suite: CipherSuite) -> Write {
    write_hello(writer, random)?;
    let [high, low] = suite.0.to_be_bytes();
    if !session_id.is_empty() {
        writer.with_len8(session_id)?;
        return writer.put(&[high, low, 0]);
    }
    // session_id, cipher_suite, compression_method
    writer.put(&[0, high, low, 0])
}
