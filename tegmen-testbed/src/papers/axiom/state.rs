//! The memory of each scheme (figures 7 to 9): the firmware images of its sender and its listener, and the size of its
//! state in a node. A scheme is one of the protocols that the paper compares.
//!
//! Types without a pointer have the same size on this machine and on a Cortex-M3. The sizes of images, of DTLS and of
//! CoAP exchanges come from the budget file `firmware/budget.toml`, which contains the measured numbers of each
//! firmware image.

use super::{Paper, Scheme};
use crate::cost::Image;
use crate::figure::{Figure, Source};
use tegmen::address::Address;
use tegmen::axiom::Member;

/// Sizes of the state of a group member, in bytes.
struct Sizes {
    /// Size of the state that a member has for the group as a whole, in bytes. It does not include the state for each
    /// other member.
    group: usize,
    /// Size in bytes of the state that a sender has for one listener: the record numbers and the key of the listener's
    /// responses.
    listener: usize,
    /// Size in bytes of the state that a listener has for one sender: the record numbers of the sender's requests, and
    /// the key of the listener's responses.
    sender: usize,
}

impl Sizes {
    const fn of<const KEY: usize>() -> Self {
        let group = size_of::<Member<0, 0, KEY>>();
        let listener = size_of::<Member<0, 1, KEY>>() - group;
        Self { group, listener, sender: size_of::<Member<1, 0, KEY>>() - group }
    }
}

/// Sizes of the state of DTLS and CoAP on a mote, in bytes.
struct Mote {
    /// Size of the state of one peer with an established DTLS session, in bytes.
    peer: usize,
    /// Size of the state of a DTLS handshake, in bytes. Only one handshake can run at a time.
    handshake: usize,
    /// Size of the state of the CoAP exchanges with one peer that receives separate requests, in bytes.
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

/// Number of bytes that the sender stores for each listener that has answered a request to the group.
const NOTED: usize = size_of::<Option<Address>>();

/// Returns the size of the state that a scheme needs at the sender for this number of listeners, in bytes.
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

/// Returns the size of the state that a scheme needs at a listener for one sender, in bytes.
fn at_listener(scheme: Scheme) -> usize {
    let (axiom, mote) = (Sizes::of::<16>(), Mote::of_budget());
    mote.peer
        + match scheme {
            Scheme::CoapUni | Scheme::CoapMul => mote.exchanges,
            Scheme::UniUni => mote.exchanges + mote.handshake,
            // In addition to the session, the peer table has an entry for the sender of requests to the group.
            Scheme::MulUni => mote.peer + mote.exchanges + mote.handshake + axiom.group + axiom.sender,
            Scheme::MulMul => mote.exchanges + axiom.group + axiom.sender,
        }
}

/// The firmware image of a scheme's sender or listener. Its sizes come from the budget (`firmware/budget.toml`).
struct End {
    name: &'static str,
    image: Image,
    /// The number of listeners for which the image of a sender has space, and the size in bytes of the state that the
    /// sender has for each listener. Both are 0 for the image of a listener.
    listeners: (usize, i64),
}

impl End {
    fn sender(scheme: Scheme) -> Self {
        let (name, listeners, state) = match scheme {
            Scheme::CoapUni => ("coap_uni_sender", 400, "state of a listener"),
            Scheme::CoapMul => ("coap_mul_sender", 400, "state of a listener"),
            Scheme::UniUni => ("dtls_uni_uni_sender", 150, "state of a listener"),
            Scheme::MulUni => ("dtls_mul_uni_sender", 150, "state of a listener"),
            Scheme::MulMul => ("axiom_sender", 400, "read state"),
        };
        let end = Self::of(name);
        assert!(end.image.size(&format!("{listeners} listeners")).is_some(), "{name} has another number of listeners");
        Self { listeners: (listeners, end.size(state)), ..end }
    }

    fn listener(scheme: Scheme) -> Self {
        Self::of(match scheme {
            Scheme::CoapUni | Scheme::CoapMul => "coap_listener",
            Scheme::UniUni => "dtls_uni_uni_listener",
            Scheme::MulUni => "dtls_mul_uni_listener",
            Scheme::MulMul => "axiom_listener",
        })
    }

    fn of(name: &'static str) -> Self {
        let image = Image::of(name).expect("the budget is part of the program, and a test reads it");
        Self { name, image, listeners: (0, 0) }
    }

    fn size(&self, name: &str) -> i64 {
        self.image.size(name).expect("the budget is part of the program, and a test reads it") as i64
    }

    /// Returns the size of the ROM in bytes, without the recorded datagrams that only the measurement needs.
    fn rom(&self) -> i64 {
        self.image.memory.rom as i64 - self.size("datagrams")
    }

    /// Returns the RAM that the image would need for this number of listeners, in bytes without the stack.
    fn ram(&self, listeners: usize) -> i64 {
        let (space, state) = self.listeners;
        self.image.memory.ram as i64 + (listeners as i64 - space as i64) * state
    }

