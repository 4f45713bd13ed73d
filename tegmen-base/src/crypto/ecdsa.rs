//! Converts between two forms of an ECDSA signature on secp256r1. COSE, Axiom and JOSE use two numbers of 32 bytes.
//! Certificates and TLS use DER.

use crate::buf::{Full, Reader, Truncated, Writer};

/// Length in bytes of an ECDSA signature as two numbers, and of an Ed25519 signature.
pub const SIGNATURE_LEN: usize = 64;

/// Writes a signature as ECDSA-Sig-Value (RFC 3279, section 2.2.3). It has at most
/// [`MAX_SIGNATURE`](super::MAX_SIGNATURE) bytes.
///
/// # Errors
/// [`Full`] if the signature does not fit.
pub fn to_der(signature: &[u8; SIGNATURE_LEN], out: &mut Writer<'_>) -> Result<(), Full> {
    out.u8(0x30)?;
    out.behind_len::<1>(|out| {
        for number in signature.chunks(SIGNATURE_LEN / 2) {
            let zeros = number.iter().take_while(|byte| **byte == 0).count();
            let number = number.get(zeros..).unwrap_or(&[]);
            out.u8(0x02)?;
            out.behind_len::<1>(|out| {
                if number.first().is_some_and(|byte| *byte >= 0x80) {
                    out.u8(0)?;
                }
                out.put(number)
            })?;
        }
        Ok(())
    })
}

/// Reads an ECDSA-Sig-Value that [`to_der`] can write, and returns the two numbers.
///
/// # Errors
/// [`Truncated`] if a number is longer than 32 bytes, or the input is too short.
pub fn from_der(der: &[u8]) -> Result<[u8; SIGNATURE_LEN], Truncated> {
    let mut signature = [0; SIGNATURE_LEN];
    let mut reader = Reader::new(der);
    reader.u8()?;
    let mut numbers = Reader::new(reader.with_len8()?);
    for half in signature.chunks_mut(SIGNATURE_LEN / 2) {
        numbers.u8()?;
        let number = numbers.with_len8()?;
        let number = if number.len() > half.len() { number.get(1..).ok_or(Truncated)? } else { number };
        let zeros = half.len().checked_sub(number.len()).ok_or(Truncated)?;
        half.get_mut(zeros..).ok_or(Truncated)?.copy_from_slice(number);
    }
    Ok(signature)
}
