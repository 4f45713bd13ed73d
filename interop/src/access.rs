//! Access control. The peers are publishers and subscribers, whose keys a Tegmen server derives. A subscriber gets its
//! keys from `tegmen agent`.
//!
//! The key of a session with the publisher is an HMAC-SHA-256 of the session identity and the name of the subscriber,
//! under the protokey of the publisher. The tests compute this key with OpenSSL, and not with code of Tegmen.

mod coapcore;

use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, free_port};
use crate::libcoap::{self, Build, INDEX, is};
use crate::mote::Images;
use crate::openssl;
use crate::ours::{Answer, Bridge, Psk, ask, restrict, start_ask};
use crate::peers::{self, Built, Places};
use crate::process::Process;
use crate::session::{GET_V, Plaintext as _};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;
use tegmen::coap::Code;
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::access::protokey::Mode;
use tegmen_control::state::{Bounds, Credential, NewDevice, State};
use tegmen_control::subscriber::Introspector;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::hex::{from_hex, to_hex};
use tegmen_host::server::{Event, Router, Server};
use tegmen_host::uri::Scheme;
use tegmen_store::{Database, Options, SealingKey};

const PROTOKEY: [u8; 32] = [9; 32];
const SHARED_KEY: [u8; 16] = [7; 16];
/// The key under which the access control server seals tokens for the resource server `hob`.
const TOKEN_KEY: [u8; 32] = [5; 32];
/// The PSK identity of a session with the publisher.
const IDENTITY: &str = "oven;AAECAwQFBgcI";
const CONFIG: &str = r#"[access]
store = "access.db"
sealing-key = "sealing.key"
policy = "policy.toml"
audit = "audit.log"
audit-key = "audit.pem"
"#;
const POLICY: &str = r#"[[rule]]
subject = "tag:display"
publisher = "*"
allow = ["read /*", "PUT /*", "write /temp"]
"#;
const SUBSCRIBER: &str = "access control: subscriber with keys of the agent";

/// Returns one [`Cell`] (a row of the result table) for each scenario with access control, and the programs that must
/// be built for these scenarios.
pub(crate) fn all(images: &Arc<Images>, places: &Places) -> (Vec<Cell>, Vec<Arc<Built>>) {
    let mut cells = Vec::new();
    let header = ("/usr/include/openssl/ssl.h", "libssl-dev");
    let file = peers::agent_example("openssl_subscriber.c");
    let c = places.c_program("openssl_subscriber", file, header, &["-lssl", "-lcrypto"]);
    let java = places.java_example("californium", peers::agent_example("CaliforniumSubscriber.java"));
    if let Some(version) = openssl::version() {
        let row = "access control: publisher with a derived key";
        cells.push(Cell::new(openssl::PEER, &version, Role::Client, row, openssl_publishes));
        cells.push(example(openssl::PEER, &version, &c, openssl_subscribes));
    }
    let images = images.clone();
    let row = "access control: mote with a protokey publishes";
    cells.push(Cell::new("tegmen mote", env!("CARGO_PKG_VERSION"), Role::Client, row, move |scene| {
        let image = images.image("publisher")?;
        mote_publishes(&scene.with_new_deadline(), &image)
    }));
    cells.push(example("Californium", "3.14.0", &java, californium_subscribes));
    if let Some(version) = libcoap::version() {
        for build in [Build::OpenSsl, Build::GnuTls] {
            let cell = |role, play: fn(&Scene, Build) -> Check| {
                Cell::new(&build.peer(), &version, role, SUBSCRIBER, move |scene| play(scene, build))
            };
            cells.extend([cell(Role::Server, libcoap_subscribes), cell(Role::Client, libcoap_asks_a_publisher)]);
        }
    }
    let (of_coapcore, coapcore) = coapcore::all(places);
    cells.extend(of_coapcore);
    (cells, vec![c, java, coapcore])
}

/// Makes the row of the result table ([`Cell`]) for a server that is a program of `examples/agent`.
fn example(peer: &str, version: &str, program: &Arc<Built>, play: fn(&Scene, &Built) -> Check) -> Cell {
    let program = program.clone();
    Cell::new(peer, version, Role::Server, SUBSCRIBER, move |scene| {
        program.ready()?;
        play(&scene.with_new_deadline(), &program)
    })
}

