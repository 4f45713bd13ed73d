//! Measures forwarders of Named Data Networking. A consumer and a producer exchange Interests and Data packets through
//! the forwarder, over Unix sockets. In a second measurement the forwarder answers the Interests from its content
//! store. In a third measurement the same Interests arrive over UDP, and the forwarder is compared with an echo server.
//!
//! The consumer and the producer are threads of this program, so that only the CPU time of the forwarder's process
//! counts. 64 Interests wait for their Data packets at the same time.

use crate::{
    Options, echo,
    mmsg::Batch,
    ours,
    program::target,
    report::{Absent, Header, Judged, OURS, Report, Row, Samples},
    server::{cpu_nanoseconds, free_port},
};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tegmen::buf::{Frame, Writer};
use tegmen::crypto::RustCrypto;
use tegmen_bench_line::Failure;
use tegmen_ndn::signature::DigestSha256;
use tegmen_ndn::tables::{FaceId, InRecord, NextHop, OutRecord, Pit as _, Tick};
use tegmen_ndn::{Component, Data, Interest, MAX_HEAD, Name, ReceivedInterest, write_uri};
use tegmen_ndn_host::client::Client;
use tegmen_ndn_host::tables::{HostFib, HostPit, Limits, Token};
use tegmen_ndn_host::uri::FaceUri;

/// Measures every forwarder that is installed. In each pass all forwarders are measured in turn.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() };
    for what in [What::Passed, What::Stored, What::StoredUdp] {
        scene(what, options, &mut report)?;
    }
    report.header.notes.push(entries()?);
    report.header.versions.insert("ours", format!("tegmen {}", env!("CARGO_PKG_VERSION")));
    report.header.versions.insert("ndnd", "1.5.3".into());
    report.header.notes.push(format!(
        "a consumer and a producer on Unix sockets, {WINDOW} Interests wait at once, contents of {CONTENT} bytes with a digest as signature, {} s a \
         pass; stored packets have {STORED} names; over UDP the echo server returns the Interests, each of which has {} bytes, and the Data \
         packets have {} bytes",
        options.seconds,
        Consumer::interest(What::StoredUdp, 1, 0).len(),
        data_len()
    ));
    Ok(report)
}

/// Fills the tables of a forwarder with a million names. Returns a note for the report, which states how many bytes of
/// memory an entry of each table needs.
fn entries() -> Result<String, Failure> {
    let number = |number: u32| {
        let mut name = [0; 40];
        let mut out = Writer::new(&mut name);
        let written = out.put(&prefix()).and_then(|()| Component::generic(&number.to_be_bytes()).write(&mut out));
        debug_assert!(written.is_ok());
        out.written().to_vec()
    };
    let before = own_memory()?;
    let mut fib = HostFib::default();
    for prefix in (0..ENTRIES).map(number) {
        fib.add(&Name::of_checked(&prefix), NextHop { face: FaceId(1), cost: 0 });
    }
    let of_fib = own_memory()?.saturating_sub(before) / u64::from(ENTRIES);
    let before = own_memory()?;
    let mut pit = HostPit::new(Limits { waiting_of_face: usize::MAX, ..Limits::default() });
    let expires = Tick::of(tegmen::time::Instant::from_micros(1 << 40));
    for (nonce, name) in (0..ENTRIES).map(|entry| (entry.to_be_bytes(), number(entry))) {
        let interest = Interest { name: Name::of_checked(&name), nonce: Some(nonce), ..Interest::default() };
        let mut storage = [0; 100];
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        let encoded = interest.write::<RustCrypto>(&mut frame);
        debug_assert!(encoded.is_ok());
        let received = ReceivedInterest::parse(frame.bytes()).map_err(|error| Failure::new(error.to_string()))?;
        let id = pit.insert(FaceId(1), &received, expires).ok_or_else(|| Failure::new("the table is full"))?;
        if let Some(entry) = pit.entry(id) {
            entry.ask(InRecord { face: FaceId(1), nonce, token: Token::default() });
            entry.send(OutRecord::new(FaceId(2), nonce, expires));
        }
        pit.set_timer(id, expires);
    }
    let of_pit = own_memory()?.saturating_sub(before) / u64::from(ENTRIES);
    if (fib.len(), pit.len()) != (ENTRIES as usize, ENTRIES as usize) {
        return Err(Failure::new("entries are missing"));
    }
    Ok(format!(
        "with {ENTRIES} names of {} bytes in our tables a prefix with one next hop takes {of_fib} bytes, an Interest that waits for one face \
         and one next hop {of_pit}",
        number(0).len()
    ))
}

