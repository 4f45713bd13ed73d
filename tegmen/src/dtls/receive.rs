//! Processes received records, the fragments in these records, and whole messages in their order.

use super::alert;
use super::connection_id::ConnectionIds;
use super::context::HandshakeContext;
use super::element::Element;
use super::handshake::finished::{VERIFY_LEN, write_verify_data};
use super::handshake::{Fragment, HEADER_LEN, MessageType};
use super::inbox::Held;
use super::outcome::Outcome;
use super::record::{ContentType, HAS_LONG_KEYS, Record};
use super::state::{Flags, Handshake, Step};
use super::{AlertDescription, Fatal};
use crate::buf::Reader;
use crate::counters::Discard;
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::secret::same;

impl Step {
    /// True while the owner of the endpoint processes the last message of the peer: it verifies the peer's certificate,
    /// or decrypts the premaster secret.
    const fn verifies(self) -> bool {
        matches!(self, Self::ClientVerifies | Self::ServerVerifies)
            || HAS_LONG_KEYS && matches!(self, Self::ServerDecrypts)
    }

    /// True while the handshake waits for an answer from the owner of the endpoint.
    pub(crate) const fn awaits_owner(self) -> bool {
        let asked = matches!(self, Self::ClientNeedsPsk | Self::ServerNeedsPsk | Self::ServerSigns);
        asked || self.verifies() || matches!(self, Self::ClientSigns | Self::ClientEncrypts | Self::ServerDecrypts)
    }

    /// True while the server's first flight cannot be sent, because the owner of the endpoint has not made the
    /// necessary signature yet.
    pub(crate) const fn signs(self) -> bool {
        matches!(self, Self::ServerBegins | Self::ServerSigns)
    }
}

/// Maximum number of bytes after the record header, for a record that a server tries to open with both keys of a client
/// ([`Answer::Psks`](super::Answer::Psks)). A Finished with a connection id and some padding fits this length.
const MAX_FINISHED_RECORD: usize = 256;

/// True if the roles `R` keep a message of the peer in the receive buffer while the owner of the endpoint processes the
/// message.
const fn keeps_message<R: Roles>() -> bool {
    R::PUBLIC_KEYS && (!R::CERTIFICATES_IN_PARTS || HAS_LONG_KEYS)
}

/// Copies a record into `room`; returns `None` if its body does not fit. The copy is needed because a failed attempt to
/// open a record destroys its content.
fn copy_record<'r>(record: &Record<'r>, room: &'r mut [u8; MAX_FINISHED_RECORD]) -> Option<Record<'r>> {
    let body = room.get_mut(..record.body.len())?;
    body.copy_from_slice(record.body);
    Some(Record { header: record.header, body })
}

