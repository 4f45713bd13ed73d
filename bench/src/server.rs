//! The server processes that the benchmarks measure.

use crate::{ours, report::BASE};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
};
use tegmen_bench_line::Failure;

/// The server with which Tegmen's server is compared in each row of the report.
#[derive(Clone, Copy)]
pub(crate) enum Beside<'a> {
    Libcoap,
    /// Tegmen's server of another commit. Its programs are in this directory.
    Base(&'a Path),
}

impl Beside<'_> {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Libcoap => "libcoap-notls",
            Self::Base(_) => BASE,
        }
    }

    /// Returns the command that installs the server.
    pub(crate) const fn install(self) -> &'static str {
        match self {
            Self::Libcoap => "apt-get install libcoap3-bin",
            Self::Base(_) => "nothing, the base has no such server",
        }
    }

    /// Returns the command line that starts the server at `port`. A server of Tegmen gets `values` and the options
    /// `ours`. Any other server gets the options `peer`. Returns `None` if the program `tegmen` does not exist.
    pub(crate) fn command(self, port: u16, values: &[&str], ours: &[&str], peer: &[&str]) -> Option<Vec<String>> {
        match self {
            Self::Libcoap => Some(libcoap_command("notls", port, peer)),
            Self::Base(programs) => ours::serve_command_in(programs, port, values, ours),
        }
    }
}

/// Returns the command line that starts libcoap's example server on 127.0.0.1. `library` is the TLS library with which
/// the server was built.
pub(crate) fn libcoap_command(library: &str, port: u16, options: &[&str]) -> Vec<String> {
    let words = format!("coap-server-{library} -A 127.0.0.1 -p {port}");
    words.split(' ').chain(options.iter().copied()).map(String::from).collect()
}

/// A running server. It ends when this value is dropped.
pub(crate) struct Process {
    child: Child,
    /// The address at which the server listens.
    pub(crate) address: SocketAddrV4,
}

impl Process {
    /// Starts a server. `words` returns its command line for a port, or `None` if the program `tegmen` does not exist.
    pub(crate) fn start(words: impl FnOnce(u16) -> Option<Vec<String>>) -> Result<Self, Failure> {
        Self::start_with(words, Stdio::null())
    }

    /// Starts the server in the same way as [`Self::start`] does, with `stderr` as its standard error.
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

    /// Returns the CPU time of all threads of the server in nanoseconds, as the scheduler counts it. This count has a
    /// finer resolution than the clock ticks in `stat`.
    pub(crate) fn cpu_nanoseconds(&self) -> Result<u64, Failure> {
        cpu_nanoseconds(self.child.id())
    }

    /// Returns the size of the server's anonymous memory in bytes. Anonymous memory is not the content of a file.
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

/// Returns the CPU time of a process in nanoseconds, as the scheduler counts it. The time includes that of threads that
/// have ended.
#[expect(unsafe_code, reason = "the standard library does not read the clocks of processes")]
pub(crate) fn cpu_nanoseconds(process: u32) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("the CPU time of process {process}: {error}"));
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: `clock` is there during the call, which writes a number to it.
    let error = unsafe { libc::clock_getcpuclockid(process as libc::pid_t, &raw mut clock) };
    if error != 0 {
        return Err(failed(std::io::Error::from_raw_os_error(error)));
    }
    // SAFETY: `time` is there during the call, which writes two numbers to it.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(failed(std::io::Error::last_os_error()));
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns a port that is free at the time of the call.
pub(crate) fn free_port() -> Result<u16, Failure> {
    let probe = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    probe.map(|address| address.port()).map_err(|e| Failure::new(e.to_string()))
}

#[cfg(test)]
mod tests;
