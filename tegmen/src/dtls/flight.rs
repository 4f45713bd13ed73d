//! What we send, written from the state of the handshake: the same bytes again when a flight is lost, under new record
//! numbers (RFC 6347, section 4.2.4).

use super::connection_id::{self, ConnectionIds};
use super::handshake::{
    self, HEADER_LEN, MessageType, client_hello, extension::Extensions, finished, key_exchange, server_hello,
};
use super::record::{self, Aead, ContentType, RecordNumber};
use super::state::Ongoing;
use super::{Fatal, Settings};
use crate::buf::{Full, Writer, copy};
use crate::counters::bump;
use crate::crypto::Crypto;
use crate::endpoint::{Cx, Roles};

/// The elements of our flights in the order of the protocol: handshake messages, and ChangeCipherSpec, which is none.
///
/// A flight is named by its first element.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Element {
    ClientHello,
    ServerHello,
    ServerHelloDone,
    ClientKeyExchange,
    /// The flight that begins here is the server's, which has no key exchange.
    ChangeCipherSpec,
    Finished,
    /// Behind the last of each flight.
    Sent,
}

impl Element {
    /// What follows in the same flight.
    const fn next(self) -> Self {
        match self {
            Self::ServerHello => Self::ServerHelloDone,
            Self::ClientKeyExchange => Self::ChangeCipherSpec,
            Self::ChangeCipherSpec => Self::Finished,
            Self::ClientHello | Self::ServerHelloDone | Self::Finished | Self::Sent => Self::Sent,
        }
    }
}

/// Bytes before the body of a plaintext handshake message: record header and handshake header.
pub(crate) const MESSAGE_HEADROOM: usize = record::HEADER_LEN + HEADER_LEN;

