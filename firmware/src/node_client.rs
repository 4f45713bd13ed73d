//! The client of `blink_client`, which also observes the resource `blink`: the number of PUTs that the server has
//! counted. The client shows the low three bits of the count in each notification.

use super::blink_client;
use super::leds;
use super::mote::{Application, Memory, Mote};
use tegmen::coap::{Fixed, RequestId};
use tegmen::dtls::{Answer, ClientOnly, Fatal, Need};
use tegmen::identity::PeerId;
use tegmen::node::{self, Notification, Observation, Reply};
use tegmen::oscore::OpenedRequest;
use tegmen::time::Instant;
use tegmen_lowpan::slip::Start;

/// The memory of the client's node. The node has space for three messages that it sent and that wait for an
/// acknowledgement or a response. The registration of the observation uses one space. No request may use the last free
/// space, because the node keeps this space for a response. The node has no optional parts.
pub struct Small;

impl Memory for Small {
    type Storage = Fixed<3, 64, 4, 64>;
    type Features = ();
}

/// The application of a client: it sends a PUT every second, and observes the resource `blink` of the server.
pub struct Client {
    blinker: blink_client::Client,
    /// The session with the server; `None` while there is no session.
    pub server: Option<PeerId>,
    observation: Observation,
    now: Instant,
}

impl Client {
    /// Protects the registration and the notifications with OSCORE.
    pub fn with_oscore(self) -> Self {
        Self { observation: self.observation.with_oscore(), ..self }
    }
}

impl<M: Memory> Application<M> for Client {
    type Roles = ClientOnly;

    fn start(start: &Start) -> Option<Self> {
        let blinker = Application::<M>::start(start)?;
        Some(Self { blinker, server: None, observation: Observation::default(), now: Instant::default() })
    }

    fn key<'a>(&'a self, need: Need<'_>) -> Answer<'a> {
        Application::<M>::key(&self.blinker, need)
    }

    fn look(&mut self, mote: &mut Mote<ClientOnly, M>, now: Instant) {
        self.now = now;
        if let Some(server) = self.server.filter(|_| self.observation.refresh_at() <= now) {
            let _ = mote.observe(now, server, &mut self.observation, "blink");
        }
        self.blinker.look(mote, now);
    }

    fn on_established(&mut self, mote: &mut Mote<ClientOnly, M>, now: Instant, peer: PeerId) {
        self.server = Some(peer);
        self.blinker.on_established(mote, now, peer);
    }

    fn on_closed(&mut self, now: Instant, peer: PeerId, why: Fatal) {
        self.server = None;
        self.observation.on_closed();
        Application::<M>::on_closed(&mut self.blinker, now, peer, why);
    }
}

impl<X: OpenedRequest> node::Application<X> for Client {
    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        // The last argument is 0, because the requests of a single client need no random delay.
        let notification = self.observation.on_reply(self.now, peer, request, reply, 0);
        match (notification, reply) {
            (Some(Notification::Newest | Notification::Last), Reply::Response(response)) => {
                if let [count] = response.payload() {
                    leds::show((*count).into());
                }
            }
            (Some(_), _) => {}
            (None, _) => node::Application::<X>::on_reply(&mut self.blinker, peer, request, reply),
        }
    }
}
