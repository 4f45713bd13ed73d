//! The code of a node for groups that Axiom protects. It serves the requests of members, sends requests to a group, and
//! processes the responses of listeners (the members that receive requests).
//!
//! The sender of a request has an entry in the peer table. The local address of this entry is the address of the group,
//! so the entry never replaces a session with the same peer. The endpoint does not protect the datagrams that are sent
//! to the peer of this entry. The node sends only responses to this peer, and protects each response with Axiom when it
//! writes the response.

use super::Node;
use super::application::{Application, Deferred};
use super::ask_group::notification;
use super::blockwise::observe;
use super::error::SendError;
use super::features::{ExchangeOf, Features, StateOf};
use super::group_requests::GroupRequests;
use super::groups::Groups as _;
use super::leisure::Leisure as _;
use super::observers::Observers as _;
use super::request_head::RequestHead;
use crate::address::{Address, Path};
use crate::axiom::{Opened, Proof, SenderId};
use crate::buf::{Frame, Full};
use crate::coap::PeerExchanges;
use crate::coap::{BuildError, Builder, Code, MessageRef, MessageType, NoResponse, OptionNumber, RequestId};
use crate::counters::{Discard, bump};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::Records;
use crate::dtls::association::Rank;
use crate::dtls::record::Record;
use crate::dtls::roles::Roles;
use crate::endpoint::{Misuse, Peers, Phase};
use crate::identity::{Identity, PeerId, Protection};
use crate::time::Instant;

/// The protection of a request that was sent to a group.
#[derive(Clone, Copy)]
pub(super) enum ToGroup {
    /// Axiom does not protect the request: it is in plaintext, or OSCORE protects it.
    InClear,
    /// A member of an Axiom group protected the request. The second field is true if the request may be a replay.
    Protected(Identity, bool),
}

