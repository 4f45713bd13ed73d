//! The roles of an endpoint, client, server or both, as types, so that an image links no code for an unused role.

use super::connection_id::Mobility;
use crate::address::Address;
use crate::crypto::SignatureScheme;
use crate::dtls::handshake::certificate::CertificateType;
use crate::dtls::resumption::{NoResumption, Resumption};
use crate::dtls::{Config, Profile, Suites, record_size};
use crate::time::Instant;

/// The roles of an endpoint. This is a type, so that an image links no code for an unused role.
pub trait Roles {
    /// True if the role opens handshakes.
    const CLIENT: bool;
    /// True if the role answers handshakes.
    const SERVER: bool;
    /// True if the role restores sessions that were kept outside ([`Session`](crate::dtls::Session)).
    const RESTORES: bool = false;
    /// True if the role supports a record size limit (RFC 8449).
    const RECORD_SIZE: bool = false;
    /// True if the role answers at most one ClientHello of a datagram, and only the first record. A mote answers each
    /// ClientHello, with no more bytes than it has.
    const ONE_HELLO: bool = false;
    /// True if a server reassembles ClientHellos that arrive in fragments; a mote refuses them.
    const HELLO_FRAGMENTS: bool = false;
    /// True for a host, which has more space for code than a mote. A host copies a fragment of which no byte has
    /// arrived before as a whole, which is faster for certificates. The time of its key exchange does not depend on the
    /// length of a pre-shared key, so that it does not reveal which identities exist.
    const ON_HOST: bool = false;
    /// True if an end that connects to a peer, and is connected to by it at the same time, becomes client or server by a
    /// rule ([`Endpoint::connect`](crate::endpoint::Endpoint::connect)). Without the rule it stays client.
    const SIMULTANEOUS: bool = Self::CLIENT && Self::SERVER;
    /// True if a server answers a request for renegotiation with a warning; a mote sends nothing.
    const WARNS: bool = false;

    /// True if the role supports connection ids (RFC 9146), and so return routability.
    const CONNECTION_ID: bool = false;
    /// True if the role supports the cipher suites that need public keys: see [`PublicKeys`].
    const PUBLIC_KEYS: bool = false;
    /// True if certificates are verified as they arrive: see [`Keys::CERTIFICATES_IN_PARTS`].
    const CERTIFICATES_IN_PARTS: bool = false;
    /// True if the role resumes sessions: see [`Resuming`].
    const RESUMPTION: bool = false;
    /// Cipher suites that the role resumes and does not offer: see [`Resumption::SUITES`].
    const RESUMED: Suites = Suites(&[]);
    /// True if the endpoint answers as several named servers: see [`Keys::server`].
    const NAMES: bool = false;
    /// True if handshakes keep more than one text, and their flights differ.
    const KEEPS: bool = Self::PUBLIC_KEYS || Self::RESUMPTION;

    /// Returns the longest content of a record that this end accepts, in bytes; 0 if it announces no limit.
    fn record_size_limit(&self) -> u16 {
        0
    }

    /// Returns the settings and state of connection ids; `None` if they are not used.
    fn mobility(&mut self) -> Option<&mut Mobility> {
        None
    }

    /// Returns the cipher suites of the endpoint, or of a named server: see [`Keys::suites`].
    fn suites(&self, server: u32) -> Suites {
        let _ = server;
        Suites::CCM_8
    }

    /// Returns the keys of the endpoint.
    fn keys(&self) -> &impl Keys {
        &NoKeys
    }

    /// Returns the store of a server's sessions for resumption.
    fn resumption(&self) -> &impl Resumption {
        &NoResumption
    }

    /// Returns false to drop a ClientHello. The endpoint calls it once for each ClientHello, before it parses or
    /// answers it. A limit of ClientHellos counts here.
    fn admits_hello(&self, now: Instant, from: &Address) -> bool {
        let _ = (now, from);
        true
    }
}

/// A role that needs only the settings.
pub trait Configured: Roles {
    /// Returns the role with these settings.
    fn new(config: &Config) -> Self;
}

/// The keys of an endpoint in handshakes with certificates or raw public keys, and its demands on the peer.
///
/// Private keys are not here: a signature is asked for by [`Need::Sign`](crate::dtls::need::Need), so that a key may stay
/// in a chip.
pub trait Keys {
    /// True for the keys of a host: see [`Roles::ON_HOST`].
    const ON_HOST: bool = false;

