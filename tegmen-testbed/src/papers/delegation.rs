//! The plan `delegation`: all figures of the paper on delegated handshakes, compared with a handshake with
//! certificates. The figures of the paper are in `data/delegation.toml`.
//!
//! Handshakes with certificates, handshakes with pre-shared keys and delegated handshakes are measured in the same way.
//! Bytes and frames come from handshakes between a client and a server in this process. Instructions are those of one
//! endpoint (client or server). ROM is the size of the code in an image with CoAP, minus the size of an empty image.
//! The plan [`handshakes`](super::handshakes) contains only the handshakes without delegation.

mod beyond;

use super::ends;
use super::handshakes::{
    BYTES, CERTIFICATE, CPU, Handshake, PSK, Paper, STACKS, by_flight, image, instructions, paper,
};
use crate::cost::{self, CYCLES_PER_INSTRUCTION, Costs, Image};
use crate::figure::{Figure, Source, all_of};
use crate::mote::delegated;
use tegmen::dtls::Profile;

/// The numbers of runs, peers and devices in the simulated cases. The paper does not have these cases. A case is one
/// combination of settings.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of runs of each case that has one device.
    pub seeds: u64,
    /// The numbers of peers of the device. There is a case for each number.
    pub peers: &'static [usize],
    /// Number of devices in the case with a fleet of devices.
    pub devices: usize,
}

/// The numbers of runs, peers and devices that `tegmen lab run` and the report use.
pub const FULL: Effort = Effort { seeds: 5, peers: &[8, 32], devices: 1000 };

/// Returns all figures of the plan `delegation`. Calls `done` with the number of finished runs and the number of all
/// runs.
pub fn figures(effort: Effort, done: impl Fn(usize, usize) + Sync) -> Vec<Figure> {
    let mut figures = of_paper();
    figures.extend(beyond::figures(effort, done));
    figures
}

/// Returns the figures of the paper.
fn of_paper() -> Vec<Figure> {
    let paper = paper();
    let handshakes = Handshakes::new();
    let mut figures = headline(&paper, &handshakes);
    figures.extend(ticket(&paper, &handshakes));
    figures.extend(all_of(Source::Counted, memory(&paper)));
    figures.extend(all_of(Source::Counted, processing(&paper)));
    figures.extend(transmission(&paper, &handshakes));
    figures
}

/// The handshakes that the paper compares, with the datagrams of each.
struct Handshakes {
    certificate: Handshake,
    psk: Handshake,
    delegated: Handshake,
    /// A delegated handshake with a session id in place of a ticket. The delegation server has given the session to the
    /// device.
    by_id: Handshake,
    ticket_len: usize,
}

impl Handshakes {
    fn new() -> Self {
        let (delegated, ticket_len) = ends::delegated(true);
        Self {
            certificate: Handshake::new(CERTIFICATE, &ends::certificates()),
            psk: Handshake::new(PSK, &ends::psk(Profile::Minimal)),
            delegated: Handshake::new(DELEGATED, &delegated),
            by_id: Handshake::new("delegation_by_id", &ends::delegated(false).0),
            ticket_len,
        }
    }
}

/// Returns the three percentages in the abstract of the paper.
fn headline(paper: &Paper, handshakes: &Handshakes) -> Vec<Figure> {
    let saved = &paper.saved_percent;
    let mut figures = Vec::new();
    for end in ENDS {
        let delegated = device(end) as f64;
        for (chain, certificates) in [("chain_of_one", one_certificate(end)), ("chain_of_two", both_certificates(end))]
        {
            let percent = less(delegated, certificates as f64);
            let id = format!("headline/computation/{end}/{chain}");
            figures.push(Figure::at_least(id, Some(saved.computation), percent, COMPUTATION, PERCENT, ""));
        }
    }
    let mut figures: Vec<_> = all_of(Source::Counted, figures).collect();
    let bytes = |handshake: &Handshake| handshake.sum(|flight| flight.bytes) as f64;
    let printed = paper.transmission.delegation.fragments as f64;
    for handshake in [&handshakes.delegated, &handshakes.by_id] {
        let id = |what: &str| format!("headline/{what}/{}", handshake.name);
        let percent = less(bytes(handshake), bytes(&handshakes.certificate));
        figures.push(Figure::at_least(
            id("transmission"),
            Some(saved.transmission),
            percent,
            saved.transmission,
            PERCENT,
            "",
        ));
        let fragments = handshake.fragments() as f64;
        figures.push(Figure::at_most(id("frames"), Some(printed), fragments, printed, FRAMES, ""));
    }
    let kilobytes = |bytes: u64| bytes as f64 / 1e3;
    let (certificate, delegated) = (Memory::certificate(), Memory::delegated());
    let less_to_save = format!(
        "P-256 takes {:.1} kB of ROM here and {} in the paper, so there is less to save; and delegation takes {:.1} kB over a pre-shared \
         key, and {} in the paper",
        kilobytes(size_of_curve()),
        paper.memory.public_key_library.rom.unwrap_or_default(),
        kilobytes(delegated.text - Memory::psk().text),
        paper.memory.delegation.rom_over_psk,
    );
    let both = format!("{VARIABLES}; and {STACK}");
    let memory =
        [("rom", certificate.rom(), delegated.rom(), less_to_save), ("ram", certificate.ram(), delegated.ram(), both)];
    let memory = memory.map(|(what, certificate, delegated, why)| {
        let percent = less(delegated as f64, certificate as f64);
        Figure::shown(format!("headline/memory/{what}"), Some(saved.memory), percent, PERCENT, &why)
    });
    figures.extend(all_of(Source::Counted, memory.into()));
    figures.extend(all_of(Source::Counted, beside_resumption()));
    figures
}

