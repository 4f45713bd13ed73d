//! ServerKeyExchange with an ephemeral key agreement (RFC 8422, section 5.4; RFC 5489, section 2).

use super::{Write, certificate, end};
use crate::buf::{Reader, Truncated, Writer};
use crate::crypto::{NamedGroup, SignatureScheme};

/// A received ServerKeyExchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerKeyExchange<'r> {
    /// The PSK identity hint; empty if the message has a signature.
    pub(crate) hint: &'r [u8],
    /// The named group of the key agreement.
    pub(crate) group: NamedGroup,
    /// The server's share of the key agreement.
    pub(crate) share: &'r [u8],
    /// The bytes of the group and the share, as they were received. The signature covers these bytes and both randoms.
    pub(crate) parameters: &'r [u8],
    /// The signature scheme and the signature, if the server has a certificate; otherwise `None`.
    pub(crate) signature: Option<(SignatureScheme, &'r [u8])>,
}

/// The ECCurveType of a group that is identified by its number.
const NAMED_CURVE: u8 = 3;

impl<'r> ServerKeyExchange<'r> {
    /// Reads the body of a ServerKeyExchange. If `psk` is true, the key exchange uses a pre-shared key, and the body
    /// contains a hint. If not, the body contains a signature.
    pub(crate) fn read(body: &'r [u8], psk: bool) -> Result<Self, Truncated> {
        let mut reader = Reader::new(body);
        let hint = if psk { reader.with_len16()? } else { &[] };
        let start = reader.rest();
        if reader.u8()? != NAMED_CURVE {
            return Err(Truncated);
        }
        let group = NamedGroup(reader.u16()?);
        let share = reader.with_len8()?;
        let parameters = start.get(..start.len().saturating_sub(reader.rest().len())).ok_or(Truncated)?;
        let signature = match psk {
            true => {
                end(&reader)?;
                None
            }
            false => Some(certificate::read_signature(&mut reader)?),
        };
        Ok(Self { hint, group, share, parameters, signature })
    }
}

/// Writes the signed part of a ServerKeyExchange: the group and the share.
pub(crate) fn write_parameters(writer: &mut Writer<'_>, group: NamedGroup, share: &[u8]) -> Write {
    writer.u8(NAMED_CURVE)?;
    writer.u16(group.0)?;
    writer.with_len8(share)
}