// --- the server and the agent ---

/// An access control server of Tegmen, which runs in the directory of a scenario.
struct Access {
    address: SocketAddr,
    _process: Process,
}

impl Access {
    /// Starts a server that knows the publisher `oven`, the resource server `hob`, and the subscribers `display` and
    /// `mallory`.
    fn start(scene: &Scene) -> Result<Self, String> {
        scene.file("tegmen.toml", CONFIG)?;
        scene.file("policy.toml", POLICY)?;
        write_keys(scene)?;
        add_devices(scene)?;
        let address = SocketAddr::new(LOOPBACK, free_port()?);
        let port = address.port().to_string();
        let process = scene.tegmen(&["serve", "--config", "tegmen.toml", "--listen", "127.0.0.1", "--port", &port])?;
        process.await_output(format!("coaps://{address}"), 0)?;
        Ok(Self { address, _process: process })
    }

    /// Starts the agent of `display`, at `agent.sock`.
    fn agent(&self, scene: &Scene) -> Result<Process, String> {
        let key = to_hex(&SHARED_KEY);
        restrict(&scene.file("display.toml", format!("[[psk]]\nidentity = \"display\"\nkey = \"{key}\"\n"))?)?;
        let uri = format!("coaps://{}", self.address);
        let agent = scene.tegmen(&["agent", &uri, "--credentials", "display.toml", "--socket", "agent.sock"])?;
        agent.await_output("agent.sock", 0)?;
        Ok(agent)
    }
}

/// Writes the keys of an access control server: `sealing.key` and `audit.pem`.
pub(crate) fn write_keys(scene: &Scene) -> Result<(), String> {
    restrict(&scene.file("sealing.key", "4".repeat(64))?)?;
    let audit = ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "audit.pem"];
    if !scene.start(openssl::PROGRAM, &audit)?.await_end()?.success() {
        return Err("openssl makes no key".to_owned());
    }
    restrict(&scene.directory().join("audit.pem"))
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| error.to_string())
}

/// Writes the publisher, the resource server and the subscribers into the database of the server, which is not started
/// yet.
fn add_devices(scene: &Scene) -> Result<(), String> {
    fn words(error: impl ToString) -> String {
        error.to_string()
    }
    let key = SealingKey::from_file(&scene.directory().join("sealing.key")).map_err(words)?;
    let options = Options { sealing: Some(Arc::new(key)), ..Options::default() };
    let database = Database::open_with(&scene.directory().join("access.db"), options).map_err(words)?;
    let devices: [(&str, Credential, &[u8]); 4] = [
        ("oven", Credential::Protokey(Mode::Bound), &PROTOKEY),
        ("hob", Credential::Oscore, &TOKEN_KEY),
        ("display tag:display", Credential::SharedKey, &SHARED_KEY),
        ("mallory tag:display", Credential::SharedKey, &SHARED_KEY),
    ];
    runtime()?.block_on(async {
        let state = State::open(database, Bounds::default(), Box::new(|_| {})).await.map_err(words)?;
        for (party, credential, secret) in devices {
            let party = OwnedParty::from_words(party.split(' '))?;
            let device = NewDevice::secret(party, credential, secret).map_err(words)?;
            state.add(&device).await.map_err(words)?;
        }
        Ok(())
    })
}

