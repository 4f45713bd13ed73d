//! Tests of the bridge, with a simulated mote at the other end of a UNIX socket.

use super::*;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(10);

/// The mote's end of the serial line, and the bridge at the other end.
struct World {
    mote: UnixStream,
    addresses: Vec<Forward>,
    events: Arc<Mutex<Vec<Event>>>,
    stop: oneshot::Sender<()>,
    bridge: JoinHandle<Result<Totals, BridgeError>>,
}

fn socket_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("tegmen-bridge-{}-{number}", std::process::id()))
}

impl World {
    async fn new(adjust: impl FnOnce(&mut BridgeConfig)) -> Self {
        let path = socket_path();
        let listener = UnixListener::bind(&path).unwrap();
        let line = Line::find(path.to_str().unwrap()).unwrap();
        assert_eq!(line, Line::Unix(path.clone()));
        let mut config = BridgeConfig::new(line);
        adjust(&mut config);
        let events = Arc::new(Mutex::new(Vec::new()));
        let reported = events.clone();
        let bridge = Bridge::open(config, Arc::new(move |event| reported.lock().unwrap().push(event))).await.unwrap();
        let (mote, _) = listener.accept().await.unwrap();
        std::fs::remove_file(path).unwrap();
        let addresses = bridge.addresses();
        let (stop, stopped) = oneshot::channel();
        let bridge = tokio::spawn(bridge.run(async move { _ = stopped.await }));
        Self { mote, addresses, events, stop, bridge }
    }

    /// Returns a frame that the bridge sends to the mote.
    async fn frame(&mut self) -> Vec<u8> {
        let mut storage = vec![0; 4096];
        let mut decoder = Decoder::new(&mut storage);
        loop {
            let byte = tokio::time::timeout(PATIENCE, self.mote.read_u8()).await.unwrap().unwrap();
            if let Some(frame) = decoder.push(byte) {
                return frame.to_vec();
            }
        }
    }

    /// Returns a datagram that reaches the mote: its path from the mote's point of view, and its payload.
    async fn datagram(&mut self) -> (Path, Vec<u8>) {
        let mut frame = self.frame().await;
        let datagram = Datagram::parse(&mut frame).unwrap();
        (datagram.path, datagram.payload.to_vec())
    }

    async fn send_frame(&mut self, frame: &[u8]) {
        let encoded: Vec<u8> = slip::encode(frame).collect();
        self.mote.write_all(&encoded).await.unwrap();
    }

    async fn send(&mut self, path: &Path, payload: &[u8]) {
        let headers = ip::headers(path, HOP_LIMIT, payload).unwrap();
        self.send_frame(&[&headers[..], payload].concat()).await;
    }

    async fn start(&mut self) -> Start {
        self.send_frame(&[b'?', 1]).await;
        match Control::parse(&self.frame().await).unwrap() {
            Control::Start(start) => start,
            Control::SeedPlease => panic!("the bridge asks back"),
        }
    }

    async fn end(self) -> (Totals, Vec<Event>) {
        self.stop.send(()).unwrap();
        let totals = self.bridge.await.unwrap().unwrap();
        (totals, self.events.lock().unwrap().clone())
    }
}

async fn remote() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

async fn received(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 512];
    let (len, from) = tokio::time::timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
    (buffer[..len].to_vec(), from)
}

fn mote(port: u16) -> Address {
    Address { ip: MOTE.octets(), port, scope: 0 }
}

fn at_any_port(mote_port: u16) -> Forward {
    Forward { address: (Ipv4Addr::LOCALHOST, 0).into(), mote_port }
}

#[tokio::test]
async fn each_start_has_another_seed() {
    let peer: SocketAddr = (Ipv4Addr::LOCALHOST, 5684).into();
    let mut world = World::new(|config| config.peer = Some(peer)).await;
    let (first, second) = (world.start().await, world.start().await);
    assert_ne!(first.seed.expose(), second.seed.expose());
    assert_eq!((first.ip, first.peer), (MOTE.octets(), Some(plain_address(peer))));
    let (totals, events) = world.end().await;
    assert_eq!(totals.started, 2);
    assert_eq!(events, [Event::Started { times: 1 }, Event::Started { times: 2 }]);
}

#[tokio::test]
async fn two_remotes_are_told_apart_and_each_gets_its_own_reply() {
    let mut world = World::new(|config| config.listen = vec![at_any_port(5684)]).await;
    let bridge = world.addresses[0].address;
    let remotes = [remote().await, remote().await];
    let mut paths = Vec::new();
    for (number, remote) in remotes.iter().enumerate() {
        remote.send_to(&[number as u8; 5], bridge).await.unwrap();
        let (path, payload) = world.datagram().await;
        assert_eq!(payload, [number as u8; 5]);
        assert_eq!((path.local, path.remote), (mote(5684), plain_address(remote.local_addr().unwrap())));
        paths.push(path);
    }
    // In the other order, so that the last sender is not simply answered.
    for (number, path) in paths.iter().enumerate() {
        world.send(path, &[number as u8 + 10]).await;
    }
    for (number, remote) in remotes.iter().enumerate() {
        assert_eq!(received(remote).await, (vec![number as u8 + 10], bridge));
    }
    let (totals, _) = world.end().await;
    assert_eq!((totals.to_mote, totals.from_mote), (2, 2));
}

