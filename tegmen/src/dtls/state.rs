//! One handshake in progress: its state, which changes in place, and the code that client and server share.

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

/// The step of a handshake: the message or the answer that the handshake waits for, or its end.
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
    /// The handshake is complete, but the last flight may have to be sent again.
    Lingering,

    // The steps with public keys. They are after the others in this list, so that the numbers of the others have no
    // gaps.
    AwaitServerCertificate,
    ClientVerifies,
    AwaitServerKeyExchange,
    ClientSigns,

    /// The server reassembles a ClientHello, whose first fragment had a valid cookie.
    AwaitClientHello,
    /// The server must draw its key pair.
    ServerBegins,
    ServerSigns,
    AwaitClientCertificate,
    ServerVerifies,
    AwaitCertificateVerify,

    // The steps with RSA as the key exchange.
    ClientEncrypts,
    ServerDecrypts,
}

/// The state of one handshake. Its [`Buffers`] are stored separately. When the handshake ends, its keys are in the
/// [`Channel`](super::Channel) of the association.
#[repr(C)] // small fields first: a mote reaches the first 32 bytes with short instructions
pub struct HandshakeState {
    pub(crate) step: Step,
    /// The first element of our flight. The next field, `element`, is the element that is written next.
    pub(crate) flight: Element,
    pub(crate) element: Element,
    /// The first element of our flight that is not in the transcript yet.
    pub(crate) hashed: Element,
    /// Number of bytes at the front of the outgoing buffer that are in use. At first these bytes are the cookie and the
    /// PSK identity hint that follows it, later the PSK identity.
    pub(crate) outgoing_len: u8,
    /// Number of HelloVerifyRequests that we answered, plus the number of Finished records that did not open.
    pub(crate) failures: u8,
    /// True under [`Profile::Minimal`]: the endpoint sends no extensions, and sends ClientKeyExchange, ChangeCipherSpec
    /// and Finished in separate datagrams.
    pub(crate) minimal: bool,
    /// The cipher of the cipher suite. The next field is the key exchange of the cipher suite.
    pub(crate) cipher: Cipher,
    pub(crate) exchange: KeyExchange,
    /// The number of the [`Credential`](crate::dtls::roles::Credential) that we send to the peer, or [`NO_CREDENTIAL`].
    pub(crate) credential: u8,
    pub(crate) flags: Flags,
    pub(crate) extended_master_secret: bool,
    pub(crate) renegotiation_info: bool,
    /// True if the peer's ChangeCipherSpec arrived while the handshake could not process it yet: a server still waited
    /// for an answer of the endpoint's owner, or a client still waited for a NewSessionTicket.
    pub(crate) change_cipher_spec: bool,
    pub(crate) identity_unknown: bool,
    /// True if the peer repeated its own flight after the timer last expired, and we have answered by sending our
    /// flight again.
    pub(crate) repeated: bool,
    /// Client: number of bytes of the cookie at the front of the outgoing buffer.
    pub(crate) cookie_len: u8,
    /// The offset of the next fragment in the handshake message that is written now.
    pub(crate) fragment_offset: u16,
    /// The message_seq of the first message of our flight.
    pub(crate) flight_seq: u16,
    /// The message_seq of the next message that we expect from the peer. The next field, `answered_seq`, has the value
    /// that this field had when our flight began.
    pub(crate) receive_seq: u16,
    pub(crate) answered_seq: u16,
    /// The last 16 bits of the record number with which our ClientHello with a cookie was sent for the first time.
    pub(crate) hello_number: u16,
    /// Current retransmission timeout in milliseconds; 0 before the flight is sent.
    pub(crate) timeout_ms: u32,
    pub(crate) inbox: Inbox,
    /// The time of the next transmission or retransmission.
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

/// Wipes the data that a handshake with public keys or resumption stored in its [outgoing buffer](Buffers::outgoing).
/// The peer table owns the buffer, and calls this function before another handshake gets the buffer.
pub fn wipe_room(outgoing: &mut [u8]) {
    scratch::clear(outgoing);
}

/// Maximum number of bytes of a cookie, hint or identity that a handshake accepts.
pub(crate) const MAX_TEXT: usize = 255;

/// The value of [`HandshakeState::credential`] if we have no suitable credential.
pub(crate) const NO_CREDENTIAL: u8 = u8::MAX;

/// Flags for the agreed parameters that the cipher suite does not determine. They are used in a handshake with public
/// keys or resumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flags(pub(crate) u16);

impl Flags {
    /// The named group is x25519; without this flag it is secp256r1.
    pub(crate) const X25519: u16 = 1;
    /// The server sends a raw public key instead of a certificate. The next flag has the same meaning for the client.
    pub(crate) const RAW_SERVER: u16 = 1 << 1;
    pub(crate) const RAW_CLIENT: u16 = 1 << 2;
    /// The ClientHello has a list of certificate types for the server's certificate. The next flag has the same meaning
    /// for the client's certificate.
    pub(crate) const SERVER_TYPE: u16 = 1 << 3;
    pub(crate) const CLIENT_TYPE: u16 = 1 << 4;
    /// The server asks the client for a certificate.
    pub(crate) const ASKED: u16 = 1 << 5;
    /// The peer has sent a certificate, and must still prove that it has the private key.
    pub(crate) const CERTIFIED: u16 = 1 << 6;
    /// The keys come from an earlier session.
    pub(crate) const RESUMED: u16 = 1 << 7;
    /// The server has promised a NewSessionTicket, which has not arrived yet.
    pub(crate) const TICKET: u16 = 1 << 8;
    /// The client has received and stored a new ticket.
    pub(crate) const NEW_TICKET: u16 = 1 << 9;
    /// The client has not proved that it receives at its address.
    pub(crate) const UNREACHED: u16 = 1 << 10;
    /// A counter of two bits: the number of times that our flight was sent again to a client that has not proved its
    /// address.
    const AGAIN: u16 = 3 << 11;
    const ONCE_AGAIN: u16 = 1 << 11;
    /// The client sent ec_point_formats. This flag shares its bit with the counter [`Self::AGAIN`]. The flag is read
    /// only in full handshakes, and these do not use the counter.
    pub(crate) const POINT_FORMATS: u16 = 1 << 11;
    /// A counter of three bits: the number of times that our flight was lost. See [`Self::datagram`].
    const LOST: u16 = 7 << 13;
    const ONCE_LOST: u16 = 1 << 13;

