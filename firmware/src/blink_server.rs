//! The server of Blink. It counts the PUTs of its clients, answers with the count, and shows the low three bits of the
//! count.

use super::leds;
use super::mote::{Application, Memory};
use tegmen::coap::handler::{AnyAuthenticated, Policy};
use tegmen::coap::{Authorized, Code, Handler, MessageRef, Response};
use tegmen::dtls::{Answer, Need, ServerOnly};
use tegmen::identity::Principal;
use tegmen::node;
use tegmen::oscore::OpenedRequest;
use tegmen_lowpan::slip::Start;

/// The server of Blink.
pub struct Server {
    blinks: u8,
}

impl<M: Memory> Application<M> for Server {
    type Roles = ServerOnly;

    fn start(_: &Start) -> Option<Self> {
        Some(Self { blinks: 0 })
    }

    fn key(&self, need: Need<'_>) -> Answer<'static> {
        match need {
            Need::PskOfClient { identity: b"Client_identity" } => {
                Answer::Psk { identity: b"", key: b"secretPSK", principal: THE_CLIENT }
            }
            _ => Answer::Unknown,
        }
    }
}

impl<X: OpenedRequest> node::Application<X> for Server {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&AnyAuthenticated, self))
    }
}

impl Handler for Server {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let message: &MessageRef<'_> = request.message();
        if !message.path_is("blink") {
            return Err(Code::NOT_FOUND);
        }
        match message.code() {
            Code::PUT => {
                self.blinks = self.blinks.wrapping_add(1);
                leds::show(self.blinks.into());
                response.set_code(Code::CHANGED);
            }
            Code::GET => {}
            _ => return Err(Code::METHOD_NOT_ALLOWED),
        }
        response.payload(&[self.blinks])
    }
}

const THE_CLIENT: Principal = Principal(1);
