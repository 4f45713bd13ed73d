//! Forwarders on links with compressed frames. HopIDs replace the names of Data packets (RFC 9139, section 8.2).

use tegmen_base::buf::{Frame, Writer};
use tegmen_base::crypto::RustCrypto;
use tegmen_base::time::{Duration, Instant};
use tegmen_ndn::fixed::{FixedPit, FixedStore, Routes};
use tegmen_ndn::forwarder::{Faces, Forwarder, Outcome, Outgoing, Times};
use tegmen_ndn::lowpan::{HEADROOM, HopId, compress, decompress};
use tegmen_ndn::signature::DigestSha256;
use tegmen_ndn::tables::{FaceId, NextHop, Pit as _};
use tegmen_ndn::{Data, Interest, MAX_HEAD, Name, ReceivedData, ReceivedInterest, write_uri};

/// The faces of each node: the neighbour or the application that asks, and the neighbour that answers.
const DOWN: FaceId = FaceId(1);
const UP: FaceId = FaceId(2);
const NOW: Instant = Instant::from_micros(1 << 40);

/// The HopID of a neighbour, and the length in bytes of the name for which the neighbour has chosen it.
type Asked = Option<(HopId, usize)>;

/// The frames that a node has sent.
#[derive(Default)]
struct Radio(Vec<Vec<u8>>);

impl Faces<Asked> for Radio {
    fn is_local(&self, _: FaceId) -> bool {
        false
    }

    fn send(&mut self, _: FaceId, packet: Outgoing<'_, Asked>) {
        let mut storage = [0; 300];
        let mut frame = Frame::new(&mut storage, HEADROOM);
        match packet {
            Outgoing::Interest(packet, entry) => {
                let hop = HopId::of_entry(entry).map(|hop| (hop, Name::default()));
                compress(packet, &[], hop, &mut frame).unwrap();
            }
            Outgoing::Data(packet, asked) => {
                let name = ReceivedData::parse(packet).unwrap().data.name.as_bytes();
                let hop = asked.and_then(|(hop, len)| Some((hop, Name::of_checked(name.get(..len)?))));
                compress(packet, &[], hop, &mut frame).unwrap();
            }
            Outgoing::Nack(..) => panic!("each Interest is sent"),
        }
        self.0.push(frame.bytes().to_vec());
    }
}

struct Node {
    forwarder: Forwarder<Routes<'static>, FixedPit<200, 40, 1, 1, 8, Asked>, FixedStore<1, 1>>,
    /// The last restored packet.
    packet: Vec<u8>,
}

