//! The plan `handshakes`: the cost of handshakes with certificates, raw public keys, pre-shared keys, tickets and
//! session ids. The paper on delegation also measures handshakes without delegation. The plan compares the costs in the
//! paper with those of Tegmen. The figures of the paper are in `data/delegation.toml`.
//!
//! The bytes come from handshakes between a client and a server in this process. Memory and instructions are those of
//! the firmware images, and were measured in QEMU. The plan [`delegation`](super::delegation) contains the delegated
//! handshakes.

use super::ends::{self, Sent};
use crate::cost::{self, CYCLES_PER_INSTRUCTION, Image};
use crate::figure::{DIFFERS, Figure, Source, all_of};
use crate::frames::frames;
use crate::platform::Platform;
use serde::Deserialize;
use tegmen::address::Address;
use tegmen::dtls::Profile;
use tegmen_lowpan::frame::LinkAddress;

/// Returns all figures of the plan `handshakes`.
pub fn figures() -> Vec<Figure> {
    let paper = paper();
    let (handshakes, ticket_len) = handshakes();
    let mut figures = transmission(&paper, &handshakes);
    figures.push(Figure::shown("transmission/resumed/ticket".into(), None, ticket_len as f64, BYTES, TICKET));
    figures.extend(all_of(Source::Counted, memory(&paper)));
    figures.extend(all_of(Source::Counted, processing(&paper)));
    figures.extend(energy(&paper, &handshakes));
    figures.extend(verdict(&handshakes));
    let differs = figures.iter().any(|figure| figure.verdict == DIFFERS);
    let all = "the paper's baselines agree with it: the pre-shared key's in every byte, message and fragment, the \
               certificates' in messages, and both in proportion of bytes, memory and time";
    figures.push(Figure::holds("verdict/all_of_it".into(), !differs, all));
    figures
}

/// A kind of handshake, with the flights of client and server.
pub(super) struct Handshake {
    pub(super) name: &'static str,
    pub(super) flights: Vec<Flight>,
}

/// A flight: the datagrams that client or server sends before it waits for the other.
pub(super) struct Flight {
    pub(super) by_client: bool,
    pub(super) datagrams: usize,
    pub(super) bytes: usize,
    pub(super) messages: usize,
    /// The length of each frame that carries the flight, in bytes.
    pub(super) frames: Vec<usize>,
}

impl Handshake {
    pub(super) fn new(name: &'static str, sent: &[Sent]) -> Self {
        let flights = sent.chunk_by(|one, next| one.by_client == next.by_client).map(Flight::new).collect();
        Self { name, flights }
    }

    pub(super) fn sum(&self, of: impl Fn(&Flight) -> usize) -> usize {
        self.flights.iter().map(of).sum()
    }

    pub(super) fn fragments(&self) -> usize {
        self.sum(|flight| flight.frames.len())
    }

    fn longest(&self) -> &Flight {
        self.flights.iter().max_by_key(|flight| (flight.frames.len(), flight.bytes)).expect("a handshake has flights")
    }
}

impl Flight {
    fn new(sent: &[Sent]) -> Self {
        Self {
            by_client: sent.first().is_some_and(|sent| sent.by_client),
            datagrams: sent.len(),
            bytes: sent.iter().map(|sent| sent.bytes.len()).sum(),
            messages: sent.iter().map(|sent| super::records(&sent.bytes)).sum(),
            frames: sent.iter().flat_map(frames_of).collect(),
        }
    }
}

/// Returns all kinds of handshakes, and the length of a ticket in bytes.
fn handshakes() -> (Vec<Handshake>, usize) {
    let (resumed, ticket_len) = ends::resumed(true);
    let (by_id, _) = ends::resumed(false);
    let handshakes = vec![
        Handshake::new(CERTIFICATE, &ends::certificates()),
        Handshake::new(CHAIN, &ends::certificate_chains()),
        Handshake::new(RAW, &ends::raw_public_keys()),
        Handshake::new(PSK, &ends::psk(Profile::Minimal)),
        Handshake::new("psk_default", &ends::psk(Profile::Default)),
        Handshake::new(RESUMED, &resumed),
        Handshake::new(BY_ID, &by_id),
    ];
    (handshakes, ticket_len)
}

