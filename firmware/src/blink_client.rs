//! The client of Blink. It sends a PUT to its server every second and shows the low three bits of the count in the
//! response.

use super::leds;
use super::mote::{Application, Memory, Mote};
use tegmen::address::Address;
use tegmen::coap::{Code, RequestId};
use tegmen::dtls::{Answer, ClientOnly, Fatal, Need};
use tegmen::identity::{PeerId, Principal};
use tegmen::node::{self, Reply, RequestHead};
use tegmen::oscore::OpenedRequest;
use tegmen::time::{Duration, Instant};
use tegmen_lowpan::slip::Start;

/// The client of Blink.
pub struct Client {
    server: Address,
    session: Session,
    /// The time of the next blink, or of the next attempt to open a session.
    due: Instant,
    token: u16,
}

#[derive(Clone, Copy)]
enum Session {
    None,
    Opening,
    Open(PeerId),
}

impl<M: Memory> Application<M> for Client {
    type Roles = ClientOnly;

    fn start(start: &Start) -> Option<Self> {
        Some(Self { server: start.peer?, session: Session::None, due: Instant::default(), token: 0 })
    }

    fn key(&self, _: Need<'_>) -> Answer<'static> {
        Answer::Psk { identity: b"Client_identity", key: b"secretPSK", principal: THE_SERVER }
    }

    fn look(&mut self, mote: &mut Mote<ClientOnly, M>, now: Instant) {
        if now < self.due {
            return;
        }
        self.due = now.after(INTERVAL);
        match self.session {
            Session::None if mote.connect(now, self.server) => self.session = Session::Opening,
            Session::None | Session::Opening => {}
            // If the last request is still open, the node has no space for another request.
            Session::Open(peer) => self.blink(mote, now, peer),
        }
    }

    fn on_established(&mut self, _: &mut Mote<ClientOnly, M>, now: Instant, peer: PeerId) {
        (self.session, self.due) = (Session::Open(peer), now);
    }

    fn on_closed(&mut self, now: Instant, _: PeerId, _: Fatal) {
        (self.session, self.due) = (Session::None, now.after(INTERVAL));
    }
}

impl<X: OpenedRequest> node::Application<X> for Client {
    fn on_reply(&mut self, _: PeerId, _: RequestId, reply: Reply<'_>) {
        if let Reply::Response(response) = reply
            && let (Code::CHANGED, [count]) = (response.code(), response.payload())
        {
            leds::show((*count).into());
        }
    }
}

impl Client {
    fn blink<M: Memory>(&mut self, mote: &mut Mote<ClientOnly, M>, now: Instant, peer: PeerId) {
        self.token = self.token.wrapping_add(1);
        let token = self.token.to_be_bytes();
        let _ = mote.request(now, peer, RequestHead::new(Code::PUT).with_token(&token), |put| put.path("blink"));
    }
}

const THE_SERVER: Principal = Principal(1);
const INTERVAL: Duration = Duration::from_secs(1);
