//! Keying material exporters (RFC 5705) for the owner of an endpoint.

use super::{Endpoint, Peers};
use crate::crypto::Crypto;
use crate::dtls::roles::Roles;
use crate::identity::PeerId;

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// Writes keying material of a session into all of `out` (RFC 5705, section 4, without context). Both endpoints
    /// get the same bytes for the same label. Call this function at [`Event::Established`](super::Event), because the
    /// master secret is discarded with the handshake. A label of an application begins with `EXPORTER`. Returns
    /// `None` if the handshake was discarded, and for a session without extended master secret, because another
    /// session could have the same keying material (RFC 7627, section 5.4).
    pub fn export<C: Crypto>(&mut self, id: PeerId, label: &[u8], out: &mut [u8]) -> Option<()> {
        self.peers.handshake(id)?.export::<C>(label, out).then_some(())
    }
}
