//! The end of a subscriber: the keys of publishers with protokeys, by introspection at an access control server.

use crate::access::ace::{ACE_CBOR, Confirmation, CoseKey, IntrospectionRequest, IntrospectionResponse, Material};
use crate::access::protokey::SessionIdentity;
use crate::server::INTROSPECT;
use tegmen_coap::Code;
use tegmen_host::client::Session;
use tegmen_host::credentials::{KeyStore, KeyTicket, StoredKey};
use tokio::runtime::Handle;
use zeroize::Zeroizing;

/// Finds the key of each handshake whose identity is a [`SessionIdentity`]: see
/// [`ServerBuilder::key_store`](tegmen_host::server::ServerBuilder::key_store).
///
/// The server gives the key of a session once, so a handshake that fails after the question needs another identity.
pub struct Introspector {
    server: Session,
    runtime: Handle,
    allow: Vec<String>,
}

impl Introspector {
    /// Asks over a session with the access control server, in which this end proved its identity, on a runtime that runs
    /// during the handshakes. A publisher may do what the rules `allow`, as in the credentials file.
    pub const fn new(server: Session, runtime: Handle, allow: Vec<String>) -> Self {
        Self { server, runtime, allow }
    }
}

impl KeyStore for Introspector {
    fn find(&self, identity: &str, ticket: KeyTicket) {
        if SessionIdentity::parse(identity.as_bytes()).is_none() {
            return ticket.answer(None);
        }
        let (server, identity, allow) = (self.server.clone(), identity.to_owned(), self.allow.clone());
        self.runtime.spawn(async move {
            let key = introspect(&server, &identity).await;
            ticket.answer(key.map(|key| StoredKey { key, previous: None, allow: Some(allow) }));
        });
    }
}

/// Asks for the key of a session; `None` if the server refuses it, or does not answer.
async fn introspect(server: &Session, identity: &str) -> Option<Zeroizing<Vec<u8>>> {
    let request = IntrospectionRequest { token: identity.into(), ..IntrospectionRequest::default() }.encode();
    let response = server.post(INTROSPECT, &request).content_format(ACE_CBOR).await.ok()?;
    let payload = Zeroizing::new(response.payload);
    let response = IntrospectionResponse::parse(&payload).ok().filter(|_| response.code == Code::CREATED)?;
    match response.claims.cnf.filter(|_| response.active)? {
        Confirmation::Key(CoseKey { material: Material::Symmetric(key), .. }) => Some(key),
        _ => None,
    }
}
