//! The cipher suites, and the cipher and the key exchange of each.

use super::record::{Channel, Cipher, HAS_LONG_KEYS};
use crate::crypto::{Crypto, SignatureScheme};

/// A cipher suite (IANA TLS Cipher Suites registry).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CipherSuite(pub u16);

impl CipherSuite {
    /// TLS_PSK_WITH_AES_128_CCM_8 (RFC 6655), the mandatory suite of RFC 7252, section 9.1.3.1.
    pub const PSK_WITH_AES_128_CCM_8: Self = Self(0xc0a8);
    /// TLS_PSK_WITH_AES_128_GCM_SHA256 (RFC 5487).
    pub const PSK_WITH_AES_128_GCM_SHA256: Self = Self(0x00a8);
    /// TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256 (RFC 8442). An attacker who learns the pre-shared key cannot decrypt
    /// earlier sessions.
    pub const ECDHE_PSK_WITH_AES_128_CCM_8_SHA256: Self = Self(0xd003);
    /// TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256 (RFC 7905). An attacker who learns the pre-shared key cannot
    /// decrypt earlier sessions. The tag has 16 bytes, and the cipher is fast without AES instructions.
    pub const ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256: Self = Self(0xccac);
    /// TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8 (RFC 7251), the mandatory suite of RFC 7252, sections 9.1.3.2 and 9.1.3.3.
    pub const ECDHE_ECDSA_WITH_AES_128_CCM_8: Self = Self(0xc0ae);
    /// TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 (RFC 5289).
    pub const ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: Self = Self(0xc02b);
    /// TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 (RFC 5289).
    pub const ECDHE_RSA_WITH_AES_128_GCM_SHA256: Self = Self(0xc02f);
    /// TLS_PSK_WITH_AES_128_CBC_SHA256 (RFC 5487), for peers that support no better suite. It is used only if an
    /// application names it: no constant of [`Suites`] contains this suite. Encrypt-then-MAC (RFC 7366) is used if the
    /// peer supports it. If not, the security depends on decryption in constant time. Anyone who gets the pre-shared
    /// key later can decrypt recorded traffic.
    pub const PSK_WITH_AES_128_CBC_SHA256: Self = Self(0x00ae);
    /// TLS_RSA_WITH_AES_128_CBC_SHA (RFC 5246), the mandatory suite of TLS 1.2, for peers that support no better suite.
    /// It is used only if an application names it: no constant of [`Suites`] contains this suite. It has the weaknesses
    /// of [`Self::PSK_WITH_AES_128_CBC_SHA256`]. In addition, its MACs use SHA-1, and anyone who gets the server's
    /// private key later can decrypt recorded traffic.
    pub const RSA_WITH_AES_128_CBC_SHA: Self = Self(0x002f);
    /// TLS_EMPTY_RENEGOTIATION_INFO_SCSV (RFC 5746, section 3.3). This is a signal of the client, and not a cipher
    /// suite.
    pub const EMPTY_RENEGOTIATION_INFO_SCSV: Self = Self(0x00ff);

