//! Selects the delegation server or the device as the receiver of a datagram that a peer sends to the gateway.

use tegmen::dtls::{ContentType, HandshakeFragment, HandshakeMessage, MessageType, Records};

/// A receiver of datagrams that the gateway forwards: the delegation server or the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The delegation server, which makes handshakes with certificates.
    Server,
    /// The device, which resumes sessions.
    Device,
}

/// The route of the datagrams of one peer. The gateway derives the route from handshake messages in clear.
///
/// The content of a ClientHello decides whether the server or the device receives it. All other datagrams go to the
/// server or the device, whichever last answered a ClientHello with a ServerHello. So a forged ClientHello does not
/// redirect the records of a session from one to the other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Route {
    /// The sender (server or device) of the last ServerHello; `None` if no ServerHello was sent.
    accepted: Option<End>,
    /// The receiver (server or device) of the last ClientHello; `None` if no ClientHello was forwarded.
    hello: Option<End>,
    /// True if the device refused the last ClientHello, so that the next ClientHello goes to the server.
    refused: bool,
}

impl Route {
    /// Returns the receiver (server or device) of a datagram of the peer.
    pub(super) fn of(&mut self, datagram: &mut [u8]) -> End {
        let end = match Front::of(datagram) {
            Front::Hello { resumes } if resumes && !self.refused => End::Device,
            Front::Hello { .. } => End::Server,
            Front::LaterOfHello => return self.hello.unwrap_or(End::Device),
            _ => return self.accepted.unwrap_or(End::Device),
        };
        self.hello = Some(end);
        end
    }

    /// Notes a datagram that the server or the device (`end`) sends to the peer.
    pub(super) fn answered(&mut self, end: End, datagram: &mut [u8]) {
        match Front::of(datagram) {
            Front::ServerHello => *self = Self { accepted: Some(end), hello: self.hello, refused: false },
            Front::Refusal if (end, self.hello) == (End::Device, Some(End::Device)) => self.refused = true,
            _ => {}
        }
    }

    /// True if the server or the device has answered a ClientHello of the peer with a ServerHello.
    pub(super) const fn is_accepted(&self) -> bool {
        self.accepted.is_some()
    }
}

/// The kind of the first message in a datagram.
enum Front {
    /// The first fragment of a ClientHello, or a whole ClientHello.
    Hello {
        /// True if the client shows a ticket or a session id.
        resumes: bool,
    },
    /// A later fragment of a ClientHello.
    LaterOfHello,
    /// A ServerHello, or a fragment of it.
    ServerHello,
    /// A fatal alert in clear, which ends a handshake (RFC 5246, section 7.2).
    Refusal,
    /// Any other datagram: for example a protected record, a later handshake message, or an alert that is not fatal.
    Other,
}

impl Front {
    fn of(datagram: &mut [u8]) -> Self {
        const FATAL: u8 = 2;
        let mut records = Records::new(datagram);
        let Some(Ok(record)) = records.next_record() else { return Self::Other };
        match (record.content_type(), record.epoch()) {
            (ContentType::HANDSHAKE, 0) => Self::of_handshake(record.body),
            (ContentType::ALERT, 0) if record.body.first() == Some(&FATAL) => Self::Refusal,
            _ => Self::Other,
        }
    }

    fn of_handshake(content: &[u8]) -> Self {
        match HandshakeFragment::each(content).next() {
            Some(fragment) if fragment.message_type == MessageType::SERVER_HELLO => Self::ServerHello,
            Some(fragment) if fragment.message_type == MessageType::CLIENT_HELLO => match fragment.offset {
                0 => Self::Hello { resumes: resumes(fragment.body) },
                _ => Self::LaterOfHello,
            },
            _ => Self::Other,
        }
    }
}

/// True for a ClientHello that shows a session id or a ticket. The first fragment of a ClientHello contains the session
/// id, which clients with a ticket also send (RFC 5077, section 3.4).
fn resumes(body: &[u8]) -> bool {
    /// The offset of the length field of the session id. The version and the random precede this field (RFC 5246,
    /// section 7.4.1.2).
    const ID_LEN_AT: usize = 2 + 32;
    match HandshakeMessage::read(MessageType::CLIENT_HELLO, body) {
        Ok(HandshakeMessage::ClientHello { resumes, .. }) => resumes,
        _ => body.get(ID_LEN_AT).is_some_and(|len| *len > 0),
    }
}
