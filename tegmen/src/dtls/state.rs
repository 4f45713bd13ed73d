//! One handshake in progress: a struct that changes in place, and the code that both roles share.

use super::association::Association;
use super::connection_id::ConnectionIds;
use super::element::Element;
use super::handshake::finished::VERIFY_LEN;
use super::handshake::{self, MessageType, Random};
use super::inbox::Inbox;
use super::record::{Cipher, KEY_BLOCK_LEN};
use super::scratch;
use super::suite::{CipherSuite, KeyExchange};
use super::{Fatal, Profile, Settings};
use crate::buf::copy;
use crate::counters::{Counters, bump};
use crate::crypto::hash::{HmacKey, Sha256};
use crate::crypto::{Crypto, NamedGroup};
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::secret::{Secret, wipe};
use crate::time::Instant;

/// The step of a handshake, in the order of the protocol: the client's steps, then the server's.
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

    /// The server reassembles a ClientHello whose cookie is valid.
    AwaitClientHello,
    /// The server has yet to draw its key pair.
    ServerBegins,
    ServerSigns,
    AwaitClientCertificate,
    ServerVerifies,
    AwaitCertificateVerify,

    // With RSA as the key exchange.
    ClientEncrypts,
    ServerDecrypts,
}

/// The state of one handshake, in addition to its [`Buffers`] and the [`Channel`](super::Channel) that it fills.
#[repr(C)] // small fields first: a mote reaches the first 32 bytes with short instructions
pub struct HandshakeState {
    pub(crate) step: Step,
    /// The first element of our flight, and that which is written next.
    pub(crate) flight: Element,
    pub(crate) element: Element,
    /// Elements before this one are in the transcript already.
    pub(crate) hashed: Element,
    /// Bytes of texts at the front of the outgoing buffer: the cookie, and after it the hint; later the identity.
    pub(crate) outgoing_len: u8,
    /// HelloVerifyRequests followed, or Finished records that did not open.
    pub(crate) failures: u8,
    /// [`Profile::Minimal`]: no extensions, and the last messages in datagrams of their own.
    pub(crate) minimal: bool,
    /// The cipher suite in two parts.
    pub(crate) cipher: Cipher,
    pub(crate) exchange: KeyExchange,
    /// The number of the [`Credential`](crate::dtls::roles::Credential) that we show, [`NO_CREDENTIAL`] if we show none.
    pub(crate) credential: u8,
    pub(crate) flags: Flags,
    pub(crate) extended_master_secret: bool,
    pub(crate) renegotiation_info: bool,
    /// The peer's ChangeCipherSpec came while the key was still being looked up.
    pub(crate) change_cipher_spec: bool,
    pub(crate) identity_unknown: bool,
    /// Our flight was sent again because the peer's came again, since the timer last ran out.
    pub(crate) repeated: bool,
    /// Client: bytes of the cookie at the front of the outgoing buffer.
    pub(crate) cookie_len: u8,
    /// The offset of the next fragment of the current element.
    pub(crate) fragment_offset: u16,
    /// message_seq of the first message of our flight.
    pub(crate) flight_seq: u16,
    /// message_seq of the message that is due from the peer, and what it was when our flight began.
    pub(crate) receive_seq: u16,
    pub(crate) answered_seq: u16,
    /// The last 16 bits of the record number under which our ClientHello with a cookie was sent first.
    pub(crate) hello_number: u16,
    /// Current retransmission timeout in milliseconds; 0 before the flight is sent.
    pub(crate) timeout_ms: u32,
    pub(crate) inbox: Inbox,
    /// The time of the next transmission, the first one or a repetition.
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

/// Wipes the data that a handshake with public keys or resumption kept in its [outgoing buffer](Buffers::outgoing). The
/// table, to which the buffer belongs, calls it before another handshake gets the buffer.
pub fn wipe_room(outgoing: &mut [u8]) {
    scratch::clear(outgoing);
}

/// Longest cookie, hint or identity, in bytes, that a handshake accepts.
pub(crate) const MAX_TEXT: usize = 255;

/// No [`HandshakeState::credential`].
pub(crate) const NO_CREDENTIAL: u8 = u8::MAX;

/// The agreed parameters in addition to the suite, in a handshake with public keys or resumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flags(pub(crate) u16);

impl Flags {
    /// The group is x25519; otherwise it is secp256r1.
    pub(crate) const X25519: u16 = 1;
    /// The server shows a raw public key; the next flag is the same for the client.
    pub(crate) const RAW_SERVER: u16 = 1 << 1;
    pub(crate) const RAW_CLIENT: u16 = 1 << 2;
    /// The client offered a choice of types for the server's certificate; the next flag is the same for the client's.
    pub(crate) const SERVER_TYPE: u16 = 1 << 3;
    pub(crate) const CLIENT_TYPE: u16 = 1 << 4;
    /// The client is asked for a certificate.
    pub(crate) const ASKED: u16 = 1 << 5;
    /// The peer has shown a certificate, and has to prove it.
    pub(crate) const CERTIFIED: u16 = 1 << 6;
    /// The keys come from an earlier session.
    pub(crate) const RESUMED: u16 = 1 << 7;
    /// A NewSessionTicket is promised, and has not arrived yet.
    pub(crate) const TICKET: u16 = 1 << 8;
    /// The client got a ticket, and keeps it.
    pub(crate) const NEW_TICKET: u16 = 1 << 9;
    /// The client has not proved its address.
    pub(crate) const UNREACHED: u16 = 1 << 10;
    /// Number of times that our flight was sent again to a client that has not proved its address, in two bits.
    const AGAIN: u16 = 3 << 11;
    const ONCE_AGAIN: u16 = 1 << 11;
    /// The client sent ec_point_formats. The bit is read only in full handshakes, which do not count flights in it.
    pub(crate) const POINT_FORMATS: u16 = 1 << 11;
    /// Number of times that our flights were lost, in three bits.
    const LOST: u16 = 7 << 13;
    const ONCE_LOST: u16 = 1 << 13;

