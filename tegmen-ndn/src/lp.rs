//! NDNLPv2, the link protocol: a packet or a fragment of a packet, with fields for the next hop.
//!
//! An Interest or a Data packet that needs none of these fields is sent without an LpPacket around it.

use crate::MAX_HEAD;
use crate::error::Error;
use crate::tlv::{self, Element, Elements};
use crate::types::Type;
use tegmen_base::buf::{Frame, Full, Writer, copy};

/// The type of an LpPacket.
pub const LP_PACKET: Type = Type(100);
const FRAGMENT: Type = Type(80);
const SEQUENCE: Type = Type(81);
const FRAG_INDEX: Type = Type(82);
const FRAG_COUNT: Type = Type(83);
const PIT_TOKEN: Type = Type(98);
const NACK: Type = Type(800);
const NACK_REASON: Type = Type(801);
const INCOMING_FACE: Type = Type(812);
const NEXT_HOP_FACE: Type = Type(816);
const CONGESTION_MARK: Type = Type(832);
const ACK: Type = Type(836);
const TX_SEQUENCE: Type = Type(840);

/// Length of the longest PitToken in bytes.
pub const MAX_TOKEN: usize = 32;

/// Maximum number of bytes that [`Part`], and the types and lengths around it, add to a fragment.
pub const FRAGMENT_OVERHEAD: usize = 40;

/// Maximum number of bytes of all fields, with the types and lengths around them.
pub const MAX_FIELDS: usize = 140;

/// The reason of a Nack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NackReason(pub u64);

impl NackReason {
    /// No reason is given.
    pub const NONE: Self = Self(0);
    /// The link or a table is full.
    pub const CONGESTION: Self = Self(50);
    /// The Interest has arrived before, in a loop.
    pub const DUPLICATE: Self = Self(100);
    /// No next hop is known.
    pub const NO_ROUTE: Self = Self(150);
}

/// The position of a fragment in its packet. A packet that is sent whole is its only fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Sequence of the fragment. The fragments of one packet have consecutive numbers.
    pub sequence: u64,
    /// FragIndex, below `count`.
    pub index: u64,
    /// FragCount.
    pub count: u64,
}

/// An LpPacket of NDNLPv2. It can also be an Interest or a Data packet without an LpPacket around it. Then `fragment`
/// is this packet, and all other fields are `None`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LpPacket<'p> {
    /// A packet, or a fragment of a packet. `None` if the LpPacket has only fields.
    pub fragment: Option<&'p [u8]>,
    /// The position of the fragment in its packet. `None` if the LpPacket has no Sequence.
    pub part: Option<Part>,
    /// PitToken, of at most [`MAX_TOKEN`] bytes. A node returns the PitToken of an Interest with its Data packet or
    /// Nack.
    pub token: Option<&'p [u8]>,
    /// The reason of a Nack, if the fragment is an Interest that is not answered.
    pub nack: Option<NackReason>,
    /// IncomingFaceId: the face on which the packet arrived. A forwarder reports this number to an application.
    pub incoming_face: Option<u64>,
    /// NextHopFaceId: the face on which an application wants its Interest to be sent.
    pub next_hop_face: Option<u64>,
    /// CongestionMark: a node sets it to report that a link is congested.
    pub congestion_mark: Option<u64>,
    /// TxSequence, with which the next hop acknowledges the LpPacket.
    pub tx_sequence: Option<u64>,
}

impl<'p> LpPacket<'p> {
    /// Reads the bytes that a face received. The function [`acks`] reads acknowledgements.
    ///
    /// # Errors
    /// [`Error`]. An unknown field is skipped if its type is from 800 to 959 and a multiple of 4. Any other unknown
    /// field is an error.
    pub fn parse(bytes: &'p [u8]) -> Result<Self, Error> {
        let outer = Elements::of(bytes).next().ok_or(Error::Truncated)??;
        if outer.end != bytes.len() {
            return Err(Error::Trailing);
        }
        match outer.kind {
            Type::INTEREST | Type::DATA => return Ok(Self { fragment: Some(bytes), ..Self::default() }),
            LP_PACKET => {}
            _ => return Err(Error::Missing(LP_PACKET)),
        }
        let mut packet = Self::default();
        let (mut sequence, mut index, mut count) = (None, None, None);
        for element in Elements::of(outer.value) {
            let Element { kind, value, .. } = element?;
            let number = || tlv::integer(value, kind);
            match kind {
                // An idle packet has an empty fragment.
                FRAGMENT => packet.fragment = Some(value).filter(|value| !value.is_empty()),
                SEQUENCE => sequence = Some(fixed(value, kind)?),
                FRAG_INDEX => index = Some(number()?),
                FRAG_COUNT => count = Some(number()?),
                PIT_TOKEN if matches!(value.len(), 1..=MAX_TOKEN) => packet.token = Some(value),
                PIT_TOKEN => return Err(Error::Length(kind)),
                NACK => packet.nack = Some(reason(value)?),
                INCOMING_FACE => packet.incoming_face = Some(number()?),
                NEXT_HOP_FACE => packet.next_hop_face = Some(number()?),
                CONGESTION_MARK => packet.congestion_mark = Some(number()?),
                TX_SEQUENCE => packet.tx_sequence = Some(fixed(value, kind)?),
                ACK => drop(fixed(value, kind)?),
                Type(800..=959) if kind.0.is_multiple_of(4) => {}
                _ => return Err(Error::Critical(kind)),
            }
        }
        let (index, count) = (index.unwrap_or(0), count.unwrap_or(1));
        packet.part = sequence.map(|sequence| Part { sequence, index, count });
        if count > 1 && packet.part.is_none() {
            return Err(Error::Missing(SEQUENCE));
        }
        if index >= count {
            return Err(Error::Length(FRAG_INDEX));
        }
        Ok(packet)
    }

