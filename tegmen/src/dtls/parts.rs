//! The data of a handshake from which its messages are written.

use super::association::Association;
use super::connection_id::{self, ConnectionIds};
use super::element::Element;
use super::handshake::finished;
use super::roles::Roles;
use super::state::HandshakeState;
use crate::buf::{Full, Writer};
use crate::crypto::Crypto;

/// The data of a handshake from which its messages are written.
pub(crate) struct Parts<'p> {
    pub(crate) state: &'p mut HandshakeState,
    pub(crate) association: &'p Association,
    pub(crate) ids: Option<&'p ConnectionIds>,
    /// The cookie of our ClientHello, or the PSK identity of our ClientKeyExchange.
    pub(crate) text: &'p [u8],
    /// The session_id of our ClientHello or ServerHello. It may be empty.
    pub(crate) session_id: &'p [u8],
    /// The outgoing buffer of the handshake.
    pub(crate) room: &'p [u8],
}

impl<'p> Parts<'p> {
    /// Returns the verify_data of our Finished. It was computed once, and is the same in all transmissions.
    #[inline(always)]
    pub(crate) fn verify_data<C: Crypto, R: Roles>(self) -> &'p [u8] {
        let state = self.state;
        if state.hashed.place::<R>() <= Element::Finished.place::<R>() {
            let client = match R::KEEPS {
                true => self.association.is_client(),
                false => state.flight == Element::ClientKeyExchange,
            };
            finished::write_verify_data::<C>(&state.master, client, &state.transcript, &mut state.verify);
        }
        &state.verify
    }

    /// Writes into `out` those extensions of our ClientHello or ServerHello that concern connection ids. Returns the
    /// written bytes; an empty slice if the handshake has no connection ids.
    #[inline(always)]
    pub(crate) fn connection_id_extensions<'o, R: Roles>(
        &self,
        out: &'o mut [u8; connection_id::EXTENSIONS_LEN],
    ) -> Result<&'o [u8], Full> {
        let Some(ids) = self.ids.filter(|_| R::CONNECTION_ID) else { return Ok(&[]) };
        let mut writer = Writer::new(out);
        ids.write_extensions(&mut writer)?;
        Ok(writer.finish())
    }
}
