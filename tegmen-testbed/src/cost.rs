//! The cost of operations on a mote, in instructions. The numbers come from the committed budget of the firmware, and
//! were counted with QEMU.
//!
//! QEMU counts instructions, not cycles, so the time is a range. A Cortex-M3 needs 1.0 to 1.3 cycles for an
//! instruction.

mod handshake;
mod ndn;

pub use handshake::{HandshakeCosts, Handshakes};
pub use ndn::NdnCosts;

use crate::sim::Micros;
use serde::{Deserialize, Serialize};

/// Instructions of the operations of a node, with the cryptographic provider of motes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Costs {
    /// Building a CoAP request.
    pub build: u64,
    /// Storing a request for its retransmission.
    pub keep: u64,
    /// Reading a stored message to send it again.
    pub again: u64,
    /// Serving a request, from its receipt to its response.
    pub serve: u64,
    /// Finding the request to which a response belongs.
    pub hear: u64,
    /// Sealing a DTLS record of 64 bytes.
    pub seal: u64,
    /// Opening a DTLS record of 64 bytes.
    pub open: u64,
    /// A client's part of a handshake with a pre-shared key.
    pub client: u64,
    /// A server's part of a handshake with a pre-shared key.
    pub server: u64,
    /// Each kind of handshake, divided into the steps of the client and of the server.
    pub handshakes: Handshakes,
    /// Deriving the key of one listener for one sender of a group (Axiom, section 5.5). No image counts this operation.
    /// The value is an upper bound: `client` times 7 / 41, because the derivation runs the compression function of
    /// SHA-256 7 times, and the client's handshake runs it 41 times.
    pub derive: u64,
    /// Building a request and protecting it with OSCORE.
    pub create_oscore: u64,
    /// Protecting and opening the OSCORE messages of the image: a request and a response.
    pub oscore: Oscore,
    /// Sending a datagram of 80 bytes, and one of 300 bytes, over 6LoWPAN: compression and fragmentation.
    pub send: [u64; 2],
    /// Receiving a datagram of 80 bytes, and one of 300 bytes: reassembly of fragments, decompression, and checks of
    /// the datagram.
    pub receive: [u64; 2],
    /// The operations of Named Data Networking.
    pub ndn: NdnCosts,
}

/// Instructions of OSCORE for the messages of the firmware's image: 21 encrypted bytes in a request, 6 in a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Oscore {
    /// Protecting a request.
    pub protect_request: u64,
    /// Opening a request.
    pub unprotect_request: u64,
    /// Protecting a response.
    pub protect_response: u64,
    /// Opening a response.
    pub unprotect_response: u64,
}

impl Oscore {
    /// Returns the cost of an operation on a request with this number of encrypted bytes, in proportion to the number
    /// of AES blocks.
    pub const fn of_request(operation: u64, len: usize) -> u64 {
        operation * oscore_blocks(len) / oscore_blocks(21)
    }

    /// Returns the cost of an operation on a response with this number of encrypted bytes.
    pub const fn of_response(operation: u64, len: usize) -> u64 {
        operation * oscore_blocks(len) / oscore_blocks(6)
    }
}

impl Costs {
    /// Returns the costs in the budget that this program was built with.
    pub fn of_budget() -> Self {
        let budget = budget();
        let operation = |image: &str, name: &str| {
            let found = budget.get(image).and_then(|image| image.get(PROVIDER)?.get("operations")?.get(name));
            let instructions = found.and_then(toml::Value::as_integer);
            instructions.map(|value| value as u64).expect("the budget is part of the program, and a test reads it")
        };
        let client = operation("dtls_psk", "handshake client");
        Self {
            build: operation("coap", "build GET"),
            keep: operation("coap", "keep request"),
            again: operation("coap", "retransmit request"),
            serve: operation("coap", "serve request"),
            hear: operation("coap", "match response"),
            seal: operation("dtls_psk", "seal 64 B"),
            open: operation("dtls_psk", "open 64 B"),
            client,
            derive: client * DERIVE_COMPRESSIONS / CLIENT_COMPRESSIONS,
            server: operation("dtls_psk", "handshake server"),
            handshakes: Handshakes::new(operation),
            create_oscore: operation("oscore", "create request"),
            oscore: Oscore {
                protect_request: operation("oscore", "protect request"),
                unprotect_request: operation("oscore", "unprotect request"),
                protect_response: operation("oscore", "protect response"),
                unprotect_response: operation("oscore", "unprotect response"),
            },
            send: [operation("lowpan", "send 80 B"), operation("lowpan", "send 300 B")],
            receive: [operation("lowpan", "receive 80 B"), operation("lowpan", "receive 300 B")],
            ndn: NdnCosts::counted(),
        }
    }

