//! Tests a cluster of three members of etcd and two access control servers (replicas) under load. Each member and each
//! replica runs on a separate host. The test kills the leader of etcd and a replica. It cuts a replica off from etcd
//! for a short and for a long time, and it cuts off the leader of etcd.
//!
//! `./ci.sh cluster` runs the test, which writes the counts to `target/cluster.json`. It needs root for the network
//! namespaces, and the programs `etcd`, `ip` and `curl`. `TEGMEN_CLUSTER_SEED` selects other times and another replica.
#![cfg(target_os = "linux")]

mod load;
mod processes;

#[path = "../works/administrator.rs"]
mod administrator;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../works/network.rs"]
mod network;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../works/operator.rs"]
mod operator;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../works/process.rs"]
mod process;
#[path = "../works/server_files.rs"]
mod server_files;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../works/mod.rs"]
mod works;

use administrator::Answer;
use load::{About, Asked, Change, Device, Load, Records, Result, TARGETS, Target};
use network::{Network, Switch};
use operator::runtime;
use processes::{Member, REPLICAS, Replica, leader};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tegmen_host::hex::to_hex;
use works::{Scene, said};

/// If a replica gets no answer of the store for this time, it grants nothing (docs/access.md).
const LEASE: Duration = Duration::from_secs(10);
/// Maximum time until a replica that is connected again knows all revocations.
const HEALING: Duration = Duration::from_secs(1);
/// The durations of the cuts: two are shorter than [`LEASE`], and one is longer.
const CUTS: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(16)];

/// The programs, their network, and the load on them.
struct Cluster {
    // Before the network, so that no program is left when its host disappears.
    load: Option<Load>,
    replicas: Vec<Replica>,
    members: Vec<Member>,
    network: Network,
    seed: u64,
}

/// A replica that was cut off from etcd, and the rights that an administrator took away meanwhile.
struct Cut {
    replica: usize,
    target: &'static Target,
    /// The moment directly after the replica was cut off.
    out: Instant,
    /// The moment directly after the connected replica acknowledged that the devices are disabled and the token is
    /// revoked.
    taken_back: Instant,
    /// The moment directly before the replica was connected again.
    end: Instant,
    /// The moment directly after the replica was connected again.
    healed: Instant,
}

