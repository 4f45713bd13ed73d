//! Memory: the state of each scheme (figures 7 to 9).
//!
//! Sizes of types without a pointer are the same here and on a Cortex-M3; those of DTLS and of exchanges are in the budget of the
//! firmware.

use super::{Paper, Scheme};
use crate::cost::{Image, Memory};
use crate::figure::{Figure, Source};
use tegmen::address::Address;
use tegmen::axiom::Member;

/// Bytes of the state of a member of a group.
struct Sizes {
    /// Of a group, without the states of others.
    group: usize,
    /// The state of a listener at a sender: numbers and key of its responses.
    listener: usize,
    /// The state of a sender at a listener: the numbers of its requests, and the key of the responses to it.
    sender: usize,
}

impl Sizes {
    const fn of<const KEY: usize>() -> Self {
        let group = size_of::<Member<0, 0, KEY>>();
        let listener = size_of::<Member<0, 1, KEY>>() - group;
        Self { group, listener, sender: size_of::<Member<1, 0, KEY>>() - group }
    }
}

/// Bytes of DTLS and CoAP on a mote.
struct Mote {
    /// A peer with its session.
    peer: usize,
    /// The state of its handshakes: one at a time.
    handshake: usize,
    /// The exchanges of a peer that is asked alone.
    exchanges: usize,
}

impl Mote {
    fn of_budget() -> Self {
        let size = |image: &str, name: &str| {
            let size = Image::of(image).and_then(|image| image.size(name));
            size.expect("the budget is part of the program, and a test reads it") as usize
        };
        Self {
            peer: size("dtls_psk", "Peer"),
            handshake: size("dtls_psk", "peer table of one") - size("dtls_psk", "Peer"),
            exchanges: size("coap", "exchanges of a peer"),
        }
    }
}

/// Bytes that a request to a group keeps of each listener that answered.
const NOTED: usize = size_of::<Option<Address>>();

/// Bytes of a scheme's state at the sender, with this number of listeners.
fn at_sender(scheme: Scheme, listeners: usize) -> usize {
    let (axiom, mote) = (Sizes::of::<16>(), Mote::of_budget());
    listeners
        * match scheme {
            Scheme::CoapUni | Scheme::UniUni => mote.peer + mote.exchanges,
            Scheme::CoapMul => NOTED,
            Scheme::MulUni => mote.peer + NOTED,
            Scheme::MulMul => axiom.listener + NOTED,
        }
        + if scheme.has_handshakes() { mote.handshake } else { 0 }
        + if scheme.protection().is_in_group() { axiom.group } else { 0 }
}

/// Bytes of a scheme's state at a listener, with one sender.
fn at_listener(scheme: Scheme) -> usize {
    let (axiom, mote) = (Sizes::of::<16>(), Mote::of_budget());
    mote.peer
        + match scheme {
            Scheme::CoapUni | Scheme::CoapMul => mote.exchanges,
            Scheme::UniUni => mote.exchanges + mote.handshake,
            // A sender of requests to the group has an entry of its own beside the session.
            Scheme::MulUni => mote.peer + mote.exchanges + mote.handshake + axiom.group + axiom.sender,
            Scheme::MulMul => mote.exchanges + axiom.group + axiom.sender,
        }
}

pub(super) fn figures(paper: &Paper) -> Vec<Figure> {
    let mut figures = sizes();
    figures.extend(figures7and8(paper));
    figures.extend(figure9(paper));
    figures
}

/// States, and the aims for them.
fn sizes() -> Vec<Figure> {
    let (axiom, without_cipher, mote) = (Sizes::of::<16>(), Sizes::of::<32>(), Mote::of_budget());
    let at_most = |id: &str, ours: usize, bound: f64| {
        Figure::at_most(format!("state/{id}"), None, ours as f64, bound, "bytes", "").of(Source::Counted)
    };
    let shown = |id: &str, ours: usize, why: &str| {
        Figure::shown(format!("state/{id}"), None, ours as f64, "bytes", why).of(Source::Counted)
    };
    let share = 100.0 * axiom.listener as f64 / mote.peer as f64;
    vec![
        at_most("read_state", axiom.listener, 48.0),
        at_most("read_state_without_cipher", without_cipher.listener, 64.0),
        at_most("write_state", axiom.sender, 40.0),
        shown(
            "write_state_without_cipher",
            without_cipher.sender,
            "the numbers of the sender's requests are part of it",
        ),
        shown("group", axiom.group, "keys and own numbers, once for each group"),
        shown(
            "dtls_peer",
            mote.peer,
            "a session with its addresses; exchanges and the state of a handshake are not part of it",
        ),
        Figure::at_most("state/association_of_dtls_peer".into(), None, share, 40.0, "percent", "").of(Source::Counted),
    ]
}

