//! DTLS without CoAP: two UDP sockets of the standard library exchange bytes of any format, which the core protects.
//!
//! `cargo run -p tegmen --example bytes_over_dtls`
//!
//! The server is a thread that sends each message back in reverse. Each message is one datagram. The network may lose
//! or repeat a datagram. A program that cannot accept this must number its messages.

use std::error::Error;
use std::net::UdpSocket;
use std::process::ExitCode;
use std::thread;
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::crypto::RustCrypto;
use tegmen::cx::{Counters, Cx};
use tegmen::dtls::{Answer, Config, Fatal, Need, Records};
use tegmen::endpoint::{Endpoint, Event, MAX_HEADROOM, PeerArray, Peers as _};
use tegmen::identity::{PeerId, Principal};
use tegmen::time::{Duration, Instant};

const IDENTITY: &[u8] = b"sensor-17";
const KEY: &[u8] = b"0123456789abcdef";
/// The maximum time for which the example waits for a datagram.
const PATIENCE: Duration = Duration::from_secs(10);

/// An event for which the program waits: the peer has connected, sent a message, or closed the session.
enum Happened {
    Connected(PeerId),
    Received(PeerId, Vec<u8>),
    Closed(Fatal),
}

/// An endpoint with its socket and its clock.
struct Socket {
    udp: UdpSocket,
    endpoint: Endpoint<PeerArray<(), 4, 4, 256, 512>>,
    crypto: RustCrypto,
    counters: Counters,
    begin: std::time::Instant,
}

