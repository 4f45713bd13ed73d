//! The endpoint: it has the peer table, and assigns received records to peers.
//!
//! The owner of an endpoint is the program that contains the endpoint and calls its functions. The owner passes
//! received datagrams and the time to the endpoint. The owner gets from the endpoint the datagrams to send and the time
//! of the next alarm:
//!
//! * For each received datagram, call [`Endpoint::handle`] until it returns `None`.
//! * After that, and when the time of [`Endpoint::next_alarm`] has come, call [`Endpoint::poll`] until it returns
//!   `None`.
//! * Answer [`Event::Need`] with [`Endpoint::resume`], at once or later.

mod array;
mod event;
mod exporter;
mod hello;
mod mobility;
mod one;
pub(crate) mod peers;
mod restore;
mod resumption;
mod simultaneous;

pub use array::PeerArray;
pub use event::{Event, Misuse};
pub use one::OnePeer;
pub use peers::{Inserted, NewPeer, Peer, Peers, Phase, TableFull, may_displace};

use crate::address::Path;
use crate::buf::{Frame, Full, Span};
use crate::counters::{Discard, bump};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::association::Rank;
use crate::dtls::context::HandshakeContext;
use crate::dtls::cookie::Cookies;
use crate::dtls::handshake::MessageType;
use crate::dtls::need::{Answer, Need};
use crate::dtls::outcome::Outcome;
use crate::dtls::record::{self, ContentType, Record, RecordNumber, Records};
use crate::dtls::record_size::RecordSize;
use crate::dtls::roles::{Both, Configured, Roles};
use crate::dtls::state::Step;
use crate::dtls::{AlertDescription, Config, Fatal, Settings, alert};
use crate::identity::{PeerId, Principal};
use crate::time::Instant;

/// Number of free bytes that a frame needs before its content, with a CCM_8 cipher suite and without a connection id.
pub const HEADROOM: usize = record::HEADROOM;
/// Number of free bytes that a frame needs at most before its content, with any cipher suite and any connection id.
pub const MAX_HEADROOM: usize = record::HEADER_LEN + record::cipher::BLOCK_LEN + record::connection_id::MAX_OVERHEAD.0;
/// Number of free bytes that a frame needs after its content, with a CCM_8 cipher suite and without a connection id.
pub const TAILROOM: usize = record::TAG_LEN;
/// Number of free bytes that a frame needs at most after its content, with any cipher suite, and with or without a
/// connection id. If the frame has more free bytes, padding can use them.
pub const MAX_TAILROOM: usize = record::cipher::MAX_TAIL_LEN + record::connection_id::MAX_OVERHEAD.1;

