//! The cost of operations on a mote, in instructions. The numbers come from the budget file of the firmware
//! (`firmware/budget.toml`). QEMU counted them.
//!
//! QEMU counts instructions, and not cycles. A Cortex-M3 needs 1.0 to 1.3 cycles for an instruction, so the time of an
//! operation is known only within this range.

mod handshake;
mod ndn;

pub use handshake::{HandshakeCosts, Handshakes};
pub use ndn::NdnCosts;

use crate::sim::Micros;
use serde::{Deserialize, Serialize};

/// Numbers of processor instructions of the operations of a node that uses the cryptographic provider of motes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Costs {
    /// Number of processor instructions to build a CoAP request.
    pub build: u64,
    /// Number of processor instructions to store a request, so that it can be sent again.
    pub keep: u64,
    /// Number of processor instructions to read a stored request before it is sent again.
    pub again: u64,
    /// Number of processor instructions to serve a request, from its receipt to its response.
    pub serve: u64,
    /// Number of processor instructions to find the request to which a received response belongs.
    pub hear: u64,
    /// Number of processor instructions to seal a DTLS record of 64 bytes.
    pub seal: u64,
    /// Number of processor instructions to open a DTLS record of 64 bytes.
    pub open: u64,
    /// Number of processor instructions of the client in a DTLS handshake with a pre-shared key.
    pub client: u64,
    /// Number of processor instructions of the server in a DTLS handshake with a pre-shared key.
    pub server: u64,
    /// Numbers of processor instructions of each kind of handshake, divided into the steps of the client and of the
    /// server.
    pub handshakes: Handshakes,
    /// Number of processor instructions to derive the key of one listener for its responses to one sender of a group
    /// (Axiom, section 5.5). No image counts this operation, so the value is an upper bound: `client` times 7 / 41. The
    /// derivation runs the compression function of SHA-256 7 times, and a client's handshake runs it 41 times.
    pub derive: u64,
    /// Number of processor instructions to build a request and to protect it with OSCORE.
    pub create_oscore: u64,
    /// Numbers of processor instructions to protect and to open an OSCORE request and an OSCORE response.
    pub oscore: Oscore,
    /// Numbers of processor instructions to compress and fragment a datagram for 6LoWPAN: first for a datagram of 80
    /// bytes, then for one of 300 bytes.
    pub send: [u64; 2],
    /// Numbers of processor instructions to reassemble, decompress and check a datagram of 6LoWPAN: first for a
    /// datagram of 80 bytes, then for one of 300 bytes.
    pub receive: [u64; 2],
    /// Numbers of processor instructions of the operations of Named Data Networking.
    pub ndn: NdnCosts,
}

/// Numbers of processor instructions of OSCORE for the messages in the firmware image: a request with 21 encrypted
/// bytes, and a response with 6.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Oscore {
    /// Number of processor instructions to protect a request.
    pub protect_request: u64,
    /// Number of processor instructions to open a request.
    pub unprotect_request: u64,
    /// Number of processor instructions to protect a response.
    pub protect_response: u64,
    /// Number of processor instructions to open a response.
    pub unprotect_response: u64,
}

impl Oscore {
    /// Returns the number of processor instructions of an operation on a request with `len` encrypted bytes.
    /// `operation` is the measured cost for 21 encrypted bytes. The result grows with the number of AES blocks: it is
    /// this cost, multiplied by the number of blocks for `len` bytes and divided by the number for 21 bytes.
    pub const fn of_request(operation: u64, len: usize) -> u64 {
        operation * oscore_blocks(len) / oscore_blocks(21)
    }

    /// Returns the number of processor instructions of an operation on a response with `len` encrypted bytes.
    /// `operation` is the measured cost for 6 encrypted bytes. The result grows with the number of AES blocks: it is
    /// this cost, multiplied by the number of blocks for `len` bytes and divided by the number for 6 bytes.
    pub const fn of_response(operation: u64, len: usize) -> u64 {
        operation * oscore_blocks(len) / oscore_blocks(6)
    }
}

impl Costs {
    /// Returns the costs in the budget file that was compiled into this program.
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

    /// Returns the number of instructions to seal a record whose content has `len` bytes. It is the number for 64
    /// bytes, multiplied by the number of AES blocks for `len` bytes and divided by the number of AES blocks for 64
    /// bytes.
    pub const fn seal_of(&self, len: usize) -> u64 {
        self.seal * blocks(len) / blocks(64)
    }

