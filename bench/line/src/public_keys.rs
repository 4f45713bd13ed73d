//! What an end proves itself with in place of a pre-shared key.

use crate::Failure;
use std::{fs, path::PathBuf};

/// A public key of its own and whom it believes, in files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKeys {
    /// The one cipher suite, by its name in the registry.
    pub suite: String,
    /// How the keys are shown.
    pub form: KeyForm,
}

/// How a public key is shown, and how the one of the other end is believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyForm {
    /// In X.509 certificates; files in PEM.
    X509 {
        /// Who issues to those that are believed.
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

/// What an end says of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The cipher suite, by its name in the registry.
    pub suite: String,
    /// The common name of a certificate, or [`RAW_PUBLIC_KEY`].
    pub peer: String,
}

/// Stands for the name of whoever showed a public key that was expected.
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
/// What the system says.
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
