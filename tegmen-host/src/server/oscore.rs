//! OSCORE at a server (RFC 8613): the contexts that all shards share, and protected requests that a proxy has cut into
//! blocks.

use super::Event;
use super::bodies::ServerBodies;
use crate::contexts::{
    ContextError, Contexts, MAX_UNFRAGMENTED_SIZE, MEMBER_OVERHEAD, OVERHEAD, Received, ReceivedInGroup, SharedMember,
    StoredContext, Untaken,
};
use crate::edhoc::{EdhocServer, Failed};
use crate::target::VirtualHosts;
use std::net::SocketAddr;
use tegmen::buf::Frame;
use tegmen::coap::{
    Block, BuildError, Builder, Code, MessageRef, MessageType, OptionNumber, Request, Token, uint_bytes,
};
use tegmen::crypto::Crypto;
use tegmen::identity::{Identity, PeerId};
use tegmen::node::{Bodies as _, Opened, Operation, Oscore, Outer};
use tegmen::oscore::group::{GroupNonce, GroupRequest};
use tegmen::oscore::{
    FirstRequest, OpenedRequest, OscoreOption, ProtectError, RequestBinding, RequestNonce, UnprotectError,
};
use tegmen::time::Instant;
use tegmen_edhoc::transfer::MESSAGE_FORMAT;
use tegmen_edhoc::{Failure, combined};

/// A request that OSCORE has opened, with the data that is needed to protect the response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OscoreExchange {
    /// A request under a context between two endpoints: the index of the context, the request, and the number of key
    /// changes of the context when the request came.
    Pair { place: u32, request: RequestBinding, generation: u64 },
    /// A request under a group context: the index of the context, and the request.
    Group { place: u32, request: GroupRequest },
}

/// The right to send one response with the nonce of the request.
#[derive(Debug)]
pub(crate) enum OscoreNonce {
    Pair(RequestNonce),
    Group(GroupNonce),
}

impl OpenedRequest for OscoreExchange {
    type Nonce = OscoreNonce;
}

/// The reason why a request with OSCORE was refused, for the operator.
pub(super) enum Problem {
    Context(ContextError),
    Request(UnprotectError),
    Message3(Failed),
}

impl Problem {
    /// Returns the event that reports the problem of a request from `remote`. Returns `None` for a request to a group
    /// (`to_group`) under an unknown context, because this server need not be a member of the OSCORE group.
    pub(super) fn event(self, remote: SocketAddr, to_group: bool) -> Option<Event> {
        Some(match self {
            Self::Context(problem) => Event::Context { remote, problem },
            Self::Request(UnprotectError::UnknownContext) if to_group => return None,
            Self::Request(reason) => Event::OscoreRefused { remote, reason },
            Self::Message3(failed) => Event::EdhocRefused { remote, reason: failed.reason() },
        })
    }
}

/// The contexts of a server, and the protected requests that proxies have cut into blocks.
pub(super) struct ServerOscore {
    contexts: Contexts,
    /// The EDHOC responder, which makes contexts; `None` if the server does not use EDHOC.
    edhoc: Option<EdhocServer>,
    hosts: VirtualHosts,
    /// The blocks of protected requests. OSCORE does not authenticate a single block, so the server stores only a few
    /// short blocks.
    blocks: ServerBodies,
    /// The first request of a rederivation, until the response to it is written (RFC 8613, appendix B.2).
    first: Option<FirstRequest>,
    /// The reasons why requests were refused, until the shard has reported them.
    pub(super) problems: Vec<Problem>,
    /// The number of requests with OSCORE that the server answered, although their decrypted content did not reach the
    /// application: for example, refused requests.
    pub(super) unopened: u64,
}

