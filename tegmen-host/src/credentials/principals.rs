//! Identities and the numbers that stand for them.

use crate::x509::Digest;
use std::collections::HashMap;
use tegmen::dtls::handshake::certificate::CertificateType;

/// Identities with a number that stays the same while the process lives, whatever the file says later.
#[derive(Default)]
pub(super) struct Names {
    pub(super) numbers: HashMap<String, u32>,
    pub(super) names: Vec<String>,
    /// What each certificate and raw public key is called here, and the number that stands for both.
    pub(super) certified: HashMap<(String, Digest), u32>,
    pub(super) digests: HashMap<u32, (CertificateType, Digest)>,
}

impl Names {
    /// The number of a name, which gets one if it has none.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }
}
