//! Tests a DTLS client and a DTLS server, with the fuzzer between them.
//!
//! The script delivers, drops, repeats, changes and forges datagrams, and lets time pass. Four properties must hold for
//! every script. An endpoint receives only messages that the other endpoint sent, and no message twice. No nonce is
//! used twice under one key. An address without a valid cookie gets at most as many bytes as it sent. It may get three
//! times as many if the endpoints have connection ids, and six times as many if they resume a session. Every exchange
//! ends.

mod ends;
mod node;

use crate::Input;
use ends::{Ends, Full, Resumed};
use node::Node;
use std::collections::VecDeque;
use tegmen::dtls::{Config, ConnectionIdConfig, Handle, Profile};
use tegmen::time::{Duration, Instant};
use tegmen_tickets::TicketKeys;

/// Tests a server: the script controls the datagrams that the server receives.
pub fn server(data: &[u8]) {
    Duel::<Full>::new(data, true).fight();
}

/// Tests a client: the script controls the datagrams that the client receives.
pub fn client(data: &[u8]) {
    Duel::<Full>::new(data, false).fight();
}

/// Tests the resumption of a session. The client sends the ticket or session id of an earlier session, which the fuzzer
/// can change. The second byte of the script selects a ticket or a session id. It also selects the endpoint under test:
/// the server if the byte is even, and the client if the byte is odd.
pub fn resumed(data: &[u8]) {
    let how = data.get(1).copied().unwrap_or(0);
    let mut duel = Duel::<Resumed>::new(data, how & 1 == 0);
    let _ = duel.input.byte();
    duel.come_again(how);
    duel.fight();
}

/// Returns the datagrams that both endpoints send in a handshake without faults, and in an exchange of messages after
/// it.
pub fn recorded_handshake(flags: u8) -> Vec<Vec<u8>> {
    let flags = [flags];
    let mut duel = Duel::<Full>::new(&flags, true);
    let mut all = Vec::new();
    for round in 0..12 {
        duel.settle();
        while let Some(datagram) = duel.to_target.pop_front() {
            all.push(datagram.clone());
            duel.target_receives(2, datagram);
            all.extend(duel.target.poll(duel.now).into_iter().map(|(_, datagram)| {
                duel.to_honest.push_back(datagram.clone());
                datagram
            }));
        }
        if round == 10 {
            duel.to_target.extend(duel.honest.say(duel.now, b"said"));
        }
    }
    all
}

/// The numbers of the steps of a script. In a script, the data of a step follow its number. The seeds of the corpus use
/// these numbers.
pub mod step {
    /// The next datagram to the endpoint under test arrives.
    pub const DELIVER: u8 = 0;
    /// The next datagram arrives with changed bytes. In the script, the number of changes follows, and then for each
    /// change a position (2 bytes) and the new value of the byte at this position. If the highest bit of the position
    /// is set, the datagram is cut at this position instead.
    pub const CHANGE: u8 = 1;
    /// The next datagram is lost.
    pub const DROP: u8 = 2;
    /// An earlier datagram arrives again with changes. In the script, the index of this datagram follows, and then the
    /// changes as for [`CHANGE`].
    pub const REPEAT: u8 = 3;
    /// Bytes that the script contains arrive from the address of the other endpoint. In the script, their length (2
    /// bytes) and the bytes follow.
    pub const MAKE_UP: u8 = 4;
    /// Bytes that the script contains arrive from an unauthenticated peer. If the script contains no bytes, an earlier
    /// datagram arrives from this peer. In the script, the index of the earlier datagram, the length (2 bytes) and the
    /// bytes follow.
    pub const STRANGER: u8 = 5;
    /// Time passes. In the script, the time in units of 10 milliseconds (2 bytes) follows.
    pub const WAIT: u8 = 6;
    /// An endpoint sends a message, closes its session or opens a session. In the script, a byte follows that selects
    /// the endpoint and the action.
    pub const ACT: u8 = 7;
    /// A part of an earlier datagram arrives as a datagram. In the script, the index of the earlier datagram follows,
    /// and then the position and the length of the part.
    pub const EXCERPT: u8 = 8;
    /// The newest datagram that the endpoint under test has sent is lost, if it has not arrived yet.
    pub const DROP_ANSWER: u8 = 9;
    /// Number of steps.
    pub const COUNT: u8 = 10;
}

struct Duel<'a, E: Ends> {
    input: Input<'a>,
    now: Instant,
    /// The endpoint under test. The next field, `honest`, is the other endpoint, which receives only datagrams of the
    /// endpoint under test.
    target: Node<E>,
    honest: Node<E>,
    to_target: VecDeque<Vec<u8>>,
    to_honest: VecDeque<Vec<u8>>,
    /// The datagrams that were sent to the endpoint under test.
    seen: Vec<Vec<u8>>,
    /// Number of bytes that an unauthenticated peer sent, and number of bytes that were sent to this peer.
    stranger: [usize; 2],
    /// Maximum number of bytes that may be sent to the unauthenticated peer for each byte from this peer.
    amplification: usize,
    to_say: u32,
}

