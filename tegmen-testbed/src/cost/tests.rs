use super::*;
use crate::mote::Protection;
use std::cell::Cell;
use tegmen::address::{Address, Path};
use tegmen::axiom::{Association, Kept, Member, Suite};
use tegmen::crypto::{Compact, Crypto, NotAuthentic, Unsupported};
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, Both, Config, Records};
use tegmen::endpoint::{Endpoint, Event, PeerArray};
use tegmen::identity::Principal;
use tegmen::time::Instant;

#[test]
fn the_budget_has_what_is_needed() {
    let costs = Costs::of_budget();
    assert!(costs.client > 10 * costs.seal && costs.seal > costs.build, "{costs:?}");
    assert_eq!((costs.seal_of(64), costs.open_of(64)), (costs.seal, costs.open));
    assert!(costs.seal_of(16) < costs.seal);
    assert_eq!([80, 300].map(|len| costs.send_of(len)), costs.send);
    assert_eq!([80, 300].map(|len| costs.receive_of(len)), costs.receive);
    assert!(0 < costs.send_of(10) && costs.receive_of(10) < costs.receive_of(200));
    let (plain, secured) = (Memory::of_image("coap").unwrap(), Memory::of_image("blink_server").unwrap());
    assert!(plain.rom < secured.rom && plain.ram < secured.ram);
    assert_eq!(Memory::of_image("no such image"), None);
}

#[test]
fn instructions_take_their_time() {
    assert_eq!(micros(16_000, 1.0, 16_000_000), 1_000);
    assert_eq!(micros(16_000, 1.3, 16_000_000), 1_300);
}

/// The cryptographic provider of motes, which counts the blocks that its SHA-256 compresses.
struct Counting(Compact);

thread_local! {
    static BLOCKS: Cell<u64> = const { Cell::new(0) };
}

impl Crypto for Counting {
    type Aead = <Compact as Crypto>::Aead;
    const AES_128_CCM: Self::Aead = Compact::AES_128_CCM;

    fn seal(
        &mut self,
        aead: Self::Aead,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        self.0.seal(aead, key, nonce, aad, body, tag)
    }

    fn open(
        &mut self,
        aead: Self::Aead,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.0.open(aead, key, nonce, aad, body, tag)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        BLOCKS.set(BLOCKS.get() + blocks.len() as u64);
        Compact::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.0.random(out);
    }
}

/// Returns the number of compressed blocks since the last call.
fn blocks() -> u64 {
    BLOCKS.replace(0)
}

struct End {
    endpoint: Endpoint<PeerArray<(), 1, 1, 400, 1400>, Both>,
    environment: Environment<Counting>,
    path: Path,
    established: bool,
    blocks: u64,
}

impl End {
    fn new(last: u8) -> Self {
        let address =
            |last| Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last], port: 5684, scope: 0 };
        let mut environment = Environment::new(Counting(Compact::new([last; 32])));
        let endpoint = Endpoint::new(&mut environment.at(NOW), PeerArray::new(), Config::default());
        let path = Path { local: address(last), remote: address(3 - last) };
        Self { endpoint, environment, path, established: false, blocks: 0 }
    }

    /// Processes `datagram`, and does the work that is due. With an empty datagram, only does the work that is due.
    /// Returns the datagrams that the endpoint sends.
    fn turn(&mut self, mut datagram: Vec<u8>) -> Vec<Vec<u8>> {
        blocks();
        let mut sent = Vec::new();
        let mut records = Records::new(&mut datagram);
        let mut is_polled = false;
        loop {
            let (mut out, cx) = ([0; 600], &mut self.environment.at(NOW));
            let event = match is_polled {
                false => self.endpoint.handle(cx, &self.path, &mut records, &mut out),
                true => self.endpoint.poll(cx, &mut out),
            };
            match event {
                Some(Event::Answer { len } | Event::Transmit { len, .. }) => sent.push(out[..len.into()].to_vec()),
                Some(Event::Need(id)) => {
                    let answer = Answer::Psk { identity: b"one", key: &[1; 16], principal: Principal(1) };
                    let event = self.endpoint.resume(&mut self.environment.at(NOW), id, answer);
                    self.established |= matches!(event, Some(Event::Established(_)));
                }
                Some(event) => self.established |= matches!(event, Event::Established(_)),
                None if is_polled => break,
                None => is_polled = true,
            }
        }
        self.blocks += blocks();
        sent
    }
}

#[test]
fn the_key_of_a_listener_takes_its_share_of_a_handshake() {
    let mut ends = [End::new(1), End::new(2)];
    let path = ends[0].path;
    ends[0].endpoint.connect(&mut ends[0].environment.at(NOW), &path).unwrap();
    let mut flying = ends[0].turn(Vec::new());
    for receiver in (0..20).map(|turn| 1 - turn % 2) {
        flying = flying.into_iter().flat_map(|datagram| ends[receiver].turn(datagram)).collect();
    }
    assert!(ends.iter().all(|end| end.established));
    assert_eq!(ends[0].blocks, CLIENT_COMPRESSIONS);

    let association = Association {
        group_id: 1,
        group: ends[0].path.local,
        suite: Suite::Ccm,
        epoch: 1,
        senders: 1,
        sender_id: None,
        address: ends[0].path.local.ip,
        master_secret: &[1; 48],
        client_random: &[2; 32],
        server_random: &[3; 32],
    };
    let mut member = Member::<1, 0>::new(&mut ends[0].environment.crypto, &association, &Kept::default()).unwrap();
    blocks();
    member.know_sender::<Counting>(0, 0).unwrap();
    assert_eq!(blocks(), DERIVE_COMPRESSIONS);
}

const NOW: Instant = Instant::from_micros(1);

#[test]
fn the_steps_of_a_handshake_are_the_whole_of_it() {
    let costs = Costs::of_budget().handshakes;
    let near = |ours: u64, image: &str, operation: &str| {
        let whole = Image::of(image).unwrap().operation(operation).unwrap();
        let ratio = ours as f64 / whole as f64;
        assert!((0.999..1.001).contains(&ratio), "{image} {operation}: {ours} {whole}");
    };
    for (protection, image) in [(Protection::Certificate, "dtls_x509"), (Protection::RawKey, "dtls_rpk")] {
        let client = protection.handshake(&costs, true, false);
        near(2 * client.flight + client.verify + client.sign, image, "handshake client");
        let server = protection.handshake(&costs, false, false);
        near(server.answer + 2 * server.flight + server.verify + server.sign, image, "handshake server");
    }
    for (protection, image) in [(Protection::Ticket, "dtls_resume"), (Protection::Delegation, "dtls_delegated")] {
        near(2 * protection.handshake(&costs, true, true).flight, image, "resumption client");
        near(protection.handshake(&costs, false, true).flight, image, "resumption server");
    }
    let ticket = [true, false].map(|is_client| Protection::Ticket.handshake(&costs, is_client, false));
    near(3 * ticket[0].flight, "dtls_resume", "handshake client");
    near(ticket[1].answer + 2 * ticket[1].flight, "dtls_resume", "handshake server");
}
