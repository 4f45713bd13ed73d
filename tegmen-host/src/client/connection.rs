//! The datagrams of a client: one exchange, and the events of the clock.

mod oscore;
mod outer_block;

use super::oscore::OscoreClient;
use super::{Client, ClientError, Request, Response, Tapped, describe};
use crate::clock;
use crate::contexts::OVERHEAD;
use crate::provider::HostCrypto;
use crate::udp::MAX_DATAGRAM;
use outer_block::is_cut;
use std::io::{self, ErrorKind};
use tegmen::buf::Frame;
use tegmen::coap::exchange::{Busy, Due, Received};
use tegmen::coap::message::BuildError;
use tegmen::coap::option::uint_bytes;
use tegmen::coap::{Block, Builder, Fixed, MessageType, OptionNumber, RequestId};
use tegmen::crypto::Crypto as _;
use tegmen::cx::Cx;
use tegmen::dtls::{Fatal, Records};
use tegmen::endpoint::{Event, MAX_HEADROOM, MAX_TAILROOM, Peers as _};
use tegmen::identity::Protection;
use tegmen::time::{Duration, Instant};

/// EMSGSIZE.
const TOO_LONG: i32 = 90;
/// Bytes of headers before the payload of a datagram.
const UDP_HEADER: u32 = 8;
const IPV4_HEADER: u32 = 20;
const IPV6_HEADER: u32 = 40;
/// Datagrams do not become smaller than this, in bytes.
const LEAST_MTU: u16 = 128;

/// What the loop brought.
pub(super) enum Happened {
    Established,
    Response(RequestId, Response),
    Refused(RequestId, ClientError),
    Reset(RequestId),
    Unanswered(RequestId),
    TimedOut,
    Closed(Fatal),
}

/// The parts of a message that a [`Request`] does not contain.
#[derive(Clone, Copy, Default)]
pub(super) struct Part<'a> {
    pub(super) payload: &'a [u8],
    pub(super) block1: Option<Block>,
    pub(super) block2: Option<Block>,
    pub(super) size1: Option<u32>,
    pub(super) observe: Option<u32>,
    pub(super) echo: Option<&'a [u8]>,
    pub(super) request_tag: Option<u32>,
    /// A token to use again.
    pub(super) token: Option<&'a [u8]>,
}

impl Client {
    /// Sends one message and waits for its response.
    pub(super) async fn exchange(&mut self, ask: &Request<'_>, part: Part<'_>) -> Result<Response, ClientError> {
        self.converse(ask, part).await.map(|(_, reply)| reply)
    }

    /// As [`Self::exchange`]; the request may have further responses.
    pub(super) async fn converse(
        &mut self,
        ask: &Request<'_>,
        part: Part<'_>,
    ) -> Result<(RequestId, Response), ClientError> {
        let mut is_again = false;
        loop {
            if self.oscore.as_ref().is_some_and(OscoreClient::is_lost) {
                self.rederive().await?;
            }
            let (request, start) = self.begin(ask, part).await?;
            let answer = self.response_to(request, start.after(self.config.timeout)).await;
            if is_again || !self.oscore.as_ref().is_some_and(|oscore| oscore.begins_anew(&answer)) {
                let round_trip = clock::now().since(start);
                return answer.map(|reply| (request, Response { round_trip, ..reply }));
            }
            self.forget(request);
            is_again = true;
        }
    }