/// Returns the values of figure 8 of the paper.
fn transmission(paper: &Paper, handshakes: &[Handshake]) -> Vec<Figure> {
    let of_handshake = |handshake: &Handshake| {
        let (printed, why) = match handshake.name {
            CERTIFICATE => (Some(&paper.transmission.certificate), STACKS),
            PSK => (Some(&paper.transmission.psk), STACKS),
            _ => (None, NOT_PRINTED),
        };
        handshake.figures("transmission", printed, why)
    };
    handshakes.iter().flat_map(of_handshake).collect()
}

impl Handshake {
    /// Returns the number of messages, of bytes, of datagrams and of fragments, for the handshake and for each of its
    /// flights. `why` is the reason why these numbers may differ from those of the paper.
    pub(super) fn figures(&self, table: &str, printed: Option<&Printed>, why: &str) -> Vec<Figure> {
        let mut figures = Vec::new();
        let id = |what: &str| format!("{table}/{}/{what}", self.name);
        let mut shown = |what: &str, printed: Option<u64>, ours: usize, unit, why| {
            let (printed, ours) = (printed.map(|value| value as f64), ours as f64);
            figures.push(match printed {
                // The number of messages must be equal in each handshake. All values of the handshake with a pre-shared
                // key must be equal, because this handshake has neither certificates nor extensions.
                Some(printed) if what == "messages" || self.name == PSK => Figure::equal(id(what), printed, ours, unit),
                Some(printed) if what == "bytes" && self.name == CERTIFICATE => {
                    Figure::near(id(what), printed, ours, unit, BYTES_PERCENT)
                }
                _ => Figure::shown(id(what), printed, ours, unit, why),
            });
        };
        let messages = self.sum(|flight| flight.messages);
        shown("messages", printed.and_then(|printed| printed.messages), messages, MESSAGES, why);
        shown("bytes", printed.map(|printed| printed.bytes), self.sum(|flight| flight.bytes), BYTES, why);
        shown("datagrams", None, self.sum(|flight| flight.datagrams), "datagrams", NOT_PRINTED);
        shown("fragments", printed.map(|printed| printed.fragments), self.fragments(), FRAMES, why);
        let longest = printed.and_then(|printed| printed.longest_flight_fragments);
        shown("longest_flight_fragments", longest, self.longest().frames.len(), FRAMES, why);
        for (number, flight) in (1..).zip(&self.flights) {
            let drawn = "figure 8 draws it and prints no number";
            shown(&format!("flight_{number}/bytes"), None, flight.bytes, BYTES, drawn);
            shown(&format!("flight_{number}/messages"), None, flight.messages, MESSAGES, drawn);
            shown(&format!("flight_{number}/fragments"), None, flight.frames.len(), FRAMES, drawn);
        }
        figures
    }
}

