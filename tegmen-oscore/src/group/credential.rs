//! Authentication credentials (RFC 10021, section 2.4). Messages authenticate the bytes of a credential unchanged.
//! This module reads only the public key.

use tegmen_base::buf::Reader;
use tegmen_base::cbor::{self, MAP, NEGATIVE, UNSIGNED};
use tegmen_base::crypto::MemberKey;

/// Reads the public key of a CWT Claims Set (RFC 8392) with a COSE_Key in the claim `cnf` (RFC 8747, section 3.2).
/// The type of the key is OKP with Ed25519 or X25519, or EC2 with P-256 and both coordinates. Returns `None` if there
/// is no such key, or if bytes follow the Claims Set.
pub fn key_of_ccs(ccs: &[u8]) -> Option<MemberKey> {
    let mut reader = Reader::new(ccs);
    let confirmation = value_of(&mut reader, &[(UNSIGNED, CNF)])?;
    let [Some(confirmation)] = confirmation else { return None };
    if !reader.is_empty() {
        return None;
    }
    let [Some(key)] = value_of(&mut Reader::new(confirmation), &[(UNSIGNED, COSE_KEY)])? else { return None };
    let labels = [(UNSIGNED, KTY), (NEGATIVE, CRV), (NEGATIVE, X), (NEGATIVE, Y)];
    let [Some(kty), Some(crv), Some(x), y] = value_of(&mut Reader::new(key), &labels)? else { return None };
    let number = |value: &[u8]| cbor::read(UNSIGNED, &mut Reader::new(value));
    let x: [u8; 32] = cbor::read_bytes(&mut Reader::new(x))?.try_into().ok()?;
    match (number(kty)?, number(crv)?) {
        (OKP, ED25519) => Some(MemberKey::Ed25519(x)),
        (OKP, X25519) => Some(MemberKey::X25519(x)),
        (EC2, P256) => {
            let y: [u8; 32] = cbor::read_bytes(&mut Reader::new(y?))?.try_into().ok()?;
            let mut point = [4; 65];
            let (at_x, at_y) = point.get_mut(1..)?.split_at_mut_checked(32)?;
            at_x.copy_from_slice(&x);
            at_y.copy_from_slice(&y);
            Some(MemberKey::P256(point))
        }
        _ => None,
    }
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
const CRV: usize = 0;
const X: usize = 1;
const Y: usize = 2;
const OKP: usize = 1;
const EC2: usize = 2;
const P256: usize = 1;
const X25519: usize = 4;
const ED25519: usize = 6;
