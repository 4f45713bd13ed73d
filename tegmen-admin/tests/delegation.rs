//! Tests of the operations on delegated devices.

#[allow(dead_code, reason = "each test uses its part")]
mod common;

use common::logins::request;
use common::{Answer, Scene};
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};
use tegmen::buf::Writer;
use tegmen::dtls::{CipherSuite, MASTER_LEN, SessionState};
use tegmen::identity::Principal;
use tegmen_base::hex::from_hex;
use tegmen_base::secret::Secret;
use tegmen_control::delegation::ConnectionId;
use tegmen_delegation::{DeviceKey, Epoch, LONGEST_TICKET};
use tegmen_host::delegate::Proved;
use tegmen_trust::provider::HostCrypto;

const LAMP: &str = "lamp.example";
const POLICY: &str = r#"
[[rule]]
subject = "phone-*"
publisher = "tag:lamp"
allow = "GET /temp"
"#;

/// A server, and a key with all scopes, with which the test sends its requests.
struct Operator {
    scene: Scene,
    key: String,
}

impl Operator {
    async fn new(name: &str) -> Self {
        let scene = Scene::new(name).await;
        let key = scene.first_key().await;
        Self { scene, key }
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Answer {
        self.scene.ask(method, &format!("/v1/delegation{path}"), Some(&self.key), headers, &body).await
    }

    /// Imprints the device `LAMP`.
    async fn imprint(&self, headers: &[(&str, &str)]) -> Answer {
        let imprinted = self.ask("POST", "/devices", headers, json!({ "name": LAMP, "config": config() })).await;
        assert_eq!(imprinted.status, 201, "{imprinted:?}");
        imprinted
    }

    /// Begins the next epoch of `LAMP` at the server, and confirms it in place of the device. Reserves the first
    /// connection numbers of the epoch.
    async fn next_epoch(&self) {
        let server = &self.scene.delegations;
        let next = server.begin_epoch(LAMP, &Secret::new([5; 32])).await.unwrap();
        server.epoch_begun(LAMP, next).await.unwrap();
        server.settle().await.unwrap();
    }

    /// Seals a ticket for a peer that proved this name. Returns false if the server refuses.
    fn ticket(&self, peer: &str) -> bool {
        self.ticket_of(peer.into())
    }

    fn ticket_of(&self, peer: Proved<'_>) -> bool {
        let server = &self.scene.delegations;
        let device = server.device(LAMP.as_bytes()).unwrap();
        let cipher_suite = CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8;
        let master = Secret::new([7; MASTER_LEN]);
        let session = SessionState { cipher_suite, master, principal: Principal::NOBODY, since: None };
        let mut room = [0; LONGEST_TICKET];
        server.seal_ticket(device, Some(peer), &session, &mut Writer::new(&mut room)).is_some()
    }

    /// Sends a request. Checks that the server refuses the request with the status and the code in `expected` and with
    /// the text `words`, and that the server changes nothing.
    async fn refused(&self, method: &str, path: &str, body: Value, expected: (u16, &str), words: &str) {
        let before = self.scene.revision().await;
        let refused = self.ask(method, path, &[("if-match", "*")], body).await;
        assert_eq!((refused.status, refused.code()), expected, "{method} {path}: {refused:?}");
        assert!(refused.body["detail"].as_str().unwrap().contains(words), "{refused:?}");
        assert_eq!(self.scene.revision().await, before, "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_user_has_no_connection_and_gets_none() {
    let operator = Operator::new("delegation-user").await;
    let policy = json!({ "file": "policy.toml", "text": POLICY.replace("phone-*", "CN=*") });
    let applied = operator.scene.ask("PUT", "/v1/policy", Some(&operator.key), &[("if-match", "*")], &policy).await;
    assert_eq!(applied.status, 204, "{applied:?}");
    operator.imprint(&[]).await;
    operator.next_epoch().await;
    let user = json!({ "name": "alice", "password": "correct horse battery" });
    assert_eq!(operator.scene.ask("POST", "/v1/users", Some(&operator.key), &[], &user).await.status, 201);
    let login = json!({ "name": "alice", "password": "correct horse battery", "request": request("alice") });
    let logged_in = operator.scene.ask("POST", "/v1/login", None, &[], &login).await;
    let end = UNIX_EPOCH + Duration::from_secs(logged_in.body["expires"].as_u64().unwrap());
    let alice = |until| Proved { name: "CN=alice", until: Some(until) };
    assert!(operator.ticket_of(alice(end)) && operator.ticket("CN=bob"));
    let disabled = json!({ "disabled": true });
    let ended = operator.scene.ask("PATCH", "/v1/users/alice", Some(&operator.key), &[], &disabled).await;
    let expected = json!({ "certificates": 1, "connections": [format!("{LAMP} 1-0")] });
    assert_eq!((ended.status, &ended.body), (200, &expected));
    let listed = operator.ask("GET", &format!("/devices/{LAMP}/connections"), &[], Value::Null).await;
    let revoked: Vec<_> = listed.body["connections"].as_array().unwrap().iter().map(|one| &one["revoked"]).collect();
    assert_eq!(revoked, [&json!(true), &json!(false)]);
    // A handshake that began before gives nothing. The mutant does not know this certificate, and gives a ticket.
    assert!(!operator.ticket_of(alice(end)));
    assert!(operator.ticket_of(alice(end + Duration::from_secs(1))));
    let again = operator.scene.ask("PATCH", "/v1/users/alice", Some(&operator.key), &[], &disabled).await;
    assert_eq!(again.body["connections"].as_array().unwrap().len(), 1, "the connection of the mutant");
}

fn config() -> Value {
    json!({ "address": "[fd00::1]:5684", "scopes": [["GET /temp"]], "tags": ["lamp"], "places": 4, "lifetime": 3600 })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_key_is_shown_once_and_is_that_of_the_device() {
    let operator = Operator::new("delegation-key").await;
    let once = [("idempotency-key", "lamp")];
    let imprinted = operator.imprint(&once).await;
    let key = imprinted.body["key"].as_str().unwrap();
    let again = operator.imprint(&once).await;
    assert_eq!((&again.body["name"], &again.body["key"]), (&json!(LAMP), &Value::Null));
    // It is the key of epoch 0: the first epoch of server and device is the same one.
    let key: [u8; 32] = from_hex(key).unwrap().try_into().unwrap();
    let epoch = Epoch::first(DeviceKey(Secret::new(key))).next::<HostCrypto>(&Secret::new([5; 32])).unwrap();
    let next = operator.scene.delegations.begin_epoch(LAMP, &Secret::new([5; 32])).await.unwrap();
    assert_eq!((next.number, next.check), (1, epoch.check::<HostCrypto>()));
    let other = operator.ask("POST", &format!("/devices/{LAMP}/imprint"), &[], Value::Null).await;
    assert_eq!(other.status, 201, "{other:?}");
    assert_ne!(other.body["key"], imprinted.body["key"]);
    operator.scene.audited("the device lamp.example gets another device key").await;
    assert!(!operator.scene.audit().contains(other.body["key"].as_str().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_listed_in_pages_and_revoked() {
    let operator = Operator::new("delegation-revoke").await;
    let policy = json!({ "file": "policy.toml", "text": POLICY });
    let applied = operator.scene.ask("PUT", "/v1/policy", Some(&operator.key), &[("if-match", "*")], &policy).await;
    assert_eq!(applied.status, 204, "{applied:?}");
    operator.imprint(&[]).await;
    operator.next_epoch().await;
    for number in 0..5 {
        assert!(operator.ticket(&format!("phone-{number}")));
    }
    assert!(!operator.ticket("stranger"), "the policy gives it nothing");
    operator.scene.delegations.settle().await.unwrap();
    let path = format!("/devices/{LAMP}/connections");
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = operator.ask("GET", &format!("{path}?limit=2{after}"), &[], Value::Null).await;
        assert_eq!(page.status, 200, "{page:?}");
        let connections = page.body["connections"].as_array().unwrap();
        seen.extend(connections.iter().map(|one| (one["id"].clone(), one["peer"].clone())));
        match page.body["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let expected: Vec<_> = (0..5).map(|n| (json!(format!("1-{n}")), json!(format!("phone-{n}")))).collect();
    assert_eq!(seen, expected);
    let revoked = operator.ask("DELETE", &format!("{path}/1-3"), &[], Value::Null).await;
    let expected = |confirmed: bool| json!({ "connections": ["1-3"], "by_reset": false, "confirmed": confirmed });
    assert_eq!((revoked.status, &revoked.body), (200, &expected(false)));
    let shown = operator.ask("GET", &format!("/devices/{LAMP}"), &[], Value::Null).await;
    assert_eq!(
        (&shown.body["refused"], &shown.body["untold"], &shown.body["epoch"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert!(!shown.text.contains("key"), "{}", shown.text);
    let id = ConnectionId { epoch: 1, number: 3 };
    operator.scene.delegations.refused_by_device(LAMP, id).await.unwrap();
    let again = operator.ask("DELETE", &format!("{path}/1-3"), &[], Value::Null).await;
    assert_eq!((again.status, &again.body), (200, &expected(true)));
    let preview = operator.ask("GET", &format!("/devices/{LAMP}/reset"), &[], Value::Null).await;
    let expected = json!({ "epoch": 1, "return_by_ticket": 4, "end": 0, "end_unreturned": 0, "revoked": 1 });
    assert_eq!((preview.status, &preview.body), (200, &expected));
    assert_eq!(operator.scene.delegations.show(LAMP).unwrap().reset, None, "a preview changes nothing");
    let reset = operator.ask("POST", &format!("/devices/{LAMP}/reset"), &[], Value::Null).await;
    assert_eq!((reset.status, &reset.body), (200, &expected));
    assert!(operator.scene.delegations.show(LAMP).unwrap().reset.is_some());
    // In the next epoch the peers return by themselves, which an operator sees.
    operator.next_epoch().await;
    let reissue = format!("/devices/{LAMP}/reissue");
    for method in ["GET", "POST"] {
        let reissued = operator.ask(method, &reissue, &[], Value::Null).await;
        let connections = reissued.body["connections"].as_array().unwrap();
        let returns = |one: &Value| one["way"] == "returns" && one["given"].is_null() && one["failed"].is_null();
        assert_eq!(
            (reissued.status, connections.len(), connections.iter().all(returns)),
            (200, 4, true),
            "{reissued:?}"
        );
    }
    operator.scene.audited("0 sessions of the device lamp.example with other devices are given again").await;
    // After a server that somebody else had access to, an operator learns what was reachable.
    let drill = json!({ "devices": [LAMP] });
    let reachable = operator.ask("POST", "/server-compromised", &[("idempotency-key", "drill")], drill.clone()).await;
    assert_eq!(reachable.status, 200, "{reachable:?}");
    let device = &reachable.body["devices"][0];
    assert_eq!((&device["name"], device["connections"].as_array().unwrap().len()), (&json!(LAMP), 5));
    assert_eq!(device["key"].as_str().unwrap().len(), 64);
    assert_eq!(device["certificates"], json!([]), "this server has none");
    let again = operator.ask("POST", "/server-compromised", &[("idempotency-key", "drill")], drill).await;
    assert_eq!((again.status, &again.body["devices"]), (200, &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_is_replaced_by_one_who_knows_the_present_one() {
    let operator = Operator::new("delegation-config").await;
    operator.imprint(&[]).await;
    let path = format!("/devices/{LAMP}");
    let shown = operator.ask("GET", &path, &[], Value::Null).await;
    let tag = shown.header("etag").unwrap().to_owned();
    let mut longer = config();
    longer["lifetime"] = json!(7200);
    let changed = operator.ask("PUT", &path, &[("if-match", &tag)], longer.clone()).await;
    assert_eq!(changed.status, 204, "{changed:?}");
    let refused = operator.ask("PUT", &path, &[("if-match", &tag)], longer).await;
    assert_eq!((refused.status, refused.code()), (412, "changed-meanwhile"));
    let disabled = operator.ask("PATCH", &path, &[], json!({ "disabled": true })).await;
    assert_eq!(disabled.status, 204);
    for _ in 0..2 {
        assert_eq!(operator.scene.delegations.device(LAMP.as_bytes()), None);
    }
    operator.scene.audited("a session in the name of lamp.example, because the device is disabled").await;
    assert_eq!(operator.scene.audit().matches("because the device is disabled").count(), 1);
    let shown = operator.ask("GET", "/devices", &[], Value::Null).await;
    assert_eq!(
        (&shown.body["devices"][0]["lifetime"], &shown.body["devices"][0]["disabled"]),
        (&json!(7200), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_about_devices_has_a_code_and_the_next_step() {
    let operator = Operator::new("delegation-refused").await;
    operator.imprint(&[]).await;
    let named = |name: &str, config: Value| json!({ "name": name, "config": config });
    let mut no_scope = config();
    no_scope["scopes"] = json!([]);
    operator.refused("POST", "/devices", named(LAMP, config()), (409, "name-taken"), "imprint it again").await;
    operator.refused("POST", "/devices", named("Lamp", config()), (422, "invalid-device"), "lower case").await;
    operator.refused("POST", "/devices", named("b", no_scope), (422, "invalid-device"), "scopes").await;
    operator.refused("GET", "/devices/b", Value::Null, (404, "unknown-device"), "imprint it").await;
    let connections = format!("/devices/{LAMP}/connections");
    for id in ["9-9", "x"] {
        let path = format!("{connections}/{id}");
        operator.refused("DELETE", &path, Value::Null, (404, "unknown-connection"), "connection").await;
    }
    operator.refused("GET", &format!("{connections}?after=00"), Value::Null, (400, "malformed"), "after").await;
    for (name, words) in [("hub.example", "no certificate"), ("", "server_name is empty")] {
        let session = json!({ "device": LAMP, "address": "127.0.0.1:9", "server_name": name });
        operator.refused("POST", "/sessions", session, (422, "not-given"), words).await;
    }
    let none = json!({ "devices": [] });
    operator.refused("POST", "/server-compromised", none, (422, "invalid-device"), "1 to 256").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_delegates_no_sessions_says_so() {
    let operator = Operator::new("delegation-without-groups").await;
    operator.refused("GET", "/devices", Value::Null, (501, "no-delegation"), "delegation-ca").await;
}
