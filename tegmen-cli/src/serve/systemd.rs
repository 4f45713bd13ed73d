//! The interface to a service manager such as systemd. The service manager passes sockets to the server
//! (sd_listen_fds). The server reports its state (sd_notify), and reports regularly that it works (the watchdog).

use crate::output::Failure;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

/// The sockets that the service manager has bound and passed to this process.
#[derive(Default)]
pub(super) struct Sockets {
    pub(super) udp: Vec<UdpSocket>,
    pub(super) tcp: Vec<TcpListener>,
}

impl Sockets {
    /// Takes the sockets that LISTEN_FDS and LISTEN_PID name for this process. Call this function before the process
    /// has other threads.
    pub(super) fn inherited() -> Result<Self, Failure> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut passed = listenfd::ListenFd::from_env();
        let mut sockets = Self::default();
        for number in 0..passed.len() {
            if let Ok(Some(udp)) = passed.take_udp_socket(number) {
                sockets.udp.push(udp);
            } else if let Ok(Some(tcp)) = passed.take_tcp_listener(number) {
                sockets.tcp.push(tcp);
            } else {
                let name = names.split(':').nth(number).filter(|name| !name.is_empty()).unwrap_or("without a name");
                return Err(Failure::usage(format!(
                    "descriptor {} ({name}), which was passed by LISTEN_FDS, is neither a UDP nor a TCP socket: use ListenDatagram= \
                     and ListenStream= with IP addresses in the socket unit",
                    3 + number
                )));
            }
        }
        Ok(sockets)
    }

    /// Removes the inherited TCP listener that is bound to `address` from the sockets, and returns the listener. This
    /// listener serves the HTTP pages. Returns `None` if there is no such listener. Fails if the process inherited
    /// another TCP listener.
    pub(super) fn take_listener(
        &mut self,
        address: Option<std::net::SocketAddr>,
    ) -> Result<Option<TcpListener>, Failure> {
        let is_it = |listener: &TcpListener| address.is_some() && listener.local_addr().ok() == address;
        let found = self.tcp.iter().position(is_it).map(|at| self.tcp.swap_remove(at));
        match self.tcp.first() {
            None => Ok(found),
            Some(left) => Err(Failure::usage(format!(
                "a TCP socket {}was passed by LISTEN_FDS, and nothing is served there: name its address with --metrics, or do not pass it",
                left.local_addr().map(|address| format!("of {address} ")).unwrap_or_default()
            ))),
        }
    }
}

/// The connection to the service manager. If there is no service manager, the reports have no effect.
pub(crate) struct Manager {
    #[cfg(unix)]
    socket: Option<std::os::unix::net::UnixDatagram>,
}

impl Manager {
    /// Connects to the socket that NOTIFY_SOCKET names: a path, or on Linux `@` and an abstract name.
    #[cfg(unix)]
    pub(crate) fn of_environment() -> Result<Self, Failure> {
        use std::os::unix::net::{SocketAddr, UnixDatagram};
        let Some(name) = std::env::var("NOTIFY_SOCKET").ok().filter(|name| !name.is_empty()) else {
            return Ok(Self { socket: None });
        };
        let connect = || {
            let address = match name.strip_prefix('@') {
                #[cfg(target_os = "linux")]
                Some(name) => <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)?,
                _ if name.starts_with('/') => SocketAddr::from_pathname(&name)?,
                _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "a path or an abstract name is expected")),
            };
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address)?;
            // A manager that does not read must not stop the server.
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket =
            connect().map_err(|error| Failure::usage(format!("NOTIFY_SOCKET={name} cannot be used: {error}")))?;
        Ok(Self { socket: Some(socket) })
    }

    #[cfg(not(unix))]
    pub(crate) fn of_environment() -> Result<Self, Failure> {
        Ok(Self {})
    }

    /// Reports a state, as lines of the form NAME=VALUE. If the manager has ended or does not read, the report is lost.
    pub(crate) fn report(&self, state: &str) {
        #[cfg(unix)]
        if let Some(socket) = &self.socket {
            let _ = socket.send(state.as_bytes());
        }
        #[cfg(not(unix))]
        let _ = state;
    }

    /// Reports that the server reads its configuration again. [`Self::report`] with READY=1 reports the end of the
    /// reload.
    pub(super) fn report_reload(&self) {
        self.report(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_micros()));
    }
}

/// Returns the time of CLOCK_MONOTONIC in microseconds.
fn monotonic_micros() -> i64 {
    #[cfg(target_os = "linux")]
    {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec * 1_000_000 + now.tv_nsec / 1000
    }
    #[cfg(not(target_os = "linux"))]
    0
}

/// Returns half of the time after which the service manager considers a silent server stuck. Returns `None` if the
/// service manager does not watch this process (WATCHDOG_USEC, WATCHDOG_PID).
pub(super) fn watchdog() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let of_other = std::env::var("WATCHDOG_PID").is_ok_and(|pid| pid.parse() != Ok(std::process::id()));
    number("WATCHDOG_USEC")
        .filter(|micros| *micros > 0 && !of_other)
        .map(|micros| Duration::from_micros(micros.div_ceil(2)))
}
