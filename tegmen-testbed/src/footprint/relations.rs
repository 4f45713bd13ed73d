//! Limits that follow from other numbers, and not from the budget. For a group that Axiom protects, the limits apply to
//! the state of a member, to the RAM of a sender and to the code of a listener. The state of a member is compared with
//! the state of a DTLS peer. Other limits apply to the code, the instructions and the stack of the operations of
//! secp256r1, and to the code and the instructions of handshakes with public keys. A delegated session is compared with
//! the resumption of a session that has a pre-shared key, and with the handshake with certificates.

use super::components::P256;
use super::{Error, Footprint, grouped};
use std::fmt;

/// A number that was measured in an image, and the maximum that this number may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Relation {
    what: &'static str,
    measured: u64,
    most: u64,
}

impl Relation {
    /// Returns true if the measured number is at most its maximum.
    pub(super) const fn holds(&self) -> bool {
        self.measured <= self.most
    }
}

/// Compares the measured sizes and instruction counts of the images in `footprints` with their maximums. Only images
/// that were built with the provider `compact` are compared. Returns the measured numbers with their maximums.
///
/// # Errors
/// [`Error::NoRelation`] if an image or a measured number of an image is missing.
pub(super) fn of(footprints: &[Footprint]) -> Result<Vec<Relation>, Error> {
    let mut relations = of_groups(footprints)?.to_vec();
    relations.extend(of_public_keys(footprints)?);
    relations.extend(of_delegation(footprints)?);
    Ok(relations)
}

fn image<'f>(footprints: &'f [Footprint], name: &'static str) -> Result<&'f Footprint, Error> {
    let found = footprints.iter().find(|footprint| footprint.image == name && footprint.provider == PROVIDER);
    found.ok_or(Error::NoRelation(name, "the image"))
}

fn of_groups(footprints: &[Footprint]) -> Result<[Relation; 10], Error> {
    let image = |name| image(footprints, name);
    let size = |name, of: &'static str| image(name)?.sizes.get(of).copied().ok_or(Error::NoRelation(name, of));
    let listener = image("axiom_listener")?;
    let memory = |name| image(name).map(|sender| sender.data + sender.bss + sender.stack);
    Ok([
        relation("state of a listener at a sender", size("axiom_sender", "read state")?, 48),
        relation("the same with an HMAC and no cipher", size("axiom_sender", "read state, MAC only")?, 64),
        relation("state of a sender at a listener", size("axiom_listener", "write state")?, 40),
        relation(
            "association with one sender, 40 % of a DTLS peer",
            size("axiom_listener", "association, one sender")?,
            size("dtls_psk", "peer table of one")? * 40 / 100,
        ),
        relation("all RAM and stack of a sender to 400 listeners", memory("axiom_sender")?, RAM),
        relation("the same of CoAP Uni", memory("coap_uni_sender")?, RAM),
        relation("the same of CoAP Mul", memory("coap_mul_sender")?, RAM),
        relation("the same of DTLS Uni-Uni to 150 listeners", memory("dtls_uni_uni_sender")?, RAM),
        relation("the same of DTLS Mul-Uni to 150 listeners", memory("dtls_mul_uni_sender")?, RAM),
        relation("text of axiom_listener above coap", listener.text.saturating_sub(image("coap")?.text), LISTENER_TEXT),
    ])
}

