//! The load on the two access control servers, which are called replicas. Devices ask both replicas for keys, tokens
//! and rights, and administrators make changes through both replicas.

use crate::administrator::{Administrator, in_an_hour};
use crate::operator::{SHARED_KEY, runtime};
use crate::processes::Replica;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tegmen::coap::Code;
use tegmen_control::access::ace::trl::Answer as List;
use tegmen_control::access::ace::{
    ACE_CBOR, Aif, Confirmation, CoseKey, Hint, IntrospectionRequest, IntrospectionResponse, Right, Scope,
    TokenRequest, TokenResponse,
};
use tegmen_control::access::introspection::HINT_THUMBPRINT;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::hex::to_hex;
use tegmen_host::uri::Scheme;

/// Maximum time for the answer to a request that needs a commit. A server gives up such a commit after 5 s.
const LONG: Duration = Duration::from_secs(7);
/// Maximum time for the answer to any other request.
const SHORT: Duration = Duration::from_secs(2);
/// The pause of a device between two requests.
const PAUSE: Duration = Duration::from_millis(20);
/// The pause of an administrator between two changes.
const CHANGES: Duration = Duration::from_millis(300);

/// The result of a request that a device sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Result {
    Granted,
    Refused,
    /// The server answered 5.03.
    Later,
    /// The device got no answer.
    Lost,
}

/// The subject of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum About {
    /// The key of a session.
    Session(String),
    /// An access token. The text is the session identity in the token; empty before the answer.
    Token(String),
    /// The rights of a subscriber at a publisher with a certificate. The first name is the subscriber, the second the
    /// publisher.
    Rights(&'static str, &'static str),
    /// The revocation list. The request counts as granted if the token with this hash is not in the list.
    Listed(Vec<u8>),
}

/// A request of a device.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) replica: usize,
    pub(crate) about: About,
    pub(crate) sent: Instant,
    pub(crate) result: Result,
}

/// A change that an administrator made, and that a server acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Device(String),
    Revocation(String),
}

/// All requests, and all acknowledged changes.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) asked: Vec<Asked>,
    pub(crate) changes: Vec<Change>,
    /// The revisions of the acknowledged changes.
    pub(crate) revisions: Vec<u64>,
    /// The number of changes that no server acknowledged.
    pub(crate) not_acknowledged: u64,
}

/// A publisher, a subscriber and a token. An administrator takes their rights away while a replica is cut off.
pub(crate) struct Target {
    pub(crate) publisher: &'static str,
    pub(crate) subscriber: &'static str,
    pub(crate) hash: u8,
}

impl Target {
    /// Returns the hash of the token.
    pub(crate) fn token_hash(&self) -> Vec<u8> {
        [&[1][..], &[self.hash; 32]].concat()
    }

    /// Returns true if the request is about this publisher, subscriber or token.
    pub(crate) fn concerns(&self, asked: &Asked) -> bool {
        match &asked.about {
            About::Rights(subscriber, publisher) => *subscriber == self.subscriber || *publisher == self.publisher,
            About::Listed(hash) => *hash == self.token_hash(),
            About::Session(_) | About::Token(_) => false,
        }
    }
}

pub(crate) const TARGETS: [Target; 3] = [
    Target { publisher: "door-1", subscriber: "guest-1", hash: 0xd1 },
    Target { publisher: "door-2", subscriber: "guest-2", hash: 0xd2 },
    Target { publisher: "door-3", subscriber: "guest-3", hash: 0xd3 },
];
/// The name of a publisher with a certificate. This publisher keeps its rights during the whole test.
const CAMERA: &str = "camera";

/// Returns the devices of the operator: for each its name, tag and kind, and its secret or the SHA-256 of its
/// certificate.
pub(crate) fn devices() -> Vec<serde_json::Value> {
    let certified = TARGETS.iter().map(|target| target.publisher).chain([CAMERA]);
    let certified = certified.map(
        |name| json!({ "name": name, "tags": ["kitchen"], "kind": "certificate", "sha256": to_hex(&thumbprint(name)) }),
    );
    let shared = TARGETS.iter().map(|target| target.subscriber).chain(["display", "panel", "lamp"]);
    let shared = shared
        .map(|name| json!({ "name": name, "tags": ["display"], "kind": "shared-key", "secret": to_hex(&SHARED_KEY) }));
    let oven = json!({ "name": "oven", "tags": ["kitchen"], "kind": "protokey", "secret": "09".repeat(32) });
    certified.chain(shared).chain([oven]).collect()
}

