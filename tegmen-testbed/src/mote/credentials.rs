//! The keys and certificates of simulated nodes, which are the same as in the firmware images. The module also verifies
//! and signs for a node whose handshake needs a public-key operation.

use tegmen::crypto::{Compact, MAX_SIGNATURE, P256_PREFIX, SCALAR_LEN, SignatureScheme, curves};
use tegmen::dtls::{Answer, CertificateType, CipherSuite, ClientAuthentication, Credential, Keys, Need, Suites};
use tegmen::identity::Principal;
use tegmen_x509::{Anchor, KeyPurpose, Name, PublicKey, Refusal, Rules};

/// The public key that a node sends to its peer, as a raw public key or in certificates.
pub(crate) struct Shown {
    kind: CertificateType,
    content: Vec<u8>,
}

impl Shown {
    /// Returns the raw public key. Client and server know it in advance.
    pub(crate) fn raw_public_key() -> Self {
        Self { kind: CertificateType::RAW_PUBLIC_KEY, content: public_key().to_vec() }
    }

    /// Returns only the certificate of the device.
    pub(crate) fn certificate() -> Self {
        let device = tegmen::dtls::certificates(PATH).next().expect("a certificate of the device");
        let content = [&(device.len() as u32).to_be_bytes()[1..], device].concat();
        Self { kind: CertificateType::X509, content }
    }

    /// Returns the certificates of the image `dtls_x509`: the certificate of the device, and the certificate of the CA
    /// that issued it. The CA is below the trust anchor.
    pub(crate) fn certificate_chain() -> Self {
        Self { kind: CertificateType::X509, content: PATH.to_vec() }
    }
}

impl Keys for Shown {
    fn credential(&self, _: u32, number: u8) -> Option<Credential<'_>> {
        let scheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
        (number == 0).then_some(Credential { certificate_type: self.kind, scheme, content: &self.content })
    }

    fn client_authentication(&self) -> ClientAuthentication {
        ClientAuthentication::Required
    }

    fn peer_types(&self) -> &[CertificateType] {
        std::slice::from_ref(&self.kind)
    }

    fn suites(&self, _: u32) -> Suites {
        Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8])
    }
}

/// Performs the operation that a handshake with public keys needs: a verification of the peer's key, or a signature.
/// All simulated nodes sign with the same private key.
pub(crate) fn answer<'a>(crypto: &mut Compact, need: Need<'_>, room: &'a mut [u8; 91]) -> Answer<'a> {
    match need {
        Need::VerifyPeer { certificate_type: CertificateType::X509, content } => {
            let device = tegmen::dtls::certificates(content).count() == 1;
            // A peer that sends only the certificate of the device sends it to nodes that trust the CA which issued
            // this certificate.
            let ca = tegmen::dtls::certificates(PATH).nth(1).expect("a certificate of the CA");
            let name = if device { CA_NAME } else { ANCHOR_NAME };
            let key = if device { key_in(ca) } else { *ANCHOR_KEY };
            let rules = Rules {
                anchors: &[Anchor { name, public_key: &key }],
                purpose: KeyPurpose::Server,
                name: Name::Eui64([1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]),
                now: None,
            };
            match rules.verify(crypto, content) {
                Ok(end_entity) => {
                    *room = end_entity.public_key;
                    Answer::Peer { public_key: room, principal: WHO }
                }
                Err(_) => Answer::Refused(Refusal::ALERT),
            }
        }
        Need::VerifyPeer { content, .. } if content == public_key() => {
            *room = public_key();
            Answer::Peer { public_key: room, principal: WHO }
        }
        Need::VerifyPeer { .. } | Need::VerifyCertificate { .. } => Answer::Refused(Refusal::ALERT),
        Need::Sign { digest, .. } => {
            let mut signature = [0; MAX_SIGNATURE];
            let len = curves::sign(&PRIVATE, &digest, &mut signature).expect("a private key");
            room[..len].copy_from_slice(&signature[..len]);
            Answer::Signature(&room[..len])
        }
        // No mote supports RSA. The caller answers when a handshake needs a pre-shared key.
        Need::Encrypt { .. } | Need::Decrypt { .. } | Need::PskForServer { .. } | Need::PskOfClient { .. } => {
            Answer::Unknown
        }
    }
}

/// Returns the SubjectPublicKeyInfo that a certificate contains.
fn key_in(der: &[u8]) -> PublicKey {
    let at = der.windows(P256_PREFIX.len()).position(|bytes| bytes == P256_PREFIX).expect("a key on secp256r1");
    der[at..].first_chunk().copied().expect("a whole key")
}

fn public_key() -> PublicKey {
    curves::public_key_of(&PRIVATE).expect("a private key")
}

/// The principal to which every verified peer belongs.
pub(crate) const WHO: Principal = Principal(1);
/// The private key with which all simulated nodes sign.
const PRIVATE: [u8; SCALAR_LEN] = [1; SCALAR_LEN];
const PATH: &[u8] = include_bytes!("../../../firmware/x509/path.bin");
const ANCHOR_NAME: &[u8] = include_bytes!("../../../firmware/x509/anchor-name.der");
const ANCHOR_KEY: &PublicKey = include_bytes!("../../../firmware/x509/anchor-key.der");
/// The name `CN=Works CA`, encoded in DER.
const CA_NAME: &[u8] = b"\x30\x13\x31\x11\x30\x0f\x06\x03\x55\x04\x03\x0c\x08Works CA";
