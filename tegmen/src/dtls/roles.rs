//! The roles of an endpoint: client, server or both. A role is a type, so the compiler omits the code of a role that an
//! image does not use.

use super::connection_id::Mobility;
use crate::address::Address;
use crate::crypto::SignatureScheme;
use crate::dtls::handshake::certificate::CertificateType;
use crate::dtls::resumption::{NoResumption, Resumption};
use crate::dtls::{Config, Profile, Suites, record_size};
use crate::time::Instant;

/// The roles of an endpoint. A role is a type, so the compiler omits the code of a role that an image does not use.
pub trait Roles {
    /// True if the endpoint opens handshakes.
    const CLIENT: bool;
    /// True if the endpoint answers handshakes.
    const SERVER: bool;
    /// True if the endpoint can continue a [`Session`](crate::dtls::Session), which was stored outside of the endpoint.
    const RESTORES: bool = false;
    /// True if the endpoint supports a record size limit (RFC 8449).
    const RECORD_SIZE: bool = false;
    /// True if the endpoint ignores a ClientHello that is not in the first record of a datagram. A mote answers each
    /// ClientHello of a datagram: the answer of a mote is not longer than the ClientHello, so an attacker cannot use
    /// the answers to amplify its own traffic.
    const ONE_HELLO: bool = false;
    /// True if a server reassembles ClientHellos that arrive in fragments. A mote refuses them.
    const HELLO_FRAGMENTS: bool = false;
    /// True for a host, which has more space for code than a mote. If no byte of a fragment has arrived before, a host
    /// copies the fragment at once instead of byte by byte, which is faster for certificates. The time of a host's key
    /// exchange does not depend on the length of a pre-shared key. So the time does not reveal which PSK identities
    /// exist.
    const ON_HOST: bool = false;
    /// True if a rule assigns the roles to two endpoints that connect to each other at the same time: one becomes
    /// client, and the other becomes server ([`Endpoint::connect`](crate::endpoint::Endpoint::connect)). If this
    /// constant is false, an endpoint that connects always remains client.
    const SIMULTANEOUS: bool = Self::CLIENT && Self::SERVER;
    /// True if the endpoint answers a peer's request for renegotiation with a warning alert. A mote sends no answer.
    const WARNS: bool = false;

    /// True if the endpoint supports connection ids (RFC 9146) and return routability checks.
    const CONNECTION_ID: bool = false;
    /// True if the endpoint supports the cipher suites that need public keys: see [`PublicKeys`].
    const PUBLIC_KEYS: bool = false;
    /// True if certificates are verified while they arrive: see [`Keys::CERTIFICATES_IN_PARTS`].
    const CERTIFICATES_IN_PARTS: bool = false;
    /// True if the endpoint resumes sessions: see [`Resuming`].
    const RESUMPTION: bool = false;
    /// Cipher suites that the endpoint uses only to resume sessions. It does not offer these suites for a new session:
    /// see [`Resumption::SUITES`].
    const RESUMED: Suites = Suites(&[]);
    /// True if the endpoint answers as several named servers: see [`Keys::server`].
    const NAMES: bool = false;
    /// True for a role with public keys or with resumption. Handshakes then store additional data at the end of their
    /// outgoing buffer (see `scratch`), and the messages of a flight depend on the handshake.
    const KEEPS: bool = Self::PUBLIC_KEYS || Self::RESUMPTION;

    /// Returns the maximum number of bytes of content in a record that this endpoint accepts; 0 if the endpoint
    /// announces no maximum.
    fn record_size_limit(&self) -> u16 {
        0
    }

    /// Returns the settings and the state of connection ids; `None` if the endpoint does not use them.
    fn mobility(&mut self) -> Option<&mut Mobility> {
        None
    }

    /// Returns the cipher suites of the endpoint if `server` is 0, otherwise those of a named server: see
    /// [`Keys::suites`].
    fn suites(&self, server: u32) -> Suites {
        let _ = server;
        Suites::CCM_8
    }

    /// Returns the keys of the endpoint.
    fn keys(&self) -> &impl Keys {
        &NoKeys
    }

