//! The public keys of a client or a server, and the peers that it trusts.

use crate::digest::Digest;
use crate::provider::public;
use crate::x509::signer::{SignatureScheme, Signer};
use crate::x509::{CertificateInfo, LoadError, PeerVerifier, Purpose, Refusal, Verified};
use std::sync::Arc;
use std::time::SystemTime;
use tegmen::crypto::DIGEST_LEN;
use tegmen::dtls::{CertificateType, CipherSuite, ClientAuthentication, Credential, Keys, Suites};

/// The public keys of an endpoint. The value of [`Default`] has no key and trusts nobody, so it supports only cipher
/// suites with pre-shared keys.
#[derive(Clone)]
pub struct PublicKeys {
    own: Vec<Own>,
    verifier: Option<Arc<dyn PeerVerifier>>,
    peer_types: Vec<CertificateType>,
    client_authentication: ClientAuthentication,
    server_name: Option<String>,
    suites: Suites,
}

#[derive(Clone)]
struct Own {
    certificate_type: CertificateType,
    content: Vec<u8>,
    /// The earliest time at which a certificate of the chain expires; `None` for a raw public key.
    expires: Option<SystemTime>,
    signer: Arc<dyn Signer>,
}

/// The default cipher suites of a server or a client with certificates or raw public keys.
pub const SUITES: Suites = Suites(&[
    CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8,
    CipherSuite::ECDHE_RSA_WITH_AES_128_GCM_SHA256,
]);

impl PublicKeys {
    /// Creates a value without keys, with these cipher suites. The keys that are added later must be usable with these
    /// suites.
    pub fn new(suites: Suites) -> Self {
        Self {
            own: Vec::new(),
            verifier: None,
            peer_types: Vec::new(),
            client_authentication: ClientAuthentication::Never,
            server_name: None,
            suites,
        }
    }

    /// Adds a chain of certificates in DER with which the endpoint proves itself. The certificate of the endpoint comes
    /// first, and `signer` has the key of this certificate.
    ///
    /// # Errors
    /// [`NotOurs`] if `signer` has another key.
    pub fn with_chain(mut self, chain: &[Vec<u8>], signer: Arc<dyn Signer>) -> Result<Self, NotOurs> {
        let own = chain.first().and_then(|own| CertificateInfo::parse(own)).ok_or(NotOurs::Malformed)?;
        if own.spki != signer.public_key() {
            return Err(NotOurs::OtherKey);
        }
        let mut content = Vec::new();
        for certificate in chain {
            let [_, len @ ..] = (certificate.len() as u32).to_be_bytes();
            content.extend(len);
            content.extend(certificate);
        }
        let expires = chain.iter().filter_map(|own| Some(CertificateInfo::parse(own)?.not_after)).min();
        self.own.push(Own { certificate_type: CertificateType::X509, content, expires, signer });
        Ok(self)
    }

    /// Adds a raw public key with which the endpoint proves itself (RFC 7250).
    pub fn with_raw_key(mut self, signer: Arc<dyn Signer>) -> Self {
        let content = signer.public_key().to_vec();
        self.own.push(Own { certificate_type: CertificateType::RAW_PUBLIC_KEY, content, expires: None, signer });
        self
    }

    /// Sets the verifier that decides which peers are accepted.
    pub fn believing(mut self, verifier: Arc<dyn PeerVerifier>) -> Self {
        let types = [
            (verifier.takes_raw_keys(), CertificateType::RAW_PUBLIC_KEY),
            (verifier.takes_certificates(), CertificateType::X509),
        ];
        self.peer_types = types.into_iter().filter(|(taken, _)| *taken).map(|(_, kind)| kind).collect();
        self.verifier = Some(verifier);
        self
    }

    /// Sets how a server requests a certificate or raw public key from clients.
    pub const fn asking(mut self, how: ClientAuthentication) -> Self {
        self.client_authentication = how;
        self
    }

    /// Sets the name that the certificate of the server must contain. If the name is not an address, the client sends
    /// the name in server_name (RFC 6066, section 3). A raw public key contains no name.
    pub fn expecting(mut self, name: &str) -> Self {
        self.server_name = Some(name.to_owned());
        self
    }

    /// Returns the name that the server must have. It is empty if no name was set.
    pub fn name_expected(&self) -> &str {
        self.server_name.as_deref().unwrap_or_default()
    }

    /// Returns true if no name was set.
    pub const fn expects_no_name(&self) -> bool {
        self.server_name.is_none()
    }

