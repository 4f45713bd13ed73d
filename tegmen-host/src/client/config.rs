//! The settings of a client, in groups.

use super::{ClientKey, ResumableSession, Tap};
use crate::edhoc::EdhocKeys;
use crate::public_keys::PublicKeys;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tegmen::dtls::{Config, Suites};

/// The settings of a client. Begin with the default settings, or with the settings that [`Self::psk`] returns. Then
/// change fields directly, or by [`Self::with`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The keys of the client, and the servers that it trusts.
    pub trust: ClientTrust,
    /// The settings of requests, responses and transfers.
    pub coap: ClientCoap,
    /// The DTLS settings.
    pub dtls: Config,
    /// The label of the keying material that each session exports (RFC 5705). The label begins with `EXPORTER`. `None`
    /// exports nothing. See [`Session::exported`](super::Session::exported).
    pub export: Option<&'static [u8]>,
    /// The directory of an OSCORE context (see [`crate::contexts`]). The context protects every request. A request that
    /// the context cannot protect is not sent. With `None`, requests are not protected by OSCORE, unless
    /// [`Self::edhoc`] is set.
    pub oscore: Option<PathBuf>,
    /// The name of the group member to which the client sends its requests, if [`Self::oscore`] contains the context of
    /// a group (RFC 10021). If the group has only two members, the name is not necessary.
    pub oscore_member: Option<String>,
    /// The keys for EDHOC (RFC 9528). With these keys the client agrees on an OSCORE context with each server, before
    /// the first request to this server. This context then protects every request. If [`Self::oscore`] is set, these
    /// keys have no effect.
    pub edhoc: Option<Arc<EdhocKeys>>,
    /// The files in which the client stores sessions for later clients.
    pub state: ClientState,
    /// The behaviour of the client after a server ended a session, or stopped answering.
    pub recovery: ClientRecovery,
    /// The logs of keys and datagrams.
    pub log: ClientLog,
}

impl ClientConfig {
    /// Returns the default settings with a pre-shared key of 1 to 64 bytes.
    pub fn psk(identity: impl Into<String>, key: impl Into<Vec<u8>>) -> Self {
        let key = ClientKey { identity: identity.into(), key: key.into().into() };
        Self::default().with(|config| config.trust.key = Some(key))
    }

    /// Returns these settings after the function has changed them.
    ///
    /// ```
    /// let config = tegmen_host::client::ClientConfig::default().with(|config| config.coap.nstart = 4);
    /// assert_eq!(config.coap.nstart, 4);
    /// ```
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            trust: ClientTrust::default(),
            coap: ClientCoap::default(),
            dtls: Config {
                handshake_timeout: Duration::from_secs(30),
                suites: Suites::CCM_8_THEN_GCM,
                ..Config::default()
            },
            export: None,
            oscore: None,
            oscore_member: None,
            edhoc: None,
            state: ClientState::default(),
            recovery: ClientRecovery::default(),
            log: ClientLog::default(),
        }
    }
}

/// The keys of a client, and the servers that it trusts.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct ClientTrust {
    /// A pre-shared key. `coaps` needs this key or [`Self::public_keys`].
    pub key: Option<ClientKey>,
    /// The public keys of the client, and the servers that it trusts. If [`PublicKeys::expecting`] sets no name, a
    /// certificate of the server must contain the host of the URI. Without a URI, the certificate must contain the
    /// address of the server.
    pub public_keys: Option<PublicKeys>,
}

/// The settings of CoAP at a client: times and limits of requests, responses and transfers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientCoap {
    /// The time limit of one exchange. Each block of a longer request or response is one exchange.
    pub timeout: Duration,
    /// Length of each token in bytes, 0 to 8. Without protection a token must be hard to guess (RFC 7252, section
    /// 5.3.1).
    pub token_len: usize,
    /// True for confirmable requests, which the client retransmits until the server acknowledges them. If the server
    /// does not answer non-confirmable requests, the client sends only one byte a second (PROBING_RATE of RFC 7252,
    /// section 4.7), and further requests wait.
    pub confirmable: bool,
    /// Maximum number of requests that may wait for the server at the same time (NSTART; RFC 7252, section 4.7). Other
    /// requests wait in a queue. A request that was acknowledged no longer counts, even if its separate response has
    /// not come yet.
    pub nstart: usize,
    /// Maximum number of requests in the queue, in which requests wait because of [`Self::nstart`]. Further requests
    /// fail at once.
    pub max_queued: usize,
    /// Maximum block size that the client requests and sends, in bytes (RFC 7959). It is a power of two from 16 to
    /// 1024.
    pub block_size: usize,
    /// Maximum length of the body of a response, in bytes.
    pub max_body: usize,
    /// True if the client accepts that a server sends the notifications of an observation to the address of a group,
    /// without protection (draft-ietf-core-observe-multicast-notifications-14). Anyone can forge these notifications.
    /// Notifications that Group OSCORE protects do not need this setting.
    pub multicast_in_clear: bool,
}

impl Default for ClientCoap {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(90),
            token_len: 4,
            confirmable: true,
            nstart: 1,
            max_queued: 1024,
            block_size: tegmen::coap::block::MAX_SIZE,
            max_body: 64 << 20,
            multicast_in_clear: false,
        }
    }
}

/// The files that a client stores for later clients. They contain secrets.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct ClientState {
    /// The path at which the client stores its DTLS session, so that the next client continues the session without a
    /// handshake. The path is a file, or a directory with a file for each server. If this path is set,
    /// [`Session::close`](super::Session::close) stores the session, and does not end it. `None` stores no session.
    pub session: Option<PathBuf>,
    /// The directory of sessions that the client can resume without a key exchange. The client uses the ticket (RFC
    /// 5077) or the session id that the server gave, and makes the directory if it does not exist. With `None`, the
    /// client does not resume sessions from files.
    pub resume: Option<PathBuf>,
    /// True to keep the ticket or session id of each new session in memory, for an application that hands the session
    /// over to another client: see [`Session::take_resumable`](super::Session::take_resumable).
    pub hand_over: bool,
    /// A session that another client opened and handed over. This client resumes the session, and needs no keys. If the
    /// server sends requests to this client, the requests have the principal that is stored in the session. If the
    /// server does not resume the session, the client opens no session.
    pub handed_over: Option<Arc<ResumableSession>>,
}

/// The behaviour of a client whose server ends a session, or is silent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientRecovery {
    /// True if the client begins a new session after a session has ended. A session also counts as ended if the server
    /// answers neither a confirmable message nor its first two retransmissions, for example because the server
    /// restarted without its sessions. In the new session the client repeats its requests, except POST and PATCH, and
    /// registers its observations again.
    pub reconnect: bool,
    /// Maximum time for which a client with an observation waits for the next message of the server. This maximum
    /// applies even if the Max-Age of the last representation is longer. After this time, and a further random time of
    /// up to a quarter of this time, the client sends a request, which shows if the server still knows the observation.
    /// `None` sets no maximum.
    pub alive: Option<Duration>,
}

impl Default for ClientRecovery {
    fn default() -> Self {
        Self { reconnect: true, alive: None }
    }
}

/// The logs of keys and datagrams of a client.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct ClientLog {
    /// The path of the key log (RFC 9850); `None` writes no key log. A reader of this file can decrypt the traffic.
    pub key_log: Option<PathBuf>,
    /// A function that receives every datagram and the secrets. The client calls this function while it holds the lock
    /// of the endpoint, so the function must not use the session.
    pub tap: Option<Tap>,
}
