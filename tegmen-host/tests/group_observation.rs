//! Tests observations of a group without protection, over multicast on the loopback interface.
#![cfg(target_os = "linux")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber};
use tegmen_host::client::{AskedMembers, ClientConfig, ObserveMembers, Request, Response, Session, observe_group};
use tegmen_host::group::Group;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Listen, Server, ServerConfig};
use tegmen_host::uri::Scheme;
use tokio::net::UdpSocket;
use tokio::sync::Notify;

const GROUP: &str = "224.0.1.187%127.0.0.1";
const WAIT: Duration = Duration::from_millis(600);

/// The representations and the registrations of an observation.
#[derive(Default)]
struct Seen {
    replies: Mutex<Vec<(SocketAddr, String)>>,
    registered: Mutex<Vec<AskedMembers>>,
    end: Notify,
}

impl Seen {
    /// Observes the group, until `end` is notified.
    async fn observe(&self, port: u16, alive: Option<Duration>) {
        let group: Group = GROUP.parse().unwrap();
        let get = Request::new(Code::GET, "value");
        let times = ObserveMembers { wait: WAIT, alive };
        let on_reply = |from: SocketAddr, reply: Response| {
            self.replies.lock().unwrap().push((from, String::from_utf8(reply.payload).unwrap()));
        };
        let on_registered = |asked: &AskedMembers| self.registered.lock().unwrap().push(asked.clone());
        observe_group((&group, port), &get, times, self.end.notified(), on_reply, on_registered).await.unwrap();
    }

    /// Waits until the representations are those in `expected`, in any order.
    async fn wait_for(&self, expected: &[&str]) {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        let start = Instant::now();
        loop {
            let replies = self.replies.lock().unwrap().clone();
            let mut texts: Vec<_> = replies.iter().map(|(_, text)| text.as_str()).collect();
            texts.sort_unstable();
            if texts == expected {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{replies:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn server(address: SocketAddr, value: &'static [u8]) -> Server {
    let resources = Resources::new([("value".to_owned(), Resource::value(value))]);
    let mut config = ServerConfig::default();
    config.listen = vec![Listen { address, scheme: Scheme::Coap }];
    config.groups = vec![GROUP.parse().unwrap()];
    config.coap.leisure = Duration::from_millis(100);
    config.shards = 1;
    config.trust.plain_allowed = true;
    Server::with(config).serve(resources).unwrap()
}

#[tokio::test]
async fn a_group_is_observed_and_a_member_that_comes_later_too() {
    let first = server("127.0.0.1:0".parse().unwrap(), b"first");
    let port = first.addresses()[0].address.port();
    let second = server((Ipv4Addr::new(127, 0, 0, 2), port).into(), b"second");
    let seen = Seen::default();
    let script = async {
        seen.wait_for(&["first", "second"]).await;
        let session =
            Session::connect_to(first.addresses()[0].address, Scheme::Coap, ClientConfig::default()).await.unwrap();
        assert_eq!(session.put("/value", b"changed").await.unwrap().code, Code::CHANGED);
        seen.wait_for(&["first", "second", "changed"]).await;
        // The client registers again: the third member responds, and no representation of the others is shown twice.
        let third = server((Ipv4Addr::new(127, 0, 0, 3), port).into(), b"third");
        seen.wait_for(&["first", "second", "changed", "third"]).await;
        second.stop();
        let start = Instant::now();
        let is_missing =
            || seen.registered.lock().unwrap().iter().any(|asked| asked.missing == [Ipv4Addr::new(127, 0, 0, 2)]);
        while !is_missing() {
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", seen.registered.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        seen.end.notify_one();
        third
    };
    let ((), third) = tokio::join!(seen.observe(port, Some(Duration::from_millis(1500))), script);
    let registered = seen.registered.lock().unwrap().clone();
    assert_eq!((registered[0].responded.len(), registered[0].missing.len()), (2, 0));
    seen.wait_for(&["first", "second", "changed", "third"]).await;
    third.stop();
    first.stop();
}

/// Writes a response or a notification of a member.
fn message(kind: MessageType, id: u16, token: &[u8], observe: Option<u8>, payload: &[u8]) -> Vec<u8> {
    let mut storage = [0; 128];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, kind, Code::CONTENT, id, token).unwrap();
    if let Some(number) = observe {
        builder.option(OptionNumber::OBSERVE, &[number]).unwrap();
    }
    builder.payload(payload).unwrap();
    frame.bytes().to_vec()
}

/// Receives a datagram, or nothing within a short time.
async fn receive(socket: &UdpSocket) -> Option<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; 1500];
    let received = tokio::time::timeout(Duration::from_millis(400), socket.recv_from(&mut buffer)).await.ok()?;
    let (len, from) = received.unwrap();
    Some((buffer[..len].to_vec(), from))
}

#[tokio::test]
async fn notifications_that_are_old_or_of_nobody_are_not_shown() {
    let listener = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    listener.join_multicast_v4(Ipv4Addr::new(224, 0, 1, 187), Ipv4Addr::LOCALHOST).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (member, other) =
        (UdpSocket::bind("127.0.0.4:0").await.unwrap(), UdpSocket::bind("127.0.0.5:0").await.unwrap());
    let seen = Seen::default();
    let script = async {
        let (request, client) = receive(&listener).await.unwrap();
        let request = MessageRef::parse(&request).unwrap();
        assert_eq!(
            (request.message_type(), request.uint(OptionNumber::OBSERVE)),
            (MessageType::NonConfirmable, Some(0))
        );
        let token = request.token().to_vec();
        let non = MessageType::NonConfirmable;
        let send = async |socket: &UdpSocket, datagram: Vec<u8>| _ = socket.send_to(&datagram, client).await.unwrap();
        send(&member, message(non, 1, &token, Some(5), b"five")).await;
        seen.wait_for(&["five"]).await;
        // A confirmable notification is acknowledged, also if it is repeated, and an old one is not shown.
        for (id, number, text) in [(2, 7, &b"seven"[..]), (2, 7, b"seven"), (3, 6, b"six")] {
            send(&member, message(MessageType::Confirmable, id, &token, Some(number), text)).await;
            let (answer, _) = receive(&member).await.unwrap();
            let answer = MessageRef::parse(&answer).unwrap();
            assert_eq!((answer.message_type(), answer.message_id()), (MessageType::Acknowledgement, id));
        }
        // A notification with another token is neither shown nor acknowledged.
        let mut guess = token.clone();
        guess[6] ^= 1;
        for guess in [&guess[..], &token[..6], &[]] {
            send(&member, message(MessageType::Confirmable, 4, guess, Some(9), b"forged")).await;
            assert_eq!(receive(&member).await, None);
        }
        // Each member has its own numbers. A member that does not let its resource be observed sends one response.
        send(&other, message(non, 1, &token, None, b"once")).await;
        send(&other, message(non, 2, &token, None, b"twice")).await;
        send(&member, message(non, 5, &token, Some(8), b"eight")).await;
        seen.wait_for(&["five", "seven", "once", "eight"]).await;
        seen.end.notify_one();
        token
    };
    let ((), token) = tokio::join!(seen.observe(port, None), script);
    let (cancelled, _) = receive(&listener).await.unwrap();
    let cancelled = MessageRef::parse(&cancelled).unwrap();
    assert_eq!((cancelled.uint(OptionNumber::OBSERVE), cancelled.token()), (Some(1), token.as_slice()));
    assert!(cancelled.option(OptionNumber::NO_RESPONSE).is_some());
    seen.wait_for(&["five", "seven", "once", "eight"]).await;
}
