//! The plan `objects-creation`, which reproduces figure 11: the cost of creating a request for the first time, and for
//! a retransmission.

use super::{paper, request};
use crate::cost::{self, CYCLES_PER_INSTRUCTION, Costs};
use crate::figure::{Figure, Source};
use crate::platform::Platform;
use tegmen::buf::Frame;

/// Returns all figures of the plan `objects-creation`.
pub fn figures() -> Vec<Figure> {
    let costs = Costs::of_budget();
    let clock = Platform::find("iotlab-m3").expect("a platform of the file").clock_hz;
    let mut storage = [0; 64];
    let mut frame = Frame::new(&mut storage, 0);
    request(&mut frame, 1);
    let sealing = costs.seal_of(frame.len());
    let plain = [costs.build + costs.keep, costs.again];
    let ours = |protocol: &str| match protocol {
        // These protocols do not protect requests.
        "coap" | "coap_protected" => plain,
        // CoAP stores the message without protection. Each transmission seals the message in a new DTLS record.
        "coap_dtls" => plain.map(|plain| plain + sealing),
        // CoAP stores the message that OSCORE has already protected.
        "oscore" => [costs.create_oscore + costs.keep, costs.again],
        // The table of pending Interests stores the name, and the forwarder writes the Interest again.
        _ => [costs.ndn.create, costs.ndn.again],
    };
    let mut figures = Vec::new();
    for (protocol, printed) in &paper().fig11 {
        let printed = [printed.first, Some(printed.again)];
        let instructions = ours(protocol);
        for (place, name) in ["first", "again"].into_iter().enumerate() {
            let id = |what: &str| format!("fig11/{protocol}/{name}/{what}");
            let instructions = instructions[place];
            let source = if *protocol == "ndn" { Source::Estimated } else { Source::Counted };
            let shown = Figure::shown(id("instructions"), None, instructions as f64, "instructions", WHY);
            figures.push(shown.of(source));
            for (end, cycles) in ["least", "most"].into_iter().zip(CYCLES_PER_INSTRUCTION) {
                let time = cost::micros(instructions, cycles, clock) as f64;
                figures.push(Figure::shown(id(&format!("time_{end}")), printed[place], time, "us", WHY).of(source));
            }
        }
    }
    figures.extend(conclusions(ours));
    figures
}

/// Returns the statements of the paper about figure 11, each with the verdict whether it holds for Tegmen.
fn conclusions(ours: impl Fn(&str) -> [u64; 2]) -> impl Iterator<Item = Figure> {
    let [first, again] = [0, 1].map(|place| {
        let ours = &ours;
        move |protocol: &str| ours(protocol)[place]
    });
    let share = |protocol: &str| again(protocol) as f64 / first(protocol) as f64;
    let mut figures = Vec::new();
    let mut holds = |id: &str, holds, what| figures.push(Figure::holds(format!("fig11/{id}"), holds, what));
    let of_it = "an OSCORE request sent again costs less than 5 % of its first creation";
    holds("oscore_again_below_5_percent", share("oscore") < 0.05, of_it);
    let layers = "DTLS makes a new record each time, so sending again costs several times what it costs with OSCORE";
    holds("dtls_again_is_dear", again("coap_dtls") > 5 * again("oscore"), layers);
    let cheapest = "plain CoAP is created in the least time";
    holds("coap_is_first", first("coap") < first("coap_dtls").min(first("oscore")), cheapest);
    let repeats =
        "an Interest costs more than a request of plain CoAP, at first and again, and less again than at first";
    let is_between = first("coap") < first("ndn") && again("coap") < again("ndn") && again("ndn") < first("ndn");
    holds("ndn_costs_more_than_coap", is_between, repeats);
    let dearest = "the paper's Interest takes longest to create, because CCN-lite parses strings. Here it takes less than a request over DTLS: \
                   nothing in it is encrypted";
    figures.push(Figure::conclusion("fig11/ndn_takes_longest".into(), first("ndn") > first("coap_dtls"), dearest));
    let of_ndn = |figure: &Figure| figure.id.contains("ndn");
    figures.into_iter().map(move |figure| {
        let source = if of_ndn(&figure) { Source::Estimated } else { Source::Counted };
        figure.of(source)
    })
}

const WHY: &str = "instructions of this stack with AES in software, without the path through RIOT's sockets to its \
                   network layer, which the paper's times contain";

#[cfg(test)]
mod tests;
