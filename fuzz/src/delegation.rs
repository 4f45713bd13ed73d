//! Executes scripts of events for a device with delegated sessions and its delegation server.

use crate::Input;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use tegmen::address::Address;
use tegmen::buf::{Frame, Writer};
use tegmen::coap::handler::{Anybody, Served, serve};
use tegmen::coap::{Authorized, Builder, Code, Handler, MessageRef, MessageType, OptionNumber, Request, Response};
use tegmen::crypto::{Compact, digest};
use tegmen::cx::Environment;
use tegmen::dtls::{CipherSuite, Handle, MASTER_LEN, Resumption as _, SessionState};
use tegmen::identity::{Identity, Principal, Protection};
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_delegation::{
    Connection, Delegation, Device, DeviceKey, Due, Epoch, FlashMemory, Go, HandedOver, Issuer, LONGEST_TICKET,
    Memory as _, Refusals, Refused, Request as ServerRequest, Resource, Resources, SERVER, STATE_LEN, Sessions, Status,
    Ticket,
};
use tegmen_flash::{Flash, Page, RECORD_LEN};
use tegmen_tickets::TicketKey;

#[path = "../../tegmen-delegation/tests/delegation/pages.rs"]
mod pages;

/// The flash pages of the device, which survive a restart.
#[derive(Clone)]
struct Pages(Rc<RefCell<pages::Model>>);

impl Flash for Pages {
    type Error = ();
    const PAGE_LEN: usize = pages::Model::PAGE_LEN;

    fn read(&self, page: Page, at: usize, out: &mut [u8; RECORD_LEN]) {
        self.0.borrow().read(page, at, out);
    }

    fn program(&mut self, page: Page, at: usize, record: &[u8; RECORD_LEN]) -> Result<(), ()> {
        self.0.borrow_mut().program(page, at, record)
    }

    fn erase(&mut self, page: Page) -> Result<(), ()> {
        self.0.borrow_mut().erase(page)
    }
}

/// Number of entries in the list of refused connections.
const REFUSED: usize = 4;
/// Maximum number of sessions from the server that the device stores at the same time.
const SESSIONS: usize = 2;
/// Maximum length, in bytes, of a ticket or session id that the server sends to the device together with a session.
const HANDLE: usize = 24;
/// Maximum number of steps in one script.
const STEPS: usize = 100;
/// The time of the server at the start of a script, in seconds since 1970.
const TIME: u32 = 1_700_000_000;
/// Number of seconds by which the clock of the server may be ahead of the clock of the device.
const TOLERANCE: u32 = 60;

type Tested = Device<FlashMemory<Pages>, REFUSED, SESSIONS, HANDLE>;

/// A ticket that a server sealed.
#[derive(Clone)]
struct Sealed {
    /// The device for which the ticket was sealed. [`OURS`] is the device under test.
    device: usize,
    epoch: u16,
    state: [u8; STATE_LEN],
    bytes: Vec<u8>,
}

/// The index of the device under test. The other device has another device key.
const OURS: usize = 0;

/// A session that the device has received from its server (a session that was handed over).
struct Kept {
    state: [u8; STATE_LEN],
    opens: bool,
    is_ticket: bool,
    handle: Vec<u8>,
}

/// The state that the device must have after the events of the script.
struct Expected {
    epoch: Epoch,
    /// The epochs whose beginning failed, because the memory of the device failed. After a restart the device may be in
    /// one of these epochs.
    perhaps: Vec<Epoch>,
    /// The connections whose revocation was acknowledged by the device.
    revoked: BTreeSet<u32>,
    /// The connections that the device refuses now, but may accept after a restart, because the memory of the device
    /// failed when the connections were revoked.
    unkept: BTreeSet<u32>,
    /// True if the memory failed in this epoch. The pages of the memory may then be full although the list of refused
    /// connections is not full.
    has_failed: bool,
    sessions: [Option<Kept>; SESSIONS],
    refusals: Refusals,
}

