//! Tests of a resource directory over real sockets: the rights to register endpoints, and observed lookups.

#[allow(dead_code, reason = "each test uses its part")]
mod scene;

use scene::{Dir, KEY};
use std::os::unix::fs::PermissionsExt as _;
use tegmen::coap::{Code, OptionNumber};
use tegmen_base::hex::to_hex;
use tegmen_control::directory::{DirectoryServer, DirectorySettings, Registering, RegistrationEvent};
use tegmen_host::client::{ClientConfig, Response, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::resources::ListedPath;
use tegmen_host::server::{Server, ServerConfig};
use tegmen_host::uri::{Scheme, Uri};

const LINKS: &[u8] = b"</temp>;rt=\"temperature\"";

/// Starts a directory for the identities `a`, `b`, `tool` and `reader`. The identity `reader` may only look up.
fn start(dir: &Dir) -> Server {
    let file = dir.0.join("keys.toml");
    let entry = |name: &str| {
        let allow = if name == "reader" { "GET /rd-lookup/*" } else { "* /*" };
        format!("[[psk]]\nidentity = \"{name}\"\nkey = \"{}\"\nallow = [\"{allow}\"]\n", to_hex(&KEY))
    };
    std::fs::write(&file, ["a", "b", "tool", "reader"].map(entry).concat()).expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("permissions");
    let credentials = Credentials::from_file(&file).expect("credentials");
    let settings = DirectorySettings { tools: vec!["tool".to_owned()], ..DirectorySettings::default() };
    let directory = DirectoryServer::new(settings, credentials.clone()).expect("a directory");
    let config = ServerConfig::default().with(|config| {
        config.shards = 1;
        config.trust.plain_allowed = true;
    });
    let builder = Server::with(config).listen("coaps://127.0.0.1:0").listen("coap://127.0.0.1:0");
    builder.credentials(credentials).serve(directory).expect("a server")
}

async fn connect(server: &Server, name: &str) -> Session {
    let at = |scheme| server.addresses().iter().find(|listen| listen.scheme == scheme).expect("an address").address;
    let session = match name {
        "" => Session::connect_to(at(Scheme::Coap), Scheme::Coap, ClientConfig::default()).await,
        name => Session::connect_to(at(Scheme::Coaps), Scheme::Coaps, ClientConfig::psk(name, KEY)).await,
    };
    session.expect("a session")
}

async fn register(session: &Session, query: &str) -> Response {
    session.post(&format!("/rd?{query}"), LINKS).content_format(40).await.expect("a response")
}

fn location(response: &Response) -> String {
    let segments = response.options().filter(|(number, _)| *number == OptionNumber::LOCATION_PATH);
    segments.map(|(_, segment)| format!("/{}", std::str::from_utf8(segment).expect("text"))).collect()
}

async fn look_up(session: &Session, path: &str) -> String {
    let response = session.get(path).await.expect("a response");
    assert_eq!((response.code, response.content_format()), (Code::CONTENT, Some(40)), "{path}");
    String::from_utf8(response.payload).expect("text")
}

#[tokio::test]
async fn an_endpoint_is_found_by_those_who_may_look_it_up() {
    let dir = Dir::new("directory-found");
    let server = start(&dir);
    let (a, reader) = (connect(&server, "a").await, connect(&server, "reader").await);
    let created = register(&a, "").await;
    assert_eq!(created.code, Code::CREATED);
    assert_eq!(created.option(OptionNumber::LOCATION_QUERY), None);
    let address = a.local().port();
    let expected = format!("<coaps://127.0.0.1:{address}/temp>;rt=\"temperature\"");
    assert_eq!(look_up(&reader, "/rd-lookup/res?rt=temp*").await, expected);
    let endpoint = format!("<{}>;base=\"coaps://127.0.0.1:{address}\";ep=\"a\";rt=\"core.rd-ep\"", location(&created));
    assert_eq!(look_up(&reader, "/rd-lookup/ep").await, endpoint);
    assert_eq!(register(&reader, "ep=reader").await.code, Code::FORBIDDEN);
    let known = reader.get("/rd-lookup/res").await.expect("a response");
    let etag = [(OptionNumber::ETAG, known.option(OptionNumber::ETAG).expect("an entity tag").to_vec())];
    let again = reader.get("/rd-lookup/res").options(&etag).await.expect("a response");
    assert_eq!(again.code, Code::VALID);
    let other = a.post("/rd?ep=a", LINKS).content_format(50).await.expect("a response");
    assert_eq!(other.code, Code::UNSUPPORTED_CONTENT_FORMAT);
}

#[tokio::test]
async fn nobody_changes_the_registration_of_another_identity() {
    let dir = Dir::new("directory-owner");
    let server = start(&dir);
    let (a, b) = (connect(&server, "a").await, connect(&server, "b").await);
    let (tool, plain) = (connect(&server, "tool").await, connect(&server, "").await);
    let path = location(&register(&a, "ep=lamp").await);
    for other in [&b, &plain] {
        assert_eq!(register(other, "ep=lamp").await.code, Code::FORBIDDEN);
        assert_eq!(other.post(&path, &[]).await.expect("a response").code, Code::FORBIDDEN);
        assert_eq!(other.delete(&path).await.expect("a response").code, Code::FORBIDDEN);
        let refused = register(other, "ep=mine&base=coap://10.0.0.1").await;
        assert_eq!(refused.code, Code::FORBIDDEN);
        assert!(String::from_utf8_lossy(&refused.payload).contains("its own address"));
    }
    assert_eq!(register(&tool, "ep=other&base=coap://10.0.0.1").await.code, Code::CREATED);
    assert_eq!(a.post(&format!("{path}?lt=60"), &[]).await.expect("a response").code, Code::CHANGED);
    assert_eq!(a.delete(&path).await.expect("a response").code, Code::DELETED);
    assert_eq!(a.delete(&path).await.expect("a response").code, Code::NOT_FOUND);
    assert_eq!(register(&b, "ep=lamp").await.code, Code::FORBIDDEN, "the name is remembered");
}

/// RFC 9176, section 5.1: a simple registration has no base. The endpoint learns of a mistake from the response, because
/// no other message follows.
#[tokio::test]
async fn a_simple_registration_names_the_endpoint_and_has_no_base() {
    let dir = Dir::new("directory-simple");
    let server = start(&dir);
    let plain = connect(&server, "").await;
    for query in ["ep=x&base=coap://127.0.0.1", "", "lt=60"] {
        let refused = plain.post(&format!("/.well-known/rd?{query}"), b"").await.expect("a response");
        assert_eq!(refused.code, Code::BAD_REQUEST, "{query}");
    }
    assert_eq!(plain.post("/.well-known/rd?ep=x", b"").await.expect("a response").code, Code::CHANGED);
}

#[tokio::test]
async fn an_observer_is_notified_of_each_change() {
    let dir = Dir::new("directory-observed");
    let server = start(&dir);
    let (a, reader) = (connect(&server, "a").await, connect(&server, "reader").await);
    let mut lookup = reader.observe("/rd-lookup/ep?rt=temperature").await.expect("an observation");
    let text = |response: Response| String::from_utf8(response.payload).expect("text");
    assert_eq!(text(lookup.next().await.expect("a response").expect("the list")), "");
    let path = location(&register(&a, "ep=lamp").await);
    let found = text(lookup.next().await.expect("a response").expect("a notification"));
    assert!(found.contains("ep=\"lamp\""), "{found}");
    a.delete(&path).await.expect("a response");
    assert_eq!(text(lookup.next().await.expect("a response").expect("a notification")), "");
    // A lifetime that ends is a change, too.
    register(&a, "ep=lamp&lt=1").await;
    assert_ne!(text(lookup.next().await.expect("a response").expect("a notification")), "");
    assert_eq!(text(lookup.next().await.expect("a response").expect("a notification")), "");
}

#[tokio::test]
async fn a_server_registers_itself_and_its_changes() {
    let dir = Dir::new("directory-registering");
    let server = start(&dir);
    let at = server.addresses().iter().find(|listen| listen.scheme == Scheme::Coaps).expect("an address").address;
    let registering = Registering {
        directory: Uri::parse(&format!("coaps://{at}/rd")).expect("a URI"),
        config: ClientConfig::psk("a", KEY),
        name: Some("server".to_owned()),
        base: Some("coaps://127.0.0.1:5684".to_owned()),
        lifetime: 2,
    };
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let round = std::sync::atomic::AtomicU32::new(0);
    let listed = move || {
        let round = round.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = if round < 2 { "before" } else { "after it" };
        vec![ListedPath { path: path.to_owned(), resource_type: "value", content_format: Some(0), observable: true }]
    };
    let task = tokio::spawn(async move {
        let report = |event: RegistrationEvent<'_>| match event {
            RegistrationEvent::Registered(path) => sender.send(Ok(path.to_owned())).expect("a receiver"),
            RegistrationEvent::Failed(why, _) => sender.send(Err(why.to_string())).expect("a receiver"),
        };
        registering.run(listed, report).await;
    });
    let reader = connect(&server, "reader").await;
    let first = events.recv().await.expect("an event").expect("registered");
    assert_eq!(look_up(&reader, "/rd-lookup/res").await, "<coaps://127.0.0.1:5684/before>;rt=\"value\";ct=0;obs");
    // The first renewal has the same links, the second one others.
    let second = events.recv().await.expect("an event").expect("registered");
    assert_eq!(first, second);
    assert_eq!(look_up(&reader, "/rd-lookup/res").await, "<coaps://127.0.0.1:5684/after%20it>;rt=\"value\";ct=0;obs");
    task.abort();
}
