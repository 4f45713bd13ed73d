//! IEEE 802.15.4 frames (2006, section 7.2): data and acknowledgements, short and extended addresses, FCS.
//!
//! Frames on the air are little-endian. Addresses in this module have the byte order of their text form.

use tegmen_base::buf::{Full, Reader, Truncated, Writer};

/// An address of the link layer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum LinkAddress {
    /// The frame contains no address.
    #[default]
    Absent,
    /// An address of two bytes, which the coordinator of the PAN assigns.
    Short(u16),
    /// An address of eight bytes, which the manufacturer assigns (EUI-64).
    Extended([u8; 8]),
}

impl LinkAddress {
    /// The broadcast address.
    pub const BROADCAST: Self = Self::Short(0xffff);

    /// Returns the number of bytes of the address in a frame.
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Absent => 0,
            Self::Short(_) => 2,
            Self::Extended(_) => 8,
        }
    }

    /// Returns true if there is no address.
    pub const fn is_empty(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Returns the IPv6 interface identifier that is computed from this link address (RFC 6282, section 3.2.2; RFC
    /// 4944, section 6); `None` for [`LinkAddress::Absent`].
    pub const fn interface_id(&self) -> Option<[u8; 8]> {
        match *self {
            Self::Absent => None,
            Self::Short(short) => {
                let [high, low] = short.to_be_bytes();
                Some([0, 0, 0, 0xff, 0xfe, 0, high, low])
            }
            Self::Extended([a, b, c, d, e, f, g, h]) => Some([a ^ 2, b, c, d, e, f, g, h]),
        }
    }

    const fn mode(&self) -> u16 {
        match self {
            Self::Absent => 0,
            Self::Short(_) => 2,
            Self::Extended(_) => 3,
        }
    }

    fn read(mode: u16, bytes: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(match mode {
            0 => Self::Absent,
            2 => Self::Short(u16_le(bytes)?),
            3 => Self::Extended(bytes.array().map(reversed)?),
            _ => return Err(FrameError::Unsupported),
        })
    }

    fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        match *self {
            Self::Absent => Ok(()),
            Self::Short(short) => out.put(&short.to_le_bytes()),
            Self::Extended(extended) => out.put(&reversed(extended)),
        }
    }
}

/// Identifier of a personal area network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PanId(pub u16);

impl PanId {
    /// The identifier of all networks.
    pub const BROADCAST: Self = Self(0xffff);
}

/// The type of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameType {
    /// A frame with a payload.
    Data,
    /// An acknowledgement of the frame with the same sequence number.
    Acknowledgement,
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The type of the frame.
    pub frame_type: FrameType,
    /// True if the receiver must acknowledge the frame.
    pub acknowledge: bool,
    /// True if another frame for the same receiver follows.
    pub pending: bool,
    /// The data sequence number, which an acknowledgement repeats.
    pub sequence: u8,
    /// The identifier of the network of the receiver (destination PAN identifier).
    pub destination_pan: PanId,
    /// The address of the receiver.
    pub destination: LinkAddress,
    /// The identifier of the network of the sender (source PAN identifier). The frame does not contain it if both
    /// addresses are present, and sender and receiver are in the same network.
    pub source_pan: PanId,
    /// The address of the sender.
    pub source: LinkAddress,
}

impl Header {
    /// Makes the header of a data frame within one network. The frame requests an acknowledgement, unless it is a
    /// broadcast.
    pub const fn data(pan: PanId, source: LinkAddress, destination: LinkAddress, sequence: u8) -> Self {
        Self {
            frame_type: FrameType::Data,
            acknowledge: !matches!(destination, LinkAddress::Short(0xffff)),
            pending: false,
            sequence,
            destination_pan: pan,
            destination,
            source_pan: pan,
            source,
        }
    }

