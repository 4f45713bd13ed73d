//! An attacker who took over a gateway. The attacker has the memory of the gateway's process, and all datagrams of a
//! session.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt as _;
use tegmen::buf::Reader;
use tegmen::crypto::hash::HmacKey;
use tegmen::crypto::{Crypto, RustCrypto};
use tegmen::dtls::{
    CipherSuite, ContentType, HandshakeFragment, HandshakeMessage, MASTER_LEN, MessageType, SessionState,
};
use tegmen::secret::Secret;
use tegmen_host::hex::from_hex;
use tegmen_tickets::{TICKET_KEY_LEN, TicketKey};

/// Length of a write key in bytes. The next constant is the length of the salt of a write key (RFC 6655, section 3).
const KEY_LEN: usize = 16;
const SALT_LEN: usize = 4;
const TAG_LEN: usize = 8;
const HANDSHAKE: u8 = ContentType::HANDSHAKE.0;

/// A datagram of a session.
#[derive(Clone)]
pub(crate) struct Datagram {
    pub(crate) is_of_client: bool,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the writable memory of a process. This memory includes the environment of the process.
pub(crate) fn memory_of(process: u32) -> Vec<u8> {
    let file = File::open(format!("/proc/{process}/mem")).expect("the memory of a process of this user");
    let mut memory = Vec::new();
    for line in read_to_string(format!("/proc/{process}/maps")).unwrap().lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        if rest.starts_with("rw") {
            let (start, end) = range.split_once('-').unwrap();
            let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
            let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
            file.read_exact_at(&mut bytes, start).unwrap();
            memory.extend(bytes);
        }
    }
    memory
}

/// The kind of a secret with which the attacker can decrypt records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// The write key and the salt of one endpoint.
    WriteKey,
    MasterSecret,
    /// A ticket key. It decrypts tickets, which contain the master secret.
    TicketKey,
}

pub(crate) struct Spy<'s> {
    pub(crate) memory: &'s [u8],
    pub(crate) datagrams: &'s [Datagram],
}

impl Spy<'_> {
    /// Searches all bytes of the attacker for a secret of the kind `held`, also the memory decoded from hexadecimal
    /// text. Returns the contents of the records that the first matching secret decrypts; empty if no secret matches.
    pub(crate) fn opened(&self, held: Held) -> Vec<Vec<u8>> {
        let session = Wire::of(self.datagrams);
        assert!(session.records.len() >= 4, "both messages Finished, a request and a response");
        let tickets = self.tickets();
        let text = self.memory.split(|byte| !byte.is_ascii_hexdigit()).filter(|run| run.len() >= 2 * TICKET_KEY_LEN);
        let decoded: Vec<_> = text.filter_map(|run| from_hex(str::from_utf8(run).ok()?)).collect();
        let carried = self.datagrams.iter().map(|datagram| &datagram.bytes[..]);
        let all = [self.memory].into_iter().chain(carried).chain(decoded.iter().map(Vec::as_slice));
        let is_some = |records: &Vec<Vec<u8>>| !records.is_empty();
        let found = match held {
            Held::WriteKey => all.flat_map(varied).map(|key| session.opened_with([key, key])).find(is_some),
            Held::MasterSecret => all.flat_map(varied).map(|master| session.opened_under(master)).find(is_some),
            Held::TicketKey => {
                let masters = |key: &[u8; TICKET_KEY_LEN]| -> Vec<_> {
                    let tickets = tickets.get(&key[..2]).into_iter().flatten();
                    tickets.filter_map(|ticket| open(key, ticket)).collect()
                };
                all.flat_map(varied).flat_map(masters).map(|master| session.opened_under(&master)).find(is_some)
            }
        };
        found.unwrap_or_default()
    }

    /// Returns each vector in the datagrams that may be a ticket: bytes that follow their own length. The key of the
    /// map is the first two bytes of the vector. In a ticket these two bytes are the name of the ticket key.
    fn tickets(&self) -> HashMap<&[u8], Vec<&[u8]>> {
        let mut tickets: HashMap<_, Vec<_>> = HashMap::new();
        for Datagram { bytes, .. } in self.datagrams {
            for at in 0..bytes.len() {
                let vector = Reader::new(&bytes[at..]).with_len16();
                if let Some(ticket) = vector.ok().filter(|vector| vector.len() > SessionState::LEN) {
                    tickets.entry(&ticket[..2]).or_default().push(ticket);
                }
            }
        }
        tickets
    }
}

/// Returns all sequences of `LEN` bytes with at least two thirds different values, because random keys look like this.
fn varied<const LEN: usize>(bytes: &[u8]) -> impl Iterator<Item = &[u8; LEN]> {
    let (mut counts, mut different) = ([0_u32; 256], 0);
    bytes.iter().enumerate().filter_map(move |(at, byte)| {
        let count = &mut counts[usize::from(*byte)];
        *count += 1;
        different += usize::from(*count == 1);
        if let Some(before) = at.checked_sub(LEN) {
            let count = &mut counts[usize::from(bytes[before])];
            *count -= 1;
            different -= usize::from(*count == 0);
        }
        (3 * different >= 2 * LEN).then(|| bytes[..=at].last_chunk()).flatten()
    })
}

