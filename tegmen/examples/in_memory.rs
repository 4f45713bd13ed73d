//! The core without input and output: two endpoints in one function. The network is a list of datagrams, and the clock
//! is a number. The network loses one datagram. The handshake continues as soon as the clock reaches the time of the
//! alarm.
//!
//! `cargo run -p tegmen --example in_memory`
//!
//! You can use this file as the beginning of a test of your own protocol: nothing in it waits, and each run prints the
//! same output.

use std::collections::VecDeque;
use std::error::Error;
use std::process::ExitCode;
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::crypto::RustCrypto;
use tegmen::cx::{Counters, Cx};
use tegmen::dtls::{Answer, Config, Need, Records};
use tegmen::endpoint::{Endpoint, Event, MAX_HEADROOM, PeerArray};
use tegmen::identity::{PeerId, Principal};
use tegmen::time::{Duration, Instant};

const IDENTITY: &[u8] = b"sensor-17";
const KEY: &[u8] = b"0123456789abcdef";
/// The time that a datagram needs to arrive.
const DELAY: Duration = Duration::from_millis(10);
/// The number of the datagram that the network loses: the first ClientHello with a cookie.
const LOST: usize = 2;

/// One of the two endpoints, with a table for two peers.
struct End {
    name: &'static str,
    endpoint: Endpoint<PeerArray<(), 2, 2, 256, 512>>,
    crypto: RustCrypto,
    counters: Counters,
    address: Address,
    /// The peer with which the session is established; `None` before the end of the handshake.
    session: Option<PeerId>,
    received: Vec<Vec<u8>>,
}

impl End {
    fn new(name: &'static str, number: u8) -> Self {
        // A program with secrets takes an unpredictable seed.
        let (mut crypto, mut counters) = (RustCrypto::new([number; 32]), Counters::default());
        let mut cx = Cx { now: Instant::default(), crypto: &mut crypto, counters: &mut counters };
        let endpoint = Endpoint::new(&mut cx, PeerArray::new(), Config::default());
        let mut ip = [0; 16];
        (ip[0], ip[15]) = (0xfd, number);
        let address = Address { ip, port: 5684, scope: 0 };
        Self { name, endpoint, crypto, counters, address, session: None, received: Vec::new() }
    }

    /// Processes an event. Returns the length of the datagram to send, if there is one.
    fn on(&mut self, now: Instant, event: Event) -> Option<usize> {
        match event {
            Event::Answer { len } | Event::Transmit { len, .. } => return Some(len.into()),
            Event::Need(peer) => {
                let principal = Principal(1);
                let answer = match self.endpoint.need(peer)? {
                    Need::PskForServer { .. } => Answer::Psk { identity: IDENTITY, key: KEY, principal },
                    Need::PskOfClient { identity } if identity == IDENTITY => {
                        Answer::Psk { identity: &[], key: KEY, principal }
                    }
                    _ => Answer::Unknown,
                };
                let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
                let next = self.endpoint.resume(&mut cx, peer, answer);
                return next.and_then(|event| self.on(now, event));
            }
            Event::Established(peer) => {
                println!("{:4} ms: the session of the {} is ready", now.as_micros() / 1000, self.name);
                self.session = Some(peer);
            }
            Event::Closed { reason, .. } => println!("the {} ended the session: {reason:?}", self.name),
            _ => {}
        }
        None
    }

    /// Processes a received datagram. Returns the datagrams that the endpoint sends at once.
    fn receive(&mut self, now: Instant, from: Address, mut datagram: Vec<u8>) -> Vec<Vec<u8>> {
        let (mut buffer, mut to_send) = ([0; 1500], Vec::new());
        let path = Path { local: self.address, remote: from };
        let mut records = Records::new(&mut datagram);
        loop {
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            let Some(event) = self.endpoint.handle(&mut cx, &path, &mut records, &mut buffer) else { return to_send };
            if let Event::Message { bytes, .. } = event {
                self.received.push(records.bytes(bytes).to_vec());
            } else if let Some(len) = self.on(now, event) {
                to_send.push(buffer[..len].to_vec());
            }
        }
    }