/// Returns the value that the test uses as the SHA-256 of a publisher's certificate: the name of the publisher, filled
/// up with zeros.
fn thumbprint(name: &str) -> Vec<u8> {
    let mut digest = name.as_bytes().to_vec();
    digest.resize(32, 0);
    digest
}

/// The running load. It ends when this value is dropped.
pub(crate) struct Load {
    records: Arc<Mutex<Records>>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(replicas: &[Replica]) -> Self {
        let (records, ends) = (Arc::<Mutex<Records>>::default(), Arc::new(AtomicBool::new(false)));
        let to: Vec<SocketAddr> = replicas.iter().map(Replica::address).collect();
        let mut load = Self { records, ends, threads: Vec::new() };
        let (records, ends) = (Arc::clone(&load.records), Arc::clone(&load.ends));
        load.threads.push(std::thread::spawn(move || {
            runtime().block_on(async {
                let place = |replica: usize| Place { replica, to: to[replica], records: &records, ends: &ends };
                let sessions = async |turn: usize| contend(turn, [place(0), place(1)]).await;
                let at = async |replica: usize| {
                    let guests = TARGETS.map(|target| guest(place(replica), target.subscriber));
                    let [one, two, three] = guests;
                    tokio::join!(tokens(place(replica)), rights(place(replica)), one, two, three);
                };
                tokio::join!(sessions(0), sessions(1), at(0), at(1));
            });
        }));
        for replica in replicas {
            let (records, ends) = (Arc::clone(&load.records), Arc::clone(&load.ends));
            let (administrator, host) = (replica.administrator(), replica.host);
            load.threads.push(std::thread::spawn(move || administrate(&administrator, host, &records, &ends)));
        }
        load
    }

    /// Passes the records that the load has made until now to `look`, and returns the result of `look`.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Records) -> T) -> T {
        look(&self.records.lock().unwrap())
    }

    /// Ends the load, and returns the records.
    pub(crate) fn end(mut self) -> Records {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
        std::mem::take(&mut self.records.lock().unwrap())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// A replica, and the records of the requests that devices send to it.
#[derive(Clone, Copy)]
struct Place<'a> {
    replica: usize,
    to: SocketAddr,
    records: &'a Mutex<Records>,
    ends: &'a AtomicBool,
}

impl Place<'_> {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Sends a request of a device to this replica, and records its result.
    async fn ask(&self, device: &mut Device, about: About) {
        let (sent, about, result) = device.ask(self.to, about).await;
        self.records.lock().unwrap().asked.push(Asked { replica: self.replica, about, sent, result });
    }
}

/// A device, and its session with a replica.
pub(crate) struct Device {
    name: &'static str,
    session: Option<Session>,
}

impl Device {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, session: None }
    }

    /// Sends a request to a replica. Returns the time at which it was sent, its subject, and its result.
    pub(crate) async fn ask(&mut self, to: SocketAddr, about: About) -> (Instant, About, Result) {
        let (path, payload) = match &about {
            About::Session(identity) => ("/introspect", introspection(identity.as_bytes(), None)),
            About::Rights(_, publisher) => {
                ("/introspect", introspection(&thumbprint(publisher), Some(HINT_THUMBPRINT)))
            }
            About::Token(_) => ("/token", token()),
            About::Listed(_) => ("/revoke/trl", Vec::new()),
        };
        let within = if matches!(about, About::Session(_) | About::Token(_)) { LONG } else { SHORT };
        let mut sent = Instant::now();
        let asked = async {
            if self.session.is_none() {
                let config = ClientConfig::psk(self.name, SHARED_KEY);
                self.session = Session::connect_to(to, Scheme::Coaps, config).await.ok();
            }
            sent = Instant::now();
            let session = self.session.as_ref()?;
            let response = match &about {
                About::Listed(_) => session.get(path).await,
                _ => session.post(path, &payload).content_format(ACE_CBOR).await,
            };
            response.ok()
        };
        let Ok(Some(response)) = tokio::time::timeout(within, asked).await else {
            self.session = None;
            return (sent, about, Result::Lost);
        };
        let result = match response.code {
            Code::SERVICE_UNAVAILABLE => Result::Later,
            Code::CREATED | Code::CONTENT => return granted(sent, about, &response.payload),
            Code::UNAUTHORIZED | Code::FORBIDDEN => Result::Refused,
            code => panic!("{} about {about:?}: {code}", self.name),
        };
        (sent, about, result)
    }
}

