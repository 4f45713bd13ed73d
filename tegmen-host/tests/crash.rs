//! Tests thousands of power cuts, restored files, copied directories, and attempts to open a context twice, on a host
//! and on a mote. No nonce is used twice, no request is delivered twice, and after each event a request is answered
//! with at most one additional round trip.
//!
//! `./ci.sh crash` runs this test, and writes the counts to `target/crash.json`. `TEGMEN_CRASHES` sets the number of
//! events.

#[path = "crash/ends.rs"]
mod ends;
#[path = "crash/recorder.rs"]
mod recorder;
#[path = "crash/sessions.rs"]
mod sessions;
#[path = "crash/stores.rs"]
mod stores;
#[path = "../../tegmen/tests/world/mod.rs"]
mod world;

use ends::{Cut, End, Host, Mote};
use recorder::Recorder;
use sessions::Memory;
use std::collections::HashSet;
use std::path::PathBuf;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::crypto::Crypto as _;
use tegmen::oscore::{Pending, RederivableContext, Unprotected};

/// Totals of the events.
#[derive(Default, Debug)]
struct Counts {
    events: u64,
    power_cuts_of_the_mote: u64,
    power_cuts_of_the_host: u64,
    orderly_restarts: u64,
    restored_backups: u64,
    copies: u64,
    double_starts: u64,
    torn_files: u64,
    exchanges: u64,
    notifications: u64,
    challenges: u64,
    replays_tried: u64,
    replays_accepted: u64,
    nonces: u64,
    repeated_nonces: u64,
    most_round_trips: u64,
}

impl Counts {
    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "events": self.events,
            "power_cuts_of_the_mote": self.power_cuts_of_the_mote,
            "power_cuts_of_the_host": self.power_cuts_of_the_host,
            "orderly_restarts": self.orderly_restarts,
            "restored_backups": self.restored_backups,
            "copies": self.copies,
            "double_starts": self.double_starts,
            "torn_files": self.torn_files,
            "exchanges": self.exchanges,
            "notifications": self.notifications,
            "challenges": self.challenges,
            "replays_tried": self.replays_tried,
            "replays_accepted": self.replays_accepted,
            "nonces": self.nonces,
            "repeated_nonces": self.repeated_nonces,
            "most_round_trips": self.most_round_trips,
        })
    }
}

/// A mote and a host that share a context, and an attacker on the path that stores all datagrams.
struct World {
    seed: u64,
    crypto: Recorder,
    mote: Mote,
    host: Host,
    counts: Counts,
    next_request: u64,
    delivered: HashSet<u64>,
    /// Every request that was sent. The first value is the receiver of the request: the mote or the host.
    seen: Vec<(Which, Vec<u8>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    Mote,
    Host,
}

impl World {
    fn new(seed: u64, directory: PathBuf) -> Self {
        let mut crypto = Recorder::new(seed);
        let mut secret = [0; 16];
        crypto.random(&mut secret);
        Self {
            seed,
            crypto,
            mote: Mote::new(secret),
            host: Host::new(secret, directory),
            counts: Counts::default(),
            next_request: 0,
            delivered: HashSet::new(),
            seen: Vec::new(),
        }
    }

    /// Returns a random number less than `end`.
    fn random(&mut self, end: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % end
    }

    fn end(&mut self, which: Which) -> (&mut dyn End, &mut Recorder) {
        match which {
            Which::Mote => (&mut self.mote, &mut self.crypto),
            Which::Host => (&mut self.host, &mut self.crypto),
        }
    }

