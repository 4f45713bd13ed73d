//! Certificates and raw public keys. With them an end authenticates itself without a pre-shared key.

use crate::Failure;
use std::{fs, path::PathBuf};

/// The files with an end's own public key, and with the key or the CA that it trusts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKeys {
    /// The IANA name of the only cipher suite.
    pub suite: String,
    /// The form of the keys, and their files.
    pub form: KeyForm,
}

/// The form in which each end sends its public key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyForm {
    /// X.509 certificates. The files are in PEM.
    X509 {
        /// The file of the trusted CA.
        ca: PathBuf,
        /// The file of the end's own certificate.
        certificate: PathBuf,
        /// The file of the private key that belongs to the certificate.
        key: PathBuf,
    },
    /// Raw public keys (RFC 7250). The files are in DER.
    Raw {
        /// The file of the end's own private key, in PKCS#8.
        key: PathBuf,
        /// The file of the end's own public key, as a SubjectPublicKeyInfo.
        public_key: PathBuf,
        /// The file of the peer's public key, as a SubjectPublicKeyInfo.
        peer: PathBuf,
    },
}

/// The cipher suite and the peer of a session, as one end reports them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The IANA name of the cipher suite.
    pub suite: String,
    /// The common name in the certificate of the peer, or [`RAW_PUBLIC_KEY`].
    pub peer: String,
}

/// The text that replaces the name of a peer that has the expected raw public key.
pub const RAW_PUBLIC_KEY: &str = "raw public key";

impl PublicKeys {
    /// Parses the arguments after the address: `x509 SUITE CA CERTIFICATE KEY` or `raw SUITE KEY PUBLIC_KEY PEER`.
    /// Returns `None` for other arguments.
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

/// Reads a file, and returns its bytes.
///
/// # Errors
/// If the file cannot be read. The message contains the path of the file and the error of the system.
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
