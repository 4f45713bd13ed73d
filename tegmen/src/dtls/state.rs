//! One handshake in progress: a struct changed in place, and what both roles have in common.

use super::connection_id::ConnectionIds;
use super::flight::Element;
use super::handshake::certificate::CertificateType;
use super::handshake::finished::{VERIFY_LEN, write_verify_data};
use super::handshake::{self, Fragment, HEADER_LEN, MessageType, Random};
use super::inbox::{Held, Inbox};
use super::kept::{self, Item};
use super::record::{Aead, ContentType, Record};
use super::suite::KeyExchange;
use super::{AlertDescription, Discard, Fatal, Profile, Settings, alert};
use crate::buf::{Reader, copy};
use crate::counters::{Counters, bump};
use crate::crypto::hash::{DIGEST_LEN, HmacKey, Sha256};
use crate::crypto::{Crypto, NamedGroup};
use crate::endpoint::{Cx, Peer, Principal, Roles};
use crate::secret::{Secret, same, wipe};
use crate::time::Instant;

/// Where a handshake stands, in the order of the protocol; the client's steps, then the server's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    AwaitHelloVerifyRequest,
    AwaitServerHello,
    AwaitServerHelloDone,
    ClientNeedsPsk,
    AwaitServerChangeCipherSpec,
    AwaitServerFinished,

    AwaitClientKeyExchange,
    ServerNeedsPsk,
    AwaitClientChangeCipherSpec,
    AwaitClientFinished,
    /// Done, but the last flight may have to be sent again.
    Lingering,

    // With public keys, between those above; last, so that the numbers of those above have no holes.
    AwaitServerCertificate,
    ClientVerifies,
    AwaitServerKeyExchange,
    ClientSigns,

    /// The server has its key pair still to draw.
    ServerBegins,
    ServerSigns,
    AwaitClientCertificate,
    ServerVerifies,
    AwaitCertificateVerify,
}

/// What one handshake remembers besides its [`Buffers`] and the [`Channel`](super::Channel) that it fills.
#[repr(C)] // small fields first: a mote reaches the first 32 bytes with short instructions
pub struct HandshakeState {
    pub(crate) step: Step,
    /// The first element of our flight, and that which is written next.
    pub(crate) flight: Element,
    pub(crate) element: Element,
    /// Elements before this one are in the transcript already.
    pub(crate) hashed: Element,
    pub(crate) outgoing_len: u8,
    /// HelloVerifyRequests followed, or Finished records that did not open.
    pub(crate) failures: u8,
    /// [`Profile::Minimal`]: no extensions, and the last messages in datagrams of their own.
    pub(crate) minimal: bool,
    /// The cipher suite in two parts.
    pub(crate) aead: Aead,
    pub(crate) exchange: KeyExchange,
    /// The number of the [`Credential`](crate::endpoint::Credential) that we show, [`NO_CREDENTIAL`] if we show none.
    pub(crate) credential: u8,
    pub(crate) flags: Flags,
    pub(crate) extended_master_secret: bool,
    pub(crate) renegotiation_info: bool,
    /// The peer's ChangeCipherSpec came while the key was still being looked up.
    pub(crate) change_cipher_spec: bool,
    pub(crate) identity_unknown: bool,
    /// Our flight was sent again because the peer's came again, since the timer last ran out.
    pub(crate) repeated: bool,
    /// Where the next fragment of the current element begins.
    pub(crate) fragment_offset: u16,
    /// message_seq of the first message of our flight.
    pub(crate) flight_seq: u16,
    /// message_seq of the message that is due from the peer, and what it was when our flight began.
    pub(crate) receive_seq: u16,
    pub(crate) answered_seq: u16,
    /// Current retransmission timeout in milliseconds; 0 before the flight is sent.
    pub(crate) timeout_ms: u32,
    pub(crate) inbox: Inbox,
    /// When to transmit, the first time or again.
    pub(crate) deadline: Instant,
    pub(crate) give_up: Instant,
    /// Sequence number of our next plaintext record.
    pub(crate) next_sequence: u64,
    pub(crate) master: HmacKey,
    pub(crate) client_random: Random,
    pub(crate) server_random: Random,
    pub(crate) verify: [u8; VERIFY_LEN],
    pub(crate) transcript: Sha256,
}

