//! Captures in the pcapng format, including the secrets (Decryption Secrets Block), so that Wireshark shows the
//! decrypted traffic.
//!
//! Anyone who can read the file can decrypt the traffic. Therefore only the owner of the file has the permission to
//! read it.

use crate::client::{Tap, Tapped};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A capture that writes datagrams as IP packets.
pub struct Capture<W: Write> {
    out: W,
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const DECRYPTION_SECRETS: u32 = 10;
/// The type of secrets that is a TLS key log ("TLSK").
const TLS_KEY_LOG: u32 = 0x544c_534b;
/// The link type of packets that begin with an IPv4 or IPv6 header.
const LINKTYPE_RAW: u16 = 101;

impl Capture<BufWriter<File>> {
    /// Creates a file, and begins a capture in it.
    ///
    /// # Errors
    /// The error of the system.
    pub fn create(file: &Path) -> io::Result<Self> {
        let file = crate::private::open(File::options().create(true).write(true).truncate(true), file)?;
        Self::new(BufWriter::new(file))
    }

    /// Returns a tap that captures the traffic and the secrets of a client. If a write fails, the tap calls `on_error`
    /// once, and the client continues.
    pub fn tap(self, on_error: impl Fn(io::Error) + Send + Sync + 'static) -> Tap {
        let capture = Mutex::new(Some(self));
        Tap(Arc::new(move |tapped| {
            let mut capture = capture.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(open) = capture.as_mut() else { return };
            let written = match tapped {
                Tapped::Datagram { sent, path, datagram } => {
                    let (local, remote) = (path.local.into(), path.remote.into());
                    let (from, to) = if sent { (local, remote) } else { (remote, local) };
                    open.datagram(SystemTime::now(), from, to, datagram)
                }
                Tapped::Secrets(line) => open.secrets(line),
            };
            if let Err(error) = written {
                on_error(error);
                *capture = None;
            }
        }))
    }
}

impl<W: Write> Capture<W> {
    /// Begins a capture.
    ///
    /// # Errors
    /// The error of the output.
    pub fn new(out: W) -> io::Result<Self> {
        let mut capture = Self { out };
        let mut section = Vec::new();
        section.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        section.extend_from_slice(&[1, 0, 0, 0]); // version 1.0
        section.extend_from_slice(&u64::MAX.to_le_bytes()); // of unknown length
        option(&mut section, 4, concat!("tegmen ", env!("CARGO_PKG_VERSION")).as_bytes());
        option(&mut section, 0, &[]);
        capture.block(SECTION_HEADER, &section)?;
        let mut interface = Vec::new();
        interface.extend_from_slice(&LINKTYPE_RAW.to_le_bytes());
        interface.extend_from_slice(&[0; 2]);
        interface.extend_from_slice(&0u32.to_le_bytes()); // packets are never cut
        capture.block(INTERFACE, &interface)?;
        Ok(capture)
    }

    /// Adds lines of a key log (RFC 9850). The lines apply to the packets that follow.
    ///
    /// # Errors
    /// The error of the output.
    pub fn secrets(&mut self, lines: &str) -> io::Result<()> {
        let mut block = Vec::new();
        block.extend_from_slice(&TLS_KEY_LOG.to_le_bytes());
        block.extend_from_slice(&(lines.len() as u32).to_le_bytes());
        block.extend_from_slice(lines.as_bytes());
        self.block(DECRYPTION_SECRETS, &block)
    }

    /// Adds a UDP datagram.
    ///
    /// # Errors
    /// The error of the output.
    pub fn datagram(&mut self, at: SystemTime, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        let packet = packet(from, to, datagram);
        let micros = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        let mut block = Vec::new();
        block.extend_from_slice(&0u32.to_le_bytes()); // the only interface
        block.extend_from_slice(&((micros >> 32) as u32).to_le_bytes());
        block.extend_from_slice(&(micros as u32).to_le_bytes());
        block.extend_from_slice(&(packet.len() as u32).to_le_bytes());
        block.extend_from_slice(&(packet.len() as u32).to_le_bytes());
        block.extend_from_slice(&packet);
        self.block(ENHANCED_PACKET, &block)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let padded = body.len().next_multiple_of(4);
        let len = (padded as u32 + 12).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&len)?;
        self.out.write_all(body)?;
        self.out.write_all(&[0; 3][..padded - body.len()])?;
        self.out.write_all(&len)?;
        // A reader may open the capture while it grows, or after its writer was killed.
        self.out.flush()
    }
}

fn option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    block.extend_from_slice(&code.to_le_bytes());
    block.extend_from_slice(&(value.len() as u16).to_le_bytes());
    block.extend_from_slice(value);
    block.resize(block.len().next_multiple_of(4), 0);
}

/// Returns a datagram with its UDP and IP headers.
fn packet(from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> Vec<u8> {
    let udp_len = (datagram.len() + 8) as u16;
    let mut udp = Vec::new();
    for word in [from.port(), to.port(), udp_len, 0] {
        udp.extend_from_slice(&word.to_be_bytes());
    }
    udp.extend_from_slice(datagram);
    let mut packet = Vec::new();
    let (source, destination) = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = (udp.len() + 20) as u16;
            packet.extend_from_slice(&[0x45, 0]);
            packet.extend_from_slice(&total.to_be_bytes());
            packet.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
            packet.extend_from_slice(&from.octets());
            packet.extend_from_slice(&to.octets());
            let checksum = checksum(&[&packet]);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            (from.octets().to_vec(), to.octets().to_vec())
        }
        (from, to) => {
            let six = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            packet.extend_from_slice(&[0x60, 0, 0, 0]);
            packet.extend_from_slice(&udp_len.to_be_bytes());
            packet.extend_from_slice(&[17, 64]);
            packet.extend_from_slice(&six(from));
            packet.extend_from_slice(&six(to));
            (six(from).to_vec(), six(to).to_vec())
        }
    };
    let pseudo = [&source[..], &destination, &[0, 17], &udp_len.to_be_bytes()].concat();
    let sum = match checksum(&[&pseudo, &udp]) {
        0 => 0xffff,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(&udp);
    packet
}

/// Returns the Internet checksum (RFC 1071) of several parts. All parts except the last must have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum =
        words.fold(0u32, |sum, word| sum + (u32::from(word[0]) << 8) + u32::from(word.get(1).copied().unwrap_or(0)));
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
