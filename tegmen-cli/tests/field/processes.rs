//! The processes of the test: the controller, the lamps, and the senders, each on a separate host.

use crate::administrator::Administrator;
use crate::network::{Network, Switch};
use crate::operator::secret;
use crate::process::{Process, wait};
use crate::server_files::ServerFiles;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of the controller's host at the switch.
const CONTROLLER: u8 = 100;
pub(crate) const HOST: &str = "control";
pub(crate) const GROUP: &str = "[ff15::78:1]:5684";
/// The pre-shared key of each device, in hexadecimal.
const KEY: &str = "07070707070707070707070707070707";
const POLICY: &str = r#"[[rule]]
subject = ["tag:lamp", "tag:sender"]
publisher = "controller"
allow = "POST /ace-group/lamps"

[[rule]]
subject = "tag:sender"
publisher = "controller"
allow = "POST /ace-group/lamps/requester"
"#;

/// The access control server that controls the group, as a process.
pub(crate) struct Controller {
    dir: PathBuf,
    process: Option<Process>,
}

impl Controller {
    /// Starts the controller, adds these devices (each with its name and its tag), and creates the group.
    pub(crate) fn start(network: &mut Network, dir: &Path, devices: &[(String, &str)]) -> Self {
        network.host(HOST, CONTROLLER, &[Switch::Field]);
        let (listen, admin) = (Switch::Field.address_v6(CONTROLLER).into(), Switch::Field.address(CONTROLLER).into());
        let more =
            "[groups]\ngroup-controller = \"controller\"\ngroup-key = \"group.pem\"\ngroup-interface = [\"field\"]\n";
        let dir = dir.join(HOST);
        ServerFiles { listen, admin, store: "access.db", policy: POLICY, more }.write(&dir);
        secret(&dir, "group.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
        let mut controller = Self { dir, process: None };
        controller.run(network);
        let administrator = controller.administrator();
        administrator.make_key(&["devices:write", "groups:read", "groups:write"]);
        for (name, tag) in devices {
            let device = json!({ "name": name, "tags": [tag], "kind": "shared-key", "secret": KEY });
            let answer = administrator.ask("POST", "/v1/devices", Some(&device)).expect("an answer");
            assert_eq!(answer.status, 201, "{answer:?}");
        }
        let group = json!({ "name": "lamps", "address": GROUP });
        let answer = administrator.ask("POST", "/v1/groups", Some(&group)).expect("an answer");
        assert_eq!(answer.status, 201, "{answer:?}");
        controller
    }

    fn run(&mut self, network: &Network) {
        let mut command = network.command(HOST, env!("CARGO_BIN_EXE_tegmen"));
        command.args(["serve", "--config", "tegmen.toml"]).current_dir(&self.dir);
        self.process = Some(Process::start(command, &self.dir.join("log")));
    }

    /// Kills the process of the controller with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts the controller again, and waits until it answers.
    pub(crate) fn start_again(&mut self, network: &Network) {
        self.run(network);
        wait("answer of the controller", || self.administrator().ask("GET", "/v1/groups", None));
    }

    pub(crate) fn administrator(&self) -> Administrator {
        Administrator { dir: self.dir.clone(), address: Switch::Field.address(CONTROLLER).to_string() }
    }

    /// Returns the current epoch of the group, and the names of the members.
    pub(crate) fn show(&self) -> (u64, BTreeSet<String>) {
        let shown = self.administrator().ask("GET", "/v1/groups/lamps?limit=100", None).expect("an answer").body;
        let members = shown["members"].as_array().unwrap_or_else(|| panic!("{shown}"));
        let names = members.iter().map(|member| member["name"].as_str().unwrap().to_owned());
        (shown["epoch"].as_u64().unwrap(), names.collect())
    }
}

/// Makes a host, and lets the device `name` join the group from this host. Returns the directory of the device. Its
/// subdirectory `state` contains the membership.
fn join(network: &mut Network, dir: &Path, (name, number): (&str, u8), options: &[&str]) -> PathBuf {
    network.host(name, number, &[Switch::Field]);
    let dir = dir.join(name);
    std::fs::create_dir(&dir).unwrap();
    secret(&dir, "key.toml", &format!("[[psk]]\nidentity = \"{name}\"\nkey = \"{KEY}\"\n"));
    let controller = Switch::Field.address_v6(CONTROLLER);
    let mut command = network.command(name, env!("CARGO_BIN_EXE_tegmen"));
    command.args(["group", "join", &format!("coaps://[{controller}]/ace-group/lamps"), "--state", "state"]);
    command.args(["--interface", "field", "--credentials", "key.toml"]).args(options).current_dir(&dir);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    dir
}

/// A member that answers requests, as a process.
pub(crate) struct Lamp {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    process: Process,
}

impl Lamp {
    pub(crate) fn name(number: u8) -> String {
        format!("lamp-{number}")
    }