    fn step(&mut self) {
        let from = if self.random(2) == 0 { Which::Mote } else { Which::Host };
        match self.random(16) {
            0..=5 => self.exchange(from),
            6 => self.notify(from),
            7..=9 => self.replay(),
            10 => {
                self.counts.power_cuts_of_the_mote += 1;
                match self.random(3) {
                    0 => self.mote.power_cut(),
                    // In the middle of what it writes next; whatever that is, it writes soon.
                    _ => {
                        let after = self.random(40);
                        self.mote.cut_after(after as usize);
                    }
                }
                self.counts.events += 1;
            }
            11 => {
                self.counts.power_cuts_of_the_host += 1;
                self.counts.events += 1;
                match self.random(3) {
                    0 => self.host.power_cut(),
                    1 => self.host.cut_before_next_lease(),
                    _ => self.host.cut_after_next_lease(),
                }
            }
            12 => {
                self.counts.orderly_restarts += 1;
                self.counts.events += 1;
                self.host.orderly_restart();
            }
            13 => match self.random(2) {
                0 => self.host.take_backup(),
                _ => {
                    let in_place = self.random(2) == 0;
                    if self.host.restore_backup(in_place) {
                        self.counts.restored_backups += 1;
                        self.counts.events += 1;
                    }
                }
            },
            14 => {
                self.counts.events += 1;
                if self.random(2) == 0 {
                    self.counts.copies += 1;
                    self.host.try_copy();
                } else {
                    self.counts.double_starts += 1;
                    self.host.try_double_start();
                }
            }
            _ => {
                self.counts.torn_files += 1;
                self.counts.events += 1;
                let at = self.random(1000);
                self.host.tear_file(at);
            }
        }
    }

    /// Protects a request of `from`. If the power fails during this, tries again after the restart.
    fn protect(&mut self, from: Which, echo: Option<&[u8]>, id: u64) -> (Vec<u8>, Pending) {
        loop {
            let (end, crypto) = self.end(from);
            let Ok(()) = end.lease_one() else { continue };
            let mut storage = [0; 300];
            let mut frame = Frame::new(&mut storage, RederivableContext::OVERHEAD);
            let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::PUT, id as u16, b"t").unwrap();
            if let Some(echo) = echo {
                builder.option(OptionNumber::ECHO, echo).unwrap();
            }
            builder.payload(&id.to_be_bytes()).unwrap();
            let pending = end.context().protect_request(crypto, &mut frame).unwrap();
            let datagram = frame.bytes().to_vec();
            let to = if from == Which::Mote { Which::Host } else { Which::Mote };
            self.seen.push((to, datagram.clone()));
            return (datagram, pending);
        }
    }

    /// Sends a request and its response. No datagram is lost, so there are at most two round trips.
    fn exchange(&mut self, from: Which) {
        let to = if from == Which::Mote { Which::Host } else { Which::Mote };
        let id = self.next_request;
        self.next_request += 1;
        let (mut echo, mut round_trips): (Option<Vec<u8>>, _) = (None, 0);
        loop {
            let (datagram, mut pending) = self.protect(from, echo.as_deref(), id);
            round_trips += 1;
            let response = match self.receive(to, &datagram) {
                // An end that lost power before it answered receives a new request.
                Err(Cut) => {
                    round_trips -= 1;
                    continue;
                }
                Ok(response) => response.expect("an authentic request is answered"),
            };
            let (end, crypto) = self.end(from);
            let mut response = response;
            let Ok(message) = end.context().unprotect_response(crypto, &mut pending, &mut response) else {
                panic!("the response to {id} does not open");
            };
            match message.option(OptionNumber::ECHO) {
                Some(value) if message.code() == Code::UNAUTHORIZED => {
                    echo = Some(value.to_vec());
                    self.counts.challenges += 1;
                }
                _ => break,
            }
        }
        self.counts.exchanges += 1;
        self.counts.most_round_trips = self.counts.most_round_trips.max(round_trips);
        assert!(self.delivered.contains(&id));
    }

