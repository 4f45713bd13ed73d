//! Certificates and raw public keys, by which an end authenticates in place of a pre-shared key.

use crate::Failure;
use std::{fs, path::PathBuf};

/// An end's own public key and the key or CA that it trusts, in files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKeys {
    /// The one cipher suite, by its name in the registry.
    pub suite: String,
    /// The form of the keys, and their files.
    pub form: KeyForm,
}

/// Form in which an end shows its public key, and verifies the one of the other end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyForm {
    /// In X.509 certificates; files in PEM.
    X509 {
        /// The trusted CA.
        ca: PathBuf,
        /// One's own certificate.
        certificate: PathBuf,
        /// The key it is for.
        key: PathBuf,
    },
    /// As it is (RFC 7250); files in DER.
    Raw {
        /// One's own private key, in PKCS#8.
        key: PathBuf,
        /// One's own public key, a SubjectPublicKeyInfo.
        public_key: PathBuf,
        /// That of the other end.
        peer: PathBuf,
    },
}

/// Suite and peer of a session, as one end reports them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The cipher suite, by its name in the registry.
    pub suite: String,
    /// The common name of a certificate, or [`RAW_PUBLIC_KEY`].
    pub peer: String,
}

/// In place of the name of a peer that showed the expected raw public key.
pub const RAW_PUBLIC_KEY: &str = "raw public key";

impl PublicKeys {
    /// From the words behind an address: `x509 SUITE CA CERTIFICATE KEY` or `raw SUITE KEY PUBLIC_KEY PEER`.
    pub(crate) fn from_words(words: &[String]) -> Option<Self> {
        let [form, suite, first, second, third] = words else { return None };
        let [first, second, third] = [first, second, third].map(PathBuf::from);
        let form = match form.as_str() {
            "x509" => KeyForm::X509 { ca: first, certificate: second, key: third },
            "raw" => KeyForm::Raw { key: first, public_key: second, peer: third },
            _ => return None,
        };
        Some(Self { suite: suite.clone(), form })
    }
}

/// The bytes of a file.
///
/// # Errors
/// The file cannot be read; the failure has its path and the text of the system's error.
pub fn read(path: &PathBuf) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_a_form_and_three_files() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let keys = PublicKeys::from_words(&words("x509 SUITE ca.pem own.pem own.key"));
        let form = KeyForm::X509 { ca: "ca.pem".into(), certificate: "own.pem".into(), key: "own.key".into() };
        assert_eq!(keys, Some(PublicKeys { suite: "SUITE".into(), form }));
        let keys = PublicKeys::from_words(&words("raw SUITE own.key own.pub peer.pub"));
        let form = KeyForm::Raw { key: "own.key".into(), public_key: "own.pub".into(), peer: "peer.pub".into() };
        assert_eq!(keys, Some(PublicKeys { suite: "SUITE".into(), form }));
        assert_eq!(PublicKeys::from_words(&words("Client_identity 0011 connection_id 6")), None);
        assert_eq!(PublicKeys::from_words(&words("psk SUITE a b c")), None);
    }
}
