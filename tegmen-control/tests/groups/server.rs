//! Tests of the interface of RFC 9594 over real sockets: joins with rights from the policy and from a token, renewals
//! of keys, departures and refusals.

use super::disk::Call;
use super::world::{Counting, Scene, config, rows, software_key, wait};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen::axiom::{Kept, KeyPath, Member, Opened, Rekeyed};
use tegmen::buf::Frame;
use tegmen::coap::{Code, OptionNumber};
use tegmen::dtls::Records;
use tegmen::identity::{Identity, Protection};
use tegmen_control::access::ace::{
    Aif, Confirmation, Material, Right, Scope, TokenRequest, TokenResponse, TokenUpload,
};
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::access::protokey::{Mode, Protokey};
use tegmen_control::audit::{AuditBounds, AuditLog};
use tegmen_control::group::server::{Authority, ByPolicy, ByToken, Event, GroupServer};
use tegmen_control::group::{Controller, GroupConfig, Outbox, Outgoing, Pace, Sending, send};
use tegmen_control::publisher::Tickets;
use tegmen_control::server::SharedKeys;
use tegmen_control::service::Service;
use tegmen_control::state::{Bounds, Credential, NewDevice, State};
use tegmen_host::client::{ClientConfig, Response, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::group::groupcomm::{GROUPCOMM_CBOR, GroupKeys, GroupcommError, JoinRequest};
use tegmen_host::problem::{self, Problem};
use tegmen_host::server::{self, Server, ServerBuilder};
use tegmen_host::uri::Scheme;
use tegmen_store::{Database, Store as _, Transaction, Value};
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::{Signer, SoftwareKey};

const POLICY: &str = r#"[[rule]]
subject = ["tag:lamp", "tag:switch"]
publisher = "controller"
allow = "POST /ace-group/lamps"

[[rule]]
subject = "tag:switch"
publisher = "controller"
allow = "POST /ace-group/lamps/requester"

[[rule]]
subject = "tag:lamp"
publisher = "controller"
allow = "POST /ace-group/lamps/responder"

[[rule]]
subject = "gateway"
publisher = "controller"
allow = "POST /ace-group/lamps/verifier"
"#;
pub(crate) const SHARED_KEY: [u8; 16] = [7; 16];

/// A controller with its server, the messages that it has sent, and the lines that it has logged.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) service: Arc<Service<Database>>,
    pub(crate) controller: Arc<Controller<Counting>>,
    pub(crate) store: Counting,
    pub(crate) authority: Arc<dyn Authority>,
    signer: Arc<SoftwareKey>,
    pub(crate) sent: Arc<Mutex<Vec<Outgoing>>>,
    log: Arc<Mutex<Vec<String>>>,
    /// The log lines of the server about responses with a code 5.xx.
    failures: Arc<Mutex<Vec<String>>>,
    pub(crate) tickets: Tickets,
    pub(crate) scene: Scene,
}

pub(crate) fn party(words: &str) -> OwnedParty {
    OwnedParty::from_words(words.split(' ')).unwrap()
}

/// Opens the access control server, with the state that its database has.
pub(crate) async fn open_service(
    scene: &Scene,
    database: Database,
    signer: &Arc<SoftwareKey>,
) -> Arc<Service<Database>> {
    let state = State::open(database, Bounds::default(), Box::new(|_| {})).await.unwrap();
    let audit = AuditLog::open(&scene.0.join("audit.log"), Arc::clone(signer) as _, AuditBounds::default()).unwrap();
    Arc::new(Service::new(state, audit).unwrap())
}

