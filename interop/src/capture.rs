//! A relay between a client and a server. It records the datagrams in a capture file, and needs no privilege to
//! capture.

use crate::cell::{Check, LOOPBACK, Scene, Trouble};
use crate::hello::{self, Hello};
use crate::network::Network;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Scope};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A running relay, which [`Self::finish`] ends.
pub(crate) struct Capture {
    /// The port at which clients reach the server.
    pub(crate) port: u16,
    shared: Arc<Shared>,
    relay: Option<JoinHandle<()>>,
}

struct Shared {
    server: SocketAddr,
    port: u16,
    file: Mutex<Vec<u8>>,
    datagrams: Mutex<Vec<Datagram>>,
    over: AtomicBool,
    network: Network,
    /// Number of datagrams that the network delayed, repeated or lost.
    harmed: AtomicUsize,
    /// Number of calls of [`Capture::rebind`]. The relay opens new sockets to the server after each call, and ignores
    /// the older sockets, like a NAT that lost its mappings.
    rebound: AtomicUsize,
}

/// A datagram that passed the relay.
#[derive(Clone)]
pub(crate) struct Datagram {
    pub(crate) to_server: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Capture {
    /// Starts a relay to `server`, which has the IPv4 loopback address.
    pub(crate) fn start(server: SocketAddr) -> Result<Self, String> {
        Self::over(server, Network::Good)
    }

    /// Starts a relay as [`Self::start`] does, over `network`.
    pub(crate) fn over(server: SocketAddr, network: Network) -> Result<Self, String> {
        let socket = open((LOOPBACK, 0).into())?;
        let port = socket.local_addr().map_err(|error| error.to_string())?.port();
        let (file, datagrams) = (Mutex::new(file_header()), Mutex::new(Vec::new()));
        let shared = Arc::new(Shared {
            server,
            port,
            file,
            datagrams,
            over: AtomicBool::new(false),
            network,
            harmed: AtomicUsize::new(0),
            rebound: AtomicUsize::new(0),
        });
        let relay = thread::spawn({
            let shared = shared.clone();
            move || shared.relay(&socket)
        });
        Ok(Self { port, shared, relay: Some(relay) })
    }

    /// Ends the relay. Returns the path of the capture file.
    pub(crate) fn finish(mut self, scene: &Scene) -> Result<PathBuf, String> {
        self.end();
        let file = self.shared.file.lock().unwrap_or_else(PoisonError::into_inner);
        scene.file("capture.pcap", &*file)
    }

    /// Changes the port that the server sees for every client, like a NAT that lost its mappings. Later datagrams of
    /// the server to an old port are lost.
    pub(crate) fn rebind(&self) {
        self.shared.rebound.fetch_add(1, Ordering::Relaxed);
    }

    /// Fails if the network changed no datagram, because the scenario then tests nothing.
    pub(crate) fn did_harm(&self) -> Check {
        match self.shared.harmed.load(Ordering::Relaxed) {
            0 => Err("the network did nothing to any datagram".into()),
            _ => Ok(()),
        }
    }

    /// Returns the datagrams that were sent so far.
    pub(crate) fn datagrams(&self) -> Vec<Datagram> {
        self.shared.datagrams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until `is_it` is true for `count` of the datagrams that have passed. Returns the index of the last of
    /// these datagrams.
    pub(crate) fn await_count(
        &self,
        deadline: Instant,
        count: usize,
        is_it: impl Fn(&Datagram) -> bool,
    ) -> Result<usize, String> {
        loop {
            let datagrams = self.datagrams();
            let mut places = datagrams.iter().enumerate().filter(|(_, datagram)| is_it(datagram));
            if let Some((at, _)) = places.nth(count.saturating_sub(1)) {
                return Ok(at);
            }
            if Instant::now() > deadline {
                return Err(format!("{count} datagrams that are waited for do not pass"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(relay) = self.relay.take() {
            let _ = relay.join();
        }
    }

    /// Reports that the peer does not support an extension, which `name` and `number` identify. The evidence is the
    /// last message of the type `hello` (ClientHello or ServerHello). If this message has the extension, the function
    /// fails instead.
    pub(crate) fn lacks(&self, hello: Hello, (name, number): (&str, u16)) -> Check {
        let datagrams = self.datagrams();
        let read = datagrams.iter().rev().find_map(|datagram| hello::read(&datagram.bytes, hello));
        match read.ok_or_else(|| format!("no {hello:?}Hello passed"))?.extension(number) {
            Some(_) => Err(format!("its {hello:?}Hello has {name}, and no row tries that").into()),
            None => Err(Trouble::Lacks(format!("its {hello:?}Hello has no {name} ({number})"))),
        }
    }

    /// Checks that the last ServerHello has an extension if `expected` is true, and does not have it otherwise. The
    /// name and the number identify the extension.
    pub(crate) fn agreed(&self, (name, number): (&str, u16), expected: bool) -> Check {
        let datagrams = self.datagrams();
        let read = datagrams.iter().rev().find_map(|datagram| hello::read(&datagram.bytes, Hello::Server));
        match read.ok_or("no ServerHello passed")?.extension(number).is_some() {
            found if found == expected => Ok(()),
            true => Err(format!("the ServerHello has {name}").into()),
            false => Err(format!("the ServerHello is without {name}").into()),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Relays datagrams until the relay ends. Each client gets its own socket to the server, so that the server sees
    /// another port for each client, as it does without a relay.
    fn relay(&self, socket: &UdpSocket) {
        let mut clients: HashMap<(SocketAddr, usize), Arc<UdpSocket>> = HashMap::new();
        thread::scope(|scope| {
            self.each_datagram(socket, |from, datagram| {
                let rebound = self.rebound.load(Ordering::Relaxed);
                let upstream = match clients.get(&(from, rebound)) {
                    Some(upstream) => upstream.clone(),
                    None => {
                        let Ok(upstream) = open((LOOPBACK, 0).into()).map(Arc::new) else { return };
                        clients.insert((from, rebound), upstream.clone());
                        let down = upstream.clone();
                        scope.spawn(move || {
                            self.each_datagram(&down, |_, datagram| {
                                if self.rebound.load(Ordering::Relaxed) != rebound {
                                    return;
                                }
                                self.keep(self.port, from.port(), datagram);
                                self.pass(scope, false, datagram, move |copy| drop(socket.send_to(copy, from)));
                            });
                        });
                        upstream
                    }
                };
                self.keep(from.port(), self.port, datagram);
                self.pass(scope, true, datagram, move |copy| drop(upstream.send_to(copy, self.server)));
            });
        });
    }

    /// Forwards a datagram as the network does: immediately, late, twice or not at all.
    fn pass<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        to_server: bool,
        datagram: &[u8],
        send: impl Fn(&[u8]) + Clone + Send + 'scope,
    ) {
        let first = self.harmed.load(Ordering::Relaxed) == 0;
        let Some(copies) = self.network.harms(to_server, datagram, first) else { return send(datagram) };
        self.harmed.fetch_add(1, Ordering::Relaxed);
        for delay in copies {
            if delay.is_zero() {
                send(datagram);
                continue;
            }
            let (copy, send) = (datagram.to_vec(), send.clone());
            scope.spawn(move || {
                thread::sleep(delay);
                send(&copy);
            });
        }
    }

    fn each_datagram(&self, socket: &UdpSocket, mut take: impl FnMut(SocketAddr, &[u8])) {
        let mut buffer = [0; 2048];
        while !self.over.load(Ordering::Relaxed) {
            match socket.recv_from(&mut buffer) {
                Ok((len, from)) => take(from, buffer.get(..len).unwrap_or_default()),
                // The system reports a refused datagram at the next call.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {}
                Err(_) => return,
            }
        }
    }

    fn keep(&self, from: u16, to: u16, datagram: &[u8]) {
        let kept = Datagram { to_server: to == self.port, bytes: datagram.to_vec() };
        self.datagrams.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let [from, to] = [from, to].map(|port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        packet(&mut file, from, to, datagram);
    }
}

fn open(address: SocketAddr) -> Result<UdpSocket, String> {
    let socket = UdpSocket::bind(address).map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(Duration::from_millis(20))).map_err(|error| error.to_string())?;
    Ok(socket)
}

/// Returns the header of a pcap file whose packets begin with their IP header (link type RAW).
pub(crate) fn file_header() -> Vec<u8> {
    const RAW: u32 = 101;
    let mut header = Vec::new();
    header.extend_from_slice(&0xa1b2_c3d4u32.to_le_bytes());
    header.extend_from_slice(&[2, 0, 4, 0]);
    for word in [0, 0, 65_535, RAW] {
        header.extend_from_slice(&u32::to_le_bytes(word));
    }
    header
}

/// Appends a packet to the capture: its time, its IPv4 and UDP headers, and `datagram`. The UDP checksum is 0, because
/// it is optional over IPv4.
pub(crate) fn packet(file: &mut Vec<u8>, from: SocketAddrV4, to: SocketAddrV4, datagram: &[u8]) {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    let len = u32::try_from(IP_AND_UDP.saturating_add(datagram.len())).unwrap_or(u32::MAX);
    for word in [seconds, time.subsec_micros(), len, len] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    let udp_len = u16::try_from(datagram.len().saturating_add(8)).unwrap_or(u16::MAX);
    let [len0, len1] = udp_len.saturating_add(20).to_be_bytes();
    let mut ip = [0x45, 0, len0, len1, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (place, byte) in ip.iter_mut().skip(12).zip(from.ip().octets().into_iter().chain(to.ip().octets())) {
        *place = byte;
    }
    let sum = ip.chunks_exact(2).fold(0u32, |sum, pair| match *pair {
        [high, low] => sum.wrapping_add(u32::from(u16::from_be_bytes([high, low]))),
        _ => sum,
    });
    let folded = (sum & 0xffff).wrapping_add(sum >> 16) as u16;
    [ip[10], ip[11]] = (!folded).to_be_bytes();
    file.extend_from_slice(&ip);
    for word in [from.port(), to.port(), udp_len, 0] {
        file.extend_from_slice(&word.to_be_bytes());
    }
    file.extend_from_slice(datagram);
}

const IP_AND_UDP: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_the_lengths_and_the_checksum_of_its_header() {
        let mut packet_bytes = Vec::new();
        let [from, to] = [0x1234, 5684].map(|port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        packet(&mut packet_bytes, from, to, b"abc");
        // After the time and the lengths.
        let packet_bytes = packet_bytes.split_off(16);
        assert_eq!(packet_bytes.len(), IP_AND_UDP + 3);
        assert_eq!(packet_bytes[2..4], [0, 31]);
        // A header with its checksum sums up to ones (RFC 1071, section 1).
        let words = packet_bytes[..20].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum: u32 = words.sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(packet_bytes[20..28], [0x12, 0x34, 0x16, 0x34, 0, 11, 0, 0]);
    }
}