impl ServerOscore {
    /// Returns the OSCORE state of a server. The server uses `contexts`, and the contexts that `edhoc` makes. `blocks`
    /// stores requests that proxies have cut into blocks.
    pub(super) fn new(contexts: Contexts, edhoc: Option<EdhocServer>, blocks: ServerBodies) -> Self {
        let contexts = match &edhoc {
            Some(edhoc) => contexts.with_agreed(edhoc.contexts()),
            None => contexts,
        };
        let hosts = VirtualHosts::default();
        Self { contexts, edhoc, hosts, blocks, first: None, problems: Vec::new(), unopened: 0 }
    }

    /// Sets the hosts for which the server is a proxy. The server does not decrypt requests for these hosts. It
    /// forwards them.
    pub(super) fn with_hosts(self, hosts: VirtualHosts) -> Self {
        Self { hosts, ..self }
    }

    /// Removes the blocks of requests that no client continues, and of peers that no longer exist.
    pub(super) fn sweep(&mut self, now: Instant, is_there: impl FnMut(PeerId) -> bool) {
        self.blocks.sweep(now, is_there);
    }

    /// True if a datagram is a protected non-confirmable request that names a context between two endpoints.
    pub(super) fn is_named_by(&self, datagram: &[u8]) -> bool {
        MessageRef::parse(datagram).is_ok_and(|message| {
            let option = message.option(OptionNumber::OSCORE).and_then(|option| OscoreOption::parse(option).ok());
            message.message_type() == MessageType::NonConfirmable
                && message.code().is_request()
                && option.is_some_and(|option| {
                    self.contexts.find_member(&option).is_none() && self.contexts.find(&option).is_some()
                })
        })
    }

    fn open<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        datagram: &'r mut [u8],
    ) -> Result<Opened<'r, OscoreExchange>, UnprotectError> {
        let outside = MessageRef::parse(datagram).map_err(|_| UnprotectError::Malformed)?;
        // A copy, because the datagram is decrypted in place.
        let mut storage = [0; MAX_OPTION];
        let option = outside.option(OptionNumber::OSCORE).ok_or(UnprotectError::Unprotected)?;
        let option = copy(option, &mut storage).ok_or(UnprotectError::BadOption)?;
        if let Some((place, member)) = self.of_group(option) {
            return match member.take_request(datagram) {
                Ok(ReceivedInGroup::Fresh(message, principal, nonce)) => {
                    let exchange = OscoreExchange::Group { place, request: nonce.request() };
                    Ok(Opened::Fresh { message, principal, exchange, nonce: OscoreNonce::Group(nonce) })
                }
                Ok(ReceivedInGroup::Unverified(message, principal, request)) => {
                    let exchange = OscoreExchange::Group { place, request };
                    Ok(Opened::Unverified { message: Some(message), principal, exchange })
                }
                Err(Ok(refused)) => Err(refused),
                Err(Err(problem)) => {
                    self.problems.push(Problem::Context(problem));
                    Err(UnprotectError::UnknownContext)
                }
            };
        }
        let option = OscoreOption::parse(option)?;
        if option.kid.is_none() || option.partial_iv.is_none() {
            return Err(UnprotectError::BadOption);
        }
        let context = self.contexts.find(&option).ok_or(UnprotectError::UnknownContext)?;
        let mut stored = context.lock();
        let taken = stored.check_expiry().map_err(Untaken::NotKept);
        let taken = taken.and_then(|()| stored.take_request(crypto, &option, datagram));
        let generation = stored.generation();
        drop(stored);
        let (place, principal) = (context.place(), context.principal());
        let received = taken.map_err(|untaken| match untaken {
            Untaken::Refused(refused) => refused,
            Untaken::NotKept(problem) => {
                self.problems.push(Problem::Context(problem));
                UnprotectError::UnknownContext
            }
        })?;
        if matches!(received, Received::Fresh(..)) {
            self.contexts.note_use(&context);
        }
        let exchange = OscoreExchange::Pair { place, request: received.binding(), generation };
        Ok(match received {
            Received::Fresh(message, nonce) => {
                Opened::Fresh { message, principal, exchange, nonce: OscoreNonce::Pair(nonce) }
            }
            Received::Unverified(message, _) => Opened::Unverified { message: Some(message), principal, exchange },
            Received::First(first) => {
                self.first = Some(first);
                Opened::Unverified { message: None, principal, exchange }
            }
        })
    }

    /// Returns the group context that an OSCORE option names. The first value is the index of this context.
    fn of_group(&self, option: &[u8]) -> Option<(u32, SharedMember)> {
        self.contexts.find_member(&OscoreOption::parse_in_group(option).ok()?)
    }

    /// Verifies message_3 of a combined request, and makes the context that the kid of the request names (RFC 9668,
    /// section 3.3.1). Does nothing if the request is not combined with message_3.
    fn make_context(&self, request: &MessageRef<'_>) -> Result<(), Failed> {
        let Some(edhoc) = &self.edhoc else { return Ok(()) };
        if request.option(EDHOC).is_none() {
            return Ok(());
        }
        let malformed = || Failed(Failure::Malformed);
        let option = request.option(OptionNumber::OSCORE).and_then(|option| OscoreOption::parse(option).ok());
        let recipient_id = option.and_then(|option| option.kid).ok_or_else(malformed)?;
        let (message_3, _) = combined::split(request.payload()).ok_or_else(malformed)?;
        edhoc.finish(recipient_id, message_3)
    }

    /// Calls `use_it` with the context of a request. Returns an error if the keys of the context have changed since the
    /// request came: under the new keys, another request may have the same nonce, and the response would be bound to
    /// that other request.
    fn with_stored(
        &self,
        (place, generation): (u32, u64),
        use_it: impl FnOnce(&mut StoredContext) -> Result<(), ProtectError>,
    ) -> Result<(), ProtectError> {
        let context = self.contexts.at(place).ok_or(ProtectError::Exhausted)?;
        let mut stored = context.lock();
        if stored.generation() == generation { use_it(&mut stored) } else { Err(ProtectError::Exhausted) }
    }
}

