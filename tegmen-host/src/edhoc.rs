//! EDHOC (RFC 9528): keys and credentials in files, and the responder. A client agrees on an OSCORE context before its
//! first request if [`ClientConfig::edhoc`](crate::client::ClientConfig::edhoc) is set. A server answers EDHOC messages
//! if [`ServerConfig::edhoc`](crate::server::ServerConfig::edhoc) is set.
//!
//! A context from EDHOC is only in memory, and ends with the process. Each EDHOC session derives new keys, so no nonce
//! is used twice after a restart.

mod file;
mod server;

pub use file::{EdhocError, EdhocPeer, create_key, parse_credential, read_key, read_peers};
pub use server::{EdhocServer, EdhocTotals, FindTokenPeer, TokenPeer};
pub use tegmen_edhoc::{Credential, CredentialId, Identity, Transfer};

pub(crate) use server::Failed;

use crate::contexts::{ContextFile, now};
use tegmen::oscore::Aead;
use tegmen_edhoc::transfer::MESSAGE_FORMAT;
use tegmen_edhoc::{Agreed, PeerError};
use zeroize::Zeroizing;

/// The keys with which a client agrees on an OSCORE context, and the servers that it trusts.
pub struct EdhocKeys {
    /// The private key and the credential of the client.
    pub identity: Identity,
    /// The credentials of trusted servers.
    pub trusted: Vec<Credential>,
    /// True to send message_3 in the first protected request, which saves a round trip (RFC 9668). The server must
    /// support such combined requests. If the requests of the client are not confirmable, or if NSTART is more than 1,
    /// the client sends message_3 in a separate request.
    pub combined: bool,
}

impl std::fmt::Debug for EdhocKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EdhocKeys").field("trusted", &self.trusted.len()).finish_non_exhaustive()
    }
}

/// Returns the context on which the two endpoints agreed. `allow` has the rights of the other endpoint, as in a
/// credentials file.
pub(crate) fn context_of(agreed: &Agreed, allow: Option<Vec<String>>) -> ContextFile {
    ContextFile {
        sender_id: agreed.sender_id.as_bytes().to_vec(),
        recipient_id: agreed.recipient_id.as_bytes().to_vec(),
        master_secret: Zeroizing::new(agreed.master_secret.expose().to_vec()),
        master_salt: agreed.master_salt.expose().to_vec(),
        id_context: None,
        aead: Aead::AesCcm16_64_128,
        created: now(),
        expires: None,
        allow,
        rederivation: false,
    }
}

/// Returns the text of the EDHOC error message in the payload of a response; `None` if the payload is not an error
/// message. `format` is the Content-Format of the response.
pub(crate) fn peer_error(format: Option<u32>, payload: &[u8]) -> Option<String> {
    if format != Some(MESSAGE_FORMAT.into()) {
        return None;
    }
    Some(match PeerError::parse(payload)? {
        PeerError::Unspecified(text) => format!("it answers '{}'", crate::printable::printable(text)),
        PeerError::WrongCipherSuite => "it does not have cipher suite 2".to_owned(),
        PeerError::UnknownCredential => "it does not know our credential: add it there".to_owned(),
        PeerError::Other(code) => format!("it sends EDHOC error {code}"),
    })
}

#[cfg(test)]
mod tests;
