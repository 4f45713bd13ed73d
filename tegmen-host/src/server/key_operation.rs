//! Operations with a private key.

use crate::x509::signer::Signer;
use std::sync::Arc;
use tegmen::crypto::DIGEST_LEN;
use tegmen::dtls::PREMASTER_LEN;
use tegmen::secret::Secret;

/// A private key, and the operation that a handshake needs.
pub(super) struct Operation {
    pub(super) key: Arc<dyn Signer>,
    pub(super) asked: Asked,
}

/// An operation with a private key.
pub(super) enum Asked {
    Sign([u8; DIGEST_LEN]),
    Decrypt { encrypted: Vec<u8>, version: [u8; 2], random: Secret<PREMASTER_LEN> },
}

/// The result of an [`Operation`].
pub(crate) enum Worked {
    /// The signature; `None` if the holder of the private key did not sign.
    Signature(Option<Vec<u8>>),
    Premaster(Secret<PREMASTER_LEN>),
}

impl Operation {
    pub(super) fn run(self) -> Worked {
        match self.asked {
            Asked::Sign(digest) => Worked::Signature(self.key.sign_digest(&digest).ok()),
            Asked::Decrypt { encrypted, version, random } => Worked::Premaster(match self.key.decrypter() {
                Some(decrypter) => decrypter.premaster_secret(&encrypted, version, &random),
                None => random,
            }),
        }
    }
}
