//! The plan `blink`: all figures of the Blink paper, compared with Tegmen.
//!
//! The numbers of bytes come from frames that Tegmen writes. Time and energy are compared twice. The first comparison
//! is between the energies that the paper prints and the energies that follow from the paper's model of its board. The
//! second comparison is between the times and energies of the paper and those that the instructions of Tegmen would
//! need on this board.

use super::{ORDER, Profile, Run, plan};
use crate::cost::{self, CYCLES_PER_INSTRUCTION, Costs, Memory};
use crate::figure::{DIFFERS, Figure, MISPRINT, Source, all_of};
use crate::frames::frames;
use crate::platform::behind_resistor;
use serde::Deserialize;
use std::collections::BTreeMap;
use tegmen::address::Address;
use tegmen_lowpan::frame::LinkAddress;

/// Returns all figures of the paper.
pub fn figures() -> Vec<Figure> {
    let paper = paper();
    let mut figures = bytes(&paper);
    figures.extend(all_of(Source::Counted, memory(&paper)));
    figures.extend(energy_model(&paper));
    figures.extend(all_of(Source::Counted, ours(&paper)));
    figures
}

/// Returns the figures of tables II and III: the lengths of UDP payloads and of frames.
fn bytes(paper: &Paper) -> Vec<Figure> {
    let printed = plan();
    let minimal = Run::new(Profile::Minimal);
    let datagrams = minimal.datagrams();
    let mut figures = Vec::new();
    for (table, rows) in [("table2", &printed.table2), ("table3", &printed.table3)] {
        for (id, payload) in ORDER.iter().filter_map(|id| rows.get(*id).map(|payload| (id, *payload))) {
            let datagram = datagrams.get(*id).copied().unwrap_or(&[]);
            let by_client = id.contains("request") && !id.contains("hello") || id.contains("client");
            let (id_of, len) = (|what| format!("{table}/{id}/{what}"), datagram.len() as f64);
            figures.push(Figure::equal(id_of("udp_payload"), payload as f64, len, "bytes"));
            let frame = (payload + paper.frame_overhead) as f64;
            let ours = frame_len(datagram, by_client) as f64;
            figures.push(Figure::equal(id_of("frame"), frame, ours, "bytes"));
        }
    }
    figures
}

/// Returns the length in bytes of the frame that carries a datagram between two motes. The motes have short addresses
/// and link-local addresses, and their ports are compressed to four bits.
fn frame_len(datagram: &[u8], by_client: bool) -> usize {
    let address = |node: u16, port| {
        let mut ip = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0];
        ip[14..].copy_from_slice(&node.to_be_bytes());
        Address { ip, port, scope: 0 }
    };
    let client = (LinkAddress::Short(1), address(1, 0xf0b1));
    let server = (LinkAddress::Short(2), address(2, 0xf0b2));
    let (from, to) = if by_client { (client, server) } else { (server, client) };
    frames(from, to, 64, datagram).first().map_or(0, Vec::len)
}

/// Compares table I with the firmware of Tegmen. This firmware runs on another processor than the paper's firmware.
fn memory(paper: &Paper) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (name, image) in [("secured", "blink_server"), ("unsecured", "coap")] {
        let (Some(printed), Some(ours)) = (paper.table1.get(name), Memory::of_image(image)) else { continue };
        for (what, printed, ours) in [("rom", printed.rom, ours.rom), ("ram", printed.ram, ours.ram)] {
            let why = format!("theirs with TinyOS on an MSP430, ours the image {image} on a Cortex-M3");
            let id = format!("table1/{name}/{what}");
            figures.push(Figure::shown(id, Some(printed as f64), ours as f64, "bytes", &why));
        }
    }
    figures
}

/// Checks whether the energies that tables IV and V print are equal to power multiplied by time.
fn energy_model(paper: &Paper) -> Vec<Figure> {
    let milliwatts = behind_resistor(paper.supply.active_volts, paper.supply.volts, paper.supply.ohms);
    let mut figures = Vec::new();
    for (table, rows) in [("table4", &paper.table4), ("table5", &paper.table5)] {
        for (name, row) in rows {
            let id = format!("{table}/{name}");
            let misprint = paper.misprints.get(&id);
            let model = |id: String, unit, printed: f64, ours: f64, touched: bool| {
                let mut figure = Figure::follows(id, printed, ours, unit, PERCENT);
                if let Some(misprint) = misprint.filter(|_| touched && figure.verdict == DIFFERS) {
                    figure.verdict = format!("{MISPRINT}: {}", misprint.why);
                }
                figure
            };
            figures.push(model(format!("{id}/energy"), "uJ", row.uj, milliwatts * row.ms, true));
            figures.push(model(format!("{id}/ticks"), "thousand ticks", row.kticks, row.ms * paper.clock_mhz, true));
        }
    }
    // Checks sums and ratios. If a time in a table is a misprint, the value that fits is used.
    let ms = |table: &str, name: &str| {
        let rows = if table == "table4" { &paper.table4 } else { &paper.table5 };
        let fits = paper.misprints.get(&format!("{table}/{name}")).filter(|misprint| misprint.field == "ms");
        fits.map_or_else(|| rows.get(name).map_or(f64::NAN, |row| row.ms), |misprint| misprint.fits)
    };
    let both = |kind: &str| {
        ms("table4", &format!("{kind}_client_transaction")) + ms("table4", &format!("{kind}_server_transaction"))
    };
    let handshake = (ms("table5", "client_all") + ms("table5", "server_all")) / both("secured");
    for (name, unit, ours) in [
        ("unsecured_transaction_uj", "uJ", milliwatts * both("unsecured")),
        ("secured_transaction_uj", "uJ", milliwatts * both("secured")),
        ("secured_over_unsecured_energy", "ratio", both("secured") / both("unsecured")),
        ("handshake_in_secured_transactions", "transactions", handshake.round()),
    ] {
        let Some(printed) = paper.derived.get(name).copied() else { continue };
        figures.push(Figure::follows(format!("derived/{name}"), printed, ours, unit, PERCENT));
    }
    figures
}

