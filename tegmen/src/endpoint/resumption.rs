//! The functions with which the owner of an endpoint resumes sessions: see [`crate::dtls::resumption`].

use super::{Endpoint, Peers, TableFull};
use crate::address::Path;
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::CipherSuite;
use crate::dtls::context::HandshakeContext;
use crate::dtls::resumption::{Handle, Resumable, SessionState};
use crate::dtls::roles::Roles;
use crate::identity::PeerId;

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// Does the same as [`Self::connect`], and also offers to resume a session. Client and server perform a full
    /// handshake if the server declines the offer, if the offer does not fit the buffers of a handshake, or if a role
    /// on a host no longer offers the cipher suite of the session (RFC 5246, section 7.4.1.2).
    ///
    /// # Errors
    /// [`TableFull`] if all entries belong to associations that we opened.
    pub fn connect_again<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        session: &SessionState,
        handle: Handle<'_>,
    ) -> Result<PeerId, TableFull> {
        let id = self.connect(cx, path)?;
        let context = HandshakeContext { settings: &self.settings, roles: &self.roles };
        if R::RESUMPTION
            && let Some(handshake) = &mut self.peers.handshake(id)
            && !handshake.state.minimal
            && (R::ON_HOST && !context.resumes::<C>(session.cipher_suite)
                || handshake.offer_session(cx, self.settings.mtu, session, handle).is_err())
        {
            handshake.clear_scratch();
        }
        Ok(id)
    }

    /// Returns the data with which a session that we opened can be resumed; `None` if it cannot be resumed. Call this
    /// function when [`Event::Established`](super::Event) is reported, because the data are discarded together with the
    /// handshake.
    pub fn resumable(&mut self, id: PeerId) -> Option<Resumable<'_>> {
        self.peers.handshake(id).filter(|_| R::RESUMPTION)?.resumable()
    }

    /// Returns the cipher suite of a session. Call this function when [`Event::Established`](super::Event) is reported,
    /// because the suite is discarded together with the handshake.
    pub fn cipher_suite(&mut self, id: PeerId) -> Option<CipherSuite> {
        let handshake = self.peers.handshake(id).filter(|_| R::KEEPS)?;
        Some(CipherSuite::of(handshake.state.exchange, handshake.state.cipher))
    }

    /// True if a session was resumed. Call this function when [`Event::Established`](super::Event) is reported, because
    /// the endpoint discards this information together with the handshake.
    pub fn is_resumed(&mut self, id: PeerId) -> bool {
        R::RESUMPTION && self.peers.handshake(id).is_some_and(|handshake| handshake.was_resumed())
    }
}
