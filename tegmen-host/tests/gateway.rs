//! Tests the example `gateway` between a client and a server.

#[allow(dead_code, reason = "the program around it")]
#[path = "../examples/gateway.rs"]
mod gateway;

use std::sync::{Arc, Mutex};
use tegmen::dtls::ConnectionIdConfig;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Router, Server};
use tegmen_host::uri::Scheme;
use tokio::net::UdpSocket;

const READING: &[u8] = b"21.5 degrees in the kitchen";

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn a_gateway_forwards_follows_changes_of_address_and_cannot_read() {
    let router = Router::new().get("/kitchen", |_, response| response.payload(READING));
    let builder = Server::builder().listen("coaps://127.0.0.1:0").shards(1);
    let server = builder.credentials(Credentials::single("display", b"0123456789abcdef")).serve(router).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = socket.local_addr().unwrap();
    let (seen, to) = (Arc::new(Mutex::new(Vec::new())), server.addresses()[0].address);
    let show = Arc::clone(&seen);
    let forwarding = tokio::spawn(gateway::forward(socket, to, move |datagram: &[u8]| {
        show.lock().unwrap().push(datagram.to_vec());
    }));

    let config = ClientConfig::psk("display", b"0123456789abcdef")
        .with(|config| config.dtls.connection_id = Some(ConnectionIdConfig::default()));
    let client = Session::connect_to(at, Scheme::Coaps, config).await.unwrap();
    for _ in 0..4 {
        assert_eq!(client.get("/kitchen").await.unwrap().payload, READING);
        client.rebind().await.unwrap();
    }
    assert_eq!(client.get("/kitchen").await.unwrap().payload, READING);
    assert_eq!(client.counters().established, 1, "one session for all addresses");
    client.close();
    forwarding.abort();
    let totals = server.stop();
    assert_eq!((totals.counters.established, totals.address_changes.followed), (1, 4));

    let seen = seen.lock().unwrap();
    assert!(seen.len() >= 10, "{}", seen.len());
    // The handshake shows the identity, so the search finds what is there.
    assert!(seen.iter().any(|datagram| has(datagram, b"display")));
    assert!(!seen.iter().any(|datagram| has(datagram, READING) || has(datagram, b"kitchen")));
}
