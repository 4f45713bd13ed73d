//! Datagrams that are received, and what they hold.

use super::super::places::Arrived;
use super::Connection;
use crate::client::{ClientError, Response};
use crate::clock;
use crate::contexts::Untaken;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Probing, RequestId};
use tegmen::cx::Cx;
use tegmen::dtls::Records;
use tegmen::endpoint::Event;
use tegmen::identity::{PeerId, Protection};
use tegmen::node::{Application, Pacing, Reply};
use tegmen::oscore::UnprotectError;
use tegmen::time::Instant;

/// PROBING_RATE of the one peer (RFC 7252, section 4.7), and whether it was heard.
#[derive(Default)]
pub(in crate::client) struct ServerPacing {
    probing: Probing,
    is_heard: bool,
}

impl Pacing for ServerPacing {
    fn sent(&mut self, now: Instant, _: PeerId, len: usize) {
        self.probing.sent(now, len);
    }

    fn heard(&mut self, _: PeerId) {
        self.probing.heard();
        self.is_heard = true;
    }

    fn next(&self, _: PeerId) -> Instant {
        self.probing.next()
    }
}

/// The replies that one datagram brought.
#[derive(Default)]
pub(super) struct Arrivals {
    list: VecDeque<(RequestId, Arrival)>,
    /// Replies are protected with OSCORE.
    pub(super) are_protected: bool,
    /// The protected ones, behind one another.
    protected: Vec<u8>,
}

enum Arrival {
    Response(Response),
    /// The place of a message that is to be opened.
    Protected(Range<usize>),
    Acknowledged,
    Reset,
    TimedOut,
}

impl Application for Arrivals {
    fn on_reply(&mut self, _: PeerId, request: RequestId, reply: Reply<'_>) {
        let arrival = match reply {
            Reply::Response(message) if !self.are_protected => Arrival::Response(Response::new(message)),
            Reply::Response(message) if is_cut(message) => {
                Arrival::Response(Response { is_cut: true, ..Response::new(message) })
            }
            Reply::Response(message) => Arrival::Protected(self.keep(message)),
            Reply::Acknowledged => Arrival::Acknowledged,
            Reply::Reset => Arrival::Reset,
            // This node has no queue, and opens no protected responses.
            Reply::TimedOut | Reply::NotSent(_) | Reply::Refused { .. } => Arrival::TimedOut,
        };
        self.list.push_back((request, arrival));
    }
}

impl Arrivals {
    /// Keeps a message that can be opened once it was received.
    fn keep(&mut self, message: &MessageRef<'_>) -> Range<usize> {
        let options: usize = message.options().map(|(_, value)| value.len() + MAX_OPTION_HEAD).sum();
        let (start, most) = (self.protected.len(), MAX_HEAD + options + 1 + message.payload().len());
        self.protected.resize(start + most, 0);
        let mut frame = Frame::new(self.protected.get_mut(start..).unwrap_or(&mut []), 0);
        // There is room for all of it.
        let _ = write_again(message, &mut frame);
        let end = start + frame.len();
        self.protected.truncate(end);
        start..end
    }
}

fn write_again(message: &MessageRef<'_>, frame: &mut Frame<'_>) -> Result<(), tegmen::coap::message::BuildError> {
    let mut builder = Builder::new(frame, MessageType::NonConfirmable, message.code(), 0, message.token())?;
    message.options().try_for_each(|(number, value)| builder.option(number, value))?;
    builder.payload(message.payload())
}

/// Header and token of a message.
const MAX_HEAD: usize = 4 + 8;
/// Number and length of an option.
const MAX_OPTION_HEAD: usize = 5;

/// True for a block of a protected response.
fn is_cut(message: &MessageRef<'_>) -> bool {
    let block = message.block(OptionNumber::BLOCK2).ok().flatten();
    message.option(OptionNumber::OSCORE).is_some() && block.is_some_and(|block| block.more || block.number > 0)
}

impl Connection {
    /// Sets whether replies are protected with OSCORE.
    pub(in crate::client) const fn expect_protected(&mut self, are_protected: bool) {
        self.arrivals.are_protected = are_protected;
    }

