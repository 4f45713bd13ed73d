//! OSCORE at an endpoint (RFC 8613): the context that protects the requests of each session, and the requests that wait
//! for a response.

use super::multicast::PhantomPending;
use super::session_context::{PendingRequest, SessionContext};
use super::{ClientError, Response};
use crate::contexts::{ContextError, MEMBER_OVERHEAD, OVERHEAD, Untaken};
use crate::edhoc::peer_error;
use crate::provider::HostCrypto;
use crate::server::OscoreExchange;
use std::collections::HashMap;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, HEADER_LEN, MessageRef, OptionNumber, RequestId};
use tegmen::crypto::Crypto;
use tegmen::identity::PeerId;
use tegmen::node::{Oscore, SendError};
use tegmen::oscore::{ProtectError, UnprotectError};

/// The OSCORE contexts of the sessions of an endpoint.
#[derive(Default)]
pub(super) struct EndpointOscore {
    /// The OSCORE state of each session. The key is the index of the session in the endpoint.
    clients: HashMap<usize, OscoreClient>,
    /// For each peer, the index of its session in the endpoint.
    sessions: HashMap<PeerId, usize>,
}

impl EndpointOscore {
    /// Protects the requests of a session with this context from now on.
    pub(super) fn insert(&mut self, session: usize, stored: SessionContext) {
        self.clients.insert(session, OscoreClient::new(stored));
    }

    /// Closes the OSCORE context of a session.
    pub(super) fn remove(&mut self, session: usize) {
        if self.clients.remove(&session).is_some() {
            self.sessions.retain(|_, other| *other != session);
        }
    }

    /// Returns the OSCORE context of a session; `None` if the session has no context.
    pub(super) fn get(&self, session: usize) -> Option<&OscoreClient> {
        self.clients.get(&session)
    }

    /// Returns the OSCORE context of a session mutably.
    pub(super) fn get_mut(&mut self, session: usize) -> Option<&mut OscoreClient> {
        self.clients.get_mut(&session)
    }

    /// Notes the peer of a session.
    pub(super) fn attach(&mut self, peer: PeerId, session: usize) {
        if self.clients.contains_key(&session) {
            self.sessions.insert(peer, session);
        }
    }

    /// Forgets the session of a peer.
    pub(super) fn detach(&mut self, peer: PeerId) {
        self.sessions.remove(&peer);
    }

    fn client_of(&mut self, peer: PeerId) -> Option<&mut OscoreClient> {
        self.clients.get_mut(self.sessions.get(&peer)?)
    }
}

impl Oscore for EndpointOscore {
    const OVERHEAD: usize = if MEMBER_OVERHEAD > OVERHEAD { MEMBER_OVERHEAD } else { OVERHEAD };
    const GATHERS: bool = true;
    /// A client endpoint does not open protected requests, so it makes no value of this type.
    type Exchange = OscoreExchange;
    type Whole = [u8; 0];

    fn protect_request<C: Crypto>(
        &mut self,
        crypto: &mut C,
        peer: PeerId,
        request: RequestId,
        frame: &mut Frame<'_>,
    ) -> Result<(), SendError> {
        let client = self.client_of(peer).ok_or(SendError::Oscore(ProtectError::Unsupported))?;
        Ok(client.protect(crypto, request, frame)?)
    }

    /// True if the session of `peer` has an OSCORE context, which protects all requests of the session.
    fn is_protected(&self, peer: PeerId, _: RequestId) -> bool {
        !self.sessions.is_empty() && self.sessions.contains_key(&peer)
    }

    /// Always returns true, so that the node passes a protected response to the application without opening it. The
    /// client then refuses the response, unless another client protected the request. The table entry of the request
    /// records in `Place::is_forwarded` whether another client protected it.
    fn is_forwarded(&self, _: PeerId) -> bool {
        true
    }

    fn unprotect_response<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        peer: PeerId,
        request: RequestId,
        datagram: &'r mut [u8],
    ) -> Result<MessageRef<'r>, UnprotectError> {
        self.client_of(peer).ok_or(UnprotectError::UnknownContext)?.unprotect(crypto, request, datagram)
    }
}