impl<'a> Duel<'a, Resumed> {
    /// Runs a handshake without faults. Then the client resumes its session. Bits of `how` select three faults: a close
    /// of the session before the resumption, changes of the ticket or session id, and the loss of all keys and sessions
    /// at the server.
    fn come_again(&mut self, how: u8) {
        for node in [&mut self.target, &mut self.honest] {
            node.endpoint.roles.sessions.by_id.set(how & 2 != 0);
        }
        for _ in 0..12 {
            self.settle();
            while let Some(datagram) = self.to_target.pop_front() {
                self.target_receives(2, datagram);
            }
        }
        let client = if self.target.is_client { &mut self.target } else { &mut self.honest };
        let Some((session, is_ticket, mut handle)) = client.kept.take() else { return };
        if how & 4 != 0 {
            client.close();
        }
        for _ in 0..how >> 6 {
            let (at, value) = (usize::from(self.input.byte()), self.input.byte());
            let len = handle.len();
            handle[at % len] = value;
        }
        let client = if self.target.is_client { &mut self.target } else { &mut self.honest };
        let path = client.path(3 - client.number);
        let handle = if is_ticket { Handle::Ticket(&handle) } else { Handle::Id(&handle) };
        let _ = client.endpoint.connect_again(&mut client.environment.at(self.now), &path, &session, handle);
        if how & 8 != 0 {
            let server = if self.target.is_client { &mut self.honest } else { &mut self.target };
            *server.endpoint.roles.sessions.keys.borrow_mut() = TicketKeys::draw(&mut server.environment.crypto);
            server.endpoint.roles.sessions.ids.borrow_mut().clear();
        }
        self.seen.clear();
    }
}

impl<'a, E: Ends> Duel<'a, E> {
    fn new(data: &'a [u8], target_is_server: bool) -> Self {
        let mut input = Input::new(data);
        let flags = input.byte();
        let config = Config {
            profile: if flags & 1 == 0 { Profile::Default } else { Profile::Minimal },
            mtu: if flags & 2 == 0 { 1232 } else { 100 },
            idle_timeout: Duration::from_secs(if flags & 4 == 0 { 0 } else { 30 }),
            record_size_limit: if flags & 16 == 0 { 0 } else { 64 },
            connection_id: (flags & 32 != 0).then(|| ConnectionIdConfig {
                len: flags >> 6 << 1,
                shard: 7,
                padding: if flags & 2 == 0 { 0 } else { 16 },
                check: true,
                follow_unchecked: flags & 4 != 0,
            }),
            ..Config::default()
        };
        let now = Instant::from_micros(1_000_000);
        let mut target = Node::new(1, !target_is_server, config, now);
        let mut honest = Node::new(2, target_is_server, config, now);
        if flags & 8 != 0 {
            target.key[0] ^= 1;
        }
        let client = if target_is_server { &mut honest } else { &mut target };
        client.connect(now);
        Self {
            input,
            now,
            target,
            honest,
            to_target: VecDeque::new(),
            to_honest: VecDeque::new(),
            seen: Vec::new(),
            stranger: [0; 2],
            // A peer that knows a connection id can repeat a record with this connection id. The endpoint then sends a
            // return routability check to the peer.
            amplification: E::AMPLIFICATION.max(if config.connection_id.is_some() { 3 } else { 1 }),
            to_say: 0,
        }
    }

    fn fight(mut self) {
        for _ in 0..400 {
            if self.input.is_empty() {
                break;
            }
            self.settle();
            self.step();
        }
        // In a network without faults, every handshake that began ends.
        for _ in 0..40 {
            self.settle();
            while let Some(datagram) = self.to_target.pop_front() {
                self.target_receives(2, datagram);
                self.settle();
            }
            let alarms = [self.target.endpoint.next_alarm(), self.honest.endpoint.next_alarm()];
            let Some(next) = alarms.into_iter().flatten().min().filter(|at| *at < Instant::NEVER) else { break };
            self.now = self.now.max(next);
        }
    }