/// Returns, for the client and for the server, the instructions of a delegated handshake in percent of the instructions
/// for resuming a session that has a pre-shared key.
fn beside_resumption() -> Vec<Figure> {
    let of_end = |end: &str| {
        let resumed = operation("dtls_resume_coap", &format!("resumption {end}"));
        let percent = device(end) as f64 / resumed as f64 * 100.0;
        Figure::at_most(format!("headline/beside_resumed_psk/{end}"), None, percent, 110.0, PERCENT, "")
    };
    ENDS.map(of_end).into()
}

/// Returns the figures of a ticket: its length, and the time to open and to seal it.
fn ticket(paper: &Paper, handshakes: &Handshakes) -> Vec<Figure> {
    let printed = paper.transmission.delegation.ticket_bytes.map(|bytes| bytes as f64);
    let len = handshakes.ticket_len as f64;
    let mut figures = vec![Figure::at_most("ticket/length".into(), printed, len, LONGEST, BYTES, "")];
    let costs = Costs::of_budget();
    let times =
        [("open", paper.processing.ticket_open_ms, costs.open), ("seal", paper.processing.ticket_seal_ms, costs.seal)];
    for (what, printed, instructions) in times {
        let why = if what == "seal" { format!("{AS_RECORD}; {SEALED_ELSEWHERE}") } else { AS_RECORD.to_owned() };
        let id = |part: &str| format!("ticket/{what}/{part}");
        let mut estimates = vec![Figure::shown(id("instructions"), None, instructions as f64, INSTRUCTIONS, &why)];
        estimates.extend(bounds(paper, instructions).map(|(bound, seconds)| {
            Figure::shown(id(&format!("time_{bound}")), Some(printed), seconds * 1e3, "ms", &why)
        }));
        figures.extend(all_of(Source::Estimated, estimates));
    }
    let absent = "the state that the ticket opens to is suite, master secret, connection, scope and two times, byte for byte: neither the \
                  address of the peer nor a hash of its certificate";
    figures.push(Figure::holds("ticket/names_no_peer".into(), delegated::names_no_peer(), absent));
    figures
}

/// The memory that the client or the server needs for a handshake, in bytes.
struct Memory {
    /// Size of the code and constants in bytes, including CoAP, minus the size of an empty image.
    text: u64,
    /// Size of the variables in bytes, for a client or a server that has one peer and performs one handshake.
    variables: u64,
    /// Maximum size of the image's stack, in bytes.
    stack: u64,
}

impl Memory {
    fn certificate() -> Self {
        let image = image("dtls_x509");
        Self { text: text(&image) + of_coap(), variables: size(&image, TABLE), stack: image.stack }
    }

    fn psk() -> Self {
        let image = image("dtls_psk");
        Self { text: text(&image) + of_coap(), variables: size(&image, TABLE), stack: image.stack }
    }

    /// Returns the memory of a delegated handshake. The size of the peer table comes from the image `dtls_resume`,
    /// which has the same handshakes without CoAP exchanges. That image has two peers, so the size of one peer is
    /// subtracted.
    fn delegated() -> Self {
        let (delegated, resumed) = (image("dtls_delegated"), image("dtls_resume"));
        let table = size(&resumed, TABLE) - size(&resumed, "Peer");
        Self { text: text(&delegated), variables: table + size(&delegated, "Device"), stack: delegated.stack }
    }

    const fn rom(&self) -> u64 {
        self.text
    }

    const fn ram(&self) -> u64 {
        self.variables + self.stack
    }
}

