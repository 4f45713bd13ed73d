//! Tests the senders and the listeners of the images of CoAP Uni, CoAP Mul, DTLS Uni-Uni and DTLS Mul-Uni, compiled for
//! this machine. The sender and the listener of a scheme exchange datagrams. These datagrams must be those in
//! `firmware/src/clear_datagrams.rs` and `session_datagrams.rs`.

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
#[path = "../../firmware/src/clear_datagrams.rs"]
pub mod clear_datagrams;
#[path = "../../firmware/src/coap_listener.rs"]
pub mod coap_listener;
#[path = "../../firmware/src/coap_sender.rs"]
pub mod coap_sender;
#[path = "../../firmware/src/lamp.rs"]
pub mod lamp;
#[path = "../../firmware/src/mul_uni_listener.rs"]
pub mod mul_uni_listener;
#[path = "../../firmware/src/mul_uni_sender.rs"]
pub mod mul_uni_sender;
#[path = "pages/mod.rs"]
mod pages;
#[path = "recorded/mod.rs"]
mod recorded;
#[path = "../../firmware/src/session_datagrams.rs"]
pub mod session_datagrams;
#[path = "../../firmware/src/sessions.rs"]
pub mod sessions;
#[path = "../../firmware/src/uni_uni_listener.rs"]
pub mod uni_uni_listener;
#[path = "../../firmware/src/uni_uni_sender.rs"]
pub mod uni_uni_sender;

use asking::{Heard, Listeners, REQUEST_LEN, Requests, Round};
use axiom_group::{ADDRESS, LISTENER, Provisioning, SENDER, listener, member, sender};
use axiom_listener::Listener;
use axiom_provisioned::Provisioned;
use coap_listener::CoapListener;
use coap_sender::{MulSender, ask_next};
use mul_uni_listener::OverSessions;
use mul_uni_sender::MulUniSender;
use pages::Pages;
use recorded::stale;
use sessions::{OUT_LEN, Sessions, Table};
use tegmen::address::{Address, Path};
use tegmen::axiom::Member;
use tegmen::coap::Code;
use tegmen::crypto::Compact as Provider;
use tegmen::dtls::Configured;
use tegmen::time::Instant;
use tegmen_flash::Kept;
use uni_uni_listener::UniUniListener;
use uni_uni_sender::UniUniSender;

/// Returns a reference to the value, which stays in memory until the program ends.
fn place<T>(value: T) -> &'static mut T {
    Box::leak(Box::new(value))
}

fn round(listeners: &[Address]) -> Round<3> {
    let mut round = Round::new(place(Listeners::NONE), Requests::new(0));
    listeners.iter().for_each(|listener| round.add(listener).unwrap());
    round
}

fn group<const SENDERS: usize>(provisioning: &Provisioning<'_>) -> Provisioned<Pages, SENDERS, 0> {
    let kept = Kept::open(Pages::written()).unwrap();
    Provisioned::new(place(Member::EMPTY), Provider::new([1; 32]), provisioning, kept).unwrap()
}

/// A sender with DTLS sessions, to which the test passes datagrams.
trait WithSessions {
    fn connect(&mut self, listener: &Address);
    fn take(&mut self, from: &Address, datagram: &[u8]) -> Option<Heard>;
    fn poll(&mut self) -> Option<(Address, Vec<u8>)>;
}

impl WithSessions for UniUniSender<3> {
    fn connect(&mut self, listener: &Address) {
        UniUniSender::connect(self, NOW, listener).unwrap();
    }

    fn take(&mut self, from: &Address, datagram: &[u8]) -> Option<Heard> {
        let (answer, heard) = UniUniSender::take(self, NOW, from, &mut datagram.to_vec(), &mut [0; OUT_LEN]);
        assert_eq!(answer, 0, "a client answers no datagram");
        heard
    }

    fn poll(&mut self) -> Option<(Address, Vec<u8>)> {
        polled(|out| UniUniSender::poll(self, NOW, out))
    }
}

