//! Tests a reverse proxy that selects the origin by Uri-Host.

mod oscore_scene;

use oscore_scene::Scene;
use std::net::SocketAddr;
use tegmen::coap::{Code, OptionNumber};
use tegmen_host::client::{ClientConfig, Response, Session};
use tegmen_host::contexts::Contexts;
use tegmen_host::credentials::Credentials;
use tegmen_host::proxy::{Proxy, ProxyConfig};
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Application, Event, Request, Router, Server};
use tegmen_host::uri::Scheme;

const KEY: &[u8] = b"0123456789abcdef";

/// Starts an origin. Its resource `/who` contains this text, and its resource `/host` contains the Uri-Host that the
/// origin receives.
fn origin(who: &'static str) -> Server {
    let router = Router::new()
        .get("/who", move |_, response| response.payload(who.as_bytes()))
        .get("/host", |request, response| {
            response.payload(request.message().option(OptionNumber::URI_HOST).unwrap_or(b"nobody"))
        })
        .on(Code::POST, "/made", |_, response| {
            response.set_code(Code::CREATED);
            response.option(OptionNumber::LOCATION_PATH, b"made")
        });
    let builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).allow_plain().on_event(|_| ());
    builder.serve(router).unwrap()
}

fn address(server: &Server) -> SocketAddr {
    server.addresses()[0].address
}

/// Starts a proxy with these virtual hosts. Each client may send every request.
fn open(hosts: &[String], reverse: &[String]) -> (Server, Proxy) {
    let config = ProxyConfig::default().with(|config| {
        config.hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        config.reverse = reverse.iter().map(|reverse| reverse.parse().unwrap()).collect();
        config.targets = vec!["coap://127.0.0.1:*".parse().unwrap()];
    });
    let proxy = Proxy::new(config).unwrap();
    let builder = Server::builder().listen("coap://127.0.0.1:0").shards(2).allow_plain().on_event(|_| ());
    (builder.serve(proxy.clone()).unwrap(), proxy)
}

async fn client_of(server: &Server) -> Session {
    Session::connect_to(address(server), Scheme::Coap, ClientConfig::default()).await.unwrap()
}

fn host(name: &str) -> [(OptionNumber, Vec<u8>); 1] {
    [(OptionNumber::URI_HOST, name.as_bytes().to_vec())]
}

async fn ask(client: &Session, method: Code, name: &str, path: &str) -> Response {
    client.request(method, path).options(&host(name)).await.unwrap()
}

async fn get(client: &Session, name: &str, path: &str) -> (Code, String) {
    let response = ask(client, Code::GET, name, path).await;
    (response.code, String::from_utf8(response.payload).unwrap())
}

#[tokio::test]
async fn uri_host_chooses_the_origin_in_any_case() {
    let (one, other) = (origin("one"), origin("other"));
    let hosts = [format!("one.example=coap://{}", address(&one)), format!("Other.example=coap://{}", address(&other))];
    let (server, proxy) = open(&hosts, &[]);
    let client = client_of(&server).await;
    for _ in 0..2 {
        assert_eq!(get(&client, "one.example", "/who").await, (Code::CONTENT, "one".to_owned()));
        assert_eq!(get(&client, "OTHER.Example", "/who").await, (Code::CONTENT, "other".to_owned()));
    }
    // Each host has responses of its own.
    assert_eq!((proxy.counts().entries, proxy.counts().hits), (2, 2));
    let made = ask(&client, Code::POST, "one.example", "/made").await;
    assert_eq!(made.option(OptionNumber::LOCATION_PATH), Some(&b"made"[..]));
}

