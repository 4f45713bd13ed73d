//! Notifications that a server sends to all its observers together, at the address of a group
//! (draft-ietf-core-observe-multicast-notifications-14, section 5).

use super::request::Part;
use super::{ClientError, Request, Response, Session};
use crate::clock;
use crate::group::Group;
use crate::informative::{FORMAT, Informative, canonical, is_same, rebuilt};
use crate::udp::MAX_DATAGRAM;
use std::net::SocketAddr;
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::observe::REGISTER;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::crypto::Crypto as _;
use tegmen::identity::Protection;
use tegmen::oscore::group::{GroupPending, Replies};
use tegmen::time::Instant;
use tokio::net::UdpSocket;

/// The time from a registration to the next one, if the informative response contains no new notification: the default
/// Max-Age (RFC 7252, section 5.10.5), and a random part of the second time.
const REFRESH: Duration = Duration::from_secs(65);
const SPREAD: Duration = Duration::from_secs(10);

/// The reception of the notifications of a group observation.
pub(super) struct Multicast {
    socket: UdpSocket,
    /// The address from which the server sends the notifications.
    server: SocketAddr,
    token: Token,
    /// The phantom request, whose responses are the notifications; `None` for notifications in clear.
    pending: Option<PhantomPending>,
    /// The time of the next registration, if the client has no notification whose Max-Age names this time.
    refresh: Instant,
    buffer: Vec<u8>,
}

/// The state with which the notifications of a protected group observation are opened.
pub(super) type PhantomPending = GroupPending<[Replies; 1]>;

/// True if a response to a registration is an informative response: the server sends the notifications to a group.
pub(super) fn is_informative(response: &Response) -> bool {
    response.code == Code::SERVICE_UNAVAILABLE && response.content_format() == Some(FORMAT.into())
}

impl Multicast {
    /// Checks an informative response to `request`, and joins its group. Returns also the newest notification, if the
    /// response contains it. `before` is the reception before this registration. If the phantom request is still the
    /// same, the client accepts no notification again that it accepted before.
    ///
    /// # Errors
    /// [`ClientError::Informative`]; [`ClientError::Unreachable`] if the group cannot be joined.
    pub(super) fn join(
        session: &Session,
        request: &Request<'_>,
        response: &Response,
        before: Option<Self>,
    ) -> Result<(Self, Option<Response>), ClientError> {
        let remote = session.remote();
        let wrong = |problem: &'static str| ClientError::Informative { remote, problem };
        let malformed = || wrong("it is malformed");
        let (protection, has_oscore) =
            session.with(|connection| (connection.entry.protection, connection.oscore().is_some()));
        if !has_oscore && protection != Protection::Plain {
            return Err(wrong(
                "the session is protected, and the notifications would not be: they need an OSCORE group",
            ));
        }
        if !has_oscore && !session.config().coap.multicast_in_clear {
            return Err(wrong(
                "anyone can forge notifications in clear; to accept them, set --multicast-in-clear (multicast_in_clear in the library)",
            ));
        }
        let informative = Informative::read(&response.payload).map_err(|_| malformed())?;
        if informative.server != canonical(remote) {
            return Err(wrong("its notifications come from another address than that of the server"));
        }
        let original = registration(request).ok_or_else(malformed)?;
        let original = MessageRef::parse(&original).map_err(|_| malformed())?;
        let (token, server) = (informative.token, informative.server);
        let phantom = informative.phantom.map(|phantom| rebuilt(&phantom, &token).map_err(|_| malformed()));
        let (mut phantom, mut pending) = (phantom.transpose()?, None);
        if has_oscore {
            let mut protected = phantom.ok_or_else(|| wrong("its phantom request is missing"))?;
            let opened = session.with(|connection| connection.oscore()?.open_phantom(&mut protected));
            let (message, of) = opened.ok_or_else(|| {
                wrong("its phantom request does not come from the server as a member of the OSCORE group")
            })?;
            let is_same = |before: &PhantomPending| before.request() == of.request();
            let kept = before.and_then(|before| before.pending).filter(is_same);
            (phantom, pending) = (Some(message), kept.or(Some(of)));
        }
        if let Some(phantom) = phantom {
            let phantom = MessageRef::parse(&phantom).map_err(|_| malformed())?;
            if !is_same(&phantom, &original) {
                return Err(wrong("its phantom request is for another resource or representation"));
            }
        }
        let group = Group::beside(informative.group.ip(), session.local());
        let address = group.at(informative.group.port());
        let socket = group.receiver(address).and_then(|socket| UdpSocket::from_std(socket.into()));
        let socket = socket.map_err(|source| ClientError::Unreachable { remote: address, source })?;
        let mut random = [0; 1];
        session.with(|connection| connection.io.environment.crypto.random(&mut random));
        let refresh = clock::now().after(REFRESH).after(SPREAD.mul_f64(f64::from(random[0]) / 256.0));
        let buffer = vec![0; MAX_DATAGRAM + 1];
        let mut multicast = Self { socket, server, token, pending, refresh, buffer };
        let latest = informative.latest.and_then(|latest| multicast.take(session, &mut rebuilt(&latest, &token).ok()?));
        Ok((multicast, latest))
    }

    /// Returns the time of the next registration, if the client has no notification whose Max-Age names this time.
    pub(super) const fn refresh_at(&self) -> Instant {
        self.refresh
    }

    /// Returns the next notification; `None` if none arrives until this time.
    pub(super) async fn next(&mut self, session: &Session, until: Instant) -> Option<Response> {
        loop {
            let left = until.since(clock::now());
            let received = tokio::time::timeout(left, self.socket.recv_from(&mut self.buffer)).await.ok()?;
            let Ok((len, from)) = received else { continue };
            // The buffer has only the beginning of a longer datagram.
            if canonical(from) != self.server || len > MAX_DATAGRAM {
                continue;
            }
            let mut datagram = std::mem::take(&mut self.buffer);
            let response = datagram.get_mut(..len).and_then(|datagram| self.take(session, datagram));
            self.buffer = datagram;
            if response.is_some() {
                return response;
            }
        }
    }

    /// Reads a notification, and opens it if the group observation is protected. Returns `None` for any other message.
    fn take(&mut self, session: &Session, datagram: &mut [u8]) -> Option<Response> {
        let message = MessageRef::parse(datagram).ok()?;
        let is_ours = message.message_type() == MessageType::NonConfirmable && message.token() == self.token.as_bytes();
        if !is_ours || !message.code().is_response() {
            return None;
        }
        match &mut self.pending {
            None => message.option(OptionNumber::OSCORE).is_none().then(|| Response::new(&message)),
            Some(pending) => session.with(|connection| connection.oscore()?.open_notification(pending, datagram)),
        }
    }
}

/// Returns the registration of an observation with this request.
fn registration(request: &Request<'_>) -> Option<Vec<u8>> {
    let mut storage = vec![0; MAX_DATAGRAM];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, request.method, 0, &[]).ok()?;
    request.write(&mut builder, Part { observe: Some(REGISTER), ..Part::default() }).ok()?;
    Some(frame.bytes().to_vec())
}