    pub(crate) const fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }

    pub(crate) const fn set(&mut self, flag: u16, value: bool) {
        self.0 = if value { self.0 | flag } else { self.0 & !flag };
    }

    /// Counts the retransmissions of a flight to a client that has not proved its address. A ClientHello causes at
    /// most three flights, so that an attacker cannot make us send much more to a victim than the attacker sent
    /// (compare RFC 9000, section 8.1).
    pub(crate) const fn may_repeat(&mut self) -> bool {
        if !self.has(Self::UNREACHED) {
            return true;
        }
        let may = self.0 & Self::AGAIN < 2 * Self::ONCE_AGAIN;
        if may {
            self.0 = self.0.wrapping_add(Self::ONCE_AGAIN);
        }
        may
    }

    /// Counts a flight that is sent again.
    pub(crate) const fn lose_flight(&mut self) {
        if self.0 & Self::LOST < Self::LOST {
            self.0 = self.0.wrapping_add(Self::ONCE_LOST);
        }
    }

    /// Begins a new flight, because the previous one arrived. The size of datagrams that arrived stays.
    pub(crate) const fn begin_flight(&mut self) {
        if self.0 & Self::LOST < 2 * Self::ONCE_LOST {
            self.0 &= !Self::LOST;
        }
    }

    /// The longest datagram of a flight, in bytes, where `mtu` is allowed (RFC 6347, section 4.1.1.1): if a flight is
    /// lost twice it is sent in datagrams of 508 bytes, which fit the 576 that every IPv4 host takes, then in halves
    /// and quarters of that. A ClientHello keeps to 508, because few servers reassemble one from fragments.
    pub(crate) const fn datagram(self, mtu: usize, is_hello: bool) -> usize {
        let most = if is_hello { 1 } else { 3 };
        let halves = match (self.0 & Self::LOST) / Self::ONCE_LOST {
            0 | 1 => return mtu,
            lost if lost <= most => lost.saturating_sub(1),
            _ => most,
        };
        let (size, least) = (if mtu < 1016 { mtu } else { 1016 } >> halves, if mtu < 127 { mtu } else { 127 });
        if size < least { least } else { size }
    }

    /// The group of the agreement.
    pub(crate) const fn group(self) -> NamedGroup {
        if self.has(Self::X25519) { NamedGroup::X25519 } else { NamedGroup::SECP256R1 }
    }
}