/// Opens an access control server, and adds a policy and devices to it.
pub(crate) async fn service(scene: &Scene, database: Database, signer: &Arc<SoftwareKey>) -> Arc<Service<Database>> {
    let service = open_service(scene, database, signer).await;
    service.apply_policy("operator", ("policy.toml", POLICY), None).await.unwrap();
    for (words, credential) in [
        ("controller", Credential::Protokey(Mode::Bound)),
        ("switch tag:switch", Credential::SharedKey),
        ("hall tag:lamp", Credential::SharedKey),
        ("porch tag:lamp", Credential::SharedKey),
        ("oven", Credential::SharedKey),
        ("gateway", Credential::SharedKey),
    ] {
        service.add("operator", &NewDevice::secret(party(words), credential, &SHARED_KEY).unwrap()).await.unwrap();
    }
    service
}

impl World {
    pub(crate) async fn new(name: &str, config: GroupConfig, by_token: bool) -> Self {
        let scene = Scene::new(name);
        let (database, signer) = (scene.database(), software_key());
        let service = service(&scene, database.clone(), &signer).await;
        let store = Counting::new(database, None);
        let controller = Arc::new(Controller::new(store.clone(), Some(Arc::clone(&signer) as _)).unwrap());
        controller.create("lamps", config, &[]).await.unwrap();
        let (sent, log) = (Arc::<Mutex<Vec<Outgoing>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let events = {
            let (sent, log) = (Arc::clone(&sent), Arc::clone(&log));
            move |event: Event<'_>| match event {
                Event::Rekeying { rekeying, message, .. } => {
                    sent.lock().unwrap().extend(rekeying.messages.iter().cloned());
                    log.lock().unwrap().push(message);
                }
                Event::Refused { message, .. } => log.lock().unwrap().push(message),
            }
        };
        let credentials = Credentials::default();
        let tickets = Tickets::new("controller", Protokey::new(&SHARED_KEY).unwrap(), 8).unwrap();
        let builder = Server::builder().listen("coaps://127.0.0.1:0").listen("coap://127.0.0.1:0").shards(1);
        let failures = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&failures);
        let builder = builder.credentials(credentials.clone()).on_event(move |event| {
            if matches!(&event, server::Event::Request(answered) if answered.code.class() == 5) {
                seen.lock().unwrap().push(event.to_string());
            }
        });
        let tokens = ByToken { tickets: tickets.clone(), credentials: credentials.clone() };
        let by_policy = ByPolicy { service: Arc::clone(&service), credentials, controller: party("controller") };
        let authority: Arc<dyn Authority> = if by_token { Arc::new(tokens.clone()) } else { Arc::new(by_policy) };
        let application = GroupServer::new(Arc::clone(&controller), Arc::clone(&authority), Arc::new(events));
        let serve = |builder: ServerBuilder| builder.serve(application).unwrap();
        let server = match by_token {
            true => serve(builder.key_store(tokens)),
            false => serve(builder.key_store(SharedKeys(Arc::clone(&service)))),
        };
        Self { server, service, controller, store, authority, signer, sent, log, failures, tickets, scene }
    }

    pub(crate) async fn connect(&self, config: ClientConfig) -> Session {
        Session::connect_to(self.server.addresses()[0].address, Scheme::Coaps, config).await.unwrap()
    }

    pub(crate) async fn device(&self, name: &str) -> Session {
        self.connect(ClientConfig::psk(name, SHARED_KEY)).await
    }

    /// Opens a session of a device with an access token for this scope. Returns the session, and the identity in the
    /// token. Returns `None` if the access server gives no token.
    pub(crate) async fn with_token(&self, device: &str, scope: Scope) -> Option<(Session, String)> {
        let (identity, secret) = self.upload_token(device, scope).await?;
        let session = self.connect(ClientConfig::psk(&identity, secret.as_slice())).await;
        Some((session, identity))
    }

    /// Uploads a token of the device to the controller. Returns the PSK identity and the key of its session, or `None`
    /// if the access control server refuses the token.
    pub(crate) async fn upload_token(&self, device: &str, scope: Scope) -> Option<(String, Vec<u8>)> {
        let request =
            TokenRequest { audience: Some("controller".to_owned()), scope: Some(scope), ..Default::default() };
        let granted = self.service.token(Some(device), &request.encode()).await;
        let TokenResponse { access_token, cnf, .. } = TokenResponse::parse(&granted.payload).ok()?;
        let Some(Confirmation::Key(key)) = cnf else { panic!("a key") };
        let Material::Symmetric(secret) = key.material else { panic!("a symmetric key") };
        let upload = TokenUpload { access_token: access_token.unwrap(), connect: None };
        self.tickets.take(&upload.encode(), tegmen_store::clock::now_millis() / 1000).unwrap();
        Some((String::from_utf8(key.kid.unwrap()).unwrap(), secret.to_vec()))
    }

    pub(crate) fn logged(&self, part: &str) -> bool {
        self.log.lock().unwrap().iter().any(|line| line.contains(part))
    }
}