/// Returns the size of this program's anonymous memory in bytes. Anonymous memory is not the content of a file.
fn own_memory() -> Result<u64, Failure> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").map_err(|error| Failure::new(error.to_string()))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(|| Failure::new("the system does not report the memory"))
}

fn scene(what: What, options: &Options, report: &mut Report) -> Result<(), Failure> {
    eprintln!("{}", what.operation());
    let (peer, bound) = what.peer();
    let mut forwarders = Vec::new();
    for kind in [Kind::Ours, peer] {
        match Forwarder::start(kind, what) {
            Ok(forwarder) => forwarders.push(forwarder),
            Err(reason) if kind == Kind::Ours => return Err(reason),
            Err(Failure(reason)) => {
                report.absent.push(Absent { name: kind.name(), reason, install: kind.install().into() });
                let row = Row::new(what.operation(), kind.name(), UNIT, None);
                let judged = Judged { binds: false, ..row.judge_bound(bound) };
                report.rows.push(Row { more_is_better: true, judged, ..row });
            }
        }
    }
    let mut samples = Samples::new(what.operation(), UNIT, true);
    let turns = forwarders.len();
    for pass in 0..options.passes {
        for turn in 0..turns {
            let forwarder = &mut forwarders[(pass + turn) % turns];
            samples.push(forwarder.kind.name(), forwarder.measure(options.seconds)?);
        }
    }
    for mut row in samples.rows() {
        if row.peer_name == peer.name() {
            row.judged = row.judge_bound(bound);
        }
        report.rows.push(row);
    }
    Ok(())
}

/// The source of the Data packets: the producer, or the content store of the forwarder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// The producer answers every Interest, because each name is new.
    Passed,
    /// The content store of the forwarder answers.
    Stored,
    /// The content store of the forwarder answers. The consumer is connected over UDP.
    StoredUdp,
}

impl What {
    fn operation(self) -> String {
        match self {
            Self::Passed => "Interest and Data packet through a forwarder of NDN".into(),
            Self::Stored => "Data packet from the content store of a forwarder of NDN".into(),
            Self::StoredUdp => "Data packet from the content store of a forwarder of NDN, over UDP".into(),
        }
    }

    /// Returns the program with which Tegmen is compared, and the minimum of Tegmen's speed as a multiple of the speed
    /// of this program.
    const fn peer(self) -> (Kind, f64) {
        match self {
            Self::Passed => (Kind::Ndnd, 5.0),
            Self::Stored => (Kind::Ndnd, 8.0),
            Self::StoredUdp => (Kind::Echo, 0.6),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ours,
    Ndnd,
    /// A server that returns each datagram to its sender. It shows the cost of the system calls.
    Echo,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Ours => OURS,
            Self::Ndnd => "ndnd",
            Self::Echo => "udp-echo",
        }
    }