/// The buffers of one handshake, which belong to the peer table.
pub struct Buffers<'b> {
    /// The data to write a flight again: the cookie, later the PSK identity. At most 255 bytes are needed. With public
    /// keys the buffer also holds two shares, a signature and the peer's public key: 350 bytes more with ECDSA, 900
    /// more with RSA-2048. With resumption it needs 100 bytes and the length of a ticket in addition, and at least 256
    /// bytes in all.
    pub outgoing: &'b mut [u8],
    /// Fragments and early records.
    pub incoming: &'b mut [u8],
}

/// A handshake: its state, its association, its connection ids and its buffers.
pub struct Handshake<'b> {
    /// The state of the handshake.
    pub state: &'b mut HandshakeState,
    /// The association that receives the keys and the proved identity.
    pub(crate) association: &'b mut Association,
    /// The connection ids of the handshake, if some were offered.
    pub(crate) ids: Option<&'b mut ConnectionIds>,
    /// The buffers of the handshake.
    pub(crate) buffers: Buffers<'b>,
}

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
            hello_number: 0,
            minimal: false,
            cipher: Cipher::Ccm8,
            exchange: KeyExchange::Psk,
            credential: 0,
            flags: Flags(0),
            extended_master_secret: false,
            renegotiation_info: false,
            change_cipher_spec: false,
            identity_unknown: false,
            repeated: false,
            cookie_len: 0,
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
        // Field by field, because a mote would first build a whole idle state on its stack.
        self.step = step;
        self.flight = flight;
        self.flight_seq = 0;
        self.receive_seq = 0;
        self.extended_master_secret = false;
        self.renegotiation_info = false;
        self.change_cipher_spec = false;
        self.identity_unknown = false;
        self.failures = 0;
        self.cookie_len = 0;
        self.outgoing_len = 0;
        self.next_sequence = 0;
        self.inbox.clear();
        self.transcript.restart();
        self.minimal = settings.profile == Profile::Minimal;
        self.give_up = now.after_millis(settings.handshake_timeout_ms);
        self.await_answer();
    }

    /// Wipes all secrets. Those that a handshake with public keys left in its outgoing buffer are wiped by
    /// [`wipe_room`].
    pub(crate) fn wipe(&mut self) {
        self.master.wipe();
        wipe(&mut self.verify);
    }

    /// Returns the time at which the endpoint has to handle this handshake again.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// True while a ClientHello with this number is reassembled.
    pub(crate) fn is_putting_together(&self, message_seq: u16) -> bool {
        self.step == Step::AwaitClientHello && self.receive_seq == message_seq
    }

    /// True once the handshake is over and only its last flight is kept.
    pub fn is_lingering(&self) -> bool {
        self.step == Step::Lingering
    }

    /// Returns true until a part of the answer to our flight arrives. Until then no content can follow the first flight
    /// of a server.
    pub const fn is_unanswered(&self) -> bool {
        self.receive_seq == self.answered_seq
    }

    /// True for a client that has answered the server's certificate or key exchange, and waits for the server's Finished.
    pub const fn awaits_server_finished(&self) -> bool {
        matches!(self.flight, Element::ClientCertificate | Element::ClientKeyExchange)
    }

    /// Begins the next flight, which is due at once.
    #[inline(never)]
    pub(crate) fn start_flight<R: Roles>(&mut self, flight: Element) {
        // Without public keys only a flight of one or two messages is followed by another.
        let messages = match R::KEEPS {
            true => self.messages_before::<R>(Element::Sent),
            false if self.flight == Element::ServerHello => 2,
            false => 1,
        };
        self.flight_seq = self.flight_seq.wrapping_add(messages);
        self.flight = flight;
        if R::RECORD_SIZE {
            self.flags.begin_flight();
        }
        self.await_answer();
    }

    /// Begins a new flight: no part of it is sent or hashed.
    fn await_answer(&mut self) {
        self.hashed = self.flight;
        self.answered_seq = self.receive_seq;
        self.timeout_ms = 0;
        self.repeated = false;
        self.send_flight();
    }

    /// Client: restarts the timer of our ClientHello at each message of the server's flight, which may take many
    /// datagrams. If one of them is lost, the repeated ClientHello asks for it (RFC 6347, section 4.2.4).
    pub(crate) fn await_rest(&mut self, now: Instant) {
        if self.flight == Element::ClientHello && self.element == Element::Sent {
            self.deadline = now.after_millis(self.timeout_ms).min(self.give_up);
        }
    }

    /// Handles a repeated flight of the peer, which shows that our flight was lost. Our flight is sent again only once
    /// for each run of the timer. Otherwise two ends that answer every repetition would never stop.
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

    /// Ends the handshake, without a flight that may have to be sent again. The place is free at the next alarm.
    pub(crate) fn end(&mut self) {
        self.step = Step::Lingering;
        self.element = Element::Sent;
        self.deadline = Instant::AT_ONCE;
    }

    /// Makes our flight due at once, from its first element on.
    #[inline(never)]
    pub(crate) fn send_flight(&mut self) {
        self.element = self.flight;
        self.fragment_offset = 0;
        self.deadline = Instant::AT_ONCE;
    }
}