impl WithSessions for MulUniSender<Pages, 3> {
    fn connect(&mut self, listener: &Address) {
        MulUniSender::connect(self, NOW, listener).unwrap();
    }

    fn take(&mut self, from: &Address, datagram: &[u8]) -> Option<Heard> {
        let (answer, heard) = MulUniSender::take(self, NOW, from, &mut datagram.to_vec(), &mut [0; OUT_LEN]);
        assert_eq!(answer, 0, "a client answers no datagram");
        heard
    }

    fn poll(&mut self) -> Option<(Address, Vec<u8>)> {
        polled(|out| MulUniSender::poll(self, NOW, out))
    }
}

fn polled(poll: impl FnOnce(&mut [u8; OUT_LEN]) -> Option<(Address, usize)>) -> Option<(Address, Vec<u8>)> {
    let mut out = [0; OUT_LEN];
    let (to, len) = poll(&mut out)?;
    Some((to, out[..len].to_vec()))
}

/// A listener. It processes a datagram to its own address, and returns the datagram that it sends in response.
type OfListener<'l> = dyn FnMut(&[u8]) -> Option<Vec<u8>> + 'l;

fn own_of_uni_uni(listener: &mut UniUniListener) -> impl FnMut(&[u8]) -> Option<Vec<u8>> {
    |datagram| {
        let mut out = [0; OUT_LEN];
        let len = match listener.take(NOW, &member(SENDER), &mut datagram.to_vec(), &mut out) {
            0 => listener.poll(NOW, &mut out)?.1,
            len => len,
        };
        Some(out[..len].to_vec())
    }
}

fn own_of_mul_uni(listener: &mut Listener<Pages, OverSessions>) -> impl FnMut(&[u8]) -> Option<Vec<u8>> {
    |datagram| {
        let mut out = [0; OUT_LEN];
        let len = match listener.take_own(NOW, &member(SENDER), &mut datagram.to_vec(), &mut out) {
            0 => listener.poll_own(NOW, &mut out)?.1,
            len => len,
        };
        Some(out[..len].to_vec())
    }
}

/// Opens a session. Returns all datagrams of the handshake.
fn open(sender: &mut impl WithSessions, listener: &mut OfListener<'_>, address: &Address) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    sender.connect(address);
    while let Some((to, datagram)) = sender.poll() {
        assert_eq!(to, *address);
        all.push(datagram.clone());
        if let Some(answer) = listener(&datagram) {
            all.push(answer.clone());
            assert_eq!(sender.take(address, &answer), None);
        }
    }
    all
}

fn sessions<R: Configured, const PEERS: usize>(local: u8, seed: u8) -> Sessions<R, PEERS> {
    Sessions::new(NOW, Provider::new([seed; 32]), member(local), place(Table::new()))
}

fn uni_uni() -> (UniUniSender<3>, UniUniListener) {
    let sender = UniUniSender::new(sessions(SENDER, 1), round(&[member(LISTENER)]));
    (sender, UniUniListener::new(sessions(LISTENER, 2)))
}

fn mul_uni() -> (MulUniSender<Pages, 3>, Listener<Pages, OverSessions>) {
    let responses = OverSessions::new(sessions(LISTENER, 2));
    let listener = Listener::with_responses(group(&listener()), responses);
    (MulUniSender::new(group(&sender()), sessions(SENDER, 1)), listener)
}

/// Returns the request that the sender sends in the session with the listener.
fn ask_over_session(sender: &mut UniUniSender<3>, is_on: bool) -> Vec<u8> {
    sender.round.begin(is_on);
    let mut out = [0; REQUEST_LEN];
    let (to, request) = sender.ask_next(NOW, &mut out).unwrap();
    assert_eq!(to, member(LISTENER));
    request.to_vec()
}