    /// Puts the fields in front of the fragment in `frame`. The frame must have [`MAX_FIELDS`] free bytes in front. If
    /// there is no fragment, the frame must be empty. If the LpPacket has no fields, the frame does not change.
    /// [`Self::fragment`] is ignored.
    ///
    /// # Errors
    /// [`Full`].
    pub fn write_around(&self, frame: &mut Frame<'_>) -> Result<(), Full> {
        if (Self { fragment: None, ..*self }) == Self::default() {
            return Ok(());
        }
        let mut fields = [0; MAX_FIELDS];
        let mut out = Writer::new(&mut fields);
        self.write_fields(&mut out)?;
        if !frame.is_empty() {
            tlv::write_head(&mut out, FRAGMENT, frame.len())?;
        }
        let mut head = [0; MAX_HEAD];
        let mut outer = Writer::new(&mut head);
        tlv::write_head(&mut outer, LP_PACKET, out.len().saturating_add(frame.len()))?;
        let len = out.len().saturating_add(outer.len());
        let bytes = frame.widen(len, 0)?;
        let (front, behind) = bytes.split_at_mut_checked(outer.len()).ok_or(Full)?;
        copy(front, outer.written())?;
        copy(behind, out.written())
    }

    fn write_fields(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        if let Some(Part { sequence, index, count }) = self.part {
            tlv::write(out, SEQUENCE, &sequence.to_be_bytes())?;
            if count > 1 {
                tlv::write_integer(out, FRAG_INDEX, index)?;
                tlv::write_integer(out, FRAG_COUNT, count)?;
            }
        }
        if let Some(token) = self.token {
            tlv::write(out, PIT_TOKEN, token)?;
        }
        if let Some(NackReason(reason)) = self.nack {
            let mut bytes = [0; 8];
            let reason = Some(tlv::integer_bytes(reason, &mut bytes)).filter(|_| reason != 0);
            let len = reason.map_or(0, |reason| tlv::element_len(NACK_REASON, reason.len()));
            tlv::write_head(out, NACK, len)?;
            if let Some(reason) = reason {
                tlv::write(out, NACK_REASON, reason)?;
            }
        }
        let numbers = [
            (INCOMING_FACE, self.incoming_face),
            (NEXT_HOP_FACE, self.next_hop_face),
            (CONGESTION_MARK, self.congestion_mark),
        ];
        for (kind, number) in numbers {
            if let Some(number) = number {
                tlv::write_integer(out, kind, number)?;
            }
        }
        if let Some(sequence) = self.tx_sequence {
            tlv::write(out, TX_SEQUENCE, &sequence.to_be_bytes())?;
        }
        Ok(())
    }
}

/// Replaces the TxSequence of an LpPacket. Returns false if the LpPacket has no TxSequence.
pub fn set_tx_sequence(packet: &mut [u8], sequence: u64) -> bool {
    let Ok(value) = tlv::only(packet, LP_PACKET) else { return false };
    let head = packet.len().saturating_sub(value.len());
    let mut fields = Elements::of(value).map_while(Result::ok);
    let Some(field) = fields.find(|field| field.kind == TX_SEQUENCE && field.value.len() == 8) else { return false };
    let end = head.saturating_add(field.end);
    let place = packet.get_mut(end.saturating_sub(8)..end);
    place.is_some_and(|place| copy(place, &sequence.to_be_bytes()).is_ok())
}

/// Returns the TxSequences that an LpPacket acknowledges.
pub fn acks(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let value = tlv::only(bytes, LP_PACKET).unwrap_or(&[]);
    let acks = Elements::of(value).filter_map(Result::ok).filter(|element| element.kind == ACK);
    acks.filter_map(|element| fixed(element.value, ACK).ok())
}

/// Writes an LpPacket that acknowledges other LpPackets.
///
/// # Errors
/// [`Full`].
pub fn write_acks(sequences: &[u64], out: &mut Writer<'_>) -> Result<(), Full> {
    let len = sequences.len().saturating_mul(tlv::element_len(ACK, 8));
    tlv::write_head(out, LP_PACKET, len)?;
    sequences.iter().try_for_each(|sequence| tlv::write(out, ACK, &sequence.to_be_bytes()))
}

/// Reads a sequence number, which has 8 bytes.
fn fixed(value: &[u8], kind: Type) -> Result<u64, Error> {
    value.try_into().map(u64::from_be_bytes).map_err(|_| Error::Length(kind))
}

fn reason(value: &[u8]) -> Result<NackReason, Error> {
    let [reason] = tlv::fields(value, &[NACK_REASON])?;
    let reason = reason.map(|reason| tlv::integer(reason, NACK_REASON)).transpose()?;
    Ok(NackReason(reason.unwrap_or(0)))
}
