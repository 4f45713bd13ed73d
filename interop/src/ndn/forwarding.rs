//! Tests of the forwarder of Tegmen and of the forwarder of ndnd. Each forwarder is tested with consumers and producers
//! of another project.

use super::packets::{KINDS, Keys};
use crate::cell::{Check, Role, Scene, holds};
use crate::peers::Built;
use crate::process::Process;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tegmen::crypto::RustCrypto;
use tegmen_ndn::{Data, Interest, Name, ReceivedData, ReceivedInterest};
use tegmen_ndn_host::client::{Client, Received, name_bytes};
use tegmen_ndn_host::uri::FaceUri;

type Row = (Role, &'static str, fn(&Scene, &Built) -> Check);

/// The scenarios of ndnd's program.
pub(super) const NDND: &[Row] = &[
    (Role::Client, "NDN: a megabyte at our forwarder", ndnd_cat),
    (Role::Server, "NDN: a megabyte at our forwarder", ndnd_put),
    (Role::Client, "NDN: pings at our forwarder", ndnd_ping),
    (Role::Server, "NDN: pings at our forwarder", ndnd_ping_server),
    (Role::Client, "NDN: status, faces and routes of our forwarder", ndnd_status),
    (Role::Reader, "NDN: a megabyte from us to us at its forwarder", ndnd_forwards),
    (Role::Reader, "NDN: a megabyte through its forwarder and ours", ndnd_forwards_to_ours),
];

/// The scenarios of programs that use python-ndn.
pub(super) const PYTHON: &[Row] = &[
    (Role::Client, "NDN: each kind of signature at our forwarder", python_consumes),
    (Role::Server, "NDN: each kind of signature at our forwarder", python_produces),
    (Role::Client, "NDN: a Nack for a name without a route", python_is_refused),
    (Role::Client, "NDN: two consumers, one Interest at the producer", python_is_aggregated),
];

/// Returns a new path for a socket. A path in the directory of a scenario would be longer than the 107 bytes that Unix
/// sockets allow.
fn new_socket() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("tegmen-interop-{}-{number}.sock", std::process::id()))
}

/// Starts Tegmen's forwarder. Returns its process and the path of its socket.
pub(super) fn forwarder(scene: &Scene, more: &[&str]) -> Result<(Process, PathBuf), String> {
    let socket = new_socket();
    let path = socket.display().to_string();
    let process = scene.tegmen(&[&["ndn", "forward", "--unix", &path], more].concat())?;
    process.await_output("listening on unix", 0)?;
    Ok((process, socket))
}