impl Ongoing<'_> {
    /// Writes the next datagram of our flight, which is due, and returns its length; 0 if there is nothing (more) to send.
    ///
    /// `out` must hold the longest message of the flight, even where `settings.mtu` fragments it.
    pub(crate) fn transmit<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        settings: &Settings,
        out: &mut [u8],
    ) -> Result<usize, Fatal> {
        let lingering = self.state.is_lingering();
        if self.state.element == Element::Sent {
            // All of it was sent, and nothing came.
            if lingering {
                return Ok(0);
            }
            if cx.now >= self.state.give_up {
                let after_finished = self.state.flight == Element::ClientKeyExchange;
                return Err(Fatal::TimedOut { after_finished });
            }
            bump(&mut cx.counters.retransmitted);
            self.state.repeated = false;
            self.state.send_flight();
            self.state.timeout_ms = self.state.timeout_ms.saturating_mul(2).min(settings.retransmit_max_ms);
        }
        if self.state.timeout_ms == 0 {
            self.state.timeout_ms = settings.retransmit_first_ms;
        }
        let mtu = usize::from(settings.mtu).min(out.len());
        let mut len = 0usize;
        while self.state.element != Element::Sent {
            let room = out.get_mut(len..).unwrap_or(&mut []);
            match self.write::<C, R>(cx, room, mtu.saturating_sub(len)) {
                Ok(written) => len = len.saturating_add(written),
                Err(Full) if len > 0 => break,
                Err(Full) => return Err(Fatal::TooLarge),
            }
            if self.state.minimal && self.state.element > Element::ClientKeyExchange {
                break;
            }
        }
        if self.state.element == Element::Sent {
            self.state.deadline = match lingering {
                true => cx.now.after_millis(settings.linger_ms),
                false => cx.now.after_millis(self.state.timeout_ms).min(self.state.give_up),
            };
        }
        Ok(len)
    }

    /// Writes the next element of the flight, or as much of a message as fits `limit`; its record is of so many bytes.
    #[inline(never)] // apart from the loop, which would keep every address that it needs
    fn write<C: Crypto, R: Roles>(&mut self, cx: &mut Cx<'_, C>, out: &mut [u8], limit: usize) -> Result<usize, Full> {
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
        let (mut before, mut behind) =
            if sealed { (record::HEADROOM, self.peer.channel.tag_len::<C>()) } else { (record::HEADER_LEN, 0) };
        let id = self.ids.as_deref().filter(|_| R::CONNECTION_ID && sealed).and_then(ConnectionIds::sent);
        if let Some(id) = id {
            // The id, and the type of what is in the record.
            before = before.wrapping_add(id.bytes().len());
            behind = behind.wrapping_add(1);
        }
        let before = before.wrapping_add(HEADER_LEN);
        let mut space = limit.checked_sub(before.wrapping_add(behind)).ok_or(Full)?;
        if R::RECORD_SIZE {
            space = space.min(self.peer.record_size.sent().saturating_sub(HEADER_LEN));
        }
        let kept = self.buffers.outgoing.get(..state.outgoing_len.into()).unwrap_or(&[]);
        let mut body = Writer::new(out.get_mut(before..).ok_or(Full)?);
        let mut ids = [0; connection_id::EXTENSIONS_LEN];
        let mut more = Writer::new(&mut ids);
        if R::CONNECTION_ID
            && let Some(ids) = &self.ids
        {
            ids.write_extensions(&mut more)?;
        }
        let more = if R::CONNECTION_ID { more.written() } else { &[] };
        let kind = match element {
            Element::ClientHello if R::CLIENT => {
                let limit = if R::RECORD_SIZE { state.record_size_limit } else { 0 };
                let suites = state.offered::<C>();
                client_hello::write(&mut body, &state.client_random, kept, state.minimal, suites, limit, more)?;
                MessageType::CLIENT_HELLO
            }
            Element::ServerHello if R::SERVER => {
                let (record_size_limit, max_fragment_length) = match R::RECORD_SIZE {
                    true => self.peer.record_size.answer(state.record_size_limit),
                    false => (None, None),
                };
                let extensions = Extensions {
                    extended_master_secret: state.extended_master_secret,
                    renegotiation_info: state.renegotiation_info,
                    record_size_limit,
                    max_fragment_length,
                    other: false,
                };
                let gcm = C::GCM && state.aead == Aead::Gcm;
                server_hello::write(&mut body, &state.server_random, gcm, extensions, more)?;
                MessageType::SERVER_HELLO
            }
            Element::ClientKeyExchange if R::CLIENT => {
                key_exchange::write(&mut body, kept)?;
                MessageType::CLIENT_KEY_EXCHANGE
            }
            Element::Finished => {
                if state.hashed <= element {
                    let client = state.flight == Element::ClientKeyExchange;
                    finished::write_verify_data::<C>(&state.master, client, &state.transcript, &mut state.verify);
                }
                body.put(&state.verify)?;
                MessageType::FINISHED
            }
            _ => MessageType::SERVER_HELLO_DONE,
        };
        let body = body.finish();
        // ChangeCipherSpec has no number.
        let before_it = (element as u16).wrapping_sub(state.flight as u16).wrapping_sub(sealed.into());
        let seq = state.flight_seq.wrapping_add(before_it);
        if state.hashed <= element {
            state.hash_message::<C>(kind, seq, body);
            state.hashed = element.next();
        }
        let offset = usize::from(state.fragment_offset);
        let left = body.len().saturating_sub(offset);
        let piece = left.min(space);
        if piece == 0 && left > 0 {
            return Err(Full);
        }
        let header = handshake::header(kind, body.len() as u32, seq, offset as u32, piece as u32);
        if offset > 0 {
            for i in 0..piece {
                let byte = *body.get(offset.wrapping_add(i)).ok_or(Full)?;
                *body.get_mut(i).ok_or(Full)? = byte;
            }
        }
        if piece < left {
            state.fragment_offset = offset.wrapping_add(piece) as u16;
        } else {
            state.fragment_offset = 0;
            state.element = element.next();
        }
        if !sealed {
            return record::write_plain(out, ContentType::HANDSHAKE, self.next_number(), &header, piece);
        }
        let record = out.get_mut(..before.wrapping_add(piece).wrapping_add(behind)).ok_or(Full)?;
        let headroom = before.wrapping_sub(HEADER_LEN);
        copy(record.get_mut(headroom..).ok_or(Full)?, &header)?;
        let channel = &mut self.peer.channel;
        let outcome = match id {
            None => channel.seal_record(cx.crypto, ContentType::HANDSHAKE, record),
            Some(id) => {
                channel.seal_with_id(cx.crypto, ContentType::HANDSHAKE, id, HEADER_LEN.wrapping_add(piece), record)
            }
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
