//! The settings of a server, in groups.

use super::group_observation::GroupObservation;
use super::{Exporter, HelloLimits, Listen};
use crate::contexts::Contexts;
use crate::credentials::KeyStore;
use crate::delegate::Delegate;
use crate::edhoc::EdhocServer;
use crate::group::{Group, Membership};
use crate::public_keys::PublicKeys;
use crate::resumption::ResumptionConfig;
use crate::slab::Capacity;
use crate::state::Database;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tegmen::dtls::{Config, ConnectionIdConfig, Suites};

/// The default maximum delay of a response to a request to a group (DEFAULT_LEISURE; RFC 7252, section 4.8.2).
pub const DEFAULT_LEISURE: Duration = Duration::from_secs(5);

/// The settings of a server. Begin with the default settings. Then change fields directly, or by [`Self::with`].
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The addresses at which the server listens.
    pub listen: Vec<Listen>,
    /// The multicast groups that the server joins (RFC 7252, section 8), at the ports for CoAP without DTLS. DTLS has
    /// no multicast.
    pub groups: Vec<Group>,
    /// The memberships of the server in groups that Axiom protects. The server answers the requests of the other
    /// members. Each response is sent from the address of the membership and from the port of the group. The settings
    /// of the membership contain the rights of the other members.
    pub memberships: Vec<Membership>,
    /// The resources whose observers get one notification together, at the address of a group.
    pub group_observations: Vec<GroupObservation>,
    /// The number of shards. Each shard is a thread with its own sockets; 0 selects one shard for each core.
    pub shards: usize,
    /// The settings of requests, responses, transfers and observations.
    pub coap: ServerCoap,
    /// The DTLS settings. The server itself sets the first byte of its connection ids, which is the number of the
    /// shard. One byte can number only 256 shards, so with more shards the connection ids of the server are empty.
    pub dtls: Config,
    /// Limits of handshakes and sessions.
    pub sessions: ServerSessions,
    /// The settings of resumption; `None` turns it off.
    pub resumption: Option<ResumptionConfig>,
    /// The devices in whose name the server opens or resumes sessions; `None` if there are no such devices. The tickets
    /// and session ids of these devices do not depend on [`Self::resumption`].
    pub delegate: Option<Arc<dyn Delegate>>,
    /// The label of the keying material that each session exports (RFC 5705), and the function that receives this
    /// material. With `None`, sessions export nothing.
    pub exporter: Option<Exporter>,
    /// The keys of the server, and the sources of the keys of clients.
    pub trust: ServerTrust,
    /// The OSCORE contexts of the server. Requests that these contexts protect can arrive at the ports for CoAP without
    /// DTLS and at the ports for DTLS.
    pub oscore: Contexts,
    /// The settings of EDHOC (RFC 9528), with the credentials of the clients. By EDHOC the server agrees on further
    /// OSCORE contexts with these clients. `None` turns EDHOC off.
    pub edhoc: Option<EdhocServer>,
    /// The database that keeps sessions over an orderly restart and over a power cut; `None` keeps no sessions. After a
    /// power cut the server answers the first request of a client with 4.01 and an Echo option (RFC 9175), and executes
    /// the request when the client sends it again with this option.
    pub state: Option<Database>,
    /// The settings of reports to the operator.
    pub log: ServerLog,
}

impl ServerConfig {
    /// Changes these settings with the function `change`, and returns them.
    ///
    /// ```
    /// let config = tegmen_host::server::ServerConfig::default().with(|config| config.shards = 1);
    /// assert_eq!(config.shards, 1);
    /// ```
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        let idle_timeout = Duration::from_secs(24 * 3600);
        Self {
            listen: Vec::new(),
            groups: Vec::new(),
            memberships: Vec::new(),
            group_observations: Vec::new(),
            shards: 0,
            coap: ServerCoap::default(),
            dtls: Config {
                idle_timeout,
                suites: Suites::CCM_8_THEN_GCM,
                connection_id: Some(ConnectionIdConfig::default()),
                ..Config::default()
            },
            sessions: ServerSessions::default(),
            resumption: Some(ResumptionConfig::default()),
            delegate: None,
            exporter: None,
            trust: ServerTrust::default(),
            oscore: Contexts::default(),
            edhoc: None,
            state: None,
            log: ServerLog::default(),
        }
    }
}