    /// Returns the number of instructions to open a record whose content has `len` bytes. It is the number for 64
    /// bytes, multiplied by the number of AES blocks for `len` bytes and divided by the number of AES blocks for 64
    /// bytes.
    pub const fn open_of(&self, len: usize) -> u64 {
        self.open * blocks(len) / blocks(64)
    }

    /// Returns the number of instructions to seal or open a payload of `len` bytes without a record header. No image
    /// counts this operation, so the instructions to seal a record of 64 bytes are multiplied by the ratio of the
    /// numbers of AES blocks.
    pub const fn payload_of(&self, len: usize) -> u64 {
        self.seal * (blocks(len) - 1) / blocks(64)
    }

    /// Returns the number of instructions to send a datagram of `len` bytes over 6LoWPAN. It is interpolated linearly
    /// between the counted instructions for 80 and for 300 bytes.
    pub fn send_of(&self, len: usize) -> u64 {
        on_line(self.send, len)
    }

    /// Returns the number of instructions to receive a datagram of `len` bytes over 6LoWPAN. It is interpolated
    /// linearly between the counted instructions for 80 and for 300 bytes.
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
    /// Size of code, constants and initial values in bytes. They are in flash memory.
    pub rom: u64,
    /// Size of the variables in bytes, without the stack.
    pub ram: u64,
}

impl Memory {
    /// Returns the memory of the image with this name; `None` if the budget file (`firmware/budget.toml`) does not
    /// contain the image.
    pub fn of_image(image: &str) -> Option<Self> {
        let budget = budget();
        let image = budget.get(image)?.get(PROVIDER)?;
        let field = |name| image.get(name).and_then(toml::Value::as_integer).map(|value| value as u64);
        Some(Self { rom: field("text")? + field("data")?, ram: field("data")? + field("bss")? })
    }
}

/// An image of the firmware, with the sizes and the numbers of instructions that the budget file
/// (`firmware/budget.toml`) contains for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Image {
    /// The memory of the image.
    pub memory: Memory,
    /// The maximum size of the image's stack, in bytes.
    pub stack: u64,
    text: u64,
    operations: toml::Table,
    sizes: toml::Table,
}

impl Image {
    /// Returns the image with this name; `None` if the budget file (`firmware/budget.toml`) does not contain the image.
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

    /// Returns the number of processor instructions of an operation; `None` if the image does not measure it.
    pub fn operation(&self, name: &str) -> Option<u64> {
        self.operations.get(name)?.as_integer().map(|instructions| instructions as u64)
    }

    /// Returns the size of a type in bytes; `None` if the image does not measure it.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.sizes.get(name)?.as_integer().map(|bytes| bytes as u64)
    }
}

/// Returns the time of these instructions in microseconds, at a processor clock of `clock_hz`.
pub fn micros(instructions: u64, cycles_per_instruction: f64, clock_hz: u64) -> Micros {
    (instructions as f64 * cycles_per_instruction * 1e6 / clock_hz as f64).round() as Micros
}

/// Minimum and maximum number of cycles for an instruction of a Cortex-M3.
pub const CYCLES_PER_INSTRUCTION: [f64; 2] = [1.0, 1.3];

fn budget() -> toml::Table {
    toml::from_str(include_str!("../../firmware/budget.toml"))
        .expect("the budget is part of the program, and a test reads it")
}

/// Returns the number of AES block operations that CCM needs for a record. Each block of content needs two operations.
/// The header, the tag and the first block of CCM need three operations together.
const fn blocks(len: usize) -> u64 {
    3 + 2 * (len as u64).div_ceil(16)
}

/// Returns the number of AES block operations that CCM needs for an OSCORE message. Each block of content needs two
/// operations. The additional data, the tag and the first block of CCM need four operations together.
const fn oscore_blocks(len: usize) -> u64 {
    4 + 2 * (len as u64).div_ceil(16)
}

/// Number of runs of the compression function for the derivation of one individual key. The two pads of the HMAC key
/// need two runs. Two HMACs follow: the first needs two runs, because its content has one block, and the second needs
/// three runs, because its content has two blocks.
const DERIVE_COMPRESSIONS: u64 = 7;
/// Number of runs of the compression function for a client's handshake with a pre-shared key. A test counts these runs
/// and those of [`DERIVE_COMPRESSIONS`].
const CLIENT_COMPRESSIONS: u64 = 41;

/// The cryptographic provider of the motes.
const PROVIDER: &str = "compact";

#[cfg(test)]
mod tests;