/// ROM and RAM: images of the five schemes, and the state of each scheme.
fn figures7and8(paper: &Paper) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (role, scheme, image) in IMAGES {
        if let Some(memory) = Memory::of_image(image) {
            let why = format!("the image {image}, without an operating system and a radio");
            let id = format!("figure7/{role}/{}", scheme.name());
            figures.push(Figure::shown(id, None, memory.rom as f64 / 1e3, "kB", &why).of(Source::Counted));
        }
    }
    for (role, printed) in &paper.memory.rom_more_than_mul_uni {
        let why = "no image has both Axiom and sessions";
        figures.push(Figure::missing(format!("figure7/{role}/mul_mul_more_than_mul_uni"), *printed, "kB", why));
    }
    let why = "the state of the scheme alone, with three listeners and one sender";
    for scheme in Scheme::ALL {
        for (role, bytes) in [("sender", at_sender(scheme, super::LISTENERS)), ("listener", at_listener(scheme))] {
            let id = format!("figure8/{role}/{}", scheme.name());
            figures.push(Figure::shown(id, None, bytes as f64, "bytes", why).of(Source::Counted));
        }
    }
    for (role, less) in [
        ("sender", at_sender(Scheme::MulUni, super::LISTENERS) - at_sender(Scheme::MulMul, super::LISTENERS)),
        ("listener", at_listener(Scheme::MulUni) - at_listener(Scheme::MulMul)),
    ] {
        let printed = paper.memory.ram_less_than_mul_uni.get(role).copied();
        let id = format!("figure8/{role}/mul_mul_less_than_mul_uni");
        let why = "a session takes less here: the paper's TinyDTLS keeps more of each peer";
        figures.push(Figure::shown(id, printed, less as f64 / 1e3, "kB", why).of(Source::Counted));
    }
    figures
}

/// RAM of the sender by the number of listeners.
fn figure9(paper: &Paper) -> Vec<Figure> {
    let mut figures = Vec::new();
    for scheme in Scheme::ALL {
        for listeners in FIGURE9 {
            let id = format!("figure9/{}/{listeners}_listeners", scheme.name());
            let kilobytes = at_sender(scheme, listeners) as f64 / 1e3;
            let why = "the state of the scheme alone";
            figures.push(Figure::shown(id, None, kilobytes, "kB", why).of(Source::Counted));
        }
        let most = (0..).take_while(|listeners| at_sender(scheme, *listeners) <= RAM).last().unwrap_or(0);
        let id = format!("figure9/{}/listeners_that_fill_32_kb", scheme.name());
        let printed = paper.memory.listeners_that_fill_32_kb.get(scheme.name()).copied();
        let why = "if nothing else needs memory; the paper's images have an operating system beside them";
        figures.push(Figure::shown(id, printed, most as f64, "listeners", why).of(Source::Counted));
    }
    let listeners = (RAM - Sizes::of::<16>().group) / Sizes::of::<16>().listener;
    let what = "states of listeners in 32 KB, if nothing else needs memory";
    let enough = Figure::holds("figure9/mul_mul/at_least_400_states".into(), listeners >= 400, what);
    figures.push(enough.of(Source::Counted));
    figures
}

/// The conclusion of section 8.2.1.
pub(super) fn least_memory() -> Figure {
    let [uni_uni, mul_uni, axiom] = [Scheme::UniUni, Scheme::MulUni, Scheme::MulMul]
        .map(|scheme| [at_sender(scheme, super::LISTENERS), at_listener(scheme)]);
    let least = (0..2).all(|end| axiom[end] < uni_uni[end].min(mul_uni[end]));
    let what = format!(
        "state at the sender and at a listener: {axiom:?} bytes with Axiom, {mul_uni:?} with Mul-Uni and {uni_uni:?} with Uni-Uni; with one \
         listener {} at the sender with Axiom and {} with Uni-Uni",
        at_sender(Scheme::MulMul, 1),
        at_sender(Scheme::UniUni, 1)
    );
    Figure::conclusion("conclusion/axiom_takes_the_least_memory".into(), least, &what)
}

/// Images of the firmware with one end of a scheme.
const IMAGES: [(&str, Scheme, &str); 3] = [
    ("sender", Scheme::UniUni, "node_client"),
    ("listener", Scheme::UniUni, "node_server"),
    ("listener", Scheme::MulMul, "axiom_listener"),
];

/// Bytes of RAM of the paper's mote.
const RAM: usize = 32 << 10;
pub(super) const FIGURE9: [usize; 7] = [1, 3, 12, 40, 100, 200, 254];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_those_of_a_mote() {
        // Neither pointers nor `usize` are in them; `u64` has an alignment of 8 bytes on both.
        assert_eq!(align_of::<u64>(), 8);
        let sizes = Sizes::of::<16>();
        // Numbers (16), key (16), and an address (16) or a SenderID (1, and 7 to the next multiple of 8).
        assert_eq!((sizes.listener, sizes.sender), (48, 40));
        assert_eq!(Sizes::of::<32>().listener, 64);
    }

    #[test]
    fn more_listeners_take_more_and_axiom_takes_least_of_those_that_protect() {
        for scheme in Scheme::ALL {
            assert!(FIGURE9.map(|listeners| at_sender(scheme, listeners)).is_sorted());
        }
        for listeners in FIGURE9 {
            let [uni_uni, mul_uni, axiom] =
                [Scheme::UniUni, Scheme::MulUni, Scheme::MulMul].map(|scheme| at_sender(scheme, listeners));
            assert!(axiom < mul_uni && axiom < uni_uni, "{listeners}: {axiom}, {mul_uni} and {uni_uni}");
        }
    }
}