pub(crate) fn join(host: u8, sends: bool) -> JoinRequest {
    let control_uri = Some(format!("coap://[fd00::{host:x}]/ace-group/lamps/node"));
    JoinRequest { group: "lamps".to_owned(), sends, control_uri, checks_signatures: true, ..JoinRequest::default() }
}

pub(crate) async fn post(session: &Session, path: &str, request: &JoinRequest) -> Response {
    session.post(path, &request.encode()).content_format(GROUPCOMM_CBOR).await.unwrap()
}

/// Returns the parameters in a response to a request to join, and the path of the member.
pub(crate) fn admitted(response: &Response) -> (GroupKeys, String) {
    assert_eq!(response.content_format(), Some(GROUPCOMM_CBOR.into()), "{:?}", response.code);
    let parts = response.options().filter(|(number, _)| *number == OptionNumber::LOCATION_PATH);
    let path: String = parts.map(|(_, part)| format!("/{}", String::from_utf8_lossy(part))).collect();
    (GroupKeys::parse(&response.payload).unwrap(), path)
}

/// Returns the labels of the parameters in the payload of a message of RFC 9594.
pub(crate) fn labels(payload: &[u8]) -> Vec<i64> {
    let mut decoder = minicbor::Decoder::new(payload);
    let count = decoder.map().unwrap().unwrap();
    let label = |_| {
        let label = decoder.i64().unwrap();
        decoder.skip().unwrap();
        label
    };
    (0..count).map(label).collect()
}

/// Makes a member from its parameters. The member can send and receive at once. Returns the keys of the member, and the
/// member.
fn member(crypto: &mut HostCrypto, keys: &GroupKeys) -> (KeyPath<8>, Member<4, 4>) {
    let path = KeyPath::new(&keys.admission()).unwrap();
    let master = path.master_secret::<HostCrypto>();
    let mut member = Member::new(crypto, &keys.association(keys.epoch, &master), &Kept::default()).unwrap();
    for sender in &keys.late {
        member.know_sender::<HostCrypto>(*sender, 0).unwrap();
    }
    member.extend(&member.reserve(8, 8));
    (path, member)
}