/// The OSCORE context of a session, and its requests that wait for a response.
pub(super) struct OscoreClient {
    stored: SessionContext,
    asked: Vec<Asked>,
    /// Requests that have to be sent again under other keys, because the server did not execute them.
    again: Vec<RequestId>,
    /// The reason why the context cannot be used, which the session returns as an error; `None` if the context can be
    /// used.
    problem: Option<ContextError>,
    /// An unused buffer for the options of the next request.
    spare: Vec<u8>,
    /// message_3 of EDHOC, which is sent in front of the next request (RFC 9668); empty if there is none.
    message_3: Vec<u8>,
    /// The text of the EDHOC error message, if the last response contained such a message.
    peer_error: Option<String>,
}

struct Asked {
    request: RequestId,
    pending: PendingRequest,
    /// The part of the request outside the protection of OSCORE, which proxies can read: the code and the encoded
    /// options.
    outside: (Code, Vec<u8>),
}

impl OscoreClient {
    const fn new(stored: SessionContext) -> Self {
        Self {
            stored,
            asked: Vec::new(),
            again: Vec::new(),
            problem: None,
            spare: Vec::new(),
            message_3: Vec::new(),
            peer_error: None,
        }
    }

    /// Sends message_3 in front of the next request.
    pub(super) fn send_in_front(&mut self, message_3: Vec<u8>) {
        self.message_3 = message_3;
    }

    /// Opens the phantom request of a group observation in place: see [`SessionContext::open_phantom`].
    pub(super) fn open_phantom(&mut self, datagram: &mut [u8]) -> Option<(Vec<u8>, PhantomPending)> {
        self.stored.open_phantom(datagram)
    }

    /// Opens a notification of a group observation.
    pub(super) fn open_notification(&mut self, pending: &mut PhantomPending, datagram: &mut [u8]) -> Option<Response> {
        self.stored.open_notification(pending, datagram).map(|message| Response::new(&message))
    }

    /// True if the context is that of a group.
    pub(super) const fn is_of_group(&self) -> bool {
        self.stored.is_of_group()
    }

    /// Returns the maximum number of bytes that protection adds to the next request, including message_3 and the EDHOC
    /// option.
    pub(super) fn overhead(&self) -> usize {
        let in_front = if self.message_3.is_empty() { 0 } else { self.message_3.len() + OPTION_LEN };
        self.stored.overhead() + in_front
    }

    /// Removes and returns the text of the EDHOC error message in the last response; `None` if there is none.
    pub(super) const fn take_peer_error(&mut self) -> Option<String> {
        self.peer_error.take()
    }

    /// True if new keys have to be derived before the next request (RFC 8613, appendix B.2).
    pub(super) fn is_lost(&self) -> bool {
        self.stored.is_lost()
    }

    /// Prepares the context for request #1, which begins a rederivation (RFC 8613, appendix B.2).
    pub(super) fn begin_rederivation(&mut self, crypto: &mut HostCrypto) -> Result<(), ClientError> {
        self.forget_all();
        self.stored.begin_rederivation(crypto).map_err(unprotectable)
    }

    /// Protects the request in `frame`. Stores the data with which its response will be opened, until the request is
    /// forgotten.
    fn protect<C: Crypto>(
        &mut self,
        crypto: &mut C,
        request: RequestId,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        if let Err(problem) = self.stored.prepare() {
            self.problem = Some(problem);
            return Err(ProtectError::LeaseSpent);
        }
        let pending = self.stored.protect_request(crypto, frame)?;
        let message = MessageRef::parse(frame.bytes()).map_err(|_| ProtectError::Malformed)?;
        let begin = HEADER_LEN + message.token().len();
        let mut options = std::mem::take(&mut self.spare);
        options.clear();
        options.extend_from_slice(frame.bytes().get(begin..begin + message.options_len()).unwrap_or(&[]));
        self.asked.push(Asked { request, pending, outside: (message.code(), options) });
        if !self.message_3.is_empty() {
            combine(frame, &std::mem::take(&mut self.message_3))?;
        }
        Ok(())
    }

    /// Returns the code and the encoded options that a request had outside the protection of OSCORE. Returns `None` if
    /// the request no longer waits for a response.
    pub(super) fn outside(&self, request: RequestId) -> Option<&(Code, Vec<u8>)> {
        self.asked.iter().find(|asked| asked.request == request).map(|asked| &asked.outside)
    }