impl Cluster {
    fn start(dir: &Path, seed: u64) -> Self {
        let mut network = Network::new("cluster", &[Switch::Back, Switch::Front]);
        let members: Vec<Member> = (1..=3).map(|number| Member::new(number, dir)).collect();
        for (number, member) in (1..).zip(&members) {
            network.host(member.host, number, &[Switch::Back]);
        }
        let replicas: Vec<Replica> = (1..=2).map(|number| Replica::new(number, dir)).collect();
        for (number, replica) in (1..).zip(&replicas) {
            network.host(replica.host, Replica::host_number(number), &[Switch::Back, Switch::Front]);
        }
        let mut cluster = Self { load: None, replicas, members, network, seed };
        for member in &mut cluster.members {
            member.start(&cluster.network);
        }
        leader(&cluster.members);
        // The first replica draws the token for the first key.
        cluster.replicas[0].start(&cluster.network);
        let administrator = cluster.replicas[0].administrator();
        administrator.make_key(&["keys:write", "devices:write", "devices:read", "revoke", "audit:read"]);
        for device in load::devices() {
            let answer = administrator.ask("POST", "/v1/devices", Some(&device)).expect("an answer");
            assert_eq!(answer.status, 201, "{answer:?}");
        }
        cluster.replicas[1].start(&cluster.network);
        cluster.replicas[1].wait();
        cluster.load = Some(Load::start(&cluster.replicas));
        cluster
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

    /// Waits for this number of seconds and a random part of a second.
    fn rest(&mut self, seconds: u64) {
        let millis = self.draw(1000);
        std::thread::sleep(Duration::from_secs(seconds) + Duration::from_millis(millis));
    }

    /// Waits until both replicas have granted a key to a request that was sent after this call.
    fn wait_for_grants(&self) {
        let now = Instant::now();
        let load = self.load.as_ref().unwrap();
        for replica in 0..self.replicas.len() {
            process::wait("key of a session after a fault", || {
                load.look(|records| {
                    let mut newest = records.asked.iter().rev().take_while(|asked| asked.sent > now);
                    newest.any(|asked| {
                        asked.replica == replica
                            && matches!(asked.about, About::Session(_))
                            && asked.result == Result::Granted
                    })
                })
                .then_some(())
            });
        }
    }

    fn kill_leader(&mut self) {
        let leader = leader(&self.members);
        self.members[leader].kill();
        self.rest(5);
        self.wait_for_grants();
        self.members[leader].start(&self.network);
        processes::leader(&self.members);
    }

    fn kill_replica(&mut self) {
        let replica = self.draw(2) as usize;
        self.replicas[replica].kill();
        self.rest(2);
        self.replicas[replica].start(&self.network);
        self.replicas[replica].wait();
        self.wait_for_grants();
    }

    /// Cuts a replica off from etcd for this time. Meanwhile an administrator of the other replica takes the rights of
    /// `target` away.
    fn cut_replica(&mut self, target: &'static Target, time: Duration) -> Cut {
        let replica = self.draw(2) as usize;
        let host = self.replicas[replica].host;
        self.network.cut(host, Switch::Back);
        let out = Instant::now();
        let time = time + Duration::from_millis(self.draw(1000));
        let administrator = self.replicas[1 - replica].administrator();
        let is_done = |answer: Option<Answer>| {
            let answer = answer.expect("the connected replica answers");
            assert!(matches!(answer.status, 201 | 204), "{answer:?}");
        };
        for device in [target.publisher, target.subscriber] {
            let body = json!({ "disabled": true });
            is_done(administrator.ask("PATCH", &format!("/v1/devices/{device}"), Some(&body)));
        }
        let hash = to_hex(&target.token_hash());
        let body = json!({ "hash": hash, "expires": administrator::in_an_hour(), "concerned": ["lamp"] });
        is_done(administrator.ask("POST", "/v1/revocations", Some(&body)));
        let taken_back = Instant::now();
        std::thread::sleep(time.saturating_sub(out.elapsed()));
        let end = Instant::now();
        self.network.heal(host, Switch::Back);
        let healed = Instant::now();
        self.rest(3);
        self.wait_for_grants();
        Cut { replica, target, out, taken_back, end, healed }
    }

    fn cut_leader(&mut self) {
        let leader = leader(&self.members);
        let host = self.members[leader].host;
        self.network.cut(host, Switch::Back);
        self.rest(7);
        self.wait_for_grants();
        self.network.heal(host, Switch::Back);
        processes::leader(&self.members);
        self.wait_for_grants();
    }

    /// Ends the load. Kills and starts both replicas, so that they read the content of the store again. Returns the
    /// records.
    fn settle(&mut self) -> Records {
        let records = self.load.take().unwrap().end();
        for replica in &mut self.replicas {
            replica.kill();
            replica.start(&self.network);
        }
        self.replicas.iter().for_each(Replica::wait);
        records
    }
}

/// Numbers of acknowledged changes that are missing at the end.
#[derive(Default)]
struct Lost {
    devices: usize,
    revocations: usize,
    /// Number of session identities whose key was granted a second time.
    sessions: usize,
    /// Number of granted tokens whose session no replica knows.
    tokens: usize,
}

impl Lost {
    /// Asks both replicas for all acknowledged changes, and counts those that are missing.
    fn look(cluster: &Cluster, records: &Records) -> Self {
        let mut lost = Self::default();
        for replica in &cluster.replicas {
            let devices = listed(replica, "devices", |device| &device["name"]);
            let hashes = listed(replica, "revocations", |hash| hash);
            for change in &records.changes {
                match change {
                    Change::Device(name) => lost.devices += usize::from(!devices.contains(name)),
                    Change::Revocation(hash) => lost.revocations += usize::from(!hashes.contains(hash)),
                }
            }
        }
        lost.sessions = std::thread::scope(|scope| {
            let again = |replica| scope.spawn(move || given_again(&cluster.replicas[replica], records));
            [0, 1].map(again).into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        for (number, identity) in granted(records).filter_map(|asked| token_of(asked)).enumerate() {
            let administrator = cluster.replicas[number % 2].administrator();
            let answer = administrator.ask("POST", "/v1/revocations", Some(&json!({ "session": identity })));
            lost.tokens += usize::from(answer.expect("an answer").status != 201);
        }
        lost
    }
}

fn granted(records: &Records) -> impl Iterator<Item = &Asked> {
    records.asked.iter().filter(|asked| asked.result == Result::Granted)
}

fn session_of(asked: &Asked) -> Option<&str> {
    match &asked.about {
        About::Session(identity) => Some(identity),
        _ => None,
    }
}

fn token_of(asked: &Asked) -> Option<&str> {
    match &asked.about {
        About::Token(identity) => Some(identity),
        _ => None,
    }
}

/// Returns the names of all entries in a list of this replica. `name` takes the name out of an entry.
fn listed(replica: &Replica, list: &str, name: impl Fn(&Value) -> &Value) -> HashSet<String> {
    let (administrator, mut names, mut after) = (replica.administrator(), HashSet::new(), String::new());
    loop {
        let page = administrator.ask("GET", &format!("/v1/{list}?limit=1000{after}"), None).expect("a page").body;
        let members = page.as_object().and_then(|page| page.values().find_map(Value::as_array)).expect("a list");
        names.extend(members.iter().map(|member| name(member).as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return names,
        }
    }
}

/// Asks a replica again for the keys of all granted sessions. Returns the number of keys that it grants a second time.
fn given_again(replica: &Replica, records: &Records) -> usize {
    let mut device = Device::new("panel");
    let mut again = 0;
    runtime().block_on(async {
        for identity in granted(records).filter_map(session_of) {
            let (.., result) = device.ask(replica.address(), About::Session(identity.to_owned())).await;
            assert!(matches!(result, Result::Granted | Result::Refused), "{identity}: {result:?}");
            again += usize::from(result == Result::Granted);
        }
    });
    again
}

/// Returns the number of values in the list that are equal to an earlier value in the list.
fn repeated<T: std::hash::Hash + Eq + Copy>(list: impl Iterator<Item = T>) -> usize {
    let mut seen = HashSet::new();
    list.filter(|one| !seen.insert(*one)).count()
}

impl Cut {
    /// Returns the requests that were sent to the cut-off replica between `from` and `to`, and that this replica
    /// granted.
    fn grants<'r>(&self, records: &'r Records, from: Instant, to: Instant) -> impl Iterator<Item = &'r Asked> {
        let replica = self.replica;
        granted(records).filter(move |asked| {
            asked.replica == replica
                && asked.sent > from
                && asked.sent <= to
                && !matches!(asked.about, About::Listed(_))
        })
    }

    /// Returns the requests about `target` that were sent to `replica` later than `after`, and that this replica
    /// granted although an administrator had taken the rights away.
    fn given<'r>(&self, records: &'r Records, after: Instant, replica: usize) -> impl Iterator<Item = &'r Asked> {
        let target = self.target;
        granted(records).filter(move |asked| asked.replica == replica && asked.sent > after && target.concerns(asked))
    }

