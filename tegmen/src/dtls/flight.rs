//! Writes our flights from the state of the handshake. A retransmitted flight has the same bytes under new record
//! numbers (RFC 6347, section 4.2.4).

use super::connection_id::{self, ConnectionIds};
use super::context::HandshakeContext;
use super::element::Element;
use super::handshake::client_hello::{DEFAULT_OFFER, MINIMAL_OFFER, Offer};
use super::handshake::extension::{self, ExtensionType, Extensions};
use super::handshake::{
    self, HEADER_LEN, MessageType, certificate, certificate_request, client_hello, finished, key_exchange,
    new_session_ticket, server_hello,
};
use super::record::{self, ContentType, RecordNumber};
use super::record_size::RecordSize;
use super::scratch::{self, Item};
use super::state::{Flags, Handshake, HandshakeState, NO_CREDENTIAL};
use super::{CipherSuite, Fatal};
use super::{public_key, server};
use crate::buf::{Full, Writer, copy};
use crate::counters::bump;
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;

impl HandshakeState {
    /// Returns the next element of the same flight, given what was agreed on.
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

    /// True once our ChangeCipherSpec was sent: what follows is protected (RFC 6347, section 4.1).
    pub(crate) fn has_changed_cipher<R: Roles>(&self) -> bool {
        // What is in the transcript was written once.
        let finished = self.flight.place::<R>() > Element::ServerHelloDone.place::<R>();
        self.hashed == Element::Sent && (finished || R::RESUMPTION && self.flags.has(Flags::RESUMED))
    }

    /// Returns the number of messages in our flight before `element`; ChangeCipherSpec does not count.
    pub(crate) fn messages_before<R: Roles>(&self, element: Element) -> u16 {
        let (mut at, mut messages) = (self.flight, 0u16);
        while at.place::<R>() < element.place::<R>() {
            messages = messages.wrapping_add(u16::from(at != Element::ChangeCipherSpec));
            at = self.behind::<R>(at);
        }
        messages
    }
}

/// Bytes before the body of a plaintext handshake message: record header and handshake header.
pub(crate) const MESSAGE_HEADROOM: usize = record::HEADER_LEN + HEADER_LEN;