impl Handshake<'_> {
    /// Processes a record. Then processes the stored records and fragments that arrived too early, if the handshake can
    /// process them now.
    #[inline(never)]
    pub(crate) fn receive<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        record: Record<'_>,
    ) -> Result<(), Outcome> {
        match record.epoch() {
            0 => self.receive_plaintext(cx, context, &record)?,
            _ => self.receive_protected(cx, context, record)?,
        }
        self.settle(cx, context)
    }

    /// Processes a record of epoch 0.
    fn receive_plaintext<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        record: &Record<'_>,
    ) -> Result<(), Outcome> {
        match record.content_type() {
            // A HelloVerifyRequest has the record number of the ClientHello that it answers (RFC 6347, section
            // 4.2.1). If this was not our ClientHello with a cookie, the server's other answers to it belong to
            // another transcript.
            ContentType::HANDSHAKE
                if R::CLIENT
                    && self.state.step == Step::AwaitServerHello
                    && record.body.first() == Some(&MessageType::HELLO_VERIFY_REQUEST.0)
                    && (record.number().0 as u16).wrapping_sub(self.state.hello_number).cast_signed() < 0 =>
            {
                Err(Discard::Unexpected.into())
            }
            ContentType::HANDSHAKE => self.on_fragments(cx, context, record.body, false),
            ContentType::CHANGE_CIPHER_SPEC if *record.body == [1] => self.on_change_cipher_spec::<R>(),
            ContentType::ALERT => {
                // The alert is not authenticated, so it is accepted only if it can end only this handshake.
                let [level, description] = *record.body else { return Err(Discard::Malformed.into()) };
                if level != alert::FATAL && description != AlertDescription::CLOSE_NOTIFY.0 {
                    return Ok(());
                }
                // A server answers a ClientHello with a record of the same number (RFC 6347, section 4.2.1), or
                // counts its own records, one for each ClientHello. So an alert with a later number belongs to an
                // earlier handshake on this path.
                if self.state.is_lingering()
                    || R::CLIENT
                        && record.number().0 as u32 >= self.state.next_sequence as u32
                        && matches!(self.state.step, Step::AwaitHelloVerifyRequest | Step::AwaitServerHello)
                {
                    return Err(Discard::Unexpected.into());
                }
                Err(Fatal::Alert(AlertDescription(description)).into())
            }
            _ => Err(Discard::Unexpected.into()),
        }
    }

    /// Processes a record of the protected epoch while the handshake is not complete.
    fn receive_protected<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        record: Record<'_>,
    ) -> Result<(), Outcome> {
        let mut content_type = record.content_type();
        match self.state.step {
            Step::AwaitServerFinished | Step::AwaitClientFinished => {}
            // The messages from which its key is derived, or the ChangeCipherSpec before it, may still arrive.
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
            Step::AwaitClientCertificate
            | Step::ServerVerifies
            | Step::ServerDecrypts
            | Step::AwaitCertificateVerify
                if R::PUBLIC_KEYS
                    && (content_type == ContentType::HANDSHAKE
                        || R::CONNECTION_ID && content_type == ContentType::TLS12_CID) =>
            {
                self.state.inbox.hold(self.buffers.incoming, Held::Record, record.header, record.body)?;
                return Ok(());
            }
            _ => return Err(Discard::UnknownPeer.into()),
        }
        if content_type == ContentType::APPLICATION_DATA {
            return Err(Discard::Unexpected.into());
        }
        let mut room = [0; MAX_FINISHED_RECORD];
        let again = match R::ON_HOST && R::KEEPS && self.state.step == Step::AwaitClientFinished {
            true => copy_record(&record, &mut room),
            false => None,
        };
        let received = self.ids.as_deref().filter(|_| R::CONNECTION_ID).and_then(ConnectionIds::received);
        let mut opened = self.association.channel.open_by(cx.crypto, received, record, &mut content_type);
        if let Some(record) = again
            && matches!(opened, Err(Discard::NotAuthentic))
            && self.take_other_psk::<C, R>(cx)
        {
            let received = self.ids.as_deref().filter(|_| R::CONNECTION_ID).and_then(ConnectionIds::received);
            opened = self.association.channel.open_by(cx.crypto, received, record, &mut content_type);
        }
        let content = match opened {
            Ok(content) => content,
            Err(Discard::NotAuthentic) => {
                self.state.failures = self.state.failures.saturating_add(1);
                // The first such Finished may be forged. A client that sends a second one has another key. An
                // attacker who knows address and port could send a fatal alert just as well.
                if self.state.step == Step::AwaitClientFinished && self.state.failures >= 2 {
                    let identity_known = !self.state.identity_unknown;
                    return Err(Fatal::WrongKeyOrIdentity { identity_known }.into());
                }
                return Err(Discard::NotAuthentic.into());
            }
            Err(discard) => return Err(discard.into()),
        };
        if R::RECORD_SIZE && content.len() > self.association.record_size.received(context.roles.record_size_limit()) {
            return Err(Fatal::RecordOverflow.into());
        }
        match content_type {
            ContentType::HANDSHAKE => self.on_fragments(cx, context, content, true),
            ContentType::ALERT => match *content {
                [alert::FATAL, description] => Err(Fatal::Alert(AlertDescription(description)).into()),
                _ => Ok(()),
            },
            _ => Err(Discard::Unexpected.into()),
        }
    }

    fn on_change_cipher_spec<R: Roles>(&mut self) -> Result<(), Outcome> {
        self.state.step = match self.state.step {
            // A NewSessionTicket precedes the ChangeCipherSpec.
            Step::AwaitServerChangeCipherSpec if R::RESUMPTION && self.state.flags.has(Flags::TICKET) => {
                self.state.change_cipher_spec = true;
                return Ok(());
            }
            Step::AwaitServerChangeCipherSpec => Step::AwaitServerFinished,
            Step::AwaitClientChangeCipherSpec => Step::AwaitClientFinished,
            Step::ServerNeedsPsk => {
                self.state.change_cipher_spec = true;
                return Ok(());
            }
            step if R::PUBLIC_KEYS && matches!(step, Step::ServerVerifies | Step::ServerDecrypts) => {
                self.state.change_cipher_spec = true;
                return Ok(());
            }
            // Before the key exchange, a ChangeCipherSpec has no meaning and must change nothing. Afterwards it is a
            // repetition.
            _ => return Err(Discard::Unexpected.into()),
        };
        Ok(())
    }

    /// Processes the handshake fragments in one record.
    fn on_fragments<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        bytes: &[u8],
        protected: bool,
    ) -> Result<(), Outcome> {
        let mut reader = Reader::new(bytes);
        let mut outcome = Ok(());
        while !reader.is_empty() {
            let Ok(fragment) = Fragment::read(&mut reader) else { return Err(Discard::Malformed.into()) };
            match self.on_fragment(cx, context, &fragment, protected) {
                Ok(()) => {}
                // The remaining fragments of the record are stored for later. With certificates in parts, the record
                // is processed again instead.
                Err(Outcome::Need) if R::PUBLIC_KEYS && !R::CERTIFICATES_IN_PARTS => outcome = Err(Outcome::Need),
                Err(_) if outcome.is_err() => {}
                over => return over,
            }
        }
        outcome
    }

    /// Processes a fragment of a Certificate message whose certificates are verified while they arrive. Returns `None`
    /// if the fragment begins after a gap: after bytes that have not arrived yet.
    #[inline]
    fn on_certificates<C: Crypto, R: Roles>(
        &mut self,
        context: HandshakeContext<'_, R>,
        fragment: &Fragment<'_>,
    ) -> Option<Result<(), Outcome>> {
        let state = &mut *self.state;
        while fragment.offset() as usize <= state.inbox.come() {
            let free = state.inbox.free(self.buffers.incoming);
            let room = self.buffers.incoming.get_mut(..free).unwrap_or(&mut []);
            let outcome = state.add_certificates::<C, R>(context, room, fragment);
            // If waiting fragments were dropped, more bytes of this fragment fit.
            if state.inbox.free(self.buffers.incoming) == free {
                return Some(outcome);
            }
        }
        None
    }

    /// Processes the message that the handshake expects next, which arrived in one fragment.
    #[inline]
    fn on_whole<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        fragment: &Fragment<'_>,
    ) -> Result<(), Outcome> {
        self.state.inbox.forget_pieces();
        let outcome = self.on_message(cx, context, fragment, fragment.body);
        // The buffer is not available while a message that waited in it is processed.
        if keeps_message::<R>() && self.state.step.verifies() && !self.buffers.incoming.is_empty() {
            self.state.inbox.keep(self.buffers.incoming, fragment.body)?;
        }
        outcome
    }

    /// Decides what to do with a fragment of a message. If the fragment repeats the message that directly precedes our
    /// flight, sends our flight again. Ignores the fragments of all other earlier messages. Processes a fragment of the
    /// next message, and stores a fragment of a later message.
    fn on_fragment<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        fragment: &Fragment<'_>,
        protected: bool,
    ) -> Result<(), Outcome> {
        if R::SIMULTANEOUS && self.is_of_another_handshake(fragment.message_type()) {
            return Err(Discard::Unexpected.into());
        }
        let mut whole = fragment.is_whole();
        // A server without state may give any number to its HelloVerifyRequests.
        let verifies = self.awaits_verify_request::<R>(fragment);
        let state = &mut *self.state;
        let mut ahead = if verifies { 0 } else { fragment.message_seq().wrapping_sub(state.receive_seq) as i16 };
        if ahead < 0 {
            // The peer repeats the last message before our flight, so our flight was lost (RFC 6347, section 4.2.4).
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
            Step::AwaitServerChangeCipherSpec if R::RESUMPTION => !protected && state.flags.has(Flags::TICKET),
            // The next message is not due before the owner of the endpoint has answered the question of the handshake.
            Step::ClientVerifies | Step::ServerVerifies | Step::ServerDecrypts => {
                ahead = ahead.max(1);
                R::PUBLIC_KEYS && !protected
            }
            _ => false,
        };
        if !due {
            return Err(Discard::Unexpected.into());
        }
        if R::CERTIFICATES_IN_PARTS && state.step.takes_certificates() && fragment.message_seq() == state.receive_seq {
            if ahead == 0
                && let Some(outcome) = self.on_certificates::<C, R>(context, fragment)
            {
                return outcome;
            }
            (ahead, whole) = (1, true);
        }
        let state = &mut *self.state;
        if ahead > 0 {
            // A message in fragments is reassembled only once it is due.
            let kept = ahead < 8 && whole;
            return match kept {
                true => Ok(state.inbox.hold(self.buffers.incoming, Held::Fragment, fragment.header, fragment.body)?),
                false => Err(Discard::NoRoom.into()),
            };
        }
        if whole {
            return self.on_whole(cx, context, fragment);
        }
        // A fragment of a Finished that waited as a record. The buffer is in use, and the peer sends it again.
        if R::KEEPS && self.buffers.incoming.is_empty() {
            return Err(Discard::NoRoom.into());
        }
        let long = R::PUBLIC_KEYS && R::ON_HOST;
        let Some(len) = state.inbox.add(self.buffers.incoming, fragment, long)? else { return Ok(()) };
        // The message is processed in the buffer, so the buffer is taken out of `self` meanwhile.
        let room = core::mem::take(&mut self.buffers.incoming);
        let body = room.get(..len).unwrap_or(&[]);
        let outcome = self.on_message(cx, context, fragment, body);
        self.buffers.incoming = room;
        if keeps_message::<R>() && self.state.step.verifies() {
            self.state.inbox.keep_front(len);
        }
        outcome
    }

    /// Processes those of the early records and fragments in the receive buffer that the handshake can process now.
    /// Stops when the handshake does not advance any more.
    pub(crate) fn settle<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
    ) -> Result<(), Outcome> {
        loop {
            let Handshake { state, buffers, .. } = self;
            if R::PUBLIC_KEYS && state.step.verifies() {
                return Ok(());
            }
            let finished_due = matches!(state.step, Step::AwaitServerFinished | Step::AwaitClientFinished);
            let found = match finished_due {
                true => state.inbox.take_record::<R>(buffers.incoming),
                false => state.inbox.take_fragment::<R>(buffers.incoming, state.receive_seq),
            };
            let Some((at, len)) = found else { return Ok(()) };
            if R::CERTIFICATES_IN_PARTS && state.step.awaits_certificate() {
                let free = state.inbox.free(buffers.incoming);
                let (room, held) = buffers.incoming.split_at_mut_checked(free).unwrap_or((&mut [], &mut []));
                let item = held.get(at.saturating_sub(free)..).and_then(|item| item.get(..len)).unwrap_or(&[]);
                if let Some((header, body)) = item.split_first_chunk() {
                    state.add_certificates::<C, R>(context, room, &Fragment { header, body })?;
                }
                continue;
            }
            // The item is processed in the buffer, so the buffer is taken out of `self` meanwhile.
            let room = core::mem::take(&mut self.buffers.incoming);
            let item = room.get_mut(at..).and_then(|item| item.get_mut(..len)).unwrap_or(&mut []);
            let outcome = match finished_due {
                true => match item.split_first_chunk_mut() {
                    Some((header, body)) => self.receive_protected(cx, context, Record { header, body }),
                    None => Err(Discard::Malformed.into()),
                },
                false => self.on_fragments(cx, context, item, false),
            };
            self.buffers.incoming = room;
            if keeps_message::<R>() && self.state.step.verifies() {
                let (at, len) = (at.saturating_add(HEADER_LEN), len.saturating_sub(HEADER_LEN));
                self.state.inbox.keep_waiting(self.buffers.incoming, at, len);
            }
            outcome?;
        }
    }

    /// True if a message of this type belongs to another handshake over the same path, because it is impossible in the
    /// present handshake. One of the endpoints has given up that other handshake. In that handshake, the peer had the
    /// role that we have now, or the message answered an earlier ClientHello of ours.
    fn is_of_another_handshake(&self, kind: MessageType) -> bool {
        let client = self.association.is_client();
        let server_hello = matches!(kind, MessageType::SERVER_HELLO | MessageType::HELLO_VERIFY_REQUEST);
        match self.state.step {
            Step::AwaitHelloVerifyRequest | Step::AwaitServerHello => !server_hello,
            _ if client => matches!(kind, MessageType::CLIENT_KEY_EXCHANGE | MessageType::CERTIFICATE_VERIFY),
            _ => {
                server_hello
                    || matches!(kind, MessageType::SERVER_KEY_EXCHANGE | MessageType::CERTIFICATE_REQUEST)
                    || matches!(kind, MessageType::SERVER_HELLO_DONE | MessageType::NEW_SESSION_TICKET)
            }
        }
    }

    /// True if a fragment belongs to a HelloVerifyRequest, and the client may answer it in the present step.
    fn awaits_verify_request<R: Roles>(&self, fragment: &Fragment<'_>) -> bool {
        R::CLIENT
            && fragment.message_type() == MessageType::HELLO_VERIFY_REQUEST
            && matches!(self.state.step, Step::AwaitHelloVerifyRequest | Step::AwaitServerHello)
    }

    /// Processes the message that the handshake expects next. `body` is the whole body of the message, and `fragment`
    /// is the fragment of the message that arrived last.
    fn on_message<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        fragment: &Fragment<'_>,
        body: &[u8],
    ) -> Result<(), Outcome> {
        if self.awaits_verify_request::<R>(fragment) {
            return self.on_hello_verify_request::<R>(fragment.message_seq(), body);
        }
        let kind = fragment.message_type();
        if kind == MessageType::FINISHED {
            self.check_finished::<C, R>(body)?;
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
            self.on_client_message(cx, context, kind, body)
        } else if R::CLIENT && !server {
            if R::KEEPS {
                self.state.await_rest(cx.now);
            }
            self.on_server_message(cx, context, kind, body)
        } else {
            Err(Fatal::UnexpectedMessage(kind).into())
        }
    }

    fn check_finished<C: Crypto, R: Roles>(&mut self, body: &[u8]) -> Result<(), Fatal> {
        let from_client = match self.state.step {
            Step::AwaitClientFinished => true,
            Step::AwaitServerFinished => false,
            // The Finished is in plaintext, or arrived too early.
            _ => return Err(Fatal::UnexpectedMessage(MessageType::FINISHED)),
        };
        // A mote answers a wrong length with decrypt_error instead.
        if R::RECORD_SIZE && body.len() != VERIFY_LEN {
            return Err(Fatal::Decode);
        }
        let mut expected = [0; VERIFY_LEN];
        write_verify_data::<C>(&self.state.master, from_client, &self.state.transcript, &mut expected);
        if same(&expected, body) { Ok(()) } else { Err(Fatal::BadFinished) }
    }
}