    /// Makes the header of the acknowledgement for the frame with this sequence number.
    pub const fn acknowledgement(sequence: u8) -> Self {
        Self {
            frame_type: FrameType::Acknowledgement,
            acknowledge: false,
            pending: false,
            sequence,
            destination_pan: PanId(0),
            destination: LinkAddress::Absent,
            source_pan: PanId(0),
            source: LinkAddress::Absent,
        }
    }

    /// Returns true if a device with the address `address` in the network `pan` receives the frame: its destination is
    /// the address or the broadcast address, in this network or in all networks (IEEE 802.15.4-2006, section 7.5.6.2).
    /// A frame without a destination is for the PAN coordinator alone, and this function returns false.
    pub fn is_for(&self, pan: PanId, address: &LinkAddress) -> bool {
        !self.destination.is_empty()
            && (self.destination_pan == pan || self.destination_pan == PanId::BROADCAST)
            && (self.destination == *address || self.destination == LinkAddress::BROADCAST)
    }

    /// Returns the number of bytes of the header.
    pub fn len(&self) -> usize {
        let pan = |address: &LinkAddress| if address.is_empty() { 0 } else { 2usize };
        let source_pan = if self.compresses_pan() { 0 } else { pan(&self.source) };
        let pans = pan(&self.destination).wrapping_add(source_pan);
        self.destination.len().wrapping_add(self.source.len()).wrapping_add(pans).wrapping_add(3)
    }

    /// Returns false, because each header has a frame control field.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Returns true if the frame leaves out the source PAN, because both addresses are present and in the same network
    /// (IEEE 802.15.4-2006, section 7.2.1.1.5).
    fn compresses_pan(&self) -> bool {
        !self.destination.is_empty() && !self.source.is_empty() && self.destination_pan == self.source_pan
    }

    /// Reads a header. The rest of `bytes` is the payload.
    ///
    /// # Errors
    /// [`FrameError`]
    pub(crate) fn read(bytes: &mut Reader<'_>) -> Result<Self, FrameError> {
        let control = u16_le(bytes)?;
        let frame_type = match control & 0b111 {
            1 => FrameType::Data,
            2 => FrameType::Acknowledgement,
            _ => return Err(FrameError::Unsupported), // beacons and commands
        };
        // The frame uses security, or has the header of IEEE 802.15.4e or of a later version.
        if control & SECURITY != 0 || control & VERSION > VERSION_2006 {
            return Err(FrameError::Unsupported);
        }
        let (destination_mode, source_mode) = ((control >> 10) & 3, control >> 14);
        let sequence = bytes.u8()?;
        if frame_type == FrameType::Acknowledgement {
            // An acknowledgement has no addresses (IEEE 802.15.4-2006, section 7.2.2.3).
            if destination_mode != 0 || source_mode != 0 {
                return Err(FrameError::Unsupported);
            }
            return Ok(Self { pending: control & PENDING != 0, ..Self::acknowledgement(sequence) });
        }
        let destination_pan = if destination_mode == 0 { 0 } else { u16_le(bytes)? };
        let destination = LinkAddress::read(destination_mode, bytes)?;
        let compressed = control & PAN_COMPRESSION != 0;
        if compressed && (destination_mode == 0 || source_mode == 0) {
            return Err(FrameError::Unsupported);
        }
        let source_pan = match (source_mode, compressed) {
            (0, _) => 0,
            (_, true) => destination_pan,
            (_, false) => u16_le(bytes)?,
        };
        let source = LinkAddress::read(source_mode, bytes)?;
        Ok(Self {
            frame_type,
            acknowledge: control & ACKNOWLEDGE != 0,
            pending: control & PENDING != 0,
            sequence,
            destination_pan: PanId(destination_pan),
            destination,
            source_pan: PanId(source_pan),
            source,
        })
    }

