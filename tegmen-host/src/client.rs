//! A CoAP client for one server, plain or over DTLS.
//!
//! `connection` moves datagrams and does one exchange, `transfer` puts bodies together from blocks, `observation`
//! follows a resource.

mod connection;
mod error;
mod establish;
mod group;
mod handshake;
mod observation;
mod oscore;
mod persistence;
mod resumption;
mod transfer;

pub use error::{ClientError, describe};
pub use group::ask_group;
pub use observation::Observation;

use crate::clock;
use crate::contexts::StoredContext;
use crate::hex::to_hex;
use crate::provider::HostCrypto;
use crate::public_keys::PublicKeys;
use crate::udp::MAX_DATAGRAM;
use crate::uri::Uri;
use crate::x509::{CertificateInfo, Refusal};
use oscore::OscoreClient;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tegmen::address::Path;
use tegmen::coap::{Block, Code, Exchanges, Fixed, MessageRef, OptionNumber, Probing, RequestId};
use tegmen::counters::Counters;
use tegmen::cx::Cx;
use tegmen::dtls::association::Rank;
use tegmen::dtls::connection_id::ConnectionIds;
use tegmen::dtls::roles::{ClientOnly, Extended, Resuming};
use tegmen::dtls::{CipherSuite, Config, Fatal, Suites};
use tegmen::endpoint::{Endpoint, Event, PeerArray, Peers as _};
use tegmen::identity::{PeerId, Protection};
use tegmen::time::Instant;
use tokio::net::UdpSocket;
use zeroize::Zeroizing;

type ClientExchanges = Exchanges<Fixed<4, 1280, 16, 1024>>;
type Table = PeerArray<Box<ClientExchanges>, 1, 1, 1536, 6144, 1>;

type Role = tegmen::dtls::roles::PublicKeys<Extended<Resuming<ClientOnly, resumption::AcceptsTickets>>, PublicKeys>;

/// The identity and key of a client.
#[derive(Clone)]
pub struct ClientKey {
    /// PSK identity.
    pub identity: String,
    /// Pre-shared key, 1 to 64 bytes.
    pub key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientKey").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// A pre-shared key: this or [`Self::public_keys`] is needed for `coaps`.
    pub key: Option<ClientKey>,
    /// The public keys of the client, and the servers that it trusts.
    pub public_keys: Option<PublicKeys>,
    /// The DTLS side.
    pub dtls: Config,
    /// The time limit of one exchange: a request, or each block of a longer one.
    pub timeout: Duration,
    /// Bytes of each token, 0 to 8. Without protection a token must be hard to guess (RFC 7252, section 5.3.1).
    pub token_len: usize,
    /// Requests are acknowledged and sent again if need be. Those that are not wait for one another while the server does
    /// not answer: a byte a second is sent then (PROBING_RATE of RFC 7252, section 4.7).
    pub confirmable: bool,
    /// File for a key log (RFC 9850). Anyone who can read this file can decrypt the traffic.
    pub key_log: Option<PathBuf>,
    /// Largest block that is asked for and sent, in bytes: 16, 32, 64 ... 1024 (RFC 7959).
    pub block_size: usize,
    /// Longest body of a response, in bytes.
    pub max_body: usize,
    /// Directory of an OSCORE context (see [`crate::contexts`]): every request is protected with it, or not sent.
    pub oscore: Option<PathBuf>,
    /// The place that stores the DTLS session, so that the next client continues it without a handshake: a file, or a
    /// directory with a file for each server. [`Client::close`] then leaves the session open.
    pub session: Option<PathBuf>,
    /// Directory where sessions are kept, to come back without a key exchange: by a ticket (RFC 5077) or an id, whichever
    /// the server gives. It is made if it is not there.
    pub resume: Option<PathBuf>,
    /// True to begin another session where one is over: the server ended it, or answers neither a confirmable message nor
    /// its first two retransmissions, as a server that restarted without its sessions. Requests are repeated then, except
    /// POST and PATCH, and observations registered again.
    pub reconnect: bool,
    /// Longest silence of an observed server, whatever Max-Age says: it is then asked again, which shows whether it still
    /// knows the observation. A random part of up to a quarter is added.
    pub alive: Option<Duration>,
    /// Sees every datagram, and the secrets.
    pub tap: Option<Tap>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            key: None,
            public_keys: None,
            dtls: Config {
                handshake_timeout: Duration::from_secs(30),
                suites: Suites::CCM_8_THEN_GCM,
                ..Config::default()
            },
            timeout: Duration::from_secs(90),
            token_len: 4,
            confirmable: true,
            key_log: None,
            block_size: tegmen::coap::block::MAX_SIZE,
            max_body: 64 << 20,
            oscore: None,
            session: None,
            resume: None,
            reconnect: true,
            alive: None,
            tap: None,
        }
    }
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The code of the response.
    pub code: Code,
    /// The options of the response.
    pub options: Vec<(OptionNumber, Vec<u8>)>,
    /// The payload of the response.
    pub payload: Vec<u8>,
    /// From the request to the response.
    pub round_trip: Duration,
    /// It is still protected: the first block of what somebody on the way has cut.
    is_cut: bool,
    /// It answers the last block of a request, and has no Block1.
    lacks_block1: bool,
}

