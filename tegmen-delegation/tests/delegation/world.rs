//! Devices, their delegation server and their peers, for tests.

#[path = "../../../tegmen/tests/world/recorder.rs"]
pub mod recorder;

pub use crate::pages::Model;
use recorder::{Recorder, Spent};
use std::cell::RefCell;
use tegmen::address::{Address, Path};
use tegmen::buf::{Frame, Writer};
use tegmen::coap::handler::{Anybody, Served, serve};
use tegmen::coap::{
    Authorized, Builder, Code, Handler, MessageRef, MessageType, OptionNumber, Request as CoapRequest, Response,
};
use tegmen::cx::{Counters, Cx};
use tegmen::dtls::{
    Answer, CipherSuite, Config, Fatal, Handle, MASTER_LEN, Records, Resuming, Resumption, Roles, SessionState, Suites,
};
use tegmen::endpoint::{Endpoint, Event, PeerArray};
use tegmen::identity::{Identity, PeerId, Principal, Protection};
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_delegation::{
    Connection, Delegation, Device, DeviceKey, EXPORTER, Epoch, FlashMemory, Issuer, LONGEST_TICKET, Refused, Request,
    Resource, Resources, SERVER, Sessions, Ticket,
};

pub type Flashed = FlashMemory<Model>;
pub type OneDevice = Device<Flashed, 4, 2, 64>;

/// The present time at the server, in seconds since 1970.
pub const TIME: u32 = 1_700_000_000;
pub const START: Instant = Instant::from_micros(1_000_000);

/// Returns the device key of the device with this number.
pub fn key(of: u8) -> DeviceKey {
    DeviceKey(Secret::new([of; 32]))
}

/// Returns a new device, whose memory contains epoch 0.
pub fn new_device(of: u8) -> OneDevice {
    boot(FlashMemory::format(Model::new(), &Epoch::first(key(of))).unwrap().into_flash())
}

/// Starts a device with the content of this memory.
pub fn boot(flash: Model) -> OneDevice {
    Device::load(FlashMemory::new(flash)).unwrap()
}

/// Returns epoch 1 of a device, the first epoch with tickets. Both the device and the server derive it from the keying
/// material `exported`.
pub fn first_epoch(of: u8, exported: [u8; 32]) -> Epoch {
    Epoch::first(key(of)).next::<Recorder>(&Secret::new(exported)).unwrap()
}

/// Returns a device in epoch 1 that knows the time, and the issuer of its tickets at the server.
pub fn in_first_epoch(of: u8) -> (OneDevice, Issuer) {
    let mut device = new_device(of);
    let epoch = first_epoch(of, [of; 32]);
    device.begin_epoch::<Recorder>(1, &Secret::new([of; 32]), &epoch.check::<Recorder>()).unwrap();
    device.set_time(START, TIME);
    (device, Issuer::new(epoch, None, 0))
}

/// Returns a session that a server opened in the name of a device, after a handshake with certificates.
pub fn delegation(number: u32, scope: u8) -> Delegation {
    let principal = Connection::new(number, scope).unwrap().principal();
    let (cipher_suite, master) = (CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8, Secret::new([number as u8; MASTER_LEN]));
    let session = SessionState { cipher_suite, master, principal, since: Some(TIME) };
    Delegation { session, expires: TIME + 3600 }
}

pub fn seal(issuer: &mut Issuer, crypto: &mut Recorder, delegation: &Delegation) -> Vec<u8> {
    let mut room = [0; LONGEST_TICKET];
    issuer.seal(crypto, delegation, &mut room).unwrap().0.to_vec()
}

pub fn crypto(seed: u8) -> Recorder {
    Recorder::new([seed; 32], Spent::default())
}

/// Opens a ticket at a device, without a handshake.
pub fn open(device: &mut OneDevice, ticket: &[u8]) -> Result<Connection, Refused> {
    device.open(START, &mut crypto(9), Ticket(ticket)).map(|delegation| delegation.connection().unwrap())
}

/// The resources of a device for its delegation server.
pub type OneResources = Resources<'static, Flashed, 4, 2, 64>;

/// The application of a device. Its policy allows every request.
struct OfDevice<'r>(&'r mut OneResources);

impl Handler for OfDevice<'_> {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.0.handle::<Recorder>(request, response).unwrap_or(Err(Code::NOT_FOUND))
    }
}

/// Sends a request to a device in a session whose peer has this principal. Returns the code of the response.
pub fn request(resources: &mut OneResources, principal: Principal, request: &Request<'_>) -> Code {
    let (mut room, resource) = ([0; 256], request.resource());
    let mut payload = Writer::new(&mut room);
    request.write(&mut payload).unwrap();
    let code = if resource == Resource::Status { Code::GET } else { Code::POST };
    let mut storage = [0; 320];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, code, 1, &[]).unwrap();
    for segment in resource.path().split('/') {
        builder.option(OptionNumber::URI_PATH, segment.as_bytes()).unwrap();
    }
    builder.payload(payload.written()).unwrap();
    let message = MessageRef::parse(frame.finish()).unwrap();
    let identity = Identity { principal, protection: Protection::Dtls };
    let mut storage = [0; 128];
    let mut frame = Frame::new(&mut storage, 0);
    let served = serve(CoapRequest::new(message, identity), &Anybody, &mut OfDevice(resources), 7, &mut frame);
    let Served::Responded { code, .. } = served else { panic!("{served:?}") };
    code
}

/// The roles of an endpoint that is both a client and a server.
pub struct Either;

impl Roles for Either {
    const CLIENT: bool = true;
    const SERVER: bool = true;
    const SIMULTANEOUS: bool = false;
}