/// Returns the time and energy that Tegmen's instructions would need on the paper's board.
fn ours(paper: &Paper) -> Vec<Figure> {
    let costs = Costs::of_budget();
    let milliwatts = behind_resistor(paper.supply.active_volts, paper.supply.volts, paper.supply.ohms);
    // The lengths of the request and of the response in table II, in bytes.
    let (request, response) = (13, 7);
    let unsecured_client = costs.build + costs.keep + costs.hear;
    let unsecured = unsecured_client + costs.serve;
    let secured_client = unsecured_client + costs.seal_of(request) + costs.open_of(response);
    let secured = secured_client + costs.serve + costs.open_of(request) + costs.seal_of(response);
    let printed = |table: &BTreeMap<String, Timed>, name: &str| table.get(name).copied();
    let mut figures = Vec::new();
    let mut operation = |name: &str, instructions: u64, printed: Option<Timed>| {
        let why = "instructions of a Cortex-M3 at the clock and power of the paper's board, without radio";
        let mut add = |what: String, paper, ours, unit| {
            let id = format!("ours/{name}/{what}");
            figures.push(Figure::shown(id, paper, ours, unit, why));
        };
        let hertz = (paper.clock_mhz * 1e6) as u64;
        let [least, most] = CYCLES_PER_INSTRUCTION.map(|cycles| cost::micros(instructions, cycles, hertz) as f64 / 1e3);
        add("instructions".into(), None, instructions as f64, "instructions");
        for (end, ms) in [("least", least), ("most", most)] {
            add(format!("time_{end}"), printed.map(|printed| printed.ms), ms, "ms");
            add(format!("energy_{end}"), printed.map(|printed| printed.uj), ms * milliwatts, "uJ");
        }
    };
    operation("unsecured_client_transaction", unsecured_client, printed(&paper.table4, "unsecured_client_transaction"));
    operation("unsecured_server_transaction", costs.serve, printed(&paper.table4, "unsecured_server_transaction"));
    operation("secured_client_transaction", secured_client, printed(&paper.table4, "secured_client_transaction"));
    operation(
        "secured_server_transaction",
        secured - secured_client,
        printed(&paper.table4, "secured_server_transaction"),
    );
    operation("seal", costs.seal_of(request), printed(&paper.table4, "creation_and_encryption"));
    operation("open", costs.open_of(request), printed(&paper.table4, "parsing_and_decryption"));
    operation("handshake_client", costs.client, printed(&paper.table5, "client_all"));
    operation("handshake_server", costs.server, printed(&paper.table5, "server_all"));
    let ratio = |name: &str, paper: Option<f64>, ours| {
        Figure::shown(format!("ours/{name}"), paper, ours, "ratio", "of the processor alone, in instructions")
    };
    let derived = |name: &str| paper.derived.get(name).copied();
    figures.push(ratio("e_dtls", derived("secured_over_unsecured_energy"), secured as f64 / unsecured as f64));
    figures.push(ratio(
        "handshake_in_secured_transactions",
        derived("handshake_in_secured_transactions"),
        (costs.client + costs.server) as f64 / secured as f64,
    ));
    figures
}

/// Maximum difference between a number of the paper and the value that follows from other numbers of the paper, in
/// percent.
const PERCENT: f64 = 0.5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    #[expect(dead_code, reason = "is in the file for its readers")]
    paper: String,
    #[expect(dead_code, reason = "is in the file for its readers")]
    platform: String,
    frame_overhead: u64,
    clock_mhz: f64,
    supply: Supply,
    table1: BTreeMap<String, Memory>,
    table4: BTreeMap<String, Timed>,
    table5: BTreeMap<String, Timed>,
    derived: BTreeMap<String, f64>,
    misprints: BTreeMap<String, Misprint>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Supply {
    volts: f64,
    ohms: f64,
    active_volts: f64,
    #[expect(dead_code, reason = "is in the file for its readers")]
    idle_volts: f64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Timed {
    ms: f64,
    uj: f64,
    kticks: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Misprint {
    field: String,
    fits: f64,
    why: String,
}

fn paper() -> Paper {
    toml::from_str(include_str!("../../../data/blink.toml"))
        .expect("the file is part of the program, and a test reads it")
}

#[cfg(test)]
mod tests;
