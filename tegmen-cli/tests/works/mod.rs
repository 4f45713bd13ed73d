//! Shared parts of the tests of `tegmen serve`: the server, and a client that can send malformed messages.

use std::io::{BufRead as _, BufReader, Lines};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The directory of a test. It is empty at first, and is removed at the end.
pub(crate) struct Scene(pub(crate) PathBuf);

impl Scene {
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process of `tegmen serve`, or of another command of `tegmen` that runs until it is ended. [`Self::start`] starts
/// `tegmen serve` at free ports of 127.0.0.1. The process is killed at the latest when this value is dropped.
pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
    /// The addresses at which the server listens, in the order coaps, coap, metrics.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Starts `tegmen serve` with these options, and waits until it listens at `listens` addresses.
    pub(crate) fn start(dir: &Path, options: &[&str], listens: usize) -> Self {
        let ports = ["serve", "--listen", "127.0.0.1", "--port", "0", "--plain-port", "0"];
        Self::spawn(dir, &[&ports, options].concat(), listens)
    }

    /// Starts `tegmen` with these arguments, and waits until it listens at `listens` addresses.
    pub(crate) fn spawn(dir: &Path, arguments: &[&str], listens: usize) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments).current_dir(dir), listens)
    }

    /// Starts a command of `tegmen`, and waits until it listens at `listens` addresses.
    pub(crate) fn of(command: &mut Command, listens: usize) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut addresses = Vec::new();
        while addresses.len() < listens {
            let line = lines.next().expect("it listens").unwrap();
            let address: Option<SocketAddr> = ["\"address\":\"", "://"].iter().find_map(|before| {
                let (_, rest) = line.split_once(before)?;
                let end = rest.find(['"', '/']).unwrap_or(rest.len());
                rest[..end].parse().ok()
            });
            addresses.extend(address);
        }
        Self { process, lines, addresses }
    }

    /// Reads lines of the output up to a line that contains this text.
    pub(crate) fn wait_for(&mut self, text: &str) {
        assert!(self.lines.any(|line| line.unwrap().contains(text)), "{text}");
    }

    /// Ends the server with a signal, and returns its last lines.
    pub(crate) fn end(mut self) -> Vec<String> {
        let told = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status().unwrap();
        assert!(told.success());
        let lines = self.lines.by_ref().map(|line| line.unwrap()).collect();
        self.process.wait().unwrap();
        lines
    }
}

/// Returns the standard output of a program; empty if the program cannot be started.
pub(crate) fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A client of plain CoAP. It writes the bytes of each message itself.
pub(crate) struct Plain {
    socket: UdpSocket,
    next_id: u16,
}

impl Plain {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { socket, next_id: 0 }
    }

    /// Sends a confirmable request. The options must be in the order of their numbers. Returns the code of the response
    /// as a number, such as 205 for 2.05.
    pub(crate) fn ask(&mut self, code: u8, options: &[(u16, &[u8])], payload: &[u8]) -> u16 {
        self.next_id = self.next_id.wrapping_add(1);
        let [high, low] = self.next_id.to_be_bytes();
        let mut message = vec![0x41, code, high, low, 7];
        let mut before = 0;
        for (number, value) in options {
            let nibble = |n: usize| match n {
                0..13 => (n as u8, vec![]),
                13..269 => (13, vec![(n - 13) as u8]),
                _ => (14, ((n - 269) as u16).to_be_bytes().to_vec()),
            };
            let (delta, length) = (nibble(usize::from(number - before)), nibble(value.len()));
            message.push(delta.0 << 4 | length.0);
            message.extend([delta.1, length.1, value.to_vec()].concat());
            before = *number;
        }
        if !payload.is_empty() {
            message.push(0xff);
            message.extend(payload);
        }
        self.socket.send(&message).unwrap();
        let mut answer = [0; 2048];
        loop {
            let len = self.socket.recv(&mut answer).expect("the server answers");
            if len >= 4 && answer[2..4] == [high, low] {
                return u16::from(answer[1] >> 5) * 100 + u16::from(answer[1] & 31);
            }
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> u16 {
        self.ask(1, &[(URI_PATH, path.as_bytes())], b"")
    }
}

pub(crate) const URI_PATH: u16 = 11;
