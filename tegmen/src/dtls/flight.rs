//! What we send, written from the state of the handshake: the same bytes again when a flight is lost, under new record
//! numbers (RFC 6347, section 4.2.4).

use super::handshake::finished::{VERIFY_LEN, verify_data};
use super::handshake::{
    self, HEADER_LEN, MessageType, client_hello, extension::Extensions, key_exchange, server_hello,
};
use super::record::{self, ContentType, HEADROOM, RecordNumber, TAG_LEN};
use super::state::{Ongoing, Step};
use super::{Fatal, Settings};
use crate::buf::{Full, Writer};
use crate::crypto::Crypto;
use crate::endpoint::{Cx, Roles};

/// The flights of a PSK handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flight {
    ClientHello,
    ServerHello,
    ClientKeyExchange,
    ServerFinished,
}

/// The elements of a flight: handshake messages, and ChangeCipherSpec, which is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Element {
    ClientHello,
    ServerHello,
    ServerHelloDone,
    ClientKeyExchange,
    ChangeCipherSpec,
    Finished,
}

impl Flight {
    const fn elements(self) -> &'static [Element] {
        match self {
            Self::ClientHello => &[Element::ClientHello],
            Self::ServerHello => &[Element::ServerHello, Element::ServerHelloDone],
            Self::ClientKeyExchange => &[Element::ClientKeyExchange, Element::ChangeCipherSpec, Element::Finished],
            Self::ServerFinished => &[Element::ChangeCipherSpec, Element::Finished],
        }
    }

    /// Elements in this flight.
    pub(crate) const fn len(self) -> u8 {
        self.elements().len() as u8
    }

    /// Handshake messages in this flight: what message_seq goes on by.
    pub(crate) const fn messages(self) -> u16 {
        match self {
            Self::ClientHello | Self::ServerFinished => 1,
            Self::ServerHello | Self::ClientKeyExchange => 2,
        }
    }
}

/// Bytes before the body of a plaintext handshake message: record header and handshake header.
pub(crate) const MESSAGE_HEADROOM: usize = record::HEADER_LEN + HEADER_LEN;