    /// Returns the store in which a server keeps sessions for resumption.
    fn resumption(&self) -> &impl Resumption {
        &NoResumption
    }

    /// Returns true if the endpoint may process a ClientHello; if false, the endpoint drops it. The endpoint calls this
    /// function once for each ClientHello, before it parses or answers the ClientHello. A role that limits the number
    /// of ClientHellos counts them in this function.
    fn admits_hello(&self, now: Instant, from: &Address) -> bool {
        let _ = (now, from);
        true
    }
}

/// A role that can be created from the settings of the endpoint alone.
pub trait Configured: Roles {
    /// Returns the role with these settings.
    fn new(config: &Config) -> Self;
}

/// The credentials of an endpoint for handshakes with certificates or raw public keys, and its requirements for the
/// peer.
///
/// This trait does not contain private keys. The handshake asks for a signature with
/// [`Need::Sign`](crate::dtls::need::Need), so that a private key can remain in a chip.
pub trait Keys {
    /// True for the keys of a host: see [`Roles::ON_HOST`].
    const ON_HOST: bool = false;

    /// True if the owner of the endpoint verifies the certificates of a peer one after the other, while they arrive
    /// ([`Need::VerifyCertificate`](crate::dtls::need::Need)). The receive buffer of a handshake then needs space only
    /// for the longest certificate and 6 bytes, and not for the whole list. A certificate that does not fit the buffer
    /// ends the handshake. [`Self::peer_types`] must contain only X.509, because a raw public key is not a list of
    /// certificates.
    ///
    /// If the owner answers before it calls [`Endpoint::handle`](crate::endpoint::Endpoint::handle) again, the
    /// handshake processes all certificates of a datagram. If the owner answers later, fragments may arrive meanwhile.
    /// A fragment that does not fit the buffer is then dropped, and the peer sends it again.
    const CERTIFICATES_IN_PARTS: bool = false;

    /// True if the endpoint answers as several named servers: see [`Self::server`].
    const NAMES: bool = false;

    /// Server: returns the number of the named server that a client requests in server_name (RFC 6066, section 3).
    /// `name` is empty if the ClientHello has no server_name. Compare names without regard to case. The number 0 means
    /// the endpoint itself, which has no name. If the result is `None`, the endpoint refuses the client with the alert
    /// unrecognized_name. The endpoint calls this function only if [`Self::NAMES`] is true, up to three times in one
    /// handshake.
    fn server(&self, name: &[u8]) -> Option<u32> {
        let _ = name;
        Some(0)
    }

    /// Returns a credential. `server` is the number that [`Self::server`] returned for the name that the client
    /// requested; 0 for the endpoint itself. `number` selects one of the credentials of this server. Returns `None` if
    /// there is no credential with this number. The numbers of the credentials of a server begin with 0, and the
    /// highest possible number is 254. A handshake uses the first suitable credential.
    fn credential(&self, server: u32, number: u8) -> Option<Credential<'_>>;

    /// Returns whether a server asks clients for a certificate, and whether it requires one.
    fn client_authentication(&self) -> ClientAuthentication {
        ClientAuthentication::Never
    }

    /// Returns the certificate types that the endpoint accepts from the peer, in order of preference.
    fn peer_types(&self) -> &[CertificateType] {
        &[CertificateType::X509]
    }

    /// Returns the cipher suites of a server, in order of preference. `server` is the number that [`Self::server`]
    /// returned for the name that the client requested; 0 for the endpoint itself, which has no name. A server with a
    /// name uses only suites that the endpoint itself also has.
    fn suites(&self, server: u32) -> Suites {
        let _ = server;
        Suites::ALL
    }

    /// Client: returns the name for the server_name extension (RFC 6066, section 3); empty to send no name.
    fn server_name(&self) -> &[u8] {
        &[]
    }
}

