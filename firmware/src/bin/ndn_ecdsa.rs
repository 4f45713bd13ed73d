//! A Data packet of NDN that is signed with ECDSA on secp256r1, and verified with the public key.
#![no_std]
#![no_main]

#[path = "../points.rs"]
pub mod points;

use core::hint::black_box;
use tegmen::buf::Frame;
use tegmen::crypto::{MAX_SHARE, P256_PREFIX};
use tegmen::secret::Secret;
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_ndn::signature::{EcdsaPublicKey, KeyLocator, Sha256WithEcdsa};
use tegmen_ndn::{Data, MAX_HEAD, Name, ReceivedData};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 2] = [Note::operation(CREATE, "create and sign Data"), Note::operation(VERIFY, "verify Data")];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Signs and verifies the packet. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let crypto = &mut Provider::new([1; 32]);
    let key = Secret::new([black_box(2); 32]);
    let locator = KeyLocator::Name(Name::of_checked(b"\x08\x05house\x08\x03KEY\x08\x011"));
    let name = Name::of_checked(b"\x08\x05house\x08\x04room\x08\x04temp\x08\x0217");
    let data = Data { name, freshness: Some(4000), content: Some(black_box(b"21.5")), ..Data::default() };
    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    measured(CREATE, || data.write(crypto, &Sha256WithEcdsa { key: &key, locator }, &mut frame)).ok()?;
    let spki = public_key()?;
    let received = ReceivedData::parse(frame.bytes()).ok()?;
    measured(VERIFY, || received.signed.verify(crypto, &EcdsaPublicKey(black_box(&spki)))).ok()
}

/// Returns the SubjectPublicKeyInfo of the public key.
fn public_key() -> Option<[u8; P256_PREFIX.len() + MAX_SHARE]> {
    let (x, y) = &points::OF_2;
    let mut spki = [4; P256_PREFIX.len() + MAX_SHARE];
    let (prefix, share) = spki.split_first_chunk_mut()?;
    *prefix = P256_PREFIX;
    share.iter_mut().skip(1).zip(x.iter().chain(y)).for_each(|(to, from)| *to = *from);
    Some(spki)
}

const CREATE: u32 = 0;
const VERIFY: u32 = 1;