    fn json(&self, records: &Records) -> Value {
        let millis = |time: Instant, since: Instant| time.saturating_duration_since(since).as_millis() as u64;
        let later = records.asked.iter().filter(|asked| {
            let during = asked.sent > self.out && asked.sent < self.end;
            asked.replica == self.replica && asked.result == Result::Later && during
        });
        let last = |asked: &mut dyn Iterator<Item = &Asked>, since| asked.map(|asked| millis(asked.sent, since)).max();
        json!({
            "replica": REPLICAS[self.replica],
            "cut_ms": millis(self.end, self.out),
            "granted_while_cut": self.grants(records, self.out, self.end).count(),
            "answered_5.03_while_cut": later.count(),
            "last_grant_ms_after_cut": last(&mut self.grants(records, self.out, self.end), self.out),
            "grants_after_lease": self.grants(records, self.out + LEASE, self.end).count(),
            "given_after_revocation_by_connected": self.given(records, self.taken_back, 1 - self.replica).count(),
            "given_after_revocation_while_cut": self.given(records, self.taken_back, self.replica)
                .filter(|asked| asked.sent < self.end).count(),
            "last_given_ms_after_healing": last(&mut self.given(records, self.healed, self.replica), self.healed),
            "given_1_s_after_healing": self.given(records, self.healed + HEALING, self.replica).count(),
        })
    }
}

