//! Group OSCORE. Two members of a group in one image exchange a protected GET and its response in memory, once in the
//! group mode and twice in the pairwise mode. Their keys are on secp256r1.
#![no_std]
#![no_main]

#[path = "../points.rs"]
pub mod points;

use core::hint::black_box;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, HEADER_LEN, MessageType, OptionNumber};
use tegmen::crypto::Curve;
use tegmen::oscore::group::{
    Algorithms, BadGroup, GroupContext, GroupParameters, GroupPending, Mode, Ourselves, Recipient, Replies,
};
use tegmen::oscore::{Id, ReplayWindow, Unprotected};
use tegmen::secret::Secret;
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, Region, exit, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 15] = [
    Note::operation(DERIVE, "derive context"),
    Note::operation(ADD, "add member"),
    Note::operation(GROUP, "request, group: protect"),
    Note::operation(GROUP + 1, "request, group: open"),
    Note::operation(GROUP + 2, "response, group: protect"),
    Note::operation(GROUP + 3, "response, group: open"),
    // The first request between two members includes the derivation of the pairwise keys.
    Note::operation(FIRST, "first request: protect"),
    Note::operation(FIRST + 1, "first request: open"),
    Note::operation(PAIR, "request, pair: protect"),
    Note::operation(PAIR + 1, "request, pair: open"),
    Note::operation(PAIR + 2, "response, pair: protect"),
    Note::operation(PAIR + 3, "response, pair: open"),
    Note::size("GroupContext", size_of::<Context>()),
    Note::size("Recipient", size_of::<Other>()),
    Note::size("GroupPending", size_of::<GroupPending<[Replies; 1]>>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets the client send three protected requests, each of which the server answers: one in the group mode, and two in
/// the pairwise mode. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let crypto = &mut Provider::new([1; 32]);
    let mut client = member(crypto, &CLIENT, (&CLIENT_KEY, &SERVER_KEY))?;
    let mut server = member(crypto, &SERVER, (&SERVER_KEY, &CLIENT_KEY))?;
    let Wire { there, back } = WIRE.take()?;
    for (is_pairwise, base) in [(false, GROUP), (true, FIRST), (true, PAIR)] {
        let mut request = Frame::new(there, Context::OVERHEAD);
        let mut pending = ask(&mut client, crypto, is_pairwise, base, &mut request)?;
        let mut response = Frame::new(back, Context::OVERHEAD);
        answer(&mut server, crypto, (is_pairwise, base), request.bytes_mut(), &mut response)?;
        hear(&mut client, crypto, base, &mut pending, response.bytes_mut())?;
    }
    Some(())
}

/// A member of the group: its context, and its Recipient Context of the other member.
struct Member {
    context: &'static mut Context,
    other: &'static mut [Other; 1],
}

/// Makes a member of the group, with reserved sequence numbers.
#[inline(never)]
fn member(
    crypto: &mut Provider,
    (derived, added): &'static (Derived, Added),
    (ours, theirs): (&'static Key, &'static Key),
) -> Option<Member> {
    let algorithms = Algorithms::both(Curve::P256);
    let parameters = GroupParameters { master_secret: black_box(&[7; 16]), master_salt: &[], gid: b"g", algorithms };
    let ourselves = Ourselves {
        id: Id::new(&[ours.id])?,
        private_key: Secret::new(ours.private),
        credential: &ours.credential,
        kept: 0,
    };
    let derive = || derived.fill(|| Context::new::<Provider>(&parameters, ourselves, &MANAGER));
    let context = measured(DERIVE, derive)?.as_mut().ok()?;
    // A mote first writes the end of its reserved sequence numbers to its flash memory.
    context.lease_mut().extend(32);
    let id = Id::new(&[theirs.id])?;
    let window = Some(ReplayWindow::new());
    let other = measured(ADD, || context.recipient(crypto, id, &theirs.credential, window)).ok()?;
    Some(Member { context, other: added.fill(|| [other])? })
}

/// Makes a protected GET.
#[inline(never)]
fn ask(
    Member { context, other: [other] }: &mut Member,
    crypto: &mut Provider,
    is_pairwise: bool,
    base: u32,
    frame: &mut Frame<'_>,
) -> Option<GroupPending<[Replies; 1]>> {
    let message = &mut Builder::new(frame, MessageType::NonConfirmable, Code::GET, 0x1234, &[0xca, 0xfe]);
    let message = message.as_mut().ok()?;
    let (collection, sensor) = PATH.as_bytes().split_at_checked(SLASH)?;
    message.option(OptionNumber::URI_PATH, collection).ok()?;
    message.option(OptionNumber::URI_PATH, sensor.get(1..)?).ok()?;
    let mode = mode(is_pairwise, other);
    let protect = || context.protect_request(crypto, mode, [Replies::default()], frame);
    Region::new(base).measured(protect).ok()
}

/// Opens the request in a datagram, and writes the response.
#[inline(never)]
fn answer(
    Member { context, other }: &mut Member,
    crypto: &mut Provider,
    (is_pairwise, base): (bool, u32),
    datagram: &mut [u8],
    frame: &mut Frame<'_>,
) -> Option<()> {
    let opened = Region::new(base + 1).measured(|| context.unprotect_request(crypto, other.as_mut_slice(), datagram));
    let Ok(Unprotected::Fresh(ref request, nonce)) = opened else { return None };
    if request.code() != Code::GET || !request.path_is(PATH) {
        return None;
    }
    let (kind, id, token) = (MessageType::NonConfirmable, request.message_id(), request.token());
    let response = &mut Builder::new(frame, kind, Code::CONTENT, id, token);
    let response = response.as_mut().ok()?;
    response.uint(OptionNumber::CONTENT_FORMAT, OCTET_STREAM).ok()?;
    response.payload(&black_box(215u16).to_be_bytes()).ok()?;
    let of = nonce.request();
    let [other] = other;
    let mode = mode(is_pairwise, other);
    let protect = || context.protect_response(crypto, mode, &of, Some(nonce), frame);
    Region::new(base + 2).measured(protect).ok()
}

/// Opens the response in a datagram.
#[inline(never)]
fn hear(
    Member { context, other }: &mut Member,
    crypto: &mut Provider,
    base: u32,
    pending: &mut GroupPending<[Replies; 1]>,
    datagram: &mut [u8],
) -> Option<()> {
    let opened =
        Region::new(base + 3).measured(|| context.unprotect_response(crypto, other.as_mut_slice(), pending, datagram));
    let (response, _) = opened.ok()?;
    (response.code() == Code::CONTENT && response.payload() == [0, 215]).then_some(())
}

fn mode(is_pairwise: bool, other: &mut Other) -> Mode<'_, Credential> {
    if is_pairwise { Mode::Pairwise(other) } else { Mode::Group }
}

