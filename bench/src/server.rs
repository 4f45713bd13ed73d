//! Servers that rows measure as processes of their own.

use crate::{ours, report::BASE};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
};
use tegmen_bench_line::Failure;

/// The server that each row compares with ours.
#[derive(Clone, Copy)]
pub(crate) enum Beside<'a> {
    Libcoap,
    /// Ours of another commit, whose programs are in this directory.
    Base(&'a Path),
}

impl Beside<'_> {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Libcoap => "libcoap-notls",
            Self::Base(_) => BASE,
        }
    }

    /// The command that installs it.
    pub(crate) const fn install(self) -> &'static str {
        match self {
            Self::Libcoap => "apt-get install libcoap3-bin",
            Self::Base(_) => "nothing, the base has no such server",
        }
    }

    /// The words that start it at `port`: with `values` and the options `ours` if it is ours, with the options `peer`
    /// if not.
    pub(crate) fn command(self, port: u16, values: &[&str], ours: &[&str], peer: &[&str]) -> Option<Vec<String>> {
        match self {
            Self::Libcoap => Some(libcoap_command("notls", port, peer)),
            Self::Base(programs) => ours::serve_command_in(programs, port, values, ours),
        }
    }
}

/// The words that start libcoap's example server on 127.0.0.1, by the TLS library it was built with.
pub(crate) fn libcoap_command(library: &str, port: u16, options: &[&str]) -> Vec<String> {
    let words = format!("coap-server-{library} -A 127.0.0.1 -p {port}");
    words.split(' ').chain(options.iter().copied()).map(String::from).collect()
}

/// A server that runs, until this is dropped.
pub(crate) struct Process {
    child: Child,
    /// The address on which it listens.
    pub(crate) address: SocketAddrV4,
}

impl Process {
    /// Starts the server that these words describe for a port; `None` if `tegmen` is missing.
    pub(crate) fn start(words: impl FnOnce(u16) -> Option<Vec<String>>) -> Result<Self, Failure> {
        Self::start_with(words, Stdio::null())
    }

    /// Starts the server as [`Self::start`] does, with this standard error.
    pub(crate) fn start_with(words: impl FnOnce(u16) -> Option<Vec<String>>, stderr: Stdio) -> Result<Self, Failure> {
        let port = free_port()?;
        let words = words(port).ok_or_else(ours::missing)?;
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|e| Failure::new(format!("{}: {e}", words[0])))?;
        Ok(Self { child, address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port) })
    }

    /// Its CPU time, every thread of it, as the scheduler counts it: finer than the ticks of `stat`.
    pub(crate) fn cpu_nanoseconds(&self) -> Result<u64, Failure> {
        cpu_nanoseconds(self.child.id())
    }

    /// Bytes of memory that are its own and no file's.
    pub(crate) fn memory(&self) -> Result<u64, Failure> {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id()));
        let rollup = rollup.map_err(|e| Failure::new(e.to_string()))?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(|| Failure::new("the system does not report the memory"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The CPU time of a process, every thread that it has, as the scheduler counts it.
pub(crate) fn cpu_nanoseconds(process: u32) -> Result<u64, Failure> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).map_err(|e| Failure::new(e.to_string()))?;
    let mut total = 0;
    for thread in threads.flatten() {
        let statistics = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        total += statistics.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    }
    Ok(total)
}

/// A port that was free just now.
pub(crate) fn free_port() -> Result<u16, Failure> {
    let probe = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    probe.map(|address| address.port()).map_err(|e| Failure::new(e.to_string()))
}