/// Returns the values of figures 4 and 5 of the paper.
fn memory(paper: &Paper) -> Vec<Figure> {
    let empty = image("empty");
    let mut figures = Vec::new();
    for (name, of) in IMAGES {
        let image = image(of);
        let printed = match name {
            CHAIN => Some(paper.memory.certificate),
            PSK => Some(Memory { rom: None, static_ram: None, stack: paper.memory.psk.stack }),
            _ => None,
        };
        let kilobytes = |bytes: u64| bytes as f64 / 1e3;
        let mut add = |what: &str, printed: Option<f64>, ours: u64, why| {
            figures.push(Figure::shown(format!("memory/{name}/{what}"), printed, kilobytes(ours), "kB", why));
        };
        let rom = image.memory.rom - empty.memory.rom;
        add("rom", printed.and_then(|printed| printed.rom), rom, "both ends, beyond an empty image of a Cortex-M3");
        let ram = image.memory.ram - empty.memory.ram;
        let two = "two ends, and the datagrams between them: one end takes half";
        add("static_ram", printed.and_then(|printed| printed.static_ram), ram, two);
        add("stack", printed.and_then(|printed| printed.stack), image.stack, "the deepest of the whole exchange");
    }
    let parsing = image("dtls_x509").memory.rom - image("dtls_rpk").memory.rom;
    let printed = paper.memory.certificate_parsing.rom;
    let why = "reading certificates and checking paths, with those of the device and its CA, over raw public keys";
    figures.push(Figure::shown("memory/certificates_alone/rom".into(), printed, parsing as f64 / 1e3, "kB", why));
    let keys = image("dtls_rpk").memory.rom - image("dtls_psk").memory.rom;
    let printed = paper.memory.public_key_library.rom;
    let why = "P-256, and the handshake around it, over a pre-shared key";
    figures.push(Figure::shown("memory/public_keys_alone/rom".into(), printed, keys as f64 / 1e3, "kB", why));
    figures
}

/// Returns the values of figures 6 and 7. For the images with public keys, also returns the instructions for each
/// flight.
fn processing(paper: &Paper) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (name, of) in IMAGES {
        let printed = match name {
            CHAIN => Some(paper.processing.certificate_s),
            PSK => Some(paper.processing.psk_s),
            _ => None,
        };
        for end in ["client", "server"] {
            let instructions = instructions(of, end);
            let id = |what: &str| format!("processing/{name}/{end}/{what}");
            figures.push(Figure::shown(id("instructions"), None, instructions as f64, "instructions", CPU));
            for (bound, cycles) in ["least", "most"].into_iter().zip(CYCLES_PER_INSTRUCTION) {
                let time = cost::micros(instructions, cycles, paper.radio.clock_hz) as f64 / 1e6;
                figures.push(Figure::shown(id(&format!("time_{bound}")), printed, time, "s", CPU));
            }
            let flights = (1..=6).filter_map(|flight| Some((flight, by_flight(of, end, flight)?)));
            figures.extend(flights.map(|(flight, instructions)| {
                let id = id(&format!("flight_{flight}/instructions"));
                Figure::shown(id, None, instructions as f64, "instructions", FLIGHT)
            }));
        }
    }
    let (certificate, psk) = (instructions("dtls_x509", "client"), instructions("dtls_psk", "client"));
    let share = (certificate - psk) as f64 / certificate as f64 * 100.0;
    let printed = Some(paper.processing.public_key_share_percent);
    let why = "what a client's handshake takes beyond one with a pre-shared key";
    figures.push(Figure::shown("processing/certificate_chain/public_key_share".into(), printed, share, "percent", why));
    figures
}

/// Returns the energies of handshakes. The radio has the currents of the paper's mote. The paper prints no power of the
/// processor, so the processor has the power of another mote with a Cortex-M3.
fn energy(paper: &Paper, handshakes: &[Handshake]) -> Vec<Figure> {
    let opal = Platform::find("opal").expect("a platform of the file");
    let mut figures = Vec::new();
    for handshake in handshakes {
        let micros = |sent: bool| {
            let flights = handshake.flights.iter().filter(|flight| flight.by_client == sent);
            flights
                .flat_map(|flight| &flight.frames)
                .map(|frame| (PREAMBLE + frame) as f64 * MICROS_A_BYTE)
                .sum::<f64>()
        };
        let Radio { volts, tx_ma, rx_ma, .. } = paper.radio;
        let radio = volts * (tx_ma * micros(true) + rx_ma * micros(false)) / 1e6;
        let why =
            "the client's, of the air time of frames that it sends and receives, with the currents of the WiSMote";
        figures.push(Figure::shown(format!("energy/{}/radio", handshake.name), None, radio, "mJ", why));
        if let Some((_, of)) = IMAGES.iter().find(|(name, _)| *name == handshake.name) {
            let time = cost::micros(instructions(of, "client"), CYCLES_PER_INSTRUCTION[1], opal.clock_hz) as f64 / 1e6;
            let why = "the client's, at 1.3 cycles for an instruction, with the power of the Opal, a Cortex-M3: the paper \
                       has no current of its processor";
            let processor = opal.cpu_active_mw * time;
            let id = format!("energy/{}/processor", handshake.name);
            figures.push(Figure::shown(id, None, processor, "mJ", why).of(Source::Counted));
        }
    }
    figures
}