    /// Processes everything that is due. Returns the datagrams to send.
    fn poll(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let (mut buffer, mut to_send) = ([0; 1500], Vec::new());
        loop {
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            let Some(event) = self.endpoint.poll(&mut cx, &mut buffer) else { return to_send };
            to_send.extend(self.on(now, event).map(|len| buffer[..len].to_vec()));
        }
    }

    /// Protects bytes for the peer. Returns the datagram.
    fn seal(&mut self, now: Instant, bytes: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
        let peer = self.session.ok_or("there is no session yet: call this after Event::Established")?;
        let mut storage = [0; 1500];
        let mut frame = Frame::new(&mut storage, MAX_HEADROOM);
        frame.append(bytes).map_err(|_| "the bytes are longer than a datagram")?;
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        self.endpoint.seal(&mut cx, peer, &mut frame).map_err(|misuse| format!("cannot protect it: {misuse:?}"))?;
        Ok(frame.finish().to_vec())
    }
}

/// Runs the example. The client has the index 0, and the server has the index 1.
fn run() -> Result<(), Box<dyn Error>> {
    let (mut now, mut sent) = (Instant::default(), 0);
    let mut ends = [End::new("client", 1), End::new("server", 2)];
    let addresses = [ends[0].address, ends[1].address];
    // Each datagram with the time of its arrival and its receiver.
    let mut network: VecDeque<(Instant, usize, Vec<u8>)> = VecDeque::new();

    let path = Path { local: addresses[0], remote: addresses[1] };
    let [client, _] = &mut ends;
    let mut cx = Cx { now, crypto: &mut client.crypto, counters: &mut client.counters };
    client.endpoint.connect(&mut cx, &path).map_err(|_| "the table of peers is full")?;

    while ends[1].received.is_empty() {
        for (sender, end) in ends.iter_mut().enumerate() {
            for datagram in end.poll(now) {
                send(&mut network, &mut sent, now, 1 - sender, datagram);
            }
        }
        if ends.iter().all(|end| end.session.is_some()) && network.is_empty() {
            let datagram = ends[0].seal(now, b"21.5")?;
            send(&mut network, &mut sent, now, 1, datagram);
        }
        // The clock goes to the next arrival or alarm. An operating system would wait until then.
        let alarms = ends.iter().filter_map(|end| end.endpoint.next_alarm());
        now = network.front().map(|flying| flying.0).into_iter().chain(alarms).min().ok_or("nothing is due")?.max(now);
        while let Some((_, receiver, datagram)) = network.pop_front_if(|flying| flying.0 <= now) {
            for answer in ends[receiver].receive(now, addresses[1 - receiver], datagram) {
                send(&mut network, &mut sent, now, 1 - receiver, answer);
            }
        }
        if now > Instant::default().after(Duration::from_secs(60)) {
            return Err("the handshake did not end within a minute".into());
        }
    }
    println!(
        "{:4} ms: the server received {:?}",
        now.as_micros() / 1000,
        String::from_utf8_lossy(&ends[1].received[0])
    );
    if ends[1].received != [b"21.5"] || now < Instant::default().after(Duration::from_millis(500)) {
        return Err("the server received something else, or too early for a retransmission".into());
    }
    Ok(())
}

/// Adds a datagram to the network, unless the network loses it.
fn send(
    network: &mut VecDeque<(Instant, usize, Vec<u8>)>,
    sent: &mut usize,
    now: Instant,
    receiver: usize,
    datagram: Vec<u8>,
) {
    *sent += 1;
    let (millis, to) = (now.as_micros() / 1000, ["client", "server"][receiver]);
    let fate = if *sent == LOST + 1 { ", lost" } else { "" };
    println!("{millis:4} ms: {} bytes to the {to}{fate}", datagram.len());
    if *sent != LOST + 1 {
        network.push_back((now.after(DELAY), receiver, datagram));
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