#[tokio::test]
async fn an_unknown_host_has_no_resources() {
    let one = origin("one");
    let at = format!("coap://{}", address(&one));
    let hosts = [format!("one.example={at}"), "gateway.example=".to_owned()];
    let (server, _) = open(&hosts, &[format!("/house={at}")]);
    let client = client_of(&server).await;
    for path in ["/who", "/house/who"] {
        assert_eq!(get(&client, "two.example", path).await.0, Code::NOT_FOUND);
        assert_eq!(get(&client, "example", path).await.0, Code::NOT_FOUND);
    }
    for invalid in ["a/b", "", "a b"] {
        assert_eq!(get(&client, invalid, "/who").await.0, Code::BAD_REQUEST, "{invalid}");
    }
    // The server itself has the paths of the reverse proxy, by its names and addresses.
    for own in ["gateway.example", "GATEWAY.example", "127.0.0.1", "[::1]"] {
        assert_eq!(get(&client, own, "/house/who").await, (Code::CONTENT, "one".to_owned()));
        assert_eq!(get(&client, own, "/who").await.0, Code::NOT_FOUND);
    }
    assert_eq!(client.get("/house/who").await.unwrap().payload, b"one");
    // A virtual host has them not.
    assert_eq!(get(&client, "one.example", "/house/who").await.0, Code::NOT_FOUND);
}

#[tokio::test]
async fn an_origin_without_a_name_learns_that_of_the_host_and_responses_do_not_mix() {
    let one = origin("one");
    let port = address(&one).port();
    let hosts = ["a.example", "b.example"].map(|name| format!("{name}=coap://127.0.0.1:{port}"));
    let named = [format!("c.example=coap://localhost:{port}")];
    let (server, _) = open(&[&hosts[..], &named].concat(), &[]);
    let client = client_of(&server).await;
    for _ in 0..2 {
        for (name, seen) in [("a.example", "a.example"), ("b.example", "b.example"), ("c.example", "localhost")] {
            assert_eq!(get(&client, name, "/host").await, (Code::CONTENT, seen.to_owned()));
        }
    }
}