/// The settings of CoAP at a server: times and limits of requests, responses, transfers and observations.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerCoap {
    /// The maximum random delay of a response to a request that was sent to a group.
    pub leisure: Duration,
    /// The time that an application has for a deferred response. After this time the client receives 5.03. The server
    /// checks this time once a second. Choose less than EXCHANGE_LIFETIME (247 s; RFC 7252, section 4.8.2), because
    /// clients do not wait longer for a response.
    pub response_timeout: Duration,
    /// Number of requests that one peer may make in a second. Further requests are answered with 4.29 (RFC 8516). A
    /// repeated request counts only if the server keeps no reply to it: see [`Self::max_exchange_bytes`]. 0 sets no
    /// limit.
    pub requests_per_second: u32,
    /// True if a client without DTLS has to prove its address with an Echo option (RFC 9175, section 2.4). Before this
    /// proof the server executes only requests that change nothing, such as GET, and sends no response that is more
    /// than three times as long as its request. A response that the application sends later is confirmable: the server
    /// sends it again, up to four times, while no acknowledgement arrives.
    pub verify_addresses: bool,
    /// The maximum number of consecutive non-confirmable notifications. With 0 each notification is confirmable, and
    /// the server sends no second notification before the client acknowledges the first. While the client sends
    /// nothing, PROBING_RATE (a byte a second; RFC 7252, section 4.7) also limits the non-confirmable notifications to
    /// this client. A notification that exceeds this rate is confirmable.
    pub unconfirmed_notifications: u8,
    /// Maximum length in bytes of a request body, or of a response body of a method other than GET (RFC 7959).
    pub max_body: usize,
    /// Maximum number of bytes that request bodies, and response bodies of methods other than GET, take in memory, for
    /// all peers and shards together. Bodies without DTLS and without OSCORE can take half of these bytes. If the value
    /// is less than four times [`Self::max_body`], a body of maximum length may find no space.
    pub max_bodies: usize,
    /// Maximum number of bytes in memory for the exchanges of all peers and shards together. Three quarters are for
    /// replies: for EXCHANGE_LIFETIME (247 s; RFC 7252, section 4.8.2) a repeated request gets the same reply, and is
    /// not executed again. Only for a response from the cache of a proxy the server keeps no reply: it searches the
    /// cache again. One quarter is for messages that wait for an acknowledgement. An index takes up to 22 additional
    /// bytes for each reply. The default is enough for 1,000,000 sessions that each make one request in 247 seconds,
    /// with replies of up to 180 bytes. If replies to requests that must not be executed twice take all bytes, further
    /// requests of this kind are answered with 5.03. Other requests are still served.
    pub max_exchange_bytes: usize,
    /// Number of peers without DTLS whose CoAP state (exchanges and observations) is kept, for all shards together.
    /// When there are twice this number of such peers, the server forgets half of them. It forgets the peers without
    /// observations before the others, and older peers before newer ones.
    pub max_unauthenticated: usize,
    /// Maximum number of observations (RFC 7641) for all peers together.
    pub max_observations: usize,
}

impl Default for ServerCoap {
    fn default() -> Self {
        Self {
            leisure: DEFAULT_LEISURE,
            response_timeout: Duration::from_secs(120),
            requests_per_second: 0,
            verify_addresses: false,
            unconfirmed_notifications: 0,
            max_body: 1 << 20,
            max_bodies: 64 << 20,
            max_exchange_bytes: 256 << 20,
            max_unauthenticated: 1 << 14,
            max_observations: 1 << 20,
        }
    }
}

/// Limits of handshakes and sessions.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ServerSessions {
    /// Maximum numbers of peers and handshakes, for all shards together.
    pub capacity: Capacity,
    /// Limits of the ClientHellos that the server answers.
    pub hellos: HelloLimits,
    /// Maximum number of signatures and decryptions in a second with RSA keys and keys in a TPM, for clients that have
    /// not proved an identity yet; 0 sets no limit. Further handshakes wait for about half a second. If too many
    /// handshakes wait, the server gives up one of them for each new handshake. It first gives up handshakes from
    /// network prefixes with many waiting handshakes, and older handshakes before newer ones. The client of a handshake
    /// that was given up begins again. Signatures with ECDSA keys in memory are not counted, because they take no
    /// longer than the rest of a handshake.
    pub signatures_per_second: u32,
}