#[tokio::test]
async fn members_join_talk_catch_up_and_leave() {
    let world = World::new("server", config(), false).await;
    let crypto = &mut HostCrypto::from_os().unwrap();
    let switch = world.device("switch").await;
    let response = post(&switch, "/ace-group/lamps", &join(1, true)).await;
    assert_eq!(response.code, Code::CREATED);
    let (keys, own) = admitted(&response);
    assert_eq!((keys.sender_id, keys.epoch, own.as_str()), (Some(0), 2, "/ace-group/lamps/nodes/8"));
    assert_eq!(keys.controller.as_deref(), Some(world.signer.public_key()));
    assert_eq!(keys.encode().as_slice(), response.payload, "it is read as it was written");
    assert!((0..response.payload.len()).all(|at| GroupKeys::parse(&response.payload[..at]).is_err()), "it was cut");
    let mut of_switch = member(crypto, &keys);

    // The switch hears the messages before the lamp has its parameters.
    world.sent.lock().unwrap().clear();
    let hall = world.device("hall").await;
    let (of_hall, hall_path) = admitted(&post(&hall, "/ace-group/lamps", &join(2, false)).await);
    assert_eq!((of_hall.sender_id, of_hall.late.as_slice()), (None, [0].as_slice()), "it may not send");
    let sent = std::mem::take(&mut *world.sent.lock().unwrap());
    let mut last = None;
    for message in &sent {
        last = of_switch.0.open(crypto, Some(world.signer.public_key()), &message.bytes).ok();
    }
    assert_eq!(last, Some(Rekeyed::Epoch));
    let master = of_switch.0.master_secret::<HostCrypto>();
    of_switch.1.rekey(crypto, &keys.association(3, &master)).unwrap();
    of_switch.1.extend(&of_switch.1.reserve(8, 8));
    let mut lamp = member(crypto, &of_hall);

    // A request to the group, which the lamp takes at once, by the numbers of its admission.
    let mut buffer = [0; 128];
    let mut frame = Frame::new(&mut buffer, of_switch.1.overhead().0);
    frame.append(b"PUT /light on").unwrap();
    of_switch.1.seal_request(crypto, &mut frame).unwrap();
    let mut sealed = frame.finish().to_vec();
    let mut records = Records::new(&mut sealed);
    let record = records.next_record().unwrap().unwrap();
    let (sender, opened) = lamp.1.open_request(crypto, record).unwrap();
    assert_eq!(sender.number(), 0);
    assert!(matches!(opened, Opened::Fresh(content) if content == b"PUT /light on"));

    // A member that missed an epoch gets its keys again; one that joins again gets others.
    let again = hall.get(&hall_path).await.unwrap();
    assert_eq!(again.code, Code::CONTENT);
    lamp.0.catch_up(&GroupKeys::parse(&again.payload).unwrap().admission()).unwrap();
    assert_eq!(hall.get("/ace-group/lamps/num").await.unwrap().payload, [3]);
    let response = post(&hall, "/ace-group/lamps", &join(2, false)).await;
    assert_eq!((response.code, admitted(&response).0.epoch), (Code::CHANGED, 4));

    // The lamp leaves its own place alone, and opens nothing afterwards.
    assert_eq!(hall.delete(&own).await.unwrap().code, Code::FORBIDDEN, "the place of another");
    assert_eq!(hall.get(&own).await.unwrap().code, Code::FORBIDDEN);
    let old = admitted(&post(&hall, "/ace-group/lamps", &join(2, false)).await).0;
    world.sent.lock().unwrap().clear();
    assert_eq!(hall.delete(&hall_path).await.unwrap().code, Code::DELETED);
    let mut path = KeyPath::<8>::new(&old.admission()).unwrap();
    for message in world.sent.lock().unwrap().iter() {
        let opened = path.open(crypto, Some(world.signer.public_key()), &message.bytes);
        assert!(!matches!(opened, Ok(Rekeyed::Nodes | Rekeyed::Epoch)));
    }
    let refused = hall.get("/ace-group/lamps").await.unwrap();
    assert_eq!((refused.code, refused.payload), (Code::FORBIDDEN, GroupcommError::NotAMember.encode()));
    assert!(world.logged("hall left the group lamps"));
}

