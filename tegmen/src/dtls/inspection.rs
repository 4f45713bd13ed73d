//! Reads the handshakes of other endpoints from datagrams, for programs that examine a server or a capture.

use super::connection_id::Hello;
use super::handshake::client_hello::ClientHello;
use super::handshake::extension::{ExtensionType, MaxFragmentLength};
use super::handshake::server_hello::ServerHello;
use super::handshake::{Fragment, hello_verify_request};
use super::{CipherSuite, MessageType};
use crate::buf::{Reader, Truncated};

/// A handshake message, or a fragment of a handshake message (RFC 6347, section 4.2.2), in a record of epoch 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandshakeFragment<'r> {
    /// The type of the whole message.
    pub message_type: MessageType,
    /// The message_seq: each endpoint numbers its messages of a handshake, beginning with 0.
    pub message_seq: u16,
    /// The length of the whole message in bytes, without its header.
    pub length: u32,
    /// The position of the first byte of this fragment in the message.
    pub offset: u32,
    /// The bytes of this fragment.
    pub body: &'r [u8],
}

impl<'r> HandshakeFragment<'r> {
    /// Reads the handshake messages and fragments in the content of a record. Stops at the first fragment that does not
    /// parse, or that ends after the end of its message.
    pub fn each(content: &'r [u8]) -> impl Iterator<Item = Self> {
        let mut reader = Reader::new(content);
        core::iter::from_fn(move || {
            let fragment = Fragment::read(&mut reader).ok()?;
            Some(Self {
                message_type: fragment.message_type(),
                message_seq: fragment.message_seq(),
                length: fragment.length(),
                offset: fragment.offset(),
                body: fragment.body,
            })
        })
    }
}

/// The handshake messages with which two endpoints agree on the parameters of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeMessage<'r> {
    /// ClientHello (RFC 6347, section 4.2.1).
    ClientHello {
        /// The highest version that the client supports.
        version: [u8; 2],
        /// The cookie; empty in the first ClientHello of a handshake.
        cookie: &'r [u8],
        /// The body without its cookie, in two parts: the bytes before the length of the cookie, and the bytes after
        /// the cookie.
        around_cookie: [&'r [u8]; 2],
        /// True if the client supports RFC 5746: it sends the extension renegotiation_info, or the signalling cipher
        /// suite.
        renegotiation_info: bool,
        /// True if the client asks to resume a session. It then sends the id of the session (RFC 5246, section
        /// 7.4.1.2), or a ticket (RFC 5077, section 3.2).
        resumes: bool,
    },
    /// HelloVerifyRequest (RFC 6347, section 4.2.1).
    HelloVerifyRequest {
        /// The cookie that the client must repeat.
        cookie: &'r [u8],
    },
    /// ServerHello (RFC 5246, section 7.4.1.3).
    ServerHello {
        /// The chosen version.
        version: [u8; 2],
        /// The chosen cipher suite.
        cipher_suite: CipherSuite,
        /// True if the server agrees to use the extended master secret, which depends on all messages of the handshake
        /// (RFC 7627).
        extended_master_secret: bool,
        /// True if the server sends the extension renegotiation_info (RFC 5746), which protects against the
        /// renegotiation attack.
        renegotiation_info: bool,
        /// The maximum number of bytes of content in a record that the server accepts (RFC 8449); `None` if the
        /// extension is absent.
        record_size_limit: Option<u16>,
        /// The maximum number of bytes of content in a record, in both directions (RFC 6066, section 4); `None` if the
        /// extension is absent.
        max_fragment_length: Option<u16>,
        /// The connection id that the server expects in the records that it receives (RFC 9146); `None` if the
        /// extension is absent.
        connection_id: Option<&'r [u8]>,
        /// True if the server supports return routability checks (RFC 9853).
        return_routability: bool,
    },
    /// Any other handshake message. Its content is not read.
    Other,
}

impl<'r> HandshakeMessage<'r> {
    /// Reads the body of a whole handshake message.
    ///
    /// # Errors
    /// [`Truncated`] if the body does not parse.
    pub fn read(message_type: MessageType, body: &'r [u8]) -> Result<Self, Truncated> {
        Ok(match message_type {
            MessageType::CLIENT_HELLO => {
                let hello = ClientHello::read(body, true)?;
                let ticket = hello.extension(ExtensionType::SESSION_TICKET);
                Self::ClientHello {
                    version: hello.version,
                    cookie: hello.cookie,
                    around_cookie: hello.around_cookie,
                    renegotiation_info: hello.signals_renegotiation_info(),
                    resumes: !hello.session_id().is_empty() || ticket.is_some_and(|ticket| !ticket.is_empty()),
                }
            }
            MessageType::HELLO_VERIFY_REQUEST => Self::HelloVerifyRequest { cookie: hello_verify_request::read(body)? },
            MessageType::SERVER_HELLO => {
                let hello = ServerHello::read(body, true)?;
                let ids = Hello::of_server(body).unwrap_or_default();
                Self::ServerHello {
                    version: hello.version,
                    cipher_suite: hello.cipher_suite,
                    extended_master_secret: hello.extensions.extended_master_secret,
                    renegotiation_info: hello.extensions.renegotiation_info,
                    record_size_limit: hello.extensions.record_size_limit,
                    max_fragment_length: hello.extensions.max_fragment_length.and_then(MaxFragmentLength::bytes),
                    connection_id: ids.connection_id,
                    return_routability: ids.rrc,
                }
            }
            _ => Self::Other,
        })
    }
}