#[tokio::test]
async fn ports_of_the_mote_are_listened_at_separately() {
    let mut world = World::new(|config| config.listen = vec![at_any_port(5684), at_any_port(5683)]).await;
    let remote = remote().await;
    for forward in world.addresses.clone() {
        remote.send_to(b"question", forward.address).await.unwrap();
        let (path, _) = world.datagram().await;
        assert_eq!(path.local, mote(forward.mote_port));
        world.send(&path, b"answer").await;
        assert_eq!(received(&remote).await, (b"answer".to_vec(), forward.address));
    }
    world.end().await;
}

#[tokio::test]
async fn a_client_reaches_its_peer_and_nobody_else() {
    let (peer, stranger) = (remote().await, remote().await);
    let peer_address = peer.local_addr().unwrap();
    let mut world = World::new(|config| config.peer = Some(peer_address)).await;
    let path = Path { local: mote(5684), remote: plain_address(peer_address) };
    world.send(&path, b"question").await;
    let (question, from) = received(&peer).await;
    assert_eq!(question, b"question");
    peer.send_to(b"answer", from).await.unwrap();
    let (back, payload) = world.datagram().await;
    assert_eq!((back.local, back.remote), (path.local, path.remote));
    assert_eq!(payload, b"answer");

    let elsewhere = Path { remote: plain_address(stranger.local_addr().unwrap()), ..path };
    world.send(&elsewhere, b"a probe").await;
    world.send(&path, b"another question").await;
    // The same socket again: one port of the mote, one port of ours.
    assert_eq!(received(&peer).await, (b"another question".to_vec(), from));
    let (totals, events) = world.end().await;
    assert_eq!((totals.from_mote, totals.unroutable), (2, 1));
    assert_eq!(events, [Event::Dropped { why: Dropped::Unroutable, count: 1 }]);
}

#[tokio::test]
async fn what_the_mote_cannot_take_is_dropped_and_counted() {
    let mut world = World::new(|config| config.listen = vec![at_any_port(5684)]).await;
    let bridge = world.addresses[0].address;
    let remote = remote().await;
    remote.send_to(&[1; MAX_DATAGRAM + 1], bridge).await.unwrap();
    remote.send_to(&[2; MAX_DATAGRAM], bridge).await.unwrap();
    assert_eq!(world.datagram().await.1, [2; MAX_DATAGRAM]);
    let (totals, _) = world.end().await;
    assert_eq!((totals.oversized, totals.to_mote), (1, 1));
}

#[tokio::test]
async fn what_is_no_datagram_of_the_mote_is_refused() {
    let peer: SocketAddr = (Ipv4Addr::LOCALHOST, 9).into();
    let mut world = World::new(|config| config.peer = Some(peer)).await;
    let forged = Path { local: Address { ip: [9; 16], port: 1, scope: 0 }, remote: plain_address(peer) };
    world.send(&forged, b"not from the mote").await;
    world.send_frame(b"noise").await;
    world.start().await;
    assert_eq!(world.end().await.0.refused, 2);
}

#[tokio::test]
async fn a_full_table_forgets_whom_it_heard_longest_ago() {
    let mut world = World::new(|config| {
        config.listen = vec![at_any_port(5684)];
        config.max_remotes = 2;
    })
    .await;
    let bridge = world.addresses[0].address;
    let remotes = [remote().await, remote().await, remote().await];
    let mut paths = Vec::new();
    for remote in [&remotes[0], &remotes[1], &remotes[0], &remotes[2]] {
        remote.send_to(b"hello", bridge).await.unwrap();
        paths.push(world.datagram().await.0);
    }
    world.send(&paths[1], b"nobody").await;
    world.send(&paths[0], b"still known").await;
    assert_eq!(received(&remotes[0]).await.0, b"still known");
    let (totals, events) = world.end().await;
    assert_eq!(totals.unroutable, 1);
    assert!(events.contains(&Event::Forgotten(remotes[1].local_addr().unwrap())));
}

#[tokio::test]
async fn a_remote_that_fell_silent_is_forgotten() {
    let mut world = World::new(|config| {
        config.listen = vec![at_any_port(5684)];
        config.idle = Duration::from_millis(100);
    })
    .await;
    let remote = remote().await;
    remote.send_to(b"hello", world.addresses[0].address).await.unwrap();
    world.datagram().await;
    let forgotten = Event::Forgotten(remote.local_addr().unwrap());
    tokio::time::timeout(PATIENCE, async {
        while !world.events.lock().unwrap().contains(&forgotten) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    world.end().await;
}

#[tokio::test]
async fn the_end_of_the_line_is_told() {
    let world = World::new(|_| {}).await;
    drop(world.mote);
    assert!(matches!(world.bridge.await.unwrap(), Err(BridgeError::Ended(_))));
}

#[test]
fn lines_that_are_not_there_are_named_with_what_to_do() {
    let missing = Line::find("/nowhere/mote.sock").unwrap_err().to_string();
    assert!(missing.contains("/nowhere/mote.sock") && missing.contains("QEMU started?"), "{missing}");
    assert!(matches!(Line::find("/"), Err(LineError::WrongKind(_))));
    assert_eq!(Line::find("localhost:4321").unwrap(), Line::Tcp("localhost:4321".to_owned()));
    assert_eq!(Line::find("/dev/null").unwrap(), Line::Device("/dev/null".into()));
}

#[tokio::test]
async fn an_image_that_is_not_there_is_not_run() {
    let Err(error) = Bridge::open(BridgeConfig::new(Line::Image("/nowhere".into())), Arc::new(|_| {})).await else {
        panic!("it was run")
    };
    assert!(matches!(error, BridgeError::Line(LineError::NoImage(_))), "{error}");
}