    /// Sends one message that a response comes for.
    pub(super) async fn begin(
        &mut self,
        ask: &Request<'_>,
        part: Part<'_>,
    ) -> Result<(RequestId, Instant), ClientError> {
        if let Some(reason) = self.closed {
            return Err(ClientError::Ended { remote: self.remote, detail: describe(reason) });
        }
        if self.is_silent() {
            self.is_answered();
        }
        if !self.config.confirmable {
            self.wait_to_probe().await?;
        }
        let start = clock::now();
        let mut random = [0; 9];
        self.crypto.random(&mut random);
        let most = self.most();
        let Some(exchanges) = self.endpoint.peers.attached(self.peer) else {
            return Err(ClientError::Ended { remote: self.remote, detail: "the peer is gone".to_owned() });
        };
        let mut storage = [0; MAX_DATAGRAM];
        let too_long = ClientError::TooLong { max: most };
        let headroom = if self.oscore.is_some() { OVERHEAD } else { 0 };
        let mut frame = Frame::new(storage.get_mut(..headroom + most).unwrap_or(&mut []), headroom);
        let message_id = exchanges.message_id();
        let message_type = if self.config.confirmable { MessageType::Confirmable } else { MessageType::NonConfirmable };
        let token = part.token.unwrap_or(&random[..self.config.token_len.min(8)]);
        let builder = Builder::new(&mut frame, message_type, ask.method, message_id, token);
        if builder.and_then(|builder| write(builder, ask, part)).is_err() {
            return Err(too_long);
        }
        let len = frame.len();
        let mut frame = Frame::around(&mut storage, headroom, headroom + len);
        let pending = match &mut self.oscore {
            None => None,
            Some(oscore) => Some(oscore.protect(&mut self.crypto, &mut frame)?),
        };
        let message = frame.finish();
        let request = match exchanges.sent(&mut Fixed, start, message, random[8]) {
            Ok(request) => request,
            Err(Busy::TooLong) => return Err(too_long),
            Err(Busy::Outstanding) => return Err(ClientError::System(io::Error::other("too many open requests"))),
        };
        if let Some(at) = exchanges.next_deadline(&Fixed) {
            self.endpoint.peers.schedule(self.peer, at);
        }
        if let (Some(oscore), Some(pending)) = (&mut self.oscore, pending) {
            oscore.wait(request, pending, message);
        }
        let message = message.to_vec();
        if !self.config.confirmable {
            self.probing.sent(start, message.len());
        }
        self.send(start, &message).await?;
        Ok((request, start))
    }