impl Default for ServerSessions {
    fn default() -> Self {
        Self { capacity: Capacity::default(), hellos: HelloLimits::default(), signatures_per_second: 500 }
    }
}

/// The keys of a server, and the trusted clients that are not in its credentials.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerTrust {
    /// True if the server serves requests over CoAP in clear.
    pub plain_allowed: bool,
    /// The public keys of the server, and the clients that it trusts. With `None` the server has only the cipher suites
    /// of [`ServerConfig::dtls`] that use pre-shared keys.
    pub public_keys: Option<PublicKeys>,
    /// A source of pre-shared keys that the credentials do not have; `None` if there is no such source.
    pub key_store: Option<Arc<dyn KeyStore>>,
    /// An interval that delays the answers of the key store: the server uses an answer only when a multiple of this
    /// interval has passed since it asked the key store. So the delay does not reveal if an identity exists. Choose an
    /// interval that is longer than the usual delay of the key store.
    pub key_store_answers_every: Duration,
}

impl Default for ServerTrust {
    fn default() -> Self {
        let key_store_answers_every = Duration::from_millis(50);
        Self { plain_allowed: false, public_keys: None, key_store: None, key_store_answers_every }
    }
}

/// The settings of the reports to the operator of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerLog {
    /// The path of the key log (RFC 9850); `None` writes no key log. A reader of this file can decrypt the traffic.
    pub key_log: Option<PathBuf>,
    /// True if the server reports every request, and each block of a transfer, to the event function. If this is false,
    /// the server reports only requests that it answered with a 5.xx response.
    pub report_requests: bool,
}

impl Default for ServerLog {
    fn default() -> Self {
        Self { key_log: None, report_requests: true }
    }
}

/// The settings that a server can change while it runs: see [`Server::set_limits`](super::Server::set_limits). Each
/// field has the meaning of the field with the same name in [`ServerCoap`], [`ServerSessions`] or [`ServerLog`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ServerLimits {
    /// The maximum random delay of a response to a request that was sent to a group: see [`ServerCoap::leisure`].
    pub leisure: Duration,
    /// The time that an application has for a deferred response: see [`ServerCoap::response_timeout`].
    pub response_timeout: Duration,
    /// Number of requests that one peer may make in a second: see [`ServerCoap::requests_per_second`].
    pub requests_per_second: u32,
    /// True if a client without DTLS has to prove its address: see [`ServerCoap::verify_addresses`].
    pub verify_addresses: bool,
    /// The maximum number of consecutive non-confirmable notifications: see [`ServerCoap::unconfirmed_notifications`].
    pub unconfirmed_notifications: u8,
    /// Maximum length of a body in bytes: see [`ServerCoap::max_body`].
    pub max_body: usize,
    /// Maximum number of bytes that all bodies take in memory: see [`ServerCoap::max_bodies`].
    pub max_bodies: usize,
    /// Limits of the ClientHellos that the server answers: see [`ServerSessions::hellos`].
    pub hellos: HelloLimits,
    /// True if the server reports every request: see [`ServerLog::report_requests`].
    pub report_requests: bool,
}

impl ServerLimits {
    /// Returns the limits in these settings.
    pub(crate) const fn new(coap: &ServerCoap, hellos: HelloLimits, report_requests: bool) -> Self {
        Self {
            leisure: coap.leisure,
            response_timeout: coap.response_timeout,
            requests_per_second: coap.requests_per_second,
            verify_addresses: coap.verify_addresses,
            unconfirmed_notifications: coap.unconfirmed_notifications,
            max_body: coap.max_body,
            max_bodies: coap.max_bodies,
            hellos,
            report_requests,
        }
    }
}

impl From<&ServerConfig> for ServerLimits {
    fn from(config: &ServerConfig) -> Self {
        Self::new(&config.coap, config.sessions.hellos, config.log.report_requests)
    }
}