/// One of our public keys, in the form in which we send it to the peer.
#[derive(Clone, Copy, Debug)]
pub struct Credential<'k> {
    /// The certificate type of the key.
    pub certificate_type: CertificateType,
    /// The signature scheme of the key.
    pub scheme: SignatureScheme,
    /// For X.509: our certificate, and then the CA certificates between our certificate and the root, in DER. A length
    /// of three bytes precedes each certificate. For a raw public key: the SubjectPublicKeyInfo.
    pub content: &'k [u8],
}

/// The rule by which a server that has a certificate asks the client for a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientAuthentication {
    /// The server does not ask for a certificate.
    #[default]
    Never,
    /// The server asks for a certificate. A client without a certificate is accepted as
    /// [`Principal::NOBODY`](crate::identity::Principal).
    Asked,
    /// The server asks for a certificate, and ends the handshake with a client that has none.
    Required,
}

/// The implementation of [`Keys`] for an endpoint that has no certificate and no raw public key.
pub(crate) struct NoKeys;

impl Keys for NoKeys {
    fn credential(&self, _: u32, _: u8) -> Option<Credential<'_>> {
        None
    }
}

/// Client and server: opens handshakes, and answers them.
pub struct Both;
/// Client: opens handshakes, and ignores ClientHellos.
pub struct ClientOnly;
/// Server: answers handshakes, and opens none.
pub struct ServerOnly;
/// The role `R` with four features that a mote omits: a choice of cipher suites; extensions that limit the size of
/// records (RFC 8449; RFC 6066, section 4); sessions that are stored outside of the endpoint; and connection ids (RFC
/// 9146).
pub struct Extended<R> {
    role: R,
    suites: Suites,
    record_size_limit: u16,
    mobility: Option<Mobility>,
}
/// The role `R` with the cipher suites that need public keys. `K` is the type of the endpoint's credentials.
pub struct PublicKeys<R, K> {
    /// The role to which public keys are added.
    pub role: R,
    /// The credentials of the endpoint, and its requirements for the peer.
    pub keys: K,
}

/// The role `R` with resumption of sessions: see [`Resumption`](crate::dtls::Resumption). The outgoing buffer of each
/// handshake must have more than 255 bytes.
pub struct Resuming<R, T> {
    /// The role to which resumption is added.
    pub role: R,
    /// The store in which a server keeps sessions for resumption.
    pub sessions: T,
}

impl Roles for Both {
    const CLIENT: bool = true;
    const SERVER: bool = true;
}

impl Roles for ClientOnly {
    const CLIENT: bool = true;
    const SERVER: bool = false;
}

impl Roles for ServerOnly {
    const CLIENT: bool = false;
    const SERVER: bool = true;
}

impl Configured for Both {
    fn new(_: &Config) -> Self {
        Self
    }
}

impl Configured for ClientOnly {
    fn new(_: &Config) -> Self {
        Self
    }
}

impl Configured for ServerOnly {
    fn new(_: &Config) -> Self {
        Self
    }
}

impl<R: Roles> Roles for Extended<R> {
    const CLIENT: bool = R::CLIENT;
    const SERVER: bool = R::SERVER;
    const RESTORES: bool = true;
    const RECORD_SIZE: bool = true;
    const ONE_HELLO: bool = true;
    const HELLO_FRAGMENTS: bool = true;
    const ON_HOST: bool = true;
    const SIMULTANEOUS: bool = R::SIMULTANEOUS;
    const WARNS: bool = true;
    const CONNECTION_ID: bool = true;
    const PUBLIC_KEYS: bool = R::PUBLIC_KEYS;
    const CERTIFICATES_IN_PARTS: bool = R::CERTIFICATES_IN_PARTS;
    const RESUMPTION: bool = R::RESUMPTION;
    const RESUMED: Suites = R::RESUMED;
    const NAMES: bool = R::NAMES;

    fn mobility(&mut self) -> Option<&mut Mobility> {
        self.mobility.as_mut()
    }

    fn record_size_limit(&self) -> u16 {
        self.record_size_limit
    }

    fn suites(&self, _: u32) -> Suites {
        self.suites
    }

    fn keys(&self) -> &impl Keys {
        self.role.keys()
    }

    fn resumption(&self) -> &impl Resumption {
        self.role.resumption()
    }

