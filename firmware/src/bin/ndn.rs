//! A mote that produces signed and encrypted contents, and forwards packets with a content store. Its link is IEEE
//! 802.15.4, with compressed packets (ICN LoWPAN, RFC 9139). Its two neighbours are in the same image.
#![no_std]
#![no_main]

use core::hint::black_box;
use tegmen::buf::{Frame, Writer};
use tegmen::crypto::hash::HmacKey;
use tegmen::secret::Secret;
use tegmen::time::{Duration, Instant};
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, Region, exit, measured, stack_of};
use tegmen_firmware::place::Place;
use tegmen_lowpan::fragment::{Fragments, Reassembly};
use tegmen_lowpan::frame::LinkAddress;
use tegmen_lowpan::iphc::Hop;
use tegmen_ndn::fixed::{FixedPit, FixedStore};
use tegmen_ndn::forwarder::{Faces, Forwarder, Outcome, Outgoing, Times};
use tegmen_ndn::lowpan::{Context, HEADROOM, compress, decompress};
use tegmen_ndn::publisher::{ContentKey, Publisher};
use tegmen_ndn::signature::{HmacWithSha256, KeyLocator};
use tegmen_ndn::tables::{FaceId, NextHop, Pit, PitId};
use tegmen_ndn::{Data, MAX_HEAD, Name, ReceivedData};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 13] = [
    Note::operation(RESTORE, "restore Interest"),
    Note::operation(FORWARD, "forward Interest"),
    Note::operation(PUBLISH, "name and encrypt"),
    Note::operation(CREATE, "create and sign Data"),
    Note::operation(PASS, "store and send Data"),
    Note::operation(STORED, "answer from store"),
    Note::operation(VERIFY, "verify Data"),
    Note::operation(HMAC, "HMAC of 100 bytes"),
    Note::operation(REPEAT, "repeat, remove Interest"),
    Note::size("Interest that waits", size_of::<Waiting<2>>() - size_of::<Waiting<1>>() - NAME),
    Note::size("Forwarder", size_of::<Tables>()),
    Note::size("HmacKey", size_of::<HmacKey>()),
    Note::size("Publisher", size_of::<Publisher>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets the mote answer and forward the Interests of its two neighbours. Then measures an encryption and an HMAC.
/// Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let crypto = &mut Provider::new([1; 32]);
    let mote = made()?;
    let key = &mut HmacKey::none();
    key.set::<Provider>(&[black_box(b"a key of sixteen")]);

    let [first, second, third, fourth] = &ASKED;
    // The first neighbour requests a reading of this mote. The mote has no reading yet.
    (mote.receive(crypto, FIRST, key, first)? == Outcome::Forwarded).then_some(())?;
    mote.answer(crypto, key)?;
    // The second neighbour requests the same reading.
    (mote.receive(crypto, SECOND, key, second)? == Outcome::Stored).then_some(())?;
    (mote.radio.to == SECOND).then_some(())?;
    // The first neighbour requests a content of the second neighbour. The mote forwards the Data packet if its
    // signature is valid.
    (mote.receive(crypto, FIRST, key, third)? == Outcome::Forwarded).then_some(())?;
    (mote.radio.to == SECOND).then_some(())?;
    let [begin, end] = ANSWER;
    mote.receive(crypto, SECOND, key, begin).is_none().then_some(())?;
    (mote.receive(crypto, SECOND, key, end)? == Outcome::Returned).then_some(())?;
    (mote.radio.to == FIRST).then_some(())?;
    // The second neighbour does not answer the last Interest. The mote sends it again, and later removes it.
    (mote.receive(crypto, FIRST, key, fourth)? == Outcome::Forwarded).then_some(())?;
    mote.end()?;
    mote.encrypt(crypto)?;
    let message = black_box(mote.packet.first_chunk::<100>()?);
    measured(HMAC, || key.mac::<Provider>(&[message]));
    Some(())
}

/// Makes the mote. This function is not inlined, so that the stack of the operations does not contain copies of it.
#[inline(never)]
fn made() -> Option<&'static mut Mote> {
    MOTE.fill(Mote::new)
}

/// The mote, with its forwarder and its side of the link.
struct Mote {
    forwarder: Tables,
    reassembly: Reassembly<2, PACKET>,
    radio: Radio,
    /// The packet of a received frame.
    packet: [u8; PACKET],
}

