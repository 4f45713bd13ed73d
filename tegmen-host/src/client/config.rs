//! The settings of a client, in groups.

use super::{ClientKey, ResumableSession, Tap};
use crate::edhoc::EdhocKeys;
use crate::public_keys::PublicKeys;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tegmen::dtls::{Config, Suites};

/// The settings of a client. Take the default ones or those of [`Self::psk`] and change fields, or use [`Self::with`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The keys of the client, and the servers that it trusts.
    pub trust: ClientTrust,
    /// Requests, responses and transfers.
    pub coap: ClientCoap,
    /// The DTLS side.
    pub dtls: Config,
    /// The label of the keying material that each session exports (RFC 5705), which begins with `EXPORTER`: see
    /// [`Session::exported`](super::Session::exported).
    pub export: Option<&'static [u8]>,
    /// Directory of an OSCORE context (see [`crate::contexts`]): every request is protected with it, or not sent.
    pub oscore: Option<PathBuf>,
    /// The name of the member of a group that is asked, where [`Self::oscore`] has the context of a group (RFC 10021). Not necessary in a
    /// group of two.
    pub oscore_member: Option<String>,
    /// The keys with which the client agrees on an OSCORE context with each server, by EDHOC (RFC 9528), before its first request:
    /// every request is then protected. Without effect beside [`Self::oscore`].
    pub edhoc: Option<Arc<EdhocKeys>>,
    /// Files that later clients use.
    pub state: ClientState,
    /// The conduct of the client after a session or an observation ended silently.
    pub recovery: ClientRecovery,
    /// Logs of keys and datagrams.
    pub log: ClientLog,
}

impl ClientConfig {
    /// Returns the default settings with a pre-shared key of 1 to 64 bytes.
    pub fn psk(identity: impl Into<String>, key: impl Into<Vec<u8>>) -> Self {
        let key = ClientKey { identity: identity.into(), key: key.into().into() };
        Self::default().with(|config| config.trust.key = Some(key))
    }

    /// Returns these settings with a change.
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
    /// A pre-shared key: this or [`Self::public_keys`] is needed for `coaps`.
    pub key: Option<ClientKey>,
    /// The public keys of the client, and the servers that it trusts.
    pub public_keys: Option<PublicKeys>,
}

/// The settings of CoAP at a client: times and limits of requests, responses and transfers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientCoap {
    /// The time limit of one exchange: a request, or each block of a longer one.
    pub timeout: Duration,
    /// Bytes of each token, 0 to 8. Without protection a token must be hard to guess (RFC 7252, section 5.3.1).
    pub token_len: usize,
    /// True for confirmable requests, which are retransmitted until the server acknowledges them. While the server does
    /// not answer, non-confirmable requests wait for one another: a byte a second is sent then (PROBING_RATE of RFC 7252,
    /// section 4.7).
    pub confirmable: bool,
    /// Requests that may wait for the server at the same time (NSTART; RFC 7252, section 4.7); others wait in a queue. A
    /// request that was acknowledged does not count while its response comes separately.
    pub nstart: usize,
    /// Requests in the queue behind [`Self::nstart`]; further ones fail at once.
    pub max_queued: usize,
    /// Largest block size to request and to send, in bytes: 16, 32, 64 ... 1024 (RFC 7959).
    pub block_size: usize,
    /// Longest body of a response, in bytes.
    pub max_body: usize,
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
        }
    }
}

/// Files that a client keeps for later clients. They hold secrets.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct ClientState {
    /// The place that stores the DTLS session, so that the next client continues it without a handshake: a file, or a
    /// directory with a file for each server. [`Session::close`](super::Session::close) then leaves the session open.
    pub session: Option<PathBuf>,
    /// Directory of sessions that the client can resume without a key exchange: by a ticket (RFC 5077) or an id, whichever
    /// the server gives. The client makes the directory if it does not exist.
    pub resume: Option<PathBuf>,
    /// True to keep in memory the means to resume each new session, for an end that hands the session over: see
    /// [`Session::take_resumable`](super::Session::take_resumable).
    pub hand_over: bool,
    /// A session that another end opened and handed over: the client resumes it, and needs no keys. Its principal is that of the server
    /// in requests to the client. If the server does not resume the session, the client opens none.
    pub handed_over: Option<Arc<ResumableSession>>,
}

/// The conduct of a client whose server ends a session, or is silent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientRecovery {
    /// True to begin another session where one is over: the server ended it, or answers neither a confirmable message nor
    /// its first two retransmissions, as a server that restarted without its sessions. Requests are repeated then, except
    /// POST and PATCH, and observations registered again.
    pub reconnect: bool,
    /// Longest silence of an observed server, for any Max-Age. The client then sends a request, which shows whether the
    /// server still knows the observation. A random part of up to a quarter is added.
    pub alive: Option<Duration>,
}

impl Default for ClientRecovery {
    fn default() -> Self {
        Self { reconnect: true, alive: None }
    }
}

/// Logs of keys and datagrams at a client.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct ClientLog {
    /// File for a key log (RFC 9850). Anyone who can read this file can decrypt the traffic.
    pub key_log: Option<PathBuf>,
    /// Sees every datagram, and the secrets. It is called under the lock of the session, and must not use it.
    pub tap: Option<Tap>,
}
