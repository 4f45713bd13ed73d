//! Packets over a serial line: SLIP framing (RFC 1055) between a mote and the bridge on its host.
//!
//! A frame is an IPv6 packet, whose first nibble is 6, or one of the two [`Control`] frames, which begin with `?` and
//! `!`. The mote has no source of randomness and no address. It sends `?` until the bridge answers `!`, and sends no
//! packet before.

use core::iter;
use tegmen_base::address::Address;
use tegmen_base::buf::{Full, Reader, Truncated, Writer};
use tegmen_base::secret::Secret;

/// Returns the bytes that represent `frame` on the serial line, with a delimiter before and after the frame.
///
/// The first delimiter separates the frame from noise on the serial line. Without noise, a receiver sees an empty frame
/// before this delimiter, and ignores the empty frame. The frame may consist of several parts:
/// `headers.iter().chain(payload)`.
pub fn encode<'f>(frame: impl IntoIterator<Item = &'f u8>) -> impl Iterator<Item = u8> {
    let escaped = frame.into_iter().flat_map(|&byte| {
        let (first, second) = match byte {
            END => (ESC, Some(ESC_END)),
            ESC => (ESC, Some(ESC_ESC)),
            plain => (plain, None),
        };
        iter::once(first).chain(second)
    });
    iter::once(END).chain(escaped).chain(iter::once(END))
}

/// Writes the bytes that represent `frame` on the serial line to `out`.
///
/// # Errors
/// [`Full`] if the bytes do not fit into `out`. [`max_encoded_len`] returns a length that is always sufficient.
pub fn write(frame: &[u8], out: &mut Writer<'_>) -> Result<(), Full> {
    encode(frame).try_for_each(|byte| out.u8(byte))
}

/// A decoder that finds the frames in the bytes that arrive on a serial line.
#[derive(Debug)]
pub struct Decoder<'b> {
    storage: &'b mut [u8],
    len: usize,
    state: State,
    dropped: Dropped,
}

/// The numbers of frames that were not delivered, for each reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// The number of frames that were longer than the decoder's storage.
    pub oversized: u32,
    /// The number of frames in which an escape byte preceded a byte that it cannot escape.
    pub malformed: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The decoder is in a frame, or before the first frame.
    Plain,
    /// The last byte was an escape byte.
    Escaped,
    /// The decoder is in a frame that it drops.
    Skipping,
}

impl<'b> Decoder<'b> {
    /// Makes a decoder for frames up to the length of `storage`.
    pub const fn new(storage: &'b mut [u8]) -> Self {
        Self { storage, len: 0, state: State::Plain, dropped: Dropped { oversized: 0, malformed: 0 } }
    }

    /// Reads the next byte of the serial line. Returns the frame if this byte ends a frame.
    pub fn push(&mut self, byte: u8) -> Option<&mut [u8]> {
        match (self.state, byte) {
            (State::Skipping, END) => self.state = State::Plain,
            (State::Skipping, _) => {}
            (State::Plain, END) => {
                let len = core::mem::take(&mut self.len);
                return self.storage.get_mut(..len).filter(|frame| !frame.is_empty());
            }
            (State::Plain, ESC) => self.state = State::Escaped,
            (State::Plain, plain) => self.keep(plain),
            (State::Escaped, ESC_END) => self.keep(END),
            (State::Escaped, ESC_ESC) => self.keep(ESC),
            (State::Escaped, END) => self.give_up_malformed(State::Plain),
            (State::Escaped, _) => self.give_up_malformed(State::Skipping),
        }
        None
    }

    /// Returns the counts of dropped frames since the start.
    pub const fn dropped(&self) -> Dropped {
        self.dropped
    }

    fn keep(&mut self, byte: u8) {
        match self.storage.get_mut(self.len) {
            Some(slot) => {
                *slot = byte;
                self.len = self.len.wrapping_add(1);
                self.state = State::Plain;
            }
            None => {
                self.dropped.oversized = self.dropped.oversized.saturating_add(1);
                (self.len, self.state) = (0, State::Skipping);
            }
        }
    }

