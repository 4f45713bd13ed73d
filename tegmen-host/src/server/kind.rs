//! Kinds of handshakes, for the counts.

use tegmen::dtls::CipherSuite;

/// The key exchange of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// From a pre-shared key alone.
    Psk,
    /// From a pre-shared key and an agreement.
    EcdhePsk,
    /// From an agreement that the server signed with ECDSA.
    EcdheEcdsa,
    /// From an agreement that the server signed with RSA.
    EcdheRsa,
    /// From what the client encrypted to the RSA key of the server.
    Rsa,
    /// From an earlier session.
    Resumed,
}

impl Kind {
    /// The names of the kinds in metrics, in the order of their numbers.
    pub const NAMES: [&str; 6] = ["psk", "ecdhe_psk", "ecdhe_ecdsa", "ecdhe_rsa", "rsa", "resumed"];

    /// The kind of a session under this suite.
    pub(super) const fn of(suite: CipherSuite, resumed: bool) -> Self {
        match suite {
            _ if resumed => Self::Resumed,
            CipherSuite::ECDHE_PSK_WITH_AES_128_CCM_8_SHA256 | CipherSuite::ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256 => {
                Self::EcdhePsk
            }
            CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8 | CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => {
                Self::EcdheEcdsa
            }
            CipherSuite::ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Self::EcdheRsa,
            CipherSuite::RSA_WITH_AES_128_CBC_SHA => Self::Rsa,
            _ => Self::Psk,
        }
    }
}