    fn admits_hello(&self, now: Instant, from: &Address) -> bool {
        self.role.admits_hello(now, from)
    }
}

impl<R: Roles> Extended<R> {
    /// Creates the role from `role`, with the additional features of `config`.
    pub fn with(role: R, config: &Config) -> Self {
        let record_size_limit = match config.record_size_limit {
            0 => 0,
            limit => limit.clamp(record_size::MIN_LIMIT, record_size::MAX_LIMIT),
        };
        let ids = config.connection_id.filter(|_| config.profile == Profile::Default);
        Self { role, suites: config.suites, record_size_limit, mobility: ids.map(Mobility::new) }
    }
}

impl<R: Configured> Configured for Extended<R> {
    fn new(config: &Config) -> Self {
        Self::with(R::new(config), config)
    }
}

impl<R: Roles, K: Keys> Roles for PublicKeys<R, K> {
    const CLIENT: bool = R::CLIENT;
    const SERVER: bool = R::SERVER;
    const RESTORES: bool = R::RESTORES;
    const RECORD_SIZE: bool = R::RECORD_SIZE;
    const ONE_HELLO: bool = R::ONE_HELLO;
    const HELLO_FRAGMENTS: bool = R::HELLO_FRAGMENTS;
    const ON_HOST: bool = R::ON_HOST || K::ON_HOST;
    const SIMULTANEOUS: bool = R::SIMULTANEOUS;
    const WARNS: bool = R::WARNS;
    const CONNECTION_ID: bool = R::CONNECTION_ID;
    const PUBLIC_KEYS: bool = true;
    const CERTIFICATES_IN_PARTS: bool = K::CERTIFICATES_IN_PARTS;
    const RESUMPTION: bool = R::RESUMPTION;
    const RESUMED: Suites = R::RESUMED;
    const NAMES: bool = R::SERVER && K::NAMES;

    fn mobility(&mut self) -> Option<&mut Mobility> {
        self.role.mobility()
    }

    fn record_size_limit(&self) -> u16 {
        self.role.record_size_limit()
    }

    fn suites(&self, server: u32) -> Suites {
        self.keys.suites(server)
    }

    fn keys(&self) -> &impl Keys {
        &self.keys
    }

    fn resumption(&self) -> &impl Resumption {
        self.role.resumption()
    }

    fn admits_hello(&self, now: Instant, from: &Address) -> bool {
        self.role.admits_hello(now, from)
    }
}

impl<R: Roles, T: Resumption> Roles for Resuming<R, T> {
    const CLIENT: bool = R::CLIENT;
    const SERVER: bool = R::SERVER;
    const RESTORES: bool = R::RESTORES;
    const RECORD_SIZE: bool = R::RECORD_SIZE;
    const ONE_HELLO: bool = R::ONE_HELLO;
    const HELLO_FRAGMENTS: bool = R::HELLO_FRAGMENTS;
    const ON_HOST: bool = R::ON_HOST;
    const SIMULTANEOUS: bool = R::SIMULTANEOUS;
    const WARNS: bool = R::WARNS;
    const CONNECTION_ID: bool = R::CONNECTION_ID;
    const PUBLIC_KEYS: bool = R::PUBLIC_KEYS;
    const CERTIFICATES_IN_PARTS: bool = R::CERTIFICATES_IN_PARTS;
    const RESUMPTION: bool = true;
    const RESUMED: Suites = T::SUITES;
    const NAMES: bool = R::NAMES;

    fn mobility(&mut self) -> Option<&mut Mobility> {
        self.role.mobility()
    }

    fn record_size_limit(&self) -> u16 {
        self.role.record_size_limit()
    }

    fn suites(&self, server: u32) -> Suites {
        self.role.suites(server)
    }

    fn keys(&self) -> &impl Keys {
        self.role.keys()
    }

    fn resumption(&self) -> &impl Resumption {
        &self.sessions
    }

    fn admits_hello(&self, now: Instant, from: &Address) -> bool {
        self.role.admits_hello(now, from)
    }
}
