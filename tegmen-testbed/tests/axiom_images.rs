//! Tests the sender and the listener of the images `axiom_sender` and `axiom_listener`, compiled for this machine. The
//! sender and the listener exchange datagrams. These datagrams must be those in `firmware/src/axiom_datagrams.rs`.

#[path = "../../firmware/src/asking.rs"]
pub mod asking;
#[path = "../../firmware/src/axiom_datagrams.rs"]
pub mod axiom_datagrams;
#[path = "../../firmware/src/axiom_group.rs"]
pub mod axiom_group;
#[path = "../../firmware/src/axiom_listener.rs"]
pub mod axiom_listener;
#[path = "../../firmware/src/axiom_provisioned.rs"]
pub mod axiom_provisioned;
#[path = "../../firmware/src/axiom_sender.rs"]
pub mod axiom_sender;
#[path = "../../firmware/src/lamp.rs"]
pub mod lamp;
#[path = "pages/mod.rs"]
mod pages;
#[path = "recorded/mod.rs"]
mod recorded;

use asking::{Heard, REQUEST_LEN};
use axiom_datagrams as datagrams;
use axiom_group::{FIRST_LEAF, GROUP, LEVELS, LISTENER, Provisioning, SENDER, listener, member, sender};
use axiom_listener::Listener;
use axiom_provisioned::Provisioned;
use axiom_sender::Sender;
use lamp::SENDERS;
use pages::Pages;
use recorded::stale;
use tegmen::axiom::Member;
use tegmen::axiom::rekey::{Place, link, parent_of, seal_epoch, seal_node};
use tegmen::buf::Writer;
use tegmen::coap::Code;
use tegmen::crypto::Compact as Provider;
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_flash::Kept;

/// Starts a member with this flash memory.
fn start<const SENDERS: usize, const LISTENERS: usize>(
    pages: &Pages,
    provisioning: &Provisioning<'_>,
) -> Option<Provisioned<Pages, SENDERS, LISTENERS>> {
    let member = Box::leak(Box::new(Member::EMPTY));
    let kept = Kept::open(pages.clone()).ok()?;
    Provisioned::new(member, Provider::new([1; 32]), provisioning, kept)
}

fn start_listener(pages: &Pages, provisioning: &Provisioning<'_>) -> Option<Listener<Pages>> {
    start::<SENDERS, 0>(pages, provisioning).map(Listener::new)
}

fn start_sender(pages: &Pages) -> Option<Sender<Pages, 4>> {
    start::<0, 4>(pages, &sender()).map(Sender::new)
}

/// Returns the request that switches all lamps.
fn request(sender: &mut Sender<Pages, 4>, is_on: bool) -> Vec<u8> {
    sender.request(is_on, &mut [0; REQUEST_LEN]).unwrap().to_vec()
}

/// Returns the response of the listener to a datagram, at the time when it is due.
fn answer(listener: &mut Listener<Pages>, now: Instant, datagram: &[u8]) -> Option<Vec<u8>> {
    listener.take(now, &member(SENDER), &mut datagram.to_vec());
    let (to, response) = listener.poll(now.after_millis(255))?;
    assert_eq!(to, member(SENDER));
    Some(response.to_vec())
}

fn hear(sender: &mut Sender<Pages, 4>, datagram: &[u8]) -> Option<Heard> {
    sender.take(&member(LISTENER), &mut datagram.to_vec())
}

/// Returns the message that gives one member the new secret of its parent node in the key tree. `leaf` is the leaf of
/// this member, and `key` is the secret of the leaf.
fn node_message(leaf: u32, key: [u8; 16]) -> Vec<u8> {
    let mut out = [0; 128];
    let mut writer = Writer::new(&mut out);
    let place = Place { epoch: 2, under: leaf, up: 1 };
    let secrets = (&Secret::new(key), &NODE_SECRET);
    seal_node(&mut Provider::new([2; 32]), &GROUP, place, secrets, None, &mut writer).unwrap();
    writer.finish().to_vec()
}

/// Returns the message that begins epoch 2.
fn epoch_message() -> Vec<u8> {
    let mut root = Secret::new(*NODE_SECRET.expose());
    for _ in 2..LEVELS {
        root = parent_of::<Provider>(&GROUP, &root);
    }
    let mut out = [0; 128];
    let mut writer = Writer::new(&mut out);
    seal_epoch(&mut Provider::new([2; 32]), &GROUP, (2, &CHAIN), (&root, &SECRET), &mut writer).unwrap();
    writer.finish().to_vec()
}

/// The new secret of the parent node of both leaves in the key tree.
const NODE_SECRET: Secret<16> = Secret::new([8; 16]);
/// The element of the hash chain and the secret for epoch 2.
const CHAIN: [u8; 32] = [6; 32];
const SECRET: Secret<32> = Secret::new([5; 32]);
const NOW: Instant = Instant::from_micros(0);

