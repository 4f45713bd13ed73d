//! Opens a session over a UDP socket of the standard library: `cargo run --release -p mote-nal -- SERVER IDENTITY KEY`.
//! The key is in hexadecimal digits.
//!
//! The program reads `/temp` from the server, writes `on` to `/led`, and ends the session.

use embassy_futures::{block_on, yield_now};
use embedded_hal_async::delay::DelayNs;
use embedded_nal_async::ConnectedUdp;
use mote_client::{Client, Code, Credentials, Path, Response, bytes_of_hex};
use mote_nal::Session;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// A UDP socket that implements the trait of `embedded-nal-async`. It never blocks: if no datagram has arrived, the
/// future that receives a datagram tries again after a millisecond.
struct Socket(UdpSocket);

impl ConnectedUdp for Socket {
    type Error = io::Error;

    async fn send(&mut self, datagram: &[u8]) -> Result<(), io::Error> {
        self.0.send(datagram).map(drop)
    }

    async fn receive_into(&mut self, buffer: &mut [u8]) -> Result<usize, io::Error> {
        loop {
            match self.0.recv(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => pause().await,
                result => return result,
            }
        }
    }
}

/// A timer that implements the trait of `embedded-hal-async`.
struct Delay;

impl DelayNs for Delay {
    async fn delay_ns(&mut self, nanos: u32) {
        let end = Instant::now() + Duration::from_nanos(nanos.into());
        while Instant::now() < end {
            pause().await;
        }
    }
}

/// Sleeps for a millisecond, and then lets other futures run.
async fn pause() {
    std::thread::sleep(Duration::from_millis(1));
    yield_now().await;
}

/// Returns the time since the first call of this function.
fn now() -> mote_client::Instant {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    mote_client::Instant::default().after(BEGIN.elapsed())
}

async fn converse(server: SocketAddr, credentials: Credentials<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    let path = Path { local: socket.local_addr()?.into(), remote: server.into() };
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| error.to_string())?;
    let client = Client::new(path, credentials, seed);

    let session = Session::connect(Socket(socket), Delay, now, client).await;
    let mut session = session.map_err(|error| error.to_string())?;
    println!("the server has the same key");
    for (name, code, path, payload) in [("GET /temp", Code::GET, "temp", ""), ("PUT /led", Code::PUT, "led", "on")] {
        let response = session.request(code, path, payload.as_bytes()).await;
        let Response { code, payload } = response.map_err(|error| error.to_string())?;
        println!("{name}: {code} {}", String::from_utf8_lossy(&payload));
    }
    session.close().await.map_err(|error| error.to_string())?;
    Ok(())
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, identity, key] = arguments.as_slice() else {
        return Err("name the server, the identity and the key: ADDRESS:PORT IDENTITY KEY".into());
    };
    let server = server.parse().map_err(|_| format!("{server} is not ADDRESS:PORT"))?;
    let key = bytes_of_hex::<32>(key).ok_or("the key is not one of at most 32 bytes in hex")?;
    let credentials = Credentials { identity: identity.as_bytes(), key: &key };
    block_on(converse(server, credentials))
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