impl Socket {
    fn bind() -> Result<Self, Box<dyn Error>> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| error.to_string())?;
        let (mut crypto, mut counters) = (RustCrypto::new(seed), Counters::default());
        let mut cx = Cx { now: Instant::default(), crypto: &mut crypto, counters: &mut counters };
        let endpoint = Endpoint::new(&mut cx, PeerArray::new(), Config::default());
        Ok(Self { udp: UdpSocket::bind("127.0.0.1:0")?, endpoint, crypto, counters, begin: std::time::Instant::now() })
    }

    fn address(&self) -> Result<Address, Box<dyn Error>> {
        Ok(self.udp.local_addr()?.into())
    }

    /// Calls `work` with the endpoint and the time.
    fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Endpoint<PeerArray<(), 4, 4, 256, 512>>, &mut Cx<'_, RustCrypto>) -> T,
    ) -> T {
        let now = Instant::default().after(self.begin.elapsed());
        work(&mut self.endpoint, &mut Cx { now, crypto: &mut self.crypto, counters: &mut self.counters })
    }

    fn connect(&mut self, remote: Address) -> Result<(), Box<dyn Error>> {
        let path = Path { local: self.address()?, remote };
        self.with(|endpoint, cx| endpoint.connect(cx, &path)).map_err(|_| "the table of peers is full")?;
        Ok(())
    }

    fn send(&mut self, peer: PeerId, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut storage = [0; 1500];
        let mut frame = Frame::new(&mut storage, MAX_HEADROOM);
        frame.append(bytes).map_err(|_| "the bytes are longer than a datagram")?;
        let sealed = self.with(|endpoint, cx| endpoint.seal(cx, peer, &mut frame));
        sealed.map_err(|misuse| format!("cannot protect the bytes: {misuse:?}"))?;
        self.transmit(peer, frame.finish())
    }

    /// Closes the session: the endpoint sends close_notify at once.
    fn close(&mut self, peer: PeerId) -> Result<(), Box<dyn Error>> {
        self.endpoint.close(peer);
        let mut out = [0; 1500];
        while let Some(event) = self.with(|endpoint, cx| endpoint.poll(cx, &mut out)) {
            self.on(event, &out, None)?;
        }
        Ok(())
    }

    fn transmit(&mut self, peer: PeerId, datagram: &[u8]) -> Result<(), Box<dyn Error>> {
        let to = self.endpoint.peers.peer(peer).ok_or("no such peer")?.path().remote;
        self.udp.send_to(datagram, std::net::SocketAddr::from(to))?;
        Ok(())
    }

    /// Processes an event other than a received message. If the event has a datagram, `out` begins with it.
    fn on(&mut self, event: Event, out: &[u8], from: Option<Address>) -> Result<Option<Happened>, Box<dyn Error>> {
        match event {
            Event::Answer { len } => {
                let to = from.ok_or("an answer without a datagram")?;
                self.udp.send_to(&out[..len.into()], std::net::SocketAddr::from(to))?;
            }
            Event::Transmit { peer, len } => self.transmit(peer, &out[..len.into()])?,
            Event::Need(peer) => {
                let principal = Principal(1);
                let answer = match self.endpoint.need(peer) {
                    Some(Need::PskForServer { .. }) => Answer::Psk { identity: IDENTITY, key: KEY, principal },
                    Some(Need::PskOfClient { identity }) if identity == IDENTITY => {
                        Answer::Psk { identity: &[], key: KEY, principal }
                    }
                    _ => Answer::Unknown,
                };
                let next = self.with(|endpoint, cx| endpoint.resume(cx, peer, answer));
                return next.map_or(Ok(None), |event| self.on(event, &[], from));
            }
            Event::Established(peer) => return Ok(Some(Happened::Connected(peer))),
            Event::Closed { reason, .. } => return Ok(Some(Happened::Closed(reason))),
            _ => {}
        }
        Ok(None)
    }

    /// Sends and receives datagrams until one of the events in [`Happened`] occurs, and returns this event.
    fn next(&mut self) -> Result<Happened, Box<dyn Error>> {
        let (begin, mut out, mut datagram) = (self.begin.elapsed(), [0; 1500], [0; 1500]);
        while self.begin.elapsed() < begin + PATIENCE {
            while let Some(event) = self.with(|endpoint, cx| endpoint.poll(cx, &mut out)) {
                if let Some(happened) = self.on(event, &out, None)? {
                    return Ok(happened);
                }
            }
            // The next retransmission is due at the alarm.
            let now = Instant::default().after(self.begin.elapsed());
            let wait = self.endpoint.next_alarm().map_or(PATIENCE, |alarm| alarm.since(now).min(PATIENCE));
            self.udp.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
            let Ok((len, from)) = self.udp.recv_from(&mut datagram) else { continue };
            let path = Path { local: self.address()?, remote: from.into() };
            let mut records = Records::new(&mut datagram[..len]);
            let mut last = None;
            while let Some(event) = self.with(|endpoint, cx| endpoint.handle(cx, &path, &mut records, &mut out)) {
                let happened = match event {
                    Event::Message { peer, bytes } => Some(Happened::Received(peer, records.bytes(bytes).to_vec())),
                    event => self.on(event, &out, Some(path.remote))?,
                };
                last = happened.or(last);
            }
            if let Some(happened) = last {
                return Ok(happened);
            }
        }
        Err("the peer is silent: check that no firewall drops UDP datagrams between ports of 127.0.0.1".into())
    }
}

/// Sends each message back in reverse, until the client ends the session.
fn serve(mut socket: Socket) -> Result<(), String> {
    loop {
        match socket.next().map_err(|error| error.to_string())? {
            Happened::Connected(_) => println!("server: a client proved its key"),
            Happened::Received(peer, mut message) => {
                message.reverse();
                socket.send(peer, &message).map_err(|error| error.to_string())?;
            }
            Happened::Closed(Fatal::Closed) => return Ok(()),
            Happened::Closed(reason) => return Err(format!("the session ended: {reason:?}")),
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let (mut client, server) = (Socket::bind()?, Socket::bind()?);
    client.connect(server.address()?)?;
    let server = thread::spawn(move || serve(server));
    let Happened::Connected(peer) = client.next()? else { return Err("the server refused the session".into()) };
    for message in [&b"stressed"[..], &[0, 1, 2, 255]] {
        client.send(peer, message)?;
        let Happened::Received(_, received) = client.next()? else { return Err("the server ended the session".into()) };
        println!("client: sent {message:?}, received {received:?}");
        if !received.iter().eq(message.iter().rev()) {
            return Err("the server sent other bytes back".into());
        }
    }
    client.close(peer)?;
    server.join().map_err(|_| "the server panicked")??;
    Ok(())
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
