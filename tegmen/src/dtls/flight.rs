//! Writes our flights from the state of the handshake. If a flight is sent again, it has the same bytes and new record
//! numbers (RFC 6347, section 4.2.4). An element of a flight is a handshake message or the ChangeCipherSpec.

use super::Fatal;
use super::connection_id::ConnectionIds;
use super::context::HandshakeContext;
use super::element::Element;
use super::handshake::{self, HEADER_LEN, MessageType, certificate, certificate_request, new_session_ticket};
use super::parts::Parts;
use super::public_key::content_of;
use super::record::connection_id::ConnectionId;
use super::record::{self, ContentType, RecordNumber};
use super::roles::Roles;
use super::scratch::{self, Item};
use super::server_name::kept_server;
use super::state::{Flags, Handshake, HandshakeState, NO_CREDENTIAL};
use crate::buf::{Full, Writer, copy};
use crate::counters::bump;
use crate::crypto::Crypto;
use crate::cx::Cx;

impl HandshakeState {
    /// Returns the element that follows `element` in the same flight. The agreed parameters determine this element.
    fn behind<R: Roles>(&self, element: Element) -> Element {
        if !R::KEEPS {
            return element.next();
        }
        match element {
            Element::ServerHello if self.flags.has(Flags::RESUMED) => match self.flags.has(Flags::TICKET) {
                true => Element::NewSessionTicket,
                false => Element::ChangeCipherSpec,
            },
            Element::NewSessionTicket => Element::ChangeCipherSpec,
            Element::ServerHello if self.exchange.has_certificate() => Element::ServerCertificate,
            Element::ServerHello if self.exchange.is_ephemeral() => Element::ServerKeyExchange,
            Element::ServerCertificate if !self.exchange.is_rsa() => Element::ServerKeyExchange,
            Element::ServerCertificate | Element::ServerKeyExchange if self.flags.has(Flags::ASKED) => {
                Element::CertificateRequest
            }
            Element::ServerCertificate | Element::ServerKeyExchange | Element::CertificateRequest => {
                Element::ServerHelloDone
            }
            Element::ClientCertificate => Element::ClientKeyExchange,
            Element::CertificateVerify => Element::ChangeCipherSpec,
            Element::ClientKeyExchange if self.flags.has(Flags::ASKED) && self.credential != NO_CREDENTIAL => {
                Element::CertificateVerify
            }
            element => element.next(),
        }
    }

    /// True after we have sent our ChangeCipherSpec. All our later records are protected (RFC 6347, section 4.1).
    pub(crate) fn has_changed_cipher<R: Roles>(&self) -> bool {
        // Each element in the transcript was written at least once.
        let finished = self.flight.place::<R>() > Element::ServerHelloDone.place::<R>();
        self.hashed == Element::Sent && (finished || R::RESUMPTION && self.flags.has(Flags::RESUMED))
    }

    /// Returns the number of handshake messages that precede `element` in our flight. ChangeCipherSpec is not counted.
    pub(crate) fn messages_before<R: Roles>(&self, element: Element) -> u16 {
        let (mut at, mut messages) = (self.flight, 0u16);
        while at.place::<R>() < element.place::<R>() {
            messages = messages.wrapping_add(u16::from(at != Element::ChangeCipherSpec));
            at = self.behind::<R>(at);
        }
        messages
    }

    /// Returns the message_seq of a message of our flight. If the message is written for the first time, adds it to the
    /// transcript.
    #[inline(always)]
    fn number_message<C: Crypto, R: Roles>(&mut self, element: Element, kind: MessageType, body: &[u8]) -> u16 {
        // ChangeCipherSpec is not a handshake message, so it has no message_seq.
        let before_it = match R::KEEPS {
            true => self.messages_before::<R>(element),
            false => {
                (element as u16).wrapping_sub(self.flight as u16).wrapping_sub((element == Element::Finished).into())
            }
        };
        let seq = self.flight_seq.wrapping_add(before_it);
        if self.hashed.place::<R>() <= element.place::<R>() {
            self.hash_message::<C>(kind, seq, body);
            self.hashed = self.behind::<R>(element);
        }
        seq
    }

    /// Moves the next fragment of a message to the front of `body`. `body` is the body of the whole message, and the
    /// fragment has at most `space` bytes. Returns two numbers: the offset of the fragment in the message, and its
    /// length.
    #[inline(always)]
    fn take_fragment<R: Roles>(
        &mut self,
        element: Element,
        body: &mut [u8],
        space: usize,
    ) -> Result<(usize, usize), Full> {
        let offset = usize::from(self.fragment_offset);
        let left = body.len().saturating_sub(offset);
        let piece = left.min(space);
        if piece == 0 && left > 0 {
            return Err(Full);
        }
        if offset > 0 {
            // Not `copy_within`, because the compiler cannot see that it does not panic here.
            for i in 0..piece {
                let Some(&byte) = body.get(offset.wrapping_add(i)) else { break };
                let Some(place) = body.get_mut(i) else { break };
                *place = byte;
            }
        }
        if piece < left {
            self.fragment_offset = offset.wrapping_add(piece) as u16;
        } else {
            self.fragment_offset = 0;
            self.element = self.behind::<R>(element);
        }
        Ok((offset, piece))
    }
}

