//! Sessions that are resumed, as their owner sees them: see [`crate::dtls::resumption`].

use super::{Cx, Endpoint, Path, PeerId, Peers, Roles, TableFull};
use crate::crypto::Crypto;
use crate::dtls::CipherSuite;
use crate::dtls::resumption::{Handle, Resumable, SessionState};

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// As [`Self::connect`], with an offer to resume a session. A server that does not take it goes through a full
    /// handshake; so does one to which the offer has no room in a handshake here.
    ///
    /// # Errors
    /// [`TableFull`] as there.
    pub fn connect_again<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        session: &SessionState,
        handle: Handle<'_>,
    ) -> Result<PeerId, TableFull> {
        let id = self.connect(cx, path)?;
        if R::RESUMPTION
            && let Some(ongoing) = &mut self.peers.ongoing(id)
            && !ongoing.state.minimal
            && ongoing.offer_session(cx, self.settings.mtu, session, handle).is_err()
        {
            ongoing.forget_kept();
        }
        Ok(id)
    }

    /// What a session that we opened can be resumed with; to be asked at [`Event::Established`](super::Event), because it
    /// is forgotten with the handshake.
    pub fn resumable(&mut self, id: PeerId) -> Option<Resumable<'_>> {
        self.peers.ongoing(id).filter(|_| R::RESUMPTION)?.resumable()
    }

    /// The cipher suite of a session; to be asked at [`Event::Established`](super::Event), because it is forgotten with the
    /// handshake.
    pub fn cipher_suite(&mut self, id: PeerId) -> Option<CipherSuite> {
        let ongoing = self.peers.ongoing(id).filter(|_| R::KEEPS)?;
        Some(CipherSuite::of(ongoing.state.exchange, ongoing.state.cipher))
    }

    /// True if a session was resumed; to be asked at [`Event::Established`](super::Event).
    pub fn is_resumed(&mut self, id: PeerId) -> bool {
        R::RESUMPTION && self.peers.ongoing(id).is_some_and(|ongoing| ongoing.was_resumed())
    }
}