    /// Joins the group, and starts the process that answers requests.
    pub(crate) fn start(network: &mut Network, dir: &Path, number: u8) -> Self {
        let name = Self::name(number);
        let dir = join(network, dir, (&name, number), &[]);
        let mut command = network.command(&name, env!("CARGO_BIN_EXE_tegmen"));
        command.args([
            "serve",
            "--no-secure",
            "--plain",
            "--listen",
            "127.0.0.1",
            "--shards",
            "1",
            "--leisure",
            "0.2",
            "--value",
            "/light=off",
        ]);
        command.args(["--member", "state", "--member-credentials", "key.toml"]).current_dir(&dir);
        let log = dir.join("log");
        let process = Process::start(command, &log);
        wait("answering lamp", || std::fs::read_to_string(&log).ok().filter(|log| log.contains("member of the group")));
        Self { name, address: Switch::Field.address_v6(number).into(), process }
    }

    /// Returns the value of the lamp's resource. A client on the host of the lamp reads it without protection.
    pub(crate) fn light(&self, network: &Network) -> String {
        let mut command = network.command(&self.name, env!("CARGO_BIN_EXE_tegmen"));
        let done = command.args(["get", "coap://127.0.0.1/light"]).output().unwrap();
        assert!(done.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.is_running()
    }
}

/// A member that sends requests.
pub(crate) struct Sender {
    name: &'static str,
    dir: PathBuf,
}

/// The answers to a request to the group.
pub(crate) struct Asked {
    pub(crate) answered: BTreeSet<IpAddr>,
    /// Number of answers from members that had already answered this request.
    pub(crate) repeated: usize,
}

impl Sender {
    pub(crate) fn join(network: &mut Network, dir: &Path, name: &'static str, number: u8) -> Self {
        Self { name, dir: join(network, dir, (name, number), &["--send", "--no-listen"]) }
    }

    /// Sends a value to all lamps. If `learns` is true, the sender first asks the controller for the keys of a new
    /// epoch.
    pub(crate) fn put(&self, network: &Network, value: &str, learns: bool) -> Asked {
        let mut command = network.command(self.name, env!("CARGO_BIN_EXE_tegmen"));
        command.args(["group", "send", &format!("coap://{GROUP}/light"), "-m", "PUT", "-e", value, "--json"]);
        command.args(["--state", "state", "--group-wait", "1.5"]).current_dir(&self.dir);
        match learns {
            true => command.args(["--credentials", "key.toml", "--handshake-timeout", "20"]),
            false => command.arg("--no-catch-up"),
        };
        let done = command.output().unwrap();
        let (lines, said) = (String::from_utf8(done.stdout).unwrap(), String::from_utf8_lossy(&done.stderr));
        let mut lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = lines.pop().unwrap_or_else(|| panic!("{}: {said}", self.name));
        assert_eq!(last["event"], "asked", "{}: {said}", self.name);
        let mut asked = Asked { answered: BTreeSet::new(), repeated: 0 };
        for line in lines {
            assert_eq!(line["code"], "2.04", "{line}");
            let from = line["from"].as_str().unwrap();
            let from = from.parse().or_else(|_| from.parse().map(|from: SocketAddr| from.ip())).unwrap();
            asked.repeated += usize::from(!asked.answered.insert(from));
        }
        asked
    }
}

/// Maximum time until all members know a change, if datagrams are lost.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
