//! The interface of a DTLS peer in the role of a client or of a server, and of its open session.

use crate::cell::{Check, Scene};
use crate::ours::Psk;
use std::net::SocketAddr;

/// A session at the peer, over which the peer sends and receives application data.
pub(crate) trait Plaintext {
    /// Sends `message` in one record, without other messages.
    fn send(&mut self, message: &[u8]) -> Result<(), String>;

    /// Waits for a message that consists of `len` bytes and `tail`. Returns the first `len` bytes.
    fn head(&mut self, len: usize, tail: &[u8]) -> Result<Vec<u8>, String>;

    /// Ends the session, with a close_notify if the peer sends one.
    fn close(&mut self);

    /// Waits for exactly `message`.
    fn expect(&mut self, message: &[u8]) -> Result<(), String> {
        self.head(0, message).map(drop)
    }

    /// Sends a GET for a value of `tegmen serve`, and waits for the response. The response must consist of the bytes
    /// `header` (header and token), an ETag, and the payload `payload`.
    fn get(&mut self, request: &[u8], header: &[u8], payload: &[u8]) -> Result<(), String> {
        const ETAG_LEN: usize = 5;
        self.send(request)?;
        let head = self.head(header.len().saturating_add(ETAG_LEN), &[&[0xff], payload].concat())?;
        match head.strip_prefix(header) {
            Some([0x44, ..]) => Ok(()),
            _ => Err(format!("the content came behind {head:02x?}, not {header:02x?} and an ETag")),
        }
    }

    /// Sends a GET of `/v`, and waits for its first value.
    fn get_v(&mut self) -> Result<(), String> {
        self.get(GET_V, b"\x64\x45\x12\x34abcd", b"hello")
    }

    /// Sends a request, and waits for exactly `response`.
    fn exchange(&mut self, request: &[u8], response: &[u8]) -> Result<(), String> {
        self.send(request)?;
        self.expect(response)
    }
}

/// A DTLS peer in the role of a client.
pub(crate) trait DtlsClient: Send + Sync + 'static {
    /// Builds the peer's program, if it has to be built.
    fn prepare(&self) -> Check {
        Ok(())
    }

    /// Fails if the peer does not support a key and an identity of this length.
    fn takes(&self, _: &Psk) -> Check {
        Ok(())
    }

    /// Returns true if the peer supports connection ids (RFC 9146). The table of results then has rows for
    /// connection ids.
    fn knows_connection_id(&self) -> bool {
        false
    }

    /// Opens a session to `tegmen serve`. Returns when the session is established.
    fn connect(&self, scene: &Scene, server: SocketAddr, psk: &Psk) -> Result<Box<dyn Plaintext>, String>;

    /// Tries to open a session. The peer must report the alert decrypt_error.
    fn fail(&self, scene: &Scene, server: SocketAddr, psk: &Psk) -> Check;
}

/// A DTLS peer in the role of a server.
pub(crate) trait DtlsServer: Send + Sync + 'static {
    /// Builds the peer's program, if it has to be built.
    fn prepare(&self) -> Check {
        Ok(())
    }

    /// Fails if the peer does not support a key and an identity of this length.
    fn takes(&self, _: &Psk) -> Check {
        Ok(())
    }

    /// Returns the evidence that the peer refuses a ClientHello without extensions, if it does.
    fn refuses_minimal(&self) -> Option<&'static str> {
        None
    }

    /// Returns true if the peer supports connection ids (RFC 9146). The table of results then has rows for
    /// connection ids.
    fn knows_connection_id(&self) -> bool {
        false
    }

    /// Returns the message that `tegmen` prints after the peer's alert for an unknown identity. Returns `None` if the
    /// peer sends one of the alerts that RFC 4279, section 2, allows in this case.
    fn unknown_identity(&self) -> Option<&'static str> {
        None
    }

    /// Starts the server. Returns when the server listens at `address`.
    fn listen(&self, scene: &Scene, address: SocketAddr, psk: &Psk) -> Result<Box<dyn Plaintext>, String>;
}

/// Waits for a confirmable request to `/question` with a token of four bytes, and answers it in the acknowledgement.
pub(crate) fn answer(
    session: &mut dyn Plaintext,
    method: u8,
    payload: &[u8],
    code: u8,
    answer: &[u8],
) -> Result<(), String> {
    let marker: &[u8] = if payload.is_empty() { &[] } else { &[0xff] };
    let header = session.head(8, &[b"\xb8question", marker, payload].concat())?;
    match header.as_slice() {
        &[0x44, asked, id0, id1, ref token @ ..] if asked == method => {
            session.send(&[&[0x64, code, id0, id1], token, &[0xff], answer].concat())
        }
        other => Err(format!("no header of a confirmable request: {other:02x?}")),
    }
}

/// A GET of `/v` with Message ID 0x1234 and token `abcd`.
pub(crate) const GET_V: &[u8] = b"\x44\x01\x12\x34abcd\xb1v";
