//! Uploads a token to a publisher, over a session that the access control server opens for this purpose.

use crate::access::ace::ACE_CBOR;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tegmen_coap::{Code, OptionNumber};
use tegmen_host::client::{ClientConfig, ClientError, Session};
use tegmen_host::uri::Scheme;

/// The path for tokens at a publisher, without the first slash (RFC 9200, section 5.10.1).
pub const AUTHZ_INFO: &str = "authz-info";
/// The PSK identity of the access control server in its sessions with publishers. It is no session identity.
pub const SERVER_IDENTITY: &str = "access control server";
/// Maximum time for the handshake and the request together.
const PATIENCE: Duration = Duration::from_secs(20);
/// Seconds after which a subscriber may ask again, if the publisher was not asked, or if its 5.03 response has no
/// Max-Age. The value is the default of Max-Age (RFC 7252, section 5.10.5).
pub(crate) const RETRY_AFTER: u32 = 60;
/// Maximum number of uploads at the same time.
const UPLOADS: usize = 256;
/// Maximum number of uploads for one client at the same time. So a client whose publishers do not answer cannot use up
/// the uploads of all other clients.
const UPLOADS_OF_A_CLIENT: usize = 8;

/// The number of running uploads for each client.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<BTreeMap<String, usize>>);

/// A permit for one upload. When this value is dropped, another upload can get the permit.
pub(crate) struct Place<'a> {
    uploads: &'a Uploads,
    client: &'a str,
}

impl Uploads {
    /// Takes a permit for an upload. Returns `None` if this client, or all clients together, already have the maximum
    /// number of uploads.
    pub(crate) fn begin<'a>(&'a self, client: &'a str) -> Option<Place<'a>> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = running.values().sum();
        let of_client = running.get(client).copied().unwrap_or_default();
        if all >= UPLOADS || of_client >= UPLOADS_OF_A_CLIENT {
            return None;
        }
        running.insert(client.to_owned(), of_client.saturating_add(1));
        Some(Place { uploads: self, client })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut running = self.uploads.0.lock().unwrap_or_else(PoisonError::into_inner);
        match running.get_mut(self.client) {
            Some(more @ 2..) => *more = more.saturating_sub(1),
            _ => {
                running.remove(self.client);
            }
        }
    }
}

/// The reason why an upload failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    /// The publisher does not have the resources for another session.
    #[error("it has no resources for another session, and answers 5.03")]
    Busy {
        /// Seconds after which the server may ask again.
        seconds: u32,
    },
    /// The publisher refuses the token. The value is the code of its response.
    #[error("it answers {0}")]
    Refused(Code),
    /// Too many uploads are running for this client, or for all clients. The publisher was not asked.
    #[error("it was not asked, because too many uploads run now for this subscriber or for all")]
    TooMany,
    /// The server could not open a session with the publisher, or got no response.
    #[error("{0}")]
    Unreachable(String),
}

impl NotTaken {
    /// Returns the code of this reason, for the audit log. The code stays the same in later versions.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "publisher-busy",
            Self::Refused(_) => "publisher-refused",
            Self::TooMany => "too-many-uploads",
            Self::Unreachable(_) => "publisher-unreachable",
        }
    }
}

/// Uploads a token to a publisher. Returns `Ok` when the publisher has taken the token.
pub(crate) async fn upload(publisher: SocketAddr, key: &[u8], request: &[u8]) -> Result<(), NotTaken> {
    let response = tokio::time::timeout(PATIENCE, async {
        let config = ClientConfig::psk(SERVER_IDENTITY, key).with(|config| config.recovery.reconnect = false);
        let session = Session::connect_to(publisher, Scheme::Coaps, config).await?;
        let response = session.post(AUTHZ_INFO, request).content_format(ACE_CBOR).await?;
        session.close();
        Ok(response)
    });
    let response = response
        .await
        .map_err(|_| NotTaken::Unreachable(format!("no answer within {} s", PATIENCE.as_secs())))?
        .map_err(|error: ClientError| NotTaken::Unreachable(error.to_string()))?;
    match response.code {
        Code::CREATED | Code::CHANGED => Ok(()),
        Code::SERVICE_UNAVAILABLE => {
            Err(NotTaken::Busy { seconds: response.uint(OptionNumber::MAX_AGE).unwrap_or(RETRY_AFTER) })
        }
        code => Err(NotTaken::Refused(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::{UPLOADS, UPLOADS_OF_A_CLIENT, Uploads};

    #[test]
    fn one_client_cannot_take_every_place() {
        let uploads = Uploads::default();
        let clients: Vec<_> = (0..=UPLOADS / UPLOADS_OF_A_CLIENT).map(|client| client.to_string()).collect();
        let mut first: Vec<_> =
            (0..UPLOADS_OF_A_CLIENT).map(|_| uploads.begin(&clients[0]).expect("a place")).collect();
        assert!(uploads.begin(&clients[0]).is_none());
        let (last, others) = clients[1..].split_last().expect("clients");
        let others: Vec<_> = others
            .iter()
            .flat_map(|client| (0..UPLOADS_OF_A_CLIENT).map(|_| uploads.begin(client).expect("a place")))
            .collect();
        assert_eq!(first.len() + others.len(), UPLOADS);
        assert!(uploads.begin(last).is_none());
        first.pop();
        let place = uploads.begin(last).expect("the place that is free again");
        assert!(uploads.begin(last).is_none());
        drop((place, first, others));
        assert!(uploads.0.lock().expect("no panic").is_empty());
    }
}