/// Returns the response of a listener to a datagram that was sent to the group, at the time when it is due.
fn answer_to_group(listener: &mut Listener<Pages, OverSessions>, datagram: &[u8]) -> Option<Vec<u8>> {
    listener.take(NOW, &member(SENDER), &mut datagram.to_vec());
    let (to, response) = listener.poll(LATER)?;
    assert_eq!(to, member(SENDER));
    Some(response.to_vec())
}

/// Returns the response of a listener without protection to a request that was sent to the address `to` at the time
/// `at`.
fn answer_in_clear(listener: &mut CoapListener, to: Address, request: &[u8], at: Instant) -> Option<Vec<u8>> {
    listener.take(NOW, &Path { local: to, remote: member(SENDER) }, request, 200);
    listener.poll(at).map(|(_, response)| response.to_vec())
}

fn ask_in_clear(round: &mut Round<3>, is_on: bool) -> Vec<u8> {
    round.begin(is_on);
    ask_next(round, &mut [0; REQUEST_LEN]).unwrap().1.to_vec()
}

const NOW: Instant = Instant::from_micros(0);
const LATER: Instant = Instant::from_micros(1_000_000);
const SERVED: Option<Heard> = Some(Heard::Served(Code::CHANGED));

#[test]
fn the_images_in_clear_have_the_datagrams_that_their_sources_make() {
    use clear_datagrams as datagrams;
    let (mut uni, mut listener) = (round(&[member(LISTENER)]), CoapListener::new(0));
    let mut mul = MulSender::<3>::new(Requests::new(0), place(Listeners::NONE));

    let first = ask_in_clear(&mut uni, true);
    assert_eq!(mul.request(true, &mut [0; REQUEST_LEN]).unwrap(), first);
    let response = answer_in_clear(&mut listener, member(LISTENER), &first, NOW).unwrap();
    assert!(listener.is_on());
    assert_eq!((uni.hear(&member(LISTENER), &response), mul.take(&member(LISTENER), &response)), (SERVED, SERVED));

    let next = ask_in_clear(&mut uni, false);
    assert_eq!(mul.request(false, &mut [0; REQUEST_LEN]).unwrap(), next);
    // It waits for the leisure.
    assert_eq!(answer_in_clear(&mut listener, ADDRESS, &next, NOW.after_millis(199)), None);
    let next_response = listener.poll(NOW.after_millis(200)).unwrap().1.to_vec();
    assert!(!listener.is_on());
    assert_eq!(uni.hear(&member(LISTENER), &next_response), SERVED);
    assert_eq!(mul.take(&member(LISTENER), &next_response), SERVED);

    let stale: String = [
        (&first, "REQUEST", &datagrams::REQUEST[..]),
        (&response, "RESPONSE", &datagrams::RESPONSE),
        (&next, "NEXT_REQUEST", &datagrams::NEXT_REQUEST),
        (&next_response, "NEXT_RESPONSE", &datagrams::NEXT_RESPONSE),
    ]
    .into_iter()
    .filter_map(|(made, name, compiled)| stale(made, name, compiled))
    .collect();
    assert!(stale.is_empty(), "\n{stale}");
}

