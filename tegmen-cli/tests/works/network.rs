//! The hosts of a test: network namespaces, switches, and a cable from each host to each of its switches.
//!
//! ```text
//! etcd-1 .. etcd-3  --- back ---  replica-1, replica-2  --- front ---  hub, with the clients
//!             controller, members of a group  --- field ---  hub
//! ```
//!
//! The switches are in the namespace `hub`. To make namespaces, a test needs root and the program `ip`. The namespaces
//! disappear when the [`Network`] is dropped.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::process::Command;

/// A switch. The addresses at a switch contain its number, for IPv4 as the third byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Switch {
    /// The switch of etcd and the replicas.
    Back = 1,
    /// The switch of the replicas and their clients.
    Front = 2,
    /// The switch of a group and its controller.
    Field = 3,
}

impl Switch {
    fn name(self) -> &'static str {
        match self {
            Self::Back => "back",
            Self::Front => "front",
            Self::Field => "field",
        }
    }

    /// Returns the IPv4 address of the host with this number.
    pub(crate) const fn address(self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, self as u8, host)
    }

    /// Returns the IPv6 address of the host with this number.
    pub(crate) const fn address_v6(self, host: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0, 0, self as u16, 0, 0, 0, host as u16)
    }
}

/// The hosts and switches of this process.
pub(crate) struct Network {
    prefix: String,
    hosts: Vec<String>,
}

const HUB: &str = "hub";
/// Number of the namespace `hub` at each switch.
const HUB_NUMBER: u8 = 254;
/// The state of a port that drops all packets, as the program `bridge` numbers it.
const DISABLED: u8 = 0;
const FORWARDING: u8 = 3;
const PREFIX: &str = "tegmen-test-";

impl Network {
    /// Makes these switches, and moves the calling thread into the namespace `hub`, together with the threads that it
    /// starts later. `step` is the step of `./ci.sh` that runs the test.
    pub(crate) fn new(step: &str, switches: &[Switch]) -> Self {
        assert!(rustix::process::geteuid().is_root(), "namespaces of the network need root: type sudo ./ci.sh {step}");
        remove_leftovers();
        let mut network = Self { prefix: format!("{PREFIX}{}", std::process::id()), hosts: Vec::new() };
        network.add(HUB);
        for switch in switches {
            let name = switch.name();
            network.ip_in(HUB, &format!("link add name {name} type bridge mcast_snooping 0"));
            network.join(HUB, *switch, HUB_NUMBER);
        }
        let hub = File::open(format!("/run/netns/{}", network.namespace(HUB))).unwrap();
        move_into_link_name_space(hub.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        network
    }

    /// Makes a host with this number, and connects it to these switches.
    pub(crate) fn host(&mut self, host: &str, number: u8, switches: &[Switch]) {
        self.add(host);
        for switch in switches {
            let (name, port, namespace) = (switch.name(), port(host, *switch), self.namespace(host));
            self.ip_in(HUB, &format!("link add name {port} type veth peer name {name} netns {namespace}"));
            self.ip_in(HUB, &format!("link set dev {port} master {name} up"));
            self.join(host, *switch, number);
        }
    }

    /// Cuts the cable between a host and a switch: the switch drops all packets of the host, but no host is notified.
    pub(crate) fn cut(&self, host: &str, switch: Switch) {
        self.set_state(host, switch, DISABLED);
    }

    /// Connects the cable between a host and a switch again.
    pub(crate) fn heal(&self, host: &str, switch: Switch) {
        self.set_state(host, switch, FORWARDING);
    }

    /// Drops `percent` of the UDP datagrams that arrive at a host over IPv6 from now on. Replaces an earlier
    /// percentage.
    pub(crate) fn lose(&self, host: &str, percent: u8) {
        let in_host = |rest: &str| run("ip", &format!("netns exec {} ip6tables {rest}", self.namespace(host)));
        in_host("-F INPUT");
        let probability = f64::from(percent) / 100.0;
        in_host(&format!("-A INPUT -p udp -m statistic --mode random --probability {probability} -j DROP"));
    }

    fn set_state(&self, host: &str, switch: Switch, state: u8) {
        run("bridge", &format!("-n {} link set dev {} state {state}", self.namespace(HUB), port(host, switch)));
    }

    /// Returns a command that runs a program on a host. The kernel kills the program at the latest when the calling
    /// thread ends.
    pub(crate) fn command(&self, host: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host), "setpriv", "--pdeathsig", "KILL", program]);
        command
    }

    fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    fn add(&mut self, host: &str) {
        ip(&format!("netns add {}", self.namespace(host)));
        self.hosts.push(host.to_owned());
        self.ip_in(host, "link set dev lo up");
    }

    fn join(&self, host: &str, switch: Switch, number: u8) {
        let name = switch.name();
        self.ip_in(host, &format!("address add {}/24 dev {name}", switch.address(number)));
        self.ip_in(host, &format!("address add {}/64 dev {name} nodad", switch.address_v6(number)));
        self.ip_in(host, &format!("link set dev {name} up"));
        // A host that asked for the hardware address of another one in vain asks again after 100 ms, not after a second.
        self.ip_in(host, &format!("ntable change name arp_cache dev {name} retrans 100"));
    }

    fn ip_in(&self, host: &str, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.namespace(host)));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &self.hosts {
            let _ = Command::new("ip").args(["netns", "delete", &self.namespace(host)]).status();
        }
    }
}

/// Returns the name of the port of a host at a switch.
fn port(host: &str, switch: Switch) -> String {
    format!("{}-{host}", switch.name())
}

fn ip(arguments: &str) {
    run("ip", arguments);
}

fn run(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output = output.unwrap_or_else(|error| {
        panic!("{program}: {error}; type: sudo apt-get install --no-install-recommends iproute2")
    });
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Removes the namespaces of earlier processes that were killed.
fn remove_leftovers() {
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        if process.is_some_and(|(id, _)| !std::path::Path::new("/proc").join(id).exists()) {
            ip(&format!("netns delete {name}"));
        }
    }
}