impl Node {
    fn new() -> Self {
        const ROUTES: &[(Name<'static>, &[NextHop])] = &[(Name::of_checked(&[]), &[NextHop { face: UP, cost: 0 }])];
        let fib = Routes { routes: ROUTES, multicast: &[] };
        let (pit, store) = (FixedPit::default(), FixedStore::default());
        Self { forwarder: Forwarder { fib, pit, store, times: Times::default(), random: 1 }, packet: Vec::new() }
    }

    /// Processes a frame. Returns the frame that the node then sends, or `None` if the node discards the frame.
    fn receive(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let mut storage = [0; 300];
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        let pit = &self.forwarder.pit;
        let hop = decompress(payload, &[], |hop| pit.name(hop.entry()), &mut frame).ok()?;
        self.packet = frame.bytes().to_vec();
        let mut radio = Radio::default();
        let outcome = if self.packet[0] == 5 {
            let name = ReceivedInterest::parse(&self.packet).unwrap().interest.name.as_bytes().len();
            let asked = hop.map(|hop| (hop, name));
            self.forwarder.on_interest::<RustCrypto>(NOW, DOWN, frame.bytes_mut(), asked, &mut radio)
        } else {
            self.forwarder.on_data::<RustCrypto>(NOW, UP, frame.bytes(), &mut |_| true, &mut radio)
        };
        assert!(matches!(outcome, Ok(Outcome::Forwarded | Outcome::Returned)), "{outcome:?}");
        radio.0.pop()
    }

    /// Lets an application of the node request a name.
    fn ask(&mut self, text: &str, can_be_prefix: bool) -> Vec<u8> {
        let (name, nonce) = (name(text), Some(*b"once"));
        let interest = Interest { name: Name::of_checked(&name), can_be_prefix, nonce, ..Interest::default() };
        let mut storage = [0; 300];
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        interest.write::<RustCrypto>(&mut frame).unwrap();
        let mut radio = Radio::default();
        let asked = self.forwarder.on_interest::<RustCrypto>(NOW, DOWN, frame.bytes_mut(), None, &mut radio);
        assert_eq!(asked, Ok(Outcome::Forwarded));
        radio.0.pop().unwrap()
    }
}

fn name(text: &str) -> Vec<u8> {
    let mut bytes = [0; 100];
    let mut out = Writer::new(&mut bytes);
    write_uri(text, &mut out).unwrap();
    out.written().to_vec()
}

/// Returns the Data packet with this name, and its frame. The frame has the HopID of the Interest in `asked`.
fn answer(text: &str, asked: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (name, mut storage) = (name(text), [0; 300]);
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    let data = Data { name: Name::of_checked(&name), content: Some(b"21"), ..Data::default() };
    data.write(&mut RustCrypto::new([1; 32]), &DigestSha256, &mut frame).unwrap();
    let packet = frame.bytes().to_vec();
    let mut interest = [0; 300];
    let mut frame = Frame::new(&mut interest, MAX_HEAD);
    let hop = decompress(asked, &[], |_| None, &mut frame).unwrap();
    let asked = ReceivedInterest::parse(frame.bytes()).unwrap().interest.name;
    let mut radio = Radio::default();
    radio.send(DOWN, Outgoing::Data(&packet, hop.map(|hop| (hop, asked.as_bytes().len()))));
    (packet, radio.0.pop().unwrap())
}

/// Returns the HopID of a frame, or 0 if the frame has none.
fn hop_id(payload: &[u8]) -> u8 {
    if payload[2] & 2 == 0 { 0 } else { payload[3] & 0x7f }
}

fn contains(payload: &[u8], text: &[u8]) -> bool {
    payload.windows(text.len()).any(|bytes| bytes == text)
}

#[test]
fn each_hop_has_its_own_hop_id_in_place_of_the_name() {
    let (mut first, mut second) = (Node::new(), Node::new());
    // The table of the second node already has an Interest, so this node takes another HopID than the first one.
    second.ask("/other", false);
    let asked = first.ask("/house/temp", true);
    let passed = second.receive(&asked).unwrap();
    assert_eq!((hop_id(&asked), hop_id(&passed)), (1, 2));
    assert!(contains(&asked, b"temp") && contains(&passed, b"temp"));
    // The name of the Data packet has another component, which stays in the frame.
    let (packet, answered) = answer("/house/temp/now", &passed);
    let returned = second.receive(&answered).unwrap();
    first.receive(&returned);
    assert_eq!((hop_id(&answered), hop_id(&returned)), (2, 1));
    for frame in [&answered, &returned] {
        assert!(!contains(frame, b"house") && !contains(frame, b"temp") && contains(frame, b"now"));
    }
    assert_eq!((&second.packet, &first.packet), (&packet, &packet));
    // The entry is gone, so the HopID is invalid until another Interest has it.
    assert_eq!(first.receive(&returned), None);
    // The next Interest has another HopID, so a late copy of the frame does not answer it.
    assert_eq!(hop_id(&first.ask("/house/door", false)), 2);
    assert_eq!(first.receive(&returned), None);
}

#[test]
fn a_hop_id_is_unique_among_the_pending_interests_and_when_none_is_free_the_name_is_sent() {
    let mut node = Node::new();
    let asked: Vec<Vec<u8>> = (0..130).map(|number| node.ask(&format!("/house/{number}"), false)).collect();
    let ids: Vec<u8> = asked.iter().map(|payload| hop_id(payload)).collect();
    let expected: Vec<u8> = (1..=127).chain([0; 3]).collect();
    assert_eq!(ids, expected);
    // A packet without a HopID contains its name.
    let (packet, answered) = answer("/house/128", &asked[128]);
    assert!(hop_id(&answered) == 0 && contains(&answered, b"house"));
    node.receive(&answered);
    assert_eq!(node.packet, packet);
    // The HopID of an Interest that was answered is free for the next one.
    let (_, answered) = answer("/house/5", &asked[5]);
    node.receive(&answered);
    assert_eq!(hop_id(&node.ask("/house/new", false)), 6);
    // So is that of an Interest that expired.
    let end = NOW.after(Duration::from_secs(5));
    node.forwarder.on_timeout(end, &mut [0; 300], &mut Radio::default());
    assert!(node.forwarder.pit.is_empty());
    assert_eq!(hop_id(&node.ask("/house/0", false)), 7);
    // After the highest HopID the lowest one follows.
    let ids: Vec<u8> = (1..=121).map(|number| hop_id(&node.ask(&format!("/door/{number}"), false))).collect();
    assert_eq!(ids, (8..=127).chain([1]).collect::<Vec<_>>());
}