#[tokio::test]
async fn a_peer_without_rights_learns_nothing() {
    let world = World::new("rights", config(), false).await;
    let oven = world.device("oven").await;
    for group in ["lamps", "doors", "no/group"] {
        let request = JoinRequest { group: group.to_owned(), ..join(3, false) };
        for path in [format!("/ace-group/{group}"), format!("/ace-group/{group}/nodes/8")] {
            let responses = [post(&oven, &path, &request).await, oven.get(&path).await.unwrap()];
            for response in responses {
                assert_eq!((response.code, response.payload.as_slice()), (Code::FORBIDDEN, [].as_slice()), "{path}");
            }
        }
    }
    for path in ["/ace-group/lamps/nodes/8", "/ace-group/doors/nodes/8"] {
        let response = oven.delete(path).await.unwrap();
        assert_eq!((response.code, response.payload.as_slice()), (Code::FORBIDDEN, [].as_slice()), "{path}");
    }
    // A lamp has no right to send.
    let hall = world.device("hall").await;
    assert_eq!(post(&hall, "/ace-group/lamps", &join(2, true)).await.code, Code::FORBIDDEN);
    assert!(world.logged("hall asks to send to the group lamps"));
    // Without a session, nothing.
    let config = ClientConfig::default();
    let plain = Session::connect_to(world.server.addresses()[1].address, Scheme::Coap, config).await.unwrap();
    assert_eq!(plain.get("/ace-group/lamps").await.unwrap().code, Code::UNAUTHORIZED);
    assert_eq!(world.controller.show("lamps").await.unwrap().epoch, 1, "nothing has changed");
    // A device that is disabled, too.
    world.service.disable("operator", "hall").await.unwrap();
    assert_eq!(post(&hall, "/ace-group/lamps", &join(2, false)).await.code, Code::UNAUTHORIZED);
}