/// The session store of a peer. The peer resumes sessions that a delegation server opened for it.
#[derive(Default)]
pub struct Remote {
    /// The session that the device resumes with the peer: its session id and its master secret. `None` if there is no
    /// such session.
    pub known: Option<(Vec<u8>, [u8; MASTER_LEN])>,
}

impl Resumption for Remote {
    const SUITES: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);

    fn find(&self, _: Instant, _: u32, id: &[u8]) -> Option<SessionState> {
        let (_, master) = self.known.as_ref().filter(|(known, _)| known == id)?;
        let session = delegation(1, 0).session;
        Some(SessionState { master: Secret::new(*master), ..session })
    }
}

type Table = PeerArray<(), 4, 2, 400, 160>;

/// An endpoint with its pre-shared key. The fields from `established` to `closed` record the events of the endpoint.
pub struct End<S: Resumption> {
    pub endpoint: Endpoint<Table, Resuming<Either, S>>,
    pub crypto: Recorder,
    counters: Counters,
    pub path: Path,
    pub psk: [u8; 32],
    pub established: Option<PeerId>,
    pub resumed: bool,
    pub exported: Option<[u8; 32]>,
    pub closed: Option<Fatal>,
    /// The resources of the device for its delegation server; `None` if the endpoint is a peer.
    pub resources: Option<OneResources>,
}

fn address(number: u8) -> Address {
    Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number], port: 5684, scope: 0 }
}

impl<S: Resumption> End<S> {
    pub fn new(number: u8, other: u8, sessions: S, spent: &Spent) -> Self {
        let mut crypto = Recorder::new([number; 32], spent.clone());
        let mut counters = Counters::default();
        let cx = &mut Cx { now: START, crypto: &mut crypto, counters: &mut counters };
        let role = Resuming { role: Either, sessions };
        let endpoint = Endpoint::with_roles(cx, Table::new(), Config::default(), role);
        let path = Path { local: address(number), remote: address(other) };
        let (established, exported, closed, resumed) = (None, None, None, false);
        Self { endpoint, crypto, counters, path, psk: [0; 32], established, resumed, exported, closed, resources: None }
    }

    pub fn connect(&mut self) {
        let cx = &mut Cx { now: START, crypto: &mut self.crypto, counters: &mut self.counters };
        self.endpoint.connect(cx, &self.path).unwrap();
    }

    pub fn connect_again(&mut self, session: &SessionState, handle: Handle<'_>) {
        (self.established, self.closed) = (None, None);
        let cx = &mut Cx { now: START, crypto: &mut self.crypto, counters: &mut self.counters };
        self.endpoint.connect_again(cx, &self.path, session, handle).unwrap();
    }

    fn poll(&mut self) -> Vec<u8> {
        let mut out = vec![0; 1400];
        loop {
            let cx = &mut Cx { now: START, crypto: &mut self.crypto, counters: &mut self.counters };
            match self.endpoint.poll(cx, &mut out) {
                Some(Event::Transmit { len, .. }) => {
                    out.truncate(len.into());
                    return out;
                }
                Some(event) => self.on_event(event),
                None => return Vec::new(),
            }
        }
    }

    fn take(&mut self, datagram: &mut [u8]) -> Vec<u8> {
        let mut out = vec![0; 1400];
        let mut answer = 0;
        let mut records = Records::new(datagram);
        loop {
            let cx = &mut Cx { now: START, crypto: &mut self.crypto, counters: &mut self.counters };
            match self.endpoint.handle(cx, &self.path, &mut records, &mut out) {
                Some(Event::Answer { len } | Event::Transmit { len, .. }) => answer = len.into(),
                Some(event) => self.on_event(event),
                None => break,
            }
        }
        out.truncate(answer);
        out
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Need(id) => {
                let psk = self.psk;
                let answer = Answer::Psk { identity: b"sensor", key: &psk, principal: SERVER };
                let cx = &mut Cx { now: START, crypto: &mut self.crypto, counters: &mut self.counters };
                if let Some(event) = self.endpoint.resume(cx, id, answer) {
                    self.on_event(event);
                }
            }
            Event::Established(id) => {
                self.established = Some(id);
                if let Some(resources) = &mut self.resources {
                    resources.established::<Recorder, _, _>(&mut self.endpoint, id);
                }
                self.resumed = self.endpoint.is_resumed(id);
                let mut exported = [0; 32];
                self.exported = self.endpoint.export::<Recorder>(id, EXPORTER, &mut exported).map(|()| exported);
            }
            Event::Closed { reason, .. } => self.closed = Some(reason),
            _ => {}
        }
    }
}

/// Carries datagrams between two endpoints until neither sends more.
pub fn settle<S: Resumption, T: Resumption>(one: &mut End<S>, other: &mut End<T>) {
    while speak(one, other) | speak(other, one) {}
}

fn speak<S: Resumption, T: Resumption>(from: &mut End<S>, to: &mut End<T>) -> bool {
    let mut sent = false;
    loop {
        let mut datagram = from.poll();
        if datagram.is_empty() {
            return sent;
        }
        sent = true;
        let mut back = false;
        while !datagram.is_empty() {
            datagram = if back { from.take(&mut datagram) } else { to.take(&mut datagram) };
            back = !back;
        }
    }
}

/// Makes an endpoint from a device. Returns the endpoint, and the device, which exists until the tests end.
pub fn device_end(
    device: OneDevice,
    spent: &Spent,
) -> (End<Sessions<'static, Flashed, 4, 2, 64>>, &'static RefCell<OneDevice>) {
    let device: &'static RefCell<_> = Box::leak(Box::new(RefCell::new(device)));
    (End::new(1, 2, Sessions(device), spent), device)
}

/// A generator of random numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit
    }
}
