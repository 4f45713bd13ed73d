//! The controller of the group in the image `axiom_member`: a server that gives the same keys to each member.
//! `tegmen_control::group` is the controller for real use.

use super::Provider;
use super::axiom_member::{CLASH_PATH, PATH, REPORT_LEN};
use tegmen::address::Path;
use tegmen::coap::handler::{AnyAuthenticated, Policy};
use tegmen::coap::{Authorized, Code, Exchanges, Fixed, Handler, Response};
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, Config, Records, ServerOnly};
use tegmen::endpoint::{Endpoint, Event, PeerArray};
use tegmen::identity::Principal;
use tegmen::node::{self, Node};
use tegmen::oscore::OpenedRequest;
use tegmen::time::Instant;

/// The controller of the group. It has space for a session with one member.
pub struct Controller<'k> {
    node: Node<Table, ServerOnly, ()>,
    environment: Environment<Provider>,
    /// The path from the controller to the member.
    path: Path,
    keys: Keys<'k>,
}

/// The resource from which a member gets its keys. The second value is the payload of a report of a clash, until
/// [`Controller::take_report`] takes it. Meanwhile the controller refuses further reports with 5.03.
struct Keys<'k>(&'k [u8], Option<[u8; REPORT_LEN]>);

impl<'k> Controller<'k> {
    /// Creates a controller for one member. `path` is the path from the member to the controller.
    #[inline(never)]
    pub fn new(now: Instant, crypto: Provider, path: Path, keys: &'k [u8]) -> Self {
        let mut environment = Environment::new(crypto);
        let config = Config { mtu: LONGEST as u16, ..Config::default() };
        let endpoint = Endpoint::new(&mut environment.at(now), Table::new(), config);
        let node = Node::with_features(endpoint, Default::default(), ());
        Self { node, environment, path: Path { local: path.remote, remote: path.local }, keys: Keys(keys, None) }
    }

    /// Replaces the keys that the controller gives to members.
    pub const fn set_keys(&mut self, keys: &'k [u8]) {
        self.keys.0 = keys;
    }

    /// Takes the payload of a report of a clash; `None` if the controller has received none since the last call.
    pub const fn take_report(&mut self) -> Option<[u8; REPORT_LEN]> {
        self.keys.1.take()
    }

    /// Processes a datagram of the member, and writes the answer into `back`. If there is no answer, writes the
    /// datagram that the controller has to send next. Returns the number of written bytes, which may be 0. Returns
    /// `None` if the session has ended.
    #[inline(never)]
    pub fn receive(&mut self, now: Instant, datagram: &mut [u8], back: &mut [u8; LONGEST]) -> Option<usize> {
        let mut records = Records::new(datagram);
        let mut answer_len = 0;
        loop {
            let cx = &mut self.environment.at(now);
            match self.node.handle(cx, &self.path, &mut records, &mut self.keys, back) {
                Some(Event::Answer { len } | Event::Transmit { len, .. }) => answer_len = len.into(),
                Some(Event::Need(id)) => {
                    let answer = Answer::Psk { identity: b"", key: b"secretPSK", principal: THE_MEMBER };
                    let _ = self.node.endpoint.resume(&mut self.environment.at(now), id, answer);
                }
                Some(Event::Closed { .. }) => return None,
                Some(_) => {}
                None if answer_len > 0 => return Some(answer_len),
                None => return Some(self.poll(now, back)),
            }
        }
    }

    /// Writes into `back` the next datagram that must be sent now. Returns its length, or 0 if there is none.
    #[inline(never)]
    pub fn poll(&mut self, now: Instant, back: &mut [u8; LONGEST]) -> usize {
        match self.node.poll(&mut self.environment.at(now), &mut self.keys, back) {
            Some(Event::Transmit { len, .. }) => len.into(),
            _ => 0,
        }
    }
}

impl<X: OpenedRequest> node::Application<X> for Keys<'_> {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&AnyAuthenticated, self))
    }
}

impl Handler for Keys<'_> {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let message = request.message();
        if message.path_is(CLASH_PATH) && message.code() == Code::POST {
            if self.1.is_some() {
                return Err(Code::SERVICE_UNAVAILABLE);
            }
            self.1 = message.payload().try_into().ok();
            response.set_code(Code::CHANGED);
            return Ok(());
        }
        if !message.path_is(PATH) {
            return Err(Code::NOT_FOUND);
        }
        match message.code() {
            Code::POST => response.set_code(Code::CREATED),
            Code::GET => {}
            _ => return Err(Code::METHOD_NOT_ALLOWED),
        }
        response.payload(self.0)
    }
}

type Table = PeerArray<Exchanges<Storage>, 1, 1, 32, 96>;
type Storage = Fixed<1, 16, 1, LONGEST>;

/// Maximum length of a datagram of the controller, in bytes.
pub const LONGEST: usize = 512;
const THE_MEMBER: Principal = Principal(1);
