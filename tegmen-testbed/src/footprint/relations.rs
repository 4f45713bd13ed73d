//! Relations among the numbers of images that hold whatever the budgets are: the state of a member of a protected group (Axiom),
//! compared with that of a DTLS peer, and with the memory and the code that a mote has for it.

use super::{Error, Footprint, grouped};
use std::fmt;

/// A number, and the most that it may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Relation {
    what: &'static str,
    measured: u64,
    most: u64,
}

impl Relation {
    /// True if the number is not above its limit.
    pub(super) const fn holds(&self) -> bool {
        self.measured <= self.most
    }
}

/// Returns the relations among these images, with the compact provider.
///
/// # Errors
/// [`Error::NoRelation`] if an image or the size of a type is missing.
pub(super) fn of(footprints: &[Footprint]) -> Result<[Relation; 6], Error> {
    let image = |name: &'static str| {
        let found = footprints.iter().find(|footprint| footprint.image == name && footprint.provider == PROVIDER);
        found.ok_or(Error::NoRelation(name, "the image"))
    };
    let size = |name, of: &'static str| image(name)?.sizes.get(of).copied().ok_or(Error::NoRelation(name, of));
    let (listener, sender) = (image("axiom_listener")?, image("axiom_sender")?);
    let relation = |what, measured, most| Relation { what, measured, most };
    Ok([
        relation("state of a listener at a sender", size("axiom_sender", "read state")?, 48),
        relation("the same with an HMAC and no cipher", size("axiom_sender", "read state, MAC only")?, 64),
        relation("state of a sender at a listener", size("axiom_listener", "write state")?, 40),
        relation(
            "association with one sender, 40 % of a DTLS peer",
            size("axiom_listener", "association, one sender")?,
            size("dtls_psk", "peer table of one")? * 40 / 100,
        ),
        relation("all RAM and stack of a sender to 400 listeners", sender.data + sender.bss + sender.stack, RAM),
        relation("text of axiom_listener above coap", listener.text.saturating_sub(image("coap")?.text), LISTENER_TEXT),
    ])
}

/// The table of relations.
pub(super) struct Table<'a>(pub(super) &'a [Relation]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<50} {:>8} {:>8}", "bytes, compact provider", "measured", "at most")?;
        for relation in self.0 {
            let Relation { what, measured, most } = relation;
            let above = if relation.holds() { "" } else { "  above" };
            writeln!(f, "{what:<50} {:>8} {:>8}{above}", grouped(*measured), grouped(*most))?;
        }
        Ok(())
    }
}

const PROVIDER: &str = "compact";
/// The RAM of a mote.
const RAM: u64 = 32 * 1024;
/// The text that protection in a group may add to CoAP.
const LISTENER_TEXT: u64 = 9 * 1024;

#[cfg(test)]
mod tests;
