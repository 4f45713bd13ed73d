//! The server of Blink: counts the PUTs of its clients, answers with the count and shows its low three bits.

use super::leds;
use super::mote::{Application, Mote};
use tegmen::coap::exchange::Received;
use tegmen::coap::handler::{AnyAuthenticated, serve};
use tegmen::coap::{Authorized, Code, Handler, MessageRef, Request, Response};
use tegmen::dtls::need::{Answer, Need};
use tegmen::endpoint::{Misuse, PeerId, Peers, ServerOnly};
use tegmen::identity::{Identity, Principal};
use tegmen::slip::Start;
use tegmen::time::Instant;

/// The server of Blink.
pub struct Server {
    blinks: u8,
}

impl Application for Server {
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

    fn on_message(&mut self, mote: &mut Mote<ServerOnly>, now: Instant, peer: PeerId, message: &[u8]) {
        // Nothing to send, or no room: the client asks again.
        let _ = mote.send(now, peer, |mote, frame| {
            let known = mote.endpoint.peers.peer(peer).ok_or(Misuse::NotEstablished)?;
            let identity = Identity { principal: known.principal(), protection: known.protection() };
            let exchanges = mote.endpoint.peers.attached(peer).ok_or(Misuse::NotEstablished)?;
            let written = match exchanges.receive(now, message) {
                Received::Request(message) => {
                    let own_id = exchanges.message_id();
                    serve(Request::new(message, identity), &AnyAuthenticated, self, own_id, frame);
                    exchanges.keep_reply(now, message.message_id(), frame.bytes());
                    Ok(())
                }
                Received::Duplicate(reply) => frame.append(reply),
                Received::Reject(reset) => frame.append(&reset),
                _ => Ok(()),
            };
            written.map_err(|_| Misuse::Full)?;
            if frame.is_empty() { Err(Misuse::NotEstablished) } else { Ok(()) }
        });
    }
}

impl Handler for Server {
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
