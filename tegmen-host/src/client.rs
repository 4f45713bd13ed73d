//! A CoAP client for one server, plain or over DTLS.

use crate::clock;
use crate::credentials::to_hex;
use crate::provider::HostCrypto;
use crate::udp::MAX_DATAGRAM;
use crate::uri::Uri;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::exchange::{Busy, Due, Exchanges, Received};
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber};
use tegmen::counters::Counters;
use tegmen::crypto::Crypto as _;
use tegmen::dtls::state::{Answer, Need};
use tegmen::dtls::{Config, Fatal, Records};
use tegmen::endpoint::{
    ClientOnly, Cx, Endpoint, Event, HEADROOM, Path, PeerArray, PeerId, Peers as _, Principal, Rank,
};
use tegmen::endpoint::{Protection, TAILROOM};
use tegmen::time::Instant;
use tokio::net::UdpSocket;
use zeroize::Zeroizing;

type ClientExchanges = Exchanges<4, 1280, 16, 1024>;
type Table = PeerArray<Box<ClientExchanges>, 1, 1, 255, 1024>;

/// How a client proves itself.
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
    /// Needed for `coaps`.
    pub key: Option<ClientKey>,
    /// The DTLS side.
    pub dtls: Config,
    /// How long a request may take in all.
    pub timeout: Duration,
    /// Bytes of each token, 0 to 8. Without protection a token must be hard to guess (RFC 7252, section 5.3.1).
    pub token_len: usize,
    /// Requests are acknowledged and sent again if need be.
    pub confirmable: bool,
    /// File for a key log (RFC 9850): whoever reads it reads the traffic.
    pub key_log: Option<PathBuf>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            key: None,
            dtls: Config { handshake_timeout: Duration::from_secs(30), ..Config::default() },
            timeout: Duration::from_secs(90),
            token_len: 4,
            confirmable: true,
            key_log: None,
        }
    }
}

/// Why there is no response. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The name has no address.
    #[error("{host} cannot be resolved: {source}; is the name right, and is there a name server?")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// The system refuses.
    #[error("{remote} cannot be reached: {source}")]
    Unreachable {
        /// The address.
        remote: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// An ICMP answer said that nobody listens.
    #[error("nothing listens at {remote}: is the server running, and is {port} its port ({other})?", port = remote.port())]
    Refused {
        /// The address.
        remote: SocketAddr,
        /// What the port usually is.
        other: &'static str,
    },
    /// Nobody answered.
    #[error("{remote} did not answer within {seconds} s: is it running, and does a firewall let UDP pass?")]
    Silence {
        /// The address.
        remote: SocketAddr,
        /// How long was waited.
        seconds: u64,
    },
    /// The handshake was not answered at its end.
    #[error(
        "{remote} did not accept our Finished ({detail}): it does not know the identity '{identity}', or has another key \
         for it. It tells nobody which of the two; compare both with the server's credentials"
    )]
    IdentityOrKey {
        /// The address.
        remote: SocketAddr,
        /// The identity that was used.
        identity: String,
        /// How it showed.
        detail: &'static str,
    },
    /// The handshake failed otherwise.
    #[error("the handshake with {remote} failed: {detail}")]
    Handshake {
        /// The address.
        remote: SocketAddr,
        /// Why, and what to do.
        detail: String,
    },
    /// The session ended before the response came.
    #[error("{remote} ended the session ({detail}); connect again")]
    Ended {
        /// The address.
        remote: SocketAddr,
        /// Why.
        detail: String,
    },
    /// The server rejected the message.
    #[error("{remote} answered with Reset: it does not take such a message")]
    Reset {
        /// The address.
        remote: SocketAddr,
    },
    /// The request does not fit one message.
    #[error("the request has {len} bytes and must fit one message of {max}: block-wise transfer is not built yet")]
    TooLong {
        /// Bytes asked for.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// `coaps` without a key.
    #[error("coaps needs an identity and a key: --identity NAME --key HEX, or --credentials FILE")]
    NoKey,
    /// The system gives no randomness, or the key log cannot be written.
    #[error("{0}")]
    System(io::Error),
}

/// A response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its code.
    pub code: Code,
    /// Its options.
    pub options: Vec<(OptionNumber, Vec<u8>)>,
    /// Its payload.
    pub payload: Vec<u8>,
    /// From the request to the response.
    pub round_trip: Duration,
}

impl Reply {
    /// The Content-Format, if it says so.
    pub fn content_format(&self) -> Option<u32> {
        let value = self.options.iter().find(|(number, _)| *number == OptionNumber::CONTENT_FORMAT)?;
        tegmen::coap::option::uint(&value.1)
    }
}

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
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
    /// The payload.
    pub payload: &'a [u8],
}

