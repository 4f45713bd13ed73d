//! Tests a session whose requests OSCORE protects: responses that an attacker forges, and a context that cannot be used
//! any more.

mod oscore_scene;

use oscore_scene::Scene;
use std::net::SocketAddr;
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber};
use tegmen_host::client::{ClientConfig, ClientError, Endpoint, Session};
use tegmen_host::contexts::LEASE;
use tegmen_host::credentials::Credentials;
use tegmen_host::server::Router;
use tegmen_host::uri::{Scheme, Uri};
use tokio::net::UdpSocket;

const KEY: &[u8] = b"0123456789abcdef";

/// Returns the settings of a client with the context in `scene`.
fn settings(scene: &Scene) -> ClientConfig {
    scene.client().with(|config| config.coap.timeout = Duration::from_secs(20))
}

/// Starts a proxy for one client and one server. Before each notification it sends an unprotected response with the
/// same token. It sends each notification twice, with two Message IDs.
async fn forging(server: SocketAddr) -> SocketAddr {
    let (front, back) = (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let address = front.local_addr().unwrap();
    back.connect(server).await.unwrap();
    tokio::spawn(async move {
        let (mut from_client, mut from_server) = (vec![0; 2000], vec![0; 2000]);
        let (mut client, mut id) = (None, 0x4000);
        loop {
            tokio::select! {
                received = front.recv_from(&mut from_client) => {
                    let (len, from) = received.unwrap();
                    client = Some(from);
                    back.send(&from_client[..len]).await.unwrap();
                }
                received = back.recv(&mut from_server) => {
                    let (len, client) = (received.unwrap(), client.unwrap());
                    let message = MessageRef::parse(&from_server[..len]).unwrap();
                    if message.message_type() == MessageType::Confirmable {
                        for payload in [&b"forged"[..], message.payload()] {
                            id += 1;
                            let mut storage = [0; 2000];
                            let mut frame = Frame::new(&mut storage, 0);
                            let is_forged = payload == b"forged";
                            let code = if is_forged { Code::CONTENT } else { message.code() };
                            let head = MessageType::NonConfirmable;
                            let mut builder = Builder::new(&mut frame, head, code, id, message.token()).unwrap();
                            for (number, value) in message.options() {
                                if !is_forged || number == OptionNumber::OBSERVE {
                                    builder.option(number, value).unwrap();
                                }
                            }
                            builder.payload(payload).unwrap();
                            front.send_to(frame.bytes(), client).await.unwrap();
                        }
                    }
                    front.send_to(&from_server[..len], client).await.unwrap();
                }
            }
        }
    });
    address
}

#[tokio::test]
async fn responses_that_are_forged_or_repeated_do_not_end_an_observation() {
    let scene = Scene::new("forged");
    let (_server, address) = scene.serve();
    let client = Session::connect_to(forging(address).await, Scheme::Coap, settings(&scene)).await.unwrap();
    let mut observation = client.get("/value").observe().await.unwrap();
    assert_eq!(observation.next().await.unwrap().unwrap().payload, b"first");
    for value in [b"second", b"third!", b"fourth"] {
        assert_eq!(client.put("/value", value).await.unwrap().code, Code::CHANGED);
        assert_eq!(observation.next().await.unwrap().unwrap().payload, value);
    }
    assert_eq!(observation.cancel().await.unwrap().payload, b"fourth");
}

#[tokio::test]
async fn a_request_without_a_number_that_may_be_used_fails_with_the_reason() {
    let scene = Scene::new("numbers");
    let (_server, address) = scene.serve();
    let client = Session::connect_to(address, Scheme::Coap, settings(&scene)).await.unwrap();
    let numbers = settings(&scene).oscore.unwrap().join("numbers.toml");
    let kept = std::fs::read(&numbers).unwrap();
    std::fs::remove_file(&numbers).unwrap();
    std::fs::write(&numbers, kept).unwrap();
    let mut answered = 0;
    let error = loop {
        match client.get("/value").await {
            Ok(response) => assert_eq!(response.payload, b"first"),
            Err(error) => break error,
        }
        answered += 1;
        assert!(answered <= LEASE, "more requests than numbers");
    };
    assert!(matches!(error, ClientError::Context(_)), "{error:?}");
    assert!(error.to_string().contains("another process uses the context"), "{error}");
}

#[tokio::test]
async fn a_session_that_the_peer_opened_is_used_with_oscore_if_the_settings_say_so() {
    let scene = Scene::new("accepted");
    let endpoint = async |identity: &str| {
        let config = ClientConfig::psk(identity, KEY).with(|config| config.coap.timeout = Duration::from_secs(20));
        let router = Router::new().get("/name", |_, response| response.payload(b"unprotected"));
        let builder = Endpoint::with(config).serve(router).credentials(Credentials::single(identity, KEY));
        builder.bind("127.0.0.1:0").await.unwrap()
    };
    let (gateway, device) = (endpoint("pair").await, endpoint("pair").await);
    let _there = device.connect_to(gateway.addresses()[0], Scheme::Coaps).await.unwrap();
    let uri = Uri::parse(&format!("coaps://{}", device.addresses()[0])).unwrap();
    let config = ClientConfig::psk("pair", KEY).with(|config| config.oscore = settings(&scene).oscore);
    let session = gateway.connect_with(&uri, config).await.unwrap();
    // The device has no context.
    let refused = session.get("/name").await;
    assert!(matches!(refused, Err(ClientError::NotProtected { .. })), "{refused:?}");
}