    pub(crate) const fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }

    pub(crate) const fn set(&mut self, flag: u16, value: bool) {
        self.0 = if value { self.0 | flag } else { self.0 & !flag };
    }

    /// Counts a retransmission of a flight to a client that has not proved its address. Returns false if the flight
    /// must not be sent again. One ClientHello causes at most three transmissions of the flight. So an attacker
    /// cannot make us send much more to a victim than the attacker sent (compare RFC 9000, section 8.1).
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

    /// Counts a lost flight. The caller sends the flight again.
    pub(crate) const fn lose_flight(&mut self) {
        if self.0 & Self::LOST < Self::LOST {
            self.0 = self.0.wrapping_add(Self::ONCE_LOST);
        }
    }

    /// Resets the count of lost flights for a new flight, because the previous flight arrived. Keeps a count of 2 or
    /// more, so that the datagrams do not become longer again.
    pub(crate) const fn begin_flight(&mut self) {
        if self.0 & Self::LOST < 2 * Self::ONCE_LOST {
            self.0 &= !Self::LOST;
        }
    }

    /// Returns the maximum length of a datagram of a flight, in bytes (RFC 6347, section 4.1.1.1). `mtu` is the
    /// configured maximum. After two losses, a flight is sent in datagrams of 508 bytes, which fit the 576 bytes that
    /// every IPv4 host accepts. After more losses, the maximum is 254 and then 127 bytes. For a ClientHello it remains
    /// 508 bytes, because few servers reassemble a ClientHello from fragments.
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

    /// Returns the named group of the key agreement.
    pub(crate) const fn group(self) -> NamedGroup {
        if self.has(Self::X25519) { NamedGroup::X25519 } else { NamedGroup::SECP256R1 }
    }
}

/// The two buffers of a handshake. The peer table owns them.
pub struct Buffers<'b> {
    /// The data from which a flight is written again: at first the cookie, later the PSK identity. This data needs at
    /// most 255 bytes. With public keys, the buffer also holds two key shares, a signature and the peer's public key.
    /// They need 350 bytes more with ECDSA, and 900 bytes more with RSA-2048. With resumption, the buffer needs another
    /// 100 bytes and the length of a ticket, and at least 256 bytes in all.
    pub outgoing: &'b mut [u8],
    /// Received bytes: fragments of the next message from the peer, and records that arrived too early.
    pub incoming: &'b mut [u8],
}

/// A handshake: its state, its association, its connection ids and its buffers.
pub struct Handshake<'b> {
    /// The state of the handshake.
    pub state: &'b mut HandshakeState,
    /// The association, which receives the keys and the proved identity.
    pub(crate) association: &'b mut Association,
    /// The connection ids of the handshake, if any were offered.
    pub(crate) ids: Option<&'b mut ConnectionIds>,
    /// The buffers of the handshake.
    pub(crate) buffers: Buffers<'b>,
}

impl HandshakeState {
    /// Creates the state of a table element without a handshake. All bytes are zero, so a table of these states takes
    /// no flash memory.
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

