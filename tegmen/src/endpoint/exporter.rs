//! Keying material exporters (RFC 5705) for the owner of an endpoint.

use super::{Endpoint, Peers};
use crate::crypto::Crypto;
use crate::dtls::roles::Roles;
use crate::identity::PeerId;

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// Writes keying material of a session, which both ends get under the same label (RFC 5705, section 4, without context), into
    /// all of `out`. Call it at [`Event::Established`](super::Event), because the master secret is discarded with the handshake.
    /// A label of an application begins with `EXPORTER`. Returns `None` if the handshake is over, and for a session without
    /// extended master secret, whose keying material another session could share (RFC 7627, section 5.4).
    pub fn export<C: Crypto>(&mut self, id: PeerId, label: &[u8], out: &mut [u8]) -> Option<()> {
        self.peers.handshake(id)?.export::<C>(label, out).then_some(())
    }
}
