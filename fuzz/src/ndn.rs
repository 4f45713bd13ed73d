//! Packets of Named Data Networking: parsers, compressed packets, and a forwarder that receives packets from any
//! sender.

use tegmen::buf::Frame;
use tegmen::crypto::RustCrypto;
use tegmen::time::Instant;
use tegmen_lowpan::fragment::Reassembly;
use tegmen_lowpan::frame::LinkAddress;
use tegmen_lowpan::iphc::Hop;
use tegmen_ndn::certificate::{Certificate, Validity};
use tegmen_ndn::fixed::{FixedPit, FixedStore, Routes};
use tegmen_ndn::forwarder::{Faces, Forwarder, Outgoing, Times};
use tegmen_ndn::lowpan::{Context, HEADROOM, HopId, compress, decompress};
use tegmen_ndn::lp::{LpPacket, NackReason, acks};
use tegmen_ndn::signature::DigestSha256;
use tegmen_ndn::tables::{FaceId, NextHop};
use tegmen_ndn::{Data, Interest, MAX_HEAD, Name, ReceivedData, ReceivedInterest, write_uri};

/// Parses the bytes as each kind of packet. A packet that was parsed must be unchanged after it is written and parsed
/// again.
pub fn packets(data: &[u8]) {
    let _ = acks(data).count();
    if let Ok(packet) = LpPacket::parse(data) {
        let fragment = packet.fragment.unwrap_or(&[]);
        let mut storage = vec![0; tegmen_ndn::lp::MAX_FIELDS + fragment.len()];
        let mut frame = Frame::new(&mut storage, tegmen_ndn::lp::MAX_FIELDS);
        frame.append(fragment).expect("the storage has the length");
        packet.write_around(&mut frame).expect("what was read can be written");
        if (LpPacket { fragment: None, ..packet }) != LpPacket::default() {
            assert_eq!(LpPacket::parse(frame.bytes()), Ok(packet));
        }
    }
    if let Ok(received) = ReceivedInterest::parse(data) {
        interest(&received);
        names(&received.interest.name);
    }
    if let Ok(received) = ReceivedData::parse(data) {
        let _ = received.signed.verify(&mut RustCrypto::new([1; 32]), &DigestSha256);
        names(&received.data.name);
        certificate(received);
    }
    if let Ok(name) = Name::parse(data) {
        names(&name);
    }
}

/// Parses a packet as a certificate. The certificate must not verify after the end of its validity.
fn certificate(received: ReceivedData<'_>) {
    let Ok(certificate) = Certificate::of(received) else { return };
    let validity = certificate.validity;
    assert_eq!(Validity::parse(&validity.to_bytes()), Ok(validity));
    assert!(certificate.identity().is_prefix_of(&certificate.key_name()));
    let mut crypto = RustCrypto::new([1; 32]);
    let _ = certificate.verify(&mut crypto, &received, validity.not_before);
    assert!(certificate.verify(&mut crypto, &received, validity.not_after.saturating_add(1)).is_err());
}

/// Reads the bytes in three ways: as a packet to compress, as frames, and as a compressed packet. A Data packet must
/// have the same bytes after it is compressed and restored.
pub fn compressed(data: &[u8]) {
    let contexts = [Context { id: 1, prefix: Name::of_checked(&SEED) }];
    let hop = HopId::new(9).map(|id| (id, Name::of_checked(&SEED)));
    let mut frame = vec![0; data.len() + 20];
    for (hop, contexts) in [(None, &[][..]), (hop, &contexts)] {
        let mut frame = Frame::new(&mut frame, HEADROOM);
        if compress(data, contexts, hop, &mut frame).is_ok() {
            let restored = restored(frame.bytes(), contexts).expect("what is compressed can be restored");
            assert!(data[0] != 6 || restored == data, "a Data packet is restored");
        }
    }
    if let Some(packet) = restored(data, &contexts) {
        let mut storage = vec![0; packet.len() + 20];
        let mut frame = Frame::new(&mut storage, HEADROOM);
        compress(&packet, &contexts, hop, &mut frame).expect("what was restored is an element");
        let again = restored(frame.bytes(), &contexts).expect("what is compressed can be restored");
        assert!(packet[0] != 6 || again == packet);
    }
    let mut reassembly = Reassembly::<1, 300>::new();
    for frame in data.chunks(100) {
        let hop = Hop { source: LinkAddress::Short(1), destination: LinkAddress::Short(2) };
        let _ = reassembly.receive_page(Instant::from_micros(1), &hop, frame);
    }
}

