//! The elements of flights, and their order in a handshake.

use super::roles::Roles;

/// An element of our flights: a handshake message, or the ChangeCipherSpec, which is not a handshake message.
///
/// A flight is identified by its first element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Element {
    ClientHello,
    ServerHello,
    ServerHelloDone,
    ClientKeyExchange,
    /// ChangeCipherSpec. It is the first element of a server's last flight, because that flight has no key exchange.
    ChangeCipherSpec,
    Finished,
    /// The end of each flight: all its elements were sent.
    Sent,

    // The elements for public keys. They are after the others in this list, so that the numbers of the others have no
    // gaps.
    ServerCertificate,
    ServerKeyExchange,
    CertificateRequest,
    ClientCertificate,
    CertificateVerify,
    // The element for resumption.
    NewSessionTicket,
}

impl Element {
    /// Returns the position of the element in the order in which a handshake sends the elements.
    pub(crate) const fn place<R: Roles>(self) -> u8 {
        if !R::KEEPS {
            return self as u8;
        }
        match self {
            Self::ClientHello => 0,
            Self::ServerHello => 1,
            Self::ServerCertificate => 2,
            Self::ServerKeyExchange => 3,
            Self::CertificateRequest => 4,
            Self::ServerHelloDone => 5,
            Self::ClientCertificate => 6,
            Self::ClientKeyExchange => 7,
            Self::CertificateVerify => 8,
            Self::NewSessionTicket => 9,
            Self::ChangeCipherSpec => 10,
            Self::Finished => 11,
            Self::Sent => 12,
        }
    }

    /// Returns the element that follows this element in the same flight, in a handshake with a pre-shared key.
    pub(crate) fn next(self) -> Self {
        const NEXT: [Element; 8] = [
            Element::Sent, // behind ClientHello
            Element::ServerHelloDone,
            Element::Sent,
            Element::ChangeCipherSpec,
            Element::Finished,
            Element::Sent, // behind Finished
            Element::Sent,
            Element::Sent,
        ];
        NEXT.get(self as usize & 7).copied().unwrap_or(Self::Sent)
    }
}