    /// True if the certificates of a peer are verified as they arrive, one at a time
    /// ([`Need::VerifyCertificate`](crate::dtls::need::Need)), so that the receive buffer of a handshake holds the longest
    /// certificate and 6 bytes, and not the list. A longer certificate ends the handshake. No type of certificate but
    /// X.509 may be among [`Self::peer_types`]: a raw public key does not parse.
    ///
    /// An owner that answers before it calls [`Endpoint::handle`](crate::endpoint::Endpoint::handle) again takes all
    /// certificates of a datagram. If the answer comes later, a fragment that does not fit until then is dropped, and the peer
    /// sends it again.
    const CERTIFICATES_IN_PARTS: bool = false;

    /// True if the endpoint answers as several named servers: see [`Self::server`].
    const NAMES: bool = false;

    /// Server: returns the number of the server that a client names in server_name (RFC 6066, section 3). `name` is
    /// empty if the ClientHello has no server_name. Compare it without regard to case. The number is 0 for the server
    /// without a name. `None` refuses the client with unrecognized_name. Only called with [`Self::NAMES`], up to three
    /// times in one handshake.
    fn server(&self, name: &[u8]) -> Option<u32> {
        let _ = name;
        Some(0)
    }

    /// Returns the credential with this number. `server` is the number of a named server, or 0 for the endpoint itself.
    /// Credentials are numbered from 0 on, up to 254; a handshake takes the first that it can use.
    fn credential(&self, server: u32, number: u8) -> Option<Credential<'_>>;

    /// Returns whether a server asks clients for a certificate.
    fn client_authentication(&self) -> ClientAuthentication {
        ClientAuthentication::Never
    }

    /// Returns the certificate types that the endpoint accepts from the peer, in order of preference.
    fn peer_types(&self) -> &[CertificateType] {
        &[CertificateType::X509]
    }

    /// Returns the cipher suites of a named server in order of preference, or those of the endpoint itself if `server`
    /// is 0. A named server uses only suites that the endpoint itself also has.
    fn suites(&self, server: u32) -> Suites {
        let _ = server;
        Suites::ALL
    }

    /// Client: returns the name of the server to ask for in server_name (RFC 6066, section 3); empty to send no name.
    fn server_name(&self) -> &[u8] {
        &[]
    }
}

/// A public key of ours, as we send it to the peer.
#[derive(Clone, Copy, Debug)]
pub struct Credential<'k> {
    /// The certificate type of the key.
    pub certificate_type: CertificateType,
    /// The signature scheme of the key.
    pub scheme: SignatureScheme,
    /// For X.509 our certificate and those above it, in DER, each after its length in three bytes; otherwise the
    /// SubjectPublicKeyInfo.
    pub content: &'k [u8],
}

/// The request of a server with a certificate for a certificate of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientAuthentication {
    /// The server does not ask.
    #[default]
    Never,
    /// The server asks, and accepts a client without a certificate as [`Principal::NOBODY`](crate::identity::Principal).
    Asked,
    /// The server asks, and ends the handshake with a client without a certificate.
    Required,
}

/// No credentials.
pub(crate) struct NoKeys;

impl Keys for NoKeys {
    fn credential(&self, _: u32, _: u8) -> Option<Credential<'_>> {
        None
    }
}

/// Opens handshakes and answers them.
pub struct Both;
/// Opens handshakes; ignores ClientHellos.
pub struct ClientOnly;
/// Answers handshakes; opens none.
pub struct ServerOnly;
/// The role `R` with features that a mote omits: a choice of cipher suites, extensions that limit the size of records
/// (RFC 8449; RFC 6066, section 4), sessions that are kept outside, connection ids (RFC 9146).
pub struct Extended<R> {
    role: R,
    suites: Suites,
    record_size_limit: u16,
    mobility: Option<Mobility>,
}
/// The role `R` with cipher suites that need public keys, and with the keys of the endpoint.
pub struct PublicKeys<R, K> {
    /// The role.
    pub role: R,
    /// The keys of the endpoint, and its demands on the peer.
    pub keys: K,
}

/// The role `R`, with resumption of sessions: see [`Resumption`](crate::dtls::Resumption). The send buffers of its
/// handshakes must have more than 255 bytes.
pub struct Resuming<R, T> {
    /// The role.
    pub role: R,
    /// The store of a server's sessions.
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
    /// Extends `role`.
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
