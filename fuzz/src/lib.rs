//! The functions of the fuzz targets. They check properties that must hold for any bytes.
//!
//! [`parsers`], [`coap`], [`lowpan`] and [`ndn`] process the bytes of the fuzzer like bytes from the network. Other
//! targets read the bytes as a script: a list of events that the target executes one after the other. A script reaches
//! states that single messages do not reach. [`duel`] has scripts for the client and the server of a DTLS handshake.
//! [`oscore`], [`group_oscore`] and [`axiom`] have scripts for the endpoints of an OSCORE context and for the members
//! of a group. [`controllers`] tests two controllers of a group, [`delegation`] a device with delegated sessions, and
//! [`edhoc`] both roles of EDHOC. [`informative`] reads the data of a group observation. [`access`] reads messages and policies of access control. [`x509`] and [`x509_motes`]
//! read certificates and keys.

pub mod access;
pub mod axiom;
pub mod coap;
pub mod controllers;
pub mod delegation;
pub mod duel;
pub mod edhoc;
pub mod group_oscore;
pub mod informative;
pub mod lowpan;
pub mod ndn;
pub mod oscore;
pub mod parsers;
pub mod x509;
pub mod x509_motes;

// The module `informative` contains a source file of `tegmen-host`, which uses these formats of CBOR.
use tegmen_host::cbor;

/// The bytes of the fuzzer, which are read from the front. After the last byte all further bytes are zero.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// Makes an input of all these bytes.
    pub const fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    /// Returns true if all bytes have been read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        first
    }

    /// Reads two bytes.
    pub fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// Reads up to `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        head
    }
}