    /// Returns the cost of sealing a record with this content length, in proportion to the number of AES blocks.
    pub const fn seal_of(&self, len: usize) -> u64 {
        self.seal * blocks(len) / blocks(64)
    }

    /// Returns the cost of opening a record with this content length.
    pub const fn open_of(&self, len: usize) -> u64 {
        self.open * blocks(len) / blocks(64)
    }

    /// Returns the cost of sealing or opening a payload without a record header, in proportion to the number of AES
    /// blocks. No image counts this operation.
    pub const fn payload_of(&self, len: usize) -> u64 {
        self.seal * (blocks(len) - 1) / blocks(64)
    }

    /// Returns the cost of sending a datagram of this length over 6LoWPAN: the value on the straight line through both
    /// measured costs.
    pub fn send_of(&self, len: usize) -> u64 {
        on_line(self.send, len)
    }

    /// Returns the cost of receiving a datagram of this length over 6LoWPAN.
    pub fn receive_of(&self, len: usize) -> u64 {
        on_line(self.receive, len)
    }
}

fn on_line([short, long]: [u64; 2], len: usize) -> u64 {
    let rise = (long as f64 - short as f64) / 220.0;
    (short as f64 + rise * (len as f64 - 80.0)).max(0.0) as u64
}

/// The memory of an image on a mote, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Size of code, constants and initial values, which are in flash memory.
    pub rom: u64,
    /// Size of the variables, without the stack.
    pub ram: u64,
}

impl Memory {
    /// Returns the memory of an image in the budget.
    pub fn of_image(image: &str) -> Option<Self> {
        let budget = budget();
        let image = budget.get(image)?.get(PROVIDER)?;
        let field = |name| image.get(name).and_then(toml::Value::as_integer).map(|value| value as u64);
        Some(Self { rom: field("text")? + field("data")?, ram: field("data")? + field("bss")? })
    }
}

/// An image of the firmware, with the values of the budget.
#[derive(Clone, PartialEq, Debug)]
pub struct Image {
    /// The memory of the image.
    pub memory: Memory,
    /// The deepest use of its stack, in bytes.
    pub stack: u64,
    text: u64,
    operations: toml::Table,
    sizes: toml::Table,
}

impl Image {
    /// Returns the image with this name.
    pub fn of(name: &str) -> Option<Self> {
        let budget = budget();
        let image = budget.get(name)?.get(PROVIDER)?;
        let field = |name| image.get(name)?.as_integer().map(|value| value as u64);
        let (stack, text) = (field("stack")?, field("text")?);
        let table = |name| image.get(name).and_then(toml::Value::as_table).cloned().unwrap_or_default();
        let (operations, sizes) = (table("operations"), table("sizes"));
        Some(Self { memory: Memory::of_image(name)?, stack, text, operations, sizes })
    }

    /// Returns the size of code and constants in bytes, without initial values.
    pub const fn text(&self) -> u64 {
        self.text
    }

    /// Returns the instructions of an operation.
    pub fn operation(&self, name: &str) -> Option<u64> {
        self.operations.get(name)?.as_integer().map(|instructions| instructions as u64)
    }

    /// Returns the size of a type, in bytes.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.sizes.get(name)?.as_integer().map(|bytes| bytes as u64)
    }
}

/// Returns the time that instructions take, in microseconds.
pub fn micros(instructions: u64, cycles_per_instruction: f64, clock_hz: u64) -> Micros {
    (instructions as f64 * cycles_per_instruction * 1e6 / clock_hz as f64).round() as Micros
}

/// Minimum and maximum number of cycles for an instruction.
pub const CYCLES_PER_INSTRUCTION: [f64; 2] = [1.0, 1.3];

fn budget() -> toml::Table {
    toml::from_str(include_str!("../../firmware/budget.toml"))
        .expect("the budget is part of the program, and a test reads it")
}

/// Returns the number of AES blocks that CCM encrypts for a record: two for each block of content, and three for
/// header, tag and first block.
const fn blocks(len: usize) -> u64 {
    3 + 2 * (len as u64).div_ceil(16)
}

/// Returns the number of AES blocks that CCM encrypts for an OSCORE message: two for each block of content, and four
/// for first block, additional data and tag.
const fn oscore_blocks(len: usize) -> u64 {
    4 + 2 * (len as u64).div_ceil(16)
}

/// Number of runs of the compression function for one individual key: the pads of the HMAC, and two HMACs, with 1 and 2
/// blocks of content.
const DERIVE_COMPRESSIONS: u64 = 7;
/// Number of runs of the compression function for a client's handshake with a pre-shared key. A test counts this number
/// and [`DERIVE_COMPRESSIONS`].
const CLIENT_COMPRESSIONS: u64 = 41;

/// The cryptographic provider of the motes.
const PROVIDER: &str = "compact";

#[cfg(test)]
mod tests;
