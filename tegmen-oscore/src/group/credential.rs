//! Authentication credentials (RFC 10021, section 2.4). Messages authenticate the bytes of a credential unchanged.
//! This module reads only the public key.

use super::algorithms::Algorithms;
use tegmen_base::buf::Reader;
use tegmen_base::cbor::{self, ARRAY, MAP, NEGATIVE, UNSIGNED};
use tegmen_base::crypto::{Curve, MemberKey};

/// Reads the public key of a member of a group with these algorithms, from a CWT Claims Set (RFC 8392) with a COSE_Key
/// in the claim `cnf` (RFC 8747, section 3.2). The type of the key is OKP with Ed25519 or X25519, or EC2 with P-256 and
/// both coordinates.
///
/// Returns `None` in these cases:
/// * There is no such key, or bytes follow the Claims Set.
/// * The key is not on the curve of the group.
/// * The key has `alg` (RFC 9052, section 7.1), and this is not the Signature Algorithm of the group. In a group without
///   signatures, `alg` has to be the Pairwise Key Agreement Algorithm.
/// * The key has `key_ops`, and they do not contain `verify` (RFC 9053, sections 2.1 and 2.2). In a group without
///   signatures, they have to be empty (section 6.3.1).
pub fn key_of_ccs(ccs: &[u8], algorithms: &Algorithms) -> Option<MemberKey> {
    let mut reader = Reader::new(ccs);
    let confirmation = value_of(&mut reader, &[(UNSIGNED, CNF)])?;
    let [Some(confirmation)] = confirmation else { return None };
    if !reader.is_empty() {
        return None;
    }
    let [Some(key)] = value_of(&mut Reader::new(confirmation), &[(UNSIGNED, COSE_KEY)])? else { return None };
    let labels = [(UNSIGNED, KTY), (NEGATIVE, CRV), (NEGATIVE, X), (NEGATIVE, Y), (UNSIGNED, ALG), (UNSIGNED, KEY_OPS)];
    let [Some(kty), Some(crv), Some(x), y, alg, key_ops] = value_of(&mut Reader::new(key), &labels)? else {
        return None;
    };
    let number = |value: &[u8]| cbor::read(UNSIGNED, &mut Reader::new(value));
    let x: [u8; 32] = cbor::read_bytes(&mut Reader::new(x))?.try_into().ok()?;
    let key = match (number(kty)?, number(crv)?) {
        (OKP, ED25519) => MemberKey::Ed25519(x),
        (OKP, X25519) => MemberKey::X25519(x),
        (EC2, P256) => {
            let y: [u8; 32] = cbor::read_bytes(&mut Reader::new(y?))?.try_into().ok()?;
            let mut point = [4; 65];
            let (at_x, at_y) = point.get_mut(1..)?.split_at_mut_checked(32)?;
            at_x.copy_from_slice(&x);
            at_y.copy_from_slice(&y);
            MemberKey::P256(point)
        }
        _ => return None,
    };
    let is_for_group = algorithms.curve() == Some(key.curve());
    let is_permitted = alg.is_none_or(|alg| is_alg(alg, algorithms.signature))
        && key_ops.is_none_or(|ops| permits(ops, algorithms.signature.is_some()) == Some(true));
    (is_for_group && is_permitted).then_some(key)
}

/// True if `alg` is the algorithm of signatures with keys on this curve. Without a curve, true if `alg` is ECDH-SS +
/// HKDF-256.
fn is_alg(alg: &[u8], signature: Option<Curve>) -> bool {
    let wanted = match signature {
        Some(Curve::P256) => ES256,
        Some(_) => EDDSA,
        None => ECDH_SS_HKDF_256,
    };
    cbor::read(NEGATIVE, &mut Reader::new(alg)) == Some(wanted)
}

/// True if the operations in an array allow the use of the public key: `verify` if the group has signatures, and
/// otherwise no operation, because the key then is only for key agreement. Returns `None` if there is no array.
fn permits(key_ops: &[u8], has_signatures: bool) -> Option<bool> {
    let mut reader = Reader::new(key_ops);
    let count = cbor::read(ARRAY, &mut reader)?;
    if !has_signatures {
        return Some(count == 0);
    }
    let mut verifies = false;
    for _ in 0..count {
        verifies |= cbor::read(UNSIGNED, &mut Reader::new(reader.rest())) == Some(VERIFY);
        cbor::skip(&mut reader, MAX_DEPTH)?;
    }
    Some(verifies)
}

/// Reads the next value, which must be a map. Each element of `labels` is the major type and the number of a label.
/// Returns the encoded value of each of these labels, or `None` for a label that is missing. Returns `None` instead of
/// the array if the next value is not a map, or if a label occurs twice.
fn value_of<'m, const N: usize>(reader: &mut Reader<'m>, labels: &[(u8, usize); N]) -> Option<[Option<&'m [u8]>; N]> {
    let mut values = [None; N];
    for _ in 0..cbor::read(MAP, reader)? {
        let before = reader.rest();
        let label = cbor::read_head(reader)?;
        if ![UNSIGNED, NEGATIVE].contains(&label.0) {
            *reader = Reader::new(before);
            cbor::skip(reader, MAX_DEPTH)?;
        }
        let value = reader.rest();
        cbor::skip(reader, MAX_DEPTH)?;
        let value = value.get(..value.len().checked_sub(reader.rest().len())?)?;
        if let Some(at) = labels.iter().position(|wanted| *wanted == label)
            && values.get_mut(at)?.replace(value).is_some()
        {
            return None;
        }
    }
    Some(values)
}

const MAX_DEPTH: u8 = 6;
/// The number of the CWT claim `cnf` (confirmation).
const CNF: usize = 8;
/// The number of the member COSE_Key of the confirmation.
const COSE_KEY: usize = 1;
// Labels of a COSE_Key (RFC 9052, section 7.1; RFC 9053, section 7): -1 is the number 0 of a negative number.
const KTY: usize = 1;
const ALG: usize = 3;
const KEY_OPS: usize = 4;
const CRV: usize = 0;
const X: usize = 1;
const Y: usize = 2;
// Algorithms (RFC 9053, sections 2 and 6.3.1), which are -7, -8 and -27: the negative number n has the number -1 - n.
const ES256: usize = 6;
const EDDSA: usize = 7;
const ECDH_SS_HKDF_256: usize = 26;
/// The operation `verify` (RFC 9052, section 7.1).
const VERIFY: usize = 2;
const OKP: usize = 1;
const EC2: usize = 2;
const P256: usize = 1;
const X25519: usize = 4;
const ED25519: usize = 6;
