//! Verifies a Certificate message while it arrives (RFC 5246, section 7.4.2), for an endpoint that cannot hold the
//! whole message: see [`Keys::CERTIFICATES_IN_PARTS`](crate::dtls::Keys).
//!
//! The receive buffer begins with the length of the list. A window into the list follows, which begins with the
//! certificate that is due. Bytes enter the window in order, and are hashed when they enter. So exactly the verified
//! bytes are in the transcript. A complete certificate is lent to the owner, and leaves the buffer when the owner
//! answers. Fragments that arrive too early wait at the end of the buffer, like every early message. A fragment that
//! does not fit is dropped, and the peer sends it again. Bytes that arrived before are ignored.

use super::context::HandshakeContext;
use super::handshake::{self, Fragment, MessageType, u24};
use super::inbox::Inbox;
use super::outcome::Outcome;
use super::roles::Roles;
use super::state::{HandshakeState, Step};
use super::{Fatal, Need};
use crate::buf::{copy, shift_left};
use crate::crypto::Crypto;

/// Bytes of a length field: that of the list, and the one before each certificate.
const LEN: usize = 3;

/// The certificate at the front of the window. Some of its bytes might not have arrived yet.
pub(crate) struct Due {
    /// The end of the certificate in the buffer. While its length is not known, this is the end of the length field.
    end: usize,
    /// Bytes of the list after the certificate; negative if the certificate would end after the list.
    behind: isize,
}

impl Due {
    /// True if more certificates follow this one in the list.
    pub(crate) const fn has_more(&self) -> bool {
        self.behind > 0
    }
}

impl Inbox {
    /// Returns the certificate that is due.
    #[inline(never)]
    pub(crate) fn due(&self, room: &[u8]) -> Due {
        let (mut list, mut end) = (0, 2 * LEN);
        if let Some(&[l0, l1, l2, c0, c1, c2]) = room.first_chunk() {
            list = u32::from_be_bytes([l0, l1, l2, c0]) >> 8;
            if self.front() >= 2 * LEN {
                end = end.wrapping_add(u24([l2, c0, c1, c2]) as usize);
            }
        }
        let total = LEN.wrapping_add(list as usize).wrapping_add(self.front());
        Due { end, behind: total.wrapping_sub(self.come()).wrapping_sub(end).cast_signed() }
    }

    /// Returns the certificate that is due, as a question to the owner, if all its bytes have arrived.
    #[inline]
    pub(crate) fn verify_certificate<'r>(&self, room: &'r [u8]) -> Option<Need<'r>> {
        let Due { end, behind } = self.due(room);
        let certificate = room.get(2 * LEN..end)?;
        Some(Need::VerifyCertificate { certificate, is_first: self.come() == self.front(), is_last: behind == 0 })
    }

    /// Drops the early fragments that wait at the end of the buffer, because the certificate that is due needs their
    /// space. The peer sends these fragments again.
    ///
    /// # Errors
    /// [`Fatal::TooLarge`] if no fragment waits.
    fn make_way(&mut self) -> Result<(), Fatal> {
        if self.drop_held() { Ok(()) } else { Err(Fatal::TooLarge) }
    }
}

impl Step {
    /// True while certificates of the peer arrive, and while the owner verifies one of them.
    pub(crate) const fn takes_certificates(self) -> bool {
        self.awaits_certificate() || matches!(self, Self::ClientVerifies | Self::ServerVerifies)
    }

    /// True while the endpoint waits for a certificate of the peer.
    pub(crate) const fn awaits_certificate(self) -> bool {
        matches!(self, Self::AwaitServerCertificate | Self::AwaitClientCertificate)
    }
}

impl HandshakeState {
    /// Takes a fragment of the Certificate message, if the fragment begins within or directly after the bytes that
    /// have arrived. `room` is the receive buffer without the early fragments at its end.
    #[inline(never)]
    pub(crate) fn add_certificates<C: Crypto, R: Roles>(
        &mut self,
        context: HandshakeContext<'_, R>,
        room: &mut [u8],
        fragment: &Fragment<'_>,
    ) -> Result<(), Outcome> {
        let kind = fragment.message_type();
        if kind != MessageType::CERTIFICATE {
            return Err(Fatal::UnexpectedMessage(kind).into());
        }
        if room.len() < 2 * LEN {
            return Ok(self.inbox.make_way()?);
        }
        let front = self.inbox.front();
        let came = self.inbox.come().wrapping_sub(fragment.offset() as usize);
        let new = fragment.body.get(came..).unwrap_or(&[]);
        let place = room.get_mut(front..).unwrap_or(&mut []);
        let new = new.get(..place.len()).unwrap_or(new);
        let _ = copy(place, new);
        self.inbox.advance(new.len());
        let (end, total) = (front.wrapping_add(new.len()), fragment.length());
        let Some([_, l1, l2]) = room.get(..end).and_then(|list| list.first_chunk()) else { return Ok(()) };
        // A list of 2^16 bytes or more would take longer to arrive than a peer waits.
        let list = u16::from_be_bytes([*l1, *l2]);
        if u32::from(list).wrapping_add(LEN as u32) != total {
            return Err(Fatal::Decode.into());
        }
        let mut hashed = front;
        if front < LEN {
            hashed = 0;
            self.transcript.update::<C>(&handshake::header(kind, total, self.receive_seq, 0, total));
        }
        self.transcript.update::<C>(room.get(hashed..end).unwrap_or(&[]));
        if list == 0 && R::SERVER && self.step == Step::AwaitClientCertificate {
            self.end_certificates();
            return Ok(self.on_no_certificate(context)?);
        }
        self.next_certificate(room)
    }

    /// Asks the owner to verify the certificate that is due, if all its bytes have arrived.
    #[inline(never)]
    fn next_certificate(&mut self, room: &[u8]) -> Result<(), Outcome> {
        let Due { end, behind } = self.inbox.due(room);
        if behind < 0 {
            return Err(Fatal::Decode.into());
        }
        if end > room.len() {
            return Ok(self.inbox.make_way()?);
        }
        if end > self.inbox.front() {
            return Ok(());
        }
        self.step = match self.step {
            Step::AwaitServerCertificate => Step::ClientVerifies,
            _ => Step::ServerVerifies,
        };
        self.deadline = self.give_up;
        Err(Outcome::Need)
    }

    /// Removes a certificate that the owner has verified from the window. Then continues with the next certificate of
    /// the list.
    pub(crate) fn pass_certificate(&mut self, room: &mut [u8], due: &Due) -> Result<(), Outcome> {
        let window = room.get_mut(LEN..self.inbox.front()).unwrap_or(&mut []);
        let left = shift_left(window, due.end.wrapping_sub(LEN), 0);
        self.inbox.set_front(left.wrapping_add(LEN));
        self.step = match self.step {
            Step::ClientVerifies => Step::AwaitServerCertificate,
            _ => Step::AwaitClientCertificate,
        };
        self.next_certificate(room)
    }

    /// Ends the reception of the Certificate message.
    pub(crate) const fn end_certificates(&mut self) {
        self.inbox.forget_pieces();
        self.receive_seq = self.receive_seq.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests;