/// The link of the mote. It stores the compressed form of the last packet that the mote sent, and the Interest that
/// waits for the application of the mote.
struct Radio {
    payload: [u8; PACKET],
    to: FaceId,
    asked: Option<PitId>,
}

impl Faces<()> for Radio {
    fn is_local(&self, face: FaceId) -> bool {
        face == APPLICATION
    }

    fn send(&mut self, to: FaceId, packet: Outgoing<'_, ()>) {
        self.to = to;
        match packet {
            Outgoing::Interest(_, id) if to == APPLICATION => self.asked = Some(id),
            Outgoing::Interest(packet, _) | Outgoing::Data(packet, ()) | Outgoing::Nack(packet, ..) => {
                self.transmit(packet);
            }
        }
    }
}

impl Radio {
    /// Compresses the packet, and splits it into frames.
    fn transmit(&mut self, packet: &[u8]) {
        let mut frame = Frame::new(&mut self.payload, HEADROOM);
        if compress(packet, &CONTEXTS, None, &mut frame).is_err() {
            return;
        }
        if let Ok(mut fragments) = Fragments::of_page(frame.bytes(), 1) {
            let mut out = [0; ROOM];
            while let Ok(Some(frame)) = fragments.next_frame(ROOM, &mut out) {
                black_box(frame);
            }
        }
    }
}

impl Mote {
    fn new() -> Self {
        Self {
            forwarder: Forwarder {
                fib: &ROUTES,
                pit: Waiting::default(),
                store: FixedStore::default(),
                times: TIMES,
                random: 1,
            },
            reassembly: Reassembly::new(),
            radio: Radio { payload: [0; PACKET], to: APPLICATION, asked: None },
            packet: [0; PACKET],
        }
    }

    /// Processes a frame of a neighbour. Returns `None` if the frame is invalid, or does not complete a packet.
    #[inline(never)]
    fn receive(&mut self, crypto: &mut Provider, from: FaceId, key: &HmacKey, fragment: &[u8]) -> Option<Outcome> {
        let Self { forwarder, reassembly, radio, packet } = self;
        let hop = Hop { source: LinkAddress::Short(from.0), destination: LinkAddress::Short(9) };
        let mut frame = Frame::new(packet, MAX_HEAD);
        measured(RESTORE, || {
            let payload = reassembly.receive_page(NOW, &hop, fragment).ok()??;
            decompress(payload, &CONTEXTS, |_| None, &mut frame).ok()
        })?;
        let packet = frame.bytes_mut();
        if packet.first() == Some(&DATA) {
            let mut authentic = |data: &ReceivedData<'_>| measured(VERIFY, || data.signed.verify(crypto, key)).is_ok();
            return forwarder.on_data::<Provider>(NOW, from, packet, &mut authentic, radio).ok();
        }
        let operation = Region::new(if from == SECOND { STORED } else { FORWARD });
        operation.measured(|| forwarder.on_interest::<Provider>(NOW, from, packet, (), radio)).ok()
    }

    /// Lets the application answer the Interest that waits for it.
    #[inline(never)]
    fn answer(&mut self, crypto: &mut Provider, key: &HmacKey) -> Option<()> {
        let Self { forwarder, radio, packet, .. } = self;
        (forwarder.pit.name(radio.asked?)? == READING).then_some(())?;
        let content = black_box(b"21.5");
        let data = Data { name: READING, freshness: Some(4000), content: Some(content), ..Data::default() };
        let signer = HmacWithSha256 { key, locator: KeyLocator::Digest(&[1]) };
        let mut frame = Frame::new(packet, MAX_HEAD);
        measured(CREATE, || data.write(crypto, &signer, &mut frame)).ok()?;
        let packet = frame.bytes();
        let outcome = measured(PASS, || forwarder.on_data::<Provider>(NOW, APPLICATION, packet, &mut |_| true, radio));
        (outcome == Ok(Outcome::Returned) && radio.to == FIRST).then_some(())
    }

    /// Lets the lifetime of an Interest end without an answer. The mote must retransmit the Interest, and then remove
    /// it.
    fn end(&mut self) -> Option<()> {
        let Self { forwarder, radio, packet, .. } = self;
        radio.to = APPLICATION;
        while let Some(end) = forwarder.next_timeout() {
            measured(REPEAT, || forwarder.on_timeout(end.instant(NOW), packet, radio));
        }
        (forwarder.pit.is_empty() && radio.to == SECOND).then_some(())
    }