#[test]
fn the_images_have_the_datagrams_that_their_sources_make() {
    assert_eq!(link::<Provider>(&GROUP, 2, &CHAIN, &SECRET), *listener().admission.chain);
    let listener_message = node_message(FIRST_LEAF, listener().admission.path[0]);
    let sender_message = node_message(FIRST_LEAF + 1, sender().admission.path[0]);
    let mut of_sender = start_sender(&Pages::written()).unwrap();
    let mut of_listener = start_listener(&Pages::written(), &listener()).unwrap();

    let first = request(&mut of_sender, true);
    let response = answer(&mut of_listener, NOW, &first).unwrap();
    assert!(of_listener.is_on());
    assert_eq!(hear(&mut of_sender, &response), Some(Heard::Served(Code::CHANGED)));

    for message in [&listener_message, &epoch_message()] {
        assert_eq!(answer(&mut of_listener, NOW, message), None);
    }
    for message in [&sender_message, &epoch_message()] {
        assert_eq!(hear(&mut of_sender, message), None);
    }
    let next = request(&mut of_sender, false);
    let next_response = answer(&mut of_listener, NOW, &next).unwrap();
    assert!(!of_listener.is_on());
    assert_eq!(hear(&mut of_sender, &next_response), Some(Heard::Served(Code::CHANGED)));

    let stale: String = [
        (&first, "REQUEST", &datagrams::REQUEST[..]),
        (&response, "RESPONSE", &datagrams::RESPONSE),
        (&listener_message, "LISTENER_MESSAGE", &datagrams::LISTENER_MESSAGE),
        (&sender_message, "SENDER_MESSAGE", &datagrams::SENDER_MESSAGE),
        (&epoch_message(), "EPOCH_MESSAGE", &datagrams::EPOCH_MESSAGE),
        (&next, "NEXT_REQUEST", &datagrams::NEXT_REQUEST),
        (&next_response, "NEXT_RESPONSE", &datagrams::NEXT_RESPONSE),
    ]
    .into_iter()
    .filter_map(|(made, name, compiled)| stale(made, name, compiled))
    .collect();
    assert!(stale.is_empty(), "\n{stale}");
}

#[test]
fn a_listener_serves_a_request_once_and_nothing_that_was_changed() {
    let mut listener = start_listener(&Pages::written(), &listener()).unwrap();
    let mut changed = datagrams::REQUEST;
    changed[40] ^= 1;
    assert_eq!(answer(&mut listener, NOW, &changed), None);
    assert!(!listener.is_on());
    assert!(answer(&mut listener, NOW, &datagrams::REQUEST).is_some());
    assert_eq!(answer(&mut listener, NOW, &datagrams::REQUEST), None);
}

#[test]
fn a_listener_challenges_a_sender_that_it_does_not_know() {
    let of_stranger = Provisioning { senders: &[], ..listener() };
    let mut listener = start_listener(&Pages::written(), &of_stranger).unwrap();
    let mut sender = start_sender(&Pages::written()).unwrap();

    let challenge = answer(&mut listener, NOW, &request(&mut sender, true)).unwrap();
    assert!(!listener.is_on());
    // It challenges once a second.
    assert_eq!(answer(&mut listener, NOW.after_millis(500), &request(&mut sender, true)), None);
    let again = answer(&mut listener, NOW.after_millis(1000), &request(&mut sender, true)).unwrap();
    // This response is not one to the last request.
    assert_eq!(hear(&mut sender, &challenge), None);
    assert_eq!(hear(&mut sender, &again), Some(Heard::Challenged));

    let response = answer(&mut listener, NOW.after_millis(2000), &request(&mut sender, true)).unwrap();
    assert!(listener.is_on());
    assert_eq!(hear(&mut sender, &response), Some(Heard::Served(Code::CHANGED)));
    // It knows the sender now.
    let response = answer(&mut listener, NOW.after_millis(2000), &request(&mut sender, false)).unwrap();
    assert_eq!(hear(&mut sender, &response), Some(Heard::Served(Code::CHANGED)));
}

#[test]
fn no_number_is_used_again_after_a_restart() {
    let (of_listener, of_sender) = (Pages::written(), Pages::written());
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let mut sender = start_sender(&of_sender).unwrap();
        let mut listener = start_listener(&of_listener, &listener()).unwrap();
        for _ in 0..300 {
            // The responses to a request that is repeated prove this as well as any other: each has a number.
            let request = request(&mut sender, true);
            numbers.push((true, request[5..11].to_vec()));
            if let Some(response) = answer(&mut listener, NOW.after_millis(5000), &request) {
                numbers.push((false, response[5..11].to_vec()));
            }
        }
    }
    let all = numbers.len();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), all);
}

#[test]
fn without_a_flash_memory_that_works_nothing_is_said() {
    let pages = Pages::written();
    let mut sender = start_sender(&pages).unwrap();
    *pages.works.borrow_mut() = false;
    let made = (0..300).filter(|_| sender.request(true, &mut [0; REQUEST_LEN]).is_some()).count();
    assert!(made <= 256, "{made}");
    assert!(start_sender(&pages).is_none());
}

#[test]
fn after_a_restart_in_a_later_epoch_than_that_of_its_provisioning_a_member_stays_silent() {
    let pages = Pages::written();
    let mut of_listener = start_listener(&pages, &listener()).unwrap();
    answer(&mut of_listener, NOW, &datagrams::LISTENER_MESSAGE);
    assert!(start_listener(&pages, &listener()).is_some());
    answer(&mut of_listener, NOW, &datagrams::EPOCH_MESSAGE);
    assert!(start_listener(&pages, &listener()).is_none());
    // Pages that hold nothing are no beginning either.
    pages.bytes.borrow_mut().iter_mut().for_each(|page| page.fill(0xff));
    assert!(start_listener(&pages, &listener()).is_none());
}