impl Oscore for ServerOscore {
    const OVERHEAD: usize = if MEMBER_OVERHEAD > OVERHEAD { MEMBER_OVERHEAD } else { OVERHEAD };
    const GATHERS: bool = true;
    const GROUPS: bool = true;
    type Exchange = OscoreExchange;
    type Whole = Vec<u8>;

    fn gather(
        &mut self,
        now: Instant,
        peer: PeerId,
        (identity, is_unverified): (Identity, bool),
        datagram: &[u8],
        head: (MessageType, u16),
        frame: &mut Frame<'_>,
    ) -> Outer<Vec<u8>> {
        let Ok(message) = MessageRef::parse(datagram) else { return Outer::Answered };
        let mut answer = |code: Code, option: Option<(OptionNumber, u32)>| {
            self.unopened += 1;
            let built = Builder::new(frame, head.0, code, head.1, message.token());
            let _ = built.and_then(|mut builder| option.map_or(Ok(()), |(number, value)| builder.uint(number, value)));
            Outer::Answered
        };
        let block = match message.block(OptionNumber::BLOCK1) {
            Err(code) => return answer(code, None),
            Ok(block) => block.filter(|block| block.more || block.number > 0),
        };
        let Some(block) = block else {
            return match self.make_context(&message) {
                Ok(()) => Outer::Uncut,
                Err(failed) => {
                    self.unopened += 1;
                    let refused = refuse(&failed, &message, head, frame);
                    self.problems.push(Problem::Message3(failed));
                    refused
                }
            };
        };
        let option = message.option(OptionNumber::OSCORE).map(OscoreOption::parse);
        if !option.is_some_and(|option| option.is_ok_and(|option| self.contexts.find(&option).is_some())) {
            self.problems.push(Problem::Request(UnprotectError::UnknownContext));
            return answer(Code::UNAUTHORIZED, Some((OptionNumber::MAX_AGE, 0)));
        }
        if is_unverified {
            return answer(Code::SERVICE_UNAVAILABLE, None);
        }
        let operation = Operation::of(peer, &Request::new(message, identity));
        let announced = message.uint(OptionNumber::SIZE1).unwrap_or(0) as usize;
        match self.blocks.upload(now, &operation, (block, message.payload()), announced) {
            Ok(false) => answer(Code::CONTINUE, Some((OptionNumber::BLOCK1, block.value()))),
            Ok(true) => {
                let body = self.blocks.body(&operation);
                let mut whole = vec![0; datagram.len() + body.len()];
                let mut whole = Frame::new(&mut whole, 0);
                let composed = compose(&mut whole, &message, body).map(drop);
                self.blocks.release(&operation);
                match composed {
                    Ok(()) => Outer::Whole { message: whole.bytes().to_vec(), last: block },
                    Err(_) => answer(Code::REQUEST_ENTITY_TOO_LARGE, None),
                }
            }
            Err(Code::REQUEST_ENTITY_TOO_LARGE) => {
                let most = (OptionNumber::SIZE1, MAX_UNFRAGMENTED_SIZE as u32);
                answer(Code::REQUEST_ENTITY_TOO_LARGE, Some(most))
            }
            Err(code) => answer(code, None),
        }
    }

