//! The kinds of handshakes, for the counts of a server.

use tegmen::dtls::CipherSuite;

/// The key exchange of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The keys come only from a pre-shared key.
    Psk,
    /// The keys come from a pre-shared key and an ECDH agreement.
    EcdhePsk,
    /// The keys come from an ECDH agreement that the server signed with ECDSA.
    EcdheEcdsa,
    /// The keys come from an ECDH agreement that the server signed with RSA.
    EcdheRsa,
    /// The keys come from a secret that the client encrypted to the RSA key of the server.
    Rsa,
    /// The keys come from an earlier session.
    Resumed,
}

impl Kind {
    /// The names that metrics use for the kinds, in the order of the variants of this enum.
    pub const NAMES: [&str; 6] = ["psk", "ecdhe_psk", "ecdhe_ecdsa", "ecdhe_rsa", "rsa", "resumed"];

    /// Returns the kind of a session with this cipher suite.
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
