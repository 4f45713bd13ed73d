//! A member that joins a protected group over a session with the controller (RFC 9594 over DTLS), and is then a
//! listener. If the member misses a rekey message, it requests its keys over a session. If it receives requests of two
//! members with one SenderID, it reports this to the controller over the session. It repeats the report at longer and
//! longer intervals until the controller answers it.

use super::Provider;
use super::axiom_keys::{parse, write_join};
use super::axiom_listener::{Listener, Responses};
use super::axiom_provisioned::{Provisioned, is_rekey_message};
use super::lamp::SENDERS;
use tegmen::address::Path;
use tegmen::axiom::Member;
use tegmen::buf::{Writer, copy};
use tegmen::coap::{Builder, Code, Exchanges, Fixed, OptionNumber, RequestId};
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, ClientOnly, Config, Records};
use tegmen::endpoint::{Endpoint, Event, PeerArray};
use tegmen::identity::{PeerId, Principal, SenderId};
use tegmen::node::{self, Node, Reply, RequestHead};
use tegmen::oscore::OpenedRequest;
use tegmen::time::Instant;
use tegmen_flash::{Flash, Kept};

/// A member that joins the group over a session.
pub struct GroupMember<F: Flash> {
    node: Node<Table, ClientOnly, ()>,
    environment: Environment<Provider>,
    /// The path from the member to the controller.
    controller: Path,
    session: Session,
    /// The time before which the member sends no request, and opens no session for one. A new session makes a request
    /// due at once.
    due: Instant,
    keys: Keys<F>,
}

#[derive(Clone, Copy)]
enum Session {
    None,
    Opening,
    Open(PeerId),
}

/// The part of a [`GroupMember`] that receives the keys of the group, and makes the listener from them.
struct Keys<F> {
    /// The parts from which the listener is made. `None` after the member has received keys and made the listener.
    parts: Option<Parts<F>>,
    listener: Option<Listener<F, Clashes>>,
    are_current: bool,
    /// The number of times that the interval before the next report is doubled.
    doublings: u8,
    /// True if the last request got no answer in time. The controller may have lost the session.
    is_unanswered: bool,
}

/// The last clash of the listener that the controller has not answered. The listener protects its responses with the
/// keys of the group.
#[derive(Default)]
pub struct Clashes {
    /// The payload of the report, which is an array of CBOR with the epoch and the SenderID.
    report: Option<[u8; REPORT_LEN]>,
    /// True if the last request of the member is this report.
    is_sent: bool,
}

impl Clashes {
    /// Returns the clash of the epoch `epoch`. Forgets a clash of another epoch, whose keys are not in use any more.
    fn of(&mut self, epoch: u16) -> Option<[u8; REPORT_LEN]> {
        self.report = self.report.filter(|[_, _, high, low, ..]| [*high, *low] == epoch.to_be_bytes());
        self.report
    }
}

impl Responses for Clashes {
    fn on_clash(&mut self, epoch: u16, sender: SenderId) {
        let [high, low] = epoch.to_be_bytes();
        let report = Some([ARRAY_OF_2, IN_2_BYTES, high, low, IN_1_BYTE, sender.number()]);
        // The answer to an earlier report does not end another clash.
        self.is_sent &= report == self.report;
        self.report = report;
    }
}

