//! Tests a group of twenty lamps, a switch and a controller, each a process on a separate host, over IPv6 multicast.
//! Members join and are evicted, and the group is rekeyed. A fifth of all datagrams is lost, and the controller is
//! killed twice. An evicted lamp continues to run, and an evicted sender continues to send.
//!
//! `./ci.sh groups` runs the test, which writes the counts to `target/groups.json`. It needs root for the network
//! namespaces, and the programs `ip`, `ip6tables` and `curl`. `TEGMEN_GROUPS_SEED` selects other times.
#![cfg(target_os = "linux")]

mod processes;

#[allow(dead_code, reason = "each test uses its part")]
#[path = "../works/administrator.rs"]
mod administrator;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../works/network.rs"]
mod network;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../works/operator.rs"]
mod operator;
#[path = "../works/process.rs"]
mod process;
#[path = "../works/server_files.rs"]
mod server_files;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../works/mod.rs"]
mod works;

use network::{Network, Switch};
use processes::{Controller, DEADLINE, HOST, Lamp, Sender};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use works::{Scene, said};

/// Number of lamps at the beginning.
const LAMPS: u8 = 20;
/// The share of lost datagrams at each host, in percent.
const LOSS: u8 = 20;

/// A lamp that was evicted.
struct Evicted {
    lamp: Lamp,
    /// The value of the lamp's resource when the eviction of the lamp was acknowledged.
    light: String,
}

struct Field {
    controller: Controller,
    lamps: Vec<Lamp>,
    evicted: Vec<Evicted>,
    switch: Sender,
    /// A sender that is evicted, and that continues to send with its old keys.
    attacker: Sender,
    /// True until the attacker is evicted.
    is_member: bool,
    // Behind the programs, so that none is left when its host disappears.
    network: Network,
    scene: Scene,
    seed: u64,
    values: u32,
    loss: u8,
    epoch: u64,
    rounds: Vec<Value>,
    /// Number of faults: answers of evicted lamps, and requests of the evicted sender that a lamp answered or executed.
    accepted: usize,
    /// Number of requests of the evicted sender.
    attempts: usize,
    /// Number of lamps whose process ended.
    ended: usize,
    /// The duration of the last eviction, from the request to its acknowledgement.
    eviction: Duration,
}

impl Field {
    fn start(seed: u64) -> Self {
        let scene = Scene::new("field");
        let mut network = Network::new("groups", &[Switch::Field]);
        let devices = (1..=LAMPS + 1).map(|number| (Lamp::name(number), "lamp"));
        let senders = ["switch", "attacker"].map(|name| (name.to_owned(), "sender"));
        let devices: Vec<_> = devices.chain(senders).collect();
        let controller = Controller::start(&mut network, &scene.0, &devices);
        let switch = Sender::join(&mut network, &scene.0, "switch", 50);
        let attacker = Sender::join(&mut network, &scene.0, "attacker", 51);
        let lamps = (1..=LAMPS).map(|number| Lamp::start(&mut network, &scene.0, number)).collect();
        Self {
            controller,
            lamps,
            evicted: Vec::new(),
            switch,
            attacker,
            is_member: true,
            network,
            scene,
            seed,
            values: 0,
            loss: 0,
            epoch: 0,
            rounds: Vec::new(),
            accepted: 0,
            attempts: 0,
            ended: 0,
            eviction: Duration::ZERO,
        }
    }

    /// Returns a random number below `below`.
    fn draw(&mut self, below: u64) -> u64 {
        // SplitMix64.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn value(&mut self, by: &str) -> String {
        self.values += 1;
        format!("{by}-{}", self.values)
    }