    fn acknowledge(&self, last: Block, frame: &mut Frame<'_>) {
        let bytes = frame.bytes().to_vec();
        let Ok(response) = MessageRef::parse(&bytes) else { return };
        // An empty acknowledgement carries no Block1 option.
        if response.code() == Code::EMPTY {
            return;
        }
        frame.truncate(0);
        let mut value = [0; 4];
        let value = uint_bytes(last.value(), &mut value);
        let built = compose(frame, &response, response.payload());
        if built.and_then(|mut builder| builder.insert(OptionNumber::BLOCK1, value)).is_err() {
            frame.truncate(0);
            let _ = frame.append(&bytes);
        }
    }

    fn is_for_us(&self, request: &MessageRef<'_>) -> bool {
        self.hosts.named(request).is_none()
    }

    fn unprotect_request<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        _: PeerId,
        datagram: &'r mut [u8],
    ) -> Result<Opened<'r, OscoreExchange>, UnprotectError> {
        let datagram = without_message_3(datagram);
        let opened = self.open(crypto, datagram);
        if !matches!(opened, Ok(Opened::Fresh { .. } | Opened::Unverified { message: Some(_), .. })) {
            self.unopened += 1;
        }
        // A context that cannot be used is already a problem.
        if let (Err(reason), true) = (&opened, self.problems.is_empty()) {
            self.problems.push(Problem::Request(*reason));
        }
        opened
    }

    fn protect_response<C: Crypto>(
        &mut self,
        crypto: &mut C,
        exchange: &OscoreExchange,
        nonce: Option<OscoreNonce>,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        match (*exchange, nonce) {
            (OscoreExchange::Pair { place, request, generation }, nonce) => {
                self.with_stored((place, generation), |stored| {
                    let nonce = match nonce {
                        Some(OscoreNonce::Pair(nonce)) => Some(nonce),
                        _ => None,
                    };
                    if nonce.is_none() {
                        stored.lease_one()?;
                    }
                    stored.context.protect_response(crypto, &request, nonce, frame)
                })
            }
            (OscoreExchange::Group { place, request }, nonce) => {
                let nonce = match nonce {
                    Some(OscoreNonce::Group(nonce)) => Some(nonce),
                    _ => None,
                };
                let member = self.contexts.member_at(place, request.gid()).ok_or(ProtectError::Exhausted)?;
                member.protect_response(&request, nonce, frame)
            }
        }
    }

    fn is_of_group(&self, request: &MessageRef<'_>) -> bool {
        request.option(OptionNumber::OSCORE).is_some_and(|option| self.of_group(option).is_some())
    }

    fn write_challenge<C: Crypto>(
        &mut self,
        crypto: &mut C,
        exchange: &OscoreExchange,
        head: (MessageType, u16),
        token: &Token,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let (place, request, generation) = match *exchange {
            OscoreExchange::Pair { place, request, generation } => (place, request, generation),
            OscoreExchange::Group { place, request } => {
                let member = self.contexts.member_at(place, request.gid()).ok_or(ProtectError::Exhausted)?;
                return member.write_challenge(&request, head, token, frame);
            }
        };
        if let Some(first) = self.first.take() {
            let context = self.contexts.at(place).ok_or(ProtectError::Exhausted)?;
            return context.lock().answer_first(crypto, &first, head, token, frame);
        }
        self.with_stored((place, generation), |stored| {
            stored.lease_one()?;
            stored.context.write_challenge(crypto, &request, head, token, frame)
        })
    }
}