    const fn install(self) -> &'static str {
        match self {
            Self::Ours => "cargo build --release -p tegmen-cli",
            Self::Ndnd => "bench/setup.sh ndnd",
            Self::Echo => "nothing, it is part of this program",
        }
    }

    /// Starts the forwarder, which listens on this Unix socket, or the echo server. Tegmen's forwarder and the echo
    /// server listen at this UDP port of 127.0.0.1.
    fn spawn(self, socket: &Path, port: u16) -> Result<Child, Failure> {
        let mut command = match self {
            Self::Ours => {
                let exe = std::env::current_exe().map_err(|error| Failure::new(error.to_string()))?;
                let program = exe.with_file_name("tegmen");
                if !program.is_file() {
                    return Err(ours::missing());
                }
                let mut command = Command::new(program);
                command.args(["ndn", "forward", "--udp", &format!("127.0.0.1:{port}"), "--unix"]).arg(socket);
                command
            }
            Self::Echo => {
                let words = echo::command(port)?;
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                command
            }
            Self::Ndnd => {
                let program = target()?.join("bench-peers/release/ndnd");
                if !program.is_file() {
                    return Err(Failure::new("not installed"));
                }
                let config = socket.with_extension("yml");
                let text = format!(
                    "core:\n  log_level: ERROR\nfaces:\n  udp:\n    enabled_unicast: false\n    enabled_multicast: false\n  tcp:\n    \
                     enabled: false\n  websocket:\n    enabled: false\n  http3:\n    enabled: false\n  unix:\n    enabled: true\n    \
                     socket_path: {}\n",
                    socket.display()
                );
                fs::write(&config, text).map_err(|error| Failure::new(error.to_string()))?;
                let mut command = Command::new(program);
                command.args(["fw", "run"]).arg(config);
                command
            }
        };
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map_err(|error| Failure::new(error.to_string()))
    }
}

/// A running forwarder, its producer and its consumer.
struct Forwarder {
    kind: Kind,
    what: What,
    child: Child,
    socket: PathBuf,
    consumer: Consumer,
    produced: Arc<AtomicU64>,
    /// `None` for the echo server.
    _producer: Option<JoinHandle<()>>,
}

impl Forwarder {
    fn start(kind: Kind, what: What) -> Result<Self, Failure> {
        let name = format!("tegmen-bench-{}-{}-{}.sock", std::process::id(), kind.name(), what as u8);
        let socket = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&socket);
        let port = free_port()?;
        let child = kind.spawn(&socket, port)?;
        let produced = Arc::new(AtomicU64::new(0));
        let mut producer = None;
        if kind != Kind::Echo {
            await_answer(kind, || UnixStream::connect(&socket).is_ok())?;
            producer = Some(produce(&socket, Arc::clone(&produced))?);
        }
        let link = match what {
            What::Passed | What::Stored => Link::unix(&socket),
            What::StoredUdp => Link::udp(port),
        };
        let link = link.map_err(|error| Failure::new(error.to_string()))?;
        let consumer = Consumer { link, is_echo: kind == Kind::Echo, asked: 0, nonce: 0 };
        let mut forwarder = Self { kind, what, child, socket, consumer, produced, _producer: producer };
        if kind == Kind::Echo {
            await_answer(kind, || forwarder.consumer.link.is_answered(b"ready?"))?;
        }
        forwarder.consumer.run(what, Duration::from_millis(300))?;
        Ok(forwarder)
    }

    /// Returns the number of Data packets that the forwarder forwards for each second of its CPU time.
    fn measure(&mut self, seconds: f64) -> Result<f64, Failure> {
        let before = (cpu_nanoseconds(self.child.id())?, self.produced.load(Ordering::Relaxed));
        let received = self.consumer.run(self.what, Duration::from_secs_f64(seconds))?;
        let spent = cpu_nanoseconds(self.child.id())?.saturating_sub(before.0);
        let produced = self.produced.load(Ordering::Relaxed) - before.1;
        let expected = if self.what == What::Passed { received } else { 0 };
        if produced.abs_diff(expected) > received / 20 {
            let name = self.kind.name();
            return Err(Failure::new(format!("{name}: the producer answered {produced} Interests of {received}")));
        }
        Ok(received as f64 * 1e9 / spent.max(1) as f64)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
        let _ = fs::remove_file(self.socket.with_extension("yml"));
    }
}