    /// Delivers a datagram to `to`. Returns its response.
    fn receive(&mut self, to: Which, datagram: &[u8]) -> Result<Option<Vec<u8>>, Cut> {
        let mut datagram = datagram.to_vec();
        let mut storage = [0; 300];
        let mut frame = Frame::new(&mut storage, RederivableContext::OVERHEAD);
        let (head, token) = ((MessageType::Acknowledgement, 1), Token::new(b"t"));
        let (end, crypto) = self.end(to);
        match end.context().unprotect_request(crypto, &mut datagram) {
            Err(_) => Ok(None),
            Ok(Unprotected::Unverified(_, binding)) => {
                end.lease_one()?;
                // After a loss of power the end computes another challenge.
                match end.context().write_challenge(crypto, &binding, head, &token, &mut frame) {
                    Ok(()) => Ok(Some(frame.bytes().to_vec())),
                    Err(_) => Err(Cut),
                }
            }
            Ok(Unprotected::Fresh(message, nonce)) => {
                let id = u64::from_be_bytes(message.payload().try_into().expect("what was sent"));
                let binding = nonce.binding();
                Builder::new(&mut frame, head.0, Code::CHANGED, head.1, token.as_bytes()).unwrap();
                end.context().protect_response(crypto, &binding, Some(nonce), &mut frame).unwrap();
                if !self.delivered.insert(id) {
                    self.counts.replays_accepted += 1;
                }
                Ok(Some(frame.bytes().to_vec()))
            }
        }
    }

    /// Sends a response from `from` with its own message number, in the same way as a notification to an observer.
    fn notify(&mut self, from: Which) {
        let to = if from == Which::Mote { Which::Host } else { Which::Mote };
        let (_, pending) = self.protect(to, None, u64::MAX);
        let (end, crypto) = self.end(from);
        if end.lease_one().is_err() {
            return;
        }
        let mut storage = [0; 300];
        let mut frame = Frame::new(&mut storage, RederivableContext::OVERHEAD);
        Builder::new(&mut frame, MessageType::NonConfirmable, Code::CONTENT, 2, b"t").unwrap();
        end.context().protect_response(crypto, &pending.binding(), None, &mut frame).unwrap();
        let mut datagram = frame.bytes().to_vec();
        let mut pending = pending;
        let (end, crypto) = self.end(to);
        end.context().unprotect_response(crypto, &mut pending, &mut datagram).unwrap();
        assert_eq!(MessageRef::parse(&datagram).map(|message| message.message_id()), Ok(2));
        self.counts.notifications += 1;
        // The request of this notification was never delivered, so the first replay of it would be a valid delivery.
        self.seen.pop();
    }

    fn replay(&mut self) {
        if self.seen.is_empty() {
            return;
        }
        let at = self.random(self.seen.len() as u64) as usize;
        let (to, datagram) = self.seen[at].clone();
        self.counts.replays_tried += 1;
        let _ = self.receive(to, &datagram);
    }
}

fn crashes() -> u64 {
    std::env::var("TEGMEN_CRASHES").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000)
}

/// A directory that is removed at the end. The test often writes reservations of numbers to disk, so the directory is
/// in memory if the system has `/dev/shm`.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let dir = base.join(format!("tegmen-crash-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Tests OSCORE contexts until there were `wanted` events. Returns the counts, and the number of seeds that were used.
fn oscore(wanted: u64) -> (Counts, u64) {
    let (scratch, mut all) = (Scratch::new("oscore"), Counts::default());
    let mut seed = 0;
    while all.events < wanted {
        seed += 1;
        let mut world = World::new(seed, scratch.0.join(seed.to_string()));
        for _ in 0..1000 {
            world.step();
        }
        // However it ended, both are reached again.
        world.exchange(Which::Mote);
        world.exchange(Which::Host);
        let _ = std::fs::remove_dir_all(scratch.0.join(seed.to_string()));
        let counts = &world.counts;
        all.events += counts.events;
        all.power_cuts_of_the_mote += counts.power_cuts_of_the_mote;
        all.power_cuts_of_the_host += counts.power_cuts_of_the_host;
        all.orderly_restarts += counts.orderly_restarts;
        all.restored_backups += counts.restored_backups;
        all.copies += counts.copies;
        all.double_starts += counts.double_starts;
        all.torn_files += counts.torn_files;
        all.exchanges += counts.exchanges;
        all.notifications += counts.notifications;
        all.challenges += counts.challenges;
        all.replays_tried += counts.replays_tried;
        all.replays_accepted += counts.replays_accepted;
        all.nonces += world.crypto.nonces();
        all.repeated_nonces += world.crypto.repeated;
        all.most_round_trips = all.most_round_trips.max(counts.most_round_trips);
    }
    (all, seed)
}