/// Returns the values of figures 4 and 5 of the paper.
fn memory(paper: &Paper) -> Vec<Figure> {
    let kilobytes = |bytes: u64| bytes as f64 / 1e3;
    let mut figures = Vec::new();
    let (certificate, psk, delegated) = (Memory::certificate(), Memory::psk(), Memory::delegated());
    let printed = &paper.memory;
    let rows = [
        (CERTIFICATE, &certificate, printed.certificate),
        (PSK, &psk, printed.psk),
        (DELEGATED, &delegated, super::handshakes::Memory { rom: None, static_ram: None, stack: None }),
    ];
    for (name, ours, printed) in rows {
        let mut add = |table: &str, what: &str, printed: Option<f64>, bytes: u64, why| {
            let id = format!("{table}/{name}/{what}");
            figures.push(Figure::shown(id, printed, kilobytes(bytes), KILOBYTES, why));
        };
        add("figure4", "static_ram", printed.static_ram, ours.variables, VARIABLES);
        add("figure4", "stack", printed.stack, ours.stack, STACK);
        add("figure5", "rom", printed.rom, ours.text, TEXT);
    }
    let library = size_of_curve();
    let id = "figure5/public_key_library/rom".into();
    figures.push(Figure::shown(id, printed.public_key_library.rom, kilobytes(library), KILOBYTES, LIBRARY));
    let over = |id: &str, printed: f64, more: u64, least: u64| {
        // The difference is negative if delegation needs less memory of this kind.
        let difference = more as f64 / 1e3 - least as f64 / 1e3;
        Figure::shown(id.into(), Some(printed), difference, KILOBYTES, OVER_PSK)
    };
    let more = &printed.delegation;
    figures.push(over("figure4/delegation_over_psk/ram", more.ram_over_psk, delegated.variables, psk.variables));
    figures.push(over("figure5/delegation_over_psk/rom", more.rom_over_psk, delegated.text, psk.text));
    let resumed = text(&image("dtls_resume_coap"));
    let id = "figure5/delegation_over_resumption/rom".into();
    figures.push(Figure::shown(id, None, kilobytes(delegated.text - resumed), KILOBYTES, OVER_RESUMPTION));
    figures
}

/// Returns the values of figures 6 and 7, and also the cost of each step of the handshake with certificates.
fn processing(paper: &Paper) -> Vec<Figure> {
    let printed = &paper.processing;
    let mut figures = Vec::new();
    let mut add = |id: String, printed: Option<f64>, instructions: u64, why: &str| {
        let in_all = format!("{id}/instructions");
        figures.push(Figure::shown(in_all, None, instructions as f64, INSTRUCTIONS, why));
        for (bound, seconds) in bounds(paper, instructions) {
            figures.push(Figure::shown(format!("{id}/time_{bound}"), printed, seconds, "s", why));
        }
    };
    for (figure, end) in ["figure6", "figure7"].into_iter().zip(ENDS) {
        add(format!("{figure}/{CERTIFICATE}"), Some(printed.certificate_s), one_certificate(end), ONE_CERTIFICATE);
        add(format!("{figure}/certificate_chain"), None, both_certificates(end), CPU);
        add(format!("{figure}/{PSK}"), Some(printed.psk_s), instructions("dtls_psk", end), CORTEX);
        add(format!("{figure}/{DELEGATED}"), Some(printed.delegation_s), device(end), NO_FLIGHTS);
        for flight in 1..=6 {
            if let Some(instructions) = by_flight("dtls_x509", end, flight) {
                let id = format!("{figure}/certificate_chain/flight_{flight}");
                add(id, None, instructions, super::handshakes::FLIGHT);
            }
        }
    }
    let of_curve = |what| operation("p256", what);
    let [agreement, chain] = [of_curve("key pair") + of_curve("agree"), of_curve("verify")];
    let authentication = of_curve("sign") + 2 * of_curve("verify");
    add("parts/authentication".into(), Some(printed.authentication_s), authentication, AUTHENTICATION);
    add("parts/agreement".into(), Some(printed.key_agreement_s), agreement, AGREEMENT);
    add("parts/chain".into(), Some(printed.chain_verification_s), chain, VERIFICATION);
    let share = (authentication + agreement) as f64 / one_certificate("client") as f64 * 100.0;
    let id = "parts/public_key_share".into();
    figures.push(Figure::shown(id, Some(printed.public_key_share_percent), share, PERCENT, SHARE));
    figures
}

/// Returns the values of figure 8 of the paper.
fn transmission(paper: &Paper, handshakes: &Handshakes) -> Vec<Figure> {
    let Handshakes { certificate, psk, delegated, by_id, .. } = handshakes;
    let printed = &paper.transmission;
    let mut figures = certificate.figures(FIGURE_8, Some(&printed.certificate), STACKS);
    figures.extend(psk.figures(FIGURE_8, Some(&printed.psk), STACKS));
    figures.extend(delegated.figures(FIGURE_8, Some(&printed.delegation), ONE_TICKET));
    figures.extend(by_id.figures(FIGURE_8, None, ONE_TICKET));
    figures
}