    /// Handles a datagram.
    pub(in crate::client) fn on_datagram(&mut self, datagram: &mut [u8]) {
        if let Err(error) = self.lease_ahead() {
            self.fail_here(ClientError::State(error));
        }
        if self.protection == Protection::Plain {
            self.tap(false, datagram);
            let mut cx = Cx { now: clock::now(), crypto: &mut self.crypto, counters: &mut self.counters };
            let event = self.node.handle_plain(&mut cx, &self.path, datagram, &mut self.arrivals, &mut self.out);
            if let Some(Event::Transmit { len, .. }) = event {
                self.transmit(len.into());
            }
        } else {
            self.on_records(datagram);
        }
        self.deliver();
    }

    fn on_records(&mut self, datagram: &mut [u8]) {
        // A datagram is opened where it lies. A tap sees it behind the secrets that its first record gives.
        let mut untapped = self.config.log.tap.is_some().then(|| datagram.to_vec());
        let path = self.path;
        let mut records = Records::new(datagram);
        loop {
            let mut cx = Cx { now: clock::now(), crypto: &mut self.crypto, counters: &mut self.counters };
            let mut event = self.node.handle(&mut cx, &path, &mut records, &mut self.arrivals, &mut self.out);
            let is_last = event.is_none();
            // What waited behind one question may lead to the next.
            while let Some(Event::Need(_)) = event {
                event = self.on_need();
            }
            if let Some(datagram) = untapped.take() {
                self.tap(false, &datagram);
            }
            match event {
                Some(Event::Answer { len } | Event::Transmit { len, .. }) => self.transmit(len.into()),
                Some(Event::Established(_)) => {
                    self.established = true;
                    if let Err(error) = self.on_established() {
                        self.fail_here(error);
                    }
                    self.places.wake_all();
                }
                Some(Event::Closed { reason, .. }) => {
                    self.on_closed(reason);
                    return;
                }
                _ if is_last => return,
                _ => {}
            }
        }
    }

    /// Gives each place what arrived for it.
    pub(super) fn deliver(&mut self) {
        if std::mem::take(&mut self.node.features.pacing.is_heard) {
            self.is_answered();
            self.places.wake_first();
        }
        while let Some((request, arrival)) = self.arrivals.list.pop_front() {
            let Some(at) = self.places.find(request) else { continue };
            let arrived = match arrival {
                Arrival::Acknowledged => {
                    self.places.answered(at);
                    continue;
                }
                Arrival::Response(response) => {
                    self.is_tried();
                    Arrived::Response(response)
                }
                Arrival::Protected(range) => {
                    self.is_tried();
                    let mut protected = std::mem::take(&mut self.arrivals.protected);
                    let opened = self.open(at, request, protected.get_mut(range).unwrap_or(&mut []));
                    self.arrivals.protected = protected;
                    opened.map_or_else(Arrived::Refused, Arrived::Response)
                }
                Arrival::Reset => Arrived::Refused(ClientError::Reset { remote: self.remote }),
                Arrival::TimedOut => Arrived::Unanswered,
            };
            self.places.deliver(at, arrived);
        }
        self.arrivals.protected.clear();
    }

    /// Opens a protected response to the request of a place.
    pub(in crate::client) fn open(
        &mut self,
        at: usize,
        request: RequestId,
        message: &mut [u8],
    ) -> Result<Response, ClientError> {
        let Some(oscore) = &mut self.oscore else { return Err(ClientError::Closed { remote: self.remote }) };
        let code = MessageRef::parse(message).map_or(Code::EMPTY, |message| message.code());
        let (opened, again) = oscore.unprotect(&mut self.crypto, request, message);
        if let Some(place) = self.places.get(at) {
            place.again = again;
        }
        opened.map_err(|untaken| refused(self.remote, untaken, code))
    }
}

/// Why a response to a protected request is not taken.
fn refused(remote: SocketAddr, untaken: Untaken, code: Code) -> ClientError {
    let refused = match untaken {
        Untaken::Refused(refused) => refused,
        Untaken::NotKept(error) => return ClientError::Context(error),
    };
    if refused != UnprotectError::Unprotected {
        return ClientError::NotProtected { remote, detail: "a response that is not authentic" };
    }
    let detail = match code {
        Code::UNAUTHORIZED => {
            "4.01: it does not know the context (compare sender_id, recipient_id and id_context of both sides), or takes \
             the request for a replay"
        }
        Code::BAD_REQUEST => "4.00: it cannot decrypt the request (compare master_secret, master_salt and algorithm)",
        Code::BAD_OPTION => "4.02: it does not know OSCORE",
        _ if code.is_success() => "a response that is not protected; perhaps another server answers there",
        _ => "an error that is not protected",
    };
    ClientError::NotProtected { remote, detail }
}