/// The state of a running script: the device, the state that the device should have, and the data of the server.
struct Script {
    pages: Pages,
    device: RefCell<Tested>,
    expected: Expected,
    /// The epoch of the other device. It has the same number as the first epoch of the device under test.
    other: Epoch,
    /// The seed of all keys. Each script has its own keys. If all scripts had the same keys, the fuzzer could learn a
    /// ticket in one script and use it in another script, where the ticket would not be a forgery.
    seed: [u8; 32],
    crypto: Compact,
    now: Instant,
    /// The keying material of the newest session between the server and the device under test. `None` if there is no
    /// session, or if an epoch began in the newest session. The next field, `sessions`, is the number of the sessions
    /// that the server has opened so far.
    exported: Option<[u8; 32]>,
    sessions: u32,
    tickets: Vec<Sealed>,
    /// The requests that the server has made.
    requests: Vec<Vec<u8>>,
}

/// The application of the device's node, with the resources that the server writes.
struct OfDevice<'d> {
    resources: Resources<'d, FlashMemory<Pages>, REFUSED, SESSIONS, HANDLE>,
    is_called: bool,
}

impl Handler for OfDevice<'_> {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.is_called = true;
        self.resources.handle::<Compact>(request, response).unwrap_or(Err(Code::NOT_FOUND))
    }
}

fn copy(epoch: &Epoch) -> Epoch {
    Epoch {
        number: epoch.number,
        key: DeviceKey(Secret::new(*epoch.key.0.expose())),
        tickets: TicketKey(Secret::new(*epoch.tickets.0.expose())),
    }
}

/// Returns three values of a session state: the principal of the connection, the time at which the peer authenticated
/// itself (`since`), and the time at which the session ends.
fn terms(state: &[u8; STATE_LEN]) -> (Principal, u32, u32) {
    let word = |at: usize| u32::from_be_bytes(*state[at..].first_chunk().expect("it is in the state"));
    (Principal(word(STATE_LEN - 12)), word(STATE_LEN - 8), word(STATE_LEN - 4))
}

const fn number_of(state: &[u8; STATE_LEN]) -> u32 {
    let &[.., high, middle, low, _, _, _, _, _, _, _, _, _] = state;
    u32::from_be_bytes([0, high, middle, low])
}

/// Reads the bytes as a script: requests of the server and of other peers, tickets of this and of other epochs and
/// devices, forgeries, restarts and power cuts.
///
/// After each step, the script compares the device with the state that the device should have. The device must refuse
/// four kinds of tickets: tickets of a connection that was revoked in the same epoch, tickets of another epoch, tickets
/// of another device, and forged tickets. It must not forget a revocation that it acknowledged, and its epoch must
/// never decrease. If the lowest bit of the first byte is set, the number of the first epoch is near the highest
/// possible number.
pub fn script(data: &[u8]) {
    let mut input = Input::new(data);
    let seed = digest::<Compact, 32>(&[data]);
    let mut script = Script::new(seed, input.byte() & 1 != 0);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        script.step(&mut input);
        script.check();
    }
    script.restart();
    script.check();
}

impl Expected {
    fn refuses(&self, number: u32) -> bool {
        self.revoked.contains(&number) || self.unkept.contains(&number)
    }

    fn len(&self) -> usize {
        self.revoked.union(&self.unkept).count()
    }

    fn begin(&mut self, next: Epoch) {
        assert!(next.number > self.epoch.number, "an epoch fell");
        self.epoch = next;
        (self.revoked, self.unkept, self.perhaps) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        (self.sessions, self.has_failed) = ([None, None], false);
    }

    fn forget(&mut self, number: u32) {
        for place in &mut self.sessions {
            place.take_if(|kept| number_of(&kept.state) == number);
        }
    }

    /// Decides whether the device must accept a session with this state. `time` is the time that the device knows, or
    /// `None`. `state` is an error if the ticket is not authentic. If the device must refuse the session, adds 1 to the
    /// number of refusals for the returned reason.
    fn admit(&mut self, time: Option<u32>, state: Result<&[u8; STATE_LEN], Refused>) -> Result<(), Refused> {
        let decided = state.and_then(|state| {
            let (_, since, expires) = terms(state);
            let time = match time {
                _ if self.refuses(number_of(state)) => return Err(Refused::Revoked),
                None => return Err(Refused::NoTime),
                Some(time) => time,
            };
            match () {
                () if since > time.saturating_add(TOLERANCE) => Err(Refused::Early),
                () if expires <= time => Err(Refused::Expired),
                () => Ok(()),
            }
        });
        if let Err(reason) = decided {
            self.refusals.0[reason as usize] += 1;
        }
        decided
    }