/// The parts from which the listener is made when its keys arrive: the value that stores the keys and the states of
/// senders, the cryptographic provider, and the flash memory in which record numbers are reserved.
pub type Parts<F> = (&'static mut Member<SENDERS, 0>, Provider, Kept<F>);

impl<F: Flash> GroupMember<F> {
    /// Creates a member that has not joined. `controller` is the path from the member to the controller.
    pub fn new(now: Instant, crypto: Provider, controller: Path, parts: Parts<F>) -> Self {
        let mut environment = Environment::new(crypto);
        let config = Config { mtu: OUT_LEN as u16, ..Config::default() };
        let endpoint = Endpoint::new(&mut environment.at(now), Table::new(), config);
        let node = Node::with_features(endpoint, Default::default(), ());
        let keys = Keys { parts: Some(parts), listener: None, are_current: false, doublings: 0, is_unanswered: false };
        Self { node, environment, controller, session: Session::None, due: now, keys }
    }

    /// Returns the listener; `None` before the member has joined.
    pub const fn listener(&self) -> Option<&Listener<F, Clashes>> {
        self.keys.listener.as_ref()
    }

    /// Processes a datagram that arrived over `path`. Its destination is the address of the group or the address of the
    /// member. Returns the length of the answer in `out`, or 0 if there is none. Send the answer over the same path.
    pub fn handle(&mut self, now: Instant, path: &Path, datagram: &mut [u8], out: &mut [u8; OUT_LEN]) -> usize {
        if path.local.ip != self.controller.local.ip || is_rekey_message(datagram) {
            let missed = self.keys.listener.as_mut().is_some_and(|listener| listener.take(now, &path.remote, datagram));
            self.keys.are_current &= !missed;
            return 0;
        }
        let mut records = Records::new(datagram);
        let mut answer_len = 0;
        loop {
            let cx = &mut self.environment.at(now);
            match self.node.handle(cx, path, &mut records, &mut self.keys, out) {
                Some(Event::Answer { len } | Event::Transmit { len, .. }) => answer_len = len.into(),
                Some(event) => self.on_event(now, event),
                None => return answer_len,
            }
        }
    }

    /// Writes into `out` the next datagram that the member has to send now. Returns its path and its length.
    pub fn poll(&mut self, now: Instant, out: &mut [u8; OUT_LEN]) -> Option<(Path, usize)> {
        if let Some(len) = self.ask(now, out) {
            return Some((self.controller, len));
        }
        if let Some((remote, response)) = self.keys.listener.as_mut().and_then(|listener| listener.poll(now)) {
            copy(out, response).ok()?;
            return Some((Path { remote, ..self.controller }, response.len()));
        }
        loop {
            match self.node.poll(&mut self.environment.at(now), &mut self.keys, out)? {
                Event::Transmit { len, .. } => return Some((self.controller, len.into())),
                event => self.on_event(now, event),
            }
        }
    }

    /// Requests keys if the member has no current keys. Otherwise reports a clash if there is one. Opens the session for
    /// the request. Returns the length of the request. The interval before the next report of a clash doubles with each
    /// call that sends a report or opens a session for it.
    fn ask(&mut self, now: Instant, out: &mut [u8; OUT_LEN]) -> Option<usize> {
        let Keys { listener, are_current, doublings, is_unanswered, .. } = &mut self.keys;
        // A session that has ended meanwhile needs no further end.
        if core::mem::take(is_unanswered)
            && let Session::Open(peer) = self.session
        {
            self.node.endpoint.close(peer);
            self.session = Session::None;
            return None;
        }
        let joins = listener.is_none();
        let current = listener.as_mut().filter(|_| *are_current);
        let report = current.and_then(|listener| listener.responses.of(listener.group.epoch()));
        if report.is_none() {
            *doublings = 0;
        }
        // A longer interval ends with the report that caused it.
        if *doublings == 0 {
            self.due = self.due.min(now.after_millis(INTERVAL));
        }
        if *are_current && report.is_none() || now < self.due {
            return None;
        }
        self.due = now.after_millis(INTERVAL << *doublings);
        if report.is_some() {
            *doublings = DOUBLINGS_MAX.min(*doublings + 1);
        }
        let cx = &mut self.environment.at(now);
        match self.session {
            Session::None => {
                let opened = self.node.endpoint.connect(cx, &self.controller).is_ok();
                self.session = if opened { Session::Opening } else { Session::None };
                None
            }
            Session::Opening => None,
            Session::Open(peer) => {
                let own = &self.controller.local.ip;
                let write = |request: &mut Builder<'_, '_>| {
                    request.path(if report.is_some() { CLASH_PATH } else { PATH })?;
                    if !joins && report.is_none() {
                        return Ok(());
                    }
                    request.uint(OptionNumber::CONTENT_FORMAT, GROUPCOMM_CBOR)?;
                    if let Some(report) = &report {
                        return request.payload(report);
                    }
                    let mut join = [0; JOIN_LEN];
                    let mut writer = Writer::new(&mut join);
                    write_join(GROUP, own, &mut writer)?;
                    request.payload(writer.written())
                };
                let head = RequestHead::new(if joins || report.is_some() { Code::POST } else { Code::GET });
                let (_, len) = self.node.request(cx, peer, head, write, out).ok()?;
                if let Some(listener) = listener {
                    listener.responses.is_sent = report.is_some();
                }
                Some(len)
            }
        }
    }

    fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Need(id) => {
                let answer = Answer::Psk { identity: b"Client_identity", key: b"secretPSK", principal: THE_CONTROLLER };
                if let Some(event) = self.node.endpoint.resume(&mut self.environment.at(now), id, answer) {
                    self.on_session(now, event);
                }
            }
            event => self.on_session(now, event),
        }
    }

    const fn on_session(&mut self, now: Instant, event: Event) {
        match event {
            Event::Established(peer) => (self.session, self.due) = (Session::Open(peer), now),
            Event::Closed { .. } => self.session = Session::None,
            _ => {}
        }
    }
}