impl Ongoing<'_> {
    /// Writes the next datagram of our flight, which is due; `None` if there is nothing (more) to send now.
    ///
    /// `out` must hold the longest message of the flight, even where `settings.mtu` fragments it.
    pub(crate) fn transmit<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        settings: &Settings,
        out: &mut [u8],
    ) -> Result<Option<usize>, Fatal> {
        let awaiting_answer = self.state.step != Step::Lingering;
        if self.state.element >= self.state.flight.len() {
            // All of it was sent, and nothing came.
            if !awaiting_answer {
                return Ok(None);
            }
            if cx.now >= self.state.give_up {
                let after_finished = self.state.flight == Flight::ClientKeyExchange;
                return Err(Fatal::TimedOut { after_finished });
            }
            crate::counters::bump(&mut cx.counters.retransmitted);
            self.state.repeated = false;
            self.state.send_flight();
            self.state.timeout_ms = self.state.timeout_ms.saturating_mul(2).min(settings.retransmit_max_ms);
        }
        if self.state.timeout_ms == 0 {
            self.state.timeout_ms = settings.retransmit_first_ms;
        }
        let mtu = usize::from(settings.mtu).max(64).min(out.len());
        let mut len = 0usize;
        while let Some(&element) = self.state.flight.elements().get(usize::from(self.state.element)) {
            let room = out.get_mut(len..).unwrap_or(&mut []);
            let limit = mtu.saturating_sub(len);
            let written = self.write::<C, R>(cx, element, room, limit, len == 0).map_err(|_| Fatal::TooLarge)?;
            if written == 0 {
                break;
            }
            len = len.saturating_add(written);
            if self.state.fragment_offset > 0 {
                return Ok(Some(len)); // the rest of the message comes in the next datagram
            }
            self.state.element = self.state.element.saturating_add(1);
            self.state.hashed = self.state.hashed.max(self.state.element);
            let alone =
                self.state.minimal && matches!(self.state.flight, Flight::ClientKeyExchange | Flight::ServerFinished);
            if alone {
                break;
            }
        }
        if self.state.element >= self.state.flight.len() {
            self.state.deadline = if awaiting_answer {
                cx.now.after_millis(self.state.timeout_ms).min(self.state.give_up)
            } else {
                cx.now.after_millis(settings.linger_ms)
            };
        }
        Ok(Some(len))
    }

    /// Writes one element, or a fragment of it; 0 if it should begin the next datagram instead.
    fn write<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        element: Element,
        out: &mut [u8],
        limit: usize,
        first: bool,
    ) -> Result<usize, Full> {
        match element {
            Element::ChangeCipherSpec => {
                if limit < record::HEADER_LEN + 1 {
                    return Ok(0);
                }
                record::write_plain(out, ContentType::CHANGE_CIPHER_SPEC, self.next_number(), &[1], 0)
            }
            Element::Finished => self.write_finished(cx, out, limit),
            message => self.write_message::<C, R>(message, out, limit, first),
        }
    }

    fn write_finished<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, out: &mut [u8], limit: usize) -> Result<usize, Full> {
        let state = &mut *self.state;
        let len = state.verify.len();
        if limit < const { HEADROOM + HEADER_LEN + VERIFY_LEN + TAG_LEN } {
            return Ok(0);
        }
        let client = state.flight == Flight::ClientKeyExchange;
        let seq = state.flight_seq.wrapping_add(client.into());
        let header = handshake::header(MessageType::FINISHED, len as u32, seq, 0, len as u32);
        if state.hashed <= state.element {
            state.verify = verify_data::<C>(&state.master, client, &state.transcript);
            state.transcript.update::<C>(&header);
            state.transcript.update::<C>(&state.verify);
        }
        let mut content = [0; HEADER_LEN + VERIFY_LEN];
        let mut writer = Writer::new(&mut content);
        writer.put(&header)?;
        writer.put(&state.verify)?;
        self.channel.seal_copy(cx.crypto, ContentType::HANDSHAKE, &content, out).map_err(|_| Full)
    }

    fn write_message<C: Crypto, R: Roles>(
        &mut self,
        element: Element,
        out: &mut [u8],
        limit: usize,
        first: bool,
    ) -> Result<usize, Full> {
        let state = &mut *self.state;
        let kept = self.buffers.outgoing.get(..state.outgoing_len.into()).unwrap_or(&[]);
        let mut body = match out.get_mut(MESSAGE_HEADROOM..) {
            Some(room) => Writer::new(room),
            None if first => return Err(Full),
            None => return Ok(0),
        };
        let kind = match element {
            Element::ClientHello if R::CLIENT => {
                client_hello::write(&mut body, &state.client_random, kept, state.minimal)?;
                MessageType::CLIENT_HELLO
            }
            Element::ServerHello if R::SERVER => {
                let extensions = Extensions {
                    extended_master_secret: state.extended_master_secret,
                    renegotiation_info: state.renegotiation_info,
                    other: false,
                };
                server_hello::write(&mut body, &state.server_random, extensions)?;
                MessageType::SERVER_HELLO
            }
            Element::ClientKeyExchange if R::CLIENT => {
                key_exchange::write(&mut body, kept)?;
                MessageType::CLIENT_KEY_EXCHANGE
            }
            _ => MessageType::SERVER_HELLO_DONE,
        };
        let body = body.finish();
        let length = body.len() as u32;
        let seq = state.flight_seq.wrapping_add(state.element.into());
        if state.hashed <= state.element && state.fragment_offset == 0 {
            state.hash_message::<C>(kind, seq, body);
            state.hashed = state.element.wrapping_add(1);
        }
        let offset = usize::from(state.fragment_offset);
        let left = body.len().saturating_sub(offset);
        let piece = left.min(limit.saturating_sub(MESSAGE_HEADROOM));
        if piece < left && !first || piece == 0 && left > 0 {
            return Ok(0);
        }
        if offset > 0 {
            for i in 0..piece {
                let byte = *body.get(offset.wrapping_add(i)).ok_or(Full)?;
                *body.get_mut(i).ok_or(Full)? = byte;
            }
        }
        state.fragment_offset = if piece < left { offset.wrapping_add(piece) as u16 } else { 0 };
        let header = handshake::header(kind, length, seq, offset as u32, piece as u32);
        record::write_plain(out, ContentType::HANDSHAKE, self.next_number(), &header, piece)
    }

    /// The number of our next plaintext record, which is spent with it.
    #[inline(never)]
    pub(crate) fn next_number(&mut self) -> RecordNumber {
        let number = RecordNumber::new(0, self.state.next_sequence);
        self.state.next_sequence = self.state.next_sequence.wrapping_add(1);
        number
    }
}