/// Waits until `is_ready` returns true.
fn await_answer(kind: Kind, mut is_ready: impl FnMut() -> bool) -> Result<(), Failure> {
    let begun = Instant::now();
    while !is_ready() {
        if begun.elapsed() > Duration::from_secs(20) {
            return Err(Failure::new(format!("{} opens no socket", kind.name())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Splits the bytes that arrive from a stream into TLV elements.
#[derive(Default)]
struct Elements {
    bytes: Vec<u8>,
}

impl Elements {
    /// Adds bytes of the stream. Calls `take` with each packet that is now complete.
    fn add(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) {
        self.bytes.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(len) = element_len(&self.bytes[start..]) {
            let Some(element) = self.bytes.get(start..start + len) else { break };
            take(packet(element));
            start += len;
        }
        self.bytes.drain(..start);
    }
}

fn element_len(bytes: &[u8]) -> Option<usize> {
    let (len, head) = match *bytes.get(1)? {
        253 => (usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?])), 4),
        len => (len.into(), 2),
    };
    Some(head + len)
}

/// Returns the packet that an LpPacket contains. An element that is not an LpPacket is returned itself.
fn packet(element: &[u8]) -> &[u8] {
    let fragment = tegmen_ndn::lp::LpPacket::parse(element).ok().and_then(|packet| packet.fragment);
    fragment.unwrap_or(element)
}

/// Starts the thread of the producer. The producer registers the prefix of its names at the forwarder.
fn produce(socket: &Path, produced: Arc<AtomicU64>) -> Result<JoinHandle<()>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&error))?;
    let mut client = runtime.block_on(async {
        let mut client = Client::connect(&FaceUri::Unix(socket.into())).await.map_err(|error| failed(&error))?;
        client.register(&Name::of_checked(&prefix())).await.map_err(|error| failed(&error))?;
        Ok::<_, Failure>(client)
    })?;
    Ok(std::thread::spawn(move || {
        runtime.block_on(async {
            let mut crypto = RustCrypto::new([1; 32]);
            let mut storage = [0; 1000];
            while let Ok(received) = client.receive().await {
                let tegmen_ndn_host::client::Received::Interest(packet) = received else { continue };
                let Ok(received) = ReceivedInterest::parse(&packet) else { continue };
                produced.fetch_add(1, Ordering::Relaxed);
                let mut frame = Frame::new(&mut storage, MAX_HEAD);
                write_data(received.interest.name, &mut crypto, &mut frame);
                if client.send(frame.bytes()).await.is_err() {
                    return;
                }
            }
        });
    }))
}

/// Writes the Data packet with this name into an empty frame.
fn write_data(name: Name<'_>, crypto: &mut RustCrypto, frame: &mut Frame<'_>) {
    let data = Data { name, freshness: Some(600_000), content: Some(&[7; CONTENT]), ..Data::default() };
    let written = data.write(crypto, &DigestSha256, frame);
    debug_assert!(written.is_ok());
}

/// Returns the length of a Data packet in bytes.
fn data_len() -> usize {
    let interest = Consumer::interest(What::Stored, 1, 0);
    let received = ReceivedInterest::parse(&interest);
    let mut storage = [0; 1000];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    if let Ok(received) = received {
        write_data(received.interest.name, &mut RustCrypto::new([1; 32]), &mut frame);
    }
    frame.len()
}

fn prefix() -> Vec<u8> {
    let mut bytes = [0; 40];
    let mut out = Writer::new(&mut bytes);
    let written = write_uri("/bench/house", &mut out);
    debug_assert!(written.is_ok());
    out.written().to_vec()
}

/// The connection of the consumer with the forwarder.
enum Link {
    Unix { stream: UnixStream, elements: Elements, interests: Vec<u8>, buffer: Vec<u8> },
    Udp { socket: UdpSocket, interests: Box<Batch>, packets: Box<Batch> },
}