/// Runs OpenSSL to compute the key of a session between the publisher and a subscriber.
fn derived(scene: &Scene, identity: &str, subscriber: &str) -> Result<Psk, String> {
    scene.file("mac.in", format!("{identity}\0{subscriber}"))?;
    let mut command = Command::new(openssl::PROGRAM);
    command.args(["mac", "-digest", "SHA256", "-macopt", &format!("hexkey:{}", to_hex(&PROTOKEY)), "-in", "mac.in"]);
    let output = command.arg("HMAC").current_dir(scene.directory()).output().map_err(|error| error.to_string())?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let key = from_hex(printed.trim()).filter(|key| key.len() == 32);
    let key = key.ok_or_else(|| format!("openssl mac: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    Ok(Psk { identity: identity.to_owned(), key })
}

/// Runs `tegmen agent ask`. Returns the identity and the key that it prints.
fn ask_agent(scene: &Scene, words: &[&str]) -> Result<Psk, String> {
    let mut process = scene.tegmen(&[&["agent", "ask", "--socket", "agent.sock", "--json"], words].concat())?;
    process.await_end()?;
    let answer: Value = serde_json::from_str(&process.out.text()).map_err(|_| process.err.text())?;
    let identity = answer["identity"].as_str().unwrap_or_default().to_owned();
    let key = answer["key"].as_str().and_then(from_hex).ok_or("the agent gave no key")?;
    Ok(Psk { identity, key })
}

/// Returns true if the key has no zero byte. The command line of libcoap would take a zero byte for the end of the key.
fn fits_libcoap(psk: &Psk) -> bool {
    !psk.key.contains(&0)
}

// --- the peer is a publisher ---

/// Starts a subscriber of Tegmen, which sends introspections to the access control server without an agent. It reports
/// the identity of each established session, and each reading, through `reports`.
async fn subscriber(access: SocketAddr, reports: Sender<String>) -> Result<Server, String> {
    let session = Session::connect_to(access, Scheme::Coaps, ClientConfig::psk("display", SHARED_KEY)).await;
    let session = session.map_err(|error| error.to_string())?;
    let keys = Introspector::new(session, tokio::runtime::Handle::current(), vec!["* /*".to_owned()]);
    let builder = Server::builder().listen("coaps://127.0.0.1:0").shards(1).key_store(keys);
    let established = reports.clone();
    let builder = builder.on_event(move |event| {
        if let Event::Established { identity, .. } = event {
            let _ = established.send(identity);
        }
    });
    let router = Router::new().get("/v", |_, response| response.payload(b"hello"));
    let router = router.put("/temp", move |request, response| {
        let reading = String::from_utf8_lossy(request.payload()).into_owned();
        reports.send(reading).map_err(|_| Code::INTERNAL_SERVER_ERROR)?;
        response.set_code(Code::CHANGED);
        Ok(())
    });
    builder.serve(router).map_err(|error| error.to_string())
}

fn openssl_publishes(scene: &Scene) -> Check {
    let access = Access::start(scene)?;
    let runtime = runtime()?;
    let subscriber = runtime.block_on(subscriber(access.address, channel().0))?;
    let port = subscriber.addresses().first().ok_or("the subscriber listens nowhere")?.address.port();

    // The key of another subscriber, who may have an identity of its own.
    let other = derived(scene, "oven;AAECAwQFBgcJ", "mallory")?;
    let mut client = openssl::Client::start(scene, "127.0.0.1", port, &other, &[])?;
    client.process.await_error("alert decrypt error", 0)?;
    client.process.await_end()?;

    let psk = derived(scene, IDENTITY, "display")?;
    let mut client = openssl::Client::start(scene, "127.0.0.1", port, &psk, &[])?;
    client.established()?;
    client.exchange(GET_V, b"\x64\x45\x12\x34abcd\xffhello")?;
    client.close();

    // An identity opens one session.
    let mut client = openssl::Client::start(scene, "127.0.0.1", port, &psk, &[])?;
    client.process.await_error("alert decrypt error", 0)?;
    client.process.await_end()?;
    Ok(())
}

/// Checks that the mote derives the key of its session from the protokey in its image, and opens another session after
/// a restart.
fn mote_publishes(scene: &Scene, image: &Path) -> Check {
    let access = Access::start(scene)?;
    let runtime = runtime()?;
    let (reports, reported) = channel();
    let subscriber = runtime.block_on(subscriber(access.address, reports))?;
    let address = subscriber.addresses().first().ok_or("the subscriber listens nowhere")?.address;
    let next = || {
        let wait = scene.deadline.saturating_duration_since(Instant::now());
        reported.recv_timeout(wait).map_err(|_| "the mote publishes nothing")
    };
    let mut identities = Vec::new();
    for _ in 0..2 {
        let _bridge = Bridge::to_client(scene, image, address)?;
        let identity = next()?;
        if !identity.starts_with("oven;") || identities.contains(&identity) {
            return Err(format!("the mote has the identity {identity}").into());
        }
        identities.push(identity);
        for _ in 0..3 {
            let reading = next()?;
            if reading != "21.5" {
                return Err(format!("the mote published {reading}").into());
            }
        }
    }
    Ok(())
}

// --- the peer is a subscriber ---

/// A running program of `examples/agent`, which is a server at an address.
struct Example {
    process: Process,
    uri: String,
}

impl Example {
    fn start(scene: &Scene, program: &Built) -> Result<Self, String> {
        let port = free_port()?;
        let mut command = program.command()?;
        command.args(["agent.sock", &port.to_string()]);
        let process = scene.start_command(command)?;
        process.await_output("listening\n", 0)?;
        Ok(Self { process, uri: format!("coaps://127.0.0.1:{port}/temp") })
    }

    fn put(&self, scene: &Scene, psk: &Psk) -> Result<Answer, String> {
        ask(scene, &["put", &self.uri, "21.5"], Some(psk))
    }
}

fn openssl_subscribes(scene: &Scene, program: &Built) -> Check {
    let access = Access::start(scene)?;
    let _agent = access.agent(scene)?;
    let subscriber = Example::start(scene, program)?;
    is(&subscriber.put(scene, &derived(scene, IDENTITY, "display")?)?, "2.04", "")?;
    let end = subscriber.process.await_output(format!("{IDENTITY}: ended"), 0)?;
    // 0xff and the payload of the request.
    subscriber.process.await_output("ff32312e35\n", 0)?;

    // The key of another subscriber, and then an identity that was used.
    for wrong in [derived(scene, "oven;AAECAwQFBgcJ", "mallory")?, derived(scene, IDENTITY, "display")?] {
        start_ask(scene, &["put", &subscriber.uri, "22"], Some(&wrong))?.failure()?;
    }
    subscriber.process.await_error(format!("no key for {IDENTITY}: refused"), 0)?;
    is(&subscriber.put(scene, &derived(scene, "oven;AAECAwQFBgcK", "display")?)?, "2.04", "")?;
    subscriber.process.await_output("oven;AAECAwQFBgcK: ended", end)?;
    Ok(())
}

fn californium_subscribes(scene: &Scene, program: &Built) -> Check {
    let access = Access::start(scene)?;
    let _agent = access.agent(scene)?;
    let subscriber = Example::start(scene, program)?;
    let psk = derived(scene, IDENTITY, "display")?;
    is(&subscriber.put(scene, &psk)?, "2.04", "")?;
    subscriber.process.await_output(format!("{IDENTITY}: PUT"), 0)?;
    for wrong in [derived(scene, "oven;AAECAwQFBgcJ", "mallory")?, psk] {
        start_ask(scene, &["get", &subscriber.uri], Some(&wrong))?.failure()?;
    }
    subscriber.process.await_error("refused", 0)?;
    let psk = derived(scene, "oven;AAECAwQFBgcK", "display")?;
    is(&ask(scene, &["get", &subscriber.uri], Some(&psk))?, "2.05", "21.5")
}

/// Checks a subscriber that is the example server of libcoap. This server has one key for all identities: the key of
/// the session that a Tegmen publisher opens.
fn libcoap_subscribes(scene: &Scene, build: Build) -> Check {
    let access = Access::start(scene)?;
    let _agent = access.agent(scene)?;
    let mut sessions = (0..10).map(|number| derived(scene, &format!("oven;AAECAwQFBgc{number}"), "display"));
    let own = sessions.find(|psk| psk.as_ref().map_or(true, fits_libcoap)).ok_or("each key has a zero byte")??;
    let given = ask_agent(scene, &["session", &own.identity])?;
    let server = libcoap::Server::start_with(scene, build, SocketAddr::new(LOOPBACK, 0), &given, &[])?;
    is(&ask(scene, &["get", &server.uri("")], Some(&own))?, "2.05", INDEX)
}

/// Checks that the example client of libcoap can open a session with an identity that the agent makes. The publisher
/// derives the key of this identity.
fn libcoap_asks_a_publisher(scene: &Scene, build: Build) -> Check {
    let access = Access::start(scene)?;
    let _agent = access.agent(scene)?;
    let mut given = ask_agent(scene, &["publisher", "oven"])?;
    while !fits_libcoap(&given) {
        given = ask_agent(scene, &["publisher", "oven"])?;
    }
    let own = derived(scene, &given.identity, "display")?;
    libcoap::Client::with(scene, build, &own, given)?.expect("v", &[], &["2.05 hello"])?;
    Ok(())
}