/// Does the same as [`oscore`] for DTLS sessions that are stored in memory.
fn dtls(wanted: u64) -> (sessions::Counts, u64) {
    let (mut counts, mut seed) = (sessions::Counts::default(), 0);
    while counts.events < wanted {
        seed += 1;
        let mut scene = sessions::Scene::new(seed, [Box::<Memory>::default(), Box::<Memory>::default()]);
        (0..400).for_each(|_| scene.step());
        counts.add(&scene.counts);
    }
    (counts, seed)
}

/// Does the same as [`oscore`] for DTLS sessions that are stored on disk.
fn dtls_on_disk(wanted: u64) -> (sessions::Counts, u64) {
    let (scratch, mut counts, mut seed) = (Scratch::new("stores"), sessions::Counts::default(), 0);
    while counts.events < wanted {
        seed += 1;
        let dir = scratch.0.join(seed.to_string());
        let client = Box::new(stores::Client::new(&dir.join("client")));
        let server = Box::new(stores::Server::new(dir.join("server")));
        let mut scene = sessions::Scene::new(seed, [client, server]);
        (0..400).for_each(|_| scene.step());
        counts.add(&scene.counts);
        drop(scene);
        let _ = std::fs::remove_dir_all(&dir);
    }
    (counts, seed)
}

#[test]
fn no_nonce_and_no_request_comes_twice_through_crashes_restores_copies_and_double_starts() {
    let wanted = crashes();
    let ((all, seed), (dtls, dtls_seeds), (stores, stores_seeds)) = std::thread::scope(|scope| {
        let dtls = scope.spawn(|| (dtls(wanted / 4), dtls_on_disk(wanted / 4)));
        let all = oscore(wanted);
        let (dtls, stores) = dtls.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (all, dtls, stores)
    });
    let report = serde_json::json!({
        "oscore": all.json(), "oscore_seeds": seed, "dtls": dtls.json(), "dtls_seeds": dtls_seeds,
        "dtls_on_disk": stores.json(), "dtls_on_disk_seeds": stores_seeds,
    });
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = target.parent().unwrap_or(&target).join("crash.json");
    std::fs::write(&file, format!("{report:#}\n")).unwrap();
    println!("{report:#}\n{}", file.display());
    assert_eq!((all.repeated_nonces, all.replays_accepted, dtls.replays_accepted), (0, 0, 0));
    assert_eq!(stores.replays_accepted, 0);
    assert!(stores.challenges > 0 && stores.replays_tried > 0 && stores.most_round_trips <= 2, "{stores:?}");
    assert!(stores.restored_backups > 0 && stores.copies > 0 && stores.torn_files > 0, "{stores:?}");
    assert!(dtls.challenges > 0 && dtls.replays_tried > 0 && dtls.most_round_trips <= 2, "{dtls:?}");
    assert!(all.challenges > 0 && all.replays_tried > 0 && all.most_round_trips <= 2, "{all:?}");
}

/// Shows that the checks of [`World`] can fail. If a mote uses the message numbers that it reserved last (its last
/// lease) again, it repeats nonces, and the checks detect this.
#[test]
fn a_lease_that_is_broken_on_purpose_is_caught() {
    let scratch = Scratch::new("broken");
    let mut world = World::new(1, scratch.0.join("1"));
    for _ in 0..10 {
        world.exchange(Which::Mote);
    }
    world.mote.forget_the_last_lease();
    for id in 0..10 {
        world.protect(Which::Mote, None, id);
    }
    assert!(world.crypto.repeated > 0);
}
