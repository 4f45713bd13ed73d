//! The numbers of processor instructions of handshakes, divided into the steps of the client and of the server.

use serde::Serialize;

/// The numbers of processor instructions that one endpoint (client or server) needs in a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct HandshakeCosts {
    /// Number of processor instructions for each flight that this endpoint (client or server) sends, and for each
    /// retransmission of this flight. The number includes the processing of the peer's previous flight.
    pub flight: u64,
    /// Number of processor instructions for an answer for which a server stores no state: a HelloVerifyRequest, or an
    /// alert.
    pub answer: u64,
    /// Number of processor instructions after the public key of the peer has arrived. The number includes the
    /// verification of the key, the verification of the peer's proof, and all further steps except a signature.
    pub verify: u64,
    /// Number of processor instructions for a signature by this endpoint (client or server), and for the steps until
    /// the next flight is sent.
    pub sign: u64,
}

/// The numbers of processor instructions of each kind of handshake. In each array, the first entry is for the client,
/// and the second entry is for the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Handshakes {
    /// Numbers of processor instructions of client and server in a handshake with a pre-shared key.
    pub psk: [HandshakeCosts; 2],
    /// Numbers of processor instructions of client and server in a handshake with certificates. A CA below the trust
    /// anchor issued each certificate.
    pub certificate: [HandshakeCosts; 2],
    /// Numbers of processor instructions of client and server in a handshake with raw public keys.
    pub raw_key: [HandshakeCosts; 2],
    /// Numbers of processor instructions of client and server in a handshake with a pre-shared key, in which the client
    /// receives a ticket.
    pub with_ticket: [HandshakeCosts; 2],
    /// Numbers of processor instructions of client and server in a handshake that resumes a session with the ticket of
    /// [`with_ticket`](Self::with_ticket).
    pub resumed: [HandshakeCosts; 2],
    /// Numbers of processor instructions of client and server in a handshake that resumes a delegated session with the
    /// ticket of this session.
    pub delegated: [HandshakeCosts; 2],
}

impl Handshakes {
    pub(super) fn new(operation: impl Fn(&str, &str) -> u64) -> Self {
        let public_keys = |image: &str| {
            let flights = |end: &str, flights: &[u32]| -> u64 {
                flights.iter().map(|flight| operation(image, &format!("{end} flight {flight}"))).sum()
            };
            // A client verifies and signs between flights 4 and 5. A server signs for flight 4, and verifies flight 5.
            let client = HandshakeCosts {
                flight: flights("client", &[1, 2, 3]) / 2,
                sign: flights("client", &[4, 5, 6]),
                ..HandshakeCosts::default()
            };
            let server = HandshakeCosts {
                answer: flights("server", &[1]),
                sign: flights("server", &[3, 4]),
                verify: flights("server", &[5, 6]),
                flight: 0,
            };
            [client, server]
        };
        let spread = |image: &str, what: &str, flights: [u64; 2]| {
            [("client", flights[0]), ("server", flights[1])].map(|(end, flights)| {
                let flight = operation(image, &format!("{what} {end}")) / flights;
                HandshakeCosts { flight, answer: flight, ..HandshakeCosts::default() }
            })
        };
        // A client with a valid ticket receives no HelloVerifyRequest. A client with an invalid ticket receives one.
        let with_ticket = |image: &str| {
            let answer = operation("dtls_rpk", "server flight 1");
            spread(image, "resumption", FLIGHTS_WITH_TICKET).map(|of_end| HandshakeCosts { answer, ..of_end })
        };
        Self {
            psk: spread("dtls_psk", "handshake", FLIGHTS),
            certificate: public_keys("dtls_x509"),
            raw_key: public_keys("dtls_rpk"),
            with_ticket: spread("dtls_resume", "handshake", FLIGHTS),
            resumed: with_ticket("dtls_resume"),
            delegated: with_ticket("dtls_delegated"),
        }
    }
}

/// Number of flights in a handshake with a pre-shared key: first those of the client, then those of the server.
const FLIGHTS: [u64; 2] = [3, 3];
/// Number of flights in a handshake that resumes a session with a ticket: first those of the client, then those of the
/// server.
const FLIGHTS_WITH_TICKET: [u64; 2] = [2, 1];