    fn step(&mut self) {
        match self.input.byte() % step::COUNT {
            step::DELIVER => {
                if let Some(datagram) = self.to_target.pop_front() {
                    self.target_receives(2, datagram);
                }
            }
            step::CHANGE => {
                if let Some(datagram) = self.to_target.pop_front() {
                    let changed = self.changed(datagram);
                    self.target_receives(2, changed);
                }
            }
            step::DROP => {
                self.to_target.pop_front();
            }
            step::REPEAT => {
                let datagram = self.earlier();
                let changed = self.changed(datagram);
                self.target_receives(2, changed);
            }
            step::MAKE_UP => {
                let len = self.input.word() & 0x7ff;
                let datagram = self.input.bytes(len.into()).to_vec();
                self.target_receives(2, datagram);
            }
            step::STRANGER => {
                let earlier = self.earlier();
                let len = self.input.word() & 0x7ff;
                let made_up = self.input.bytes(len.into()).to_vec();
                self.target_receives(3, if made_up.is_empty() { earlier } else { made_up });
            }
            step::WAIT => {
                let time = Duration::from_millis(10 * u64::from(self.input.word()));
                self.now = self.now.after(time);
            }
            step::ACT => {
                let what = self.input.byte();
                let node = if what & 1 == 0 { &mut self.honest } else { &mut self.target };
                match what >> 1 & 3 {
                    0 => node.close(),
                    1 if node.is_client => node.connect(self.now),
                    _ => {
                        self.to_say += 1;
                        let text = self.to_say.to_be_bytes().repeat(1 + usize::from(what >> 5));
                        match node.say(self.now, &text) {
                            Some(datagram) if what & 1 == 0 => self.toward_target(datagram),
                            Some(datagram) => self.to_honest.push_back(datagram),
                            None => {}
                        }
                    }
                }
            }
            step::EXCERPT => {
                let datagram = self.earlier();
                let (start, end) = (usize::from(self.input.byte()), usize::from(self.input.byte()));
                let piece = datagram.get(start..).unwrap_or(&[]);
                let piece = piece.get(..end).unwrap_or(piece).to_vec();
                self.target_receives(2, piece);
            }
            _ => {
                self.to_honest.pop_back();
            }
        }
    }

    fn earlier(&mut self) -> Vec<u8> {
        let index = usize::from(self.input.byte());
        match self.seen.len() {
            0 => Vec::new(),
            len => self.seen[index % len].clone(),
        }
    }

    fn changed(&mut self, mut datagram: Vec<u8>) -> Vec<u8> {
        for _ in 0..self.input.byte() % 8 {
            let (at, value) = (usize::from(self.input.word()), self.input.byte());
            match datagram.len() {
                0 => {}
                len if at & 0x8000 != 0 => datagram.truncate(at % len),
                len => datagram[at % len] = value,
            }
        }
        datagram
    }

    fn target_receives(&mut self, from: u8, datagram: Vec<u8>) {
        let before = self.target.established;
        let len = datagram.len();
        let out = self.target.receive(self.now, from, datagram);
        for (to, datagram) in out {
            match to {
                3 => self.stranger[1] += datagram.len(),
                _ => self.to_honest.push_back(datagram),
            }
        }
        if from == 3 {
            self.stranger[0] += len;
            assert!(
                self.stranger[1] <= self.amplification * self.stranger[0],
                "an address that proved nothing got more than it sent"
            );
            assert_eq!(before, self.target.established);
        }
        assert_heard(&mut self.target, &self.honest);
    }

    /// Sends a datagram to the endpoint under test. The script can repeat it later.
    fn toward_target(&mut self, datagram: Vec<u8>) {
        if self.seen.len() < 255 {
            self.seen.push(datagram.clone());
        }
        if self.to_target.len() < 64 {
            self.to_target.push_back(datagram);
        }
    }

    /// Lets both endpoints send all datagrams that they have to send now. The honest endpoint receives all datagrams
    /// that are addressed to it.
    fn settle(&mut self) {
        for _ in 0..100 {
            for (to, datagram) in self.target.poll(self.now) {
                if to != 3 {
                    self.to_honest.push_back(datagram);
                    continue;
                }
                assert!(E::LATER, "an unauthenticated peer gets an answer at once or not at all");
                self.stranger[1] += datagram.len();
                assert!(
                    self.stranger[1] <= self.amplification * self.stranger[0],
                    "an unauthenticated peer gets more bytes than it may"
                );
            }
            for (_, datagram) in self.honest.poll(self.now) {
                self.toward_target(datagram);
            }
            for datagram in std::mem::take(&mut self.to_honest) {
                let answers = self.honest.receive(self.now, 1, datagram);
                for (_, datagram) in answers {
                    self.toward_target(datagram);
                }
                assert_heard(&mut self.honest, &self.target);
            }
            let later = |node: &Node<E>| node.endpoint.next_alarm().is_none_or(|at| at > self.now);
            if later(&self.target) && later(&self.honest) && self.to_honest.is_empty() {
                return;
            }
        }
        panic!("the two never come to rest");
    }
}

/// Checks that `speaker` sent the messages that `listener` received, and that none arrived twice.
fn assert_heard<E: Ends>(listener: &mut Node<E>, speaker: &Node<E>) {
    for text in std::mem::take(&mut listener.heard) {
        assert!(speaker.said.contains(&text), "received a message that was not sent: {text:02x?}");
        assert!(listener.heard_before.insert(text), "heard twice");
    }
}