    /// Verifies the certificates or the raw public key of a peer. `purpose` is the role of the peer. If no name is set,
    /// a certificate of a server may contain any name. The clients of `tegmen-host` always set a name.
    pub fn verify<'c>(
        &self,
        kind: CertificateType,
        content: &'c [u8],
        purpose: Purpose,
    ) -> Result<Verified<'c>, Refusal> {
        let verifier = self.verifier.as_ref().ok_or(Refusal::NotTaken("public keys"))?;
        // An empty name matches no certificate.
        let name = self.server_name.as_deref().filter(|_| purpose != Purpose::Client);
        let verified = match kind == CertificateType::RAW_PUBLIC_KEY {
            true => verifier.verify_raw(content)?,
            false => verifier.verify(content, purpose, name, SystemTime::now())?,
        };
        match purpose {
            Purpose::EncryptedServer if !public::encrypts(verified.spki) => Err(Refusal::WrongUsage(
                "nothing can be encrypted to a key that is not one of RSA of 2048 to 4096 bits",
            )),
            _ => Ok(verified),
        }
    }

    /// Reads the trust settings again if they changed: see [`PeerVerifier::reload_if_changed`].
    pub fn reload_if_changed(&self) -> Result<bool, LoadError> {
        self.verifier.as_ref().map_or(Ok(false), |verifier| verifier.reload_if_changed())
    }

    /// Returns a copy without the endpoint's own keys.
    pub fn without_own(mut self) -> Self {
        self.own.clear();
        self
    }

    /// Returns the earliest expiry of the certificates of this endpoint, and of the CA certificates in its chains.
    pub fn certificate_expires(&self) -> Option<SystemTime> {
        self.own.iter().filter_map(|own| own.expires).min()
    }

    /// Returns the earliest time at which a CRL must be replaced: see [`PeerVerifier::due`].
    pub fn revocation_due(&self) -> Option<SystemTime> {
        self.verifier.as_ref()?.due()
    }

    /// Returns a digest of the trust settings: see [`PeerVerifier::trust`]. Without a verifier, returns 32 zero bytes.
    pub fn trust(&self) -> Option<Digest> {
        self.verifier.as_ref().map_or(Some(Digest::default()), |verifier| verifier.trust())
    }

    /// Verifies again a client that resumes a session: see [`PeerVerifier::recall`]. Returns `None` if the endpoint has
    /// no verifier.
    pub fn recall(&self, kind: CertificateType, digest: &[u8]) -> Option<(String, Digest)> {
        self.verifier.as_ref()?.recall(kind, digest, SystemTime::now())
    }

    /// Signs a digest with a key of this endpoint. `credential` is the index of the key, in the order in which the keys
    /// were added. Returns `None` if there is no such key, or if the holder of the key cannot sign.
    pub fn sign(&self, credential: u8, digest: &[u8; DIGEST_LEN]) -> Option<Vec<u8>> {
        self.own.get(usize::from(credential))?.signer.sign_digest(digest).ok()
    }

    /// Returns a private key of this endpoint; `None` if there is no such key. `credential` is the index of the key, in
    /// the order in which the keys were added.
    pub fn key(&self, credential: u8) -> Option<Arc<dyn Signer>> {
        Some(self.own.get(usize::from(credential))?.signer.clone())
    }

    /// Returns true if a server with these keys can use the cipher suite.
    pub fn can_serve(&self, suite: CipherSuite) -> bool {
        let scheme = match suite {
            CipherSuite::ECDHE_RSA_WITH_AES_128_GCM_SHA256 => SignatureScheme::RSA_PKCS1_SHA256,
            _ => SignatureScheme::ECDSA_SECP256R1_SHA256,
        };
        !suite.has_certificate()
            || self.own.iter().any(|own| match suite.encrypts_to_server() {
                true => own.signer.decrypter().is_some(),
                false => own.signer.scheme() == scheme,
            })
    }
}

impl Default for PublicKeys {
    fn default() -> Self {
        Self::new(Suites::CCM_8_THEN_GCM)
    }
}

impl std::fmt::Debug for PublicKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds: Vec<_> = self.own.iter().map(|own| own.certificate_type).collect();
        f.debug_struct("PublicKeys").field("own", &kinds).field("peer_types", &self.peer_types).finish_non_exhaustive()
    }
}

/// The reason why a chain of certificates cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotOurs {
    /// There is no certificate, or it does not parse.
    #[error(
        "the file has no certificate that can be read: give a PEM file with the own certificate first, then the certificates of its issuers"
    )]
    Malformed,
    /// The key in the certificate differs from the private key.
    #[error("the private key is not that of the first certificate: give the key it was issued for")]
    OtherKey,
}

impl Keys for PublicKeys {
    const ON_HOST: bool = true;

    fn credential(&self, _: u32, number: u8) -> Option<Credential<'_>> {
        let own = self.own.get(usize::from(number))?;
        Some(Credential { certificate_type: own.certificate_type, scheme: own.signer.scheme(), content: &own.content })
    }

    fn client_authentication(&self) -> ClientAuthentication {
        self.client_authentication
    }

    fn peer_types(&self) -> &[CertificateType] {
        &self.peer_types
    }

    fn suites(&self, _: u32) -> Suites {
        self.suites
    }

    fn server_name(&self) -> &[u8] {
        // No address is a name of DNS (RFC 6066, section 3).
        let name = self.name_expected();
        match name.parse::<std::net::IpAddr>() {
            Ok(_) => &[],
            Err(_) => name.as_bytes(),
        }
    }
}
