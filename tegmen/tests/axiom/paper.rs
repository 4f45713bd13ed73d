//! A member that follows the Axiom paper in all points in which our member differs from the paper. Tests show that an
//! attack succeeds against this member, and fails against ours.
//!
//! This member accepts the first record of a sender as the reference (section 6.2). It treats each record with its own
//! SenderID as that of another sender (section 7.5). It finds the state for a response by the address and port of the
//! sender (section 5.6), and ignores the port of a listener. Its TSNs have 40 bits and no other limit (section 6.3). If
//! a suite has no cipher, it derives individual keys from an empty secret (section 5.5). A mutant of this member lacks
//! one more check, so that a test can show that the check is necessary.

use crate::group::{Group, address, tsn_of};
use std::collections::HashMap;
use tegmen::address::Address;
use tegmen::axiom::Suite;
use tegmen::crypto::hash::HmacKey;
use tegmen::crypto::{Crypto, RustCrypto, hmac};

/// The result of a record that arrives at a member that follows the paper.
#[derive(PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The member delivers the content to the application.
    Delivered(Vec<u8>),
    Dropped,
    /// The member reports a clash to the controller: two members use one SenderID, or two listeners use one address.
    Clash,
}

pub struct Paper {
    crypto: RustCrypto,
    group: Group,
    number: u8,
    request: Key,
    /// The key from which individual keys are derived.
    response: Key,
    /// The TSN of the next request.
    pub next: u64,
    /// The TSN of the next response to each sender, by the address of the sender.
    written: HashMap<Address, u64>,
    /// The highest TSN of each sender and of each listener.
    newest: HashMap<[u8; 16], u64>,
    /// True if the member was in the group when each sender began with TSN 0.
    pub was_here: bool,
    /// True if the member derives individual keys from a secret that is never empty, as our member does.
    pub has_secret: bool,
    /// Mutant: the member stores no TSNs.
    pub forgets_numbers: bool,
    /// Mutant: the member has one key for the responses to all senders.
    pub has_one_key: bool,
    /// Mutant: the member identifies a listener by its IP address and ignores the port. It reports two listeners at one
    /// IP address as a clash.
    pub finds_twins: bool,
    /// Mutant: the number of records that may still fail to open, as in a session with 8-byte tags. With 0, the member
    /// opens no more records. `None` means no limit.
    pub tries: Option<u32>,
}

struct Key {
    key: Vec<u8>,
    iv: [u8; 4],
}

impl Paper {
    pub fn new(group: &Group, number: u8) -> Self {
        let mut block = [0; 64];
        let seed: [&[u8]; 3] = [b"key expansion", &group.server_random, &group.client_random];
        HmacKey::new::<RustCrypto>(&[&group.master_secret]).prf::<RustCrypto>(&seed, &mut block);
        let len = if group.suite == Suite::MacOnly { 32 } else { 16 };
        let part = |at: usize| Key {
            key: block[at * len..][..len].to_vec(),
            iv: if len == 16 { block[32 + 4 * at..][..4].try_into().unwrap() } else { [0; 4] },
        };
        Self {
            crypto: RustCrypto::new([number; 32]),
            group: group.clone(),
            number,
            response: part(0),
            request: part(1),
            next: 0,
            written: HashMap::new(),
            newest: HashMap::new(),
            was_here: true,
            has_secret: group.suite != Suite::MacOnly,
            forgets_numbers: false,
            has_one_key: false,
            finds_twins: false,
            tries: None,
        }
    }

    /// Creates a mutant of the member that follows the paper. `lacks` turns off one more check of this member.
    pub fn mutant(group: &Group, number: u8, lacks: impl FnOnce(&mut Self)) -> Self {
        let mut made = Self::new(group, number);
        lacks(&mut made);
        made
    }

    /// Returns the key of the listener at `listener` for responses to a sender.
    fn individual(&self, listener: &[u8; 16], sender: u8) -> Key {
        let secret = [&self.response.key[..], &self.request.key].concat();
        let secret = if self.has_secret { &secret[..] } else { &[] };
        let mut key = self.response.key.clone();
        let seed: [&[u8]; 3] = [b"key derivation", listener, if self.has_one_key { &[] } else { &[sender] }];
        HmacKey::new::<RustCrypto>(&[secret]).prf::<RustCrypto>(&seed, &mut key);
        Key { key, iv: self.response.iv }
    }

    pub fn request(&mut self, content: &[u8]) -> Vec<u8> {
        let number = self.header(self.number, self.next);
        self.next += 1;
        let key = Key { key: self.request.key.clone(), iv: self.request.iv };
        self.seal(&key, number, content)
    }

    /// Returns a response to the sender `to`, whose request came from the address `at`.
    pub fn response(&mut self, (to, at): (u8, Address), content: &[u8]) -> Vec<u8> {
        let tsn = self.written.entry(at).or_default();
        *tsn += 1;
        let number = self.header(self.group.group_id, self.written[&at] - 1);
        let key = self.individual(&address(self.number).ip, to);
        self.seal(&key, number, content)
    }