/// Forgets what a handshake with public keys kept in its [outgoing room](Buffers::outgoing): for the table, whose memory it
/// is, before another handshake gets it.
pub fn wipe_room(outgoing: &mut [u8]) {
    kept::clear(outgoing);
}

/// No [`HandshakeState::credential`].
pub(crate) const NO_CREDENTIAL: u8 = u8::MAX;

/// What was agreed on beside the suite, in a handshake with public keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flags(pub(crate) u8);

impl Flags {
    /// The group is x25519, else secp256r1.
    pub(crate) const X25519: u8 = 1;
    /// The server shows a raw public key; the client does.
    pub(crate) const RAW_SERVER: u8 = 1 << 1;
    pub(crate) const RAW_CLIENT: u8 = 1 << 2;
    /// The client offered to choose the type of the server's certificate, of the client's.
    pub(crate) const SERVER_TYPE: u8 = 1 << 3;
    pub(crate) const CLIENT_TYPE: u8 = 1 << 4;
    /// The client is asked for a certificate.
    pub(crate) const ASKED: u8 = 1 << 5;
    /// It has shown one, and has to prove it.
    pub(crate) const CERTIFIED: u8 = 1 << 6;

    pub(crate) const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub(crate) const fn set(&mut self, flag: u8, value: bool) {
        self.0 = if value { self.0 | flag } else { self.0 & !flag };
    }

    /// The group of the agreement.
    pub(crate) const fn group(self) -> NamedGroup {
        if self.has(Self::X25519) { NamedGroup::X25519 } else { NamedGroup::SECP256R1 }
    }
}

/// What an endpoint knows of itself in each of its handshakes.
pub(crate) struct Local<'l, R> {
    pub(crate) settings: &'l Settings,
    pub(crate) roles: &'l R,
}

impl<R> Clone for Local<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Local<'_, R> {}

/// The room of one handshake, which belongs to the peer table.
pub struct Buffers<'b> {
    /// What a flight needs to be written again: the cookie, later the PSK identity. Up to 255 bytes are of use; with public
    /// keys, as many more as two shares, a signature and the peer's public key have: 350 with ECDSA, 900 with RSA-2048.
    pub outgoing: &'b mut [u8],
    /// Fragments and early records.
    pub incoming: &'b mut [u8],
}

/// A handshake with everything it works on.
pub struct Ongoing<'b> {
    /// Its own memory.
    pub state: &'b mut HandshakeState,
    /// Whose it is: it makes the keys there, and says how the peer proved itself.
    pub peer: &'b mut Peer,
    /// Its connection ids, where some were offered.
    pub ids: Option<&'b mut ConnectionIds>,
    /// Its room.
    pub buffers: Buffers<'b>,
}

/// What ends the handling of a record: nothing behind it can be due. One variant alone holds anything, so that all of it
/// is in two registers of a mote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// Something is needed: ask [`Ongoing::need`], answer with [`Ongoing::resume`].
    Need,
    /// Both sides proved that they have the key.
    Established,
    /// The rest of the record is dropped: these are the reasons of [`Discard`].
    Malformed,
    UnknownPeer,
    Replayed,
    NotAuthentic,
    Unexpected,
    NoRoom,
    /// The association is over.
    Fatal(Fatal),
}

impl From<Discard> for Stop {
    fn from(discard: Discard) -> Self {
        match discard {
            Discard::Malformed => Self::Malformed,
            Discard::UnknownPeer => Self::UnknownPeer,
            Discard::Replayed => Self::Replayed,
            Discard::NotAuthentic => Self::NotAuthentic,
            Discard::Unexpected => Self::Unexpected,
            Discard::NoRoom => Self::NoRoom,
        }
    }
}

impl From<Fatal> for Stop {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

/// What a suspended handshake waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need<'n> {
    /// We are the client: which identity and key for this server? It sent this hint, often an empty one.
    PskForServer {
        /// PSK identity hint (RFC 4279, section 5.2).
        hint: &'n [u8],
    },
    /// We are the server: which key has this identity?
    PskOfClient {
        /// PSK identity (RFC 4279, section 5.1).
        identity: &'n [u8],
    },
    /// Is this peer to be trusted? It has not proved yet that it owns the key.
    VerifyPeer {
        /// How it shows its public key.
        certificate_type: CertificateType,
        /// What it shows: see [`Credential::content`](crate::endpoint::Credential::content).
        content: &'n [u8],
    },
    /// Sign this with our private key.
    Sign {
        /// The number of our [`Credential`](crate::endpoint::Credential).
        credential: u8,
        /// SHA-256 of what is signed.
        digest: [u8; DIGEST_LEN],
    },
}

