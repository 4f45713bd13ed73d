//! The resource at which a member of a Group OSCORE group takes requests of its Group Manager (`control_uri`, RFC 9594,
//! section 4.3.1).
//!
//! ```text
//! POST     a rekeying message: application/ace-groupcomm+cbor (261)      (section 6.1)
//! DELETE   the member was evicted                                        (section 5)
//! ```
//!
//! The resource has a server of its own, with a UDP port of its own. This server opens only sessions with the key
//! [`control_key`], which only the Group Manager and the member can compute. The member does not trust a DELETE request:
//! it asks the Group Manager. So a request that arrives late, after the member has joined again, has no effect.

use super::{Controller, ControllerError};
use crate::contexts::MemberFile;
use crate::credentials::Credentials;
use crate::group::groupcomm::{GROUPCOMM_CBOR, GROUPS};
use crate::provider::HostCrypto;
use crate::server::{Application, Reply, Request, Responder, Server};
use crate::uri::{Scheme, Uri};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber, Response};
use tegmen::crypto::{DIGEST_LEN, hmac};
use tegmen::secret::Secret;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

/// The PSK identity of a Group Manager in its sessions with the `control_uri` of a member.
pub const CONTROL_IDENTITY: &str = "group manager";
/// The label that separates the key of these sessions from other keys.
const LABEL: &[u8] = b"tegmen control_uri";
/// The time after which the Group Manager may repeat a request, if the member handles another one.
const BUSY: Duration = Duration::from_secs(2);

/// Returns the pre-shared key of the sessions that a Group Manager opens with the `control_uri` of a member. The key is an
/// HMAC-SHA-256 under `key`, the pre-shared key with which the device joined, over the name of the group. The session
/// gives no other right. A session of the device with the Group Manager has another key, so nobody can redirect this
/// session to the device itself.
pub fn control_key(key: &[u8], group: &str) -> Secret<DIGEST_LEN> {
    Secret::new(hmac::<HostCrypto, DIGEST_LEN>(&[key], &[LABEL, group.as_bytes()]))
}

/// Returns the `control_uri` of a member with this address and port, with the default path of RFC 9594.
pub(super) fn control_uri(address: IpAddr, port: u16, group: &str) -> String {
    let to = SocketAddr::new(address.to_canonical(), port);
    let path = vec![GROUPS.to_owned(), group.to_owned(), "node".to_owned()];
    Uri { scheme: Scheme::Coaps, host: to.ip().to_string(), port, path, query: Vec::new() }.to_string()
}

/// A message about the keys of a member.
pub(super) enum Message {
    /// A rekeying message, with its payload.
    Rekeying(Zeroizing<Vec<u8>>),
    /// The Group Manager reports that the member was evicted.
    Eviction,
    /// The interval of the member's requests for keys is over.
    Poll,
}

/// A message that arrived, and the responder of its request. A notification needs no response.
pub(super) struct Received {
    pub(super) message: Result<Message, ControllerError>,
    pub(super) responder: Option<Responder>,
}

impl Received {
    pub(super) const fn of(message: Result<Message, ControllerError>) -> Self {
        Self { message, responder: None }
    }
}

/// Returns the response to a request of the Group Manager. `evicts` is true for a DELETE request.
pub(super) fn response(taken: &Result<bool, ControllerError>, evicts: bool) -> Reply {
    match taken {
        Ok(_) | Err(ControllerError::NotAMember(_)) if evicts => Reply::new(Code::DELETED),
        Ok(_) => Reply::new(Code::CHANGED),
        Err(ControllerError::Response(malformed)) => Reply::new(Code::BAD_REQUEST).because(malformed.to_string()),
        Err(error) => Reply::new(Code::SERVICE_UNAVAILABLE).max_age(BUSY).because(error.to_string()),
    }
}

impl Controller {
    /// Starts the server of the `control_uri` of a member, which passes each request to `messages`. Returns `None` if the
    /// member has no `control_uri`, or this client has no pre-shared key.
    pub(super) fn listen(
        &self,
        dir: &Path,
        messages: &mpsc::Sender<Received>,
    ) -> Result<Option<Server>, ControllerError> {
        let uri = MemberFile::read(dir)?.manager.and_then(|manager| manager.control_uri);
        let (Some(uri), Some(own)) = (uri, &self.config.trust.key) else { return Ok(None) };
        let Uri { host, port, path, .. } = Uri::parse(&uri)?;
        let address = SocketAddr::new(host.parse().map_err(|_| ControllerError::Name(uri.clone()))?, port);
        let credentials = Credentials::single(CONTROL_IDENTITY, control_key(&own.key, &self.group).expose());
        let resource = ControlResource { path: path.join("/"), messages: messages.clone() };
        let started = Server::builder().listen(&format!("coaps://{address}")).credentials(credentials).shards(1);
        started.serve(resource).map(Some).map_err(|source| ControllerError::Control { uri, source })
    }
}

/// The resource of a `control_uri`.
#[derive(Clone)]
struct ControlResource {
    /// The path, without the first slash.
    path: String,
    messages: mpsc::Sender<Received>,
}

impl Application for ControlResource {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if request.path() != self.path {
            return Err(Code::NOT_FOUND);
        }
        let message = match request.method() {
            Code::POST if request.message().uint(OptionNumber::CONTENT_FORMAT) == Some(GROUPCOMM_CBOR.into()) => {
                Message::Rekeying(Zeroizing::new(request.payload().to_vec()))
            }
            Code::POST => return Err(Code::UNSUPPORTED_CONTENT_FORMAT),
            Code::DELETE => Message::Eviction,
            _ => return Err(Code::METHOD_NOT_ALLOWED),
        };
        let Ok(permit) = self.messages.try_reserve() else {
            request.because("the member handles another request");
            response.set_code(Code::SERVICE_UNAVAILABLE);
            return response.uint(OptionNumber::MAX_AGE, BUSY.as_secs() as u32);
        };
        permit.send(Received { message: Ok(message), responder: Some(request.defer(response)) });
        Ok(())
    }
}
