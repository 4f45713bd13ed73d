//! A device at a UDP socket. It runs the crate `tegmen-delegation` on an endpoint of the crate `tegmen`, in the same
//! way as a mote. The durable memory of the device survives a restart.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tegmen::address::{Address, Path};
use tegmen::coap::handler::{AnyAuthenticated, Policy};
use tegmen::coap::{Authorized, Code, Exchanges, Fixed, Handler, Response};
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, Config, Need, Records, Resuming, Roles};
use tegmen::endpoint::{Endpoint, Event, PeerArray, Peers as _};
use tegmen::identity::PeerId;
use tegmen::node::{self, Node};
use tegmen_base::secret::Secret;
use tegmen_base::time::Instant;
use tegmen_delegation::{Connection, Device, DeviceKey, Due, Epoch, Go, Lost, Memory, Resources, SERVER, Sessions};
use tegmen_host::provider::HostCrypto;
use tegmen_tickets::TicketKey;

/// The number of entries in the device's list of refused connections. In the configuration of the server the list is
/// longer.
pub(crate) const PLACES: usize = 4;

/// Maximum number of bytes of a ticket that another server has issued and that the device stores.
const HANDLE: usize = 256;

/// The durable memory of a device.
#[derive(Clone)]
pub(crate) struct Disk(Arc<Mutex<Kept>>);

struct Kept {
    epoch: Epoch,
    refused: Vec<u32>,
}

impl Memory for Disk {
    type Error = ();

    fn load(&mut self, epoch: &mut Epoch, refused: &mut [u32]) -> Result<usize, Lost> {
        let kept = self.0.lock().unwrap();
        *epoch = copy(&kept.epoch);
        refused.get_mut(..kept.refused.len()).ok_or(Lost)?.copy_from_slice(&kept.refused);
        Ok(kept.refused.len())
    }

    fn keep_epoch(&mut self, epoch: &Epoch) -> Result<(), ()> {
        *self.0.lock().unwrap() = Kept { epoch: copy(epoch), refused: Vec::new() };
        Ok(())
    }

    fn keep_refused(&mut self, _: u16, number: u32) -> Result<(), ()> {
        self.0.lock().unwrap().refused.push(number);
        Ok(())
    }
}

fn copy(epoch: &Epoch) -> Epoch {
    Epoch {
        number: epoch.number,
        key: DeviceKey(Secret::new(*epoch.key.0.expose())),
        tickets: TicketKey(Secret::new(*epoch.tickets.0.expose())),
    }
}

pub(crate) type Lamp = Device<Disk, PLACES, 2, HANDLE>;

/// Faults that a test causes in a device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Trouble {
    /// The device ignores all datagrams.
    pub(crate) asleep: bool,
    /// The device restarts once.
    pub(crate) restarts: bool,
    /// The device executes the next request to this path, and loses its power before it responds. `None` for no such
    /// fault.
    pub(crate) dies_after: Option<&'static str>,
    /// The device executes the next request to this path (the first value). The datagrams that the device sends next
    /// are lost, and the second value is their number. `None` for no such fault.
    pub(crate) loses: Option<(&'static str, u8)>,
    /// The device acknowledges each revocation, but stores none.
    pub(crate) keeps_nothing: bool,
    /// The epoch that the device begins during the next handshake with its server, after it has looked for the key of
    /// this handshake: the number, the keying material and the check of the epoch. `None` for no such fault.
    pub(crate) begins: Option<(u16, [u8; 32], [u8; 8])>,
}

/// The requests that a device executed, and the sessions that it was asked to open.
#[derive(Clone, Default, Debug)]
pub(crate) struct Seen {
    pub(crate) executed: Vec<&'static str>,
    pub(crate) opens: Vec<Go>,
    /// The connections whose sessions were established.
    pub(crate) established: Vec<Connection>,
    /// The number of established sessions with the server of the device.
    pub(crate) sessions: usize,
    pub(crate) starts: usize,
}

type Question = Box<dyn FnOnce(&mut Lamp) + Send>;

/// A copy of the durable memory of a device.
pub(crate) struct Earlier(Kept);

/// A device that runs in a thread.
pub(crate) struct LiveDevice {
    disk: Disk,
    trouble: Arc<Mutex<Trouble>>,
    seen: Arc<Mutex<Seen>>,
    questions: Option<Sender<Question>>,
    thread: Option<JoinHandle<()>>,
}

impl LiveDevice {
    /// Opens the socket of a device that does not have its device key yet.
    pub(crate) fn start() -> Unprovisioned {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        Unprovisioned(socket)
    }