/// The answer to a [`Need`].
#[derive(Clone, Copy)]
pub enum Answer<'n> {
    /// A pre-shared key.
    Psk {
        /// Our identity, if we are the client; not looked at otherwise.
        identity: &'n [u8],
        /// The key, 1 to 64 bytes.
        key: &'n [u8],
        /// How the application will know the peer in requests.
        principal: Principal,
    },
    /// There is none. A server goes on with a random key, so that nobody learns which identities exist.
    Unknown,
    /// The peer is trusted, if it proves that it has the private key of this one.
    Peer {
        /// Its SubjectPublicKeyInfo, DER.
        public_key: &'n [u8],
        /// How the application will know the peer in requests.
        principal: Principal,
    },
    /// It is not; the peer is told this.
    Refused(AlertDescription),
    /// The signature, in the form of its scheme: of ECDSA DER.
    Signature(&'n [u8]),
}

/// Longest pre-shared key in bytes (RFC 4279, section 5.3, asks for 64).
pub const MAX_PSK: usize = 64;

impl HandshakeState {
    /// A place for a handshake that has not begun. All bytes are zero, so that a table of them takes no flash.
    pub const fn idle() -> Self {
        Self {
            step: Step::AwaitHelloVerifyRequest,
            flight: Element::ClientHello,
            element: Element::ClientHello,
            hashed: Element::ClientHello,
            fragment_offset: 0,
            flight_seq: 0,
            receive_seq: 0,
            answered_seq: 0,
            minimal: false,
            aead: Aead::Ccm8,
            exchange: KeyExchange::Psk,
            credential: 0,
            flags: Flags(0),
            extended_master_secret: false,
            renegotiation_info: false,
            change_cipher_spec: false,
            identity_unknown: false,
            repeated: false,
            failures: 0,
            outgoing_len: 0,
            inbox: Inbox::new(),
            timeout_ms: 0,
            deadline: Instant::from_micros(0),
            give_up: Instant::from_micros(0),
            next_sequence: 0,
            client_random: [0; 32],
            server_random: [0; 32],
            verify: [0; VERIFY_LEN],
            transcript: Sha256::none(),
            master: HmacKey::none(),
        }
    }

    /// Begins, in a place that was [`Self::idle`] or [`Self::wipe`]d; the first flight is due at once.
    pub(crate) fn begin(&mut self, step: Step, flight: Element, now: Instant, settings: &Settings) {
        // Field by field, because a whole idle one would stand on a mote's stack first.
        self.step = step;
        self.flight = flight;
        self.flight_seq = 0;
        self.receive_seq = 0;
        self.extended_master_secret = false;
        self.renegotiation_info = false;
        self.change_cipher_spec = false;
        self.identity_unknown = false;
        self.failures = 0;
        self.outgoing_len = 0;
        self.next_sequence = 0;
        self.inbox.clear();
        self.transcript.restart();
        self.minimal = settings.profile == Profile::Minimal;
        self.give_up = now.after_millis(settings.handshake_timeout_ms);
        self.await_answer();
    }

    /// Forgets all secrets; what a handshake with public keys left in its room is forgotten with [`wipe_room`].
    pub fn wipe(&mut self) {
        self.master.wipe();
        wipe(&mut self.verify);
    }

    /// When the endpoint has to look at this handshake again.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// True once the handshake is over and only its last flight is kept.
    pub fn is_lingering(&self) -> bool {
        self.step == Step::Lingering
    }

    /// The next flight, to be sent at once; what was received for the previous one is forgotten.
    #[inline(never)]
    pub(crate) fn start_flight<R: Roles>(&mut self, flight: Element) {
        // Without public keys only a flight of one or two messages is followed by another.
        let messages = match R::PUBLIC_KEYS {
            true => self.messages_before::<R>(Element::Sent),
            false if self.flight == Element::ServerHello => 2,
            false => 1,
        };
        self.flight_seq = self.flight_seq.wrapping_add(messages);
        self.flight = flight;
        self.await_answer();
    }

