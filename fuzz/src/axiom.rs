//! Executes scripts of events for two members of a group.

mod rekeying;

use crate::Input;
use std::collections::HashSet;
use tegmen::address::Address;
use tegmen::axiom::{Association, Kept, Member, Opened, Proof, SenderId, Suite};
use tegmen::buf::Frame;
use tegmen::crypto::{Compact, digest};
use tegmen::dtls::Records;

/// Number of members in a script.
const MEMBERS: usize = 2;

/// A member of the group. Its record keys have `KEY` bytes: 16 in the suites with encryption, and 32 in the suite
/// without encryption.
struct End<const KEY: usize> {
    member: Member<2, 2, KEY>,
    epoch: u16,
    /// The epoch and the upper limits of the reserved record numbers, as the member last stored them durably.
    kept: Kept,
    /// The sender of the request that was last delivered.
    asked: Option<SenderId>,
    /// The TSN (truncated sequence number of the record) of the request that was last delivered.
    answers: u64,
}

/// A record that was sent, its content, the index of its sender, and true if it is a request.
#[derive(Clone)]
struct Sent {
    bytes: Vec<u8>,
    content: Vec<u8>,
    from: usize,
    is_request: bool,
}

struct Script<const KEY: usize> {
    suite: Suite,
    /// The seed of all keys.
    seed: [u8; 32],
    crypto: Compact,
    ends: [End<KEY>; MEMBERS],
    sent: Vec<Sent>,
    delivered: HashSet<(usize, Vec<u8>)>,
    number: u32,
}

fn address(which: usize) -> Address {
    Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, which as u8], port: 5684, scope: 0 }
}