#[test]
fn the_images_with_sessions_have_the_datagrams_that_their_sources_make() {
    use session_datagrams as datagrams;
    let (mut sender, mut listener) = uni_uni();
    let handshake = open(&mut sender, &mut own_of_uni_uni(&mut listener), &member(LISTENER));
    let first = ask_over_session(&mut sender, true);
    let response = own_of_uni_uni(&mut listener)(&first).unwrap();
    assert!(listener.is_on());
    assert_eq!(WithSessions::take(&mut sender, &member(LISTENER), &response), SERVED);
    let next = ask_over_session(&mut sender, false);
    let next_response = own_of_uni_uni(&mut listener)(&next).unwrap();
    assert!(!listener.is_on());
    assert_eq!(WithSessions::take(&mut sender, &member(LISTENER), &next_response), SERVED);

    let (mut sender, mut listener) = mul_uni();
    assert_eq!(open(&mut sender, &mut own_of_mul_uni(&mut listener), &member(LISTENER)), handshake);
    assert_eq!(sender.request(true, &mut [0; REQUEST_LEN]).unwrap(), axiom_datagrams::REQUEST);
    assert_eq!(answer_to_group(&mut listener, &axiom_datagrams::REQUEST).unwrap(), response);
    assert!(listener.is_on());
    assert_eq!(WithSessions::take(&mut sender, &member(LISTENER), &response), SERVED);
    for message in [&axiom_datagrams::SENDER_MESSAGE[..], &axiom_datagrams::EPOCH_MESSAGE] {
        assert_eq!(WithSessions::take(&mut sender, &member(LISTENER), message), None);
    }
    for message in [&axiom_datagrams::LISTENER_MESSAGE[..], &axiom_datagrams::EPOCH_MESSAGE] {
        assert_eq!(answer_to_group(&mut listener, message), None);
    }
    let next_of_group = sender.request(false, &mut [0; REQUEST_LEN]).unwrap().to_vec();
    assert_eq!(answer_to_group(&mut listener, &next_of_group).unwrap(), next_response);
    assert!(!listener.is_on());
    assert_eq!(WithSessions::take(&mut sender, &member(LISTENER), &next_response), SERVED);

    let [hello, cookie, hello_again, server_flight, client_flight, finished] = &handshake[..] else {
        panic!("{} datagrams", handshake.len())
    };
    let stale: String = [
        (hello, "HELLO", &datagrams::HELLO[..]),
        (cookie, "COOKIE", &datagrams::COOKIE),
        (hello_again, "HELLO_AGAIN", &datagrams::HELLO_AGAIN),
        (server_flight, "SERVER_FLIGHT", &datagrams::SERVER_FLIGHT),
        (client_flight, "CLIENT_FLIGHT", &datagrams::CLIENT_FLIGHT),
        (finished, "FINISHED", &datagrams::FINISHED),
        (&first, "REQUEST", &datagrams::REQUEST),
        (&response, "RESPONSE", &datagrams::RESPONSE),
        (&next, "NEXT_REQUEST", &datagrams::NEXT_REQUEST),
        (&next_response, "NEXT_RESPONSE", &datagrams::NEXT_RESPONSE),
        (&next_of_group, "NEXT_GROUP_REQUEST", &datagrams::NEXT_GROUP_REQUEST),
    ]
    .into_iter()
    .filter_map(|(made, name, compiled)| stale(made, name, compiled))
    .collect();
    assert!(stale.is_empty(), "\n{stale}");
}

#[test]
fn a_listener_serves_no_request_twice() {
    let mut in_clear = CoapListener::new(0);
    let request = ask_in_clear(&mut round(&[member(LISTENER)]), true);
    assert!(answer_in_clear(&mut in_clear, ADDRESS, &request, LATER).is_some());
    assert_eq!(answer_in_clear(&mut in_clear, ADDRESS, &request, LATER), None);
    // Another sender may have the same Message ID.
    in_clear.take(NOW, &Path { local: ADDRESS, remote: member(9) }, &request, 0);
    assert_eq!(in_clear.poll(NOW).unwrap().0, member(9));

    let (mut sender, mut listener) = uni_uni();
    open(&mut sender, &mut own_of_uni_uni(&mut listener), &member(LISTENER));
    let request = ask_over_session(&mut sender, true);
    assert!(own_of_uni_uni(&mut listener)(&request).is_some());
    assert_eq!(own_of_uni_uni(&mut listener)(&request), None);

    let (mut sender, mut listener) = mul_uni();
    open(&mut sender, &mut own_of_mul_uni(&mut listener), &member(LISTENER));
    let request = sender.request(true, &mut [0; REQUEST_LEN]).unwrap().to_vec();
    assert!(answer_to_group(&mut listener, &request).is_some());
    assert_eq!(answer_to_group(&mut listener, &request), None);
}

