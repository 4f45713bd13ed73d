//! Bodies of the fuzz targets, which check properties that must hold for any bytes.
//!
//! [`parsers`], [`coap`], [`lowpan`] and [`ndn`] take the bytes as if they came from the network. [`duel`] reads them
//! as a script of events between the two ends of a DTLS handshake; [`oscore`], [`group_oscore`] and [`axiom`] do the
//! same for the ends of a context and of a group. A script reaches states that single messages do not reach.
//! [`controllers`] has two controllers of a group, and [`delegation`] a device with delegated sessions. [`edhoc`] has
//! both roles of EDHOC. [`x509`] and [`x509_motes`] read certificates and keys.

pub mod access;
pub mod axiom;
pub mod coap;
pub mod controllers;
pub mod delegation;
pub mod duel;
pub mod edhoc;
pub mod group_oscore;
pub mod lowpan;
pub mod ndn;
pub mod oscore;
pub mod parsers;
pub mod x509;
pub mod x509_motes;

/// The fuzzer's bytes, taken from the front; zeros when they are used up.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of them.
    pub const fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    /// True when they are used up.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        first
    }

    /// Two bytes.
    pub fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// Up to `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        head
    }
}