    pub fn hear_request(&mut self, record: &[u8]) -> Outcome {
        let (id, tsn) = (record[5], tsn_of(record));
        let key = Key { key: self.request.key.clone(), iv: self.request.iv };
        let Some(content) = self.open(&key, record) else { return Outcome::Dropped };
        if id == self.number {
            return Outcome::Clash;
        }
        let mut state = [0; 16];
        state[0] = id;
        self.take(state, (tsn, self.was_here), content)
    }

    pub fn hear_response(&mut self, from: &Address, record: &[u8]) -> Outcome {
        let key = self.individual(&from.ip, self.number);
        let Some(content) = self.open(&key, record) else { return Outcome::Dropped };
        let tsn = tsn_of(record);
        // The test sends each record of a listener once.
        if self.finds_twins && self.newest.get(&from.ip) == Some(&tsn) {
            return Outcome::Clash;
        }
        self.take(from.ip, (tsn, true), content)
    }

    /// Delivers the content if its TSN is higher than all earlier TSNs of the sender. `state` identifies the sender. If
    /// there is no earlier TSN, delivers the content only if `takes_first` is true.
    fn take(&mut self, state: [u8; 16], (tsn, takes_first): (u64, bool), content: Vec<u8>) -> Outcome {
        let before = self.newest.get(&state).copied();
        self.newest.insert(state, before.map_or(tsn, |before| before.max(tsn)));
        if self.forgets_numbers || before.map_or(takes_first, |before| tsn > before) {
            Outcome::Delivered(content)
        } else {
            Outcome::Dropped
        }
    }

    fn header(&self, id: u8, tsn: u64) -> [u8; 8] {
        (u64::from(self.group.epoch) << 48 | u64::from(id) << 40 | tsn & TSN).to_be_bytes()
    }

    /// Returns the number of bytes before the content, and the number of bytes after it.
    fn around(&self) -> (usize, usize) {
        match self.group.suite {
            Suite::MacOnly => (13, 32),
            Suite::Ccm8 => (21, 8),
            _ => (21, 16),
        }
    }

    fn seal(&mut self, Key { key, iv }: &Key, number: [u8; 8], content: &[u8]) -> Vec<u8> {
        let (before, behind) = self.around();
        let aad = [&number[..], &KIND, &(content.len() as u16).to_be_bytes()].concat();
        let (mut body, mut tag) = (content.to_vec(), vec![0; behind]);
        if self.group.suite == Suite::MacOnly {
            tag = hmac::<RustCrypto, 32>(&[key], &[&aad, content]).to_vec();
        } else {
            let nonce = [&iv[..], &number].concat();
            self.crypto.seal(RustCrypto::AES_128_CCM, key, &nonce, &aad, &mut body, &mut tag).unwrap();
        }
        let explicit = &number[..before - 13];
        let len = ((explicit.len() + body.len() + tag.len()) as u16).to_be_bytes();
        [&KIND[..], &number, &len, explicit, &body, &tag].concat()
    }

    fn open(&mut self, Key { key, iv }: &Key, record: &[u8]) -> Option<Vec<u8>> {
        if self.tries == Some(0) {
            return None;
        }
        let (before, behind) = self.around();
        let number = *record[3..].first_chunk::<8>().unwrap();
        let (body, tag) = record[before..].split_at(record.len() - before - behind);
        let mut body = body.to_vec();
        let aad = [&number[..], &KIND, &(body.len() as u16).to_be_bytes()].concat();
        let is_right = if self.group.suite == Suite::MacOnly {
            hmac::<RustCrypto, 32>(&[key], &[&aad, &body])[..] == *tag
        } else {
            let nonce = [&iv[..], &number].concat();
            self.crypto.open(RustCrypto::AES_128_CCM, key, &nonce, &aad, &mut body, tag).is_ok()
        };
        if let Some(tries) = self.tries.as_mut().filter(|_| !is_right) {
            *tries -= 1;
        }
        is_right.then_some(body)
    }
}

const TSN: u64 = (1 << 40) - 1;
/// The content type and version of application data in DTLS 1.2.
const KIND: [u8; 3] = [23, 0xfe, 0xfd];

/// Returns true if these two records reveal the difference of their contents, because they have the same key and nonce.
pub fn reveal(records: [&[u8]; 2], contents: [&[u8]; 2]) -> bool {
    let xor = |[one, other]: [&[u8]; 2]| one.iter().zip(other).map(|(one, other)| one ^ other).collect::<Vec<_>>();
    let bodies = records.map(|record| &record[21..record.len() - 16]);
    records[0][..21] == records[1][..21] && xor(bodies) == xor(contents)
}