    fn status(&self) -> Status {
        Status {
            epoch: self.epoch.number,
            refused: self.len() as u16,
            most_refused: REFUSED as u16,
            sessions: self.sessions.iter().flatten().count() as u16,
            most_sessions: SESSIONS as u16,
            refusals: self.refusals,
        }
    }

    /// Changes the expected state of the device as this request of the server should change it. Returns the code that
    /// the response of the device must have, and the work that must be due at the device after the request. `fails` is
    /// true if the memory of the device failed.
    fn take(&mut self, request: &ServerRequest<'_>, exported: Option<&[u8; 32]>, fails: bool) -> (Code, Option<Due>) {
        match request {
            ServerRequest::Status => (Code::CONTENT, None),
            ServerRequest::Go { go, .. } => (Code::CHANGED, Some(Due::Open(*go))),
            ServerRequest::Refuse(number) => (self.refuse(*number, fails), Some(Due::Close(*number))),
            ServerRequest::Keep(session) => (self.keep(session), None),
            ServerRequest::Epoch { number, check, .. } => {
                let Some(exported) = exported else { return (Code::CONFLICT, None) };
                if *number == self.epoch.number {
                    let is_ours = self.epoch.has_tickets() && self.epoch.check::<Compact>() == *check;
                    return (if is_ours { Code::CHANGED } else { Code::CONFLICT }, None);
                }
                let next = self.epoch.next::<Compact>(&Secret::new(*exported));
                let Some(next) = next.filter(|next| next.number == *number && next.check::<Compact>() == *check) else {
                    return (Code::CONFLICT, None);
                };
                if fails {
                    self.perhaps.push(next);
                    return (Code::INTERNAL_SERVER_ERROR, None);
                }
                self.begin(next);
                (Code::CHANGED, Some(Due::CloseAll))
            }
        }
    }

    fn refuse(&mut self, number: u32, fails: bool) -> Code {
        let has_place = self.len() < REFUSED;
        let is_in_list = self.refuses(number) || number == u32::MAX && has_place;
        if !is_in_list && !has_place {
            return Code::SERVICE_UNAVAILABLE;
        }
        self.forget(number);
        // The number `u32::MAX` marks a free entry of the list, so no connection has this number.
        if number != u32::MAX && !self.revoked.contains(&number) {
            self.unkept.insert(number);
        }
        if fails && !self.unkept.is_empty() {
            self.has_failed = true;
            return Code::INTERNAL_SERVER_ERROR;
        }
        self.revoked.append(&mut self.unkept);
        Code::CHANGED
    }

    fn keep(&mut self, session: &HandedOver<'_>) -> Code {
        let number = number_of(session.state);
        if Connection::of(terms(session.state).0).is_none() || self.refuses(number) {
            return Code::CONFLICT;
        }
        let (is_ticket, handle) = match session.handle {
            Handle::Ticket(bytes) => (true, bytes),
            Handle::Id(bytes) => (false, bytes),
        };
        if handle.len() > HANDLE {
            return Code::SERVICE_UNAVAILABLE;
        }
        self.forget(number);
        let kept = Kept { state: *session.state, opens: session.opens, is_ticket, handle: handle.to_vec() };
        match self.sessions.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(kept),
            None => return Code::SERVICE_UNAVAILABLE,
        }
        Code::CHANGED
    }
}

