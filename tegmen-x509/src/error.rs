//! The texts of [`Refusal`]. Each text names the cause, and proposes a remedy. A firmware image that prints none of
//! these texts does not contain them.

use crate::Refusal;
use core::error::Error;
use core::fmt::{self, Display, Formatter};

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "a certificate is not strict DER, or not of version 3; issue it again",
            Self::UnsupportedAlgorithm => {
                "a signature is not ECDSA with SHA-256; have the certificate issued by a CA whose key is on secp256r1"
            }
            Self::UnsupportedKey => "a key is not an uncompressed point of secp256r1; make another",
            Self::UnsupportedExtension => {
                "a certificate has name constraints or an unknown critical extension; issue it without"
            }
            Self::Expired => "a certificate has expired; renew it, or set the clock",
            Self::NotYetValid => "a certificate is not valid yet; wait, or set the clock",
            Self::WrongName => "the certificate has another name than the one that was asked for",
            Self::WrongPurpose => "the extended key usage of a certificate is without the purpose; issue one with it",
            Self::WrongKeyUsage => "the key usage is without digitalSignature, or of a CA without keyCertSign",
            Self::EndEntityIsCa => "the end entity is a CA; issue a separate certificate for the end entity",
            Self::IssuerIsNoCa => "an issuer is not a CA",
            Self::PathLenExceeded => "more CAs follow a CA than its pathLenConstraint allows",
            Self::TooLong => "the path is too long; issue from a CA nearer to the anchor",
            Self::WrongIssuer => "a certificate is not from the issuer of the one before it; send the list in order",
            Self::UnknownIssuer => {
                "no anchor has the name of the last issuer; add it, or send the certificates between"
            }
            Self::BadSignature => "a signature is not that of its issuer",
        })
    }
}

impl Error for Refusal {}
