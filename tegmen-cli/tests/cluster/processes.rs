//! The processes of the test: members of etcd and access control servers, each on a separate host.

use crate::administrator::Administrator;
use crate::network::{Network, Switch};
use crate::operator::POLICY;
use crate::process::{Process, wait};
use crate::server_files::ServerFiles;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A member of etcd, as a process.
pub(crate) struct Member {
    number: u8,
    pub(crate) host: &'static str,
    dir: PathBuf,
    process: Option<Process>,
}

pub(crate) const MEMBERS: [&str; 3] = ["etcd-1", "etcd-2", "etcd-3"];

/// The state of the cluster, as a member reports it.
pub(crate) struct Status {
    is_leader: bool,
    leader: String,
}

impl Member {
    /// Makes the member with this number; the first member has the number 1. Does not start the process of the member.
    pub(crate) fn new(number: u8, dir: &Path) -> Self {
        let host = MEMBERS[usize::from(number) - 1];
        Self { number, host, dir: dir.to_owned(), process: None }
    }

    fn address(number: u8, port: u16) -> SocketAddr {
        SocketAddrV4::new(Switch::Back.address(number), port).into()
    }

    pub(crate) fn start(&mut self, network: &Network) {
        let url = |number, port| format!("http://{}", Self::address(number, port));
        let cluster = (1_u8..).zip(MEMBERS).map(|(number, name)| format!("{name}={}", url(number, 2380)));
        let (clients, peers) = (url(self.number, 2379), url(self.number, 2380));
        let mut command = network.command(self.host, "etcd");
        command.args(["--name", self.host, "--log-level", "error"]);
        command.arg("--data-dir").arg(self.dir.join(self.host));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &cluster.collect::<Vec<_>>().join(",")]);
        self.process = Some(Process::start(command, &self.dir.join(format!("{}.log", self.host))));
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Returns the address of the store in the cluster of all members.
    pub(crate) fn store() -> String {
        let members = (1_u8..).zip(MEMBERS).map(|(number, _)| Self::address(number, 2379).to_string());
        format!("etcd://{}/tegmen", members.collect::<Vec<_>>().join(","))
    }

    /// Returns the state of the cluster; `None` if the member does not answer.
    pub(crate) fn status(&self) -> Option<Status> {
        let within = Duration::from_secs(1);
        let mut stream = TcpStream::connect_timeout(&Self::address(self.number, 2379), within).ok()?;
        stream.set_read_timeout(Some(within)).ok()?;
        write!(stream, "POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{{}}").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let status: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        let leader = status["leader"].as_str()?.to_owned();
        Some(Status { is_leader: status["header"]["member_id"] == leader.as_str(), leader })
    }
}

/// Waits until all members follow the same leader, and returns the index of the leader.
pub(crate) fn leader(members: &[Member]) -> usize {
    wait("leader of etcd that all members follow", || {
        let states = members.iter().map(Member::status).collect::<Option<Vec<_>>>()?;
        let is_one = states.iter().all(|state| state.leader == states[0].leader);
        states.iter().position(|state| state.is_leader).filter(|_| is_one)
    })
}

/// An access control server, as a process.
pub(crate) struct Replica {
    pub(crate) host: &'static str,
    dir: PathBuf,
    process: Option<Process>,
    number: u8,
}

pub(crate) const REPLICAS: [&str; 2] = ["replica-1", "replica-2"];

impl Replica {
    /// Makes the server with this number, and the files of its operator. The first server has the number 1. Does not
    /// start the process of the server.
    pub(crate) fn new(number: u8, dir: &Path) -> Self {
        let host = REPLICAS[usize::from(number) - 1];
        let dir = dir.join(host);
        let address = Switch::Front.address(Self::host_number(number)).into();
        let more = "[log]\nlog-level = \"error\"\n";
        let files = ServerFiles { listen: address, admin: address, store: &Member::store(), policy: POLICY, more };
        files.write(&dir);
        Self { host, dir, process: None, number }
    }

    /// Returns the number of the server's host at both switches.
    pub(crate) const fn host_number(number: u8) -> u8 {
        10 + number
    }

    /// Returns the address at which the server serves CoAP.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddrV4::new(Switch::Front.address(Self::host_number(self.number)), 5684).into()
    }

    pub(crate) fn start(&mut self, network: &Network) {
        let mut command = network.command(self.host, env!("CARGO_BIN_EXE_tegmen"));
        command.args(["serve", "--config", "tegmen.toml"]).current_dir(&self.dir);
        self.process = Some(Process::start(command, &self.dir.join("log")));
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Returns the administrator of this server. The file `key` in the parent directory contains the API key.
    pub(crate) fn administrator(&self) -> Administrator {
        Administrator {
            dir: self.dir.clone(),
            address: Switch::Front.address(Self::host_number(self.number)).to_string(),
        }
    }

    /// Waits until the server answers its administrator.
    pub(crate) fn wait(&self) {
        let administrator = self.administrator();
        wait("answer of an access control server", || {
            administrator.ask("GET", "/v1/devices?limit=1", None).filter(|answer| answer.status == 200)
        });
    }
}