/// Returns the number of instructions that a device executes in a delegated handshake, as the client or the server,
/// which `end` selects. As a client, the device resumes a session that it has from the delegation server, and sends the
/// session id. As a server, the device accepts a ticket.
fn device(end: &str) -> u64 {
    let what = if end == "client" { "delegated client" } else { "resumption server" };
    operation("dtls_delegated", what)
}

/// Returns the number of instructions that the client or the server executes in the handshake of the image `dtls_x509`.
/// In this handshake each certificate was issued by a CA below the trust anchor, so the client and the server each
/// verify two certificates.
fn both_certificates(end: &str) -> u64 {
    operation("dtls_x509", &format!("handshake {end}"))
}

/// Returns the number of instructions that the client or the server executes in a handshake in which the trust anchor
/// itself issued the certificates, as in the paper. So the client and the server each verify one certificate.
fn one_certificate(end: &str) -> u64 {
    both_certificates(end) - operation("p256", "verify")
}

fn operation(of: &str, what: &str) -> u64 {
    image(of).operation(what).expect("the budget is part of the program, and a test reads it")
}

fn size(image: &Image, what: &str) -> u64 {
    image.size(what).expect("the budget is part of the program, and a test reads it")
}

/// Returns the size of the code and constants of an image in bytes, minus the size of an empty image.
fn text(of: &Image) -> u64 {
    of.text() - image("empty").text()
}

fn of_coap() -> u64 {
    text(&image("coap"))
}

/// Returns the size of the code for operations on secp256r1, in bytes.
fn size_of_curve() -> u64 {
    text(&image("p256"))
}

/// Returns the minimum and the maximum time that instructions take on the paper's mote, in seconds. Each time has a
/// name.
fn bounds(paper: &Paper, instructions: u64) -> [(&'static str, f64); 2] {
    let seconds = |cycles| cost::micros(instructions, cycles, paper.radio.clock_hz) as f64 / 1e6;
    let [least, most] = CYCLES_PER_INSTRUCTION;
    [("least", seconds(least)), ("most", seconds(most))]
}

/// Returns by how many percent `ours` is less than `than`.
fn less(ours: f64, than: f64) -> f64 {
    (1.0 - ours / than) * 100.0
}

const DELEGATED: &str = "delegation";
const FIGURE_8: &str = "figure8";
const ENDS: [&str; 2] = ["client", "server"];
const TABLE: &str = "peer table of one";
/// The minimum number of instructions that a device must save, in percent of the instructions of a handshake with
/// certificates.
const COMPUTATION: f64 = 99.0;
/// Maximum length of a ticket of the delegation server, in bytes.
const LONGEST: f64 = 92.0;
const PERCENT: &str = "percent";
const KILOBYTES: &str = "kB";
const INSTRUCTIONS: &str = "instructions";
const FRAMES: &str = "fragments";
const CORTEX: &str = "a Cortex-M3 at the 16 MHz of the paper's MSP430";
const AS_RECORD: &str = "an estimate, because no image counts it alone: the instructions of a record of 64 bytes, which has as many blocks of AES";
const SEALED_ELSEWHERE: &str = "a device seals no ticket here, its server does";
const VARIABLES: &str = "the table of one end with one peer and one handshake, and the state of the device; the paper counts all static RAM";
const STACK: &str = "the deepest of an image with both ends";
const TEXT: &str = "both ends of a Cortex-M3 over an empty image, with CoAP";
const LIBRARY: &str = "the operations of secp256r1 that a handshake needs, over an empty image";
const OVER_PSK: &str = "resumption, the list of refused connections, five resources of CoAP and memory without power; the paper's device has the \
                        resumption and a few tickets";
const OVER_RESUMPTION: &str = "beyond a device that resumes sessions with a pre-shared key";
const ONE_CERTIFICATE: &str =
    "the instructions of the image, less one verification for the CA below the root, which the paper does not have";
const NO_FLIGHTS: &str = "a Cortex-M3 at the 16 MHz of the paper's MSP430; the image does not count flights, and figures 6 and 7 print no number \
                          for them";
const AUTHENTICATION: &str = "a signature and two verifications on a Cortex-M3";
const AGREEMENT: &str = "a key pair and an agreement on a Cortex-M3";
const VERIFICATION: &str = "one verification on a Cortex-M3";
const SHARE: &str = "of a handshake with certificates that the root issued";
const ONE_TICKET: &str = "the paper's device gives the peer a second ticket of 110 bytes; here one ticket is valid for the epoch, and extended \
                          master secret (RFC 7627) takes bytes";

#[cfg(test)]
mod tests;