impl Link {
    fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self::Unix { stream, elements: Elements::default(), interests: Vec::new(), buffer: vec![0; 1 << 16] })
    }

    fn udp(port: u16) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self::Udp { socket, interests: Box::new(Batch::new()), packets: Box::new(Batch::new()) })
    }

    /// Returns true if the echo server returns a datagram within 100 ms.
    fn is_answered(&mut self, datagram: &[u8]) -> bool {
        let Self::Udp { socket, .. } = self else { return false };
        let _ = socket.set_read_timeout(Some(Duration::from_millis(100)));
        let answer = socket.send(datagram).and_then(|_| socket.recv(&mut [0; 100]));
        let _ = socket.set_read_timeout(Some(PATIENCE));
        answer.is_ok_and(|len| len == datagram.len())
    }

    /// Queues an Interest.
    fn push(&mut self, interest: &[u8]) {
        match self {
            Self::Unix { interests, .. } => interests.extend_from_slice(interest),
            Self::Udp { interests, .. } => interests.push(|buffer| {
                buffer[..interest.len()].copy_from_slice(interest);
                interest.len()
            }),
        }
    }

    /// Sends the queued Interests.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix { stream, interests, .. } => {
                stream.write_all(interests)?;
                interests.clear();
            }
            Self::Udp { socket, interests, .. } => {
                interests.send(socket)?;
                interests.clear();
            }
        }
        Ok(())
    }

    /// Waits for packets, and calls `take` with each packet that has arrived.
    fn receive(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        match self {
            Self::Unix { stream, elements, buffer, .. } => {
                let len = stream.read(buffer)?;
                if len == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                elements.add(&buffer[..len], take);
            }
            Self::Udp { socket, packets, .. } => {
                packets.receive(socket)?;
                if packets.iter().next().is_none() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                packets.iter().for_each(|datagram| take(packet(datagram)));
            }
        }
        Ok(())
    }
}

struct Consumer {
    link: Link,
    /// True if an echo server returns the Interests.
    is_echo: bool,
    asked: u64,
    nonce: u32,
}

impl Consumer {
    /// Sends Interests for this time. Returns the number of packets that arrived: Data packets, or the Interests that an
    /// echo server returned.
    fn run(&mut self, what: What, duration: Duration) -> Result<u64, Failure> {
        let failed = |error: io::Error| Failure::new(format!("the forwarder does not answer: {error}"));
        let begun = Instant::now();
        let (mut waiting, mut received) = (0usize, 0u64);
        let expected = if self.is_echo { 5 } else { 6 };
        loop {
            let is_over = begun.elapsed() >= duration;
            while !is_over && waiting < WINDOW {
                self.asked += 1;
                self.nonce = self.nonce.wrapping_add(0x9e37_79b9);
                self.link.push(&Self::interest(what, self.asked, self.nonce));
                waiting += 1;
            }
            self.link.flush().map_err(failed)?;
            if waiting == 0 {
                return Ok(received);
            }
            let mut arrived = 0;
            let taken = self.link.receive(|packet| arrived += usize::from(packet.first() == Some(&expected)));
            taken.map_err(failed)?;
            waiting = waiting.saturating_sub(arrived);
            received += arrived as u64;
        }
    }

    /// Returns the Interest with this number and this Nonce.
    fn interest(what: What, number: u64, nonce: u32) -> Vec<u8> {
        let number = if what == What::Passed { number } else { number % STORED };
        let number = number.to_be_bytes();
        let mut name = [0; 80];
        let mut name = Writer::new(&mut name);
        let written = name.put(&prefix()).and_then(|()| Component::generic(&number).write(&mut name));
        let interest = Interest {
            name: Name::of_checked(name.written()),
            nonce: Some(nonce.to_be_bytes()),
            lifetime: Some(4000),
            ..Interest::default()
        };
        let mut storage = [0; 200];
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        let encoded = interest.write::<RustCrypto>(&mut frame);
        debug_assert!(written.is_ok() && encoded.is_ok());
        frame.bytes().to_vec()
    }
}

/// The number of names in the tables whose memory size is measured.
const ENTRIES: u32 = 1_000_000;
/// The time after which a forwarder that sends nothing counts as ended.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of Interests that wait for a Data packet at the same time.
const WINDOW: usize = 64;
/// Number of names whose Data packets are in the content store.
const STORED: u64 = 1000;
/// Length of the content of a Data packet, in bytes.
const CONTENT: usize = 100;
const UNIT: &str = "1/forwarder CPU s";
