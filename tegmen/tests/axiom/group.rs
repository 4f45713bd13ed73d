//! A group for tests: its associations, and functions that seal and open the records of its members.

use tegmen::address::Address;
use tegmen::axiom::{Association, Kept, Member, Opened, SealRefused, SenderId, Signatures, Suite, Unverified};
use tegmen::buf::Frame;
use tegmen::crypto::Crypto;
use tegmen::cx::Discard;
use tegmen::dtls::Records;

/// Number of bytes that are enough for the protection before and after any content together.
const ROOM: usize = 128;

/// A group in one epoch: the parameters that the controller gives to the members.
#[derive(Clone)]
pub struct Group {
    pub suite: Suite,
    pub epoch: u16,
    pub group_id: u8,
    pub senders: u16,
    pub master_secret: [u8; 48],
    pub client_random: [u8; 32],
    pub server_random: [u8; 32],
}

pub const PORT: u16 = 5684;

impl Group {
    pub fn new(suite: Suite) -> Self {
        Self {
            suite,
            epoch: 1,
            group_id: 9,
            senders: 4,
            master_secret: [1; 48],
            client_random: [2; 32],
            server_random: [3; 32],
        }
    }

    /// Returns the group in the next epoch.
    pub fn next(&self) -> Self {
        let mut next = self.clone();
        next.epoch += 1;
        next.master_secret[..2].copy_from_slice(&next.epoch.to_be_bytes());
        next
    }

    /// Returns the association of the member `number`. Its SenderID and its address contain this number.
    pub fn association(&self, number: u8) -> Association<'_> {
        Association {
            group_id: self.group_id,
            group: Address { ip: *b"\xff\x15grouptegmen.g1", port: PORT, scope: 0 },
            suite: self.suite,
            epoch: self.epoch,
            senders: self.senders,
            sender_id: Some(number),
            address: address(number).ip,
            master_secret: &self.master_secret,
            client_random: &self.client_random,
            server_random: &self.server_random,
        }
    }

    /// Creates the member `number`, with record numbers that are reserved for a thousand requests and a thousand
    /// responses.
    pub fn member<const KEY: usize>(&self, crypto: &mut impl Crypto, number: u8) -> Member<4, 4, KEY> {
        let mut member = Member::new(crypto, &self.association(number), &Kept::default()).unwrap();
        member.extend(&member.reserve(1000, 1000));
        member
    }
}

/// Returns the address of the member `number`.
pub fn address(number: u8) -> Address {
    Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number], port: PORT, scope: 0 }
}

fn sealed<const KEY: usize, S: Signatures>(
    member: &mut Member<4, 4, KEY, S>,
    content: &[u8],
    seal: impl FnOnce(&mut Member<4, 4, KEY, S>, &mut Frame<'_>) -> Result<(), SealRefused>,
) -> Result<Vec<u8>, SealRefused> {
    let mut storage = vec![0; content.len() + ROOM];
    let (before, behind) = member.overhead();
    let mut frame = Frame::new(&mut storage, before);
    frame.append(content).unwrap();
    seal(member, &mut frame)?;
    assert_eq!(frame.len(), before + content.len() + behind);
    Ok(frame.finish().to_vec())
}

pub fn try_request<const KEY: usize, S: Signatures>(
    member: &mut Member<4, 4, KEY, S>,
    crypto: &mut impl Crypto,
    content: &[u8],
) -> Result<Vec<u8>, SealRefused> {
    sealed(member, content, |member, frame| member.seal_request(crypto, frame).map(drop))
}

pub fn request<const KEY: usize, S: Signatures>(
    member: &mut Member<4, 4, KEY, S>,
    crypto: &mut impl Crypto,
    content: &[u8],
) -> Vec<u8> {
    try_request(member, crypto, content).unwrap()
}

pub fn try_response<const KEY: usize, S: Signatures>(
    member: &mut Member<4, 4, KEY, S>,
    crypto: &mut impl Crypto,
    to: SenderId,
    content: &[u8],
) -> Result<Vec<u8>, SealRefused> {
    sealed(member, content, |member, frame| member.seal_response(crypto, to, frame))
}

pub fn response<const KEY: usize, S: Signatures>(
    member: &mut Member<4, 4, KEY, S>,
    crypto: &mut impl Crypto,
    to: SenderId,
    content: &[u8],
) -> Vec<u8> {
    try_response(member, crypto, to, content).unwrap()
}

/// The result of opening a record.
#[derive(Debug)]
pub enum Heard {
    Fresh(Vec<u8>),
    Unverified(Vec<u8>, Unverified),
    Clash,
}

impl From<Opened<'_>> for Heard {
    fn from(opened: Opened<'_>) -> Self {
        match opened {
            Opened::Fresh(content) => Self::Fresh(content.to_vec()),
            Opened::Unverified(content, number) => Self::Unverified(content.to_vec(), number),
            Opened::Clash => Self::Clash,
        }
    }
}

impl Heard {
    /// Returns the content of a record that is new.
    pub fn fresh(self) -> Vec<u8> {
        match self {
            Self::Fresh(content) => content,
            other => panic!("{other:?} is not fresh"),
        }
    }

    /// Returns the content of a record that may be a replay, and the value with which `Member::accept` accepts the
    /// record.
    pub fn unverified(self) -> (Vec<u8>, Unverified) {
        match self {
            Self::Unverified(content, number) => (content, number),
            other => panic!("{other:?} is verified"),
        }
    }
}

pub fn hear_request<const KEY: usize, S: Signatures>(
    member: &mut Member<4, 4, KEY, S>,
    crypto: &mut impl Crypto,
    datagram: &[u8],
) -> Result<(SenderId, Heard), Discard> {
    let datagram = &mut datagram.to_vec();
    let mut records = Records::new(datagram);
    let record = records.next_record().unwrap_or(Err(Discard::Malformed))?;
    member.open_request(crypto, record).map(|(sender, opened)| (sender, opened.into()))
}

pub fn hear_response<const KEY: usize, S: Signatures>(
    member: &mut Member<4, 4, KEY, S>,
    crypto: &mut impl Crypto,
    from: &Address,
    datagram: &[u8],
) -> Result<Heard, Discard> {
    let datagram = &mut datagram.to_vec();
    let mut records = Records::new(datagram);
    let record = records.next_record().unwrap_or(Err(Discard::Malformed))?;
    member.open_response(crypto, from, record).map(Heard::from)
}

/// Returns the TSN of a record.
pub fn tsn_of(record: &[u8]) -> u64 {
    u64::from_be_bytes(*record[3..].first_chunk().unwrap()) & ((1 << 40) - 1)
}

/// Returns a content that is different from all others.
pub fn draw(crypto: &mut impl Crypto) -> [u8; 16] {
    let mut content = [0; 16];
    crypto.random(&mut content);
    content
}