    /// Begins a handshake in a state that is [idle](Self::idle) or [wiped](Self::wipe). The first flight is then due at
    /// once.
    pub(crate) fn begin(&mut self, step: Step, flight: Element, now: Instant, settings: &Settings) {
        // The fields are set one by one, because a mote would otherwise build a whole idle state on its stack.
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

    /// Wipes all secrets of this state. [`wipe_room`] wipes the secrets that a handshake with public keys stored in
    /// its outgoing buffer.
    pub(crate) fn wipe(&mut self) {
        self.master.wipe();
        wipe(&mut self.verify);
    }

    /// Returns the time at which the endpoint must process this handshake again.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// True while a ClientHello with this message_seq is reassembled.
    pub(crate) fn is_putting_together(&self, message_seq: u16) -> bool {
        self.step == Step::AwaitClientHello && self.receive_seq == message_seq
    }

    /// True after the handshake is complete, while its last flight is kept for retransmission.
    pub fn is_lingering(&self) -> bool {
        self.step == Step::Lingering
    }

    /// True until a part of the answer to our flight arrives. Until then, a server that has sent its first flight can
    /// receive no application data.
    pub const fn is_unanswered(&self) -> bool {
        self.receive_seq == self.answered_seq
    }

    /// True for a client that has sent the flight with its certificate or its ClientKeyExchange, and waits for the
    /// server's Finished.
    pub const fn awaits_server_finished(&self) -> bool {
        matches!(self.flight, Element::ClientCertificate | Element::ClientKeyExchange)
    }

    /// Begins our next flight. The flight is then due at once.
    #[inline(never)]
    pub(crate) fn start_flight<R: Roles>(&mut self, flight: Element) {
        // Without public keys, only flights of one or two messages are followed by another flight.
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

    /// Begins a new flight, of which no element is sent or hashed yet.
    fn await_answer(&mut self) {
        self.hashed = self.flight;
        self.answered_seq = self.receive_seq;
        self.timeout_ms = 0;
        self.repeated = false;
        self.send_flight();
    }

    /// Client: restarts the timer of our ClientHello. The caller does this after each message of the server's flight,
    /// because this flight may take many datagrams. If a datagram is lost, the timer expires, and the repeated
    /// ClientHello makes the server send its flight again (RFC 6347, section 4.2.4).
    pub(crate) fn await_rest(&mut self, now: Instant) {
        if self.flight == Element::ClientHello && self.element == Element::Sent {
            self.deadline = now.after_millis(self.timeout_ms).min(self.give_up);
        }
    }

    /// Handles a repeated flight of the peer. The repetition shows that our flight was lost. Sends our flight again,
    /// but at most once before the timer expires. Without this limit, two endpoints that answer each other's
    /// repetitions would never stop.
    #[inline(always)]
    pub(crate) fn answer_repetition(&mut self, counters: &mut Counters) {
        if !self.repeated {
            self.repeated = true;
            bump(&mut counters.retransmitted);
            self.send_flight();
        }
    }

    /// Adds a message to the transcript, in the form of an unfragmented message (RFC 6347, section 4.2.6).
    #[inline(never)]
    pub(crate) fn hash_message<C: Crypto>(&mut self, kind: MessageType, seq: u16, body: &[u8]) {
        let len = body.len() as u32;
        self.transcript.update::<C>(&handshake::header(kind, len, seq, 0, len));
        self.transcript.update::<C>(body);
    }

    /// Ends the handshake without storing its last flight for retransmission. The next alarm frees the memory of the
    /// handshake.
    pub(crate) fn end(&mut self) {
        self.step = Step::Lingering;
        self.element = Element::Sent;
        self.deadline = Instant::AT_ONCE;
    }

    /// Makes our whole flight due at once.
    #[inline(never)]
    pub(crate) fn send_flight(&mut self) {
        self.element = self.flight;
        self.fragment_offset = 0;
        self.deadline = Instant::AT_ONCE;
    }
}

impl Handshake<'_> {
    /// Stores a cookie, a PSK identity hint or a PSK identity at the front of the outgoing buffer. A retransmission of
    /// the flight reads the stored text there.
    pub(crate) fn keep<R: Roles>(&mut self, text: &[u8]) -> Result<(), Fatal> {
        self.keep_behind::<R>(0, text)
    }

    /// Does the same as [`Self::keep`], but stores the text after a cookie of `cookie_len` bytes.
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
        // The zeros, as many as the key has bytes, are written in two parts.
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
        // The premaster secret is the key of the first two runs of the PRF, and the master secret is the key of all
        // others.
        state.master.set::<C>(premaster);
        let session_hash = state.transcript.digest_so_far::<C>();
        let seed: [&[u8]; 3] = match state.extended_master_secret {
            true => [b"extended master secret", &session_hash, &[]],
            false => [b"master secret", &state.client_random, &state.server_random],
        };
        state.master.prf::<C>(&seed, secret.expose_mut());
        if R::RESUMPTION && state.extended_master_secret {
            // If the session does not fit the buffer, it cannot be resumed.
            let _ = self.keep_session(CipherSuite::of(self.state.exchange, self.state.cipher), &secret);
        }
        self.set_master(cx, &mut secret, client);
    }

    /// Derives traffic keys from a master secret (RFC 5246, section 6.3). Overwrites `secret`.
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
        // The key block is the first 40 bytes. The master secret is no longer needed.
        state.master.prf::<C>(&seed, secret.expose_mut());
        let _ = self.association.channel.set_keys(secret.expose(), client, self.state.cipher); // the block is as long as it takes
    }
}