    /// Returns the maximum number of listeners whose states fit into the RAM of a mote, beside the stack.
    fn most_listeners(&self) -> i64 {
        (RAM as i64 - self.image.stack as i64 - self.ram(0)) / self.listeners.1
    }
}

pub(super) fn figures(paper: &Paper) -> Vec<Figure> {
    let mut figures = sizes();
    figures.extend(figures7and8(paper));
    figures.extend(figure9(paper));
    figures
}

/// Returns the figures of the sizes of states. Some of these figures have a maximum that this project aims for.
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

/// Returns the figures of ROM and RAM: the sizes of the images of all schemes, and the size of the state of each
/// scheme.
fn figures7and8(paper: &Paper) -> Vec<Figure> {
    let mut figures = Vec::new();
    for scheme in Scheme::ALL {
        for (role, end) in [("sender", End::sender(scheme)), ("listener", End::listener(scheme))] {
            let shown = |id: String, bytes: i64, why: String| {
                Figure::shown(id, None, bytes as f64 / 1e3, "kB", &why).of(Source::Counted)
            };
            let (name, image) = (scheme.name(), end.name);
            let why =
                format!("the image {image} without its recorded datagrams; there is no operating system and no radio");
            figures.push(shown(format!("figure7/{role}/{name}"), end.rom(), why));
            let why = format!("the variables of the image {image}, with three listeners");
            figures.push(shown(format!("figure8/{role}/{name}_image"), end.ram(super::LISTENERS), why));
        }
    }
    for (role, of) in [("sender", End::sender as fn(Scheme) -> End), ("listener", End::listener)] {
        let (mul_uni, axiom) = (of(Scheme::MulUni), of(Scheme::MulMul));
        let (id, printed) =
            (format!("figure7/{role}/mul_mul_more_than_mul_uni"), paper.memory.rom_more_than_mul_uni[role]);
        let more = (axiom.rom() - mul_uni.rom()) as f64 / 1e3;
        figures.push(Figure::at_most(id, Some(printed), more, printed, "kB", "").of(Source::Counted));
        let (id, printed) =
            (format!("figure8/{role}/mul_mul_less_than_mul_uni"), paper.memory.ram_less_than_mul_uni[role]);
        let less = (mul_uni.ram(super::LISTENERS) - axiom.ram(super::LISTENERS)) as f64 / 1e3;
        let why = "of the images; a session takes less here: the paper's TinyDTLS keeps more of each peer";
        figures.push(Figure::shown(id, Some(printed), less, "kB", why).of(Source::Counted));
    }
    let why = "the state of the scheme alone, with three listeners and one sender";
    for scheme in Scheme::ALL {
        for (role, bytes) in [("sender", at_sender(scheme, super::LISTENERS)), ("listener", at_listener(scheme))] {
            let id = format!("figure8/{role}/{}", scheme.name());
            figures.push(Figure::shown(id, None, bytes as f64, "bytes", why).of(Source::Counted));
        }
    }
    figures
}

/// Returns the figures of the RAM that the sender needs for each number of listeners.
fn figure9(paper: &Paper) -> Vec<Figure> {
    let mut figures = Vec::new();
    for scheme in Scheme::ALL {
        for listeners in FIGURE9 {
            let id = format!("figure9/{}/{listeners}_listeners", scheme.name());
            let kilobytes = at_sender(scheme, listeners) as f64 / 1e3;
            let why = "the state of the scheme alone";
            figures.push(Figure::shown(id, None, kilobytes, "kB", why).of(Source::Counted));
        }
        let id = format!("figure9/{}/listeners_that_fill_32_kb", scheme.name());
        let sender = End::sender(scheme);
        let most = sender.most_listeners() as f64;
        let figure = match paper.memory.listeners_that_fill_32_kb.get(scheme.name()) {
            Some(printed) => Figure::at_least(id, Some(*printed), most, *printed, "listeners", ""),
            None => {
                let why = format!("of the image {}, with its stack", sender.name);
                Figure::shown(id, None, most, "listeners", &why)
            }
        };
        figures.push(figure.of(Source::Counted));
    }
    let listeners = (RAM - Sizes::of::<16>().group) / Sizes::of::<16>().listener;
    let what = "states of listeners in 32 KB, if nothing else needs memory";
    let enough = Figure::holds("figure9/mul_mul/at_least_400_states".into(), listeners >= 400, what);
    figures.push(enough.of(Source::Counted));
    figures
}

/// Returns the conclusion of section 8.2.1 of the paper, with the verdict whether it holds for Tegmen.
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

/// Size of the RAM of the mote in the paper, in bytes.
const RAM: usize = 32 << 10;
pub(super) const FIGURE9: [usize; 7] = [1, 3, 12, 40, 100, 200, 254];

#[cfg(test)]
mod tests {
    use super::super::LISTENERS;
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
    fn axiom_has_the_smallest_images_of_those_that_protect() {
        for end in [End::sender, End::listener] {
            let [uni_uni, mul_uni, axiom] = [Scheme::UniUni, Scheme::MulUni, Scheme::MulMul].map(end);
            assert!(axiom.rom() < uni_uni.rom() && uni_uni.rom() < mul_uni.rom());
            let [uni_uni, mul_uni, axiom] = [uni_uni, mul_uni, axiom].map(|end| end.ram(LISTENERS));
            assert!(axiom < uni_uni && uni_uni < mul_uni, "{axiom}, {uni_uni} and {mul_uni}");
        }
        // Each fits the RAM of a mote with the listeners that it has space for.
        for sender in Scheme::ALL.map(End::sender) {
            assert!(sender.most_listeners() >= sender.listeners.0 as i64, "{}", sender.name);
        }
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
