//! Certificate requests (PKCS #10, RFC 2986): a public key, which is signed with the private key that belongs to it.

use super::certificate::name_text;
use super::signature::verify_digest;
use super::signer::SignatureScheme;
use crate::digest::sha256_of;
use tegmen::buf::Reader;
use tegmen_x509::der::{self, INTEGER, Malformed, OID, SEQUENCE, context};

/// A request whose signature was verified. So the maker of the request has the private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The requested subject (RFC 4514).
    pub subject: String,
    /// The SubjectPublicKeyInfo in DER.
    pub spki: Vec<u8>,
}

const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const SHA256_WITH_RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11];

impl Request {
    /// Reads a request in DER and verifies its signature, with SHA-256 by ECDSA on P-256 or by RSA of 2048 to 4096 bits.
    ///
    /// # Errors
    /// A text that describes the fault of the request.
    pub fn verify(der: &[u8]) -> Result<Self, &'static str> {
        let (request, signed) = parse(der).map_err(|Malformed| "no certificate request (PKCS #10)")?;
        verify_digest(signed.scheme, &request.spki, &sha256_of(&[signed.info]), signed.signature)
            .map_err(|_| "its signature does not verify, or its key is not used here")?;
        Ok(request)
    }
}

/// The signed bytes of a request, the algorithm, and the signature.
struct Signed<'d> {
    info: &'d [u8],
    scheme: SignatureScheme,
    signature: &'d [u8],
}

fn parse(der: &[u8]) -> Result<(Request, Signed<'_>), Malformed> {
    let mut outside = Reader::new(der);
    let mut whole = der::inside(&mut outside, SEQUENCE)?;
    der::end(&outside)?;
    let signed = der::whole(&mut whole, SEQUENCE)?;
    let scheme = match der::value(&mut der::inside(&mut whole, SEQUENCE)?, OID)? {
        ECDSA_WITH_SHA256 => SignatureScheme::ECDSA_SECP256R1_SHA256,
        SHA256_WITH_RSA_ENCRYPTION => SignatureScheme::RSA_PKCS1_SHA256,
        _ => return Err(Malformed),
    };
    let signature = der::whole_bits(&mut whole)?;
    der::end(&whole)?;
    let mut info = der::inside(&mut Reader::new(signed), SEQUENCE)?;
    let _version = der::value(&mut info, INTEGER)?;
    let subject = name_text(der::whole(&mut info, SEQUENCE)?).ok_or(Malformed)?;
    let spki = der::whole(&mut info, SEQUENCE)?.to_vec();
    let _attributes = der::value(&mut info, context(0))?;
    der::end(&info)?;
    Ok((Request { subject, spki }, Signed { info: signed, scheme, signature }))
}
