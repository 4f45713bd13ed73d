//! Sessions with connection ids. The id in a record determines the session of the record. When the peer has proved that
//! it receives at a new address, this address replaces the peer's old address.
//!
//! The address of a peer changes in two steps (RFC 9146, section 6; RFC 9853). First, an authentic record that is newer
//! than all earlier records arrives from the new address. Then the endpoint sends a challenge to the new address, and
//! the peer answers it. Only a receiver at the new address can read the challenge. Until the answer, all other
//! datagrams are sent to the old address.

use super::{Endpoint, Event, Misuse, Output, Peers, Phase, Record, Records};
use crate::address::Path;
use crate::buf::{Frame, Span, copy};
use crate::counters::{Discard, bump};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::connection_id::{AddressChanges, ConnectionIds, Hello, Mobility};
use crate::dtls::context::HandshakeContext;
use crate::dtls::record::connection_id::ConnectionId;
use crate::dtls::record::{ContentType, MAX_CONTENT};
use crate::dtls::return_routability::{self as rrc, MessageType};
use crate::dtls::roles::Roles;
use crate::identity::PeerId;
use crate::secret::same;

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// Returns the counts of address changes of peers with connection ids.
    pub fn address_changes(&mut self) -> AddressChanges {
        self.roles.mobility().map_or(AddressChanges::default(), |mobility| mobility.changes)
    }

    /// Returns the number of bytes that [`Self::seal`] adds before the content of a message to this peer; 0 for a peer
    /// without protection.
    pub(crate) fn headroom<C: Crypto>(&mut self, id: PeerId) -> usize {
        let to = if R::CONNECTION_ID { self.sent_id(id).map_or(0, |to| to.bytes().len()) } else { 0 };
        let peer = self.peers.peer(id).filter(|peer| peer.is_session);
        peer.map_or(0, |peer| peer.association.channel.headroom::<C>().saturating_add(to))
    }

    /// Continues a session over `path`. Call this function when the owner of the endpoint knows that our own address or
    /// the path to the peer changed. If another session uses that path, this function removes the other session.
    pub fn move_session(&mut self, id: PeerId, path: &Path) {
        if let Some(other) = self.peers.find(path, Phase::Established)
            && other != id
        {
            self.peers.remove(other);
        }
        self.peers.set_path(id, path);
    }

    /// Draws a connection id that no session of this endpoint has. Returns `None` if eight attempts find no such id.
    fn new_connection_id<C: Crypto>(&mut self, cx: &mut Cx<'_, C>) -> Option<ConnectionId> {
        let config = self.roles.mobility()?.config;
        let mut drawn = (0..8).map(|_| ConnectionId::random(cx.crypto, config.len, config.shard));
        drawn.find(|id| id.is_empty() || self.peers.find_connection_id(id.bytes()).is_none())
    }

    /// Client: adds an offer of a connection id to the handshake with the peer `id`.
    pub(super) fn offer_connection_id<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, id: PeerId) {
        if let Some(ours) = self.new_connection_id(cx)
            && let Some(Mobility { config, .. }) = self.roles.mobility()
        {
            self.peers.set_connection_ids(id, Some(ConnectionIds::offered(ours, config.check)));
        }
    }

    /// Server: returns two values to which the server can agree: the client's connection id, and true if both endpoints
    /// support return routability checks. `hello` is the part of the ClientHello after the cookie. Returns `None` if
    /// the client offers no id, or if this endpoint does not use connection ids.
    pub(super) fn asked_for_connection_id(&mut self, hello: &[u8]) -> Result<Option<(ConnectionId, bool)>, Discard> {
        let Some(Mobility { config, .. }) = self.roles.mobility() else { return Ok(None) };
        let accepted = Hello::of_client(hello).map_err(|_| Discard::Malformed)?.accepted();
        Ok(accepted.map(|(theirs, rrc)| (theirs, rrc && config.check)))
    }

    /// Server: agrees to connection ids in the handshake with the peer `id`. `theirs` is the client's connection id,
    /// and `rrc` is true if both endpoints support return routability checks.
    pub(super) fn accept_connection_id<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: PeerId,
        (theirs, rrc): (ConnectionId, bool),
    ) {
        if let Some(ours) = self.new_connection_id(cx)
            && !(ours.is_empty() && theirs.is_empty())
        {
            self.peers.set_connection_ids(id, Some(ConnectionIds::agreed(ours, theirs, rrc)));
        }
    }

    /// Called at the end of a handshake. Removes the connection ids of a peer if no ids were agreed on.
    pub(super) fn settle_connection_ids(&mut self, id: PeerId) {
        if let Some(ids) = self.peers.connection_ids(id)
            && ids.sent().is_none()
            && ids.received().is_none()
        {
            self.peers.set_connection_ids(id, None);
        }
    }

    /// True if this endpoint can recognize the records of a stored session with these ids. This is the case if our id
    /// is empty, so that the address identifies the session. It is also the case if our id has the length of the ids
    /// that this endpoint issues, and no other session has the same id.
    pub(super) fn can_receive(&mut self, ids: &ConnectionIds) -> bool {
        let len = self.roles.mobility().map(|mobility| usize::from(mobility.config.len));
        let ours = ids.ours.bytes();
        ours.is_empty() || len == Some(ours.len()) && self.peers.find_connection_id(ours).is_none()
    }

    /// Returns the id that the peer must write into its records; `None` if it must write none.
    pub(super) fn received_id(&mut self, id: PeerId) -> Option<ConnectionId> {
        self.peers.connection_ids(id)?.received().copied()
    }

    /// Returns the id that we must write into records to the peer; `None` if we must write none.
    pub(super) fn sent_id(&mut self, id: PeerId) -> Option<ConnectionId> {
        self.peers.connection_ids(id)?.sent().copied()
    }

    /// Processes the next record of a datagram. This record has a connection id.
    pub(super) fn on_record_with_id<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        records: &mut Records<'_>,
        out: &mut [u8],
    ) -> Output {
        let datagram = records.address();
        // If this endpoint issues no ids, it does not know the length of the header. Then the record is dropped,
        // because no header has the length that is assumed.
        let len = self.roles.mobility().map(|mobility| usize::from(mobility.config.len)).filter(|len| *len > 0);
        let Some((connection_id, record)) = records.take_with_id(len.unwrap_or(usize::MAX)) else {
            cx.counters.discard(Discard::Malformed);
            return Output::Event(None);
        };
        let found = self.peers.find_connection_id(connection_id);
        let discard = match found.and_then(|id| Some((id, self.peers.peer(id)?))) {
            Some((id, peer)) if peer.phase == Phase::Established => {
                return self.on_protected(cx, path, id, datagram, record, out);
            }
            Some((id, peer)) if peer.phase == Phase::Handshaking && peer.path == *path => {
                let Some(handshake) = &mut self.peers.handshake(id) else { return Output::Event(None) };
                let context = HandshakeContext { settings: &self.settings, roles: &self.roles };
                let outcome = handshake.receive(cx, context, record);
                return Output::Event(self.on_outcome(cx, id, outcome));
            }
            // A handshake that has not ended cannot move to another address.
            Some((_, peer)) if peer.phase == Phase::Handshaking => Discard::Unexpected,
            _ => Discard::UnknownPeer,
        };
        cx.counters.discard(discard);
        Output::Event(None)
    }

    /// Processes a protected record of a session with connection ids. The peer may have a new address, and the record
    /// may be part of a return routability check.
    pub(super) fn on_protected<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        id: PeerId,
        datagram: usize,
        record: Record<'_>,
        out: &mut [u8],
    ) -> Output {
        let after = record.number().sequence().wrapping_add(1);
        let Some(peer) = self.peers.peer(id) else { return Output::Event(None) };
        let (elsewhere, failed_before) = (peer.path != *path, peer.association.channel.failed_opens());
        if elsewhere && !self.peers.connection_ids(id).is_some_and(|ids| ids.may_try(cx.now)) {
            cx.counters.discard(Discard::UnknownPeer);
            return Output::Event(None);
        }
        let Some((content_type, content)) = self.open(cx, id, record) else {
            if elsewhere
                && self.peers.peer(id).is_some_and(|peer| peer.association.channel.forgive(failed_before))
                && let Some(ids) = self.peers.connection_ids(id)
            {
                ids.count_forgery();
            }
            let outcome = self.after_dropped(id);
            return Output::Event(self.on_outcome(cx, id, outcome));
        };
        let Some(peer) = self.peers.peer(id) else { return Output::Event(None) };
        let (here, newest) = (peer.path == *path, peer.association.channel.window().next() == after);
        if content_type == ContentType::RETURN_ROUTABILITY_CHECK {
            return self.on_check(cx, path, id, newest, content, out);
        }
        if !here {
            self.on_new_address(id, path, newest);
        }
        if content_type == ContentType::APPLICATION_DATA {
            return Output::Event(Some(Event::Message { peer: id, bytes: Span::within(datagram, content) }));
        }
        let outcome = self.on_content(cx, id, content_type, content);
        Output::Event(self.on_outcome(cx, id, outcome))
    }

    /// Decides what to do after an authentic record from an address other than the peer's. The endpoint ignores the new
    /// address, or sends a challenge to it, or sends its records there from now on.
    fn on_new_address(&mut self, id: PeerId, path: &Path, newest: bool) {
        let unverified = self.peers.peer(id).is_none_or(|peer| peer.association.channel.is_unverified());
        let checks = self.peers.connection_ids(id).is_some_and(|ids| ids.rrc);
        let Some(Mobility { config, changes, challenge }) = self.roles.mobility() else { return };
        // After a record that may be a replay, the address changes only by a check, whose cookie is new.
        if !newest || !(checks || config.follow_unchecked && !unverified) {
            bump(&mut changes.refused);
        } else if checks {
            *challenge = Some((id, *path));
        } else {
            bump(&mut changes.followed);
            self.move_session(id, path);
        }
    }

    /// Writes into `out` the challenge that must be sent on `path`. Returns the length of the challenge; `None` if no
    /// challenge must be sent on this path, or if an earlier challenge is still valid.
    pub(super) fn challenge<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, path: &Path, out: &mut [u8]) -> Option<usize> {
        let mobility = self.roles.mobility()?;
        let (id, to) = mobility.challenge.take()?;
        let ids = self.peers.connection_ids(id)?;
        // Only one challenge is open at a time, so that its response stays valid when more records follow.
        if to != *path || cx.now < ids.until {
            return None;
        }
        bump(&mut mobility.changes.checked);
        cx.crypto.random(&mut ids.nonce);
        ids.until = cx.now.after_millis(self.settings.retransmit_first_ms);
        let message = rrc::message(MessageType::PATH_CHALLENGE, rrc::cookie::<C>(&ids.nonce, path));
        self.write_record(cx, id, ContentType::RETURN_ROUTABILITY_CHECK, &message, out)
    }

    /// Processes a message of a return routability check.
    fn on_check<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        id: PeerId,
        newest: bool,
        content: &[u8],
        out: &mut [u8],
    ) -> Output {
        let ids = self.peers.connection_ids(id).filter(|ids| ids.rrc);
        let (Some(ids), Some((kind, cookie))) = (ids, rrc::read(content)) else {
            cx.counters.discard(Discard::Unexpected);
            return Output::Event(None);
        };
        match kind {
            MessageType::PATH_CHALLENGE => {
                // Our datagrams are sent from the session's local address. A challenge to another of our addresses is
                // too late.
                let here = self.peers.peer(id).is_some_and(|peer| peer.path.local == path.local);
                let answer = if here { MessageType::PATH_RESPONSE } else { MessageType::PATH_DROP };
                let message = rrc::message(answer, cookie);
                let len = self.write_record(cx, id, ContentType::RETURN_ROUTABILITY_CHECK, &message, out);
                return Output::Datagram(len.unwrap_or(0) as u16);
            }
            MessageType::PATH_RESPONSE => {
                let proves = same(&rrc::cookie::<C>(&ids.nonce, path), &cookie) && cx.now < ids.until;
                if proves && newest {
                    ids.until = cx.now;
                    if let Some(mobility) = self.roles.mobility() {
                        bump(&mut mobility.changes.followed);
                    }
                    self.move_session(id, path);
                    return Output::Event(Some(Event::Moved(id)));
                } else {
                    cx.counters.discard(Discard::Unexpected);
                }
            }
            MessageType::PATH_DROP if same(&rrc::cookie::<C>(&ids.nonce, path), &cookie) => ids.until = cx.now,
            // The message may belong to a later version of the protocol (RFC 9853, section 4).
            _ => {}
        }
        Output::Event(None)
    }

    /// Writes a protected record with a short content to the front of `out`. Returns the length of the record; `None`
    /// if it could not be written.
    pub(super) fn write_record<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: PeerId,
        content_type: ContentType,
        content: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        let to = if R::CONNECTION_ID { self.sent_id(id) } else { None };
        let channel = &mut self.peers.peer(id)?.association.channel;
        let (headroom, behind) = match &to {
            None => (channel.headroom::<C>(), 0),
            Some(to) => (channel.headroom::<C>().wrapping_add(to.bytes().len()), 1),
        };
        let inner = content.len().wrapping_add(behind);
        let len = headroom.wrapping_add(inner).wrapping_add(channel.tailroom::<C>(inner));
        let record = out.get_mut(..len)?;
        copy(record.get_mut(headroom..)?, content).ok()?;
        match &to {
            None => channel.seal_record(cx.crypto, content_type, content.len(), record),
            Some(to) => channel.seal_with_id(cx.crypto, content_type, to, content.len(), inner, record),
        }
        .ok()?;
        Some(len)
    }

    /// Does the same as [`Endpoint::seal`] for a record that carries the peer's connection id `to`, and padding.
    pub(super) fn seal_with_id<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: PeerId,
        to: &ConnectionId,
        frame: &mut Frame<'_>,
    ) -> Result<(), Misuse> {
        let multiple = self.roles.mobility().map_or(0, |mobility| usize::from(mobility.config.padding)).max(1);
        let peer = self.peers.peer(id).filter(|peer| peer.is_session);
        let peer = peer.ok_or(Misuse::NotEstablished)?;
        let (len, most) = (frame.len(), peer.association.record_size.sent().min(MAX_CONTENT));
        if len > most {
            return Err(Misuse::TooLong);
        }
        let tag_len = peer.association.channel.max_tailroom::<C>();
        let with_type = len.saturating_add(1);
        let room = frame.room().saturating_sub(tag_len).saturating_sub(1).min(most.saturating_sub(with_type));
        let padding = with_type.next_multiple_of(multiple).saturating_sub(with_type).min(room);
        let inner = with_type.saturating_add(padding);
        let behind = inner.saturating_sub(len).saturating_add(peer.association.channel.tailroom::<C>(inner));
        let before = peer.association.channel.headroom::<C>().saturating_add(to.bytes().len());
        let record = frame.widen(before, behind).map_err(|_| Misuse::Full)?;
        Ok(peer.association.channel.seal_with_id(cx.crypto, ContentType::APPLICATION_DATA, to, len, inner, record)?)
    }
}
