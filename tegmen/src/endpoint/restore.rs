//! Moves sessions out of an endpoint and back into an endpoint: see [`crate::dtls::session`].

use super::{Endpoint, NewPeer, Peers, Phase};
use crate::address::Path;
use crate::cx::Cx;
use crate::dtls::association::Rank;
use crate::dtls::roles::Roles;
use crate::dtls::session::Session;
use crate::identity::{PeerId, Principal};

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// Returns a copy of an established session, so that the session can continue even if the endpoint ends
    /// unexpectedly, for example by a power cut. The replay window of the copy is marked as lost. The record numbers of
    /// the copy begin at the end of the range of record numbers that is reserved for this session. Before the first
    /// call of [`Self::lease_session`], this range contains all record numbers. So a copy that is made before that call
    /// has no record number that it may use.
    pub fn copy_session(&mut self, id: PeerId) -> Option<Session> {
        let ids = self.peers.connection_ids(id).copied();
        let peer = self.established(id)?;
        let mut session = Session::of(&peer.association.channel, peer.association.record_size, ids);
        session.next = peer.association.channel.lease_end();
        session.lose_window();
        Some(session)
    }

    /// Removes an established session from the endpoint, and returns it. Sends no message to the peer. The returned
    /// session may be continued at most once.
    pub fn take_session(&mut self, id: PeerId) -> Option<Session> {
        let ids = self.peers.connection_ids(id).copied();
        let peer = self.established(id)?;
        let session = Session::of(&peer.association.channel, peer.association.record_size, ids);
        self.peers.remove(id);
        Some(session)
    }

    /// Restores a session with the peer on `path`. The peer proved in an earlier run that it is `principal`. No record
    /// can be sent before [`Self::lease_session`]. If the replay window of the session was lost, do not act upon its
    /// records before the peer has proved that they are fresh. Call [`Self::verify_session`] after this proof.
    ///
    /// Returns `None` in these cases:
    /// * Another peer has the path.
    /// * The table is full, and no peer can be displaced.
    /// * The key of the session has no unused record numbers.
    /// * The connection id that the peer writes has another length than the ids of this endpoint, or belongs to another
    ///   session.
    pub fn restore_session<C>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        principal: Principal,
        session: &Session,
    ) -> Option<PeerId> {
        if !session.is_usable() {
            return None;
        }
        if [Phase::Established, Phase::Handshaking].into_iter().any(|phase| self.peers.find(path, phase).is_some()) {
            return None;
        }
        if let Some(ids) = &session.ids
            && !self.can_receive(ids)
        {
            return None;
        }
        let (rank, phase, is_session) = (Rank::Authenticated, Phase::Established, true);
        let new = NewPeer { path, rank, phase, is_session, with_handshake: false };
        let id = self.insert(cx, &new).ok()?;
        if let Some(peer) = self.peers.peer(id) {
            (peer.association.principal, peer.association.record_size) = (principal, session.record_size);
            session.restore(&mut peer.association.channel);
        }
        if session.ids.is_some() {
            self.peers.set_connection_ids(id, session.ids);
        }
        Some(id)
    }

    /// Allows a session to use all record numbers below `end`. `end` is a multiple of
    /// [`CHUNK`](crate::dtls::record::CHUNK) that the owner of the endpoint has already stored durably.
    pub fn lease_session(&mut self, id: PeerId, end: u32) {
        if let Some(peer) = self.established(id) {
            peer.association.channel.set_lease(end);
        }
    }

    /// True if a record of the session may be a replay, because the replay window was lost and the session is not
    /// verified yet.
    pub fn is_unverified(&mut self, id: PeerId) -> bool {
        self.established(id).is_some_and(|peer| peer.association.channel.is_unverified())
    }

    /// Marks a session as verified. The owner of the endpoint calls this function after the peer has proved that its
    /// last record is fresh, for example by an Echo option (RFC 9175).
    pub fn verify_session(&mut self, id: PeerId) {
        if let Some(peer) = self.established(id) {
            peer.association.channel.verify();
        }
    }

    fn established(&mut self, id: PeerId) -> Option<&mut super::Peer> {
        let dtls = |peer: &&mut super::Peer| peer.phase == Phase::Established && peer.is_session;
        self.peers.peer(id).filter(dtls)
    }
}
