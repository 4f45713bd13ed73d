//! Tests the discovery of servers by an OSCORE context that the client and the server share.

use std::net::{Ipv6Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tegmen::coap::{Code, MessageRef};
use tegmen::oscore::{Aead, discovery_address};
use tegmen_host::client::{ClientConfig, Request, Session, discover};
use tegmen_host::contexts::{self, ContextFile, Contexts};
use tegmen_host::credentials::Credentials;
use tegmen_host::group::Group;
use tegmen_host::provider::HostCrypto;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Server, ServerConfig};
use tegmen_host::uri::Scheme;

struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-discovery-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }

    /// Writes the two ends of a context to directories with these names.
    fn context(&self, client: &str, server: &str, secret: u8, sender_id: &[u8]) {
        let context = ContextFile {
            sender_id: sender_id.to_vec(),
            recipient_id: vec![9],
            master_secret: vec![secret; 16].into(),
            master_salt: Vec::new(),
            id_context: None,
            aead: Aead::AesCcm16_64_128,
            created: contexts::now(),
            expires: None,
            allow: None,
            rederivation: false,
        };
        contexts::create(&self.0.join(client), &context).unwrap();
        contexts::create(&self.0.join(server), &context.mirrored()).unwrap();
    }

    fn serve(&self, context: &str, port: u16, value: &[u8]) -> Server {
        let credentials = Credentials::default();
        let contexts = Contexts::open(&[self.0.join(context)], |name, _| credentials.learn(name, None)).unwrap();
        let mut config = ServerConfig::default();
        config.groups = vec![group()];
        config.coap.leisure = Duration::from_millis(100);
        let builder = Server::with(config).listen(&format!("coap://127.0.0.1:{port}")).shards(1).oscore(contexts);
        let resources = Resources::new([("value".to_owned(), Resource::value(value))]);
        builder.credentials(credentials).serve(resources).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn group() -> Group {
    "224.0.1.188%127.0.0.1".parse().unwrap()
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

const WAIT: Duration = Duration::from_secs(6);

async fn look(context: &Path, port: u16) -> Option<(std::net::SocketAddr, Code, Vec<u8>)> {
    let found = discover(context, &group(), port, &Request::new(Code::GET, "/value"), WAIT).await.unwrap();
    found.map(|found| (found.remote, found.response.code, found.response.payload))
}

#[tokio::test]
async fn the_server_of_a_context_is_found_and_asked_alone_from_then_on() {
    let scene = Scene::new("found");
    scene.context("client", "server", 7, &[1]);
    // A server with another secret under the same identifiers, as after a collision, and one with another identifier.
    scene.context("unused", "same", 8, &[1]);
    scene.context("unused-too", "other", 9, &[2]);
    let port = free_port();
    let server = scene.serve("server", port, b"found");
    let same = scene.serve("same", free_port(), b"wrong");
    let other = scene.serve("other", free_port(), b"wrong");
    let client = scene.0.join("client");
    let (remote, code, payload) = look(&client, port).await.unwrap();
    assert_eq!(remote, server.addresses()[0].address);
    assert_eq!((code, &payload[..]), (Code::CONTENT, &b"found"[..]));
    let config = ClientConfig::default().with(|config| config.oscore = Some(client));
    let session = Session::connect_to(remote, Scheme::Coap, config).await.unwrap();
    assert_eq!(session.get("/value").await.unwrap().payload, b"found");
    drop((same, other));
}

/// Sends `datagram` to the group, and returns the responses.
fn responses(datagram: &[u8], port: u16) -> Vec<Vec<u8>> {
    let socket = group().socket(None).unwrap();
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket.send_to(datagram, group().at(port)).unwrap();
    let mut buffer = [0; 1500];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())).collect()
}

/// An attacker that knows the identifiers of a context gets no response. An attacker that repeats a request gets no
/// response either.
#[tokio::test]
async fn a_request_that_does_not_open_gets_no_response() {
    let scene = Scene::new("silent");
    scene.context("client", "server", 7, &[1]);
    let port = free_port();
    let _server = scene.serve("server", port, b"found");
    // The option has Partial IV 5 and kid 1; the ciphertext is forged.
    let forged = [0x51, 0x02, 0x12, 0x34, 0xaa, 0x93, 0x09, 0x05, 0x01, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    assert!(MessageRef::parse(&forged).is_ok());
    assert_eq!(tokio::task::spawn_blocking(move || responses(&forged, port)).await.unwrap(), Vec::<Vec<u8>>::new());
    assert!(look(&scene.0.join("client"), port).await.is_some());
}

#[tokio::test]
async fn nobody_answers_where_no_server_has_the_context() {
    let scene = Scene::new("nobody");
    scene.context("client", "unused", 7, &[1]);
    scene.context("unused-too", "server", 8, &[1]);
    let port = free_port();
    let _server = scene.serve("server", port, b"wrong");
    let wait = Duration::from_millis(600);
    let request = Request::new(Code::GET, "/value");
    let found = discover(&scene.0.join("client"), &group(), port, &request, wait).await.unwrap();
    assert!(found.is_none());
}

#[test]
fn a_context_maps_to_an_address_of_the_paper() {
    let address =
        |kid: &[u8], id_context: Option<&[u8]>| Ipv6Addr::from(discovery_address::<HostCrypto>(kid, id_context));
    let addresses = [
        address(&[1], None),
        address(&[2], None),
        address(&[1], Some(&[2])),
        address(&[1, 2], None),
        address(&[], None),
    ];
    for (index, address) in addresses.iter().enumerate() {
        let [prefix @ .., _, _, _] = address.octets();
        let start: Ipv6Addr = "ff02::3:ff00:0".parse().unwrap();
        assert_eq!(prefix, start.octets()[..13]);
        assert!(!addresses[..index].contains(address));
    }
    // The address does not change between versions.
    assert_eq!(address(&[1], None).to_string(), "ff02::3:ff9d:cf97");
}