impl Script {
    fn new(seed: [u8; 32], is_late: bool) -> Self {
        let number = if is_late { u16::MAX - 2 } else { 0 };
        let key = |of: usize| DeviceKey(Secret::new(digest::<Compact, 32>(&[&seed, &[of as u8]])));
        let first = |of: usize| {
            let mut tickets = Secret::zeroed();
            if is_late {
                let bytes: &mut [u8] = tickets.expose_mut();
                bytes.copy_from_slice(&digest::<Compact, 32>(&[&seed, b"tickets", &[of as u8]])[..bytes.len()]);
                bytes[..2].copy_from_slice(&number.to_be_bytes());
            }
            Epoch { number, key: key(of), tickets: TicketKey(tickets) }
        };
        let (ours, other) = (first(OURS), first(1 - OURS));
        let pages = Pages(Rc::new(RefCell::new(pages::Model::new())));
        FlashMemory::format(pages.clone(), &ours).expect("the memory has power");
        let expected = Expected {
            epoch: ours,
            perhaps: Vec::new(),
            revoked: BTreeSet::new(),
            unkept: BTreeSet::new(),
            has_failed: false,
            sessions: [None, None],
            refusals: Refusals::default(),
        };
        Self {
            device: RefCell::new(load(&pages)),
            pages,
            expected,
            other,
            seed,
            crypto: Compact::new(seed),
            now: Instant::from_micros(0),
            exported: None,
            sessions: 0,
            tickets: Vec::new(),
            requests: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let command = input.byte();
        let flags = command >> 4;
        match command & 15 {
            0 => self.open_session(),
            1 => self.begin_epoch(flags, input),
            2 => self.issue(flags, input),
            3 => {
                let number = if flags & 1 != 0 {
                    u32::from(input.word()) << 16 | u32::from(input.word())
                } else {
                    u32::from(input.byte() & 7)
                };
                self.request(&ServerRequest::Refuse(number));
            }
            4 => self.hand_over(flags, input),
            5 => {
                let peer = Address { ip: [input.byte(); 16], port: 5684, scope: 0 };
                let go = Go { number: u32::from(input.byte() & 7), peer };
                self.request(&ServerRequest::Go { go, server_name: &[b'a'; 20][..usize::from(flags)] });
            }
            6 => self.request(&ServerRequest::Status),
            7 => self.show(flags, input),
            8 => self.find(&[input.byte() & 7; 8]),
            9 => self.restart(),
            10 => {
                self.pages.0.borrow_mut().power = Some(usize::from(input.word()) % 600);
            }
            11 => {
                let seconds = 1 + u32::from(input.word());
                self.now = self.now.after_millis(seconds.saturating_mul(1000));
            }
            12 => {
                let resource = Resource::ALL.get(usize::from(flags) % 6);
                let (principal, code) = (of_sender(input.byte()), Code(input.byte() & 7));
                let len = usize::from(input.byte());
                let message = message(resource.map_or("dlg/xx", |resource| resource.path()), code, input.bytes(len));
                self.requests.push(message.clone());
                self.receive(principal, &message);
            }
            13 => {
                let (principal, len) = (of_sender(input.byte()), usize::from(input.byte()));
                self.receive(principal, input.bytes(len));
            }
            14 => {
                let (principal, at) = (of_sender(flags), usize::from(input.byte()));
                let Some(message) = self.requests.get(at % self.requests.len().max(1)).cloned() else { return };
                self.receive(principal, &message);
            }
            _ => {
                let mut ticket = self.expected.epoch.number.to_be_bytes().to_vec();
                ticket.extend(input.bytes(LONGEST_TICKET - 2));
                self.open(&ticket, None, flags);
            }
        }
    }

    /// Lets the server open a session with each device. Each session has other keying material.
    fn open_session(&mut self) {
        self.sessions += 1;
        self.exported = Some(self.exported_to(OURS));
    }

    fn exported_to(&self, device: usize) -> [u8; 32] {
        digest::<Compact, 32>(&[&self.seed, b"session", &self.sessions.to_be_bytes(), &[device as u8]])
    }

    /// Sends a request to begin the next epoch, or a request of the current epoch that sets the time. Bits of `flags`
    /// select faults of the request: a wrong authentication check, or a wrong number of the epoch.
    fn begin_epoch(&mut self, flags: u8, input: &mut Input<'_>) {
        let exported = self.exported.unwrap_or(self.seed);
        let next = match flags & 1 {
            0 => self.expected.epoch.next::<Compact>(&Secret::new(exported)),
            _ => Some(copy(&self.expected.epoch)),
        };
        let Some(mut next) = next else { return };
        let mut check = next.check::<Compact>();
        if flags & 2 != 0 {
            check[usize::from(input.byte() & 7)] ^= 1;
        }
        if flags & 4 != 0 {
            next.number = next.number.wrapping_add(input.word());
        }
        let time = TIME + u32::from(input.word());
        if next.number > self.other.number {
            let exported = Secret::new(self.exported_to(1 - OURS));
            self.other = self.other.next::<Compact>(&exported).expect("it is behind ours");
        }
        self.request(&ServerRequest::Epoch { number: next.number, time, check });
    }

    /// Makes the state of a session that the server opened. The master secret contains the number of tickets so far, so
    /// each session has another master secret.
    fn state(&mut self, input: &mut Input<'_>) -> [u8; STATE_LEN] {
        let connection = Connection::new(u32::from(input.byte() & 7), input.byte()).expect("a low number");
        let mut master = [7; MASTER_LEN];
        master[..8].copy_from_slice(&(self.tickets.len() as u64).to_be_bytes());
        let session = SessionState {
            cipher_suite: CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8,
            master: Secret::new(master),
            principal: connection.principal(),
            since: Some(TIME + u32::from(input.byte())),
        };
        let expires = TIME + (u32::from(input.byte()) << 9);
        *Delegation { session, expires }.state().expect("it has a time").expose()
    }

    fn issue(&mut self, flags: u8, input: &mut Input<'_>) {
        let device = usize::from(flags & 1);
        let state = self.state(input);
        let epoch = if device == OURS { copy(&self.expected.epoch) } else { copy(&self.other) };
        let number = epoch.number;
        let (mut issuer, mut room) = (Issuer::new(epoch, None, 0), [0; LONGEST_TICKET]);
        match issuer.seal(&mut self.crypto, &delegation(&state), &mut room) {
            Ok(ticket) => {
                let bytes = ticket.0.to_vec();
                self.tickets.push(Sealed { device, epoch: number, state, bytes });
            }
            Err(_) => assert_eq!(number, 0, "an epoch with tickets seals them"),
        }
    }

    fn hand_over(&mut self, flags: u8, input: &mut Input<'_>) {
        let state = self.state(input);
        let len = if flags & 4 != 0 { usize::from(input.byte()) % (2 * HANDLE) } else { 8 };
        let bytes = vec![input.byte() & 7; len];
        let handle = if flags & 2 != 0 { Handle::Ticket(&bytes) } else { Handle::Id(&bytes) };
        self.request(&ServerRequest::Keep(HandedOver { state: &state, handle, opens: flags & 1 != 0 }));
    }

    /// Sends a request of the server.
    fn request(&mut self, request: &ServerRequest<'_>) {
        let mut room = [0; 256];
        let mut payload = Writer::new(&mut room);
        request.write(&mut payload).expect("it fits");
        let resource = request.resource();
        let code = if resource == Resource::Status { Code::GET } else { Code::POST };
        let message = message(resource.path(), code, payload.written());
        self.requests.push(message.clone());
        self.receive(SERVER, &message);
    }

    /// Lets the device process a message of this sender.
    fn receive(&mut self, principal: Principal, bytes: &[u8]) {
        let Ok(message) = MessageRef::parse(bytes) else { return };
        if !message.code().is_request() {
            return;
        }
        let identity = Identity { principal, protection: Protection::Dtls };
        let exported = self.exported.map(Secret::new);
        let resources = Resources { device: &self.device, exported, now: self.now, due: None };
        let mut application = OfDevice { resources, is_called: false };
        let mut storage = [0; 128];
        let mut frame = Frame::new(&mut storage, 0);
        let served = serve(Request::new(message, identity), &Anybody, &mut application, 7, &mut frame);
        let Served::Responded { code, .. } = served else { panic!("a response fits, and comes at once") };
        let OfDevice { resources: Resources { due, exported, .. }, is_called } = application;
        let resource = Resource::ALL.into_iter().find(|resource| message.path_is(resource.path()));
        let method = if resource == Some(Resource::Status) { Code::GET } else { Code::POST };
        let refused = match resource {
            _ if !is_called => None,
            None => Some(Code::NOT_FOUND),
            Some(_) if principal != SERVER => Some(Code::FORBIDDEN),
            Some(_) if message.code() != method => Some(Code::METHOD_NOT_ALLOWED),
            Some(resource) => match ServerRequest::read(resource, message.payload()) {
                Err(_) => Some(Code::BAD_REQUEST),
                Ok(request) => {
                    self.answered(&request, code, due, frame.bytes());
                    assert_eq!(exported.map(|exported| *exported.expose()), self.exported, "it is for one epoch");
                    return;
                }
            },
        };
        assert!(!code.is_success() && due.is_none(), "{code} with {due:?}");
        assert!(refused.is_none_or(|refused| refused == code), "{code} for {refused:?}");
    }

    /// Compares the answer of the device to a request of its server with the expected answer.
    fn answered(&mut self, request: &ServerRequest<'_>, code: Code, due: Option<Due>, response: &[u8]) {
        let fails = code == Code::INTERNAL_SERVER_ERROR;
        let may_fail = self.pages.0.borrow().power == Some(0) || self.expected.has_failed;
        assert!(!fails || may_fail, "the memory fails by itself");
        let (number, revoked) = (self.expected.epoch.number, self.expected.revoked.clone());
        assert_eq!((code, due), self.expected.take(request, self.exported.as_ref(), fails), "{request:?}");
        if due == Some(Due::CloseAll) {
            self.exported = None;
        }
        if self.expected.epoch.number == number {
            assert!(self.expected.revoked.is_superset(&revoked), "a revocation is lost");
        }
        match request {
            ServerRequest::Epoch { time, .. } if code == Code::CHANGED => {
                assert_eq!(self.device.borrow().time(self.now), Some(*time));
            }
            ServerRequest::Status => {
                let payload = MessageRef::parse(response).map(|message| message.payload().to_vec());
                // The response has no payload if the sender does not want this response (RFC 7967).
                let payload = payload.ok().filter(|payload| !payload.is_empty());
                let status = payload.map(|payload| Status::read(&payload).expect("a status"));
                assert!(status.is_none_or(|status| status == self.expected.status()), "{status:?}");
            }
            ServerRequest::Go { go, .. } => self.open_elsewhere(go.number),
            _ => {}
        }
    }

    fn time(&self) -> Option<u32> {
        self.device.borrow().time(self.now)
    }

    /// Lets the device open a session that was handed over. The opened session must be equal to the session that the
    /// script expects.
    fn open_elsewhere(&mut self, number: u32) {
        let time = self.time();
        let kept = self.expected.sessions.iter().flatten().find(|kept| kept.opens && number_of(&kept.state) == number);
        let kept = kept.map(|kept| (kept.state, kept.is_ticket, kept.handle.clone()));
        let kept = kept.filter(|(state, ..)| self.expected.admit(time, Ok(state)).is_ok());
        let mut device = self.device.borrow_mut();
        let opened = device.to_open(self.now, number).map(|(session, handle)| {
            let (is_ticket, bytes) = match handle {
                Handle::Ticket(bytes) => (true, bytes),
                Handle::Id(bytes) => (false, bytes),
            };
            (session_bytes(&session), is_ticket, bytes.to_vec())
        });
        let kept = kept.map(|(state, is_ticket, bytes)| (session_bytes(&delegation(&state).session), is_ticket, bytes));
        assert_eq!(opened, kept);
    }

    /// Lets a peer send a session id to the device. The device must find the session that the script expects.
    fn find(&mut self, id: &[u8]) {
        let time = self.time();
        let is_it = |kept: &&Kept| !kept.opens && !kept.is_ticket && kept.handle == id;
        let kept = self.expected.sessions.iter().flatten().find(is_it).map(|kept| kept.state);
        let kept = kept.filter(|state| self.expected.admit(time, Ok(state)).is_ok());
        let found = Sessions(&self.device).find(self.now, 0, id).map(|session| session_bytes(&session));
        assert_eq!(found, kept.map(|state| session_bytes(&delegation(&state).session)));
    }

    /// Lets a peer send one of the sealed tickets to the device. A bit of `flags` damages the ticket.
    fn show(&mut self, flags: u8, input: &mut Input<'_>) {
        let at = usize::from(input.byte()) % self.tickets.len().max(1);
        let Some(Sealed { device, epoch, state, mut bytes }) = self.tickets.get(at).cloned() else { return };
        let is_damaged = flags & 1 != 0;
        if is_damaged {
            let (at, bit) = (usize::from(input.byte()) % bytes.len(), input.byte() & 7);
            bytes[at] ^= 1 << bit;
        }
        let is_authentic = device == OURS && epoch == self.expected.epoch.number && !is_damaged;
        self.open(&bytes, is_authentic.then_some(state), flags);
    }

    /// Lets a peer send a ticket to the device. `state` is the session state in the ticket. It is `None` if the ticket
    /// is not authentic for this device in this epoch: the device must then refuse the ticket.
    fn open(&mut self, ticket: &[u8], state: Option<[u8; STATE_LEN]>, flags: u8) {
        let is_of_epoch = Ticket(ticket).epoch() == Some(self.expected.epoch.number);
        let other = if self.expected.epoch.has_tickets() && is_of_epoch { Refused::Unknown } else { Refused::Epoch };
        let time = self.time();
        let decided = self.expected.admit(time, state.as_ref().ok_or(other));
        let opened = if flags & 2 != 0 {
            let mut environment = Environment::new(Compact::new(self.seed));
            Sessions(&self.device).open_ticket(&mut environment.at(self.now), 0, ticket).map(|found| found.session)
        } else {
            let opened = self.device.borrow_mut().open(self.now, &mut self.crypto, Ticket(ticket));
            assert_eq!(opened.as_ref().err(), decided.as_ref().err());
            opened.ok().map(|delegation| delegation.session)
        };
        let expected = state.filter(|_| decided.is_ok()).map(|state| session_bytes(&delegation(&state).session));
        assert_eq!(opened.map(|session| session_bytes(&session)), expected);
    }

    /// Cuts the power of the device, and starts the device again.
    fn restart(&mut self) {
        self.pages.0.borrow_mut().power = None;
        self.device = RefCell::new(load(&self.pages));
        let (device, expected) = (self.device.borrow(), &mut self.expected);
        assert_eq!(device.time(self.now), None);
        let mut epoch = copy(&expected.epoch);
        FlashMemory::new(self.pages.clone()).load(&mut epoch, &mut [0; REFUSED]).expect("it was read before");
        if epoch.number != expected.epoch.number {
            let is_it = |perhaps: &Epoch| perhaps.check::<Compact>() == epoch.check::<Compact>();
            assert!(expected.perhaps.iter().any(is_it), "nobody asked for this epoch");
            expected.begin(epoch);
        }
        expected.perhaps = Vec::new();
        let unkept = std::mem::take(&mut expected.unkept);
        expected.revoked.extend(unkept.into_iter().filter(|number| device.is_refused(*number)));
        (expected.sessions, expected.refusals) = ([None, None], Refusals::default());
        drop(device);
        self.exported = None;
    }

    /// Compares the device with the state that the device should have.
    fn check(&self) {
        let device = self.device.borrow();
        assert_eq!(device.status(), self.expected.status());
        for number in (0..8).chain(self.expected.revoked.iter().copied()) {
            assert_eq!(device.is_refused(number), self.expected.refuses(number), "{number}");
        }
    }
}

fn load(pages: &Pages) -> Tested {
    Device::load(FlashMemory::new(pages.clone())).expect("a power cut leaves one of two epochs")
}

/// Makes the delegated session whose cipher suite, master secret and times are in the bytes `state`.
fn delegation(state: &[u8; STATE_LEN]) -> Delegation {
    let &[high, low, ref master @ .., _, _, _, _, _, _, _, _, _, _, _, _] = state;
    let (principal, since, expires) = terms(state);
    let cipher_suite = CipherSuite(u16::from_be_bytes([high, low]));
    Delegation {
        session: SessionState { cipher_suite, master: Secret::new(*master), principal, since: Some(since) },
        expires,
    }
}

/// Returns all parts of a session, so that two sessions can be compared.
fn session_bytes(session: &SessionState) -> (CipherSuite, [u8; MASTER_LEN], Principal, Option<u32>) {
    (session.cipher_suite, *session.master.expose(), session.principal, session.since)
}

/// Returns the sender of a request, which `byte` selects: the peer of connection 5, an unauthenticated peer, or the
/// server.
fn of_sender(byte: u8) -> Principal {
    match byte & 3 {
        1 => Connection::new(5, 0).expect("a low number").principal(),
        2 => Principal::NOBODY,
        _ => SERVER,
    }
}

/// Makes a confirmable request.
fn message(path: &str, code: Code, payload: &[u8]) -> Vec<u8> {
    let mut storage = [0; 320];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, code, 1, &[]).expect("it fits");
    for segment in path.split('/') {
        builder.option(OptionNumber::URI_PATH, segment.as_bytes()).expect("it fits");
    }
    builder.payload(payload).expect("it fits");
    frame.finish().to_vec()
}
