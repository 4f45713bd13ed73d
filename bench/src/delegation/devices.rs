//! Devices that run on endpoints of the core library, as on a mote. Each device has its own address, from 127.2.0.0
//! upwards. All devices run in one thread.

use super::peers::at;
use crate::failure::failure;
use std::{
    cell::RefCell,
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tegmen::{
    address::Path,
    coap::{
        Authorized, Code, Exchanges, Fixed, Handler, Response,
        handler::{AnyAuthenticated, Policy},
    },
    cx::Environment,
    dtls::{Answer, Config, Need, Records, Resuming, ServerOnly},
    endpoint::{Endpoint, Event, PeerArray, Peers as _},
    identity::PeerId,
    node::{self, Node},
    secret::Secret,
};
use tegmen_bench_line::Failure;
use tegmen_delegation::{Device, DeviceKey, Due, Epoch, Lost, Memory, PSK_LEN, Resources, SERVER, Sessions};
use tegmen_host::{
    provider::HostCrypto,
    udp::{Inbound, Outbox, Socket},
};

/// The path at which each device has a value.
pub(super) const VALUE_PATH: &str = "v";
/// The IPv4 address of the first device. Each further device has the next address.
const FIRST: u32 = u32::from_be_bytes([127, 2, 0, 0]);
/// The interval at which the timers of all devices are examined.
const POLL: Duration = Duration::from_millis(50);

/// Number of entries in a device's list of refused connections.
pub(super) const PLACES: usize = 4;

/// The memory of a device that is never restarted. It contains the first epoch until the device has loaded this epoch.
pub(super) struct Ram(pub(super) Option<Epoch>);

impl Memory for Ram {
    type Error = Infallible;

    fn load(&mut self, epoch: &mut Epoch, _: &mut [u32]) -> Result<usize, Lost> {
        *epoch = self.0.take().ok_or(Lost)?;
        Ok(0)
    }

    fn keep_epoch(&mut self, _: &Epoch) -> Result<(), Infallible> {
        Ok(())
    }

    fn keep_refused(&mut self, _: u16, _: u32) -> Result<(), Infallible> {
        Ok(())
    }
}

type Lamp = Device<Ram, PLACES, 1, 64>;
type Table = PeerArray<Exchanges<Fixed<1, 192, 1, 64>>, 4, 3, 400, 160>;

/// A handle for the thread that runs the devices. The thread ends when the handle is dropped.
pub(super) struct Devices {
    /// The port that all devices use.
    pub(super) port: u16,
    keys: mpsc::Sender<Secret<PSK_LEN>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Devices {
    pub(super) fn start() -> Result<Self, Failure> {
        let (keys, to_add) = mpsc::channel();
        let (ports, port) = mpsc::channel();
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let thread = std::thread::spawn(move || run(&ports, &to_add, &is_over));
        let port = port.recv().map_err(|_| Failure::new("the devices have no socket"))?;
        Ok(Self { port, keys, ends, thread: Some(thread) })
    }

    /// Returns the address of the device with this number.
    pub(super) fn address(&self, device: usize) -> SocketAddr {
        address(device, self.port)
    }

    /// Adds the next device. `key` is the device key that the server generated for it.
    pub(super) fn add(&self, key: Secret<PSK_LEN>) -> Result<(), Failure> {
        self.keys.send(key).map_err(|_| Failure::new("the devices have ended"))
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(failure))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("devices: {failure}");
        }
    }
}

/// Returns the address of the device with this number, if all devices use the port `port`.
pub(super) fn address(device: usize, port: u16) -> SocketAddr {
    at(FIRST, device as u32, port)
}

fn run(ports: &mpsc::Sender<u16>, keys: &mpsc::Receiver<Secret<PSK_LEN>>, is_over: &AtomicBool) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
    let _entered = runtime.enter();
    let socket = Socket::bind((Ipv4Addr::UNSPECIFIED, 0).into(), false).map_err(failure)?;
    let _ = ports.send(socket.local().port());
    let (sockets, mut inbound) = ([socket], Inbound::default());
    let mut outside = Outside {
        environment: Environment::new(HostCrypto::from_os().map_err(failure)?),
        outbox: Outbox::default(),
        begin: Instant::now(),
    };
    let (mut devices, mut polled): (Vec<OnEndpoint>, _) = (Vec::new(), Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        while let Ok(key) = keys.try_recv() {
            devices.push(OnEndpoint::new(key, &mut outside)?);
        }
        runtime.block_on(async {
            let readable = std::future::poll_fn(|cx| sockets[0].poll_readable(cx));
            let _ = tokio::time::timeout(Duration::from_millis(1), readable).await;
        });
        while sockets[0].receive(&mut inbound).map_err(failure)? {
            for (path, datagram) in inbound.datagrams() {
                let IpAddr::V4(ip) = SocketAddr::from(path.local).ip() else { continue };
                if let Some(device) = devices.get_mut(u32::from(ip).wrapping_sub(FIRST) as usize) {
                    device.take(&mut outside, path, datagram);
                }
            }
            runtime.block_on(outside.outbox.flush(&sockets));
        }
        if polled.elapsed() >= POLL {
            polled = Instant::now();
            devices.iter_mut().for_each(|device| device.poll(&mut outside));
            runtime.block_on(outside.outbox.flush(&sockets));
        }
    }
    Ok(())
}