impl Response {
    fn new(message: &MessageRef<'_>) -> Self {
        Self {
            code: message.code(),
            options: message.options().map(|(number, value)| (number, value.to_vec())).collect(),
            payload: message.payload().to_vec(),
            round_trip: Duration::ZERO,
            is_cut: false,
            lacks_block1: false,
        }
    }

    /// The value of the first option of this number.
    pub fn option(&self, number: OptionNumber) -> Option<&[u8]> {
        self.options.iter().find(|(n, _)| *n == number).map(|(_, value)| value.as_slice())
    }

    /// The number of an option of format `uint`, if it is there.
    pub fn uint(&self, number: OptionNumber) -> Option<u32> {
        self.option(number).and_then(tegmen::coap::option::uint)
    }

    /// True if this success answers a request in blocks without a Block1 option (RFC 7959, section 2.3): the server may have
    /// taken the last block for the whole body.
    pub const fn lacks_block1(&self) -> bool {
        self.lacks_block1
    }

    /// A Block option, if it is there and well made.
    fn block(&self, number: OptionNumber) -> Option<Block> {
        self.option(number).and_then(|value| Block::read(value).ok())
    }

    /// Returns the Content-Format, if the response has one.
    pub fn content_format(&self) -> Option<u32> {
        self.uint(OptionNumber::CONTENT_FORMAT)
    }
}

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Method.
    pub method: Code,
    /// Segments of the path.
    pub path: &'a [String],
    /// Arguments.
    pub query: &'a [String],
    /// Format of the payload.
    pub content_format: Option<u16>,
    /// Format that is wanted.
    pub accept: Option<u16>,
    /// The payload; what does not fit one message goes in blocks (RFC 7959).
    pub payload: &'a [u8],
    /// Other options, in any order.
    pub options: &'a [(OptionNumber, Vec<u8>)],
}

/// AcceptsTickets the lines of the key log to a tap.
struct TappedLog(Tap);

impl io::Write for TappedLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Ok(line) = std::str::from_utf8(line) {
            (self.0.0)(Tapped::Secrets(line));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client of one server.
pub struct Client {
    socket: UdpSocket,
    endpoint: Endpoint<Table, Role>,
    crypto: HostCrypto,
    counters: Counters,
    config: ClientConfig,
    path: Path,
    remote: SocketAddr,
    protection: Protection,
    peer: PeerId,
    established: bool,
    handshake_time: Duration,
    closed: Option<Fatal>,
    hint: Vec<u8>,
    /// Why the server is not believed.
    refusal: Option<Refusal>,
    /// As what it proved itself.
    server: Option<String>,
    chain: Vec<CertificateInfo>,
    /// For received datagrams.
    buffer: Vec<u8>,
    /// Responses that came while another was waited for.
    unread: VecDeque<(RequestId, Response)>,
    /// When the next request may be sent that is not confirmable.
    probing: Probing,
    progress: Option<Box<dyn FnMut(Progress) + Send>>,
    oscore: Option<OscoreClient>,
    kept: Option<persistence::PersistentSession>,
    resumption: Option<resumption::ResumptionStore>,
    resumed: bool,
    cipher_suite: Option<CipherSuite>,
    believed_until: Option<SystemTime>,
    /// Retransmissions since the server was heard.
    repeats: u8,
    /// When a server counts as silent that is not heard until then.
    silent_at: Instant,
    /// True to look for that: in sessions, and where something is observed.
    finds_silence: bool,
    reconnects: u32,
}

/// The progress of a block-wise transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// True for the request's body, false for the response's.
    pub upload: bool,
    /// Bytes that are through.
    pub done: usize,
    /// The size of the body in bytes, if it is known.
    pub total: Option<usize>,
}