/// Calls `make` with the association of an epoch at the member `which`. Returns its result.
fn with_association<T>(
    (suite, seed): (Suite, &[u8; 32]),
    epoch: u16,
    which: usize,
    make: impl FnOnce(&Association<'_>) -> T,
) -> T {
    let master_secret = &mut [7; 48];
    master_secret[..2].copy_from_slice(&epoch.to_be_bytes());
    master_secret[2..34].copy_from_slice(seed);
    make(&Association {
        group_id: 9,
        group: Address { ip: [0xff; 16], port: 5684, scope: 0 },
        suite,
        epoch,
        senders: 2,
        sender_id: Some(which as u8),
        address: address(which).ip,
        master_secret,
        client_random: &[1; 32],
        server_random: &[2; 32],
    })
}

/// Reads the bytes as a script: requests, responses, replays, damaged records, restarts, new epochs and records of an
/// outsider. A member must deliver only records that were sent, and each of them once. The members must never report a
/// clash (two members with one SenderID), because each member has its own SenderID. If the third lowest bit of the
/// first byte is set, the script consists of rekey messages.
pub fn script(data: &[u8]) {
    let mut input = Input::new(data);
    // Each script has its own keys. Otherwise the fuzzer could learn a record in one script and use it in another
    // script, where the record would not be a forgery.
    let seed = digest::<Compact, 32>(&[data]);
    match input.byte() & 7 {
        4.. => rekeying::script(seed, input),
        0 => Script::<16>::new(Suite::Ccm, seed).run(input),
        1 => Script::<16>::new(Suite::Ccm8, seed).run(input),
        _ => Script::<32>::new(Suite::MacOnly, seed).run(input),
    }
}

impl<const KEY: usize> Script<KEY> {
    fn new(suite: Suite, seed: [u8; 32]) -> Self {
        let mut crypto = Compact::new(seed);
        let ends = [0, 1].map(|which| {
            let member = with_association((suite, &seed), 1, which, |association| {
                Member::new(&mut crypto, association, &Kept::default()).expect("it fits")
            });
            End { member, epoch: 1, kept: Kept::default(), asked: None, answers: 0 }
        });
        Self { suite, seed, crypto, ends, sent: Vec::new(), delivered: HashSet::new(), number: 0 }
    }

    fn run(mut self, mut input: Input<'_>) {
        while !input.is_empty() && self.number < 200 {
            let command = input.byte();
            let which = usize::from(command >> 7);
            match command & 7 {
                0 => self.send(which, None),
                1 => {
                    let to = self.ends[which].asked;
                    self.send(which, to);
                }
                2..=4 => {
                    let at = usize::from(input.byte()) % self.sent.len().max(1);
                    let Some(mut sent) = self.sent.get(at).cloned() else { continue };
                    let is_spoilt = command & 7 == 4;
                    if is_spoilt {
                        let (at, bit) = (usize::from(input.byte()) % sent.bytes.len(), input.byte() & 7);
                        sent.bytes[at] ^= 1 << bit;
                    }
                    self.hear(which, &sent, is_spoilt);
                }
                5 => self.renew(which, command & 8 != 0),
                6 => {
                    self.ends[which].member.forget_idle(&mut self.crypto);
                    self.ends[which].asked = None;
                }
                _ => {
                    let bytes = input.bytes(64).to_vec();
                    let is_request = command & 8 != 0;
                    let strange = Sent { bytes, content: Vec::new(), from: 1 - which, is_request };
                    let is_known = self.sent.iter().any(|sent| strange.bytes.starts_with(&sent.bytes));
                    self.hear(which, &strange, !is_known);
                }
            }
        }
    }

    /// Sends a request, or a response to the sender `to`.
    fn send(&mut self, which: usize, to: Option<SenderId>) {
        self.number += 1;
        // Each member is assumed to know the challenge of the other member.
        let challenge = self.ends[1 - which].member.challenge().to_vec();
        let end = &mut self.ends[which];
        end.kept = end.member.reserve(1, 1);
        end.member.extend(&end.kept);
        let content = [&self.number.to_be_bytes()[..], &challenge, &end.answers.to_be_bytes()].concat();
        let mut storage = [0; 80];
        let mut frame = Frame::new(&mut storage, end.member.overhead().0);
        frame.append(&content).expect("it fits");
        let sealed = match to {
            None => end.member.seal_request(&mut self.crypto, &mut frame),
            Some(to) => end.member.seal_response(&mut self.crypto, to, &mut frame).map(|()| 0),
        };
        sealed.expect("a lease covers it");
        let bytes = frame.bytes().to_vec();
        self.sent.push(Sent { bytes, content, from: which, is_request: to.is_none() });
    }

    fn hear(&mut self, which: usize, sent: &Sent, is_forged: bool) {
        let datagram = &mut sent.bytes.clone();
        let tsn = datagram.get(3..).and_then(|rest| rest.first_chunk().copied()).map_or(0, u64::from_be_bytes);
        let tsn = tsn & ((1 << 40) - 1);
        let end = &mut self.ends[which];
        let mut records = Records::new(datagram);
        let Some(Ok(record)) = records.next_record() else { return };
        let opened = if sent.is_request {
            end.member.open_request(&mut self.crypto, record).map(|(from, opened)| {
                end.asked = Some(from);
                end.answers = tsn;
                opened
            })
        } else {
            end.member.open_response(&mut self.crypto, &address(sent.from), record)
        };
        let Ok(opened) = opened else { return };
        assert!(!is_forged, "it opened");
        let content = match opened {
            Opened::Fresh(content) => content.to_vec(),
            Opened::Unverified(content, record) => {
                let content = content.to_vec();
                // A member answers a request only once. So a response that was already delivered answers no open
                // request.
                let is_awaited = sent.is_request || !self.delivered.contains(&(which, content.clone()));
                let proof = match sent.is_request {
                    true => Proof::Echo(&content[4..12]),
                    false => Proof::AnswerTo(u64::from_be_bytes(*content[12..].first_chunk().expect("it is in all"))),
                };
                if !is_awaited || end.member.accept::<Compact>(record, proof).is_err() {
                    return;
                }
                content
            }
            Opened::Clash => panic!("nobody shares a number"),
        };
        assert!(sent.content.is_empty() || sent.content == content);
        assert!(self.delivered.insert((which, content)), "delivered twice");
    }

    /// Begins the next epoch of a member, or restarts the member in its current epoch.
    fn renew(&mut self, which: usize, restarts: bool) {
        let end = &mut self.ends[which];
        end.asked = None;
        if restarts {
            end.member = with_association((self.suite, &self.seed), end.epoch, which, |association| {
                Member::new(&mut self.crypto, association, &end.kept).expect("it fits")
            });
            return;
        }
        end.epoch += 1;
        with_association((self.suite, &self.seed), end.epoch, which, |association| {
            end.member.rekey(&mut self.crypto, association).expect("it is the next one");
        });
    }
}
