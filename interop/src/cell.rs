//! One row of the result table. A row (called a cell in this program) is a scenario with a peer in one role. The module
//! also has the directory and the time limit with which a scenario runs.

use crate::process::Process;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The role of the peer in a scenario. Tegmen has the other role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Server,
    Client,
    /// The peer decodes the traffic between a client and a server.
    Reader,
}

impl Role {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Reader => "reader",
        }
    }
}

/// The reason why a scenario did not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// The scenario failed. Contains the cause.
    Failed(String),
    /// The peer does not support the scenario. Contains the evidence.
    Lacks(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<&str> for Trouble {
    fn from(why: &str) -> Self {
        Self::Failed(why.to_owned())
    }
}

pub(crate) type Check = Result<(), Trouble>;

/// Checks that `text` contains every string of `wanted`.
pub(crate) fn holds(text: &str, wanted: &[&str]) -> Check {
    match wanted.iter().find(|wanted| !text.contains(**wanted)) {
        None => Ok(()),
        Some(missing) => Err(format!("{missing:?} is missing").into()),
    }
}

/// The function that runs a scenario.
type Play = Box<dyn Fn(&Scene) -> Check + Send + Sync>;

/// A row of the result table: a peer, its version, its role, a scenario, and the function that runs the scenario.
pub(crate) struct Cell {
    pub(crate) peer: String,
    pub(crate) version: String,
    pub(crate) role: Role,
    pub(crate) scenario: String,
    play: Play,
}

impl Cell {
    pub(crate) fn new(
        peer: &str,
        version: &str,
        role: Role,
        scenario: &str,
        play: impl Fn(&Scene) -> Check + Send + Sync + 'static,
    ) -> Self {
        let (peer, version, scenario) = (peer.to_owned(), version.to_owned(), scenario.to_owned());
        Self { peer, version, role, scenario, play: Box::new(play) }
    }

    /// Returns the peer, its role and the scenario as one text, which `--only` searches.
    pub(crate) fn name(&self) -> String {
        format!("{} {} {}", self.peer, self.role.name(), self.scenario)
    }

    /// Runs the scenario of this row of the result table. If the scenario does not pass, its files remain in a
    /// directory under `logs`.
    pub(crate) fn run(&self, tegmen: &Path, logs: &Path) -> Check {
        let name: String = self.name().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let directory = logs.join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let scene = Scene {
            tegmen: tegmen.to_owned(),
            directory: directory.clone(),
            deadline: Instant::now() + TIME_LIMIT,
            started: AtomicUsize::new(0),
        };
        let result = (self.play)(&scene);
        if result.is_ok() {
            let _ = fs::remove_dir_all(&directory);
        }
        result
    }
}

/// The data of one run of a scenario: the path of the `tegmen` binary, the directory of the run, and its deadline.
pub(crate) struct Scene {
    tegmen: PathBuf,
    directory: PathBuf,
    pub(crate) deadline: Instant,
    started: AtomicUsize,
}

impl Scene {
    /// Returns a copy of this value with a new deadline, for the part of a scenario after a long wait, such as the
    /// build of a peer.
    pub(crate) fn with_new_deadline(&self) -> Self {
        Self {
            tegmen: self.tegmen.clone(),
            directory: self.directory.clone(),
            deadline: Instant::now() + TIME_LIMIT,
            started: AtomicUsize::new(self.started.load(Ordering::Relaxed)),
        }
    }

    /// Returns the directory in which the programs of the scenario run.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a file into the directory. Returns its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf, String> {
        let path = self.directory.join(name);
        fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// Starts a program in the directory of the scenario.
    pub(crate) fn start(&self, program: &str, arguments: &[&str]) -> Result<Process, String> {
        let mut command = Command::new(program);
        command.args(arguments);
        self.start_command(command)
    }

    /// Starts a program from `command`, which may also set the environment and the directory of the program. If the
    /// command names no directory, the program runs in the directory of the scenario.
    pub(crate) fn start_command(&self, mut command: Command) -> Result<Process, String> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = self.directory.join(format!("{number}-{program}"));
        if command.get_current_dir().is_none() {
            command.current_dir(&self.directory);
        }
        for name in ["TEGMEN_IDENTITY", "TEGMEN_KEY", "TEGMEN_CREDENTIALS", "TEGMEN_OSCORE", "SSLKEYLOGFILE"] {
            command.env_remove(name);
        }
        Process::start(command, log, self.deadline)
    }

    /// Starts `tegmen`.
    pub(crate) fn tegmen(&self, arguments: &[&str]) -> Result<Process, String> {
        self.start_command(self.tegmen_command(arguments))
    }

    /// Returns the command that [`Self::tegmen`] starts.
    pub(crate) fn tegmen_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.tegmen);
        command.args(arguments);
        command
    }
}

/// The address that peers and Tegmen use.
pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Returns an address of `host` with a free port.
pub(crate) fn address(host: IpAddr) -> Result<SocketAddr, String> {
    Ok((host, free_port()?).into())
}

/// Returns a free UDP port. The next port is also free, because libcoap uses two ports. No port is returned twice.
pub(crate) fn free_port() -> Result<u16, String> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below the ports that the system gives to clients. The start depends on the process, so that two runs use
    // different ports.
    const FIRST: u16 = 17_000;
    const PAIRS: u16 = 7_000;
    let start = (std::process::id() % u32::from(PAIRS)) as u16;
    for _ in 0..PAIRS {
        let port = FIRST + 2 * ((start + NEXT.fetch_add(1, Ordering::Relaxed) % PAIRS) % PAIRS);
        let taken = |address: IpAddr, port| {
            UdpSocket::bind((address, port)).is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
        };
        let free = |port| !taken(Ipv4Addr::LOCALHOST.into(), port) && !taken(Ipv6Addr::LOCALHOST.into(), port);
        if free(port) && free(port + 1) {
            return Ok(port);
        }
    }
    Err("no UDP port is free on the loopback addresses".to_owned())
}

/// Time limit of a scenario. The longest scenario waits until a handshake is given up, and then for another handshake.
const TIME_LIMIT: Duration = Duration::from_secs(40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_handed_out_twice() {
        let mut ports: Vec<u16> = (0..20).flat_map(|_| free_port().map(|port| [port, port + 1]).unwrap()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 40);
    }

    #[test]
    fn logs_are_left_by_what_failed_only() {
        let logs = std::env::temp_dir().join(format!("tegmen-interop-{}", std::process::id()));
        let say = |scene: &Scene, word: &str| scene.start("echo", &[word])?.await_output("yes", 0);
        let cell = |word: &'static str| {
            Cell::new("echo", "1", Role::Client, word, move |scene| Ok(say(scene, word).map(|_| ())?))
        };
        assert_eq!(cell("yes").run(Path::new("unused"), &logs), Ok(()));
        let Err(Trouble::Failed(why)) = cell("no").run(Path::new("unused"), &logs) else { panic!("it passed") };
        assert!(why.contains("echo never printed \"yes\"; its last words: no"), "{why}");
        assert!(!logs.join("echo-client-yes").exists());
        assert_eq!(fs::read(logs.join("echo-client-no/0-echo.out")).unwrap(), b"no\n");
        fs::remove_dir_all(logs).unwrap();
    }
}