/// A client of one server.
pub struct Client {
    socket: UdpSocket,
    endpoint: Endpoint<Table, ClientOnly>,
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
}

/// What the loop brought.
enum Happened {
    Established,
    Response(Reply),
    Reset,
    TimedOut,
    Closed(Fatal),
}

impl Client {
    /// Connects to the server of `uri`; for `coaps` with a handshake.
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn connect(uri: &Uri, config: ClientConfig) -> Result<Self, ClientError> {
        let resolve = |source| ClientError::Resolve { host: uri.host.clone(), source };
        let remote = crate::udp::resolve(&uri.host, uri.port).await.map_err(resolve)?;
        Self::connect_to(remote, uri.secure, config).await
    }

    /// Connects to an address.
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn connect_to(remote: SocketAddr, secure: bool, config: ClientConfig) -> Result<Self, ClientError> {
        if secure && config.key.is_none() {
            return Err(ClientError::NoKey);
        }
        let unreachable = |source| ClientError::Unreachable { remote, source };
        let any: SocketAddr = if remote.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).await.map_err(unreachable)?;
        socket.connect(remote).await.map_err(unreachable)?;
        let path = crate::udp::path(socket.local_addr().map_err(unreachable)?, remote);
        let mut crypto = HostCrypto::from_os().map_err(ClientError::System)?;
        if let Some(file) = &config.key_log {
            crypto.log_keys_to(file).map_err(ClientError::System)?;
        }
        let mut counters = Counters::default();
        let mut cx = Cx { now: clock::now(), crypto: &mut crypto, counters: &mut counters };
        let mut endpoint: Endpoint<Table, ClientOnly> = Endpoint::new(&mut cx, Table::new(), config.dtls);
        let full = |_| ClientError::System(io::Error::other("no room for a peer"));
        let (peer, protection) = match secure {
            true => (endpoint.connect(&mut cx, &path).map_err(full)?, Protection::Dtls),
            false => (endpoint.plain(&mut cx, &path, Rank::Ours).map_err(full)?, Protection::Plain),
        };
        let mut first_id = [0; 2];
        crypto.random(&mut first_id);
        if let Some(exchanges) = endpoint.peers.attached(peer) {
            **exchanges = Exchanges::new(u16::from_ne_bytes(first_id));
        }
        let mut client = Self {
            socket,
            endpoint,
            crypto,
            counters,
            config,
            path,
            remote,
            protection,
            peer,
            established: !secure,
            handshake_time: Duration::ZERO,
            closed: None,
            hint: Vec::new(),
        };
        if secure {
            client.handshake().await?;
        }
        Ok(client)
    }

    /// The server's address.
    pub const fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Our address.
    pub fn local(&self) -> SocketAddr {
        self.path.local.into()
    }

    /// How long the handshake took.
    pub const fn handshake_time(&self) -> Duration {
        self.handshake_time
    }

    /// What was dropped and done.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    async fn handshake(&mut self) -> Result<(), ClientError> {
        let start = clock::now();
        let deadline = start.after(self.config.dtls.handshake_timeout).after_millis(1000);
        loop {
            match self.step(deadline).await? {
                Happened::Established => {
                    self.handshake_time = clock::now().since(start);
                    return Ok(());
                }
                Happened::Closed(reason) => return Err(self.explain(reason)),
                Happened::TimedOut => return Err(self.explain(Fatal::TimedOut { after_finished: false })),
                Happened::Response(_) | Happened::Reset => {}
            }
        }
    }

    fn explain(&self, reason: Fatal) -> ClientError {
        let remote = self.remote;
        let identity = self.config.key.as_ref().map(|key| key.identity.clone()).unwrap_or_default();
        let handshake = |detail: &str| ClientError::Handshake { remote, detail: detail.to_owned() };
        match reason {
            Fatal::TimedOut { after_finished: false } => {
                ClientError::Silence { remote, seconds: self.config.dtls.handshake_timeout.as_secs() }
            }
            Fatal::TimedOut { after_finished: true } => {
                ClientError::IdentityOrKey { remote, identity, detail: "it fell silent" }
            }
            // decrypt_error, bad_record_mac, unknown_psk_identity, and what some say instead
            Fatal::Alert(alert) if matches!(alert.0, 51 | 20 | 115) => {
                ClientError::IdentityOrKey { remote, identity, detail: alert.name() }
            }
            Fatal::Alert(alert) if alert.0 == 40 => ClientError::Handshake {
                remote,
                detail:
                    "the server says handshake_failure: it offers no TLS_PSK_WITH_AES_128_CCM_8, or knows no identity \
                         of this name"
                        .to_owned(),
            },
            Fatal::Alert(alert) => {
                ClientError::Handshake { remote, detail: format!("the server says {}", alert.name()) }
            }
            Fatal::Version => handshake("the server speaks no DTLS 1.2"),
            Fatal::IllegalParameter | Fatal::UnsupportedExtension => handshake("the server chose what was not offered"),
            Fatal::BadFinished => handshake("the server's Finished is wrong: somebody changed the handshake"),
            Fatal::UnexpectedMessage(kind) => ClientError::Handshake {
                remote,
                detail: format!("handshake message {} came out of turn: does the server want certificates?", kind.0),
            },
            Fatal::Decode => handshake("a message of the server does not parse"),
            other => ClientError::Handshake { remote, detail: format!("{other:?}") },
        }
    }

    /// Sends a request and waits for its response.
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn request(&mut self, ask: &Ask<'_>) -> Result<Reply, ClientError> {
        if let Some(reason) = self.closed {
            return Err(ClientError::Ended { remote: self.remote, detail: describe(reason) });
        }
        let start = clock::now();
        let deadline = start.after(self.config.timeout);
        let mut random = [0; 9];
        self.crypto.random(&mut random);
        let exchanges = self.endpoint.peers.attached(self.peer);
        let Some(exchanges) = exchanges else {
            return Err(ClientError::Ended { remote: self.remote, detail: "the peer is gone".to_owned() });
        };
        let mut storage = [0; MAX_DATAGRAM];
        let most = usize::from(self.config.dtls.mtu).saturating_sub(HEADROOM + TAILROOM);
        let too_long = ClientError::TooLong { len: ask.payload.len(), max: most };
        let mut frame = Frame::new(storage.get_mut(..most).unwrap_or(&mut []), 0);
        let message_id = exchanges.message_id();
        let message_type = if self.config.confirmable { MessageType::Confirmable } else { MessageType::NonConfirmable };
        let token = &random[..self.config.token_len.min(8)];
        if build(&mut frame, message_type, message_id, token, ask).is_err() {
            return Err(too_long);
        }
        let message = frame.finish();
        let request = match exchanges.sent(start, message, random[8]) {
            Ok(request) => request,
            Err(Busy::TooLong) => return Err(too_long),
            Err(Busy::Outstanding) => return Err(ClientError::System(io::Error::other("too many open requests"))),
        };
        if let Some(at) = exchanges.next_deadline() {
            self.endpoint.peers.schedule(self.peer, at);
        }
        let message = message.to_vec();
        self.send(start, &message).await?;
        loop {
            let happened = match self.step(deadline).await {
                Ok(happened) => happened,
                Err(error) => {
                    self.forget(request);
                    return Err(error);
                }
            };
            match happened {
                Happened::Response(reply) => {
                    return Ok(Reply { round_trip: clock::now().since(start), ..reply });
                }
                Happened::Reset => return Err(ClientError::Reset { remote: self.remote }),
                Happened::TimedOut if self.protection == Protection::Dtls => {
                    self.forget(request);
                    let detail = "it fell silent; if it restarted, the session is lost".to_owned();
                    return Err(ClientError::Ended { remote: self.remote, detail });
                }
                Happened::TimedOut => {
                    self.forget(request);
                    let seconds = clock::now().since(start).as_secs();
                    return Err(ClientError::Silence { remote: self.remote, seconds });
                }
                Happened::Closed(reason) => {
                    return Err(ClientError::Ended { remote: self.remote, detail: describe(reason) });
                }
                Happened::Established => {}
            }
        }
    }

    fn forget(&mut self, request: tegmen::coap::RequestId) {
        if let Some(exchanges) = self.endpoint.peers.attached(self.peer) {
            exchanges.cancel(request);
        }
    }

    /// Ends the session in order.
    pub async fn close(mut self) {
        self.endpoint.close(self.peer);
        let mut out = [0; MAX_DATAGRAM];
        let mut cx = Cx { now: clock::now(), crypto: &mut self.crypto, counters: &mut self.counters };
        while let Some(event) = self.endpoint.poll(&mut cx, &mut out) {
            if let Event::Transmit { datagram, .. } = event {
                let _ = self.socket.send(datagram).await;
            }
        }
    }

    async fn send(&mut self, now: Instant, message: &[u8]) -> Result<(), ClientError> {
        let mut storage = [0; MAX_DATAGRAM];
        let mut frame = Frame::new(&mut storage, if self.protection == Protection::Dtls { HEADROOM } else { 0 });
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        let sealed = frame.append(message).is_ok() && self.endpoint.seal(&mut cx, self.peer, &mut frame).is_ok();
        if !sealed {
            let detail = "its key has sealed as many records as it may".to_owned();
            return Err(ClientError::Ended { remote: self.remote, detail });
        }
        self.put(frame.bytes()).await
    }

    async fn put(&self, datagram: &[u8]) -> Result<(), ClientError> {
        match self.socket.send(datagram).await {
            Ok(_) => Ok(()),
            Err(error) => self.network_error(error),
        }
    }

    /// What the system says of our datagrams. A refusal after the session stands may be anybody's forgery.
    fn network_error(&self, source: io::Error) -> Result<(), ClientError> {
        let remote = self.remote;
        match source.kind() {
            ErrorKind::ConnectionRefused if self.protection == Protection::Dtls && self.established => Ok(()),
            ErrorKind::ConnectionRefused => {
                let other = if self.protection == Protection::Dtls {
                    "coaps has 5684 unless a server says otherwise"
                } else {
                    "coap has 5683 unless a server says otherwise"
                };
                Err(ClientError::Refused { remote, other })
            }
            _ => Err(ClientError::Unreachable { remote, source }),
        }
    }

    /// Receives, and does what is due, until something happens or the deadline has come.
    async fn step(&mut self, deadline: Instant) -> Result<Happened, ClientError> {
        let mut buffer = [0; 65_536];
        loop {
            if let Some(happened) = self.poll().await? {
                return Ok(happened);
            }
            if clock::now() >= deadline {
                return Ok(Happened::TimedOut);
            }
            let alarm = self.endpoint.next_alarm().map_or(deadline, |alarm| alarm.min(deadline));
            let received = tokio::time::timeout_at(clock::tokio_instant(alarm), self.socket.recv(&mut buffer)).await;
            let len = match received {
                Err(_) => continue,
                Ok(Ok(len)) => len,
                Ok(Err(error)) => {
                    self.network_error(error)?;
                    continue;
                }
            };
            let datagram = buffer.get_mut(..len).unwrap_or(&mut []);
            if let Some(happened) = self.on_datagram(datagram).await? {
                return Ok(happened);
            }
        }
    }

    /// Sends what is due.
    async fn poll(&mut self) -> Result<Option<Happened>, ClientError> {
        loop {
            let mut out = [0; MAX_DATAGRAM];
            let now = clock::now();
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            match self.endpoint.poll(&mut cx, &mut out) {
                None => return Ok(None),
                Some(Event::Transmit { datagram, .. }) => {
                    let len = datagram.len();
                    self.put(&out[..len]).await?;
                }
                Some(Event::Alarm(_)) => {
                    if let Some(happened) = self.on_alarm(now).await? {
                        return Ok(Some(happened));
                    }
                }
                Some(Event::Closed { reason, .. }) => {
                    self.closed = Some(reason);
                    return Ok(Some(Happened::Closed(reason)));
                }
                Some(_) => {}
            }
        }
    }

    async fn on_alarm(&mut self, now: Instant) -> Result<Option<Happened>, ClientError> {
        loop {
            let Some(exchanges) = self.endpoint.peers.attached(self.peer) else { return Ok(None) };
            match exchanges.poll(now) {
                Some(Due::Retransmit(message)) => {
                    let message = message.to_vec();
                    self.send(now, &message).await?;
                }
                Some(Due::TimedOut(_)) => return Ok(Some(Happened::TimedOut)),
                None => {
                    if let Some(next) = exchanges.next_deadline() {
                        self.endpoint.peers.schedule(self.peer, next);
                    }
                    return Ok(None);
                }
            }
        }
    }

    async fn on_datagram(&mut self, datagram: &mut [u8]) -> Result<Option<Happened>, ClientError> {
        if self.protection == Protection::Plain {
            return self.on_message(datagram).await;
        }
        let path = self.path;
        let mut records = Records::new(datagram);
        let mut result = None;
        loop {
            let mut out = [0; MAX_DATAGRAM];
            let mut cx = Cx { now: clock::now(), crypto: &mut self.crypto, counters: &mut self.counters };
            let event = match self.endpoint.handle(&mut cx, &path, &mut records, &mut out) {
                None => return Ok(result),
                Some(Event::Need(_)) => self.on_need(),
                Some(event) => Some(event),
            };
            match event {
                Some(Event::Established(_)) => {
                    self.established = true;
                    result = Some(Happened::Established);
                }
                Some(Event::Closed { reason, .. }) => {
                    self.closed = Some(reason);
                    return Ok(Some(Happened::Closed(reason)));
                }
                Some(Event::Message { bytes, .. }) => {
                    let bytes = bytes.to_vec();
                    if let Some(happened) = self.on_message(&bytes).await? {
                        result = Some(happened);
                    }
                }
                _ => {}
            }
        }
    }

    /// The server asks who we are.
    fn on_need<'r, 't>(&mut self) -> Option<Event<'r, 't>> {
        if let Some(Need::PskForServer { hint }) = self.endpoint.need(self.peer) {
            self.hint = hint.to_vec();
        }
        let answer = match &self.config.key {
            Some(key) => Answer::Psk { identity: key.identity.as_bytes(), key: &key.key, principal: Principal(0) },
            None => Answer::Unknown,
        };
        let mut cx = Cx { now: clock::now(), crypto: &mut self.crypto, counters: &mut self.counters };
        self.endpoint.resume(&mut cx, self.peer, answer)
    }

    /// The identity hint of the server, as text or hexadecimal.
    pub fn hint(&self) -> String {
        String::from_utf8(self.hint.clone()).unwrap_or_else(|_| to_hex(&self.hint))
    }

    async fn on_message(&mut self, bytes: &[u8]) -> Result<Option<Happened>, ClientError> {
        let now = clock::now();
        let Some(exchanges) = self.endpoint.peers.attached(self.peer) else { return Ok(None) };
        let (answer, happened) = match exchanges.receive(now, bytes) {
            Received::Response { message, acknowledge, .. } => {
                (acknowledge.map_or(Vec::new(), |ack| ack.to_vec()), Some(Happened::Response(reply(&message))))
            }
            Received::Reset(_) => (Vec::new(), Some(Happened::Reset)),
            Received::Duplicate(reply) => (reply.to_vec(), None),
            Received::Reject(reset) => (reset.to_vec(), None),
            // A client has no resources.
            Received::Request(message) if message.message_type() == MessageType::Confirmable => {
                (tegmen::coap::message::empty(MessageType::Reset, message.message_id()).to_vec(), None)
            }
            Received::Request(_) | Received::Acknowledged(_) | Received::Rejected { .. } | Received::Nothing => {
                (Vec::new(), None)
            }
        };
        if !answer.is_empty() {
            self.send(now, &answer).await?;
        }
        Ok(happened)
    }
}