/// Returns the paper's statements on handshakes without delegation, each with the verdict whether it holds for Tegmen.
fn verdict(handshakes: &[Handshake]) -> Vec<Figure> {
    let find = |name: &str| handshakes.iter().find(|handshake| handshake.name == name).expect("one of the handshakes");
    let bytes = |name: &str| find(name).sum(|flight| flight.bytes) as f64;
    let client = |of: &str| instructions(of, "client") as f64;
    let (least, most) = (image("dtls_psk"), image("dtls_x509"));
    let holds = |id: &str, holds, what: &str| Figure::holds(format!("verdict/{id}"), holds, what);
    vec![
        holds(
            "certificates_take_three_times_the_bytes",
            bytes(CERTIFICATE) > 3.0 * bytes(PSK),
            "a handshake with certificates takes more than three times the bytes of one with a pre-shared key",
        ),
        holds(
            "the_flight_with_the_servers_certificate_is_the_longest",
            std::ptr::eq(find(CERTIFICATE).longest(), &find(CERTIFICATE).flights[3]),
            "flight 4 is cut into the most fragments",
        ),
        holds(
            "public_keys_are_nearly_all_of_the_work",
            client("dtls_psk") < 0.05 * client("dtls_x509"),
            "public keys are more than 95 % of what a handshake with certificates computes",
        ),
        holds(
            "certificates_take_twice_the_rom",
            most.memory.rom > 2 * least.memory.rom && most.stack > least.stack,
            "certificates take more than twice the ROM, and more stack; the paper has almost three times",
        ),
        holds(
            "resumption_is_as_cheap_as_a_pre_shared_key",
            instructions("dtls_resume", "client") < instructions("dtls_psk", "client")
                && bytes(RESUMED) < 1.2 * bytes("psk_default"),
            "a resumed handshake, which delegation would hand over, computes less than one with a pre-shared key, and takes \
             about its bytes",
        ),
    ]
}

/// Returns the lengths of the frames that carry a datagram. Both nodes have short addresses, and their link-local
/// addresses are derived from the short addresses. The ports of both nodes are compressed to four bits. So the headers
/// have their minimum length.
fn frames_of(sent: &Sent) -> Vec<usize> {
    let node = |number: u8| {
        let ip = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, number];
        (LinkAddress::Short(number.into()), Address { ip, port: 0xf0b0 + u16::from(number), scope: 0 })
    };
    let (from, to) = if sent.by_client { (node(1), node(2)) } else { (node(2), node(1)) };
    frames(from, to, 64, &sent.bytes).iter().map(Vec::len).collect()
}

pub(super) fn image(name: &str) -> Image {
    Image::of(name).expect("the budget is part of the program, and a test reads it")
}

/// Returns the number of processor instructions that the client or the server executes in a handshake. The image
/// `dtls_resume` has a full handshake and then a handshake that resumes a session with a ticket. For this image the
/// result is only for the second handshake.
pub(super) fn instructions(of: &str, end: &str) -> u64 {
    let operation = if of == "dtls_resume" { format!("resumption {end}") } else { format!("handshake {end}") };
    image(of).operation(&operation).expect("the budget is part of the program, and a test reads it")
}