#[tokio::test]
async fn refusals_have_the_codes_of_rfc_9594() {
    let world = World::new("codes", GroupConfig { levels: 1, senders: 1, ..config() }, false).await;
    let (switch, hall) = (world.device("switch").await, world.device("hall").await);
    let path = "/ace-group/lamps";
    assert_eq!(
        hall.post(path, &join(2, false).encode()).content_format(60).await.unwrap().code,
        Code::UNSUPPORTED_CONTENT_FORMAT
    );
    for payload in [vec![], vec![0xa0], JoinRequest { group: "doors".to_owned(), ..join(2, false) }.encode()] {
        let response = hall.post(path, &payload).content_format(GROUPCOMM_CBOR).await.unwrap();
        assert_eq!(response.code, Code::BAD_REQUEST, "{payload:02x?}");
    }
    let by_name = JoinRequest { control_uri: Some("coap://hall.example/node".to_owned()), ..join(2, false) };
    assert_eq!(post(&hall, path, &by_name).await.code, Code::BAD_REQUEST);
    assert_eq!(post(&switch, path, &join(1, true)).await.code, Code::CREATED);
    assert_eq!(post(&hall, path, &join(1, false)).await.code, Code::FORBIDDEN, "the address of the switch");
    assert!(world.logged("switch has the address fd00::1"));
    assert_eq!(post(&hall, path, &join(2, false)).await.code, Code::CREATED);
    let porch = world.device("porch").await;
    let full = post(&porch, path, &join(3, false)).await;
    assert_eq!((full.code, full.payload.as_slice()), (Code::SERVICE_UNAVAILABLE, [0xa1, 0, 0xa1, 0, 4].as_slice()));
    assert_eq!((full.content_format(), full.uint(OptionNumber::MAX_AGE)), (Some(257), Some(60)));
    assert!(world.logged("the group is full"));
    let failures = world.failures.lock().unwrap().clone();
    assert!(matches!(failures.as_slice(), [one] if one.contains("the group is full")), "{failures:?}");
    assert_eq!(switch.put("/ace-group/lamps/nodes/2", b"").await.unwrap().code, Code::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_controller_without_its_store_answers_with_a_problem() {
    let world = World::new("no-store", config(), false).await;
    let (hall, oven) = (world.device("hall").await, world.device("oven").await);
    world.store.database.abandon();
    let refused = post(&hall, "/ace-group/lamps", &join(2, false)).await;
    assert_eq!(
        (refused.code, refused.content_format()),
        (Code::SERVICE_UNAVAILABLE, Some(problem::CONTENT_FORMAT.into()))
    );
    assert_eq!(refused.uint(OptionNumber::MAX_AGE), Some(60));
    let explained = Problem::from_cbor(&refused.payload).unwrap();
    assert_eq!(explained.title.as_deref(), Some("The controller cannot do this now"));
    assert!(explained.detail.unwrap().contains("log of the controller"));
    assert_eq!(GroupcommError::parse(&refused.payload), None, "no error of RFC 9594 is for this");
    let cause = "the store is not available";
    assert!(!String::from_utf8_lossy(&refused.payload).contains(cause), "the cause is for the operator alone");
    assert!(world.logged(cause));
    let failures = world.failures.lock().unwrap().clone();
    assert!(matches!(failures.as_slice(), [one] if one.contains(cause)), "{failures:?}");
    let refused = post(&oven, "/ace-group/lamps", &join(3, false)).await;
    assert_eq!((refused.code, refused.payload.as_slice()), (Code::FORBIDDEN, [].as_slice()), "a device without rights");
}

#[tokio::test]
async fn a_controller_that_cannot_read_a_group_does_not_promise_that_a_retry_helps() {
    let world = World::new("no-head", config(), false).await;
    let hall = world.device("hall").await;
    assert_eq!(post(&hall, "/ace-group/lamps", &join(2, false)).await.code, Code::CREATED);
    let database = &world.store.database;
    let head = rows(database).into_iter().find(|key| key.ends_with("/head")).unwrap();
    database.commit(Transaction::default().put(head, Value::Plain(b"no row".to_vec()))).wait().unwrap();
    let refused = post(&hall, "/ace-group/lamps", &join(2, false)).await;
    assert_eq!((refused.code, refused.uint(OptionNumber::MAX_AGE)), (Code::SERVICE_UNAVAILABLE, Some(60)));
    let explained = Problem::from_cbor(&refused.payload).unwrap();
    assert_eq!(explained.title.as_deref(), Some("The controller cannot use the group"));
    assert_eq!(explained.detail.as_deref(), Some("The log of the controller has the cause."));
    assert!(world.logged("cannot be read"));
}

#[tokio::test]
async fn a_member_that_joins_again_and_again_waits_and_no_other_one_does() {
    let world = World::new("often", config(), false).await;
    let (hall, porch) = (world.device("hall").await, world.device("porch").await);
    for n in 0..4 {
        let expected = if n == 0 { Code::CREATED } else { Code::CHANGED };
        assert_eq!(post(&hall, "/ace-group/lamps", &join(2, false)).await.code, expected);
    }
    let refused = post(&hall, "/ace-group/lamps", &join(2, false)).await;
    let seconds = refused.uint(OptionNumber::MAX_AGE).unwrap();
    assert_eq!((refused.code, refused.payload.as_slice()), (Code::TOO_MANY_REQUESTS, [].as_slice()));
    assert!((30..=61).contains(&seconds), "{seconds}");
    assert!(world.logged("hall joins the group lamps too often"));
    assert_eq!(world.controller.show("lamps").await.unwrap().epoch, 5, "it begins no epoch");
    assert_eq!(hall.get("/ace-group/lamps").await.unwrap().code, Code::CONTENT, "it is a member, and has its keys");
    assert_eq!(post(&porch, "/ace-group/lamps", &join(3, false)).await.code, Code::CREATED);
}

/// The rights of a device that is disabled directly after the first check of a request. The value is true until this
/// check.
struct DisabledMeanwhile(std::sync::atomic::AtomicBool);

impl Authority for DisabledMeanwhile {
    fn client(&self, _: &tegmen::identity::Identity) -> Option<String> {
        let is_first = self.0.swap(false, std::sync::atomic::Ordering::Relaxed);
        is_first.then(|| "hall".to_owned())
    }

    fn may(&self, _: &tegmen::identity::Identity, _: Code, _: &str) -> bool {
        true
    }
}

#[tokio::test]
async fn a_device_that_is_disabled_while_it_joins_gets_no_keys() {
    let scene = Scene::new("meanwhile");
    let controller = Arc::new(Controller::new(scene.database(), Some(software_key() as _)).unwrap());
    controller.create("lamps", config(), &[]).await.unwrap();
    let authority = Arc::new(DisabledMeanwhile(true.into()));
    let application = GroupServer::new(Arc::clone(&controller), authority, Arc::new(|_| {}));
    let builder = Server::builder().listen("coaps://127.0.0.1:0").shards(1);
    let server = builder.credentials(Credentials::single("hall", &SHARED_KEY)).serve(application).unwrap();
    let config = ClientConfig::psk("hall", SHARED_KEY);
    let session = Session::connect_to(server.addresses()[0].address, Scheme::Coaps, config).await.unwrap();
    let response = post(&session, "/ace-group/lamps", &join(2, false)).await;
    assert_eq!((response.code, response.payload.as_slice()), (Code::FORBIDDEN, [].as_slice()));
    let report = controller.show("lamps").await.unwrap();
    assert_eq!((report.epoch, report.members.len()), (3, 0), "it was admitted, and evicted");
}

#[tokio::test]
async fn a_device_that_the_policy_disables_while_it_joins_gets_no_keys() {
    let world = World::new("disabled", config(), false).await;
    let (hall, porch) = (world.device("hall").await, world.device("porch").await);
    let service = Arc::clone(&world.service);
    world.store.interrupt(Call::Commit, 0, move || {
        wait(service.disable("operator", "hall")).unwrap();
    });
    let response = post(&hall, "/ace-group/lamps", &join(2, false)).await;
    assert_eq!((response.code, response.payload.as_slice()), (Code::FORBIDDEN, [].as_slice()));
    // The other changes of the server evict nobody.
    let service = Arc::clone(&world.service);
    world.store.interrupt(Call::Commit, 0, move || {
        wait(service.enable("operator", "hall")).unwrap();
    });
    assert_eq!(post(&porch, "/ace-group/lamps", &join(3, false)).await.code, Code::CREATED);
    let report = world.controller.show("lamps").await.unwrap();
    let names: Vec<_> = report.members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((report.epoch, names), (4, vec!["porch"]), "hall was admitted, and evicted");
}

/// The rights of a server at which each peer is the device `hall`, which may do everything.
struct OnlyHall;

impl Authority for OnlyHall {
    fn client(&self, _: &tegmen::identity::Identity) -> Option<String> {
        Some("hall".to_owned())
    }

    fn may(&self, _: &tegmen::identity::Identity, _: Code, _: &str) -> bool {
        true
    }
}

#[tokio::test]
async fn a_device_gets_its_keys_after_the_members_got_their_messages() {
    let scene = Scene::new("first-sent");
    let outbox = Outbox::default();
    let controller = Controller::new(scene.database(), Some(software_key() as _)).unwrap();
    let controller = Arc::new(controller.with_outbox(outbox.clone()));
    controller.create("lamps", config(), &[super::world::member("porch", 3, false)]).await.unwrap();
    let application = GroupServer::new(Arc::clone(&controller), Arc::new(OnlyHall), Arc::new(|_| {}));
    let builder = Server::builder().listen("coaps://127.0.0.1:0").shards(1);
    let server = builder.credentials(Credentials::single("hall", &SHARED_KEY)).serve(application).unwrap();
    let config = ClientConfig::psk("hall", SHARED_KEY);
    let session = Session::connect_to(server.addresses()[0].address, Scheme::Coaps, config).await.unwrap();
    let joining = tokio::spawn(async move { post(&session, "/ace-group/lamps", &join(2, false)).await });
    while controller.show("lamps").await.unwrap().epoch == 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // No task sends the messages yet. A response that does not wait for them comes meanwhile.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!joining.is_finished(), "the device has the keys of an epoch that no other member knows");
    let pace = Pace { interval: Duration::from_millis(1), repetitions: 0, wait: Duration::ZERO };
    let sender = tokio::spawn(async move { send(&*controller, &Sending { pace, ..Sending::default() }).await });
    let response = joining.await.unwrap();
    let counts = outbox.counts();
    sender.abort();
    assert_eq!((response.code, admitted(&response).0.epoch), (Code::CREATED, 2));
    assert!(counts.messages + counts.failures > 0, "the messages of the epoch came first: {counts:?}");
}

#[tokio::test]
async fn a_session_of_another_key_than_that_of_the_token_gives_no_right() {
    let world = World::new("token-key", config(), true).await;
    let scope = Scope::of(&Aif(vec![Right { path: "/ace-group/lamps".to_owned(), permissions: 2 }]));
    let (identity, key) = world.upload_token("switch", scope).await.unwrap();
    let credentials = Credentials::default();
    let authority = ByToken { tickets: world.tickets.clone(), credentials: credentials.clone() };
    let client = |key: &[u8]| {
        let principal = credentials.learn_stored(&identity, Some(key), None);
        authority.client(&Identity { principal, protection: Protection::Dtls })
    };
    assert_eq!(client(&[9; 32]), None);
    assert_eq!(client(&key).as_deref(), Some("switch"));
}

#[tokio::test]
async fn a_token_of_the_access_server_admits_its_client() {
    let world = World::new("token", config(), true).await;
    let scope = |path: &str| Scope::of(&Aif(vec![Right { path: path.to_owned(), permissions: 2 }]));
    let request = |path: &str| TokenRequest {
        audience: Some("controller".to_owned()),
        scope: Some(scope(path)),
        ..Default::default()
    };
    let refused = world.service.token(Some("switch"), &request("/ace-group/doors").encode()).await;
    assert_eq!(refused.code, Code::BAD_REQUEST, "the policy does not name this group");
    let (session, identity) = world.with_token("switch", scope("/ace-group/lamps")).await.unwrap();
    let response = post(&session, "/ace-group/lamps", &join(1, false)).await;
    assert_eq!(response.code, Code::CREATED);
    let own = admitted(&response).1;
    assert_eq!(world.controller.show("lamps").await.unwrap().members[0].0, "switch", "by the name in the token");
    assert_eq!(
        post(&session, "/ace-group/lamps", &join(1, true)).await.code,
        Code::FORBIDDEN,
        "the token has no such right"
    );
    assert_eq!(
        post(&session, "/ace-group/doors", &JoinRequest { group: "doors".to_owned(), ..join(1, false) }).await.code,
        Code::FORBIDDEN
    );
    assert_eq!(session.get(&own).await.unwrap().code, Code::CONTENT);
    assert_eq!(session.delete(&own).await.unwrap().code, Code::DELETED);
    assert!(world.controller.show("lamps").await.unwrap().members.is_empty());
    // The session outlives the token, and its rights do not.
    world.tickets.end(&identity);
    assert_eq!(post(&session, "/ace-group/lamps", &join(1, false)).await.code, Code::UNAUTHORIZED);
}

#[test]
fn messages_that_are_cut_or_spoiled_are_refused_or_read() {
    let request = join(1, true).encode();
    assert_eq!(JoinRequest::parse(&request).unwrap(), join(1, true));
    let unchecked = JoinRequest { checks_signatures: false, ..join(1, false) };
    assert_eq!(JoinRequest::parse(&unchecked.encode()).unwrap(), unchecked);
    for at in 0..request.len() {
        assert!(JoinRequest::parse(&request[..at]).is_err());
        for bit in 0..8 {
            let mut spoiled = request.clone();
            spoiled[at] ^= 1 << bit;
            let _ = JoinRequest::parse(&spoiled);
            let _ = GroupKeys::parse(&spoiled);
        }
    }
}