    pub(crate) fn trouble(&self, trouble: Trouble) {
        *self.trouble.lock().unwrap() = trouble;
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Returns a copy of the device's durable memory.
    pub(crate) fn copy(&self) -> Earlier {
        let kept = self.disk.0.lock().unwrap();
        Earlier(Kept { epoch: copy(&kept.epoch), refused: kept.refused.clone() })
    }

    /// Replaces the device's durable memory by an earlier copy, and restarts the device. After the restart the device
    /// does not know the time.
    pub(crate) fn put_back(&self, copy: Earlier) {
        let starts = self.seen().starts;
        self.ask({
            let disk = self.disk.clone();
            move |_| *disk.0.lock().unwrap() = copy.0
        });
        self.trouble(Trouble { restarts: true, ..Trouble::default() });
        while self.seen().starts == starts {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Calls `question` with the device, while the device processes no datagram. Returns the result of `question`.
    pub(crate) fn ask<T: Send + 'static>(&self, question: impl FnOnce(&mut Lamp) -> T + Send + 'static) -> T {
        let (sender, receiver) = channel();
        let question: Question = Box::new(move |lamp| sender.send(question(lamp)).unwrap());
        self.questions.as_ref().unwrap().send(question).unwrap();
        receiver.recv().unwrap()
    }
}

impl Drop for LiveDevice {
    fn drop(&mut self) {
        self.questions = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A device without a device key.
pub(crate) struct Unprovisioned(UdpSocket);

impl Unprovisioned {
    /// Returns the address at which the device receives requests from its server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// Gives the device its device key, as an operator does outside of tests, and starts the device.
    pub(crate) fn provision(self, key: &Secret<32>) -> LiveDevice {
        let epoch = Epoch::first(DeviceKey(Secret::new(*key.expose())));
        let disk = Disk(Arc::new(Mutex::new(Kept { epoch, refused: Vec::new() })));
        let (trouble, seen) = (Arc::default(), Arc::default());
        let (questions, asked) = channel();
        let mut power = Power { socket: self.0, trouble: Arc::clone(&trouble), seen: Arc::clone(&seen), asked };
        let memory = disk.clone();
        let thread = std::thread::spawn(move || while power.run(&memory) {});
        LiveDevice { disk, trouble, seen, questions: Some(questions), thread: Some(thread) }
    }
}

struct Power {
    socket: UdpSocket,
    trouble: Arc<Mutex<Trouble>>,
    seen: Arc<Mutex<Seen>>,
    asked: Receiver<Question>,
}

impl Power {
    /// Runs the device from its start until it restarts or loses its power. Returns true if the device must be started
    /// again, and false if the test has ended.
    fn run(&mut self, disk: &Disk) -> bool {
        let device = RefCell::new(Device::load(disk.clone()).unwrap());
        self.seen.lock().unwrap().starts += 1;
        let mut running = Running::new(&device, Arc::clone(&self.trouble), Arc::clone(&self.seen));
        let mut datagram = [0; 1500];
        loop {
            loop {
                match self.asked.try_recv() {
                    Ok(question) => question(&mut device.borrow_mut()),
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return false,
                }
            }
            let Trouble { asleep, restarts, .. } = *self.trouble.lock().unwrap();
            if restarts {
                self.trouble.lock().unwrap().restarts = false;
                return true;
            }
            match self.socket.recv_from(&mut datagram) {
                Ok(_) if asleep => continue,
                Ok((len, from)) => running.take(&self.socket, from, &mut datagram[..len]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => panic!("{error}"),
            }
            running.poll(&self.socket);
            if running.application.is_dead {
                return true;
            }
        }
    }
}

/// The roles of the device's endpoint: DTLS client and DTLS server.
struct Either;

impl Roles for Either {
    const CLIENT: bool = true;
    const SERVER: bool = true;
}

type Table = PeerArray<Exchanges<Fixed<1, 192, 1, 64>>, 3, 2, 400, 160>;
type OfDevice<'d> = Sessions<'d, Disk, PLACES, 2, HANDLE>;

struct Running<'d> {
    node: Node<Table, Resuming<Either, OfDevice<'d>>, ()>,
    environment: Environment<HostCrypto>,
    application: Sensor<'d>,
    start: std::time::Instant,
    local: Address,
    /// The last session with the device's server; `None` if there was none.
    server: Option<PeerId>,
}

impl<'d> Running<'d> {
    fn new(device: &'d RefCell<Lamp>, trouble: Arc<Mutex<Trouble>>, seen: Arc<Mutex<Seen>>) -> Self {
        let mut environment = Environment::new(HostCrypto::from_os().unwrap());
        let role = Resuming { role: Either, sessions: Sessions(device) };
        let now = Instant::from_micros(1_000_000);
        // A server that was killed during a handshake takes one of two places for as long.
        let config = Config { handshake_timeout: Duration::from_secs(5), ..Config::default() };
        let endpoint = Endpoint::with_roles(&mut environment.at(now), Table::new(), config, role);
        let resources = Resources { device, exported: None, now, due: None };
        Self {
            node: Node::new(endpoint, Default::default()),
            environment,
            application: Sensor { resources, trouble, seen, loses: 0, is_dead: false },
            start: std::time::Instant::now(),
            local: "127.0.0.1:1".parse::<SocketAddr>().unwrap().into(),
            server: None,
        }
    }

    fn now(&self) -> Instant {
        Instant::from_micros(1_000_000 + self.start.elapsed().as_micros() as u64)
    }

    fn send(&mut self, socket: &UdpSocket, path: &Path, datagram: &[u8]) {
        if self.application.is_dead {
            return;
        }
        if self.application.loses > 0 {
            self.application.loses -= 1;
            return;
        }
        // An address that cannot be reached is one of a peer.
        let _ = socket.send_to(datagram, SocketAddr::from(path.remote));
    }

    fn take(&mut self, socket: &UdpSocket, from: SocketAddr, datagram: &mut [u8]) {
        let path = Path { local: self.local, remote: from.into() };
        let (mut records, mut out) = (Records::new(datagram), [0; 1400]);
        loop {
            let now = self.now();
            self.application.resources.now = now;
            let cx = &mut self.environment.at(now);
            match self.node.handle(cx, &path, &mut records, &mut self.application, &mut out) {
                Some(Event::Answer { len } | Event::Transmit { len, .. }) => {
                    self.send(socket, &path, &out[..usize::from(len)]);
                }
                Some(event) => self.on_event(event),
                None => break,
            }
        }
        match self.application.resources.due.take() {
            Some(Due::Open(go)) => self.open(go),
            Some(Due::Close(_) | Due::CloseAll) | None => {}
        }
    }

    /// Resumes a session with the peer in `go`.
    fn open(&mut self, go: Go) {
        let (now, path) = (self.now(), Path { local: self.local, remote: go.peer });
        let mut device = self.application.resources.device.borrow_mut();
        let (session, handle) = device.to_open(now, go.number).unwrap();
        self.node.endpoint.connect_again(&mut self.environment.at(now), &path, &session, handle).unwrap();
        self.application.seen.lock().unwrap().opens.push(go);
    }

    fn poll(&mut self, socket: &UdpSocket) {
        let mut out = [0; 1400];
        loop {
            let now = self.now();
            self.application.resources.now = now;
            let cx = &mut self.environment.at(now);
            match self.node.poll(cx, &mut self.application, &mut out) {
                Some(Event::Transmit { peer, len }) => {
                    if let Some(path) = self.path_of(peer) {
                        self.send(socket, &path, &out[..usize::from(len)]);
                    }
                }
                Some(event) => self.on_event(event),
                None => return,
            }
        }
    }

    fn path_of(&mut self, peer: PeerId) -> Option<Path> {
        self.node.endpoint.peers.peer(peer).map(|peer| *peer.path())
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Need(id) => {
                let mut key = [0; 32];
                let Some(Need::PskOfClient { identity }) = self.node.endpoint.need(id) else { return };
                let psk = self.application.resources.device.borrow().psk::<HostCrypto>(identity);
                key.copy_from_slice(psk.expose());
                if let Some((number, exported, check)) = self.application.trouble.lock().unwrap().begins.take() {
                    let mut device = self.application.resources.device.borrow_mut();
                    device.begin_epoch::<HostCrypto>(number, &Secret::new(exported), &check).unwrap();
                }
                let answer = Answer::Psk { identity: b"", key: &key, principal: SERVER };
                let now = self.now();
                if let Some(event) = self.node.endpoint.resume(&mut self.environment.at(now), id, answer) {
                    self.on_event(event);
                }
            }
            Event::Established(peer) => {
                self.application.resources.established::<HostCrypto, _, _>(&mut self.node.endpoint, peer);
                let principal = self.node.endpoint.peers.peer(peer).unwrap().principal();
                match Connection::of(principal) {
                    Some(connection) => self.application.seen.lock().unwrap().established.push(connection),
                    // The session of a server that was killed takes a place.
                    None => {
                        self.application.seen.lock().unwrap().sessions += 1;
                        let earlier = self.server.replace(peer);
                        earlier.into_iter().for_each(|id| self.node.endpoint.close(id));
                    }
                }
            }
            _ => {}
        }
    }
}

struct Sensor<'d> {
    resources: Resources<'d, Disk, PLACES, 2, HANDLE>,
    trouble: Arc<Mutex<Trouble>>,
    seen: Arc<Mutex<Seen>>,
    /// The number of further datagrams of the device that the test loses.
    loses: u8,
    is_dead: bool,
}

impl node::Application for Sensor<'_> {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&AnyAuthenticated, self))
    }
}

impl Handler for Sensor<'_> {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let paths = tegmen_delegation::Resource::ALL.map(tegmen_delegation::Resource::path);
        let path = paths.into_iter().find(|path| request.message().path_is(path)).ok_or(Code::NOT_FOUND)?;
        let trouble = &mut *self.trouble.lock().unwrap();
        let outcome = if trouble.keeps_nothing && path == tegmen_delegation::Resource::Refuse.path() {
            response.set_code(Code::CHANGED);
            Ok(())
        } else {
            self.resources.handle::<HostCrypto>(request, response).ok_or(Code::NOT_FOUND)?
        };
        self.seen.lock().unwrap().executed.push(path);
        if trouble.dies_after.take_if(|after| *after == path).is_some() {
            self.is_dead = true;
        }
        if let Some((_, count)) = trouble.loses.take_if(|(after, _)| *after == path) {
            self.loses = count;
        }
        outcome
    }
}

/// Maximum time for which a test waits until a device has changed.
pub(crate) const SOON: Duration = Duration::from_secs(30);