#[test]
fn a_round_asks_one_listener_after_the_other_and_takes_the_response_of_that_one_alone() {
    let (first, second) = (member(LISTENER), member(8));
    let mut round = round(&[first, second]);
    assert_eq!(round.add(&first), None);
    assert_eq!(round.next(), None);
    let mut listener = CoapListener::new(0);
    let request = ask_in_clear(&mut round, true);
    let response = answer_in_clear(&mut listener, first, &request, NOW).unwrap();
    // The response of the first is awaited.
    assert_eq!(round.next(), None);
    assert_eq!(round.hear(&second, &response), None);
    assert_eq!((round.hear(&first, &response), round.next()), (SERVED, Some(second)));
    // A response that is repeated is none of the next request.
    assert_eq!(round.hear(&first, &response), None);
    assert_eq!(ask_next(&mut round, &mut [0; REQUEST_LEN]).unwrap().0, second);
    assert_eq!(round.hear(&second, &response), None);
    round.skip();
    assert_eq!(round.next(), None);
}

#[test]
fn one_request_to_all_counts_each_listener_once() {
    let mut sender = MulSender::<2>::new(Requests::new(0), place(Listeners::NONE));
    let request = sender.request(true, &mut [0; REQUEST_LEN]).unwrap().to_vec();
    let response = answer_in_clear(&mut CoapListener::new(0), ADDRESS, &request, LATER).unwrap();
    assert_eq!((sender.take(&member(2), &response), sender.take(&member(2), &response)), (SERVED, None));
    // There is space for two.
    assert_eq!((sender.take(&member(3), &response), sender.take(&member(4), &response)), (SERVED, None));
    sender.request(false, &mut [0; REQUEST_LEN]).unwrap();
    assert_eq!(sender.take(&member(5), &response), None);
}

#[test]
fn without_a_session_nothing_is_said() {
    let (mut sender, mut listener) = uni_uni();
    sender.round.begin(true);
    assert_eq!(sender.ask_next(NOW, &mut [0; REQUEST_LEN]), None);
    assert_eq!(own_of_uni_uni(&mut listener)(&session_datagrams::REQUEST), None);
    let (_, mut listener) = mul_uni();
    assert_eq!(answer_to_group(&mut listener, &axiom_datagrams::REQUEST), None);
}

#[test]
fn a_listener_that_does_not_know_a_sender_challenges_it_over_the_session() {
    let (mut sender, mut listener) = mul_uni();
    listener.group = group(&Provisioning { senders: &[], ..axiom_group::listener() });
    open(&mut sender, &mut own_of_mul_uni(&mut listener), &member(LISTENER));
    let request = sender.request(true, &mut [0; REQUEST_LEN]).unwrap().to_vec();
    let challenge = answer_to_group(&mut listener, &request).unwrap();
    assert!(!listener.is_on());
    assert_eq!(WithSessions::take(&mut sender, &member(LISTENER), &challenge), Some(Heard::Challenged));
    let request = sender.request(true, &mut [0; REQUEST_LEN]).unwrap().to_vec();
    let response = answer_to_group(&mut listener, &request).unwrap();
    assert!(listener.is_on());
    assert_eq!(WithSessions::take(&mut sender, &member(LISTENER), &response), SERVED);
}

#[test]
fn a_delayed_response_of_the_epoch_before_answers_no_request() {
    let (mut sender, mut listener) = mul_uni();
    open(&mut sender, &mut own_of_mul_uni(&mut listener), &member(LISTENER));
    let delayed = sender.request(true, &mut [0; REQUEST_LEN]).unwrap().to_vec();
    let delayed = answer_to_group(&mut listener, &delayed).unwrap();
    for message in [&axiom_datagrams::SENDER_MESSAGE[..], &axiom_datagrams::EPOCH_MESSAGE] {
        WithSessions::take(&mut sender, &member(LISTENER), message);
    }
    sender.request(false, &mut [0; REQUEST_LEN]).unwrap();
    assert_eq!(WithSessions::take(&mut sender, &member(LISTENER), &delayed), None);
}
