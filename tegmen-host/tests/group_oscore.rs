//! Tests members of a group with Group OSCORE (RFC 10021) over real sockets. The servers are in a multicast group. A
//! client sends requests to all of them, or to one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::crypto::Curve;
use tegmen::oscore::Unprotected;
use tegmen::oscore::group::{GroupRequest, Mode};
use tegmen_host::client::{AskedByName, ClientConfig, ClientError, Request, Session, ask_group, ask_oscore_group};
use tegmen_host::contexts::{ContextError, Contexts, StoredMember, create_group};
use tegmen_host::credentials::Credentials;
use tegmen_host::group::Group;
use tegmen_host::provider::HostCrypto;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Server, ServerConfig};
use tegmen_host::uri::Scheme;

const WAIT: Duration = Duration::from_secs(2);

/// A directory with the group `lights`. Its members are a switch, and two lamps with the names `hall` and `porch`.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str, curve: Curve) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-group-oscore-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let scene = Self(dir);
        scene.group("lights", curve);
        scene
    }

    /// Creates a group. The member `switch` may send every request to the other members, and the member `porch` may
    /// send only GET requests.
    fn group(&self, name: &str, curve: Curve) {
        let names = ["switch", "hall", "porch"].map(str::to_owned);
        let allow = BTreeMap::from([("porch".to_owned(), vec!["GET /*".to_owned()])]);
        create_group(&self.0.join(name), &names, curve, &allow, None).unwrap();
    }

    fn at(&self, member: &str) -> PathBuf {
        self.0.join(member)
    }

    fn serve(&self, member: &str, address: SocketAddr) -> Server {
        let credentials = Credentials::default();
        let learn = |name: &str, allow: Option<&[String]>| credentials.learn(name, allow);
        let contexts = Contexts::open(&[self.at(member)], learn).unwrap();
        let mut config = ServerConfig::default();
        config.groups = vec![group()];
        config.coap.leisure = Duration::from_millis(100);
        let builder = Server::with(config).listen(&format!("coap://{address}")).oscore(contexts);
        let resources = Resources::new([("on".to_owned(), Resource::value(member.as_bytes()))]);
        builder.credentials(credentials).serve(resources).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn group() -> Group {
    "224.0.1.189%127.0.0.1".parse().unwrap()
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn named(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Sends a request to all members. Returns their responses by name, and the members without a response.
async fn ask_all(context: &Path, port: u16, request: &Request<'_>) -> (BTreeMap<String, (Code, Vec<u8>)>, AskedByName) {
    let mut responses = BTreeMap::new();
    let take = |name: &str, _, response: tegmen_host::client::Response| {
        assert_eq!(responses.insert(name.to_owned(), (response.code, response.payload)), None, "twice from {name}");
    };
    let asked = ask_oscore_group(context, (&group(), port), request, WAIT, take).await.unwrap();
    (responses, asked)
}

async fn connect(context: &Path, member: Option<&str>, address: SocketAddr) -> Result<Session, ClientError> {
    let config = ClientConfig::default().with(|config| {
        config.oscore = Some(context.to_owned());
        config.oscore_member = member.map(str::to_owned);
    });
    Session::connect_to(address, Scheme::Coap, config).await
}

#[tokio::test]
async fn all_members_answer_one_request_and_one_member_answers_its_own() {
    for curve in [Curve::Ed25519, Curve::P256] {
        let (scene, port) = (Scene::new(&format!("all-{curve:?}"), curve), free_port());
        let at = |last: u8| SocketAddr::from(([127, 0, 0, last], port));
        let servers = [scene.serve("lights/hall", at(2)), scene.serve("lights/porch", at(3))];
        let switch = scene.at("lights/switch");
        let (responses, asked) = ask_all(&switch, port, &Request::new(Code::GET, "/on")).await;
        let expected = [("hall", b"lights/hall".to_vec()), ("porch", b"lights/porch".to_vec())];
        let expected = expected.map(|(name, value)| (name.to_owned(), (Code::CONTENT, value)));
        assert_eq!(responses, BTreeMap::from(expected));
        assert_eq!(asked, AskedByName { responded: named(&["hall", "porch"]), missing: BTreeSet::new() });
        // One member, in the pairwise mode.
        let session = connect(&switch, Some("porch"), at(3)).await.unwrap();
        assert_eq!(session.put("/on", b"brighter").await.unwrap().code, Code::CHANGED);
        let mut observation = session.get("/on").observe().await.unwrap();
        assert_eq!(observation.next().await.unwrap().unwrap().payload, b"brighter");
        assert_eq!(session.put("/on", b"off").await.unwrap().code, Code::CHANGED);
        assert_eq!(observation.next().await.unwrap().unwrap().payload, b"off");
        drop(observation);
        session.close();
        // The hall does not open what is for the porch.
        let session = connect(&switch, Some("porch"), at(2)).await.unwrap();
        assert!(session.get("/on").await.is_err());
        session.close();
        for server in servers {
            server.stop();
        }
    }
}

#[tokio::test]
async fn members_do_not_answer_a_stranger_or_a_member_without_the_right() {
    let (scene, port) = (Scene::new("strangers", Curve::Ed25519), free_port());
    scene.group("doors", Curve::Ed25519);
    let at = SocketAddr::from(([127, 0, 0, 2], port));
    let server = scene.serve("lights/hall", at);
    // In clear.
    let count = ask_group(&group(), port, &Request::new(Code::GET, "/on"), WAIT, |_, _| {}).await.unwrap();
    assert_eq!(count, 0);
    // Under the context of another group.
    let (responses, asked) = ask_all(&scene.at("doors/switch"), port, &Request::new(Code::GET, "/on")).await;
    assert_eq!((responses.len(), asked.missing), (0, named(&["hall", "porch"])));
    // A member that may only read.
    let porch = scene.at("lights/porch");
    let (responses, _) = ask_all(&porch, port, &Request::new(Code::PUT, "/on").payload(b"x")).await;
    assert_eq!(responses, BTreeMap::new());
    let session = connect(&porch, Some("hall"), at).await.unwrap();
    assert_eq!(session.put("/on", b"x").await.unwrap().code, Code::FORBIDDEN);
    assert_eq!(session.get("/on").await.unwrap().payload, b"lights/hall");
    session.close();
    server.stop();
}

/// A copied directory has no replay windows, in the same way as after a power cut.
#[tokio::test]
async fn a_member_without_its_windows_serves_a_request_after_a_challenge() {
    let (scene, port) = (Scene::new("windows", Curve::Ed25519), free_port());
    let at = SocketAddr::from(([127, 0, 0, 2], port));
    let (from, to) = (scene.at("lights/hall"), scene.at("copied"));
    std::fs::create_dir(&to).unwrap();
    for file in ["context.toml", "numbers.toml"] {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
    let server = scene.serve("copied", at);
    let switch = scene.at("lights/switch");
    let (responses, _) = ask_all(&switch, port, &Request::new(Code::GET, "/on")).await;
    assert_eq!(responses, BTreeMap::from([("hall".to_owned(), (Code::CONTENT, b"copied".to_vec()))]));
    server.stop();
    // After an orderly end the window is known.
    let server = scene.serve("copied", at);
    let session = connect(&switch, Some("hall"), at).await.unwrap();
    assert_eq!(session.get("/on").await.unwrap().payload, b"copied");
    session.close();
    server.stop();
}

#[tokio::test]
async fn a_client_names_the_member_that_it_asks() {
    let scene = Scene::new("names", Curve::Ed25519);
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let error =
        async |member| connect(&scene.at("lights/switch"), member, at).await.err().map(|error| error.to_string());
    let without = error(None).await.unwrap();
    assert!(without.contains("several other members") && without.contains("hall, porch"), "{without}");
    let unknown = error(Some("cellar")).await.unwrap();
    assert!(unknown.contains("no member cellar") && unknown.contains("hall, porch"), "{unknown}");
}

#[test]
fn a_server_is_one_member_of_a_group() {
    let scene = Scene::new("twice", Curve::Ed25519);
    let credentials = Credentials::default();
    let opened = Contexts::open(&[scene.at("lights")], |name, allow| credentials.learn(name, allow));
    assert!(matches!(opened.err(), Some(ContextError::SameGroup { .. })));
}

/// A member of `lights` with its own sockets, without a server. One socket receives requests to the group, the other
/// receives requests to the address of the member.
struct Puppet {
    stored: StoredMember,
    crypto: HostCrypto,
    sockets: [UdpSocket; 2],
}

impl Puppet {
    fn new(scene: &Scene, port: u16) -> Self {
        let to_group = UdpSocket::bind(("0.0.0.0", port)).unwrap();
        to_group.join_multicast_v4(&Ipv4Addr::new(224, 0, 1, 189), &Ipv4Addr::LOCALHOST).unwrap();
        let sockets = [to_group, UdpSocket::bind("127.0.0.1:0").unwrap()];
        for socket in &sockets {
            socket.set_nonblocking(true).unwrap();
        }
        let stored = StoredMember::open(&scene.at("lights/hall")).unwrap();
        Self { stored, crypto: HostCrypto::from_os().unwrap(), sockets }
    }

    /// Decrypts the next request, if one arrived at the socket with this index.
    fn receive(&mut self, at: usize) -> Option<(GroupRequest, Token, SocketAddr)> {
        let mut datagram = [0; 1500];
        let (len, from) = self.sockets[at].recv_from(&mut datagram).ok()?;
        let token = Token::new(MessageRef::parse(&datagram[..len]).unwrap().token());
        let StoredMember { context, recipients, .. } = &mut self.stored;
        let opened = context.unprotect_request(&mut self.crypto, recipients.as_mut_slice(), &mut datagram[..len]);
        let Ok(Unprotected::Fresh(_, nonce)) = opened else { panic!("{opened:?}") };
        Some((nonce.request(), token, from))
    }

    /// Sends a response from the socket with this index. A challenge (4.01) has an Echo option.
    fn respond(&mut self, at: usize, (request, token, to): &(GroupRequest, Token, SocketAddr), code: Code, id: u16) {
        let (mut storage, head) = ([0; 1500], MessageType::NonConfirmable);
        let mut frame = Frame::new(&mut storage, 300);
        let mut builder = Builder::new(&mut frame, head, code, id, token.as_bytes()).unwrap();
        if code == Code::UNAUTHORIZED {
            builder.option(OptionNumber::ECHO, &[7; 8]).unwrap();
        }
        self.stored.lease_one().unwrap();
        let StoredMember { context, recipients, .. } = &mut self.stored;
        let switch = recipients.iter_mut().find(|other| other.id() == request.client()).unwrap();
        context.protect_response(&mut self.crypto, Mode::Pairwise(switch), request, None, &mut frame).unwrap();
        self.sockets[at].send_to(frame.bytes(), to).unwrap();
    }
}

/// Lets the switch send a request to all members. `play` answers the requests that arrive at the two sockets of one
/// member. Returns the number of these requests.
async fn play(
    name: &str,
    play: impl Fn(&mut Puppet, usize, &(GroupRequest, Token, SocketAddr)) + Send + 'static,
) -> usize {
    let (scene, port) = (Scene::new(name, Curve::Ed25519), free_port());
    let mut puppet = Puppet::new(&scene, port);
    let end = Arc::new(AtomicBool::new(false));
    let is_over = end.clone();
    let thread = std::thread::spawn(move || {
        let mut requests = 0;
        while !is_over.load(Ordering::Relaxed) {
            for at in 0..2 {
                while let Some(request) = puppet.receive(at) {
                    requests += 1;
                    play(&mut puppet, requests, &request);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        requests
    });
    let request = Request::new(Code::POST, "/on");
    ask_oscore_group(&scene.at("lights/switch"), (&group(), port), &request, WAIT, |_, _, _| {}).await.unwrap();
    end.store(true, Ordering::Relaxed);
    thread.join().unwrap()
}

#[tokio::test]
async fn a_member_that_challenges_each_request_is_asked_again_once() {
    let requests =
        play("endless", |puppet, count, request| puppet.respond(0, request, Code::UNAUTHORIZED, count as u16));
    assert_eq!(requests.await, 2);
}

/// A member that served a request may get it again from an attacker after a crash, and then sends a challenge. This
/// challenge must not make the client repeat the request, because the member would then serve the request twice.
#[tokio::test]
async fn a_member_that_responded_is_not_asked_again_for_its_challenge() {
    let requests = play("responded", |puppet, _, request| {
        puppet.respond(0, request, Code::CHANGED, 1);
        std::thread::sleep(Duration::from_millis(100));
        puppet.respond(1, request, Code::UNAUTHORIZED, 2);
    });
    assert_eq!(requests.await, 1);
}