/// Returns the number of requests for each pair of subject and result.
fn results(records: &Records) -> BTreeMap<String, u64> {
    let mut results = BTreeMap::new();
    for asked in &records.asked {
        let subject = match asked.about {
            About::Session(_) => "session",
            About::Token(_) => "token",
            About::Rights(..) => "rights",
            About::Listed(_) => "list",
        };
        *results.entry(format!("{subject}_{:?}", asked.result).to_lowercase()).or_default() += 1;
    }
    results
}

#[test]
#[ignore = "it needs root, etcd and two minutes: ./ci.sh cluster"]
fn replicas_that_are_killed_and_cut_off_lose_nothing_and_grant_nothing_twice() {
    let seed = std::env::var("TEGMEN_CLUSTER_SEED").map_or(1, |text| text.parse().expect("a number"));
    let (scene, begin) = (Scene::new("cluster"), Instant::now());
    let mut cluster = Cluster::start(&scene.0, seed);
    cluster.rest(2);
    cluster.wait_for_grants();
    cluster.kill_leader();
    cluster.kill_replica();
    let cuts = [0, 1, 2].map(|number| cluster.cut_replica(&TARGETS[number], CUTS[number]));
    cluster.cut_leader();
    let records = cluster.settle();
    let lost = Lost::look(&cluster, &records);

    let twice = repeated(granted(&records).filter_map(session_of));
    let numbers: Vec<&str> = granted(&records).filter_map(token_of).collect();
    let (tokens, tokens_twice) = (numbers.len(), repeated(numbers.iter()));
    let revisions_twice = repeated(records.revisions.iter());
    let partitions: Vec<Value> = cuts.iter().map(|cut| cut.json(&records)).collect();
    let revoked = records.changes.iter().filter(|change| matches!(change, Change::Revocation(_))).count();
    let report = json!({
        "seed": seed,
        "commit": said("git", &["describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=-modified"]),
        "versions": {
            "tegmen": said(env!("CARGO_BIN_EXE_tegmen"), &["--version"]),
            "etcd": said("etcd", &["--version"]).lines().next(),
            "kernel": said("uname", &["-r"]),
        },
        "seconds": begin.elapsed().as_secs(),
        "faults": ["kill -9 of the leader of etcd", "kill -9 of a replica", "partitions of a replica, two shorter than the lease \
            and one longer", "partition of the leader of etcd"],
        "requests": results(&records),
        "acknowledged": {
            "devices": records.changes.len() - revoked, "revocations": revoked,
            "sessions": granted(&records).filter_map(session_of).count(), "tokens": tokens,
            "not_acknowledged": records.not_acknowledged,
        },
        "lost": { "devices": lost.devices, "revocations": lost.revocations, "sessions": lost.sessions, "tokens": lost.tokens },
        "issued_twice": { "sessions": twice, "tokens": tokens_twice, "revisions": revisions_twice },
        "partitions": partitions,
    });
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = target.parent().unwrap_or(&target).join("cluster.json");
    std::fs::write(&file, format!("{report:#}\n")).unwrap();
    println!("{report:#}\n{}", file.display());

    assert_eq!((lost.devices, lost.revocations, lost.sessions, lost.tokens), (0, 0, 0, 0), "acknowledged, and lost");
    assert_eq!((twice, tokens_twice, revisions_twice), (0, 0, 0), "issued twice");
    for partition in &partitions {
        for never in ["grants_after_lease", "given_after_revocation_by_connected", "given_1_s_after_healing"] {
            assert_eq!(partition[never], 0, "{never}");
        }
        assert_ne!(partition["granted_while_cut"], 0, "a replica that is cut off grants until its lease ends");
    }
    // The tests above can fail: there was something that they could have found.
    for partition in &partitions {
        assert_ne!(partition["given_after_revocation_while_cut"], 0, "a replica that is cut off does not know of it");
    }
    assert_ne!(partitions[2]["answered_5.03_while_cut"], 0);
    assert!(revoked > 0 && tokens > 0 && !records.revisions.is_empty());
}
