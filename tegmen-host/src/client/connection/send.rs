//! The messages that a session sends.

use super::super::request::{Part, Request};
use super::Connection;
use crate::client::ClientError;
use crate::client::oscore::unprotectable;
use crate::clock;
use crate::contexts::OVERHEAD;
use crate::provider::HostCrypto;
use crate::udp::MAX_DATAGRAM;
use tegmen::coap::option::Class;
use tegmen::coap::{Block, BuildError, Builder, Code, HEADER_LEN, OptionNumber, Options, RequestId, uint_bytes};
use tegmen::crypto::Crypto as _;
use tegmen::endpoint::{MAX_HEADROOM, MAX_TAILROOM, Peers as _};
use tegmen::identity::Protection;
use tegmen::node::{Pacing as _, RequestHead, SendError};
use tegmen::oscore::ProtectError;
use tegmen::time::Instant;

/// A message that begins an exchange.
#[derive(Clone, Copy)]
pub(in crate::client) enum Message<'a> {
    Request(&'a Request<'a>, Part<'a>),
    /// A request for new OSCORE keys (RFC 8613, appendix B.2).
    Rederivation(&'a Request<'a>),
    /// A request with an EDHOC message, without OSCORE.
    Agreement(&'a Request<'a>),
    /// An empty confirmable message, which is a CoAP ping.
    Ping,
    /// A request for a further block of a protected response that a proxy has cut. The first two values are the code
    /// and the encoded options that the original request had outside the protection of OSCORE. The last value selects
    /// the block.
    OuterBlock(Code, &'a [u8], Block),
}

/// The result of an attempt to send a message.
pub(in crate::client) enum Turn {
    /// The message was sent at this time.
    Sent(Instant),
    /// New OSCORE keys have to be derived before the message can be sent.
    KeysLost,
}

impl Connection<'_> {
    /// Sends a message for the request with the index `at`, if the queue and NSTART permit it now. Returns `None` if
    /// the message has to wait. The request is then in the queue.
    pub(in crate::client) fn try_send(
        &mut self,
        at: usize,
        message: &Message<'_>,
    ) -> Result<Option<Turn>, ClientError> {
        if let Some(error) = self.end() {
            self.entry.places.leave_queue(at);
            return Err(error);
        }
        if matches!(message, Message::Request(..)) && self.has_lost_keys() {
            self.entry.places.leave_queue(at);
            return Ok(Some(Turn::KeysLost));
        }
        let confirmable = match message {
            Message::Request(_, part) => self.entry.config.coap.confirmable && !part.wants_nothing,
            Message::Rederivation(_) => self.entry.config.coap.confirmable,
            _ => true,
        };
        let now = clock::now();
        if self.entry.established
            && self.entry.places.is_turn(at)
            && self.entry.places.outstanding() < self.entry.config.coap.nstart.max(1)
        {
            let next = self.io.node.features.pacing.next(self.entry.peer);
            if !confirmable && now < next {
                if let Some(place) = self.entry.places.get(at) {
                    place.wake_at = next;
                }
            } else if let Some((request, len)) = self.write(now, message, confirmable)? {
                self.entry.places.sent(at, request);
                if let Message::Request(request, _) = message
                    && let Some(place) = self.entry.places.get(at)
                {
                    place.is_forwarded = request.is_protected();
                }
                self.entry.places.leave_queue(at);
                self.entry.places.wake_first();
                self.put_out(len)?;
                self.io.rearm_for_alarm();
                return Ok(Some(Turn::Sent(now)));
            }
        }
        match self.entry.places.queue(at, self.entry.config.coap.max_queued) {
            true => Ok(None),
            false => Err(ClientError::QueueFull { remote: self.entry.remote, max: self.entry.config.coap.max_queued }),
        }
    }

    /// Writes a message into the output buffer. Returns `None` if too many exchanges are open. Otherwise returns the id
    /// of the request and the length of the datagram.
    fn write(
        &mut self,
        now: Instant,
        message: &Message<'_>,
        confirmable: bool,
    ) -> Result<Option<(RequestId, usize)>, ClientError> {
        if self.entry.is_silent() {
            self.entry.is_answered();
        }
        self.lease_ahead().map_err(ClientError::State)?;
        let mut random = [0; 8];
        self.io.environment.crypto.random(&mut random);
        let token = random.get(..self.entry.config.coap.token_len).unwrap_or(&random);
        match message {
            Message::Ping => {
                let mut cx = self.io.environment.at(now);
                let sent = self.io.node.ping(&mut cx, self.entry.peer, &mut self.io.out);
                self.sent(sent)
            }
            Message::OuterBlock(code, options, block) => {
                // The proxy finds the response by these, and the way to it.
                let is_for_proxies = |(number, _): &(OptionNumber, &[u8])| number.class() == Class::Unprotected;
                let write = |builder: &mut Builder<'_, '_>| {
                    let mut options = Options::new(options, &[]).filter(is_for_proxies);
                    options.try_for_each(|(number, value)| builder.option(number, value))?;
                    builder.insert(OptionNumber::BLOCK2, uint_bytes(block.value(), &mut [0; 4]))
                };
                let most = self.most() + OVERHEAD;
                self.write_request(now, (RequestHead::new(*code), token), most, write)
            }
            Message::Agreement(request) => self.write_part(now, request, Part::default(), token, true),
            Message::Rederivation(request) => self.write_part(now, request, Part::default(), token, confirmable),
            Message::Request(request, part) => self.write_part(now, request, *part, token, confirmable),
        }
    }

    /// Writes a request. OSCORE protects the request if the session has a context. The token is `drawn`, unless `part`
    /// contains a token.
    fn write_part(
        &mut self,
        now: Instant,
        request: &Request<'_>,
        part: Part<'_>,
        drawn: &[u8],
        confirmable: bool,
    ) -> Result<Option<(RequestId, usize)>, ClientError> {
        let head = RequestHead::new(request.method);
        let head = if confirmable { head } else { head.non_confirmable() };
        let head = if self.oscore().is_some() { head.with_oscore() } else { head };
        let most = self.most();
        self.write_request(now, (head, part.token.unwrap_or(drawn)), most, |builder| request.write(builder, part))
    }

    /// Writes a request, whose length before protection is at most `most` bytes.
    fn write_request(
        &mut self,
        now: Instant,
        (head, token): (RequestHead<'_>, &[u8]),
        most: usize,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
    ) -> Result<Option<(RequestId, usize)>, ClientError> {
        let write = |builder: &mut Builder<'_, '_>| {
            let before = builder.room();
            write(builder)?;
            let len = HEADER_LEN + token.len() + before.saturating_sub(builder.room());
            if len > most { Err(BuildError::Full) } else { Ok(()) }
        };
        let mut cx = self.io.environment.at(now);
        let sent = self.io.node.request(&mut cx, self.entry.peer, head.with_token(token), write, &mut self.io.out);
        self.sent(sent)
    }

    fn sent(&mut self, sent: Result<(RequestId, usize), SendError>) -> Result<Option<(RequestId, usize)>, ClientError> {
        let error = match sent {
            Ok(sent) => return Ok(Some(sent)),
            Err(error) => error,
        };
        // A request that was protected and not sent is not waited for.
        let Self { io, entry } = self;
        let oscore = io.node.features.oscore.get_mut(entry.key);
        let problem = oscore.and_then(|oscore| {
            oscore.retain(|request| entry.places.find(request).is_some());
            oscore.take_problem()
        });
        match (error, problem) {
            (SendError::Busy, _) => Ok(None),
            (SendError::Oscore(_), Some(problem)) => Err(ClientError::Context(problem)),
            (SendError::TooLong | SendError::Oscore(ProtectError::Full), _) => {
                Err(ClientError::TooLong { max: self.most() })
            }
            (SendError::Oscore(stop), None) => Err(unprotectable(stop)),
            // An endpoint is in no protected group.
            (SendError::Misuse(_) | SendError::Group(_), _) => {
                let detail = "its key has sealed as many records as it may".to_owned();
                Err(ClientError::Ended { remote: self.entry.remote, detail })
            }
        }
    }

    /// Returns the maximum length of a message to the server: the message must fit in a datagram and in a record of the
    /// session.
    pub(in crate::client) fn most(&mut self) -> usize {
        // Without an offer there is no connection id.
        let peers = &mut self.io.node.endpoint.peers;
        let channel = peers.peer(self.entry.peer).map(|peer| peer.channel());
        let overhead = match (self.entry.config.dtls.connection_id, channel) {
            (None, Some(channel)) => channel.max_overhead::<HostCrypto>(),
            _ => MAX_HEADROOM + MAX_TAILROOM,
        };
        let datagram = usize::from(self.entry.mtu).min(MAX_DATAGRAM).saturating_sub(overhead);
        let record = peers.peer(self.entry.peer).map_or(usize::MAX, |peer| peer.max_content());
        let protection = self.oscore().map_or(0, |oscore| oscore.overhead());
        datagram.min(record).saturating_sub(protection)
    }

    /// Returns the maximum block size for a request in bytes. A block of this size fits in a message with the options
    /// of `request`, whether the client or the server sends the block.
    pub(in crate::client) fn block_size(&mut self, request: &Request<'_>) -> usize {
        self.entry.config.coap.block_size.min(self.room(request))
    }

    /// Returns the number of body bytes that fit in a message with the options of `request`, at least 16.
    pub(in crate::client) fn room(&mut self, request: &Request<'_>) -> usize {
        let taken = match (self.entry.protection, self.entry.config.dtls.record_size_limit) {
            (Protection::Dtls, limit @ 1..) => usize::from(limit),
            _ => usize::MAX,
        };
        let others = request.options_len();
        // Header and token, the formats, Block1, Size1, Observe, Echo of 8 bytes and the end of the options.
        self.most().min(taken).saturating_sub(others + 4 + 8 + 3 + 3 + 5 + 5 + 4 + 10 + 1).max(16)
    }

    /// Sends the first `len` bytes of the output buffer.
    fn put_out(&mut self, len: usize) -> Result<(), ClientError> {
        let path = self.entry.path;
        self.io.put_out(&path, len).or_else(|source| self.network_error(&source))
    }
}