/// Decrypts a ticket, and returns the master secret of its session; `None` if the key is wrong.
fn open(key: &[u8; TICKET_KEY_LEN], ticket: &[u8]) -> Option<[u8; MASTER_LEN]> {
    let (key, mut room) = (TicketKey(Secret::new(*key)), vec![0; ticket.len()]);
    let len = key.open(&mut RustCrypto::new([0; 32]), ticket, &mut room)?;
    let session = SessionState::read(&mut Reader::new(&room[..len])).ok()?;
    Some(*session.master.expose())
}

/// The parts of a session that the attacker reads from the datagrams.
struct Wire {
    client_random: [u8; 32],
    server_random: [u8; 32],
    records: Vec<Protected>,
    crypto: RefCell<RustCrypto>,
}

/// An encrypted record of the suite TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8.
struct Protected {
    is_of_client: bool,
    /// The type and the version in the header of the record.
    kind: [u8; 3],
    /// The epoch and the sequence number in the header of the record.
    number: [u8; 8],
    body: Vec<u8>,
}

impl Wire {
    fn of(datagrams: &[Datagram]) -> Self {
        let crypto = RefCell::new(RustCrypto::new([0; 32]));
        let mut wire = Self { client_random: [0; 32], server_random: [0; 32], records: Vec::new(), crypto };
        for Datagram { is_of_client, bytes } in datagrams {
            let reader = &mut Reader::new(bytes);
            while let (Ok(kind), Ok(number), Ok(body)) = (reader.array::<3>(), reader.array::<8>(), reader.with_len16())
            {
                match (kind, number) {
                    ([HANDSHAKE, ..], [0, 0, ..]) => wire.note(body),
                    (_, [0, 0, ..]) => {}
                    _ => {
                        let (is_of_client, body) = (*is_of_client, body.to_vec());
                        wire.records.push(Protected { is_of_client, kind, number, body });
                    }
                }
            }
        }
        wire
    }

    fn note(&mut self, content: &[u8]) {
        for fragment in HandshakeFragment::each(content).filter(|fragment| fragment.offset == 0) {
            let random = || *fragment.body[2..].first_chunk().unwrap();
            match fragment.message_type {
                MessageType::CLIENT_HELLO => self.client_random = random(),
                MessageType::SERVER_HELLO => self.server_random = random(),
                _ => continue,
            }
            if let Ok(HandshakeMessage::ServerHello { cipher_suite, .. }) =
                HandshakeMessage::read(fragment.message_type, fragment.body)
            {
                assert_eq!(cipher_suite, CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8);
            }
        }
    }

    /// Returns the contents of the records that a master secret decrypts.
    fn opened_under(&self, master: &[u8; MASTER_LEN]) -> Vec<Vec<u8>> {
        let mut block = [0; 2 * (KEY_LEN + SALT_LEN)];
        let seed: [&[u8]; 3] = [b"key expansion", &self.server_random, &self.client_random];
        HmacKey::new::<RustCrypto>(&[master]).prf::<RustCrypto>(&seed, &mut block);
        // The keys of client and server, then their salts (RFC 5246, section 6.3).
        let (keys, salts) = block.split_at(2 * KEY_LEN);
        let end = |at: usize| {
            let key = [&keys[at * KEY_LEN..][..KEY_LEN], &salts[at * SALT_LEN..][..SALT_LEN]].concat();
            key.try_into().expect("the sum of both")
        };
        let [client, server] = [end(0), end(1)];
        self.opened_with([&client, &server])
    }

    /// Returns the contents of the records that `client` or `server` decrypts. Each of the two values is a key with its
    /// salt: `client` for the records of the client, and `server` for the records of the server.
    fn opened_with(&self, [client, server]: [&[u8; KEY_LEN + SALT_LEN]; 2]) -> Vec<Vec<u8>> {
        let open = |record: &Protected| {
            let key = if record.is_of_client { client } else { server };
            record.open(&mut self.crypto.borrow_mut(), key)
        };
        // Who does not open the first record of an end opens no other.
        let first = |is_of_client| self.records.iter().find(move |record| record.is_of_client == is_of_client);
        let ends = [true, false].into_iter().filter_map(first).filter(|record| open(record).is_some());
        let opened = |end: &Protected| -> Vec<_> {
            self.records.iter().filter(|record| record.is_of_client == end.is_of_client).filter_map(open).collect()
        };
        ends.flat_map(opened).collect()
    }
}

impl Protected {
    /// Decrypts the record (RFC 6655, section 3; RFC 6347, section 4.1.2.1). Returns `None` if the key is wrong.
    fn open(&self, crypto: &mut RustCrypto, key: &[u8; KEY_LEN + SALT_LEN]) -> Option<Vec<u8>> {
        let (key, salt) = key.split_at(KEY_LEN);
        let (explicit, sealed) = self.body.split_at_checked(8)?;
        let (sealed, tag) = sealed.split_last_chunk::<TAG_LEN>()?;
        let len = u16::try_from(sealed.len()).ok()?.to_be_bytes();
        let aad = [&self.number[..], &self.kind, &len].concat();
        let mut content = sealed.to_vec();
        let nonce = [salt, explicit].concat();
        crypto.open(RustCrypto::AES_128_CCM, key, &nonce, &aad, &mut content, tag).ok()?;
        Some(content)
    }
}