    fn give_up_malformed(&mut self, next: State) {
        self.dropped.malformed = self.dropped.malformed.saturating_add(1);
        (self.len, self.state) = (0, next);
    }
}

/// The control frames that mote and bridge exchange before the first packet.
///
/// Both frames have version 1. Numbers are big-endian. The numbers in brackets are lengths in bytes. The frame `start`
/// contains the part in square brackets only if the mote is a client:
///
/// ```text
/// seed please   '?' 1
/// start         '!' 1, seed (32 bytes), address of the mote (16) [, address (16) and port (2) of its peer]
/// ```
///
/// A mote repeats `seed please` until it can start. The bridge draws a new seed each time from its own generator, and
/// never sends a seed twice, because a repeated seed would repeat nonces and keys.
#[derive(Debug)]
pub enum Control {
    /// The mote has just started, and requests the data in [`Start`]: its seed and its addresses.
    SeedPlease,
    /// The answer of the bridge to [`Self::SeedPlease`].
    Start(Start),
}

/// The data that a mote needs before it may send its first packet.
#[derive(Debug)]
pub struct Start {
    /// The seed of the mote's random generator.
    pub seed: Secret<32>,
    /// The mote's own IPv6 address.
    pub ip: [u8; 16],
    /// The peer that the mote contacts, if the mote is a client.
    pub peer: Option<Address>,
}

impl Control {
    /// Length of the longest control frame in bytes, before SLIP encodes the frame.
    pub const MAX_LEN: usize = 2 + 32 + 16 + 18;

    /// Reads a control frame: a frame that is not an IPv6 packet.
    ///
    /// # Errors
    /// [`NotControl`] unless the bytes are exactly one frame `seed please` or `start` of version 1.
    pub fn parse(frame: &[u8]) -> Result<Self, NotControl> {
        let mut reader = Reader::new(frame);
        let control = match reader.array()? {
            [ASK, VERSION] => Self::SeedPlease,
            [ANSWER, VERSION] => Self::Start(Start {
                seed: Secret::new(reader.array()?),
                ip: reader.array()?,
                peer: match reader.rest() {
                    [] => None,
                    _ => Some(Address { ip: reader.array()?, port: reader.u16()?, scope: 0 }),
                },
            }),
            _ => return Err(NotControl),
        };
        if reader.rest().is_empty() { Ok(control) } else { Err(NotControl) }
    }

    /// Writes the bytes of the frame to `out`, before SLIP encodes them.
    ///
    /// # Errors
    /// [`Full`] if the frame does not fit into `out`. [`Self::MAX_LEN`] bytes are always sufficient.
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        match self {
            Self::SeedPlease => out.put(&[ASK, VERSION]),
            Self::Start(start) => {
                out.put(&[ANSWER, VERSION])?;
                out.put(start.seed.expose())?;
                out.put(&start.ip)?;
                match start.peer {
                    Some(peer) => {
                        out.put(&peer.ip)?;
                        out.u16(peer.port)
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

/// The error for a frame that is not a known control frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotControl;

impl From<Truncated> for NotControl {
    fn from(_: Truncated) -> Self {
        Self
    }
}

/// Returns the maximum number of bytes that SLIP sends for a frame of `len` bytes: two bytes for each byte of the
/// frame, if all bytes are escaped, and two delimiters.
pub const fn max_encoded_len(len: usize) -> usize {
    len.saturating_mul(2).saturating_add(2)
}

/// First byte of the mote's request. Its high nibble is not a version of IP.
const ASK: u8 = b'?';
/// First byte of the bridge's answer.
const ANSWER: u8 = b'!';
/// Second byte of both frames.
const VERSION: u8 = 1;

const END: u8 = 0o300;
const ESC: u8 = 0o333;
const ESC_END: u8 = 0o334;
const ESC_ESC: u8 = 0o335;

#[cfg(test)]
mod tests;