impl ToGroup {
    /// Returns the identity of the member that protected the request with Axiom, and true if the request may be a
    /// replay. Returns `None` for any other request.
    #[inline]
    pub(super) fn member<F: Features>(self) -> Option<(Identity, bool)> {
        match self {
            Self::Protected(identity, is_unverified) if F::Groups::IS_ON => Some((identity, is_unverified)),
            _ => None,
        }
    }
}

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Processes a datagram to the address of a protected group. The local address of `path` is the address of the
    /// group. `scratch` is memory for the response. The policy and the handler process the request of a member in the
    /// same way as requests under any other protection. If the request may be a replay, the node first challenges its
    /// sender (RFC 9175). It sends at most one challenge a second.
    ///
    /// This function sends no response. [`Self::poll`] writes the response after a random time, and returns its peer:
    /// send the response over the path that [`Self::path`] returns for this peer. A response with an error is never
    /// sent, except a challenge. A 2.05 response without a payload is sent only if it begins an observation.
    /// [`Leisure`](super::Leisure) stores the protected response.
    ///
    /// If a record does not open, it changes no state and gets no response.
    pub fn handle_protected_group<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        datagram: &mut [u8],
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
        scratch: &mut [u8],
    ) {
        if !F::Groups::IS_ON || !F::Leisure::IS_ON {
            return;
        }
        let group = &path.local;
        let Some(principal) = self.features.groups().principal(group) else {
            return cx.counters.discard(Discard::UnknownPeer);
        };
        let mut records = Records::new(datagram);
        let opened = match records.take() {
            Some(record) => self.open_member_request(cx, group, record, application),
            None => Err(Discard::Malformed),
        };
        match opened {
            Ok((sender, content, is_unverified)) => {
                // Only an authentic request gets an entry in the table.
                let Ok(peer) = self.endpoint.plain(cx, path, Rank::Stranger) else { return };
                self.draw_message_id(cx, peer);
                let identity = Identity { principal, protection: Protection::GroupRequest(sender) };
                let request = ToGroup::Protected(identity, is_unverified);
                self.receive(cx, (peer, Some(request)), content, application, scratch);
            }
            Err(discard) => cx.counters.discard(discard),
        }
    }

    /// Opens the request in a record to a group. Returns the SenderID, the content of the record, and a third value:
    /// true if the request may be a replay, so that its sender must be challenged.
    ///
    /// # Errors
    /// The reason why the record is dropped.
    fn open_member_request<'r, C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        group: &Address,
        record: Record<'r>,
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
    ) -> Result<(SenderId, &'r mut [u8], bool), Discard> {
        let groups = self.features.groups();
        let (sender, opened) = groups.open_request(cx.crypto, group, record)?;
        let (content, unverified) = match opened {
            Opened::Fresh(content) => (content, None),
            Opened::Unverified(content, unverified) => (content, Some(unverified)),
            Opened::Clash => {
                application.on_group_clash(group, Some(sender));
                return Err(Discard::Unexpected);
            }
        };
        let message = MessageRef::parse(content).map_err(|_| Discard::Malformed)?;
        let is_request = message.message_type() == MessageType::NonConfirmable && message.code().is_request();
        if !is_request || message.option(OptionNumber::OSCORE).is_some() {
            return Err(Discard::Unexpected);
        }
        let Some(unverified) = unverified else { return Ok((sender, content, false)) };
        let accepted = match message.option(OptionNumber::ECHO) {
            Some(echo) => groups.accept::<C>(group, unverified, Proof::Echo(echo)),
            None => Err(Discard::Unexpected),
        };
        match accepted {
            Ok(()) => Ok((sender, content, false)),
            Err(Discard::Unexpected) => {
                let wants_challenge = !NoResponse::of(&message).suppresses(Code::UNAUTHORIZED);
                if wants_challenge && groups.may_challenge(cx.now, group) {
                    Ok((sender, content, true))
                } else {
                    Err(Discard::Replayed)
                }
            }
            Err(Discard::NoRoom) => {
                // `forget_idle` frees the states of members that have been silent since its last call.
                groups.forget_idle(cx.crypto, group);
                Err(Discard::NoRoom)
            }
            Err(discard) => Err(discard),
        }
    }

    /// Processes the next record of a datagram, if the header of this record is that of a listener's response in a
    /// protected group. Returns true if the record was taken from the datagram.
    ///
    /// In a response of a listener, the highest byte of the sequence number is the GroupID. In a record of a session,
    /// this byte is 0, because the keys of a session seal at most 2^23 records. If the byte is 0 and there is a session
    /// with the same peer, the record belongs to the session.
    pub(super) fn handle_protected_member<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        records: &mut Records<'_>,
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
    ) -> bool {
        let Some(number) = records.next_protected() else { return false };
        let group_id = (number.sequence() >> 40) as u8;
        let Some(group) = self.features.groups().of_response(group_id, path.local.port) else { return false };
        if group_id == 0 && self.endpoint.peers.find(path, Phase::Established).is_some() {
            return false;
        }
        let taken = match records.take() {
            Some(record) => self.take_member_response(cx, (path, &group), record, application),
            None => Err(Discard::Malformed),
        };
        if let Err(discard) = taken {
            cx.counters.discard(discard);
        }
        true
    }

    /// Opens the response of a listener, and passes it to the application.
    ///
    /// # Errors
    /// The reason why the record is dropped.
    fn take_member_response<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        (path, group): (&Path, &Address),
        record: Record<'_>,
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
    ) -> Result<(), Discard> {
        let groups = self.features.groups();
        let principal = groups.principal(group).ok_or(Discard::UnknownPeer)?;
        let epoch = groups.epoch(group);
        let (content, unverified) = match groups.open_response(cx.crypto, group, &path.remote, record)? {
            Opened::Fresh(content) => (content, None),
            Opened::Unverified(content, unverified) => (content, Some(unverified)),
            Opened::Clash => {
                application.on_group_clash(group, None);
                return Err(Discard::Unexpected);
            }
        };
        let message = MessageRef::parse(content).map_err(|_| Discard::Malformed)?;
        let is_response = message.message_type() == MessageType::NonConfirmable && message.code().is_response();
        if !is_response || message.option(OptionNumber::OSCORE).is_some() {
            return Err(Discard::Unexpected);
        }
        let requests = self.features.group_requests();
        let request = requests.find(cx.now, |_, token| token.as_bytes() == message.token());
        let request = request.ok_or(Discard::Unexpected)?;
        let sealed = requests.protection(request).filter(|(to, ..)| to == group);
        let (_, asked_in, tsn) = sealed.ok_or(Discard::Unexpected)?;
        if let Some(unverified) = unverified {
            // A listener that responded to this request has a state, unless the state was forgotten since. Then the
            // request proves nothing.
            if asked_in != epoch {
                return Err(Discard::Unexpected);
            }
            let groups = self.features.groups();
            let accepted = groups.accept::<C>(group, unverified, Proof::AnswerTo(tsn));
            if accepted == Err(Discard::NoRoom) {
                groups.forget_idle(cx.crypto, group);
            }
            accepted?;
        }
        let notification = notification::<F>(&message);
        match self.features.group_requests().note(request, &path.remote, (notification, cx.now)) {
            Ok(true) => {}
            Ok(false) => {
                bump(&mut cx.counters.duplicates);
                return Ok(());
            }
            Err(Full) => return Err(Discard::NoRoom),
        }
        let identity = Identity { principal, protection: Protection::GroupResponse };
        application.on_member_response(request, (path, identity), &message);
        Ok(())
    }

    /// Writes into `out` a request to a protected group, as [`Self::request_group`] does for a plaintext group. The
    /// owner of the node sends the request once to the address of the group, from the address of our member and the
    /// port of the group. If a receiving member does not know our record numbers, it first responds with a challenge.
    /// Send the request again with the Echo option of the challenge (RFC 9175): see
    /// [`Application::on_member_response`].
    ///
    /// A request that registers the node as observer must be sent again with the same token in three cases: before
    /// Max-Age of a response expires, after a challenge of a member (with the Echo option of the challenge), and when
    /// an epoch begins. A member ends a registration of an earlier epoch 5 minutes after its first notification in a
    /// later epoch, and every other registration after 24 hours.
    ///
    /// [`Member::forget_idle`](crate::axiom::Member::forget_idle) forgets the states of silent members. After that, the
    /// node drops the notifications of these members until the next epoch begins, or until the owner registers with
    /// another token. With the same token, the node could not distinguish old notifications from new notifications.
    ///
    /// # Errors
    /// The errors of [`Self::request_group`], and [`SendError::Group`].
    pub fn request_protected_group<'t, C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        group: &Address,
        until: Instant,
        head: impl Into<RequestHead<'t>>,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        let (before, _) = self.features.groups().overhead(group);
        let mut frame = Frame::new(out, before);
        let request = self.write_group_request(cx, until, head.into(), write, &mut frame)?;
        let groups = self.features.groups();
        let epoch = groups.epoch(group);
        let sealed = groups.seal_request(cx.crypto, group, &mut frame);
        let requests = self.features.group_requests();
        let noted = match sealed {
            // Responses with this token may have arrived since the first request with it. A later request proves no
            // more than the first.
            Ok(_) if is_in(requests, request, (group, epoch)) => Ok(()),
            Ok(tsn) => requests.protect(request, (*group, epoch, tsn)).map_err(|Full| SendError::Busy),
            Err(refused) => Err(refused.into()),
        };
        if let Err(error) = noted {
            requests.close(request);
            return Err(error);
        }
        Ok((request, frame.len()))
    }

    /// Reserves space at the front of an empty frame for the protection of a response in a group. Returns the number of
    /// bytes that must remain free after the response: the sum of `tailroom`, the length of the tag, and the length of
    /// the signature.
    pub(super) fn make_space_for_tag(&mut self, group: &Address, tailroom: usize, frame: &mut Frame<'_>) -> usize {
        let (before, behind) = self.features.groups().overhead(group);
        frame.indent(before);
        tailroom.saturating_add(behind)
    }

    /// Writes into `out` the response to a deferred request of a member, and protects this response. The response is
    /// not confirmable, because no member can acknowledge it. `number` is the value of the Observe option; `None` if
    /// the member does not observe the resource.
    pub(super) fn respond_to_member<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        &Deferred { peer, token, .. }: &Deferred<ExchangeOf<F>>,
        (sender, code, number): (SenderId, Code, Option<u32>),
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<usize, SendError> {
        let group = self.endpoint.peers.peer(peer).ok_or(Misuse::NotEstablished)?.path().local;
        let message_id = self.member_message_id(peer)?;
        let groups = self.features.groups();
        let mut frame = Frame::new(out, groups.overhead(&group).0);
        let head = MessageType::NonConfirmable;
        let mut builder = Builder::new(&mut frame, head, code, message_id, token.as_bytes())?;
        write(&mut builder)?;
        if F::Observers::PLACES > 0 {
            observe(number, &mut builder)?;
        }
        groups.seal_response(cx.crypto, &group, sender, &mut frame)?;
        Ok(frame.len())
    }

    /// Returns a new Message ID for a response to `peer`, which is a sender of a protected group.
    pub(super) fn member_message_id(&mut self, peer: PeerId) -> Result<u16, SendError> {
        let exchanges = self.endpoint.peers.attached(peer).and_then(PeerExchanges::exchanges);
        Ok(exchanges.ok_or(Misuse::NotEstablished)?.message_id())
    }

    /// True if `peer` is a sender of a protected group: see the documentation of this module.
    pub(super) fn is_in_group(&mut self, peer: PeerId) -> bool {
        let Some(entry) = self.endpoint.peers.peer(peer) else { return false };
        let group = entry.path().local;
        self.features.groups().principal(&group).is_some()
    }

    /// Returns the two addresses for a datagram to `peer`: ours and the peer's. These are usually the addresses in the
    /// table entry. If the peer is a sender of a protected group, the local address is instead the unicast address of
    /// our member, with the port of the group.
    pub fn path(&mut self, peer: PeerId) -> Option<Path> {
        let path = *self.endpoint.peers.peer(peer)?.path();
        let Some(ip) = self.features.groups().address(&path.local).filter(|_| F::Groups::IS_ON) else {
            return Some(path);
        };
        Some(Path { local: Address { ip, ..path.local }, ..path })
    }
}

/// True if the node has already sent this open request, with the same token, to this group in this epoch.
fn is_in<G: GroupRequests>(requests: &G, request: RequestId, (group, epoch): (&Address, u16)) -> bool {
    let sealed = if G::OBSERVES { requests.protection(request) } else { None };
    sealed.is_some_and(|(to, sealed_in, _)| to == *group && sealed_in == epoch)
}