    /// Returns the name of the suite in the IANA registry; `unknown` for a suite that this module does not implement.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PSK_WITH_AES_128_CCM_8 => "TLS_PSK_WITH_AES_128_CCM_8",
            Self::PSK_WITH_AES_128_GCM_SHA256 => "TLS_PSK_WITH_AES_128_GCM_SHA256",
            Self::ECDHE_PSK_WITH_AES_128_CCM_8_SHA256 => "TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256",
            Self::ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256 => "TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256",
            Self::ECDHE_ECDSA_WITH_AES_128_CCM_8 => "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8",
            Self::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            Self::ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            Self::PSK_WITH_AES_128_CBC_SHA256 => "TLS_PSK_WITH_AES_128_CBC_SHA256",
            Self::RSA_WITH_AES_128_CBC_SHA => "TLS_RSA_WITH_AES_128_CBC_SHA",
            _ => "unknown",
        }
    }

    /// True if the server authenticates with a certificate or a raw public key.
    pub fn has_certificate(self) -> bool {
        self.parts().is_some_and(|(exchange, _)| exchange.has_certificate())
    }

    /// True if the client encrypts a secret to the public key of the server. The server then has an RSA key.
    pub fn encrypts_to_server(self) -> bool {
        self.parts().is_some_and(|(exchange, _)| exchange.is_rsa())
    }

    /// Returns the channel of one endpoint, for a key block (RFC 5246, section 6.3) that another program computed.
    /// `client` is true for the channel of the client. Tools and tests use this function to examine records.
    /// `encrypt_then_mac` is true if the peers agreed on RFC 7366. Returns `None` for an unknown suite, and for a block
    /// that is too short.
    pub fn channel(self, encrypt_then_mac: bool, block: &[u8], client: bool) -> Option<Channel> {
        let (_, cipher) = self.parts()?;
        let cipher = if encrypt_then_mac { cipher.with_encrypt_then_mac()? } else { cipher };
        let mut channel = Channel::none();
        channel.set_keys(block, client, cipher).ok()?;
        Some(channel)
    }

    /// Returns the key exchange and the cipher of the suite; `None` for an unknown suite.
    pub(crate) const fn parts(self) -> Option<(KeyExchange, Cipher)> {
        Some(match self {
            Self::PSK_WITH_AES_128_CCM_8 => (KeyExchange::Psk, Cipher::Ccm8),
            Self::PSK_WITH_AES_128_GCM_SHA256 => (KeyExchange::Psk, Cipher::Gcm),
            Self::ECDHE_PSK_WITH_AES_128_CCM_8_SHA256 => (KeyExchange::EcdhePsk, Cipher::Ccm8),
            Self::ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256 if HAS_LONG_KEYS => {
                (KeyExchange::EcdhePsk, Cipher::ChaCha20Poly1305)
            }
            Self::ECDHE_ECDSA_WITH_AES_128_CCM_8 => (KeyExchange::EcdheEcdsa, Cipher::Ccm8),
            Self::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => (KeyExchange::EcdheEcdsa, Cipher::Gcm),
            Self::ECDHE_RSA_WITH_AES_128_GCM_SHA256 => (KeyExchange::EcdheRsa, Cipher::Gcm),
            Self::PSK_WITH_AES_128_CBC_SHA256 if HAS_LONG_KEYS => (KeyExchange::Psk, Cipher::CbcSha256),
            Self::RSA_WITH_AES_128_CBC_SHA if HAS_LONG_KEYS => (KeyExchange::Rsa, Cipher::CbcSha),
            _ => return None,
        })
    }

    /// Returns the key exchange and the cipher of the suite; `None` if the suite is unknown, or if the crypto provider
    /// does not support the cipher. With a provider that supports only CCM_8, this function has less code than
    /// [`Self::parts`].
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn parts_in<C: Crypto>(self) -> Option<(KeyExchange, Cipher)> {
        if C::AES_128_GCM.is_some() || HAS_LONG_KEYS {
            return self.parts().filter(|(_, cipher)| cipher.is_in::<C>());
        }
        Some(match self {
            Self::PSK_WITH_AES_128_CCM_8 => (KeyExchange::Psk, Cipher::Ccm8),
            Self::ECDHE_PSK_WITH_AES_128_CCM_8_SHA256 => (KeyExchange::EcdhePsk, Cipher::Ccm8),
            Self::ECDHE_ECDSA_WITH_AES_128_CCM_8 => (KeyExchange::EcdheEcdsa, Cipher::Ccm8),
            _ => return None,
        })
    }

    /// Returns the suite with this key exchange and this cipher.
    pub(crate) const fn of(exchange: KeyExchange, cipher: Cipher) -> Self {
        match (exchange, cipher) {
            (KeyExchange::Psk, Cipher::Ccm8) => Self::PSK_WITH_AES_128_CCM_8,
            (KeyExchange::Psk, Cipher::CbcSha256 | Cipher::CbcSha256EncryptThenMac) if HAS_LONG_KEYS => {
                Self::PSK_WITH_AES_128_CBC_SHA256
            }
            (KeyExchange::Psk, _) => Self::PSK_WITH_AES_128_GCM_SHA256,
            (KeyExchange::EcdhePsk, Cipher::ChaCha20Poly1305) if HAS_LONG_KEYS => {
                Self::ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256
            }
            (KeyExchange::EcdhePsk, _) => Self::ECDHE_PSK_WITH_AES_128_CCM_8_SHA256,
            (KeyExchange::EcdheEcdsa, Cipher::Ccm8) => Self::ECDHE_ECDSA_WITH_AES_128_CCM_8,
            (KeyExchange::EcdheEcdsa, _) => Self::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            (KeyExchange::Rsa, _) if HAS_LONG_KEYS => Self::RSA_WITH_AES_128_CBC_SHA,
            (KeyExchange::EcdheRsa | KeyExchange::Rsa, _) => Self::ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        }
    }
}

