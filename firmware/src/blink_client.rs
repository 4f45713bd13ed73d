//! The client of Blink: PUTs a blink to its server every second and shows the low three bits of the count it gets.

use super::leds;
use super::mote::{Application, Mote};
use tegmen::address::Address;
use tegmen::coap::exchange::{Busy, Received};
use tegmen::coap::{Builder, Code, MessageType};
use tegmen::crypto::Crypto;
use tegmen::dtls::Fatal;
use tegmen::dtls::need::{Answer, Need};
use tegmen::endpoint::{ClientOnly, Misuse, PeerId, Peers};
use tegmen::identity::Principal;
use tegmen::slip::Start;
use tegmen::time::{Duration, Instant};

/// The client of Blink.
pub struct Client {
    server: Address,
    session: Session,
    /// When the next blink, or the next attempt to open a session, is due.
    due: Instant,
    token: u16,
}

#[derive(Clone, Copy)]
enum Session {
    None,
    Opening,
    Open(PeerId),
}

impl Application for Client {
    type Roles = ClientOnly;

    fn start(start: &Start) -> Option<Self> {
        Some(Self { server: start.peer?, session: Session::None, due: Instant::default(), token: 0 })
    }

    fn key(&self, _: Need<'_>) -> Answer<'static> {
        Answer::Psk { identity: b"Client_identity", key: b"secretPSK", principal: THE_SERVER }
    }

    fn look(&mut self, mote: &mut Mote<ClientOnly>, now: Instant) {
        if now < self.due {
            return;
        }
        self.due = now.after(INTERVAL);
        match self.session {
            Session::None if mote.connect(now, self.server) => self.session = Session::Opening,
            Session::None | Session::Opening => {}
            // While the last one is still under way there is no room for another.
            Session::Open(peer) => _ = self.blink(mote, now, peer),
        }
    }

    fn on_established(&mut self, _: &mut Mote<ClientOnly>, now: Instant, peer: PeerId) {
        (self.session, self.due) = (Session::Open(peer), now);
    }

    fn on_closed(&mut self, now: Instant, _: PeerId, _: Fatal) {
        (self.session, self.due) = (Session::None, now.after(INTERVAL));
    }

    fn on_message(&mut self, mote: &mut Mote<ClientOnly>, now: Instant, peer: PeerId, message: &[u8]) {
        let Some(exchanges) = mote.endpoint.peers.attached(peer) else { return };
        let reply = match exchanges.receive(now, message) {
            Received::Response { message, acknowledge, .. } => {
                if let (Code::CHANGED, [count]) = (message.code(), message.payload()) {
                    leds::show((*count).into());
                }
                acknowledge
            }
            Received::Reject(reset) => Some(reset),
            _ => None,
        };
        if let Some(reply) = reply {
            let _ = mote.send(now, peer, |_, frame| frame.append(&reply).map_err(|_| Misuse::Full));
        }
    }
}

impl Client {
    fn blink(&mut self, mote: &mut Mote<ClientOnly>, now: Instant, peer: PeerId) -> Result<(), Misuse> {
        self.token = self.token.wrapping_add(1);
        let token = self.token.to_be_bytes();
        mote.send(now, peer, |mote, frame| {
            let mut random = [0];
            mote.crypto.random(&mut random);
            let exchanges = mote.endpoint.peers.attached(peer).ok_or(Misuse::NotEstablished)?;
            let message_id = exchanges.message_id();
            let put = Builder::new(frame, MessageType::Confirmable, Code::PUT, message_id, &token);
            put.and_then(|mut put| put.path("blink")).map_err(|_| Misuse::Full)?;
            exchanges.sent(now, frame.bytes(), random[0]).map_err(|busy| match busy {
                Busy::Outstanding => Misuse::NotEstablished,
                Busy::TooLong => Misuse::Full,
            })?;
            Ok(())
        })?;
        mote.wake_for_exchanges(peer);
        Ok(())
    }
}

const THE_SERVER: Principal = Principal(1);
const INTERVAL: Duration = Duration::from_secs(1);
