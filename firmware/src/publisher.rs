//! A constrained publisher. It sends a PUT with a reading to its subscriber every second. It derives the key of each
//! session from its protokey. Apart from the publisher, only the access control server has this protokey.

use super::Provider;
use super::mote::{Application, Memory, Mote};
use tegmen::address::Address;
use tegmen::coap::Code;
use tegmen::crypto::{Crypto, DIGEST_LEN};
use tegmen::dtls::{Answer, ClientOnly, Fatal, Need};
use tegmen::identity::{PeerId, Principal};
use tegmen::node::{self, RequestHead};
use tegmen::oscore::OpenedRequest;
use tegmen::secret::Secret;
use tegmen::time::{Duration, Instant};
use tegmen_lowpan::slip::Start;
use tegmen_protokey::{MAX_IDENTITY, Mode, NONCE_LEN, Protokey, SessionIdentity};

/// The application of a publisher. It sends a PUT with a reading to its subscriber every second.
pub struct Publisher {
    subscriber: Address,
    session: Session,
    /// The time of the next reading, or of the next attempt to open a session.
    due: Instant,
    token: u16,
    /// The identity of the newest session, and the length of this identity.
    identity: ([u8; MAX_IDENTITY], usize),
    /// The key of the session that is being opened.
    key: Secret<DIGEST_LEN>,
}

#[derive(Clone, Copy)]
enum Session {
    None,
    Opening,
    Open(PeerId),
}

impl<M: Memory> Application<M> for Publisher {
    type Roles = ClientOnly;

    fn start(start: &Start) -> Option<Self> {
        Some(Self {
            subscriber: start.peer?,
            session: Session::None,
            due: Instant::default(),
            token: 0,
            identity: ([0; MAX_IDENTITY], 0),
            key: Secret::zeroed(),
        })
    }

    fn key<'a>(&'a self, _: Need<'_>) -> Answer<'a> {
        let (identity, len) = &self.identity;
        let identity = identity.get(..*len).unwrap_or(&[]);
        Answer::Psk { identity, key: self.key.expose(), principal: THE_SUBSCRIBER }
    }

    fn look(&mut self, mote: &mut Mote<ClientOnly, M>, now: Instant) {
        if now < self.due {
            return;
        }
        self.due = now.after(INTERVAL);
        match self.session {
            Session::None => self.open(mote, now),
            Session::Opening => {}
            // If the last request is still open, the node has no space for another request.
            Session::Open(peer) => self.publish(mote, now, peer),
        }
    }

    fn on_established(&mut self, _: &mut Mote<ClientOnly, M>, now: Instant, peer: PeerId) {
        self.key.wipe();
        (self.session, self.due) = (Session::Open(peer), now);
    }

    fn on_closed(&mut self, now: Instant, _: PeerId, _: Fatal) {
        self.key.wipe();
        (self.session, self.due) = (Session::None, now.after(INTERVAL));
    }
}

impl<X: OpenedRequest> node::Application<X> for Publisher {}

impl Publisher {
    /// Opens a session with a new identity, because the access control server accepts each identity only once.
    fn open<M: Memory>(&mut self, mote: &mut Mote<ClientOnly, M>, now: Instant) {
        let mut nonce = [0; NONCE_LEN];
        mote.environment.crypto.random(&mut nonce);
        let (buffer, len) = &mut self.identity;
        let (Some(identity), Some(protokey)) = (SessionIdentity::write(NAME, &nonce, buffer), Protokey::new(&PROTOKEY))
        else {
            return;
        };
        *len = identity.as_str().len();
        self.key = protokey.session_key::<Provider>(Mode::Bound, identity, SUBSCRIBER);
        if mote.connect(now, self.subscriber) {
            self.session = Session::Opening;
        }
    }

    fn publish<M: Memory>(&mut self, mote: &mut Mote<ClientOnly, M>, now: Instant, peer: PeerId) {
        self.token = self.token.wrapping_add(1);
        let token = self.token.to_be_bytes();
        let _ = mote.request(now, peer, RequestHead::new(Code::PUT).with_token(&token), |put| {
            put.path("temp")?;
            put.payload(b"21.5")
        });
    }
}

/// The name of the publisher at the access control server.
const NAME: &str = "oven";
/// The name of the subscriber at the access control server.
const SUBSCRIBER: &str = "display";
/// The protokey of the publisher. In a product each device has its own protokey.
const PROTOKEY: [u8; 32] = [9; 32];
const THE_SUBSCRIBER: Principal = Principal(1);
const INTERVAL: Duration = Duration::from_secs(1);