/// Starts the forwarder of ndnd. Returns its process and the path of its socket.
fn their_forwarder(scene: &Scene, program: &Built) -> Result<(Process, PathBuf), String> {
    let socket = new_socket();
    let config = format!(
        "core:\n  log_level: INFO\nfaces:\n  udp:\n    enabled_unicast: false\n    enabled_multicast: false\n  tcp:\n    \
         enabled: false\n  websocket:\n    enabled: false\n  http3:\n    enabled: false\n  unix:\n    enabled: true\n    \
         socket_path: {}\n",
        socket.display()
    );
    let file = scene.file("ndnd.yml", config)?;
    let mut command = program.command()?;
    command.args(["fw", "run"]).arg(file);
    let process = scene.start_command(command)?;
    while !socket.exists() {
        if std::time::Instant::now() > scene.deadline {
            return Err("the forwarder of ndnd opens no socket".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((process, socket))
}

/// Adds `arguments` to `command`, and sets the environment variable with which the program finds the forwarder at
/// `socket`.
fn at(socket: &Path, mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments).env("NDN_CLIENT_TRANSPORT", format!("unix://{}", socket.display()));
    command
}

/// Starts a program of ndnd.
fn theirs(scene: &Scene, program: &Built, socket: &Path, arguments: &[&str]) -> Result<Process, String> {
    scene.start_command(at(socket, program.command()?, arguments))
}

/// Starts `tegmen ndn`.
pub(super) fn ours(scene: &Scene, socket: &Path, arguments: &[&str]) -> Result<Process, String> {
    scene.start_command(at(socket, scene.tegmen_command(&["ndn"]), arguments))
}

const MEGABYTE: usize = 1_000_000;

/// Writes a file of a megabyte whose segments are all different. Returns its content and its path.
fn megabyte(scene: &Scene) -> Result<(Vec<u8>, String), String> {
    let content: Vec<u8> =
        (0..MEGABYTE as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let path = scene.file("megabyte", &content)?;
    Ok((content, path.display().to_string()))
}

/// Checks that the process ends, and has printed the content.
fn prints(mut process: Process, content: &[u8]) -> Check {
    let status = process.await_end()?;
    if !status.success() {
        return Err(format!("the consumer fails: {}", process.err.text().trim()).into());
    }
    if process.out.bytes() == content { Ok(()) } else { Err("the content differs".into()) }
}

fn ndnd_cat(scene: &Scene, program: &Built) -> Check {
    let (content, path) = megabyte(scene)?;
    let (_forwarder, socket) = forwarder(scene, &[])?;
    let producer = ours(scene, &socket, &["put", "/big", &path])?;
    producer.await_output("is published", 0)?;
    prints(theirs(scene, program, &socket, &["cat", "/big"])?, &content)
}

/// Starts `ndnd put`, and waits until its prefix is registered.
fn put(scene: &Scene, program: &Built, socket: &Path, content: &[u8]) -> Result<Process, String> {
    let mut producer = theirs(scene, program, socket, &["put", "/big"])?;
    producer.write(content)?;
    producer.close_input();
    producer.await_error("Object produced", 0)?;
    loop {
        let mut list = theirs(scene, program, socket, &["fw", "route-list"])?;
        list.await_end()?;
        if list.out.text().contains("/big") {
            return Ok(producer);
        }
    }
}

fn ndnd_put(scene: &Scene, program: &Built) -> Check {
    let (content, _) = megabyte(scene)?;
    let (_forwarder, socket) = forwarder(scene, &[])?;
    let _producer = put(scene, program, &socket, &content)?;
    prints(ours(scene, &socket, &["get", "/big"])?, &content)
}

fn ndnd_ping(scene: &Scene, program: &Built) -> Check {
    let (_forwarder, socket) = forwarder(scene, &[])?;
    let producer = ours(scene, &socket, &["serve", "--ping", "/house"])?;
    producer.await_output("is registered", 0)?;
    let consumer = theirs(scene, program, &socket, &["ping", "/house", "-c", "3", "-i", "100", "-t", "1000"])?;
    consumer.await_output("3 interests transmitted, 3 received, 0% lost", 0)?;
    Ok(())
}

fn ndnd_ping_server(scene: &Scene, program: &Built) -> Check {
    let (_forwarder, socket) = forwarder(scene, &[])?;
    let _producer = theirs(scene, program, &socket, &["pingserver", "/house"])?;
    loop {
        let ping = ["ping", "/house", "--count", "3", "--interval", "50", "--lifetime", "1000"];
        let mut consumer = ours(scene, &socket, &ping)?;
        consumer.await_end()?;
        let told = consumer.out.text();
        // Until the prefix is registered there is no route.
        if !told.contains("no route") {
            return holds(&told, &["3 answers, 0 lost"]);
        }
    }
}

fn ndnd_status(scene: &Scene, program: &Built) -> Check {
    let (_forwarder, socket) = forwarder(scene, &[])?;
    let producer = ours(scene, &socket, &["serve", "--value", "/house/temp=21.5"])?;
    producer.await_output("is registered", 0)?;
    for (dataset, wanted) in [
        ("status", &["version=tegmen", "nFibEntries=2"][..]),
        ("face-list", &["faceid=1", "remote=unix://"]),
        ("route-list", &["prefix=/house/temp nexthop=1"]),
        ("fib-list", &["/house/temp"]),
    ] {
        let mut list = theirs(scene, program, &socket, &["fw", dataset])?;
        list.await_end()?;
        holds(&list.out.text(), wanted)?;
    }
    Ok(())
}

fn ndnd_forwards(scene: &Scene, program: &Built) -> Check {
    let (content, path) = megabyte(scene)?;
    let (_forwarder, socket) = their_forwarder(scene, program)?;
    let producer = ours(scene, &socket, &["put", "/big", &path])?;
    producer.await_output("is published", 0)?;
    prints(ours(scene, &socket, &["get", "/big"])?, &content)
}

fn ndnd_forwards_to_ours(scene: &Scene, program: &Built) -> Check {
    let (content, path) = megabyte(scene)?;
    let (_theirs, behind) = their_forwarder(scene, program)?;
    let producer = ours(scene, &behind, &["put", "/big", &path])?;
    producer.await_output("is published", 0)?;
    let route = format!("/=unix://{}", behind.display());
    let (_ours, socket) = forwarder(scene, &["--route", &route])?;
    prints(ours(scene, &socket, &["get", "/big"])?, &content)
}

/// A Tegmen producer in a thread. It answers Interests for `/house`. The second component of the name selects the kind
/// of the signature.
struct Producer {
    /// The number of Interests that arrived.
    interests: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
    end: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Producer {
    fn start(socket: PathBuf, delay: Duration) -> Result<Self, String> {
        let interests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&interests);
        let (end, ended) = tokio::sync::oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let run = async {
                tokio::select! {
                    result = answer(socket, &tell, &count, delay) => {
                        let _ = tell.send(result);
                    }
                    _ = ended => {}
                }
            };
            if let Ok(runtime) = runtime() {
                runtime.block_on(run);
            }
        });
        told.recv().map_err(|_| "the producer ends")??;
        Ok(Self { interests, thread: Some(thread), end: Some(end) })
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}

async fn answer(
    socket: PathBuf,
    tell: &std::sync::mpsc::Sender<Result<(), String>>,
    count: &AtomicUsize,
    delay: Duration,
) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let keys = Keys::new()?;
    let mut client = Client::connect(&FaceUri::Unix(socket)).await.map_err(|error| text(&error))?;
    let prefix = name_bytes("/house").map_err(|error| text(&error))?;
    client.register(&Name::of_checked(&prefix)).await.map_err(|error| text(&error))?;
    let _ = tell.send(Ok(()));
    loop {
        let Received::Interest(packet) = client.receive().await.map_err(|error| text(&error))? else { continue };
        count.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(delay).await;
        let received = ReceivedInterest::parse(&packet).map_err(|error| text(&error))?;
        let name = received.interest.name;
        let content = name.to_string().into_bytes();
        let data = Data { name, freshness: Some(0), content: Some(&content), ..Data::default() };
        let kind = name.last().and_then(|last| last.value.first()).map_or(0, |digit| digit.wrapping_sub(b'0'));
        let kind = KINDS.into_iter().find(|known| known.0 == u64::from(kind)).unwrap_or(KINDS[0]);
        let signed = keys.with_signer(kind, |signer| client.sign(&data, signer));
        client.send(&signed.map_err(|error| text(&error))?).await.map_err(|error| text(&error))?;
    }
}

/// Runs a program that uses python-ndn.
pub(super) fn python(
    scene: &Scene,
    program: &Built,
    verb: &str,
    socket: &Path,
    rest: &[&str],
) -> Result<Process, String> {
    let mut command = program.command()?;
    command.arg(verb).arg(socket).args(rest);
    scene.start_command(command)
}

fn python_consumes(scene: &Scene, program: &Built) -> Check {
    let (_forwarder, socket) = forwarder(scene, &[])?;
    let _producer = Producer::start(socket.clone(), Duration::ZERO)?;
    for kind in KINDS {
        let (name, kind) = (format!("/house/{}", kind.0), kind.0.to_string());
        let mut consumer = python(scene, program, "consume", &socket, &[&name, &kind])?;
        consumer.await_end()?;
        holds(&consumer.out.text(), &[&format!("content {name}")])?;
    }
    // A signature of another kind than the consumer expects is noticed.
    let mut consumer = python(scene, program, "consume", &socket, &["/house/0/4", "5"])?;
    consumer.await_end()?;
    holds(&consumer.out.text(), &["wrong signature"])
}

fn python_produces(scene: &Scene, program: &Built) -> Check {
    let (_forwarder, socket) = forwarder(scene, &[])?;
    let keys = Keys::new()?;
    for kind in KINDS {
        let prefix = format!("/house/{}", kind.0);
        let producer = python(scene, program, "produce", &socket, &[&prefix, &kind.0.to_string()])?;
        producer.await_output("registered", 0)?;
        let packet = ask(&socket, &format!("{prefix}/temp"))?;
        let received = ReceivedData::parse(&packet).map_err(|error| error.to_string())?;
        if received.signed.info.kind != kind {
            return Err(format!("the kind of the signature is {}", received.signed.info.kind.0).into());
        }
        keys.verify(&mut RustCrypto::new([1; 32]), &received.signed)?;
    }
    Ok(())
}

/// Sends an Interest with Tegmen's consumer. Returns the Data packet.
fn ask(socket: &Path, name: &str) -> Result<Vec<u8>, String> {
    runtime()?.block_on(async {
        let mut client = Client::connect(&FaceUri::Unix(socket.to_owned())).await.map_err(|error| error.to_string())?;
        let name = name_bytes(name).map_err(|error| error.to_string())?;
        let interest = Interest { name: Name::of_checked(&name), ..Interest::default() };
        client.ask(&interest, Duration::from_secs(4)).await.map_err(|error| error.to_string())
    })
}

fn python_is_refused(scene: &Scene, program: &Built) -> Check {
    let (_forwarder, socket) = forwarder(scene, &[])?;
    let mut consumer = python(scene, program, "consume", &socket, &["/none", "0"])?;
    consumer.await_end()?;
    holds(&consumer.out.text(), &["nack 150"])
}

fn python_is_aggregated(scene: &Scene, program: &Built) -> Check {
    let (_forwarder, socket) = forwarder(scene, &[])?;
    let producer = Producer::start(socket.clone(), Duration::from_secs(3))?;
    let start = || python(scene, program, "consume", &socket, &["/house/0", "0"]);
    for mut consumer in [start()?, start()?] {
        consumer.await_end()?;
        holds(&consumer.out.text(), &["content /house/0"])?;
    }
    match producer.interests.load(Ordering::Relaxed) {
        1 => Ok(()),
        count => Err(format!("the producer received {count} Interests").into()),
    }
}