/// Maximum length of an OSCORE option in bytes (RFC 8613, section 2).
const MAX_OPTION: usize = 255;

/// Copies `bytes` into `storage`. Returns `None` if `storage` is too short.
fn copy<'s>(bytes: &[u8], storage: &'s mut [u8]) -> Option<&'s [u8]> {
    let storage = storage.get_mut(..bytes.len())?;
    storage.copy_from_slice(bytes);
    Some(storage)
}

/// Writes a copy of a message with another payload, and without the options Block1 and Size1.
fn compose<'f, 't>(
    frame: &'f mut Frame<'t>,
    message: &MessageRef<'_>,
    payload: &[u8],
) -> Result<Builder<'f, 't>, BuildError> {
    let (message_type, code) = (message.message_type(), message.code());
    let mut builder = Builder::new(frame, message_type, code, message.message_id(), message.token())?;
    let is_kept = |number: OptionNumber| number != OptionNumber::BLOCK1 && number != OptionNumber::SIZE1;
    for (number, value) in message.options().filter(|(number, _)| is_kept(*number)) {
        builder.option(number, value)?;
    }
    builder.payload(payload)?;
    Ok(builder)
}

/// The number of the EDHOC option.
const EDHOC: OptionNumber = OptionNumber(combined::EDHOC_OPTION);

/// Removes message_3 and the EDHOC option from a combined request (RFC 9668), in place. Returns the shorter request.
fn without_message_3(datagram: &mut [u8]) -> &mut [u8] {
    let Some(plain) = split_request(datagram) else { return datagram };
    let (request, _) = datagram.split_at_mut(plain.len());
    request.copy_from_slice(&plain);
    request
}

/// Returns a copy of a combined request (RFC 9668), without message_3 and the EDHOC option. Returns `None` if the
/// datagram is not a combined request.
fn split_request(datagram: &[u8]) -> Option<Vec<u8>> {
    let message = MessageRef::parse(datagram).ok()?;
    message.option(EDHOC)?;
    let (_, ciphertext) = combined::split(message.payload())?;
    let mut bytes = vec![0; datagram.len()];
    let mut frame = Frame::new(&mut bytes, 0);
    let (message_type, code) = (message.message_type(), message.code());
    let mut builder = Builder::new(&mut frame, message_type, code, message.message_id(), message.token()).ok()?;
    for (number, value) in message.options().filter(|(number, _)| *number != EDHOC) {
        builder.option(number, value).ok()?;
    }
    builder.payload(ciphertext).ok()?;
    let len = frame.len();
    bytes.truncate(len);
    Some(bytes)
}

/// Writes the error response to a combined request (RFC 9668) whose message_3 was refused.
fn refuse(
    failed: &Failed,
    request: &MessageRef<'_>,
    (message_type, message_id): (MessageType, u16),
    frame: &mut Frame<'_>,
) -> Outer<Vec<u8>> {
    let built = Builder::new(frame, message_type, failed.code(), message_id, request.token());
    let _ = built.and_then(|mut builder| {
        builder.uint(OptionNumber::CONTENT_FORMAT, MESSAGE_FORMAT.into())?;
        builder.payload(&failed.message())
    });
    Outer::Answered
}

/// True if OSCORE protects the message.
pub(super) fn is_protected(message: &[u8]) -> bool {
    MessageRef::parse(message).is_ok_and(|message| message.option(OptionNumber::OSCORE).is_some())
}