fn reply(message: &MessageRef<'_>) -> Reply {
    Reply {
        code: message.code(),
        options: message.options().map(|(number, value)| (number, value.to_vec())).collect(),
        payload: message.payload().to_vec(),
        round_trip: Duration::ZERO,
    }
}

fn build(
    frame: &mut Frame<'_>,
    message_type: MessageType,
    message_id: u16,
    token: &[u8],
    ask: &Ask<'_>,
) -> Result<(), tegmen::coap::message::BuildError> {
    let mut builder = Builder::new(frame, message_type, ask.method, message_id, token)?;
    for segment in ask.path {
        builder.option(OptionNumber::URI_PATH, segment.as_bytes())?;
    }
    if let Some(format) = ask.content_format {
        builder.uint(OptionNumber::CONTENT_FORMAT, format.into())?;
    }
    for argument in ask.query {
        builder.option(OptionNumber::URI_QUERY, argument.as_bytes())?;
    }
    if let Some(format) = ask.accept {
        builder.uint(OptionNumber::ACCEPT, format.into())?;
    }
    builder.payload(ask.payload)
}

/// A reason in words.
pub fn describe(reason: Fatal) -> String {
    match reason {
        Fatal::Closed => "closed in order".to_owned(),
        Fatal::Alert(alert) => format!("alert {}", alert.name()),
        Fatal::TimedOut { .. } => "the peer fell silent".to_owned(),
        Fatal::KeyExhausted => "a key reached its limit; a new handshake gives new ones".to_owned(),
        Fatal::Idle => "nothing was heard for the idle timeout".to_owned(),
        Fatal::Replaced => "a new session from the same address replaced it".to_owned(),
        Fatal::WrongKeyOrIdentity { identity_known: true } => {
            "the identity is known, its key is another one; compare the key on both sides".to_owned()
        }
        Fatal::WrongKeyOrIdentity { identity_known: false } => {
            "no such identity in the credentials; add it, or correct the client".to_owned()
        }
        Fatal::NoCommonSuite => "the client does not offer TLS_PSK_WITH_AES_128_CCM_8".to_owned(),
        Fatal::Version => "the client does not speak DTLS 1.2".to_owned(),
        other => format!("{other:?}"),
    }
}