impl<F: Flash, X: OpenedRequest> node::Application<X> for Keys<F> {
    fn on_reply(&mut self, _: PeerId, _: RequestId, reply: Reply<'_>) {
        self.is_unanswered = matches!(reply, Reply::TimedOut);
        let Reply::Response(response) = reply else { return };
        if let Some(Listener { responses, .. }) = &mut self.listener
            && responses.is_sent
        {
            // A controller that is busy answers the same report later.
            if response.code().class() != 5 && response.code() != Code::TOO_MANY_REQUESTS {
                *responses = Clashes::default();
                self.doublings = 0;
            }
            return;
        }
        let Some(keys) = parse(response.payload()).filter(|_| response.code().is_success()) else { return };
        match &mut self.listener {
            Some(listener) => self.are_current = listener.group.catch_up(&keys).is_some(),
            // If no record numbers can be reserved, the member sends nothing: its flash memory has a later epoch, or
            // does not work.
            None => {
                let made =
                    self.parts.take().and_then(|(member, crypto, kept)| Provisioned::new(member, crypto, &keys, kept));
                self.listener = made.map(|group| Listener::with_responses(group, Clashes::default()));
                self.are_current = true;
            }
        }
    }
}

/// A peer table for one session, in which one request can be open.
type Table = PeerArray<Exchanges<Storage>, 1, 1, 32, 96>;
type Storage = Fixed<1, 192, 1, 16>;

/// The name of the group in requests to the controller.
pub const GROUP: &str = "lamps";
/// The path of the resource at the controller to which a member sends its request to join the group.
pub const PATH: &str = "ace-group/lamps";
/// The path of the resource at the controller to which a member reports two members with one SenderID.
pub const CLASH_PATH: &str = "ace-group/lamps/clash";
/// The Content-Format of the request to join (RFC 9594, section 11.2).
pub const GROUPCOMM_CBOR: u32 = 261;
/// Maximum length of a datagram that the member sends, in bytes.
pub const OUT_LEN: usize = 256;
/// Maximum length of a join request, in bytes.
pub const JOIN_LEN: usize = 96;
/// Length of a report of a clash, in bytes. The next three constants are the heads of its CBOR items.
pub const REPORT_LEN: usize = 6;
const ARRAY_OF_2: u8 = 0x82;
const IN_2_BYTES: u8 = 0x19;
const IN_1_BYTE: u8 = 0x18;
const THE_CONTROLLER: Principal = Principal(2);
/// Minimum time between two requests in milliseconds. A peer without a valid key can cause requests for keys, and this
/// time limits their number.
const INTERVAL: u32 = 60_000;
/// Maximum number of times that the interval between two reports of one clash is doubled. So it is at most 8 minutes.
const DOUBLINGS_MAX: u8 = 3;