fn restored(payload: &[u8], contexts: &[Context<'_>]) -> Option<Vec<u8>> {
    let mut storage = vec![0; 300 + 3 * payload.len()];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    decompress(payload, contexts, |_| Some(Name::of_checked(&SEED)), &mut frame).ok()?;
    Some(frame.bytes().to_vec())
}

/// Checks that parsing the text of a name gives the same name.
fn names(name: &Name<'_>) {
    let text = name.to_string();
    let mut bytes = vec![0; name.as_bytes().len()];
    let mut out = tegmen::buf::Writer::new(&mut bytes);
    write_uri(&text, &mut out).expect("the text of a name");
    assert_eq!(out.written(), name.as_bytes());
    assert_eq!(name.components().count(), name.len());
    assert!(name.prefix(1).is_prefix_of(name));
}

/// Checks that an Interest without a signature is unchanged after it is written and parsed.
fn interest(received: &ReceivedInterest<'_>) {
    let _ = received.has_valid_digest::<RustCrypto>();
    if received.signed.is_some() || received.interest.parameters.is_some() {
        return;
    }
    let mut storage = vec![0; received.wire.len() + 40];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    received.interest.write::<RustCrypto>(&mut frame).expect("what was read can be written");
    let again = ReceivedInterest::parse(frame.bytes()).expect("what was written can be read");
    assert_eq!(again.interest, received.interest);
}

/// The faces of a forwarder, which count and parse the packets that it sends.
struct Sink(usize);

impl Faces<()> for Sink {
    fn is_local(&self, face: FaceId) -> bool {
        face.0 == 3
    }

    fn send(&mut self, _: FaceId, packet: Outgoing<'_, ()>) {
        self.0 += 1;
        match packet {
            Outgoing::Interest(packet, _) | Outgoing::Nack(packet, _, ()) => {
                ReceivedInterest::parse(packet).expect("a forwarder sends packets");
            }
            Outgoing::Data(packet, ()) => {
                ReceivedData::parse(packet).expect("a forwarder sends packets");
            }
        }
    }
}

/// Reads a sequence of packets. A step of the clock, the face and the length precede each packet. A packet causes at
/// most one packet for each face.
pub fn forwarder(data: &[u8]) {
    let hops: Vec<NextHop> = (0..4).map(|face| NextHop { face: FaceId(face), cost: face }).collect();
    let house = [8, 1, b'h'];
    let all = Name::default();
    let routes = [(all, &hops[..2]), (Name::parse(&house).expect("a name"), &hops[1..])];
    let multicast = [Name::of_checked(&house)];
    let mut forwarder = Forwarder {
        fib: Routes { routes: &routes, multicast: &multicast },
        pit: FixedPit::<4, 40, 3, 3, 8>::default(),
        store: FixedStore::<2, 120>::default(),
        times: Times { retransmissions: 2, ..Times::default() },
        random: 1,
    };
    let (mut rest, mut micros) = (data, 1 << 40);
    while let [step, face, len, bytes @ ..] = rest {
        let (packet, behind) = bytes.split_at(bytes.len().min((*len).into()));
        rest = behind;
        micros += u64::from(*step) << 14;
        let (now, from) = (Instant::from_micros(micros), FaceId((*face % 4).into()));
        let mut sink = Sink(0);
        forwarder.on_timeout(now, &mut [0; 200], &mut sink);
        assert!(sink.0 <= 4 * 3);
        sink.0 = 0;
        let mut packet = packet.to_vec();
        let _ = match (packet.first(), face / 64) {
            (Some(6), _) => forwarder.on_data::<RustCrypto>(now, from, &packet, &mut |_| true, &mut sink),
            (_, 3) => forwarder.on_nack(now, from, &packet, NackReason::CONGESTION, &mut sink),
            _ => forwarder.on_interest::<RustCrypto>(now, from, &mut packet, (), &mut sink),
        };
        assert!(sink.0 <= 4 * 3, "one packet leads to {}", sink.0);
        assert!(forwarder.pit.len() <= 4);
    }
    // After more than two minutes no Interest may be pending.
    forwarder.on_timeout(Instant::from_micros(micros + (120 << 20)), &mut [0; 200], &mut Sink(0));
    assert!(forwarder.pit.is_empty());
}

const SEED: [u8; 6] = [8, 1, b'h', 8, 1, b't'];

/// Returns an Interest that the forwarder passes on.
pub fn interest_seed() -> Vec<u8> {
    let interest = Interest { name: Name::of_checked(&SEED), nonce: Some([1; 4]), ..Interest::default() };
    let mut storage = [0; 100];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    interest.write::<RustCrypto>(&mut frame).expect("an Interest");
    frame.bytes().to_vec()
}

/// Returns the Data packet that answers the Interest of [`interest_seed`].
pub fn data_seed() -> Vec<u8> {
    let data = Data { name: Name::of_checked(&SEED), freshness: Some(9), content: Some(b"21"), ..Data::default() };
    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    data.write(&mut RustCrypto::new([1; 32]), &DigestSha256, &mut frame).expect("a Data packet");
    frame.bytes().to_vec()
}