    /// A new flight begins: nothing of it was sent or hashed.
    fn await_answer(&mut self) {
        self.hashed = self.flight;
        self.answered_seq = self.receive_seq;
        self.timeout_ms = 0;
        self.repeated = false;
        self.send_flight();
    }

    /// The peer's flight came again, so ours was lost. It goes out again only once for each run of the timer: two ends
    /// that answer every repetition with one would never stop.
    #[inline(always)]
    pub(crate) fn answer_repetition(&mut self, counters: &mut Counters) {
        if !self.repeated {
            self.repeated = true;
            bump(&mut counters.retransmitted);
            self.send_flight();
        }
    }

    /// Adds a message to the transcript, as if it came in one piece (RFC 6347, section 4.2.6).
    #[inline(never)]
    pub(crate) fn hash_message<C: Crypto>(&mut self, kind: MessageType, seq: u16, body: &[u8]) {
        let len = body.len() as u32;
        self.transcript.update::<C>(&handshake::header(kind, len, seq, 0, len));
        self.transcript.update::<C>(body);
    }

    /// Our flight is due at once, from its first element on.
    #[inline(never)]
    pub(crate) fn send_flight(&mut self) {
        self.element = self.flight;
        self.fragment_offset = 0;
        self.deadline = Instant::AT_ONCE;
    }
}

impl Step {
    /// True while the certificate of the peer is looked at.
    const fn verifies(self) -> bool {
        matches!(self, Self::ClientVerifies | Self::ServerVerifies)
    }
}