/// The key exchange of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyExchange {
    /// A pre-shared key alone (RFC 4279, section 2).
    Psk,
    /// A secret that the client draws, and encrypts to the RSA key of the server (RFC 5246, section 7.4.7.1).
    Rsa,
    /// A pre-shared key and an ephemeral key agreement (RFC 5489, section 2).
    EcdhePsk,
    /// An ephemeral key agreement whose share the server signs with ECDSA (RFC 8422, section 2).
    EcdheEcdsa,
    /// An ephemeral key agreement whose share the server signs with RSA (RFC 8422, section 2).
    EcdheRsa,
}

impl KeyExchange {
    /// True if the key exchange uses only a pre-shared key.
    pub(crate) const fn is_psk(self) -> bool {
        matches!(self, Self::Psk)
    }

    /// Returns the signature scheme with which the server's key signs.
    pub(crate) const fn scheme(self) -> SignatureScheme {
        match self {
            Self::EcdheRsa => SignatureScheme::RSA_PKCS1_SHA256,
            _ if self.is_rsa() => SignatureScheme::RSA_PKCS1_SHA256,
            _ => SignatureScheme::ECDSA_SECP256R1_SHA256,
        }
    }

    /// True if client and server draw ephemeral key pairs for the key exchange.
    pub(crate) const fn is_ephemeral(self) -> bool {
        !matches!(self, Self::Psk) && !self.is_rsa()
    }

    /// True if the client encrypts the premaster secret to the server's RSA key. A mote does not support this key
    /// exchange.
    pub(crate) const fn is_rsa(self) -> bool {
        HAS_LONG_KEYS && matches!(self, Self::Rsa)
    }

    /// True if the server authenticates with a certificate or a raw public key.
    pub(crate) const fn has_certificate(self) -> bool {
        matches!(self, Self::EcdheEcdsa | Self::EcdheRsa) || self.is_rsa()
    }
}

/// The cipher suites that a client offers and a server accepts, in order of preference. A suite is skipped if the
/// crypto provider, the [role](crate::dtls::roles::Roles) or the [profile](super::Profile) of the endpoint does not
/// support it. An endpoint that supports no choice of suites uses only TLS_PSK_WITH_AES_128_CCM_8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Suites(pub &'static [CipherSuite]);

impl Suites {
    /// TLS_PSK_WITH_AES_128_CCM_8.
    pub const CCM_8: Self = Self(&[CipherSuite::PSK_WITH_AES_128_CCM_8]);
    /// TLS_PSK_WITH_AES_128_CCM_8, then TLS_PSK_WITH_AES_128_GCM_SHA256.
    pub const CCM_8_THEN_GCM: Self =
        Self(&[CipherSuite::PSK_WITH_AES_128_CCM_8, CipherSuite::PSK_WITH_AES_128_GCM_SHA256]);
    /// TLS_PSK_WITH_AES_128_GCM_SHA256, then TLS_PSK_WITH_AES_128_CCM_8.
    pub const GCM_THEN_CCM_8: Self =
        Self(&[CipherSuite::PSK_WITH_AES_128_GCM_SHA256, CipherSuite::PSK_WITH_AES_128_CCM_8]);
    /// TLS_PSK_WITH_AES_128_GCM_SHA256.
    pub const GCM: Self = Self(&[CipherSuite::PSK_WITH_AES_128_GCM_SHA256]);
    /// All supported suites except those with CBC, in order of security. Suites with an ephemeral key agreement precede
    /// all other suites. Within each of these two groups, suites with a tag of 16 bytes precede those with 8 bytes.
    pub const ALL: Self = Self(&[
        CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256,
        CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8,
        CipherSuite::ECDHE_PSK_WITH_AES_128_CCM_8_SHA256,
        CipherSuite::PSK_WITH_AES_128_GCM_SHA256,
        CipherSuite::PSK_WITH_AES_128_CCM_8,
    ]);
}

impl Default for Suites {
    fn default() -> Self {
        Self::CCM_8
    }
}