#[tokio::test]
async fn a_right_to_a_path_of_one_host_is_none_elsewhere() {
    let one = origin("one");
    let at = format!("coap://{}", address(&one));
    let dir = std::env::temp_dir().join(format!("tegmen-hosts-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (file, key) = (dir.join("credentials.toml"), tegmen_host::hex::to_hex(KEY));
    let of = |name: &str, allow: &str| format!("[[psk]]\nidentity = \"{name}\"\nkey = \"{key}\"\nallow = [{allow}]\n");
    let text = of("alice", "\"GET /proxy/host/a.example/*\"") + &of("mallory", "\"GET /who\", \"GET /proxy/coap/*\"");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let credentials = Credentials::from_file(&file).unwrap();
    let _ = std::fs::remove_dir_all(&dir);
    let hosts = ["a.example", "b.example"].map(|name| format!("{name}={at}").parse().unwrap());
    let config = ProxyConfig::default().with(|config| config.hosts = hosts.to_vec());
    let builder = Server::builder().listen("coaps://127.0.0.1:0").on_event(|_| ());
    let server = builder.credentials(credentials).serve(Proxy::new(config).unwrap()).unwrap();
    let open = |name: &'static str| Session::connect_to(address(&server), Scheme::Coaps, ClientConfig::psk(name, KEY));
    let (alice, mallory) = (open("alice").await.unwrap(), open("mallory").await.unwrap());
    for _ in 0..2 {
        assert_eq!(get(&alice, "A.example", "/who").await, (Code::CONTENT, "one".to_owned()));
        for name in ["b.example", "unknown.example"] {
            assert_eq!(get(&alice, name, "/who").await.0, Code::FORBIDDEN);
        }
        for name in ["a.example", "b.example", "unknown.example"] {
            assert_eq!(get(&mallory, name, "/who").await.0, Code::FORBIDDEN);
        }
    }
}

/// An application that passes requests to a proxy, but does not return the virtual hosts of the proxy.
#[derive(Clone)]
struct Silent(Proxy);

impl Application for Silent {
    fn handle(&mut self, request: &Request<'_>, response: &mut tegmen::coap::Response<'_, '_>) -> Result<(), Code> {
        self.0.handle(request, response)
    }
}

#[tokio::test]
async fn a_proxy_forwards_nothing_for_a_host_that_the_policy_did_not_see() {
    let one = origin("one");
    let hosts = [format!("a.example=coap://{}", address(&one))];
    let (_, proxy) = open(&hosts, &[]);
    let builder = || Server::builder().listen("coap://127.0.0.1:0").allow_plain().on_event(|_| ());
    let silent = builder().serve(Silent(proxy.clone())).unwrap();
    assert_eq!(get(&client_of(&silent).await, "a.example", "/who").await.0, Code::INTERNAL_SERVER_ERROR);
    let routed = builder().serve(Router::of(proxy)).unwrap();
    assert_eq!(get(&client_of(&routed).await, "a.example", "/who").await, (Code::CONTENT, "one".to_owned()));
}

#[tokio::test]
async fn a_protected_request_for_a_virtual_host_passes_and_its_observation_too() {
    let scene = Scene::new("hosts");
    let (_origin, at) = scene.serve();
    // The proxy has the context, too, and must not open what is not for it.
    let credentials = Credentials::default();
    let contexts = Contexts::open(&[scene.third()], |name, _| credentials.learn(name, None)).unwrap();
    let config =
        ProxyConfig::default().with(|config| config.hosts = vec![format!("a.example=coap://{at}").parse().unwrap()]);
    let proxy = Proxy::new(config).unwrap();
    let builder = Server::builder().listen("coap://127.0.0.1:0").oscore(contexts).allow_plain().on_event(|event| {
        if let Event::Request(answered) = event {
            assert!(answered.path.starts_with("/proxy/host/a.example"), "{answered:?}");
        }
    });
    let server = builder.credentials(credentials.clone()).serve(proxy.clone()).unwrap();
    let client = Session::connect_to(address(&server), Scheme::Coap, scene.client()).await.unwrap();
    let options = host("a.example");
    let mut observation = client.get("/value").options(&options).observe().await.unwrap();
    assert_eq!(observation.next().await.unwrap().unwrap().payload, b"first");
    assert_eq!(client.put("/value", b"second").options(&options).await.unwrap().code, Code::CHANGED);
    assert_eq!(observation.next().await.unwrap().unwrap().payload, b"second");
    assert_eq!((proxy.counts().entries, proxy.counts().observations), (0, 1));
}

#[tokio::test]
async fn resources_of_one_path_at_two_hosts_are_observed_apart() {
    let serve = |value: &[u8]| {
        let resources = Resources::new([("value".to_owned(), Resource::value(value))]);
        let builder = Server::builder().listen("coap://127.0.0.1:0").shards(1).allow_plain().on_event(|_| ());
        builder.serve(resources).unwrap()
    };
    let (one, other) = (serve(b"one"), serve(b"other"));
    let hosts = [format!("a.example=coap://{}", address(&one)), format!("b.example=coap://{}", address(&other))];
    let (server, proxy) = open(&hosts, &[]);
    let client = client_of(&server).await;
    let (first, second) = (host("a.example"), host("b.example"));
    let mut first = client.get("/value").options(&first).observe().await.unwrap();
    let mut second = client.get("/value").options(&second).observe().await.unwrap();
    assert_eq!(first.next().await.unwrap().unwrap().payload, b"one");
    assert_eq!(second.next().await.unwrap().unwrap().payload, b"other");
    assert_eq!(proxy.counts().observations, 2);
    client_of(&one).await.put("/value", b"newer").await.unwrap();
    assert_eq!(first.next().await.unwrap().unwrap().payload, b"newer");
    client_of(&other).await.put("/value", b"newest").await.unwrap();
    assert_eq!(second.next().await.unwrap().unwrap().payload, b"newest");
}