/// The objects that all devices share.
struct Outside {
    environment: Environment<HostCrypto>,
    outbox: Outbox,
    begin: Instant,
}

impl Outside {
    fn now(&self) -> tegmen::time::Instant {
        tegmen::time::Instant::from_micros(1_000_000 + self.begin.elapsed().as_micros() as u64)
    }
}

/// A device, with its CoAP node.
struct OnEndpoint {
    node: Node<Table, Resuming<ServerOnly, Sessions<'static, Ram, PLACES, 1, 64>>, ()>,
    application: Sensor,
    /// The session that the delegation server opened last; `None` if there is none.
    server: Option<PeerId>,
    /// The sessions that peers have opened with the device.
    peers: Vec<PeerId>,
}

impl OnEndpoint {
    fn new(key: Secret<PSK_LEN>, outside: &mut Outside) -> Result<Self, Failure> {
        let epoch = Epoch::first(DeviceKey(key));
        let device: Lamp = Device::load(Ram(Some(epoch))).map_err(|_| Failure::new("no device"))?;
        // The device lives until the process ends.
        let device: &'static RefCell<Lamp> = Box::leak(Box::new(RefCell::new(device)));
        let now = outside.now();
        let role = Resuming { role: ServerOnly, sessions: Sessions(device) };
        let endpoint = Endpoint::with_roles(&mut outside.environment.at(now), Table::new(), Config::default(), role);
        let resources = Resources { device, exported: None, now, due: None };
        let application = Sensor { resources };
        Ok(Self { node: Node::new(endpoint, Default::default()), application, server: None, peers: Vec::new() })
    }

    fn take(&mut self, outside: &mut Outside, path: &Path, datagram: &mut [u8]) {
        let mut records = Records::new(datagram);
        loop {
            let now = outside.now();
            self.application.resources.now = now;
            let (cx, draft) = (&mut outside.environment.at(now), outside.outbox.draft());
            match self.node.handle(cx, path, &mut records, &mut self.application, draft) {
                None => break,
                Some(Event::Answer { len } | Event::Transmit { len, .. }) => outside.outbox.queue(*path, len.into()),
                Some(event) => self.on_event(outside, event),
            }
        }
        if let Some(Due::CloseAll) = self.application.resources.due.take() {
            self.peers.drain(..).for_each(|peer| self.node.endpoint.close(peer));
        }
        self.poll(outside);
    }

    fn poll(&mut self, outside: &mut Outside) {
        loop {
            let now = outside.now();
            self.application.resources.now = now;
            let (cx, draft) = (&mut outside.environment.at(now), outside.outbox.draft());
            match self.node.poll(cx, &mut self.application, draft) {
                None => return,
                Some(Event::Transmit { peer, len }) => {
                    if let Some(path) = self.node.endpoint.peers.peer(peer).map(|peer| *peer.path()) {
                        outside.outbox.queue(path, len.into());
                    }
                }
                Some(event) => self.on_event(outside, event),
            }
        }
    }

    fn on_event(&mut self, outside: &mut Outside, event: Event) {
        match event {
            Event::Need(id) => {
                let Some(Need::PskOfClient { identity }) = self.node.endpoint.need(id) else { return };
                let psk = self.application.resources.device.borrow().psk::<HostCrypto>(identity);
                let answer = Answer::Psk { identity: b"", key: psk.expose(), principal: SERVER };
                let now = outside.now();
                if let Some(event) = self.node.endpoint.resume(&mut outside.environment.at(now), id, answer) {
                    self.on_event(outside, event);
                }
            }
            Event::Established(peer) => {
                let endpoint = &mut self.node.endpoint;
                self.application.resources.established::<HostCrypto, _, _>(endpoint, peer);
                if endpoint.peers.peer(peer).is_some_and(|peer| peer.principal() == SERVER) {
                    let earlier = self.server.replace(peer);
                    earlier.into_iter().for_each(|id| endpoint.close(id));
                } else {
                    self.peers.retain(|peer| endpoint.peers.peer(*peer).is_some());
                    self.peers.push(peer);
                }
            }
            _ => {}
        }
    }
}

struct Sensor {
    resources: Resources<'static, Ram, PLACES, 1, 64>,
}

impl node::Application for Sensor {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&AnyAuthenticated, self))
    }
}

impl Handler for Sensor {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if request.message().path_is(VALUE_PATH) {
            return response.payload(b"21.5");
        }
        self.resources.handle::<HostCrypto>(request, response).unwrap_or(Err(Code::NOT_FOUND))
    }
}