    /// Acts as the producer: makes a name for a content, and encrypts the content.
    #[inline(never)]
    fn encrypt(&mut self, crypto: &mut Provider) -> Option<()> {
        let mut publisher = Publisher::resume(ContentKey::new(Secret::new([black_box(7); 16])), 0);
        // A mote first writes the end of its reserved versions to its flash memory.
        publisher.extend(32);
        let (mut name, mut content) = ([0; NAME], [0; 16]);
        let (name, content) = (&mut Writer::new(&mut name), &mut Writer::new(&mut content));
        content.put(black_box(b"21.5")).ok()?;
        measured(PUBLISH, || publisher.publish(crypto, &READING, name, content)).ok()?;
        black_box(content.written());
        Some(())
    }
}

const NAME: usize = 48;
const PACKET: usize = 160;
type Fib = &'static [(Name<'static>, &'static [NextHop])];
type Waiting<const N: usize> = FixedPit<N, NAME, 2, 1, 8>;
type Tables = Forwarder<Fib, Waiting<4>, FixedStore<4, PACKET>>;

static MOTE: Place<Mote> = Place::empty();

const TIMES: Times = Times {
    longest_lifetime: Duration::from_secs(60),
    suppression: Duration::from_millis(10),
    retransmission: Duration::from_millis(500),
    retransmissions: 2,
};
const NOW: Instant = Instant::from_micros(1_000_000);
const APPLICATION: FaceId = FaceId(0);
const FIRST: FaceId = FaceId(1);
const SECOND: FaceId = FaceId(2);
/// The first byte of a Data packet.
const DATA: u8 = 6;
/// Maximum number of bytes of the payload of a frame.
const ROOM: usize = 102;

const HOUSE: Name<'static> = Name::of_checked(b"\x08\x05house");
const READING: Name<'static> = Name::of_checked(b"\x08\x05house\x08\x04room\x08\x04temp\x08\x0217");
const CONTEXTS: [Context<'static>; 1] = [Context { id: 1, prefix: HOUSE }];
static ROUTES: [(Name<'static>, &[NextHop]); 2] =
    [(HOUSE, &[NextHop { face: APPLICATION, cost: 0 }]), (Name::of_checked(b""), &[NextHop { face: SECOND, cost: 1 }])];

/// The frame of an Interest of a neighbour for [`READING`], with a lifetime of 4 seconds.
const ASK_READING: [u8; 24] = *b"\xfe\x10\x02\x80\x01\x12\x44roomtemp\x2017\xff\0\0\0\0\x38";
/// The frame of an Interest of a neighbour for the content `/garden/temp/17` of the second neighbour.
const ASK_GARDEN: [u8; 24] = *b"\xfe\x10\0\x14\x64gardentemp\x2017\xff\0\0\0\0\x38";
/// The same for the content `/garden/temp/18`.
const ASK_NEXT: [u8; 24] = *b"\xfe\x10\0\x14\x64gardentemp\x2018\xff\0\0\0\0\x38";
/// The Interests that the neighbours send, in order.
static ASKED: [[u8; 24]; 4] = [ask(ASK_READING, 1), ask(ASK_READING, 2), ask(ASK_GARDEN, 3), ask(ASK_NEXT, 4)];

/// Returns the frame of an Interest with a nonce of four bytes `nonce`.
const fn ask(mut frame: [u8; 24], nonce: u8) -> [u8; 24] {
    let mut place = 19;
    while place < 23 {
        frame[place] = nonce;
        place += 1;
    }
    frame
}

/// The two frames of the Data packet with the content `21.5` and the name `/garden/temp/17`. The second neighbour has
/// signed it with the HMAC key of the mote.
static ANSWER: [&[u8]; 2] = [
    b"\xc0>\x00\x07\xfe2\x00:dgardentemp 17\x0421.5\x04\x01\x04\x01\x01 `\x870m\xcft\xc6\xc2\x81\xeb\xe2",
    b"\xe0>\x00\x07\x05\xf8\xe5\xb0xC\xeam\xc2\xea\xeeb\xca\xd0\x0b\xe6\xc7\xd8\xec\x99l\x838",
];

const RESTORE: u32 = 0;
const FORWARD: u32 = 1;
const PUBLISH: u32 = 2;
const CREATE: u32 = 3;
const PASS: u32 = 4;
const STORED: u32 = 5;
const VERIFY: u32 = 6;
const HMAC: u32 = 7;
const REPEAT: u32 = 8;