impl Ongoing<'_> {
    /// Takes a record, then what came early and is due behind it.
    #[inline(never)]
    pub(crate) fn receive<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        local: Local<'_, R>,
        record: Record<'_>,
    ) -> Result<(), Stop> {
        match record.epoch() {
            0 => self.receive_plaintext(cx, local, &record)?,
            _ => self.receive_protected(cx, local, record)?,
        }
        self.settle(cx, local)
    }

    /// Takes a record of epoch 0.
    fn receive_plaintext<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        local: Local<'_, R>,
        record: &Record<'_>,
    ) -> Result<(), Stop> {
        match record.content_type() {
            ContentType::HANDSHAKE => self.on_fragments(cx, local, record.body, false),
            ContentType::CHANGE_CIPHER_SPEC if *record.body == [1] => self.on_change_cipher_spec(),
            ContentType::ALERT => {
                // Not authenticated: believed only while there is nothing but this handshake to lose.
                let [level, description] = *record.body else { return Err(Discard::Malformed.into()) };
                if level != alert::FATAL && description != AlertDescription::CLOSE_NOTIFY.0 {
                    return Ok(());
                }
                if self.state.is_lingering() {
                    return Err(Discard::Unexpected.into());
                }
                Err(Fatal::Alert(AlertDescription(description)).into())
            }
            _ => Err(Discard::Unexpected.into()),
        }
    }

    /// Takes a record of the protected epoch, before the handshake is over.
    fn receive_protected<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        local: Local<'_, R>,
        record: Record<'_>,
    ) -> Result<(), Stop> {
        let mut content_type = record.content_type();
        match self.state.step {
            Step::AwaitServerFinished | Step::AwaitClientFinished => {}
            // Its key, or the ChangeCipherSpec before it, may be on the way.
            Step::AwaitClientKeyExchange
            | Step::ServerNeedsPsk
            | Step::AwaitClientChangeCipherSpec
            | Step::AwaitServerChangeCipherSpec
                if content_type == ContentType::HANDSHAKE
                    || R::CONNECTION_ID && content_type == ContentType::TLS12_CID =>
            {
                self.state.inbox.hold(self.buffers.incoming, Held::Record, record.header, record.body)?;
                return Ok(());
            }
            Step::AwaitClientCertificate | Step::ServerVerifies | Step::AwaitCertificateVerify
                if R::PUBLIC_KEYS && content_type == ContentType::HANDSHAKE =>
            {
                self.state.inbox.hold(self.buffers.incoming, Held::Record, record.header, record.body)?;
                return Ok(());
            }
            _ => return Err(Discard::UnknownPeer.into()),
        }
        if content_type == ContentType::APPLICATION_DATA {
            return Err(Discard::Unexpected.into());
        }
        let received = self.ids.as_deref().filter(|_| R::CONNECTION_ID).and_then(ConnectionIds::received);
        let content = match self.peer.channel.open_by(cx.crypto, received, record, &mut content_type) {
            Ok(content) => content,
            Err(Discard::NotAuthentic) => {
                self.state.failures = self.state.failures.saturating_add(1);
                // Once may be anybody's forgery. A client that comes again with it has another key; a forger who knows
                // address and port could as well send an alert himself.
                if self.state.step == Step::AwaitClientFinished && self.state.failures >= 2 {
                    let identity_known = !self.state.identity_unknown;
                    return Err(Fatal::WrongKeyOrIdentity { identity_known }.into());
                }
                return Err(Discard::NotAuthentic.into());
            }
            Err(discard) => return Err(discard.into()),
        };
        if R::RECORD_SIZE && content.len() > self.peer.record_size.received(local.roles.record_size_limit()) {
            return Err(Fatal::RecordOverflow.into());
        }
        match content_type {
            ContentType::HANDSHAKE => self.on_fragments(cx, local, content, true),
            ContentType::ALERT => match *content {
                [alert::FATAL, description] => Err(Fatal::Alert(AlertDescription(description)).into()),
                _ => Ok(()),
            },
            _ => Err(Discard::Unexpected.into()),
        }
    }

    fn on_change_cipher_spec(&mut self) -> Result<(), Stop> {
        self.state.step = match self.state.step {
            Step::AwaitServerChangeCipherSpec => Step::AwaitServerFinished,
            Step::AwaitClientChangeCipherSpec => Step::AwaitClientFinished,
            Step::ServerNeedsPsk => {
                self.state.change_cipher_spec = true;
                return Ok(());
            }
            // Before the key exchange it means nothing (and must change nothing); afterwards it is a repetition.
            _ => return Err(Discard::Unexpected.into()),
        };
        Ok(())
    }

    /// Takes the fragments that one record holds.
    fn on_fragments<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        local: Local<'_, R>,
        bytes: &[u8],
        protected: bool,
    ) -> Result<(), Stop> {
        let mut reader = Reader::new(bytes);
        let mut outcome = Ok(());
        while !reader.is_empty() {
            let fragment = Fragment::read(&mut reader).map_err(|_| Discard::Malformed)?;
            match self.on_fragment(cx, local, &fragment, protected) {
                Ok(()) => {}
                // What follows in the record is kept for later.
                Err(Stop::Need) if R::PUBLIC_KEYS => outcome = Err(Stop::Need),
                Err(_) if outcome.is_err() => {}
                over => return over,
            }
        }
        outcome
    }

    /// Sorts a fragment: already seen, due now, or early.
    fn on_fragment<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        local: Local<'_, R>,
        fragment: &Fragment<'_>,
        protected: bool,
    ) -> Result<(), Stop> {
        let state = &mut *self.state;
        // A server without state numbers its HelloVerifyRequests as it likes.
        let hello_verify = fragment.message_type() == MessageType::HELLO_VERIFY_REQUEST && fragment.is_whole();
        if R::CLIENT && hello_verify && matches!(state.step, Step::AwaitHelloVerifyRequest | Step::AwaitServerHello) {
            return self.on_hello_verify_request::<R>(fragment);
        }
        let ahead = fragment.message_seq().wrapping_sub(state.receive_seq) as i16;
        if ahead < 0 {
            // The last message of the flight that ours answers, again: ours was lost (RFC 6347, section 4.2.4).
            let last_of_flight = fragment.message_seq().wrapping_add(1) == state.answered_seq;
            if last_of_flight && state.receive_seq == state.answered_seq && state.element == Element::Sent {
                state.answer_repetition(cx.counters);
            }
            return Ok(());
        }
        let due = match state.step {
            Step::AwaitServerFinished | Step::AwaitClientFinished => protected,
            Step::AwaitHelloVerifyRequest
            | Step::AwaitServerHello
            | Step::AwaitServerHelloDone
            | Step::AwaitClientKeyExchange => !protected,
            Step::AwaitServerCertificate
            | Step::AwaitServerKeyExchange
            | Step::AwaitClientCertificate
            | Step::AwaitCertificateVerify => R::PUBLIC_KEYS && !protected,
            // Not before the question is answered.
            Step::ClientVerifies | Step::ServerVerifies if R::PUBLIC_KEYS && !protected => {
                if ahead < 8 && fragment.is_whole() {
                    state.inbox.hold(self.buffers.incoming, Held::Fragment, fragment.header, fragment.body)?;
                }
                return Ok(());
            }
            _ => false,
        };
        if !due {
            return Err(Discard::Unexpected.into());
        }
        if ahead > 0 {
            if ahead < 8 && fragment.is_whole() {
                state.inbox.hold(self.buffers.incoming, Held::Fragment, fragment.header, fragment.body)?;
            }
            return Ok(());
        }
        if fragment.is_whole() {
            state.inbox.forget_pieces();
            let outcome = self.on_message(cx, local, fragment.message_type(), fragment.body);
            // The room is not at hand while what waited in it is handled.
            if R::PUBLIC_KEYS && self.state.step.verifies() && !self.buffers.incoming.is_empty() {
                self.state.inbox.keep(self.buffers.incoming, fragment.body)?;
            }
            return outcome;
        }
        let Some(len) = state.inbox.add(self.buffers.incoming, fragment)? else { return Ok(()) };
        // The message lies in the room while it is handled, so the room is put aside.
        let room = core::mem::take(&mut self.buffers.incoming);
        let body = room.get(..len).unwrap_or(&[]);
        let outcome = self.on_message(cx, local, fragment.message_type(), body);
        self.buffers.incoming = room;
        if R::PUBLIC_KEYS && self.state.step.verifies() {
            self.state.inbox.keep_front(len);
        }
        outcome
    }

    /// Goes through what came early for as long as it brings the handshake on.
    fn settle<C: Crypto, R: Roles>(&mut self, cx: &mut Cx<'_, C>, local: Local<'_, R>) -> Result<(), Stop> {
        loop {
            let Ongoing { state, buffers, .. } = self;
            if R::PUBLIC_KEYS && state.step.verifies() {
                return Ok(());
            }
            let finished_due = matches!(state.step, Step::AwaitServerFinished | Step::AwaitClientFinished);
            let found = match finished_due {
                true => state.inbox.take_record(buffers.incoming),
                false => state.inbox.take_fragment(buffers.incoming, state.receive_seq),
            };
            let Some((at, len)) = found else { return Ok(()) };
            // The item lies in the room while it is handled, so the room is put aside.
            let room = core::mem::take(&mut self.buffers.incoming);
            let item = room.get_mut(at..).and_then(|item| item.get_mut(..len)).unwrap_or(&mut []);
            let outcome = match finished_due {
                true => match item.split_first_chunk_mut() {
                    Some((header, body)) => self.receive_protected(cx, local, Record { header, body }),
                    None => Err(Discard::Malformed.into()),
                },
                false => self.on_fragments(cx, local, item, false),
            };
            self.buffers.incoming = room;
            if R::PUBLIC_KEYS && self.state.step.verifies() {
                let (at, len) = (at.saturating_add(HEADER_LEN), len.saturating_sub(HEADER_LEN));
                self.state.inbox.keep_waiting(self.buffers.incoming, at, len);
            }
            outcome?;
        }
    }

    /// Takes a whole message in its turn.
    fn on_message<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        local: Local<'_, R>,
        kind: MessageType,
        body: &[u8],
    ) -> Result<(), Stop> {
        if kind == MessageType::FINISHED {
            self.check_finished::<C>(body)?;
        }
        if R::PUBLIC_KEYS && kind == MessageType::CERTIFICATE_VERIFY {
            self.check_certificate_verify(cx, body)?;
        }
        self.state.hash_message::<C>(kind, self.state.receive_seq, body);
        self.state.receive_seq = self.state.receive_seq.wrapping_add(1);
        let server = match self.state.step {
            Step::AwaitClientKeyExchange | Step::AwaitClientFinished => true,
            Step::AwaitClientCertificate | Step::AwaitCertificateVerify => R::PUBLIC_KEYS,
            _ => false,
        };
        if R::SERVER && server {
            self.on_client_message(cx, local, kind, body)
        } else if R::CLIENT && !server {
            self.on_server_message(cx, local, kind, body)
        } else {
            Err(Fatal::UnexpectedMessage(kind).into())
        }
    }

    fn check_finished<C: Crypto>(&mut self, body: &[u8]) -> Result<(), Fatal> {
        let from_client = match self.state.step {
            Step::AwaitClientFinished => true,
            Step::AwaitServerFinished => false,
            // In clear, or before its time.
            _ => return Err(Fatal::UnexpectedMessage(MessageType::FINISHED)),
        };
        let mut expected = [0; VERIFY_LEN];
        write_verify_data::<C>(&self.state.master, from_client, &self.state.transcript, &mut expected);
        if same(&expected, body) { Ok(()) } else { Err(Fatal::BadFinished) }
    }

    /// Goes on with the answer to [`Self::need`].
    pub(crate) fn resume<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        local: Local<'_, R>,
        answer: Answer<'_>,
    ) -> Result<(), Stop> {
        match self.state.step {
            Step::ClientNeedsPsk if R::CLIENT => self.resume_client(cx, local, answer)?,
            Step::ServerNeedsPsk if R::SERVER => self.resume_server::<C, R>(cx, answer),
            Step::ClientVerifies | Step::ServerVerifies if R::PUBLIC_KEYS => self.on_verified(answer)?,
            Step::ClientSigns | Step::ServerSigns if R::PUBLIC_KEYS => self.on_signed(local, answer)?,
            _ => {}
        }
        self.settle(cx, local)
    }

    /// Keeps a cookie, hint or identity where the flight is written from.
    pub(crate) fn keep<R: Roles>(&mut self, text: &[u8]) -> Result<(), Fatal> {
        if R::PUBLIC_KEYS && text.len() > kept::front(self.buffers.outgoing) {
            return Err(Fatal::TooLarge);
        }
        let len = u8::try_from(text.len()).map_err(|_| Fatal::TooLarge)?;
        copy(self.buffers.outgoing, text).map_err(|_| Fatal::TooLarge)?;
        self.state.outgoing_len = len;
        Ok(())
    }

    /// Master secret and traffic keys from a pre-shared key (RFC 4279, section 2).
    #[inline]
    pub(crate) fn derive_keys<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, key: &[u8], client: bool) {
        let len = (key.len() as u16).to_be_bytes();
        // As many zeros as the key has bytes, in two parts.
        let (zeros, more) = (key.len().min(32), key.len().saturating_sub(32));
        let zeros_of = |count| [0; 32].get(..count).unwrap_or(&[]);
        self.derive_keys_from(cx, &[&len, zeros_of(zeros), zeros_of(more), &len, key], client);
    }

    /// Master secret and traffic keys from a premaster secret (RFC 5246, sections 8.1 and 6.3; RFC 7627, section 4).
    pub(crate) fn derive_keys_from<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, premaster: &[&[u8]], client: bool) {
        let state = &mut *self.state;
        let mut secret = Secret::<48>::zeroed();
        // The premaster secret is the key of the first two runs, the master secret that of all others.
        state.master.set::<C>(premaster);
        let session_hash = state.transcript.digest_so_far::<C>();
        let seed: [&[u8]; 3] = match state.extended_master_secret {
            true => [b"extended master secret", &session_hash, &[]],
            false => [b"master secret", &state.client_random, &state.server_random],
        };
        state.master.prf::<C>(&seed, secret.expose_mut());
        cx.crypto.key_log(&state.client_random, secret.expose());
        state.master.set::<C>(&[secret.expose()]);
        // The key block is the first 40 bytes; the master secret is not needed any more.
        let seed: [&[u8]; 3] = [b"key expansion", &state.server_random, &state.client_random];
        state.master.prf::<C>(&seed, secret.expose_mut());
        let _ = self.peer.channel.set_keys(secret.expose(), client, self.state.aead); // the block is as long as it takes
    }
}

impl<'b> Ongoing<'b> {
    /// What the handshake waits for, `None` if for nothing.
    pub fn need(self) -> Option<Need<'b>> {
        let Buffers { outgoing, .. } = self.buffers;
        let text = outgoing.get(..self.state.outgoing_len.into()).unwrap_or(&[]);
        match self.state.step {
            Step::ClientNeedsPsk => Some(Need::PskForServer { hint: text }),
            Step::ServerNeedsPsk => Some(Need::PskOfClient { identity: text }),
            Step::ClientVerifies | Step::ServerVerifies => Some(Need::VerifyPeer {
                certificate_type: self.state.peer_type(),
                content: self.state.inbox.kept(self.buffers.incoming).get(3..)?,
            }),
            Step::ClientSigns | Step::ServerSigns => {
                let digest = *kept::get(outgoing, Item::Digest).first_chunk()?;
                Some(Need::Sign { credential: self.state.credential, digest })
            }
            _ => None,
        }
    }
}
