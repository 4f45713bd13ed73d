//! The plan `objects-creation`: figure 11, the cost of creating a request, the first time and for a retransmission.

use super::{NO_NDN, paper, request};
use crate::cost::{self, CYCLES_PER_INSTRUCTION, Costs};
use crate::figure::{Figure, Source, all_of};
use crate::platform::Platform;
use tegmen::buf::Frame;

/// All figures of the plan.
pub fn figures() -> Vec<Figure> {
    let costs = Costs::of_budget();
    let clock = Platform::find("iotlab-m3").expect("a platform of the file").clock_hz;
    let mut storage = [0; 64];
    let mut frame = Frame::new(&mut storage, 0);
    request(&mut frame, 1);
    let sealing = costs.seal_of(frame.len());
    let plain = [costs.build + costs.keep, costs.again];
    let ours = |protocol: &str| match protocol {
        // Requests are not protected.
        "coap" | "coap_protected" => Some(plain),
        // CoAP keeps what it built; each time it goes through a record of its own.
        "coap_dtls" => Some(plain.map(|plain| plain + sealing)),
        // CoAP keeps what is protected already.
        "oscore" => Some([costs.create_oscore + costs.keep, costs.again]),
        _ => None,
    };
    let mut figures = Vec::new();
    for (protocol, printed) in &paper().fig11 {
        let printed = [printed.first, Some(printed.again)];
        let instructions = ours(protocol);
        for (place, name) in ["first", "again"].into_iter().enumerate() {
            let id = |what: &str| format!("fig11/{protocol}/{name}/{what}");
            let Some(instructions) = instructions.map(|both| both[place]) else {
                figures.extend(printed[place].map(|paper| Figure::missing(id("time"), paper, "us", NO_NDN)));
                continue;
            };
            figures.push(Figure::shown(id("instructions"), None, instructions as f64, "instructions", WHY));
            for (end, cycles) in ["least", "most"].into_iter().zip(CYCLES_PER_INSTRUCTION) {
                let time = cost::micros(instructions, cycles, clock) as f64;
                figures.push(Figure::shown(id(&format!("time_{end}")), printed[place], time, "us", WHY));
            }
        }
    }
    let share = |protocol: &str| ours(protocol).map_or(f64::NAN, |[first, again]| again as f64 / first as f64);
    let mut holds = |id: &str, holds, what| figures.push(Figure::holds(format!("fig11/{id}"), holds, what));
    let of_it = "an OSCORE request sent again costs less than 5 % of its first creation";
    holds("oscore_again_below_5_percent", share("oscore") < 0.05, of_it);
    let again = |protocol: &str| ours(protocol).map_or(0, |[_, again]| again);
    let layers = "DTLS makes a new record each time, so sending again costs several times what it costs with OSCORE";
    holds("dtls_again_is_dear", again("coap_dtls") > 5 * again("oscore"), layers);
    let first = |protocol: &str| ours(protocol).map_or(0, |[first, _]| first);
    let cheapest = "plain CoAP is created in the least time";
    holds("coap_is_first", first("coap") < first("coap_dtls").min(first("oscore")), cheapest);
    all_of(Source::Counted, figures).collect()
}

const WHY: &str = "instructions of this stack with AES in software, without the path through RIOT's sockets to its \
                   network layer, which the paper's times contain";

#[cfg(test)]
mod tests;