    /// Writes the header.
    ///
    /// # Errors
    /// [`Full`]
    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        let mut control = match self.frame_type {
            FrameType::Data => 1,
            FrameType::Acknowledgement => 2,
        };
        let mut set = |bit, on: bool| control |= if on { bit } else { 0 };
        set(PENDING, self.pending);
        set(ACKNOWLEDGE, self.acknowledge);
        set(PAN_COMPRESSION, self.compresses_pan());
        control |= (self.destination.mode() << 10) | (self.source.mode() << 14);
        out.put(&control.to_le_bytes())?;
        out.u8(self.sequence)?;
        if !self.destination.is_empty() {
            out.put(&self.destination_pan.0.to_le_bytes())?;
            self.destination.write(out)?;
        }
        if !self.source.is_empty() && !self.compresses_pan() {
            out.put(&self.source_pan.0.to_le_bytes())?;
        }
        self.source.write(out)
    }
}

/// A received frame. [`Frame::parse`] has checked its FCS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'r> {
    /// The header of the frame: its type, its data sequence number and its addresses.
    pub header: Header,
    /// The payload of the frame.
    pub payload: &'r [u8],
}

impl<'r> Frame<'r> {
    /// Reads a frame with its FCS, as the radio received it.
    ///
    /// # Errors
    /// [`FrameError`]
    pub fn parse(psdu: &'r [u8]) -> Result<Self, FrameError> {
        if psdu.len() > MAX_LEN {
            return Err(FrameError::TooLong);
        }
        let (body, fcs) = psdu.split_last_chunk::<FCS_LEN>().ok_or(FrameError::Truncated)?;
        if u16::from_le_bytes(*fcs) != checksum(body) {
            return Err(FrameError::BadChecksum);
        }
        let mut reader = Reader::new(body);
        let header = Header::read(&mut reader)?;
        Ok(Self { header, payload: reader.rest() })
    }
}

/// Writes a frame around `payload`, with its FCS.
///
/// # Errors
/// [`Full`] if the frame is longer than [`MAX_LEN`] or than `out`.
pub fn write<'t>(header: &Header, payload: &[u8], out: &'t mut [u8]) -> Result<&'t mut [u8], Full> {
    let room = out.len().min(MAX_LEN);
    let mut writer = Writer::new(out.get_mut(..room).ok_or(Full)?);
    header.write(&mut writer)?;
    writer.put(payload)?;
    let fcs = checksum(writer.written());
    writer.put(&fcs.to_le_bytes())?;
    Ok(writer.finish())
}

/// Computes the FCS: CRC-16 of ITU-T, lowest bit first, with the initial value zero (IEEE 802.15.4-2006, section
/// 7.2.1.9).
pub fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| {
        (0..8).fold(crc ^ u16::from(byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0x8408 } else { crc >> 1 })
    })
}

/// The reason why a received frame is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The frame ends before its header ends.
    Truncated,
    /// The frame is longer than [`MAX_LEN`].
    TooLong,
    /// The checksum of the frame is wrong.
    BadChecksum,
    /// The frame is a beacon, a command, a secured frame, or a frame of a later version.
    Unsupported,
}

impl From<Truncated> for FrameError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

fn u16_le(bytes: &mut Reader<'_>) -> Result<u16, Truncated> {
    bytes.array().map(u16::from_le_bytes)
}

fn reversed([a, b, c, d, e, f, g, h]: [u8; 8]) -> [u8; 8] {
    [h, g, f, e, d, c, b, a]
}

/// Length of the longest frame in bytes, with its FCS: aMaxPHYPacketSize.
pub const MAX_LEN: usize = 127;
/// Length of the FCS in bytes.
pub const FCS_LEN: usize = 2;
/// Length of an acknowledgement in bytes.
pub const ACKNOWLEDGEMENT_LEN: usize = 5;

const SECURITY: u16 = 1 << 3;
const PENDING: u16 = 1 << 4;
const ACKNOWLEDGE: u16 = 1 << 5;
const PAN_COMPRESSION: u16 = 1 << 6;
const VERSION: u16 = 3 << 12;
const VERSION_2006: u16 = 1 << 12;

#[cfg(test)]
mod tests;