    /// Waits until a server that does not answer may be sent another message that nobody acknowledges.
    async fn wait_to_probe(&mut self) -> Result<(), ClientError> {
        while clock::now() < self.probing.next() {
            match self.turn(self.probing.next()).await? {
                Some(Happened::Response(id, reply)) => self.keep(id, reply),
                Some(Happened::Closed(reason)) => {
                    return Err(ClientError::Ended { remote: self.remote, detail: describe(reason) });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Keeps what another request waits for.
    fn keep(&mut self, id: RequestId, reply: Response) {
        if self.unread.len() < MAX_UNREAD {
            self.unread.push_back((id, reply));
        }
    }

    /// Bytes that a message to the server may have: what fits a datagram, and a record of the session.
    pub(super) fn most(&mut self) -> usize {
        // Without an offer there is no connection id.
        let channel = self.endpoint.peers.peer(self.peer).map(|peer| peer.channel());
        let overhead = match (self.config.dtls.connection_id, channel) {
            (None, Some(channel)) => channel.headroom::<HostCrypto>() + channel.max_tailroom::<HostCrypto>(),
            _ => MAX_HEADROOM + MAX_TAILROOM,
        };
        let datagram = usize::from(self.config.dtls.mtu).min(MAX_DATAGRAM).saturating_sub(overhead);
        let record = self.endpoint.peers.peer(self.peer).map_or(usize::MAX, |peer| peer.max_content());
        datagram.min(record).saturating_sub(if self.oscore.is_some() { OVERHEAD } else { 0 })
    }

    /// The largest block that fits a message beside the options of `ask`, and one that is asked for fits what we take.
    pub(super) fn block_size(&mut self, ask: &Request<'_>) -> usize {
        let taken = match (self.protection, self.config.dtls.record_size_limit) {
            (Protection::Dtls, limit @ 1..) => usize::from(limit),
            _ => usize::MAX,
        };
        let texts = ask.path.iter().chain(ask.query).map(|text| text.len() + 3);
        let options = ask.options.iter().map(|(_, value)| value.len() + 5);
        let others: usize = texts.chain(options).sum();
        // Header and token, the formats, Block1, Size1, Observe, Echo of 8 bytes and the end of the options.
        let room = self.most().min(taken).saturating_sub(others + 4 + 8 + 3 + 3 + 5 + 5 + 4 + 10 + 1);
        self.config.block_size.min(room.max(16))
    }

    /// Sends an empty confirmable message, which is answered with Reset ("CoAP ping"; RFC 7252, section 4.3).
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn ping(&mut self) -> Result<Duration, ClientError> {
        let start = clock::now();
        let mut random = [0; 1];
        self.crypto.random(&mut random);
        let Some(exchanges) = self.endpoint.peers.attached(self.peer) else {
            return Err(ClientError::Ended { remote: self.remote, detail: "the peer is gone".to_owned() });
        };
        let message = tegmen::coap::message::empty(MessageType::Confirmable, exchanges.message_id());
        let Ok(id) = exchanges.sent(&mut Fixed, start, &message, random[0]) else {
            return Err(ClientError::System(io::Error::other("too many open requests")));
        };
        if let Some(at) = exchanges.next_deadline(&Fixed) {
            self.endpoint.peers.schedule(self.peer, at);
        }
        self.send(start, &message).await?;
        match self.response_to(id, start.after(self.config.timeout)).await {
            Err(ClientError::Reset { .. }) => Ok(clock::now().since(start)),
            Err(error) => Err(error),
            Ok(_) => Ok(clock::now().since(start)),
        }
    }

    /// Waits for the response to a request.
    pub(super) async fn response_to(&mut self, request: RequestId, deadline: Instant) -> Result<Response, ClientError> {
        let start = clock::now();
        if let Some(reply) = self.response_until(request, deadline).await? {
            return Ok(reply);
        }
        self.forget(request);
        let is_over = self.is_over();
        Err(match self.protection {
            Protection::Dtls if is_over && !self.kept.as_ref().is_some_and(|kept| kept.untried) => {
                let detail = "it answers nothing: it restarted without its sessions, or cannot be reached".to_owned();
                ClientError::Ended { remote: self.remote, detail }
            }
            Protection::Plain => {
                let seconds = clock::now().since(start).as_secs();
                ClientError::Silence { remote: self.remote, seconds }
            }
            _ if self.kept.as_ref().is_some_and(|kept| kept.untried) => {
                self.forget_session();
                let detail = "it does not know the session that was kept, which is forgotten now".to_owned();
                ClientError::Ended { remote: self.remote, detail }
            }
            _ => {
                let seconds = clock::now().since(start).as_secs();
                ClientError::NoResponse { remote: self.remote, seconds }
            }
        })
    }

    /// Waits for the response, or the next notification, to a request; `None` if there is none until the deadline, or
    /// nobody acknowledges the request. What else comes is kept.
    pub(super) async fn response_until(
        &mut self,
        request: RequestId,
        deadline: Instant,
    ) -> Result<Option<Response>, ClientError> {
        if let Some(index) = self.unread.iter().position(|(id, _)| *id == request)
            && let Some((_, reply)) = self.unread.remove(index)
        {
            return self.uncut(request, reply).await.map(Some);
        }
        loop {
            let happened = match self.step(deadline).await {
                Ok(happened) => happened,
                Err(error) => {
                    self.forget(request);
                    return Err(error);
                }
            };
            match happened {
                Happened::Response(id, reply) if id == request => return self.uncut(request, reply).await.map(Some),
                Happened::Response(id, reply) => self.keep(id, reply),
                Happened::Refused(id, error) if id == request => return Err(error),
                Happened::Reset(id) if id == request => return Err(ClientError::Reset { remote: self.remote }),
                Happened::Unanswered(id) if id != request => {}
                Happened::TimedOut | Happened::Unanswered(_) => return Ok(None),
                Happened::Closed(reason) => {
                    return Err(ClientError::Ended { remote: self.remote, detail: describe(reason) });
                }
                Happened::Established | Happened::Refused(..) | Happened::Reset(_) => {}
            }
        }
    }

    pub(super) fn forget(&mut self, request: RequestId) {
        if let Some(exchanges) = self.endpoint.peers.attached(self.peer) {
            exchanges.cancel(&mut Fixed, request);
        }
        if let Some(oscore) = &mut self.oscore {
            oscore.forget(request);
        }
        self.unread.retain(|(id, _)| *id != request);
    }

    fn tap(&self, sent: bool, datagram: &[u8]) {
        if let Some(tap) = &self.config.tap {
            (tap.0)(Tapped::Datagram { sent, path: self.path, datagram });
        }
    }

    pub(super) async fn send(&mut self, now: Instant, message: &[u8]) -> Result<(), ClientError> {
        self.lease_ahead().map_err(ClientError::State)?;
        let mut storage = [0; MAX_DATAGRAM];
        let mut frame = Frame::new(&mut storage, if self.protection == Protection::Dtls { MAX_HEADROOM } else { 0 });
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        let sealed = frame.append(message).is_ok() && self.endpoint.seal(&mut cx, self.peer, &mut frame).is_ok();
        if !sealed {
            let detail = "its key has sealed as many records as it may".to_owned();
            return Err(ClientError::Ended { remote: self.remote, detail });
        }
        self.put(frame.bytes()).await
    }

    async fn put(&mut self, datagram: &[u8]) -> Result<(), ClientError> {
        self.tap(true, datagram);
        match self.socket.send(datagram).await {
            Ok(_) => Ok(()),
            Err(error) => self.network_error(error),
        }
    }

    /// Handles an error of the system for our datagrams. A refusal after the handshake may be forged by anybody.
    fn network_error(&mut self, source: io::Error) -> Result<(), ClientError> {
        let remote = self.remote;
        if source.raw_os_error() == Some(TOO_LONG) {
            self.follow_path_mtu();
            return Ok(());
        }
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

    /// A datagram was longer than the path carries: those of handshakes, and blocks, become smaller. What was lost is sent
    /// again by the timers.
    fn follow_path_mtu(&mut self) {
        #[cfg(not(target_os = "linux"))]
        let known: Option<u32> = None;
        #[cfg(target_os = "linux")]
        let known = match self.remote.is_ipv4() {
            true => rustix::net::sockopt::ip_mtu(&self.socket).ok(),
            false => rustix::net::sockopt::ipv6_mtu(&self.socket).ok(),
        };
        let headers = UDP_HEADER + if self.remote.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER };
        let mtu = &mut self.config.dtls.mtu;
        let fits = known.and_then(|known| u16::try_from(known.saturating_sub(headers)).ok());
        *mtu = fits.filter(|fits| fits < mtu).unwrap_or(*mtu / 2).max(LEAST_MTU);
        self.endpoint.limit_mtu(*mtu);
    }

    /// Receives, and does what is due, until something happens or the deadline has come.
    pub(super) async fn step(&mut self, deadline: Instant) -> Result<Happened, ClientError> {
        loop {
            if let Some(happened) = self.turn(deadline).await? {
                return Ok(happened);
            }
            if clock::now() >= deadline.min(self.silent_at) {
                return Ok(Happened::TimedOut);
            }
        }
    }

    /// The server was heard.
    pub(super) fn is_answered(&mut self) {
        (self.repeats, self.silent_at) = (0, Instant::NEVER);
    }

    /// A confirmable message was sent again at `now`.
    fn is_repeated(&mut self, now: Instant) {
        self.repeats = self.repeats.saturating_add(1);
        if self.config.reconnect && self.finds_silence && self.repeats == MAX_REPEATS {
            self.silent_at = now.after(LAST_WAIT);
        }
    }

    /// Does what is due, and receives one datagram if one comes before the deadline and the next alarm.
    async fn turn(&mut self, deadline: Instant) -> Result<Option<Happened>, ClientError> {
        if let Some(happened) = self.poll().await? {
            return Ok(Some(happened));
        }
        let deadline = deadline.min(self.silent_at);
        let alarm = self.endpoint.next_alarm().map_or(deadline, |alarm| alarm.min(deadline));
        // Taken out while it is read from; whoever gives up in between leaves it empty.
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(RECEIVE_LEN, 0);
        let received = tokio::time::timeout_at(clock::tokio_instant(alarm), self.socket.recv(&mut buffer)).await;
        let happened = match received {
            Err(_) => Ok(None),
            Ok(Err(error)) => self.network_error(error).map(|()| None),
            Ok(Ok(len)) => {
                let datagram = buffer.get_mut(..len).unwrap_or(&mut []);
                self.on_datagram(datagram).await
            }
        };
        self.buffer = buffer;
        happened
    }

    /// Sends what is due.
    pub(super) async fn poll(&mut self) -> Result<Option<Happened>, ClientError> {
        loop {
            let mut out = [0; MAX_DATAGRAM];
            let now = clock::now();
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            match self.endpoint.poll(&mut cx, &mut out) {
                None => return Ok(None),
                Some(Event::Transmit { len, .. }) => self.put(&out[..len.into()]).await?,
                Some(Event::Alarm(_)) => {
                    if let Some(happened) = self.on_alarm(now).await? {
                        return Ok(Some(happened));
                    }
                }
                Some(Event::Closed { reason, .. }) => {
                    self.closed = Some(reason);
                    self.forget_session();
                    return Ok(Some(Happened::Closed(reason)));
                }
                Some(_) => {}
            }
        }
    }

    async fn on_alarm(&mut self, now: Instant) -> Result<Option<Happened>, ClientError> {
        loop {
            let Some(exchanges) = self.endpoint.peers.attached(self.peer) else { return Ok(None) };
            let mut storage = [0; MAX_DATAGRAM];
            let mut frame = Frame::new(&mut storage, 0);
            match exchanges.poll(&mut Fixed, now, &mut frame) {
                Some(Due::Retransmit) => {
                    self.send(now, frame.bytes()).await?;
                    self.is_repeated(now);
                }
                Some(Due::TimedOut(request)) => return Ok(Some(Happened::Unanswered(request))),
                None => {
                    if let Some(next) = exchanges.next_deadline(&Fixed) {
                        self.endpoint.peers.schedule(self.peer, next);
                    }
                    return Ok(None);
                }
            }
        }
    }

    async fn on_datagram(&mut self, datagram: &mut [u8]) -> Result<Option<Happened>, ClientError> {
        if self.protection == Protection::Plain {
            self.tap(false, datagram);
            return self.on_message(datagram).await;
        }
        // A datagram is opened where it lies. A tap sees it behind the secrets that its first record gives.
        let mut untapped = self.config.tap.is_some().then(|| datagram.to_vec());
        let path = self.path;
        let mut records = Records::new(datagram);
        let mut result = None;
        loop {
            let mut out = [0; MAX_DATAGRAM];
            let mut cx = Cx { now: clock::now(), crypto: &mut self.crypto, counters: &mut self.counters };
            let mut event = match self.endpoint.handle(&mut cx, &path, &mut records, &mut out) {
                None => {
                    if let Some(datagram) = untapped {
                        self.tap(false, &datagram);
                    }
                    return Ok(result);
                }
                event => event,
            };
            // What waited behind one question may lead to the next.
            while let Some(Event::Need(_)) = event {
                event = self.on_need();
            }
            if let Some(datagram) = untapped.take() {
                self.tap(false, &datagram);
            }
            match event {
                Some(Event::Answer { len }) => self.put(&out[..len.into()]).await?,
                Some(Event::Established(_)) => {
                    self.established = true;
                    self.on_established()?;
                    result = Some(Happened::Established);
                }
                Some(Event::Closed { reason, .. }) => {
                    self.closed = Some(reason);
                    self.forget_session();
                    return Ok(Some(Happened::Closed(reason)));
                }
                Some(Event::Message { bytes, .. }) => {
                    if let Some(happened) = self.on_message(records.bytes(bytes)).await?
                        && let Some(Happened::Response(request, reply)) = result.replace(happened)
                    {
                        self.unread.push_back((request, reply));
                    }
                }
                _ => {}
            }
        }
    }

    async fn on_message(&mut self, bytes: &mut [u8]) -> Result<Option<Happened>, ClientError> {
        let now = clock::now();
        self.probing.heard();
        self.is_answered();
        let Some(exchanges) = self.endpoint.peers.attached(self.peer) else { return Ok(None) };
        let (mut answered, mut arrays) = (None, Fixed);
        let (answer, happened) = match exchanges.receive(&mut arrays, now, bytes) {
            Received::Response { request, message, acknowledge } => {
                answered = Some(message.token().len());
                let reply = match &mut self.oscore {
                    None => Ok(Response::new(&message)),
                    Some(_) if is_cut(&message) => Ok(Response { is_cut: true, ..Response::new(&message) }),
                    Some(oscore) => {
                        let before = bytes.to_vec();
                        let reply = oscore.unprotect(&mut self.crypto, request, bytes);
                        reply.map_err(|refused| Self::refused(self.remote, refused, &before))
                    }
                };
                let happened = match reply {
                    Ok(reply) => Happened::Response(request, reply),
                    Err(error) => Happened::Refused(request, error),
                };
                (acknowledge.map_or(Vec::new(), |ack| ack.to_vec()), Some(happened))
            }
            Received::Reset(request) => (Vec::new(), Some(Happened::Reset(request))),
            Received::Duplicate(reply) => (reply.to_vec(), None),
            Received::Reject(reset) => (reset.to_vec(), None),
            // A client has no resources.
            Received::Request(message, _) if message.message_type() == MessageType::Confirmable => {
                (tegmen::coap::message::empty(MessageType::Reset, message.message_id()).to_vec(), None)
            }
            Received::Request(..) | Received::Acknowledged(_) | Received::Rejected { .. } | Received::Nothing => {
                (Vec::new(), None)
            }
        };
        if let Some(token_len) = answered {
            self.heard(token_len);
        }
        if !answer.is_empty() {
            self.send(now, &answer).await?;
        }
        Ok(happened)
    }
}

/// Retransmissions after which a server that was not heard counts as silent, and how long the last one is given: 8 to 11
/// seconds in all.
const MAX_REPEATS: u8 = 2;
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Longest UDP payload.
const RECEIVE_LEN: usize = 65_535;
/// Responses that are kept while another is waited for.
const MAX_UNREAD: usize = 64;

pub(super) fn write(mut builder: Builder<'_, '_>, ask: &Request<'_>, part: Part<'_>) -> Result<(), BuildError> {
    for segment in ask.path {
        builder.option(OptionNumber::URI_PATH, segment.as_bytes())?;
    }
    for argument in ask.query {
        builder.option(OptionNumber::URI_QUERY, argument.as_bytes())?;
    }
    let numbers = [
        (OptionNumber::CONTENT_FORMAT, ask.content_format.map(u32::from)),
        (OptionNumber::ACCEPT, ask.accept.map(u32::from)),
        (OptionNumber::OBSERVE, part.observe),
        (OptionNumber::BLOCK1, part.block1.map(Block::value)),
        (OptionNumber::BLOCK2, part.block2.map(Block::value)),
        (OptionNumber::SIZE1, part.size1),
        (OptionNumber::REQUEST_TAG, part.request_tag),
    ];
    for (number, value) in numbers {
        let mut bytes = [0; 4];
        if let Some(value) = value {
            builder.insert(number, uint_bytes(value, &mut bytes))?;
        }
    }
    if let Some(echo) = part.echo {
        builder.insert(OptionNumber::ECHO, echo)?;
    }
    for (number, value) in ask.options {
        builder.insert(*number, value)?;
    }
    builder.payload(part.payload)
}

#[cfg(test)]
mod tests;