    /// Sends requests after a change until each member has answered at least one request. Returns the number of members
    /// that answered the first request.
    fn prove(&mut self, change: &str) -> usize {
        let begin = Instant::now();
        let current: BTreeSet<IpAddr> = self.lamps.iter().map(|lamp| lamp.address).collect();
        let (mut answered, mut requests, mut answers, mut repeated) = (BTreeSet::new(), 0, 0, 0);
        let mut first = 0;
        while !current.is_subset(&answered) {
            let silent: Vec<_> = current.difference(&answered).collect();
            assert!(begin.elapsed() < DEADLINE, "after the change '{change}' these members do not answer: {silent:?}");
            let value = self.value("switch");
            let asked = self.switch.put(&self.network, &value, true);
            self.accepted += asked.answered.difference(&current).count();
            if requests == 0 {
                first = asked.answered.len();
            }
            (requests, answers) = (requests + 1, answers + asked.answered.len());
            repeated += asked.repeated;
            answered.extend(asked.answered);
        }
        self.rounds.push(json!({
            "change": change, "loss_percent": self.loss, "epoch": self.controller.show().0, "members": current.len(),
            "requests": requests, "answers": answers, "answers_to_first": first, "answers_repeated": repeated,
            "ms_until_all_answered": begin.elapsed().as_millis() as u64,
        }));
        self.examine(change);
        first
    }

    /// Lets the evicted sender send a request, and checks the members and all processes.
    fn examine(&mut self, change: &str) {
        let (epoch, members) = self.controller.show();
        assert!(epoch > self.epoch, "{change}: the epoch {epoch} comes after {}", self.epoch);
        self.epoch = epoch;
        let lamps = self.lamps.iter().map(|lamp| lamp.name.clone());
        let senders = ["switch", "attacker"].map(str::to_owned).into_iter().take(1 + usize::from(self.is_member));
        assert_eq!(members, lamps.chain(senders).collect(), "{change}");
        if !self.is_member {
            let value = self.value("attacker");
            self.attempts += 1;
            self.accepted += self.attacker.put(&self.network, &value, false).answered.len();
            let shown: Vec<_> = self.lamps.iter().map(|lamp| lamp.light(&self.network)).collect();
            self.accepted += shown.iter().filter(|light| **light == value).count();
            assert!(shown.iter().all(|light| light.starts_with("switch-") || *light == value), "{shown:?}");
        }
        for Evicted { lamp, light } in &mut self.evicted {
            self.ended += usize::from(!lamp.is_running());
            self.accepted += usize::from(lamp.light(&self.network) != *light);
        }
        for lamp in &mut self.lamps {
            self.ended += usize::from(!lamp.is_running());
        }
        assert_eq!(self.ended, 0, "{change}: a lamp ended, and would have to start again");
    }

    /// Makes each host lose datagrams from now on.
    fn lose(&mut self) {
        let lamps = self.lamps.iter().map(|lamp| lamp.name.as_str());
        lamps.chain([HOST, "switch"]).for_each(|host| self.network.lose(host, LOSS));
        self.loss = LOSS;
    }

    fn join(&mut self, number: u8) {
        let lamp = Lamp::start(&mut self.network, &self.scene.0, number);
        self.network.lose(&lamp.name, self.loss);
        self.lamps.push(lamp);
    }

    /// Requests an eviction at the controller. Returns the status of the answer; `None` without an answer.
    fn ask_to_evict(&self, name: &str) -> Option<u16> {
        let path = format!("/v1/groups/lamps/members/{name}");
        Some(self.controller.administrator().ask("DELETE", &path, None)?.status)
    }

    /// Evicts a lamp, which continues to run.
    fn evict(&mut self, number: u8) {
        let begin = Instant::now();
        assert_eq!(self.ask_to_evict(&Lamp::name(number)), Some(200));
        self.eviction = begin.elapsed();
        self.set_aside(number);
    }

    fn set_aside(&mut self, number: u8) {
        let place = self.lamps.iter().position(|lamp| lamp.name == Lamp::name(number)).unwrap();
        let lamp = self.lamps.remove(place);
        let light = lamp.light(&self.network);
        self.evicted.push(Evicted { lamp, light });
    }