/// Sees every datagram, and the secrets: for a capture, or to count.
#[derive(Clone)]
pub struct Tap(pub Arc<dyn Fn(Tapped<'_>) + Send + Sync>);

/// The traffic that a [`Tap`] sees.
#[derive(Clone, Copy)]
pub enum Tapped<'a> {
    /// A datagram as it is on the wire.
    Datagram {
        /// True if we sent it.
        sent: bool,
        /// From the client's point of view.
        path: Path,
        /// The UDP payload.
        datagram: &'a [u8],
    },
    /// A line of the key log (RFC 9850). Anyone who has it can decrypt the traffic.
    Secrets(&'a str),
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tap")
    }
}

/// A socket that talks to `remote` alone, from this port of ours if it is free.
async fn bind(remote: SocketAddr, port: Option<u16>) -> io::Result<UdpSocket> {
    let any =
        |port| -> SocketAddr { if remote.is_ipv4() { ([0, 0, 0, 0], port).into() } else { ([0u16; 8], port).into() } };
    let socket = match UdpSocket::bind(any(port.unwrap_or(0))).await {
        Err(_) if port.is_some() => UdpSocket::bind(any(0)).await?,
        bound => bound?,
    };
    socket.connect(remote).await?;
    Ok(socket)
}

/// Returns the crypto provider of a client, with the key logs of its settings.
fn provider(config: &ClientConfig) -> std::io::Result<HostCrypto> {
    let mut crypto = HostCrypto::from_os()?;
    if let Some(file) = &config.key_log {
        crypto.log_keys_to(file)?;
    }
    if let Some(tap) = config.tap.clone() {
        crypto.add_key_log(Box::new(TappedLog(tap)));
    }
    Ok(crypto)
}

impl Client {
    /// Connects to the server of `uri`; for `coaps` with a handshake.
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn connect(uri: &Uri, config: ClientConfig) -> Result<Self, ClientError> {
        let resolve = |source| match uri.host.split_once('%') {
            Some((ip, interface)) if ip.parse::<std::net::IpAddr>().is_ok() => {
                ClientError::Interface { host: uri.host.clone(), interface: interface.to_owned() }
            }
            _ => ClientError::Resolve { host: uri.host.clone(), source },
        };
        let remote = crate::udp::resolve(&uri.host, uri.port).await.map_err(resolve)?;
        let mut config = config;
        // The name that was asked for is the one that the server must have (RFC 7252, section 9.1.3.3).
        if let Some(keys) = config.public_keys.take() {
            config.public_keys = Some(if keys.expects_no_name() { keys.expecting(&uri.host) } else { keys });
        }
        Self::connect_to(remote, uri.secure, config).await
    }

    /// Connects to an address.
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn connect_to(remote: SocketAddr, secure: bool, config: ClientConfig) -> Result<Self, ClientError> {
        if secure && config.key.is_none() && config.public_keys.is_none() {
            return Err(ClientError::NoKey);
        }
        let oscore = config.oscore.as_deref().map(StoredContext::open).transpose().map_err(ClientError::Context)?;
        let unreachable = |source| ClientError::Unreachable { remote, source };
        let resumption = if secure { resumption::ResumptionStore::open(&config, remote)? } else { None };
        let mut kept = if secure { persistence::PersistentSession::open(&config, remote)? } else { None };
        let port = kept.as_ref().and_then(persistence::PersistentSession::port);
        let socket = bind(remote, port).await.map_err(unreachable)?;
        let path = crate::udp::path(socket.local_addr().map_err(unreachable)?, remote);
        let mut crypto = provider(&config).map_err(ClientError::System)?;
        let mut counters = Counters::default();
        let mut endpoint = establish::new_endpoint(&mut crypto, &mut counters, &config, config.dtls);
        let mut cx = Cx { now: clock::now(), crypto: &mut crypto, counters: &mut counters };
        let (known, protection) = match secure {
            true => (establish::restore(&mut endpoint, &mut cx, &path, kept.as_mut())?, Protection::Dtls),
            false => {
                let peer = endpoint.plain(&mut cx, &path, Rank::Ours).map_err(|_| establish::no_room())?;
                (Some(peer), Protection::Plain)
            }
        };
        let mut client = Self {
            socket,
            endpoint,
            crypto,
            counters,
            config,
            path,
            remote,
            protection,
            peer: PeerId::new(0, 0),
            established: known.is_some(),
            handshake_time: Duration::ZERO,
            closed: None,
            hint: Vec::new(),
            refusal: None,
            server: None,
            chain: Vec::new(),
            buffer: Vec::new(),
            unread: VecDeque::new(),
            probing: Probing::new(),
            progress: None,
            oscore: oscore.map(OscoreClient::new),
            kept,
            resumption,
            resumed: false,
            cipher_suite: None,
            believed_until: None,
            repeats: 0,
            silent_at: Instant::NEVER,
            finds_silence: secure,
            reconnects: 0,
        };
        match known {
            Some(peer) => client.talk_to(peer),
            None => {
                client.establish(client.config.dtls.handshake_timeout).await?;
                client.keep_session()?;
            }
        }
        Ok(client)
    }

    /// Returns the identity that the server proved with a public key: the subject of its certificate, or the name of
    /// its raw key.
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The certificates that the server showed, its own first; none if it showed a raw public key or nothing.
    pub fn chain(&self) -> &[CertificateInfo] {
        &self.chain
    }

    /// True if the session was resumed from an earlier one: see [`ClientConfig::resume`].
    pub const fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// By what the next session can be resumed, in words: a ticket or a session id; `None` if the server gave neither, or
    /// [`ClientConfig::resume`] asked for none.
    pub fn resumable_by(&self) -> Option<&'static str> {
        self.resumption.as_ref()?.by()
    }

    /// The cipher suite of a session that began with a handshake.
    pub const fn cipher_suite(&self) -> Option<CipherSuite> {
        self.cipher_suite
    }

    /// Number of sessions begun in place of others that were over: see [`ClientConfig::reconnect`].
    pub const fn reconnects(&self) -> u32 {
        self.reconnects
    }

    /// The server's address.
    pub const fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Our address.
    pub fn local(&self) -> SocketAddr {
        self.path.local.into()
    }

    /// Returns the duration of the handshake.
    pub const fn handshake_time(&self) -> Duration {
        self.handshake_time
    }

    /// Returns the counters of the endpoint.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Calls `progress` after each block of a transfer.
    pub fn on_progress(&mut self, progress: impl FnMut(Progress) + Send + 'static) {
        self.progress = Some(Box::new(progress));
    }

    /// Goes on from another port, as after a change of the network; the session stays, if the server finds it by its
    /// connection id.
    ///
    /// # Errors
    /// What the system says.
    pub async fn rebind(&mut self) -> io::Result<()> {
        let socket = bind(self.remote, None).await?;
        self.path = crate::udp::path(socket.local_addr()?, self.remote);
        self.socket = socket;
        self.endpoint.move_session(self.peer, &self.path);
        Ok(())
    }

    /// Returns the connection ids of the session; `None` if it has none.
    pub fn connection_ids(&mut self) -> Option<ConnectionIds> {
        self.endpoint.peers.connection_ids(self.peer).copied()
    }

    /// The identity hint of the server, as text or hexadecimal.
    pub fn hint(&self) -> String {
        String::from_utf8(self.hint.clone()).unwrap_or_else(|_| to_hex(&self.hint))
    }

    /// Sends a request and waits for its response. Bodies that do not fit one message go in blocks (RFC 7959), and a
    /// server that asks for proof of our address or of freshness gets it (RFC 9175). A session that ended, or that the server
    /// does not answer in, is replaced by another one (see [`ClientConfig::reconnect`]).
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn request(&mut self, ask: &Request<'_>) -> Result<Response, ClientError> {
        self.request_again(ask).await
    }

    /// Observes a resource (RFC 7641): the first response, and what follows whenever the representation changes.
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn observe<'c>(&'c mut self, ask: &Request<'c>) -> Result<Observation<'c>, ClientError> {
        Observation::begin(self, ask).await
    }

    /// Ends the session in order, or leaves it to the next client if it is kept; what a context has used is kept.
    pub async fn close(mut self) {
        if self.park() {
            return;
        }
        self.endpoint.close(self.peer);
        let mut out = [0; MAX_DATAGRAM];
        let mut cx = Cx { now: clock::now(), crypto: &mut self.crypto, counters: &mut self.counters };
        while let Some(event) = self.endpoint.poll(&mut cx, &mut out) {
            if let Event::Transmit { len, .. } = event {
                let _ = self.socket.send(&out[..len.into()]).await;
            }
        }
    }
}