/// Number of bytes before the body of a plaintext handshake message: those of the record header and the handshake
/// header.
pub(crate) const MESSAGE_HEADROOM: usize = record::HEADER_LEN + HEADER_LEN;

impl Handshake<'_> {
    /// Writes the next datagram of our flight, and returns its length; 0 if the flight has no more datagrams.
    ///
    /// `out` must have space for the longest message of the flight, even if `settings.mtu` requires that this message
    /// is sent in several fragments.
    pub(crate) fn transmit<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        out: &mut [u8],
    ) -> Result<usize, Fatal> {
        let settings = context.settings;
        let lingering = self.state.is_lingering();
        if self.state.element == Element::Sent {
            // The whole flight was sent, and no answer arrived.
            if lingering {
                return Ok(0);
            }
            if cx.now >= self.state.give_up {
                let after_finished = self.state.flight.place::<R>() > Element::ServerHelloDone.place::<R>();
                return Err(Fatal::TimedOut { after_finished });
            }
            bump(&mut cx.counters.retransmitted);
            self.state.repeated = false;
            self.state.send_flight();
            self.state.timeout_ms = self.state.timeout_ms.saturating_mul(2).min(settings.retransmit_max_ms);
        }
        let begins = self.state.element == self.state.flight && self.state.fragment_offset == 0;
        if R::RECORD_SIZE && self.state.timeout_ms > 0 && begins {
            self.state.flags.lose_flight();
        }
        if self.state.timeout_ms == 0 {
            self.state.timeout_ms = settings.retransmit_first_ms;
        }
        let mut mtu = usize::from(settings.mtu).min(out.len());
        if R::RECORD_SIZE {
            mtu = self.state.flags.datagram(mtu, self.state.flight == Element::ClientHello);
        }
        let mut len = 0usize;
        while self.state.element != Element::Sent {
            let room = out.get_mut(len..).unwrap_or(&mut []);
            match self.write(cx, context, room, mtu.saturating_sub(len)) {
                Ok(written) => len = len.saturating_add(written),
                Err(Full) if len > 0 => break,
                Err(Full) => return Err(Fatal::TooLarge),
            }
            if self.state.minimal && self.state.element.place::<R>() > Element::ClientKeyExchange.place::<R>() {
                break;
            }
        }
        if self.state.element == Element::Sent {
            self.state.deadline = match lingering {
                true => cx.now.after_millis(settings.linger_ms),
                false if R::RESUMPTION && !self.state.flags.may_repeat() => self.state.give_up,
                false => cx.now.after_millis(self.state.timeout_ms).min(self.state.give_up),
            };
        }
        Ok(len)
    }

    /// Writes the next element of the flight into `out`. If a message does not fit `limit` bytes, writes the largest
    /// fragment that fits. Returns the number of bytes of the record.
    // This function is not inlined into the loop of its caller. If it were inlined, the loop would keep every address
    // that the function uses.
    #[inline(never)]
    fn write<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        out: &mut [u8],
        limit: usize,
    ) -> Result<usize, Full> {
        let element = self.state.element;
        if element == Element::ChangeCipherSpec {
            if limit <= record::HEADER_LEN {
                return Err(Full);
            }
            self.state.element = Element::Finished;
            return record::write_plain(out, ContentType::CHANGE_CIPHER_SPEC, self.next_number(), &[1], 0);
        }
        let sealed = element == Element::Finished;
        let (before, space) = self.space::<C, R>(sealed, limit)?;
        let mut body = Writer::new(out.get_mut(before..).ok_or(Full)?);
        let (kind, rest) = self.parts::<R>(element).write::<C, R>(element, context, &mut body)?;
        body.put(rest)?;
        let body = body.finish();
        let seq = self.state.number_message::<C, R>(element, kind, body);
        let (offset, piece) = self.state.take_fragment::<R>(element, body, space)?;
        let header = handshake::header(kind, body.len() as u32, seq, offset as u32, piece as u32);
        match sealed {
            true => self.seal_fragment::<C, R>(cx, &header, piece, before, out),
            false => record::write_plain(out, ContentType::HANDSHAKE, self.next_number(), &header, piece),
        }
    }

    /// Returns two numbers. The first is the number of bytes of a record that precede the body of the message. The
    /// second is the number of bytes of the body that fit the record. `limit` is the number of bytes available for the
    /// record.
    #[inline(always)]
    fn space<C: Crypto, R: Roles>(&self, sealed: bool, limit: usize) -> Result<(usize, usize), Full> {
        let (mut before, mut behind) = if sealed {
            (self.association.channel.headroom::<C>(), self.association.channel.max_tailroom::<C>())
        } else {
            (record::HEADER_LEN, 0)
        };
        if let Some(id) = self.sent_id::<R>().filter(|_| sealed) {
            // The connection id, and the byte with the real content type.
            before = before.wrapping_add(id.bytes().len());
            behind = behind.wrapping_add(1);
        }
        let before = before.wrapping_add(HEADER_LEN);
        let mut space = limit.checked_sub(before.wrapping_add(behind)).ok_or(Full)?;
        if R::RECORD_SIZE {
            space = space.min(self.association.record_size.sent().saturating_sub(HEADER_LEN));
        }
        Ok((before, space))
    }

    /// Returns the connection id that the peer expects in protected records; `None` if it expects none.
    fn sent_id<R: Roles>(&self) -> Option<&ConnectionId> {
        self.ids.as_deref().filter(|_| R::CONNECTION_ID).and_then(ConnectionIds::sent)
    }

    /// Encrypts in place a fragment of a handshake message. The fragment has `piece` bytes, and begins at the offset
    /// `before` of `out`. Returns the number of bytes of the record that contains the fragment.
    #[inline(always)]
    fn seal_fragment<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        header: &[u8; HEADER_LEN],
        piece: usize,
        before: usize,
        out: &mut [u8],
    ) -> Result<usize, Full> {
        let id = self.ids.as_deref().filter(|_| R::CONNECTION_ID).and_then(ConnectionIds::sent);
        let channel = &mut self.association.channel;
        let (headroom, content) = (before.wrapping_sub(HEADER_LEN), HEADER_LEN.wrapping_add(piece));
        let inner = content.wrapping_add(id.is_some().into());
        let len = headroom.wrapping_add(inner).wrapping_add(channel.tailroom::<C>(inner));
        let record = out.get_mut(..len).ok_or(Full)?;
        copy(record.get_mut(headroom..).ok_or(Full)?, header)?;
        let outcome = match id {
            None => channel.seal_record(cx.crypto, ContentType::HANDSHAKE, content, record),
            Some(id) => channel.seal_with_id(cx.crypto, ContentType::HANDSHAKE, id, content, inner, record),
        };
        outcome.map_err(|_| Full)?;
        Ok(record.len())
    }

    /// Returns all data that is needed to write the message `element`.
    #[inline(always)]
    fn parts<R: Roles>(&mut self, element: Element) -> Parts<'_> {
        let len = if element == Element::ClientHello { self.state.cookie_len } else { self.state.outgoing_len };
        Parts {
            state: self.state,
            association: self.association,
            ids: self.ids.as_deref(),
            text: self.buffers.outgoing.get(..len.into()).unwrap_or(&[]),
            session_id: if R::RESUMPTION { scratch::get(self.buffers.outgoing, Item::SessionId) } else { &[] },
            room: self.buffers.outgoing,
        }
    }

    /// Returns the number of our next plaintext record, and counts the record.
    #[inline(never)]
    pub(crate) fn next_number(&mut self) -> RecordNumber {
        let number = RecordNumber::new(0, self.state.next_sequence);
        self.state.next_sequence = self.state.next_sequence.wrapping_add(1);
        number
    }
}