impl Handshake<'_> {
    /// Keeps a cookie, hint or identity in the buffer from which the flight is written.
    pub(crate) fn keep<R: Roles>(&mut self, text: &[u8]) -> Result<(), Fatal> {
        self.keep_behind::<R>(0, text)
    }

    /// Does the same as [`Self::keep`], after a cookie of `cookie_len` bytes.
    pub(crate) fn keep_behind<R: Roles>(&mut self, cookie_len: u8, text: &[u8]) -> Result<(), Fatal> {
        let len = usize::from(cookie_len).wrapping_add(text.len());
        if R::KEEPS && len > scratch::front(self.buffers.outgoing) {
            return Err(Fatal::TooLarge);
        }
        let len = u8::try_from(len).map_err(|_| Fatal::TooLarge)?;
        let place = self.buffers.outgoing.get_mut(cookie_len.into()..).ok_or(Fatal::TooLarge)?;
        copy(place, text).map_err(|_| Fatal::TooLarge)?;
        self.state.cookie_len = cookie_len;
        self.state.outgoing_len = len;
        Ok(())
    }

    /// Derives master secret and traffic keys from a pre-shared key (RFC 4279, section 2).
    #[inline]
    pub(crate) fn derive_keys<C: Crypto, R: Roles>(&mut self, cx: &mut Cx<'_, C>, key: &[u8], client: bool) {
        let len = (key.len() as u16).to_be_bytes();
        // As many zeros as the key has bytes, in two parts.
        let (zeros, more) = (key.len().min(32), key.len().saturating_sub(32));
        let zeros_of = |count| [0; 32].get(..count).unwrap_or(&[]);
        self.derive_keys_from::<C, R>(cx, &[&len, zeros_of(zeros), zeros_of(more), &len, key], client);
    }

    /// Derives master secret and traffic keys from a premaster secret (RFC 5246, sections 8.1 and 6.3; RFC 7627,
    /// section 4).
    pub(crate) fn derive_keys_from<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        premaster: &[&[u8]],
        client: bool,
    ) {
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
        if R::RESUMPTION && state.extended_master_secret {
            // If it does not fit the buffer, the session cannot be resumed.
            let _ = self.keep_session(CipherSuite::of(self.state.exchange, self.state.cipher), &secret);
        }
        self.set_master(cx, &mut secret, client);
    }

    /// Derives traffic keys from a master secret (RFC 5246, section 6.3), which is overwritten.
    #[inline(always)]
    pub(crate) fn set_master<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, secret: &mut Secret<48>, client: bool) {
        let state = &mut *self.state;
        cx.crypto.key_log(&state.client_random, secret.expose());
        state.master.set::<C>(&[secret.expose()]);
        let seed: [&[u8]; 3] = [b"key expansion", &state.server_random, &state.client_random];
        if state.cipher.is_long() {
            let mut block = Secret::<KEY_BLOCK_LEN>::zeroed();
            state.master.prf::<C>(&seed, block.expose_mut());
            let _ = self.association.channel.set_keys(block.expose(), client, state.cipher);
            return secret.wipe();
        }
        // The key block is the first 40 bytes; the master secret is not needed any more.
        state.master.prf::<C>(&seed, secret.expose_mut());
        let _ = self.association.channel.set_keys(secret.expose(), client, self.state.cipher); // the block is as long as it takes
    }
}
