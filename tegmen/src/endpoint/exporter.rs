//! The function with which the owner of an endpoint exports keying material (RFC 5705).

use super::{Endpoint, Peers};
use crate::crypto::Crypto;
use crate::dtls::roles::Roles;
use crate::identity::PeerId;

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// Writes keying material of a session into the whole of `out` (RFC 5705, section 4, without context). Both
    /// endpoints get the same bytes for the same `label`. A label of an application begins with `EXPORTER`. Call this
    /// function when [`Event::Established`](super::Event) is reported, because the master secret is discarded together
    /// with the handshake.
    ///
    /// Returns `None` if the handshake was already discarded. Also returns `None` for a session without extended master
    /// secret, because another session could have the same keying material (RFC 7627, section 5.4).
    pub fn export<C: Crypto>(&mut self, id: PeerId, label: &[u8], out: &mut [u8]) -> Option<()> {
        self.peers.handshake(id)?.export::<C>(label, out).then_some(())
    }
}
