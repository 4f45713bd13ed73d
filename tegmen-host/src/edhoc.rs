//! EDHOC (RFC 9528): keys and credentials in files, and the end that responds. A client agrees on an OSCORE context with
//! [`ClientConfig::edhoc`](crate::client::ClientConfig::edhoc) before its first request, and a server with
//! [`ServerConfig::edhoc`](crate::server::ServerConfig::edhoc).
//!
//! A context that both ends agreed on is in memory alone, and ends with the process: its keys are new in each session, so no number of
//! it can be used twice.

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

/// The keys with which a client agrees on a context, and the servers that it trusts.
pub struct EdhocKeys {
    /// The own key and credential.
    pub identity: Identity,
    /// The credentials of servers that are trusted.
    pub trusted: Vec<Credential>,
    /// True to send message_3 in the first protected request, which saves a round trip (RFC 9668). The server must support
    /// that. The client sends message_3 in a separate request if its requests are not confirmable, or if NSTART is more than 1.
    pub combined: bool,
}

impl std::fmt::Debug for EdhocKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EdhocKeys").field("trusted", &self.trusted.len()).finish_non_exhaustive()
    }
}

/// The context on which both ends agreed. `allow` has the rights of the other end, as in a credentials file.
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

/// The error message in the payload of a response with this Content-Format, in words.
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
