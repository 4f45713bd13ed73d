//! The certificates that the interface sends, and the certificates of clients that it accepts.

use crate::keys::{Principal, Right};
use crate::scope::Scopes;
use crate::sha256;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::sync::watch;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

/// The client certificates that the interface accepts in place of an API key.
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    /// The certificate authorities.
    pub roots: RootCertStore,
    /// The scopes of particular certificates. A key is the SHA-256 of a certificate in DER, as lower-case hexadecimal
    /// digits.
    pub scopes: HashMap<String, Scopes>,
    /// The scopes of each certificate that an authority in `roots` issued, and that has no entry in `scopes`.
    pub others: Scopes,
}

/// The certificates that the listener sends, and the client certificates that it accepts.
#[derive(Debug)]
pub struct Tls {
    config: Arc<ServerConfig>,
    accepted: Option<Accepted>,
}

/// The accepted client certificates, and their verifier.
#[derive(Debug)]
struct Accepted {
    verifier: Arc<dyn ClientCertVerifier>,
    clients: ClientCertificates,
}

impl Tls {
    /// Makes the configuration from the certificates of the interface, the private key of the first of these
    /// certificates, and the accepted client certificates. If `clients` is `None`, the interface accepts no client
    /// certificate.
    ///
    /// # Errors
    /// The reason why the certificates, the key or the authorities cannot be used.
    pub fn new(
        certificates: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        clients: Option<ClientCertificates>,
    ) -> Result<Self, rustls::Error> {
        let provider = Arc::new(default_provider());
        let accepted = clients.map(|clients| Accepted::new(clients, &provider)).transpose()?;
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = match &accepted {
            None => builder.with_no_client_auth(),
            Some(accepted) => builder.with_client_cert_verifier(Arc::clone(&accepted.verifier)),
        };
        Ok(Self { config: Arc::new(builder.with_single_cert(certificates, key)?), accepted })
    }

    /// Returns the configuration of rustls.
    pub const fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// Verifies the chain of certificates of a client. Returns the principal that represents the client as the sender
    /// of its requests. Returns `None` if the chain is not accepted.
    fn principal(&self, chain: &[CertificateDer<'static>]) -> Option<Principal> {
        let (Accepted { verifier, clients }, (own, authorities)) = (self.accepted.as_ref()?, chain.split_first()?);
        verifier.verify_client_cert(own, authorities, UnixTime::now()).ok()?;
        let digest = sha256(&[own.as_ref()]);
        let scopes = clients.scopes.get(&digest).unwrap_or(&clients.others).clone();
        Some(Principal { name: format!("certificate-{digest}"), right: Right::Scopes(scopes, u64::MAX) })
    }
}

impl Accepted {
    fn new(clients: ClientCertificates, provider: &Arc<CryptoProvider>) -> Result<Self, rustls::Error> {
        let roots = Arc::new(clients.roots.clone());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
        let refused = |error: VerifierBuilderError| rustls::Error::General(error.to_string());
        Ok(Self { verifier: verifier.allow_unauthenticated().build().map_err(refused)?, clients })
    }
}

/// The client that sends the requests of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// The certificate of the client and the certificates of its authorities; empty if the client sent none.
    pub(crate) chain: Arc<[CertificateDer<'static>]>,
    pub(crate) tls: watch::Receiver<Arc<Tls>>,
}

impl Peer {
    /// Returns the address of the client on a connection. If `peer` is `None`, returns the unspecified address.
    pub(crate) fn address_of(peer: Option<&Self>) -> IpAddr {
        peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.address)
    }

    /// Returns the sender that the client certificate authenticates under the present configuration. Returns `None` if
    /// the client sent no certificate, or if the configuration does not accept it.
    pub(crate) fn certified(&self) -> Option<Principal> {
        let tls = Arc::clone(&self.tls.borrow());
        tls.principal(&self.chain)
    }
}