/// Returns the number of processor instructions that the client or the server executes to send or to process a flight;
/// `None` if the image does not count them.
pub(super) fn by_flight(of: &str, end: &str, flight: u32) -> Option<u64> {
    image(of).operation(&format!("{end} flight {flight}"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    #[expect(dead_code, reason = "is in the file for its readers")]
    paper: String,
    #[expect(dead_code, reason = "is in the file for its readers")]
    platform: String,
    #[expect(dead_code, reason = "is in the file for its readers")]
    scenario: String,
    pub(super) transmission: Transmission,
    pub(super) memory: Memories,
    pub(super) processing: Processing,
    pub(super) saved_percent: Saved,
    pub(super) radio: Radio,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Transmission {
    pub(super) certificate: Printed,
    pub(super) psk: Printed,
    pub(super) delegation: Printed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Printed {
    pub(super) bytes: u64,
    pub(super) messages: Option<u64>,
    pub(super) fragments: u64,
    pub(super) longest_flight_fragments: Option<u64>,
    pub(super) ticket_bytes: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memories {
    pub(super) certificate: Memory,
    pub(super) psk: Memory,
    pub(super) delegation: OverPsk,
    pub(super) certificate_parsing: Memory,
    pub(super) public_key_library: Memory,
}

/// Sizes of memory, in kilobytes.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    pub(super) rom: Option<f64>,
    pub(super) static_ram: Option<f64>,
    pub(super) stack: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverPsk {
    pub(super) rom_over_psk: f64,
    pub(super) ram_over_psk: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Processing {
    pub(super) certificate_s: f64,
    pub(super) public_key_share_percent: f64,
    pub(super) psk_s: f64,
    pub(super) delegation_s: f64,
    pub(super) authentication_s: f64,
    pub(super) key_agreement_s: f64,
    pub(super) chain_verification_s: f64,
    pub(super) ticket_open_ms: f64,
    pub(super) ticket_seal_ms: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Saved {
    pub(super) memory: f64,
    pub(super) computation: f64,
    pub(super) transmission: f64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Radio {
    pub(super) volts: f64,
    pub(super) tx_ma: f64,
    pub(super) rx_ma: f64,
    pub(super) clock_hz: u64,
}

pub(super) fn paper() -> Paper {
    toml::from_str(include_str!("../../data/delegation.toml"))
        .expect("the file is part of the program, and a test reads it")
}

/// Maximum difference between the bytes of Tegmen's handshake with certificates and those of the paper, in percent.
const BYTES_PERCENT: f64 = 3.0;
pub(super) const CERTIFICATE: &str = "certificate";
pub(super) const CHAIN: &str = "certificate_chain";
pub(super) const RAW: &str = "raw_public_key";
pub(super) const PSK: &str = "psk";
pub(super) const RESUMED: &str = "resumed";
const BY_ID: &str = "resumed_by_id";
/// The handshakes whose memory and instructions are measured, each with the name of its firmware image.
const IMAGES: [(&str, &str); 4] =
    [(CHAIN, "dtls_x509"), (RAW, "dtls_rpk"), (PSK, "dtls_psk"), (RESUMED, "dtls_resume")];
pub(super) const BYTES: &str = "bytes";
const MESSAGES: &str = "messages";
pub(super) const FRAMES: &str = "fragments";
pub(super) const STACKS: &str =
    "extensions and certificates of another stack, and here a flight travels in one datagram";
pub(super) const NOT_PRINTED: &str = "the paper prints no such figure";
const TICKET: &str = "the paper's has 110 bytes, and carries what its delegation server hands over";
pub(super) const CPU: &str =
    "a Cortex-M3 at the 16 MHz of the paper's MSP430; with a CA below the root, so one signature more";
pub(super) const FLIGHT: &str =
    "sending the flight, or taking it in and what follows from that; figures 6 and 7 draw it without a number";
/// Number of bytes before the PSDU of a frame: the preamble, the start of frame, and the length.
const PREAMBLE: usize = 6;
/// The time of a byte at 250 kbit/s, in microseconds.
const MICROS_A_BYTE: f64 = 32.0;

#[cfg(test)]
mod tests;