/// Reads a successful response, and decides whether it grants the request. Returns the time at which the request was
/// sent, its subject, and its result.
fn granted(sent: Instant, about: About, payload: &[u8]) -> (Instant, About, Result) {
    let is_granted = match &about {
        About::Session(_) | About::Rights(..) => IntrospectionResponse::parse(payload).unwrap().active,
        About::Listed(hash) => match List::parse(payload).unwrap() {
            List::Full { hashes, .. } => !hashes.contains(hash),
            List::Diff { .. } => panic!("the whole list"),
        },
        About::Token(_) => {
            let Some(Confirmation::Key(CoseKey { kid: Some(kid), .. })) = TokenResponse::parse(payload).unwrap().cnf
            else {
                panic!("a token without a key")
            };
            return (sent, About::Token(String::from_utf8(kid).unwrap()), Result::Granted);
        }
    };
    (sent, about, if is_granted { Result::Granted } else { Result::Refused })
}

fn introspection(token: &[u8], hint: Option<&str>) -> Vec<u8> {
    let hint = hint.map(|name| Hint::Name(name.to_owned()));
    IntrospectionRequest { token: token.to_vec(), hint, ..Default::default() }.encode()
}

fn token() -> Vec<u8> {
    let scope = Scope::of(&Aif(vec![Right { path: "/temp".to_owned(), permissions: 1 }]));
    let request = TokenRequest { audience: Some("oven".to_owned()), scope: Some(scope), ..Default::default() };
    request.encode().to_vec()
}

/// Lets two subscribers ask for the key of the same session at the same time, each at another replica. Repeats this
/// until the load ends.
async fn contend(turn: usize, places: [Place<'_>; 2]) {
    // The replicas change with each session, and a device has a session with each.
    let mut pairs = [0, 1].map(|_| (Device::new("display"), Device::new("panel")));
    for number in 0_usize.. {
        if places[0].ends() {
            break;
        }
        let identity = format!("oven;{turn:04}{number:012}");
        let (display, panel) = &mut pairs[number % 2];
        let (first, second) = (places[number % 2], places[(number + 1) % 2]);
        tokio::join!(first.ask(display, About::Session(identity.clone())), second.ask(panel, About::Session(identity)));
        tokio::time::sleep(PAUSE).await;
    }
}

async fn tokens(place: Place<'_>) {
    let mut display = Device::new("display");
    while !place.ends() {
        place.ask(&mut display, About::Token(String::new())).await;
        tokio::time::sleep(10 * PAUSE).await;
    }
}

/// Asks for rights and for the revocation list until the load ends. An administrator takes some of these rights away.
async fn rights(place: Place<'_>) {
    let mut lamp = Device::new("lamp");
    while !place.ends() {
        place.ask(&mut lamp, About::Rights("lamp", CAMERA)).await;
        for target in &TARGETS {
            place.ask(&mut lamp, About::Rights("lamp", target.publisher)).await;
            place.ask(&mut lamp, About::Listed(target.token_hash())).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Asks for the rights of a subscriber at the publisher `CAMERA` until the load ends.
async fn guest(place: Place<'_>, name: &'static str) {
    let mut guest = Device::new(name);
    while !place.ends() {
        place.ask(&mut guest, About::Rights(name, CAMERA)).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Adds devices and revokes tokens, one after the other, until the load ends.
fn administrate(administrator: &Administrator, host: &str, records: &Mutex<Records>, ends: &AtomicBool) {
    for number in 0_u64.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("{host}-{number}");
        let (path, body, change) = if number % 2 == 0 {
            let device = json!({ "name": name, "kind": "certificate", "sha256": to_hex(&thumbprint(&name)) });
            ("/v1/devices", device, Change::Device(name))
        } else {
            let hash = format!("01{}", to_hex(&thumbprint(&name)));
            let body = json!({ "hash": hash, "expires": in_an_hour(), "concerned": ["oven"] });
            ("/v1/revocations", body, Change::Revocation(hash))
        };
        let answer = administrator.ask("POST", path, Some(&body));
        let mut records = records.lock().unwrap();
        match answer.filter(|answer| answer.status == 201) {
            Some(answer) => {
                records.changes.push(change);
                records.revisions.extend(answer.revision);
            }
            None => records.not_acknowledged += 1,
        }
        drop(records);
        std::thread::sleep(CHANGES);
    }
}