    /// Forgets all requests for which `is_open` returns false.
    pub(super) fn retain(&mut self, mut is_open: impl FnMut(RequestId) -> bool) {
        let Self { asked, spare, .. } = self;
        asked.retain_mut(|asked| {
            let is_kept = is_open(asked.request);
            if !is_kept {
                *spare = std::mem::take(&mut asked.outside.1);
            }
            is_kept
        });
        self.again.retain(|request| is_open(*request));
    }

    /// Forgets all requests.
    pub(super) fn forget_all(&mut self) {
        self.retain(|_| false);
    }

    /// Returns true if `request` has to be sent again under other keys. Call this only after the response to `request`
    /// was opened or refused.
    pub(super) fn is_again(&self, request: RequestId) -> bool {
        self.again.contains(&request)
    }

    /// Removes and returns the reason why the context could not be used; `None` if there is none.
    pub(super) const fn take_problem(&mut self) -> Option<ContextError> {
        self.problem.take()
    }

    /// Decrypts and verifies a response.
    fn unprotect<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        request: RequestId,
        datagram: &'r mut [u8],
    ) -> Result<MessageRef<'r>, UnprotectError> {
        let code = MessageRef::parse(datagram).map(|message| message.code());
        let is_refused = matches!(code, Ok(Code::UNAUTHORIZED | Code::BAD_REQUEST));
        // Nothing protects it.
        let outside = if is_refused { MessageRef::parse(datagram).ok() } else { None };
        self.peer_error = outside
            .filter(|message| message.option(OptionNumber::OSCORE).is_none())
            .and_then(|message| peer_error(message.uint(OptionNumber::CONTENT_FORMAT), message.payload()));
        self.again.retain(|other| *other != request);
        let Some(index) = self.asked.iter().position(|asked| asked.request == request) else {
            // The keys under which it was sent are replaced since then.
            if is_refused {
                self.again.push(request);
            }
            return Err(UnprotectError::Replayed);
        };
        let Some(asked) = self.asked.get_mut(index) else { return Err(UnprotectError::Replayed) };
        let (message, is_rederived) = match self.stored.take_response(crypto, &mut asked.pending, datagram) {
            Ok(taken) => taken,
            Err(untaken) => {
                if is_refused && matches!(untaken, Untaken::Refused(UnprotectError::Unprotected)) {
                    // Perhaps it has lost our keys, or we have those of another time; at worst this costs two messages.
                    self.stored.lose();
                }
                // A server that answers with an error message refuses the next message_3, too.
                if self.stored.is_lost() && self.peer_error.is_none() {
                    self.again.push(request);
                }
                return Err(match untaken {
                    Untaken::Refused(reason) => reason,
                    Untaken::NotKept(problem) => {
                        self.problem = Some(problem);
                        UnprotectError::UnknownContext
                    }
                });
            }
        };
        if message.code() == Code::UNAUTHORIZED && is_rederived {
            self.again.push(request);
        }
        if message.option(OptionNumber::OBSERVE).is_none() {
            self.spare = self.asked.swap_remove(index).outside.1;
        }
        Ok(message)
    }
}

/// Puts message_3 in front of the ciphertext of a protected request, and adds the EDHOC option (RFC 9668, section
/// 3.2.1).
fn combine(frame: &mut Frame<'_>, message_3: &[u8]) -> Result<(), ProtectError> {
    let bytes = frame.bytes().to_vec();
    let message = MessageRef::parse(&bytes).map_err(|_| ProtectError::Malformed)?;
    frame.truncate(0);
    let (message_type, code) = (message.message_type(), message.code());
    let mut builder = Builder::new(frame, message_type, code, message.message_id(), message.token())?;
    for (number, value) in message.options().filter(|(number, _)| *number < EDHOC) {
        builder.option(number, value)?;
    }
    builder.option(EDHOC, &[])?;
    for (number, value) in message.options().filter(|(number, _)| *number > EDHOC) {
        builder.option(number, value)?;
    }
    builder.payload(&[message_3, message.payload()].concat())?;
    Ok(())
}

/// The number of the EDHOC option. `OPTION_LEN` is the maximum number of bytes that this option adds to a message.
const EDHOC: OptionNumber = OptionNumber(tegmen_edhoc::combined::EDHOC_OPTION);
const OPTION_LEN: usize = 2;

/// Returns the error for a request that cannot be protected.
pub(super) fn unprotectable(stop: ProtectError) -> ClientError {
    ClientError::System(std::io::Error::other(format!("the request cannot be protected: {stop:?}")))
}
