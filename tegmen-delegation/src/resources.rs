//! The resources of a device for its delegation server.

use crate::device::{Device, Memory, Rejected};
use crate::epoch::{EXPORTER, PSK_LEN};
use crate::message::{Go, Request, Resource};
use crate::ticket::SERVER;
use core::cell::RefCell;
use tegmen::coap::{Authorized, Code, MessageRef, Response};
use tegmen::crypto::Crypto;
use tegmen::dtls::Roles;
use tegmen::endpoint::{Endpoint, Peers};
use tegmen::identity::PeerId;
use tegmen::secret::Secret;
use tegmen::time::Instant;

/// The [resources](Resource) of a device. Only its delegation [server](SERVER) may use them.
#[derive(Debug)]
pub struct Resources<'d, M, const REFUSED: usize, const SESSIONS: usize, const HANDLE: usize> {
    /// The device whose state the resources read and change.
    pub device: &'d RefCell<Device<M, REFUSED, SESSIONS, HANDLE>>,
    /// The keying material that the session with the delegation server exports under the label
    /// [`EXPORTER`](crate::EXPORTER). `None` if there was no such session yet, or if an epoch began in the last
    /// session.
    pub exported: Option<Secret<PSK_LEN>>,
    /// The present time. The owner of this value sets it before each call.
    pub now: Instant,
    /// An action that the last request requires of the owner of the endpoint; `None` if there is none. The owner takes
    /// this value after each request, and performs the action.
    pub due: Option<Due>,
}

/// An action that the owner of the endpoint must perform after a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Close the session of the connection with this number.
    Close(u32),
    /// Close the sessions of all connections: a new epoch has begun.
    CloseAll,
    /// Resume a session. The device is the client, and the peer is the server: see [`Device::to_open`].
    Open(Go),
}

impl<M: Memory, const REFUSED: usize, const SESSIONS: usize, const HANDLE: usize>
    Resources<'_, M, REFUSED, SESSIONS, HANDLE>
{
    /// Exports the keying material of a new session with the delegation server. Call this function for each
    /// [`Event::Established`](tegmen::endpoint::Event). For a session with any other peer the function does nothing.
    pub fn established<C: Crypto, P: Peers, R: Roles>(&mut self, endpoint: &mut Endpoint<P, R>, peer: PeerId) {
        if endpoint.peers.peer(peer).is_some_and(|peer| peer.principal() == SERVER) {
            let exported = self.exported.get_or_insert_with(Secret::zeroed);
            if endpoint.export::<C>(peer, EXPORTER, exported.expose_mut()).is_none() {
                self.exported = None;
            }
        }
    }

    /// Answers a request. Returns `None` if the path names another resource.
    pub fn handle<C: Crypto>(
        &mut self,
        request: &Authorized<'_>,
        response: &mut Response<'_, '_>,
    ) -> Option<Result<(), Code>> {
        let message = request.message();
        let resource = *Resource::ALL.iter().find(|resource| message.path_is(resource.path()))?;
        Some(match request.identity().principal {
            SERVER => self.answer::<C>(resource, message, response),
            _ => Err(Code::FORBIDDEN),
        })
    }

    /// Answers a request to one resource. The caller must have checked that the sender is the delegation server.
    ///
    /// # Errors
    /// The code of an error response.
    pub fn answer<C: Crypto>(
        &mut self,
        resource: Resource,
        message: &MessageRef<'_>,
        response: &mut Response<'_, '_>,
    ) -> Result<(), Code> {
        let method = if resource == Resource::Status { Code::GET } else { Code::POST };
        if message.code() != method {
            return Err(Code::METHOD_NOT_ALLOWED);
        }
        let mut device = self.device.try_borrow_mut().map_err(|_| Code::SERVICE_UNAVAILABLE)?;
        let done = match Request::read(resource, message.payload()).map_err(|_| Code::BAD_REQUEST)? {
            Request::Status => {
                return response.payload(&device.status().bytes());
            }
            Request::Epoch { number, time, check } => {
                let exported = self.exported.as_ref().ok_or(Code::CONFLICT)?;
                let is_new = number != device.epoch();
                let begun = device.begin_epoch::<C>(number, exported, &check);
                if begun.is_ok() {
                    device.set_time(self.now, time);
                    self.due = is_new.then_some(Due::CloseAll);
                    if is_new {
                        self.exported = None;
                    }
                }
                begun
            }
            Request::Refuse(number) => {
                self.due = Some(Due::Close(number));
                device.refuse(number).map(|_| ())
            }
            Request::Keep(session) => device.keep(session),
            Request::Go { go, .. } => {
                self.due = Some(Due::Open(go));
                Ok(())
            }
        };
        done.map_err(code)?;
        response.set_code(Code::CHANGED);
        Ok(())
    }
}

const fn code(rejected: Rejected) -> Code {
    match rejected {
        Rejected::Wrong => Code::CONFLICT,
        Rejected::NoPlace => Code::SERVICE_UNAVAILABLE,
        Rejected::Memory => Code::INTERNAL_SERVER_ERROR,
    }
}