/// The key of a member.
struct Key {
    id: u8,
    private: [u8; 32],
    credential: [u8; CREDENTIAL_LEN],
}

/// Returns a CWT Claims Set that contains only the claim `cnf`: a COSE_Key with these coordinates.
const fn credential((x, y): ([u8; 32], [u8; 32])) -> [u8; CREDENTIAL_LEN] {
    let start = *b"\xa1\x08\xa1\x01\xa4\x01\x02\x20\x01\x21\x58\x20";
    let between = *b"\x22\x58\x20";
    let mut ccs = [0; CREDENTIAL_LEN];
    let mut i = 0;
    while i < CREDENTIAL_LEN {
        ccs[i] = match i {
            0..12 => start[i],
            12..44 => x[i - 12],
            44..47 => between[i - 44],
            _ => y[i - 47],
        };
        i += 1;
    }
    ccs
}

const CREDENTIAL_LEN: usize = 79;

static CLIENT_KEY: Key = Key { id: 1, private: [2; 32], credential: credential(points::OF_2) };
static SERVER_KEY: Key = Key { id: 2, private: [3; 32], credential: credential(points::OF_3) };
// The credential of the Group Manager.
static MANAGER: [u8; CREDENTIAL_LEN] = credential((
    [
        0x9d, 0x34, 0x6a, 0xab, 0xe1, 0x46, 0x6d, 0xb5, 0x00, 0x67, 0x49, 0xae, 0x52, 0x51, 0xf7, 0x59, 0x12, 0xa2,
        0x33, 0x6b, 0x50, 0x22, 0x54, 0x0f, 0x29, 0xf1, 0xdb, 0xdc, 0x98, 0xea, 0x32, 0x36,
    ],
    [
        0x2c, 0x12, 0x96, 0xb7, 0x02, 0x7b, 0xb5, 0x92, 0x14, 0xd5, 0x97, 0x17, 0x7b, 0x7c, 0xc9, 0x0e, 0xcc, 0x72,
        0xae, 0xbe, 0xa2, 0x72, 0x9b, 0x16, 0x18, 0x0b, 0xba, 0x89, 0xc8, 0x7c, 0x87, 0x57,
    ],
));

/// Buffers for a datagram in each direction, with the bytes that the protection adds.
struct Wire {
    there: [u8; ROOM],
    back: [u8; ROOM],
}

const ROOM: usize = 2 * Context::OVERHEAD + HEADER_LEN + 64;

type Credential = &'static [u8; CREDENTIAL_LEN];
type Context = GroupContext<Credential, { 136 + 2 * CREDENTIAL_LEN }>;
type Other = Recipient<Credential>;
type Derived = Place<Result<Context, BadGroup>>;
type Added = Place<[Other; 1]>;

static CLIENT: (Derived, Added) = (Place::empty(), Place::empty());
static SERVER: (Derived, Added) = (Place::empty(), Place::empty());
static WIRE: Kept<Wire> = Kept::new(Wire { there: [0; ROOM], back: [0; ROOM] });

const DERIVE: u32 = 0;
const ADD: u32 = 1;
const GROUP: u32 = 2;
const FIRST: u32 = 6;
const PAIR: u32 = 10;

const PATH: &str = "sensors/temperature";
/// The index of the slash in [`PATH`].
const SLASH: usize = 7;
const OCTET_STREAM: u32 = 42;