fn of_public_keys(footprints: &[Footprint]) -> Result<[Relation; 13], Error> {
    let operation = |name, of: &'static str| {
        image(footprints, name)?.operations.get(of).copied().ok_or(Error::NoRelation(name, of))
    };
    let of_curve = |of| operation("p256", of);
    // The numbers of instructions for two private keys may differ only because of public data: the encoding of the
    // signature.
    let apart = |of, of_other| Ok(of_curve(of)?.abs_diff(of_curve(of_other)?));
    let curve = image(footprints, "p256")?;
    let code = curve.components.get(P256).ok_or(Error::NoRelation("p256", P256))?;
    Ok([
        relation("text of secp256r1", code.text, 6_800),
        relation("stack of p256", curve.stack, 2_000),
        relation("instructions of a key pair", of_curve("key pair")?, 2_400_000),
        relation("instructions of a key agreement", of_curve("agree")?, 5_200_000),
        relation("instructions of a signature", of_curve("sign")?, 3_000_000),
        relation("instructions of a verification", of_curve("verify")?, 6_900_000),
        relation("key pairs of two keys, instructions apart", apart("key pair", "key pair, other key")?, 0),
        relation("agreements of two keys, instructions apart", apart("agree", "agree, other key")?, 0),
        relation("signatures of two keys, instructions apart", apart("sign", "sign, other key")?, 0),
        relation("text of dtls_rpk", image(footprints, "dtls_rpk")?.text, 33_000),
        relation("text of dtls_x509", image(footprints, "dtls_x509")?.text, 38_000),
        relation("instructions of a handshake, dtls_rpk", operation("dtls_rpk", CLIENT)?, 18_000_000),
        relation("instructions of a handshake, dtls_x509", operation("dtls_x509", CLIENT)?, 32_000_000),
    ])
}

/// Compares a device that resumes delegated sessions with a device that resumes sessions which have a pre-shared key.
fn of_delegation(footprints: &[Footprint]) -> Result<[Relation; 5], Error> {
    let (delegated, resumed) = (image(footprints, "dtls_delegated")?, image(footprints, "dtls_resume_coap")?);
    let operation = |of: &Footprint, name, what| of.operations.get(what).copied().ok_or(Error::NoRelation(name, what));
    let as_client = operation(delegated, "dtls_delegated", "delegated client")?;
    let as_server = operation(delegated, "dtls_delegated", "resumption server")?;
    let of_resumed = |what| Ok(operation(resumed, "dtls_resume_coap", what)? * 110 / 100);
    let certificates = operation(image(footprints, "dtls_x509")?, "dtls_x509", CLIENT)?;
    let ticket = delegated.sizes.get("ticket").copied().ok_or(Error::NoRelation("dtls_delegated", "ticket"))?;
    Ok([
        relation("ticket of a delegated session", ticket, 92),
        relation("delegated client, 110 % of a resumption", as_client, of_resumed("resumption client")?),
        relation("delegated server, 110 % of a resumption", as_server, of_resumed("resumption server")?),
        relation("delegated client, 1 % of a handshake, dtls_x509", as_client, certificates / 100),
        relation(
            "text of dtls_delegated above dtls_resume_coap",
            delegated.text.saturating_sub(resumed.text),
            DELEGATED_TEXT,
        ),
    ])
}

const fn relation(what: &'static str, measured: u64, most: u64) -> Relation {
    Relation { what, measured, most }
}

/// Prints the relations as a table.
pub(super) struct Table<'a>(pub(super) &'a [Relation]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<50} {:>10} {:>10}", "compact provider, bytes or instructions", "measured", "at most")?;
        for relation in self.0 {
            let Relation { what, measured, most } = relation;
            let above = if relation.holds() { "" } else { "  above" };
            writeln!(f, "{what:<50} {:>10} {:>10}{above}", grouped(*measured), grouped(*most))?;
        }
        Ok(())
    }
}

const PROVIDER: &str = "compact";
/// The operation whose instructions are limited in the images with public keys.
const CLIENT: &str = "handshake client";
/// The RAM of a mote, in bytes.
const RAM: u64 = 32 * 1024;
/// Maximum number of bytes that the protection of a group may add to the code of CoAP.
const LISTENER_TEXT: u64 = 9 * 1024;
/// Maximum number of bytes that delegation may add to the code of resumption. 84 of these bytes are a constant of the
/// image: the first records of the device's flash memory.
const DELEGATED_TEXT: u64 = 3_072;

#[cfg(test)]
mod tests;
