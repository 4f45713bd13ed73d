//! The settings of a server, in groups.

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

/// DEFAULT_LEISURE (RFC 7252, section 4.8.2).
pub const DEFAULT_LEISURE: Duration = Duration::from_secs(5);

/// The settings of a server. Take the default ones and change fields, or use [`Self::with`].
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The addresses at which the server listens.
    pub listen: Vec<Listen>,
    /// The multicast groups that the server joins (RFC 7252, section 8), at the ports of plain CoAP: DTLS has no groups.
    pub groups: Vec<Group>,
    /// The groups that Axiom protects in which the server answers. Each response comes from the address of the membership, and the
    /// port of the group. The members have the rights of its settings.
    pub memberships: Vec<Membership>,
    /// The number of shards, each a thread with its own sockets; 0 selects one for each core.
    pub shards: usize,
    /// Requests, responses, transfers and observations.
    pub coap: ServerCoap,
    /// The DTLS side. The server sets the shard of the connection ids; they have no bytes if there are more than 256
    /// shards.
    pub dtls: Config,
    /// Limits of handshakes and sessions.
    pub sessions: ServerSessions,
    /// The settings of resumption; `None` turns it off.
    pub resumption: Option<ResumptionConfig>,
    /// The devices in whose name the server opens or resumes sessions. Their tickets and ids do not depend on
    /// [`Self::resumption`].
    pub delegate: Option<Arc<dyn Delegate>>,
    /// Receives keying material of each session; `None` if nothing does.
    pub exporter: Option<Exporter>,
    /// The keys of the server, and the sources of the keys of clients.
    pub trust: ServerTrust,
    /// OSCORE contexts, whose requests come to the ports of plain CoAP and of DTLS alike.
    pub oscore: Contexts,
    /// Makes further OSCORE contexts by EDHOC (RFC 9528), with clients whose credentials it has; `None` if nothing does.
    pub edhoc: Option<EdhocServer>,
    /// The database that keeps sessions over an orderly restart and over a power cut. After a power cut the server
    /// answers a client's first request with 4.01 and an Echo option (RFC 9175), and executes the request once the
    /// client repeats the option.
    pub state: Option<Database>,
    /// Reports to the operator.
    pub log: ServerLog,
}

impl ServerConfig {
    /// Returns these settings with a change.
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
    /// Responses to requests to a group wait for a random time up to this.
    pub leisure: Duration,
    /// The time that an application has for a deferred response. Then the client receives 5.03. Checked each second. Choose
    /// less than EXCHANGE_LIFETIME (247 s; RFC 7252, section 4.8.2): clients do not wait longer.
    pub response_timeout: Duration,
    /// Requests of one peer that are answered in a second; more are answered with 4.29 (RFC 8516). 0 sets no limit.
    pub requests_per_second: u32,
    /// True if a client without DTLS has to show that it receives at its address before it is sent an answer more than
    /// three times its request (RFC 9175, section 2.4). Clients that do not know the Echo option are then not served.
    pub verify_addresses: bool,
    /// The most non-confirmable notifications in a row. With 0 each notification is confirmable; the server then sends
    /// no second notification before the client acknowledges the first. A notification that follows sooner than
    /// PROBING_RATE allows (a byte a second; RFC 7252, section 4.7) is also confirmable if the server has heard
    /// nothing from the client.
    pub unconfirmed_notifications: u8,
    /// Longest body of a request or of a response that is not GET's, in bytes (RFC 7959).
    pub max_body: usize,
    /// The most bytes of such bodies that the server holds at once, for all peers and shards together. Bodies without
    /// DTLS have half of it. With less than four times [`Self::max_body`], bodies of that size sometimes find no space.
    pub max_bodies: usize,
    /// The most bytes for exchanges of all peers and shards together: three quarters for replies, so that a repeated
    /// request is answered again and not executed for EXCHANGE_LIFETIME (247 s; RFC 7252, section 4.8.2), and a quarter for
    /// messages that wait for an acknowledgement. An index takes up to 22 bytes more for each reply. The default is
    /// enough for 1,000,000 sessions that each asked once in that time, with replies of up to 180 bytes. Where the bytes
    /// are taken by requests that must not be executed twice, further ones are answered with 5.03; others are served.
    pub max_exchange_bytes: usize,
    /// Peers without DTLS whose CoAP state (exchanges and observations) is kept, for all shards together. When twice as
    /// many are reached, peers without observations are forgotten first, oldest first.
    pub max_unauthenticated: usize,
    /// Observations (RFC 7641) for all peers together.
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
    /// Peers and handshakes, for all shards together.
    pub capacity: Capacity,
    /// ClientHellos that are answered.
    pub hellos: HelloLimits,
    /// Signatures and decryptions with RSA keys and keys in a TPM in a second, for clients that have proved nothing yet;
    /// 0 sets no limit. Further handshakes wait, for about half a second; those that waited longest are then given up, those of
    /// network prefixes with many of them first, and their clients begin again. Signatures with ECDSA keys in memory are not
    /// counted: they take no longer than the rest of a handshake.
    pub signatures_per_second: u32,
}

impl Default for ServerSessions {
    fn default() -> Self {
        Self { capacity: Capacity::default(), hellos: HelloLimits::default(), signatures_per_second: 500 }
    }
}

/// The keys of a server, and the clients that it serves beside those of its credentials.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerTrust {
    /// True if requests over plain CoAP are served.
    pub plain_allowed: bool,
    /// The public keys of the server, and the clients that it trusts. Without it there are only the suites of
    /// [`ServerConfig::dtls`], with pre-shared keys.
    pub public_keys: Option<PublicKeys>,
    /// A source of keys that the credentials do not have.
    pub key_store: Option<Arc<dyn KeyStore>>,
    /// The server acts on an answer of the key store when a multiple of this time has passed since its question, so that
    /// the delay does not reveal whether an identity exists. Choose more than the usual delay of the store.
    pub key_store_answers_every: Duration,
}

impl Default for ServerTrust {
    fn default() -> Self {
        let key_store_answers_every = Duration::from_millis(50);
        Self { plain_allowed: false, public_keys: None, key_store: None, key_store_answers_every }
    }
}

/// Reports to the operator of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerLog {
    /// File for a key log (RFC 9850). Anyone who can read this file can decrypt the traffic.
    pub key_log: Option<PathBuf>,
    /// True to report every request, and each block, to the event sink. Otherwise only requests with a 5.xx response are
    /// reported.
    pub report_requests: bool,
}

impl Default for ServerLog {
    fn default() -> Self {
        Self { key_log: None, report_requests: true }
    }
}

/// The settings that a server can change while it runs: see [`Server::set_limits`](super::Server::set_limits). Each field has
/// the meaning of the field of this name in [`ServerCoap`], [`ServerSessions`] or [`ServerLog`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ServerLimits {
    /// See [`ServerCoap::leisure`].
    pub leisure: Duration,
    /// See [`ServerCoap::response_timeout`].
    pub response_timeout: Duration,
    /// See [`ServerCoap::requests_per_second`].
    pub requests_per_second: u32,
    /// See [`ServerCoap::verify_addresses`].
    pub verify_addresses: bool,
    /// See [`ServerCoap::unconfirmed_notifications`].
    pub unconfirmed_notifications: u8,
    /// See [`ServerCoap::max_body`].
    pub max_body: usize,
    /// See [`ServerCoap::max_bodies`].
    pub max_bodies: usize,
    /// See [`ServerSessions::hellos`].
    pub hellos: HelloLimits,
    /// See [`ServerLog::report_requests`].
    pub report_requests: bool,
}

impl ServerLimits {
    /// The limits of these settings.
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