impl Handshake<'_> {
    /// Writes the next datagram of our flight, which is due, and returns its length; 0 if there is nothing (more) to send.
    ///
    /// `out` must hold the longest message of the flight, even where `settings.mtu` fragments it.
    pub(crate) fn transmit<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        out: &mut [u8],
    ) -> Result<usize, Fatal> {
        let settings = context.settings;
        let lingering = self.state.is_lingering();
        if self.state.element == Element::Sent {
            // All of it was sent, and nothing came.
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

    /// Writes the next element of the flight, or as much of a message as fits `limit`. Returns the number of bytes of
    /// its record.
    #[inline(never)] // apart from the loop, which would keep every address that it needs
    fn write<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        out: &mut [u8],
        limit: usize,
    ) -> Result<usize, Full> {
        let state = &mut *self.state;
        let element = state.element;
        if element == Element::ChangeCipherSpec {
            if limit <= record::HEADER_LEN {
                return Err(Full);
            }
            state.element = Element::Finished;
            return record::write_plain(out, ContentType::CHANGE_CIPHER_SPEC, self.next_number(), &[1], 0);
        }
        let sealed = element == Element::Finished;
        let (mut before, mut behind) = if sealed {
            (self.association.channel.headroom::<C>(), self.association.channel.max_tailroom::<C>())
        } else {
            (record::HEADER_LEN, 0)
        };
        let id = self.ids.as_deref().filter(|_| R::CONNECTION_ID && sealed).and_then(ConnectionIds::sent);
        if let Some(id) = id {
            // The id, and the type of what is in the record.
            before = before.wrapping_add(id.bytes().len());
            behind = behind.wrapping_add(1);
        }
        let before = before.wrapping_add(HEADER_LEN);
        let mut space = limit.checked_sub(before.wrapping_add(behind)).ok_or(Full)?;
        if R::RECORD_SIZE {
            space = space.min(self.association.record_size.sent().saturating_sub(HEADER_LEN));
        }
        let len = if element == Element::ClientHello { state.cookie_len } else { state.outgoing_len };
        let kept = self.buffers.outgoing.get(..len.into()).unwrap_or(&[]);
        let session_id = if R::RESUMPTION { scratch::get(self.buffers.outgoing, Item::SessionId) } else { &[] };
        let mut body = Writer::new(out.get_mut(before..).ok_or(Full)?);
        let mut ids = [0; connection_id::EXTENSIONS_LEN];
        let mut more = Writer::new(&mut ids);
        if R::CONNECTION_ID
            && let Some(ids) = &self.ids
        {
            ids.write_extensions(&mut more)?;
        }
        let more = if R::CONNECTION_ID { more.written() } else { &[] };
        // What a message ends with where that need not be made: a constant, or what is kept.
        let (kind, last): (_, &[u8]) = match element {
            Element::ClientHello if R::CLIENT => {
                client_hello::write_front(&mut body, &state.client_random, session_id, kept)?;
                let offer: &[u8] = match state.minimal || C::AES_128_GCM.is_none() && !R::RECORD_SIZE && !R::KEEPS {
                    true if state.minimal => &MINIMAL_OFFER,
                    true => &DEFAULT_OFFER,
                    false => {
                        let ticket = if R::RESUMPTION { context.ticket_to_show(self.buffers.outgoing) } else { None };
                        Offer { ticket, ..context.offer::<C>(more) }.write::<R>(&mut body)?;
                        &[]
                    }
                };
                (MessageType::CLIENT_HELLO, offer)
            }
            Element::ServerHello if R::SERVER => {
                let (record_size_limit, max_fragment_length) = match R::RECORD_SIZE {
                    true => self.association.record_size.answer(context.roles.record_size_limit()),
                    false => (None, None),
                };
                let extensions = Extensions {
                    extended_master_secret: state.extended_master_secret,
                    renegotiation_info: state.renegotiation_info,
                    record_size_limit,
                    max_fragment_length,
                    other: false,
                };
                let suite = match C::AES_128_GCM.is_some() || R::KEEPS {
                    true => CipherSuite::of(state.exchange, state.cipher),
                    false => CipherSuite::PSK_WITH_AES_128_CCM_8,
                };
                server_hello::write_front(&mut body, &state.server_random, session_id, suite)?;
                let answers = R::PUBLIC_KEYS && !state.exchange.is_psk() && !state.flags.has(Flags::RESUMED);
                let ticket = R::RESUMPTION && state.flags.has(Flags::TICKET);
                if answers || ticket || R::KEEPS && state.cipher.encrypts_then_macs() {
                    extensions.write_with(&mut body, |writer| {
                        if answers {
                            server::write_answers(writer, state)?;
                        }
                        if ticket {
                            extension::put(writer, ExtensionType::SESSION_TICKET, &[])?;
                        }
                        if state.cipher.encrypts_then_macs() {
                            extension::put(writer, ExtensionType::ENCRYPT_THEN_MAC, &[])?;
                        }
                        writer.put(more)
                    })?;
                    (MessageType::SERVER_HELLO, &[])
                } else if R::RECORD_SIZE && (self.association.record_size != RecordSize::UNLIMITED || !more.is_empty())
                {
                    extensions.write_with(&mut body, |writer| writer.put(more))?;
                    (MessageType::SERVER_HELLO, &[])
                } else {
                    (MessageType::SERVER_HELLO, extensions.bytes())
                }
            }
            Element::ServerCertificate | Element::ClientCertificate if R::PUBLIC_KEYS => {
                certificate::write(&mut body, public_key::content_of(context, state.credential))?;
                (MessageType::CERTIFICATE, &[])
            }
            Element::ServerKeyExchange if R::PUBLIC_KEYS && R::SERVER => {
                server::write_server_key_exchange(&mut body, context, state, self.buffers.outgoing)?;
                (MessageType::SERVER_KEY_EXCHANGE, &[])
            }
            Element::CertificateRequest if R::PUBLIC_KEYS && R::SERVER => {
                certificate_request::write(&mut body)?;
                (MessageType::CERTIFICATE_REQUEST, &[])
            }
            Element::NewSessionTicket if R::RESUMPTION && R::SERVER => {
                new_session_ticket::write(&mut body, scratch::get(self.buffers.outgoing, Item::NewTicket))?;
                (MessageType::NEW_SESSION_TICKET, &[])
            }
            Element::CertificateVerify if R::PUBLIC_KEYS && R::CLIENT => {
                public_key::write_signature(&mut body, context, state, self.buffers.outgoing)?;
                (MessageType::CERTIFICATE_VERIFY, &[])
            }
            Element::ClientKeyExchange if R::PUBLIC_KEYS && R::CLIENT && state.exchange.is_ephemeral() => {
                if !state.exchange.has_certificate() {
                    key_exchange::write(&mut body, kept)?;
                }
                body.with_len8(scratch::get(self.buffers.outgoing, Item::Share))?;
                (MessageType::CLIENT_KEY_EXCHANGE, &[])
            }
            Element::ClientKeyExchange if R::PUBLIC_KEYS && R::CLIENT && state.exchange.is_rsa() => {
                key_exchange::write(&mut body, scratch::get(self.buffers.outgoing, Item::EncryptedPremaster))?;
                (MessageType::CLIENT_KEY_EXCHANGE, &[])
            }
            Element::ClientKeyExchange if R::CLIENT => {
                key_exchange::write_len(&mut body, kept)?;
                (MessageType::CLIENT_KEY_EXCHANGE, kept)
            }
            Element::Finished => {
                if state.hashed.place::<R>() <= element.place::<R>() {
                    let client = match R::KEEPS {
                        true => self.association.is_client(),
                        false => state.flight == Element::ClientKeyExchange,
                    };
                    finished::write_verify_data::<C>(&state.master, client, &state.transcript, &mut state.verify);
                }
                (MessageType::FINISHED, &state.verify)
            }
            _ => (MessageType::SERVER_HELLO_DONE, &[]),
        };
        body.put(last)?;
        let body = body.finish();
        // ChangeCipherSpec has no number.
        let before_it = match R::KEEPS {
            true => state.messages_before::<R>(element),
            false => (element as u16).wrapping_sub(state.flight as u16).wrapping_sub(sealed.into()),
        };
        let seq = state.flight_seq.wrapping_add(before_it);
        if state.hashed.place::<R>() <= element.place::<R>() {
            state.hash_message::<C>(kind, seq, body);
            state.hashed = state.behind::<R>(element);
        }
        let offset = usize::from(state.fragment_offset);
        let left = body.len().saturating_sub(offset);
        let piece = left.min(space);
        if piece == 0 && left > 0 {
            return Err(Full);
        }
        let header = handshake::header(kind, body.len() as u32, seq, offset as u32, piece as u32);
        if offset > 0 {
            // Not `copy_within`, which can panic as far as the compiler sees.
            for i in 0..piece {
                let Some(&byte) = body.get(offset.wrapping_add(i)) else { break };
                let Some(place) = body.get_mut(i) else { break };
                *place = byte;
            }
        }
        if piece < left {
            state.fragment_offset = offset.wrapping_add(piece) as u16;
        } else {
            state.fragment_offset = 0;
            state.element = state.behind::<R>(element);
        }
        if !sealed {
            return record::write_plain(out, ContentType::HANDSHAKE, self.next_number(), &header, piece);
        }
        let channel = &mut self.association.channel;
        let (headroom, content) = (before.wrapping_sub(HEADER_LEN), HEADER_LEN.wrapping_add(piece));
        let inner = content.wrapping_add(id.is_some().into());
        let len = headroom.wrapping_add(inner).wrapping_add(channel.tailroom::<C>(inner));
        let record = out.get_mut(..len).ok_or(Full)?;
        copy(record.get_mut(headroom..).ok_or(Full)?, &header)?;
        let outcome = match id {
            None => channel.seal_record(cx.crypto, ContentType::HANDSHAKE, content, record),
            Some(id) => channel.seal_with_id(cx.crypto, ContentType::HANDSHAKE, id, content, inner, record),
        };
        outcome.map_err(|_| Full)?;
        Ok(record.len())
    }

    /// The number of our next plaintext record, which is spent with it.
    #[inline(never)]
    pub(crate) fn next_number(&mut self) -> RecordNumber {
        let number = RecordNumber::new(0, self.state.next_sequence);
        self.state.next_sequence = self.state.next_sequence.wrapping_add(1);
        number
    }
}