/// An endpoint in the roles `R`, with the table of its peers. The owner of the endpoint may use one or more sockets for
/// the endpoint.
pub struct Endpoint<P: Peers, R: Roles = Both> {
    /// The table of peers. The owner of the endpoint may read the table, and may set alarms.
    pub peers: P,
    settings: Settings,
    cookies: Cookies,
    /// The roles, with their keys. Changes of this field do not affect the parameters of existing sessions.
    pub roles: R,
}

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// Creates an endpoint without peers.
    pub fn new<C: Crypto>(cx: &mut Cx<'_, C>, peers: P, config: Config) -> Self
    where
        R: Configured,
    {
        Self::with_roles(cx, peers, config, R::new(&config))
    }

    /// Creates an endpoint without peers. `roles` are its roles, which may need more data than the settings in
    /// `config`.
    pub fn with_roles<C: Crypto>(cx: &mut Cx<'_, C>, peers: P, config: Config, roles: R) -> Self {
        let settings = Settings::from(config);
        let mut cookies = Cookies::none();
        if R::SERVER {
            cookies.begin(cx.crypto);
        }
        Self { peers, settings, cookies, roles }
    }

    /// Sets the maximum length of handshake datagrams to `mtu` bytes from now on, or to 64 bytes if `mtu` is less. Call
    /// this function when the network reports that longer datagrams do not arrive. If the present maximum is already
    /// smaller, it does not change. Lost datagrams are sent again when their timers expire.
    pub fn limit_mtu(&mut self, mtu: u16) {
        self.settings.mtu = self.settings.mtu.min(mtu.max(64));
    }

    /// Sets the server name and the time limit of a handshake that [`Self::connect`] has just begun. If `name` is not
    /// empty, it replaces [`Keys::server_name`](crate::dtls::roles::Keys) in the server_name extension (RFC 6066,
    /// section 3). Only the roles of a host can set a name: see [`Roles::ON_HOST`]. The handshake fails if it is not
    /// complete at the time `until`.
    ///
    /// # Errors
    /// [`Full`] if the name does not fit the buffer of the handshake.
    pub fn limit_handshake(&mut self, id: PeerId, name: &[u8], until: Instant) -> Result<(), Full> {
        let Some(handshake) = &mut self.peers.handshake(id) else { return Ok(()) };
        handshake.state.give_up = until;
        if R::ON_HOST && R::KEEPS && !name.is_empty() { handshake.name_server(name) } else { Ok(()) }
    }

    /// Processes the next record of a datagram that arrived over `path` on a DTLS port. Writes the answer into `out` if
    /// there is an answer.
    ///
    /// Call this function until it returns `None`, because a datagram may contain several records.
    pub fn handle<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        records: &mut Records<'_>,
        out: &mut [u8],
    ) -> Option<Event> {
        let datagram = records.address();
        loop {
            if records.is_empty() {
                if R::CONNECTION_ID
                    && let Some(len) = self.challenge(cx, path, out)
                {
                    return Some(Event::Answer { len: len as u16 });
                }
                return None;
            }
            if R::CONNECTION_ID && records.has_connection_id() {
                match self.on_record_with_id(cx, path, records, out) {
                    Output::Datagram(0) | Output::Event(None) => continue,
                    Output::Datagram(len) => return Some(Event::Answer { len }),
                    Output::Event(event) => return event,
                }
            }
            let first = records.is_whole();
            let before = records.position();
            let Some(record) = records.take() else {
                cx.counters.discard(Discard::Malformed);
                return None;
            };
            if R::SERVER && hello::is_client_hello(&record) {
                // A ClientHello is a complete flight. Further ClientHellos in the datagram would each be answered
                // with a datagram.
                if R::ONE_HELLO && !first && !(R::HELLO_FRAGMENTS && hello::continues_hello(&record)) {
                    cx.counters.discard(Discard::Unexpected);
                    continue;
                }
                match self.on_client_hello(cx, path, &record, out) {
                    0 => continue,
                    len => return Some(Event::Answer { len: len as u16 }),
                }
            }
            if R::CONNECTION_ID
                && record.is_return_routability_check()
                && let Some(id) = self.peers.find(path, Phase::Established)
            {
                match self.on_protected(cx, path, id, datagram, record, out) {
                    Output::Datagram(0) | Output::Event(None) => continue,
                    Output::Datagram(len) => return Some(Event::Answer { len }),
                    Output::Event(event) => return event,
                }
            }
            // A server opens millions of such records in a second.
            if cfg!(target_pointer_width = "64")
                && record.is_application_data()
                && let Some(id) = self.peers.find(path, Phase::Established)
            {
                match self.open(cx, id, record) {
                    Some((_, bytes)) => {
                        return Some(Event::Message { peer: id, bytes: Span::within(datagram, bytes) });
                    }
                    None => match self.after_dropped(id) {
                        Ok(()) => continue,
                        over => return self.on_outcome(cx, id, over),
                    },
                }
            }
            if let Some(event) = self.on_record(cx, path, datagram, record) {
                // The bytes of the record after a certificate are processed after the certificate is verified. The
                // record was plaintext, as every record that leads to a question, so it was not changed.
                if R::CERTIFICATES_IN_PARTS && matches!(event, Event::Need(_)) {
                    records.go_back(before);
                }
                return Some(event);
            }
        }
    }

    /// Decrypts a record of a session. Returns its content type and its content; `None` if the record is dropped.
    // An image of a mote must not contain this code twice; a server opens millions of records a second.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    #[cfg_attr(not(target_pointer_width = "64"), inline)]
    fn open<'r, C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: PeerId,
        record: Record<'r>,
    ) -> Option<(ContentType, &'r mut [u8])> {
        let ours = if R::CONNECTION_ID { self.received_id(id) } else { None };
        let Some(peer) = self.peers.peer(id).filter(|peer| peer.is_session) else {
            cx.counters.discard(Discard::UnknownPeer);
            return None;
        };
        let mut content_type = record.content_type();
        if R::RESTORES && peer.association.channel.is_unverified() {
            return match peer.association.channel.open_unverified(cx.crypto, ours.as_ref(), record, &mut content_type) {
                // An alert that may be a replay ends no session. The response of a check proves by its cookie that it
                // is not a replay.
                Ok(content) => Some((content_type, content)).filter(|_| {
                    let checks = R::CONNECTION_ID && content_type == ContentType::RETURN_ROUTABILITY_CHECK;
                    checks || content_type == ContentType::APPLICATION_DATA
                }),
                Err(discard) => {
                    cx.counters.discard(discard);
                    None
                }
            };
        }
        let content = match peer.association.channel.open_by(cx.crypto, ours.as_ref(), record, &mut content_type) {
            Ok(content) => content,
            Err(discard) => {
                cx.counters.discard(discard);
                return None;
            }
        };
        if R::RECORD_SIZE && content.len() > peer.association.record_size.received(self.roles.record_size_limit()) {
            let _ = self.close_with(id, Fatal::RecordOverflow);
            return None;
        }
        peer.last_heard = cx.now.coarse();
        // Application data can only follow our last flight, so that flight will not be needed again.
        if content_type == ContentType::APPLICATION_DATA && peer.association.awaits_retransmission {
            peer.association.awaits_retransmission = false;
            self.peers.release_handshake(id);
        }
        Some((content_type, content))
    }

    /// Passes a record to its session, or to the handshake in progress on the same path.
    #[cfg_attr(target_pointer_width = "64", inline(never))]
    fn on_record<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        datagram: usize,
        record: Record<'_>,
    ) -> Option<Event> {
        // A failed attempt to open a record destroys it. So one of the two associations on the path is chosen first:
        // the handshake in progress for handshake messages, the session for all other records.
        let content_type = record.content_type();
        let handshaking = self.peers.find(path, Phase::Handshaking);
        if record.epoch() != 0
            && !(content_type == ContentType::HANDSHAKE && handshaking.is_some())
            && let Some(id) = self.peers.find(path, Phase::Established)
        {
            let outcome = match self.open(cx, id, record) {
                Some((ContentType::APPLICATION_DATA, bytes)) => {
                    return Some(Event::Message { peer: id, bytes: Span::within(datagram, bytes) });
                }
                Some((content_type, content)) => self.on_content(cx, id, content_type, content),
                None => self.after_dropped(id),
            };
            return self.on_outcome(cx, id, outcome);
        }
        if let Some(id) = handshaking
            && let Some(handshake) = &mut self.peers.handshake(id)
        {
            let outcome =
                handshake.receive(cx, HandshakeContext { settings: &self.settings, roles: &self.roles }, record);
            return self.on_outcome(cx, id, outcome);
        }
        cx.counters.discard(Discard::UnknownPeer);
        None
    }

    fn insert<C>(&mut self, cx: &mut Cx<'_, C>, new: &NewPeer<'_>) -> Result<PeerId, TableFull> {
        let inserted = self.peers.insert(new).inspect_err(|_| bump(&mut cx.counters.table_full))?;
        if inserted.evicted {
            bump(&mut cx.counters.evicted);
        }
        if let Some(peer) = self.peers.peer(inserted.id) {
            peer.last_heard = cx.now.coarse();
        }
        self.peers.schedule(inserted.id, Instant::AT_ONCE);
        Ok(inserted.id)
    }

    /// Processes the content of a record that contains no application data.
    #[inline]
    fn on_content<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: PeerId,
        content_type: ContentType,
        content: &[u8],
    ) -> Result<(), Outcome> {
        match content_type {
            ContentType::ALERT => match *content {
                [alert::FATAL, description] => Err(Fatal::Alert(AlertDescription(description)).into()),
                [_, 0] => Err(Fatal::Closed.into()),
                _ => Ok(()),
            },
            // A ClientHello or a HelloRequest within a session asks for a renegotiation. The endpoint answers both
            // messages with a warning (RFC 5246, section 7.2.2), as client and as server, because a session that was
            // restored from a store does not contain the role of the endpoint.
            ContentType::HANDSHAKE
                if R::WARNS
                    && let Some(kind) = content.first()
                    && [MessageType::HELLO_REQUEST.0, MessageType::CLIENT_HELLO.0].contains(kind) =>
            {
                if let Some(peer) = self.peers.peer(id) {
                    peer.alert = Some(AlertDescription::NO_RENEGOTIATION);
                    self.peers.schedule(id, Instant::AT_ONCE);
                }
                Err(Discard::Unexpected.into())
            }
            // The peer repeats its Finished if our last flight was lost. Only the endpoint that sent the last flight
            // repeats it. In a resumed handshake the server has nothing to repeat, and two endpoints that answer each
            // other would never stop.
            ContentType::HANDSHAKE
                if let Some(handshake) = &mut self.peers.handshake(id)
                    && (!R::RESUMPTION || handshake.association.awaits_retransmission) =>
            {
                // A Finished in fragments is answered once: its first fragment has offset 0.
                if !matches!(content, [kind, _, _, _, _, _, 0, 0, 0, ..] if *kind == MessageType::FINISHED.0)
                    || !handshake.state.is_lingering()
                {
                    return Err(Discard::Unexpected.into());
                }
                bump(&mut cx.counters.retransmitted);
                handshake.state.send_flight();
                Ok(())
            }
            _ => Err(Discard::Unexpected.into()),
        }
    }

    /// Called after a record was dropped. Returns an error if the session must end: the content of the record was
    /// longer than the agreed limit, or too many records have failed to decrypt.
    #[cfg_attr(target_pointer_width = "64", cold)]
    fn after_dropped(&mut self, id: PeerId) -> Result<(), Outcome> {
        // An entry may have the wiped keys of a session that has ended. They do not belong to its present peer.
        match self.peers.peer(id).filter(|peer| peer.is_session) {
            Some(peer) if R::RECORD_SIZE && peer.phase == Phase::Closing => Err(Fatal::RecordOverflow.into()),
            Some(peer) if peer.association.channel.is_exhausted() => Err(Fatal::KeyExhausted.into()),
            _ => Ok(()),
        }
    }

    /// Converts the outcome of a handshake step into an event, and sets the alarm for the handshake's next
    /// transmission.
    fn on_outcome<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, id: PeerId, outcome: Result<(), Outcome>) -> Option<Event> {
        if let Some(handshake) = &self.peers.handshake(id) {
            let deadline = handshake.state.deadline();
            self.peers.schedule(id, deadline);
        }
        let discard = match outcome {
            Ok(()) => return None,
            Err(Outcome::Need) => return Some(Event::Need(id)),
            Err(Outcome::Established) => {
                self.establish(cx, id);
                return Some(Event::Established(id));
            }
            Err(Outcome::Fatal(fatal)) => {
                if self.peers.peer(id).is_some_and(|peer| peer.phase == Phase::Handshaking) {
                    bump(&mut cx.counters.failed);
                }
                return Some(self.close_with(id, fatal));
            }
            Err(Outcome::Malformed) => Discard::Malformed,
            Err(Outcome::UnknownPeer) => Discard::UnknownPeer,
            Err(Outcome::Replayed) => Discard::Replayed,
            Err(Outcome::NotAuthentic) => Discard::NotAuthentic,
            Err(Outcome::Unexpected) => Discard::Unexpected,
            Err(Outcome::NoRoom) => Discard::NoRoom,
        };
        cx.counters.discard(discard);
        None
    }

    /// Establishes the session of a peer that proved its key. An older session on the same path ends only now (RFC
    /// 6347, section 4.2.8).
    fn establish<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, id: PeerId) {
        bump(&mut cx.counters.established);
        let resumed = R::RESUMPTION && self.peers.handshake(id).is_some_and(|handshake| handshake.was_resumed());
        let Some(peer) = self.peers.peer(id) else { return };
        let path = peer.path;
        // The server sends the last flight; in a resumed handshake, the client sends it.
        let mut awaits_retransmission = !peer.association.is_client();
        if R::RESUMPTION && resumed {
            awaits_retransmission = !awaits_retransmission;
        }
        // A client without a certificate proved nothing.
        if !R::PUBLIC_KEYS || peer.association.principal != Principal::NOBODY {
            peer.association.rank = peer.association.rank.max(Rank::Authenticated);
        }
        peer.last_heard = cx.now.coarse();
        peer.association.awaits_retransmission = awaits_retransmission;
        if let Some(old) = self.peers.find(&path, Phase::Established) {
            self.peers.remove(old);
        }
        self.peers.set_phase(id, Phase::Established);
        if R::CONNECTION_ID {
            self.settle_connection_ids(id);
        }
        if !awaits_retransmission {
            if R::RESUMPTION
                && let Some(handshake) = &mut self.peers.handshake(id)
            {
                // The handshake ends at the next alarm, so that the owner of the endpoint can read the handshake
                // before.
                handshake.state.end();
                self.peers.schedule(id, Instant::AT_ONCE);
            } else {
                self.peers.release_handshake(id);
            }
        }
        self.schedule_idle(id, cx.now);
    }

    fn schedule_idle(&mut self, id: PeerId, now: Instant) {
        if self.settings.idle_timeout_ms > 0 {
            self.peers.schedule(id, now.after_millis(self.settings.idle_timeout_ms));
        }
    }

    /// Opens a session with the peer at the other end of `path`. [`Event::Need`] then asks for the key, and
    /// [`Event::Established`] reports that the session is ready.
    ///
    /// If the peer connects to us at the same time, one of the two endpoints becomes the server. With
    /// [`Roles::SIMULTANEOUS`] this is the endpoint whose ClientHello has the smaller random. The table entry of the
    /// peer remains the same. If we become the server, the entry gets the rank [`Rank::OursAsServer`], and the peer has
    /// authenticated as a client. So compare [`Peer::principal`] with the intended principal before you send data.
    ///
    /// # Errors
    /// [`TableFull`] if all entries belong to associations that we opened.
    pub fn connect<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, path: &Path) -> Result<PeerId, TableFull> {
        if let Some(old) = self.peers.find(path, Phase::Handshaking) {
            self.peers.remove(old);
        }
        let id = self.insert(cx, &NewPeer::handshaking(path, Rank::Ours))?;
        if R::CONNECTION_ID {
            self.offer_connection_id(cx, id);
        }
        if let Some(handshake) = &mut self.peers.handshake(id) {
            if R::KEEPS {
                handshake.clear_scratch();
            }
            handshake.state.connect(cx, &self.settings);
            if R::RECORD_SIZE {
                handshake.association.record_size = RecordSize::UNLIMITED;
            }
        }
        Ok(id)
    }

    /// Returns the id of a peer whose datagrams are not protected. Adds a table entry for the peer if there is none
    /// yet.
    ///
    /// # Errors
    /// [`TableFull`] if a peer of this rank can displace no other peer, or if a session uses the path. A plaintext
    /// datagram never counts as a datagram from the peer of a session.
    pub fn plain<C>(&mut self, cx: &mut Cx<'_, C>, path: &Path, rank: Rank) -> Result<PeerId, TableFull> {
        if let Some(known) = self.peers.find(path, Phase::Established) {
            let peer = self.peers.peer(known).filter(|peer| !peer.is_session).ok_or(TableFull)?;
            peer.last_heard = cx.now.coarse();
            return Ok(known);
        }
        let (phase, is_session) = (Phase::Established, false);
        self.insert(cx, &NewPeer { path, rank, phase, is_session, with_handshake: false })
    }

    /// Returns the data that the handshake with the peer `id` needs from the owner of the endpoint; `None` if it needs
    /// nothing.
    pub fn need(&mut self, id: PeerId) -> Option<Need<'_>> {
        self.peers.handshake(id)?.need::<R>()
    }

    /// Continues the handshake with the peer `id`. `answer` is the answer to [`Self::need`].
    pub fn resume<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, id: PeerId, answer: Answer<'_>) -> Option<Event> {
        let Some(handshake) = &mut self.peers.handshake(id) else { return None };
        handshake.state.deadline = handshake.state.give_up;
        let context = HandshakeContext { settings: &self.settings, roles: &self.roles };
        let outcome = handshake.resume(cx, context, answer);
        self.on_outcome(cx, id, outcome)
    }

    /// Protects the content of `frame` for the peer `id`. With a CCM_8 suite and without a connection id, the frame
    /// needs [`HEADROOM`] free bytes before its content and [`TAILROOM`] free bytes after it. Otherwise it needs
    /// [`MAX_HEADROOM`] and [`MAX_TAILROOM`] bytes.
    ///
    /// # Errors
    /// [`Misuse`]. Do not send the frame after an error.
    #[inline]
    pub fn seal<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, id: PeerId, frame: &mut Frame<'_>) -> Result<(), Misuse> {
        let to = if R::CONNECTION_ID { self.sent_id(id) } else { None };
        let peer = self.peers.peer(id).filter(|peer| peer.phase == Phase::Established);
        let peer = peer.ok_or(Misuse::NotEstablished)?;
        match to {
            _ if !peer.is_session => Ok(()),
            Some(to) => self.seal_with_id(cx, id, &to, frame),
            None if R::RECORD_SIZE && frame.len() > peer.association.record_size.sent() => Err(Misuse::TooLong),
            None => Ok(peer.association.channel.seal(cx.crypto, ContentType::APPLICATION_DATA, frame)?),
        }
    }

    /// Closes the association with the peer `id`: the next [`Self::poll`] sends close_notify.
    pub fn close(&mut self, id: PeerId) {
        let _ = self.close_with(id, Fatal::Closed);
    }

    /// Ends the association with a peer. From now on, the endpoint does not find the peer by its address. It removes
    /// the table entry after it has sent the alert.
    fn close_with(&mut self, id: PeerId, reason: Fatal) -> Event {
        self.begin_to_close(id, reason);
        Event::Closed { peer: id, reason }
    }

    #[inline(never)]
    fn begin_to_close(&mut self, id: PeerId, reason: Fatal) {
        let alert = reason.alert();
        if let Some(peer) = self.peers.peer(id)
            && peer.phase != Phase::Closing
        {
            peer.alert = if peer.is_session { alert } else { None };
            self.peers.set_phase(id, Phase::Closing);
            self.peers.schedule(id, Instant::AT_ONCE);
        }
    }

    /// Returns the time at which the owner of the endpoint must call [`Self::poll`]; `None` if no call is due. An early
    /// call is harmless; a late call delays datagrams.
    pub fn next_alarm(&self) -> Option<Instant> {
        self.peers.next_alarm()
    }

    /// Processes everything that is due at the present time: sends flights and alerts, sends lost flights again, and
    /// removes peers from which no record arrived for too long.
    ///
    /// Call this function until it returns `None`. `out` must be long enough for a datagram of the configured size.
    pub fn poll<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, out: &mut [u8]) -> Option<Event> {
        loop {
            let id = self.peers.take_due(cx.now)?;
            match self.on_alarm(cx, id, out) {
                Output::Datagram(0) | Output::Event(None) => {}
                Output::Datagram(len) => return Some(Event::Transmit { peer: id, len }),
                Output::Event(event) => return event,
            }
        }
    }

    fn on_alarm<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, id: PeerId, out: &mut [u8]) -> Output {
        let Some(peer) = self.peers.peer(id) else { return Output::Event(None) };
        let phase = peer.phase;
        if phase == Phase::Closing {
            // The next alarm removes the peer, so that its path is known while its alert is sent.
            let Some(alert) = peer.alert.take() else {
                self.peers.remove(id);
                return Output::Event(None);
            };
            self.peers.schedule(id, Instant::AT_ONCE);
            return self
                .write_alert(cx, id, alert, out)
                .map_or(Output::Event(None), |len| Output::Datagram(len as u16));
        }
        if R::WARNS
            && let Some(alert) = peer.alert.take()
        {
            self.peers.schedule(id, Instant::AT_ONCE);
            return self
                .write_alert(cx, id, alert, out)
                .map_or(Output::Event(None), |len| Output::Datagram(len as u16));
        }
        let idle_since = Instant::from_micros(u64::from(peer.last_heard) << 20);
        if let Some(handshake) = &mut self.peers.handshake(id) {
            let context = HandshakeContext { settings: &self.settings, roles: &self.roles };
            if R::PUBLIC_KEYS && handshake.state.step == Step::ServerBegins {
                let outcome = handshake.begin_exchange(cx, context);
                return Output::Event(self.on_outcome(cx, id, outcome));
            }
            let mut outcome = Ok(0);
            if handshake.state.deadline() <= cx.now {
                outcome = handshake.transmit(cx, context, out);
            }
            let deadline = handshake.state.deadline();
            match outcome {
                // The last flight was kept for the required time.
                Ok(0) if deadline <= cx.now => self.peers.release_handshake(id),
                Ok(len) => {
                    self.peers.schedule(id, deadline);
                    if len > 0 {
                        // The flight has used the alarm of the peer, which the owner of the endpoint may also have set.
                        if phase == Phase::Established {
                            self.peers.schedule(id, Instant::AT_ONCE);
                        }
                        return Output::Datagram(len as u16);
                    }
                }
                Err(fatal) => {
                    bump(&mut cx.counters.failed);
                    return Output::Event(Some(self.close_with(id, fatal)));
                }
            }
        }
        if phase == Phase::Handshaking {
            return Output::Event(None);
        }
        if self.settings.idle_timeout_ms > 0 {
            let until = idle_since.after_millis(self.settings.idle_timeout_ms);
            if until <= cx.now {
                return Output::Event(Some(self.close_with(id, Fatal::Idle)));
            }
            self.peers.schedule(id, until);
        }
        Output::Event(Some(Event::Alarm(id)))
    }

    #[inline(never)]
    fn write_alert<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: PeerId,
        description: AlertDescription,
        out: &mut [u8],
    ) -> Option<usize> {
        let warns = description == AlertDescription::CLOSE_NOTIFY
            || R::WARNS && description == AlertDescription::NO_RENEGOTIATION;
        let level = if warns { alert::WARNING } else { alert::FATAL };
        let alert = [level, description.0];
        if let Some(handshake) = &mut self.peers.handshake(id)
            && !handshake.state.has_changed_cipher::<R>()
        {
            return write_plain_alert(handshake.next_number(), alert, out).ok();
        }
        self.write_record(cx, id, ContentType::ALERT, &alert, out)
    }
}

fn write_plain_alert(number: RecordNumber, alert: [u8; 2], out: &mut [u8]) -> Result<usize, Full> {
    record::write_plain(out, ContentType::ALERT, number, &alert, 0)
}

/// The result of processing a record or an alarm.
enum Output {
    /// The number of bytes of a datagram that must be sent; 0 if there is no datagram.
    Datagram(u16),
    Event(Option<Event>),
}