    fn rekey(&self) {
        let answer = self.controller.administrator().ask("POST", "/v1/groups/lamps/rekey", None).expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Requests the eviction of the attacker, and kills the controller after a random time. This time is shorter than
    /// the duration of the previous eviction. The first result is true if the controller acknowledged the eviction, and
    /// the second if it made the eviction.
    fn evict_the_attacker_with_a_kill(&mut self) -> (bool, bool) {
        let micros = u64::try_from(self.eviction.as_micros()).unwrap();
        let time = Duration::from_micros(self.draw(micros));
        let administrator = self.controller.administrator();
        let asking = std::thread::spawn(move || administrator.ask("DELETE", "/v1/groups/lamps/members/attacker", None));
        std::thread::sleep(time);
        self.controller.kill();
        let is_acknowledged = asking.join().unwrap().is_some_and(|answer| answer.status == 200);
        self.controller.start_again(&self.network);
        let is_made = !self.controller.show().1.contains("attacker");
        assert!(is_made || !is_acknowledged, "an eviction was acknowledged and is lost");
        if !is_made {
            assert_eq!(self.ask_to_evict("attacker"), Some(200));
        }
        self.is_member = false;
        (is_acknowledged, is_made)
    }

    /// Disables a device, and waits until the controller has evicted it.
    fn disable(&mut self, number: u8) {
        let name = Lamp::name(number);
        let path = format!("/v1/devices/{name}");
        let answer = self.controller.administrator().ask("PATCH", &path, Some(&json!({ "disabled": true })));
        assert_eq!(answer.expect("an answer").status, 204);
        process::wait("eviction of a disabled device", || (!self.controller.show().1.contains(&name)).then_some(()));
        self.set_aside(number);
    }
}

#[test]
#[ignore = "it needs root and some minutes: ./ci.sh groups"]
fn members_hear_each_change_and_evicted_ones_nothing() {
    let seed = std::env::var("TEGMEN_GROUPS_SEED").map_or(1, |text| text.parse().expect("a number"));
    let begin = Instant::now();
    let mut field = Field::start(seed);
    let all = field.prove("20 lamps joined");
    assert_eq!(all, usize::from(LAMPS), "without losses all lamps answer the first request");
    let value = field.value("switch");
    let heard = field.attacker.put(&field.network, &value, true).answered.len();
    assert_eq!(heard, usize::from(LAMPS), "the lamps answer the attacker while it is a member");

    field.lose();
    field.join(LAMPS + 1);
    field.prove("a lamp joined");
    field.evict(3);
    field.prove("a lamp was evicted");
    field.rekey();
    field.prove("rekeyed");
    let (is_acknowledged, is_made) = field.evict_the_attacker_with_a_kill();
    field.prove("the controller was killed while it evicted a sender");
    field.evict(7);
    field.prove("another lamp was evicted");
    field.controller.kill();
    field.controller.start_again(&field.network);
    field.rekey();
    field.prove("the controller was killed, and rekeyed");
    field.disable(11);
    field.prove("the device of a lamp was disabled");

    let report = json!({
        "seed": seed,
        "commit": said("git", &["describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=-modified"]),
        "versions": {
            "tegmen": said(env!("CARGO_BIN_EXE_tegmen"), &["--version"]),
            "kernel": said("uname", &["-r"]),
        },
        "seconds": begin.elapsed().as_secs(),
        "rounds": field.rounds,
        "controller_killed": 2,
        "eviction_during_kill": { "acknowledged": is_acknowledged, "made_before_kill": is_made },
        "evicted": { "lamps": field.evicted.len(), "senders": 1, "requests_of_evicted_sender": field.attempts },
        "accepted_of_evicted_or_executed_by_evicted": field.accepted,
        "lamps_that_ended": field.ended,
    });
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = target.parent().unwrap_or(&target).join("groups.json");
    std::fs::write(&file, format!("{report:#}\n")).unwrap();
    println!("{report:#}\n{}", file.display());
    assert_eq!(field.accepted, 0, "an evicted member read or was heard");
    assert!(field.attempts >= 4 && field.evicted.len() == 3);
}