impl<'p> Parts<'p> {
    /// Writes the body of the message `element`, except its last part. Returns the type of the message and the last
    /// part. The last part need not be written into a buffer first: it is a constant, or stored bytes.
    #[inline(always)]
    fn write<C: Crypto, R: Roles>(
        self,
        element: Element,
        context: HandshakeContext<'_, R>,
        body: &mut Writer<'_>,
    ) -> Result<(MessageType, &'p [u8]), Full> {
        Ok(match element {
            Element::ClientHello if R::CLIENT => {
                (MessageType::CLIENT_HELLO, self.write_client_hello::<C, R>(context, body)?)
            }
            Element::ServerHello if R::SERVER => {
                (MessageType::SERVER_HELLO, self.write_server_hello::<C, R>(context, body)?)
            }
            Element::ServerCertificate | Element::ClientCertificate if R::PUBLIC_KEYS => {
                certificate::write(body, content_of(context, kept_server::<R>(self.room), self.state.credential))?;
                (MessageType::CERTIFICATE, &[])
            }
            Element::ServerKeyExchange if R::PUBLIC_KEYS && R::SERVER => {
                self.write_server_key_exchange(context, body)?;
                (MessageType::SERVER_KEY_EXCHANGE, &[])
            }
            Element::CertificateRequest if R::PUBLIC_KEYS && R::SERVER => {
                certificate_request::write(body)?;
                (MessageType::CERTIFICATE_REQUEST, &[])
            }
            Element::NewSessionTicket if R::RESUMPTION && R::SERVER => {
                new_session_ticket::write(body, scratch::get(self.room, Item::NewTicket))?;
                (MessageType::NEW_SESSION_TICKET, &[])
            }
            Element::CertificateVerify if R::PUBLIC_KEYS && R::CLIENT => {
                self.write_signature(context, body)?;
                (MessageType::CERTIFICATE_VERIFY, &[])
            }
            Element::ClientKeyExchange if R::CLIENT => {
                (MessageType::CLIENT_KEY_EXCHANGE, self.write_client_key_exchange::<R>(body)?)
            }
            Element::Finished => (MessageType::FINISHED, self.verify_data::<C, R>()),
            _ => (MessageType::SERVER_HELLO_DONE, &[]),
        })
    }
}
