//! Tests of the interface for administrators, over its listener, TLS and a database in a file.

#[allow(dead_code, reason = "each test uses its part")]
mod common;

use common::{Scene, filled, later, routes, token};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tegmen_admin::{Api, KeysError, Scope};
use tegmen_control::state::{AcceptedSession, Grounds};
use tegmen_store::Store;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const POLICY: &str = "[[rule]]\nsubject = \"tag:display\"\npublisher = \"oven\"\nallow = \"read /*\"\n\n[[test]]\n\
                      subject = [\"panel\", \"tag:display\"]\npublisher = \"oven\"\nrequest = \"GET /temp\"\nexpect = \"allow\"\n";

/// One request and the expected answer: method, path, key, further headers, body, and the expected status and code.
type Case<'a> = (&'a str, &'a str, Option<&'a str>, &'a [(&'a str, &'a str)], &'a Value, (u16, &'a str));

fn policy() -> Value {
    json!({ "file": "policy.toml", "text": POLICY })
}

/// Returns a body that the route accepts.
fn right_body(method: &str, path: &str) -> Value {
    match (method, path) {
        ("POST", "/v1/devices") => json!({ "name": "oven", "kind": "protokey", "secret": "a1".repeat(32) }),
        ("POST", "/v1/enrolments") => json!({ "name": "oven", "kind": "protokey", "expires": later() - 100 }),
        ("PUT", "/v1/devices/{name}") => json!({ "kind": "protokey", "secret": "a1".repeat(32) }),
        ("POST", "/v1/delegation/devices") => {
            json!({ "name": "lamp.example", "config": { "address": "[fd00::1]:5684", "scopes": [["GET /temp"]] } })
        }
        ("PUT", "/v1/delegation/devices/{name}") => {
            json!({ "address": "[fd00::1]:5684", "scopes": [["GET /temp"]] })
        }
        ("POST", "/v1/delegation/introductions") => json!({ "opener": "nobody", "other": "nobody" }),
        ("POST", "/v1/delegation/sessions") => {
            json!({ "device": "nobody", "address": "[fd00::1]:5684", "server_name": "nobody" })
        }
        ("POST", "/v1/delegation/server-compromised") => json!({ "devices": ["nobody"] }),
        ("POST", "/v1/users") => json!({ "name": "alice", "password": "correct horse battery" }),
        ("PATCH", _) => json!({ "disabled": true }),
        ("POST", "/v1/policy/explain") => {
            json!({ "subject": ["panel"], "publisher": ["oven"], "request": "GET /temp" })
        }
        (_, path) if path.starts_with("/v1/policy") => policy(),
        ("POST", "/v1/revocations") => {
            json!({ "hash": format!("01{}", "5a".repeat(32)), "expires": later(), "concerned": [] })
        }
        ("POST", "/v1/keys") => json!({ "name": "one", "scopes": ["keys:write"], "expires": later() - 100 }),
        ("POST", "/v1/groups") => json!({ "name": "lamps", "address": "[ff15::1]:5684" }),
        ("POST", "/v1/groups/{name}/members") => json!({ "member": { "name": "hall" } }),
        _ => Value::Null,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_key_cannot_do_more_than_its_scope() {
    let scene = Scene::new("scope").await;
    let root = scene.first_key().await;
    for (route, scope) in routes() {
        let path = filled(route.path);
        let body = right_body(route.method.as_str(), route.path);
        let others: Vec<&str> = Scope::ALL.iter().filter(|other| **other != scope).map(|scope| scope.name()).collect();
        let (id, key) = scene.key(&root, &others).await;
        let before = scene.revision().await;
        let headers = [("if-match", "*"), ("idempotency-key", "x")];
        let refused = scene.ask(route.method.as_str(), &path, Some(&key), &headers, &body).await;
        assert_eq!((refused.status, refused.code()), (403, "scope-missing"), "{} {path}", route.method);
        assert_eq!(scene.revision().await, before, "{} {path} reached the store", route.method);
        // The mutant: the row of the same key has the scope. The same request passes.
        scene.widen(&id, &others, scope.name()).await;
        let passed = scene.ask(route.method.as_str(), &path, Some(&key), &headers[..1], &body).await;
        assert!(![401, 403].contains(&passed.status), "{} {path}: {passed:?}", route.method);
    }
    scene.audited("POST /v1/revocations: refused, because the scope revoke is missing").await;
    // A key gives no other key more than it has: neither a scope nor a later end.
    let (_, key) = scene.key(&root, &["keys:write"]).await;
    for (scopes, expires, next) in [
        (json!(["keys:write", "revoke"]), later() - 100, "ask an administrator"),
        (json!(["keys:write"]), later() + 100, "set an earlier end"),
    ] {
        let body = json!({ "name": "more", "scopes": scopes, "expires": expires });
        let refused = scene.ask("POST", "/v1/keys", Some(&key), &[], &body).await;
        assert_eq!((refused.status, refused.code()), (403, "more-than-own-scope"));
        assert!(refused.body["detail"].as_str().unwrap().contains(next), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bootstrap_token_creates_one_key_and_nothing_else() {
    let scene = Scene::new("bootstrap").await;
    let bootstrap = scene.bootstrap_token();
    let others = routes().into_iter().map(|(route, _)| route);
    for route in others.filter(|route| (route.method.as_str(), route.path) != ("POST", "/v1/keys")) {
        let path = filled(route.path);
        let body = right_body(route.method.as_str(), route.path);
        let refused = scene.ask(route.method.as_str(), &path, Some(&bootstrap), &[("if-match", "*")], &body).await;
        assert_eq!(refused.status, 403, "{} {path}", route.method);
    }
    let body = json!({ "name": "first", "scopes": ["keys:write"], "expires": later() });
    assert_eq!(scene.ask("POST", "/v1/keys", Some(&bootstrap), &[], &body).await.status, 201);
    assert_eq!(scene.ask("POST", "/v1/keys", Some(&bootstrap), &[], &body).await.status, 401);
    #[cfg(unix)]
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&scene.bootstrap_file().metadata().unwrap().permissions()) & 0o777,
        0o600
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_has_a_bounded_number_of_connections() {
    let scene = Scene::new("connections").await;
    let connect = || TcpStream::connect(scene.address);
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(connect().await.unwrap());
    }
    let mut further = connect().await.unwrap();
    // The server waits longer for a TLS handshake.
    let read = tokio::time::timeout(Duration::from_secs(5), further.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(read.map_err(|error| error.kind()), Ok(0) | Err(ErrorKind::ConnectionReset)));
    // Another address has its own connections, and the place of a connection that ends is free again.
    *scene.from.lock().unwrap() = Ipv4Addr::new(127, 0, 0, 2);
    drop(scene.connect().await);
    open.pop();
    let mut is_free = false;
    for _ in 0..100 {
        let mut stream = connect().await.unwrap();
        let wait = Duration::from_millis(50);
        is_free = tokio::time::timeout(wait, stream.read(&mut [0; 1])).await.is_err();
        if is_free {
            break;
        }
    }
    assert!(is_free);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_draws_a_bootstrap_token_while_no_key_creates_keys() {
    let scene = Scene::new("locked-out").await;
    let first = scene.bootstrap_token();
    assert!(scene.restart().await);
    assert_ne!(scene.bootstrap_token(), first);
    assert_eq!(scene.ask("GET", "/v1/keys", Some(&first), &[], &Value::Null).await.status, 401);
    let root = scene.first_key().await;
    let (id, _) = scene.key(&root, &["keys:write"]).await;
    scene.key(&root, &["devices:read"]).await;
    assert!(!scene.restart().await);
    // The last two keys that create keys are deleted, the second by itself.
    let listed = scene.ask("GET", "/v1/keys", Some(&root), &[], &Value::Null).await;
    let of_root = listed.body["keys"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap());
    let root_id = of_root.filter(|other| *other != id).find(|id| root.contains(*id)).unwrap();
    for id in [&*id, root_id] {
        assert!(!scene.restart().await);
        assert_eq!(scene.ask("DELETE", &format!("/v1/keys/{id}"), Some(&root), &[], &Value::Null).await.status, 204);
    }
    assert!(scene.restart().await);
    scene.first_key().await;
    assert!(!scene.restart().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bootstrap_token_replaces_no_other_file() {
    let scene = Scene::new("precious").await;
    let file = scene.bootstrap_file();
    std::fs::write(&file, "[[rule]]").unwrap();
    let opened = Api::open(Arc::clone(&scene.service), scene.store.clone(), &file).await;
    assert!(matches!(opened, Err(KeysError::File(..))));
    assert_eq!(std::fs::read(&file).unwrap(), b"[[rule]]");
    std::fs::write(&file, "").unwrap();
    assert!(scene.restart().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_bad_request_reaches_the_store() {
    let scene = Scene::new("bad").await;
    let root = scene.first_key().await;
    let device = right_body("POST", "/v1/devices");
    let key = [("idempotency-key", "one")];
    let first = scene.ask("POST", "/v1/devices", Some(&root), &key, &device).await;
    assert_eq!(first.status, 201, "{first:?}");
    let before = scene.revision().await;
    // A repetition gets the answer of the first request, and another request with its key none.
    let again = scene.ask("POST", "/v1/devices", Some(&root), &key, &device).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("etag"), Some(first.header("etag").unwrap()));
    let other = json!({ "name": "hob", "kind": "protokey", "secret": "b2".repeat(32) });
    let wrong_key = token(&root);
    let large = json!({ "file": "policy.toml", "text": "#".repeat(3 << 20) });
    let no_json = Value::String("no device".to_owned());
    let untagged = json!({ "file": "p", "text": "[[rule]]\nsubject = 5\n" });
    let failing = json!({ "file": "p", "text": POLICY.replace("expect = \"allow\"", "expect = \"deny\"") });
    let ended = json!({ "name": "old", "scopes": ["revoke"], "expires": 1 });
    let short = json!({ "name": "hob", "kind": "protokey", "secret": "b2" });
    let any = ("if-match", "*");
    let (nobody, mixed) =
        (json!({ "session": "oven;AAECAwQFBgcI" }), json!({ "session": "oven;AAEC", "expires": later() }));
    let weak = format!("W/{}", first.header("etag").unwrap());
    let cases: [Case<'_>; 20] = [
        ("POST", "/v1/devices", Some(&root), &key, &other, (422, "idempotency-key-reused")),
        ("POST", "/v1/devices", Some(&root), &[("idempotency-key", "")], &other, (400, "malformed")),
        ("POST", "/v1/devices", None, &[], &other, (401, "unauthorized")),
        ("POST", "/v1/devices", Some(&wrong_key), &[], &other, (401, "unauthorized")),
        ("POST", "/v1/devices", Some(&root), &[], &no_json, (400, "malformed")),
        ("POST", "/v1/devices", Some(&root), &[], &short, (422, "invalid-device")),
        ("POST", "/v1/devices", Some(&root), &[], &device, (409, "name-taken")),
        ("PATCH", "/v1/devices/oven", Some(&root), &[], &json!({ "disabled": true }), (428, "if-match-missing")),
        ("DELETE", "/v1/devices/oven", Some(&root), &[("if-match", "\"1\"")], &Value::Null, (412, "changed-meanwhile")),
        ("DELETE", "/v1/devices/oven", Some(&root), &[("if-match", "\"x\"")], &Value::Null, (412, "changed-meanwhile")),
        ("DELETE", "/v1/devices/oven", Some(&root), &[("if-match", &weak)], &Value::Null, (412, "changed-meanwhile")),
        ("DELETE", "/v1/devices/oven", Some(&root), &[("if-match", "1")], &Value::Null, (400, "malformed")),
        ("DELETE", "/v1/devices/hob", Some(&root), &[any], &Value::Null, (404, "unknown-device")),
        ("PUT", "/v1/policy", Some(&root), &[any], &large, (413, "too-long")),
        ("PUT", "/v1/policy", Some(&root), &[any], &untagged, (422, "invalid-policy")),
        ("PUT", "/v1/policy", Some(&root), &[any], &failing, (422, "policy-fails-tests")),
        ("POST", "/v1/revocations", Some(&root), &[], &nobody, (404, "unknown-session")),
        ("POST", "/v1/revocations", Some(&root), &[], &mixed, (400, "malformed")),
        ("POST", "/v1/keys", Some(&root), &[], &ended, (400, "malformed")),
        ("POST", "/v1/nothing", Some(&root), &[], &Value::Null, (404, "no-route")),
    ];
    for (method, path, key, headers, body, expected) in cases {
        let answer = scene.ask(method, path, key, headers, body).await;
        assert_eq!((answer.status, answer.code()), expected, "{method} {path}: {answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{method} {path}");
        assert!(!answer.text.contains("b2b2"), "{answer:?}");
    }
    assert_eq!(scene.revision().await, before);
    // An address that sends wrong keys is refused after ten of them, with a right key too.
    for _ in 0..9 {
        assert_eq!(scene.ask("GET", "/v1/devices", Some(&wrong_key), &[], &Value::Null).await.status, 401);
    }
    scene.audited("a wrong API key from 127.0.0.1").await;
    let refused = scene.ask("GET", "/v1/devices", Some(&root), &[], &Value::Null).await;
    assert_eq!((refused.status, refused.code()), (429, "too-many-failures"));
    assert_eq!(scene.revision().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_cannot_be_read_is_answered_with_the_members_that_it_needs() {
    let scene = Scene::new("members").await;
    let root = scene.first_key().await;
    for (method, path, body, expected) in [
        (
            "PATCH",
            "/v1/devices/oven",
            json!({ "tag": ["s3cret"] }),
            "a field is unknown, expected `tags` or `disabled`",
        ),
        ("PATCH", "/v1/devices/oven", json!({ "s3cret, expected x": 1 }), "a field is unknown, expected `tags`"),
        ("POST", "/v1/devices", json!({ "name": "s3cret" }), "missing field `kind`"),
        (
            "POST",
            "/v1/devices",
            json!({ "name": 5, "kind": "s3cret" }),
            "a field is missing, unknown or of another type",
        ),
    ] {
        let refused = scene.ask(method, path, Some(&root), &[("if-match", "*")], &body).await;
        assert_eq!((refused.status, refused.code()), (400, "malformed"));
        assert!(refused.body["detail"].as_str().unwrap().contains(expected), "{refused:?}");
        assert!(!refused.text.contains("s3cret"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_listed_in_pages_and_never_with_their_secrets() {
    let scene = Scene::new("devices").await;
    let root = scene.first_key().await;
    for name in ["a", "b", "c", "d", "e"] {
        let device = json!({ "name": name, "tags": ["x"], "kind": "protokey", "secret": "a1".repeat(32) });
        let added = scene.ask("POST", "/v1/devices", Some(&root), &[], &device).await;
        assert_eq!(added.status, 201, "{added:?}");
        assert!(!added.text.contains("a1a1"));
    }
    let mut names = Vec::new();
    let mut path = "/v1/devices?limit=2".to_owned();
    loop {
        let page = scene.ask("GET", &path, Some(&root), &[], &Value::Null).await;
        assert!(!page.text.contains("a1a1"));
        let devices = page.body["devices"].as_array().unwrap().clone();
        assert!(devices.len() <= 2);
        names.extend(devices.iter().map(|device| device["name"].as_str().unwrap().to_owned()));
        let Some(next) = page.body["next"].as_str() else { break };
        path = format!("/v1/devices?limit=2&after={next}");
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    let shown = scene.ask("GET", "/v1/devices/a", Some(&root), &[], &Value::Null).await;
    let tag = shown.header("etag").unwrap().to_owned();
    let changes = json!({ "tags": ["y"], "disabled": true });
    let changed = scene.ask("PATCH", "/v1/devices/a", Some(&root), &[("if-match", &tag)], &changes).await;
    assert_eq!(changed.status, 204, "{changed:?}");
    let late = scene.ask("PATCH", "/v1/devices/a", Some(&root), &[("if-match", &tag)], &changes).await;
    assert_eq!((late.status, late.code()), (412, "changed-meanwhile"));
    let shown = scene.ask("GET", "/v1/devices/a", Some(&root), &[], &Value::Null).await;
    assert_eq!((&shown.body["tags"], &shown.body["disabled"]), (&json!(["y"]), &json!(true)));
    scene.audited("the device a was changed: its tags are [y], it is disabled").await;
    let proof = json!({ "kind": "shared-key", "secret": "b2".repeat(32) });
    let any = [("if-match", "*")];
    assert_eq!(scene.ask("PUT", "/v1/devices/a", Some(&root), &any, &proof).await.status, 204);
    scene.audited("the device a was changed: its credential is replaced by a shared-key, its tags are []").await;
    assert!(!scene.audit().contains("b2b2"));
    assert_eq!(shown.header("etag"), changed.header("etag"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_revoked_by_its_identity() {
    let scene = Scene::new("session").await;
    let root = scene.first_key().await;
    // The server knows the subscriber, the end and, of a session by token, the hash on the list.
    let token = [&[1][..], &[0x5a; 32]].concat();
    let session = AcceptedSession {
        identity: "oven;AAECAwQFBgcI".to_owned(),
        subscriber: "display".to_owned(),
        until: later(),
        token: Some(token.clone()),
    };
    scene.service.state().bind(&session, &Grounds::default(), later() - 3600).await.unwrap();
    // The rows in memory follow the store.
    let is_known = || {
        let sessions = scene.service.state().view().sessions(|known, _| known.as_str() == session.identity);
        !sessions.is_empty()
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !is_known() {
        assert!(std::time::Instant::now() < end, "the view does not have the session");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let body = json!({ "session": session.identity });
    let revoked = scene.ask("POST", "/v1/revocations", Some(&root), &[], &body).await;
    assert_eq!((revoked.status, &revoked.body), (201, &body));
    assert!(scene.service.state().view().is_revoked(&token));
    let listed = scene.ask("GET", "/v1/revocations", Some(&root), &[], &Value::Null).await;
    assert_eq!(listed.body["hashes"], json!([tegmen_base::hex::to_hex(&token)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn revocations_are_listed_in_pages() {
    let scene = Scene::new("revocations").await;
    let root = scene.first_key().await;
    let all: Vec<String> = (1..=5).map(|number| format!("01{}", format!("{number}c").repeat(32))).collect();
    for hash in &all {
        let token = json!({ "hash": hash, "expires": later(), "concerned": [] });
        assert_eq!(scene.ask("POST", "/v1/revocations", Some(&root), &[], &token).await.status, 201);
    }
    let (mut hashes, mut path) = (Vec::new(), "/v1/revocations?limit=2".to_owned());
    loop {
        let page = scene.ask("GET", &path, Some(&root), &[], &Value::Null).await;
        let listed = page.body["hashes"].as_array().unwrap();
        hashes.extend(listed.iter().map(|hash| hash.as_str().unwrap().to_owned()));
        assert!(listed.len() <= 2);
        let Some(next) = page.body["next"].as_str() else { break };
        path = format!("/v1/revocations?limit=2&after={next}");
    }
    assert_eq!(hashes, all);
    let wrong = scene.ask("GET", "/v1/revocations?after=x", Some(&root), &[], &Value::Null).await;
    assert_eq!((wrong.status, wrong.code()), (400, "malformed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_tested_compared_applied_and_explained() {
    let scene = Scene::new("policy").await;
    let root = scene.first_key().await;
    let tested = scene.ask("POST", "/v1/policy/test", Some(&root), &[], &policy()).await;
    assert_eq!(tested.body, json!({ "rules": 1, "tests": 1, "failed": [] }));
    let diff = scene.ask("POST", "/v1/policy/diff", Some(&root), &[], &policy()).await;
    assert_eq!(diff.body["added"].as_array().map(Vec::len), Some(1), "{diff:?}");
    let shown = scene.ask("GET", "/v1/policy", Some(&root), &[], &Value::Null).await;
    let tag = shown.header("etag").unwrap().to_owned();
    for expected in [204, 412] {
        let applied = scene.ask("PUT", "/v1/policy", Some(&root), &[("if-match", &tag)], &policy()).await;
        assert_eq!(applied.status, expected, "{applied:?}");
    }
    let shown = scene.ask("GET", "/v1/policy", Some(&root), &[], &Value::Null).await;
    assert_eq!(shown.body["text"], POLICY);
    let question = json!({ "subject": ["panel", "tag:display"], "publisher": ["oven"], "request": "GET /temp" });
    let explained = scene.ask("POST", "/v1/policy/explain", Some(&root), &[], &question).await;
    assert_eq!(explained.body["decision"], "allowed", "{explained:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_once_and_only_its_hash_is_stored() {
    let scene = Scene::new("keys").await;
    let root = scene.first_key().await;
    let body = json!({ "name": "ci", "scopes": ["policy:read"], "expires": later() - 100 });
    let once = [("idempotency-key", "ci")];
    let created = scene.ask("POST", "/v1/keys", Some(&root), &once, &body).await;
    let key = created.body["key"].as_str().unwrap().to_owned();
    let again = scene.ask("POST", "/v1/keys", Some(&root), &once, &body).await;
    assert_eq!((again.status, &again.body["id"], &again.body["key"]), (201, &created.body["id"], &Value::Null));
    let secret = key.rsplit('_').next().unwrap();
    let rows = scene.store.scan(tegmen_store::store::Scan::of("admin/", 1000)).await.unwrap();
    let stored: Vec<u8> = rows.entries.iter().filter_map(|row| row.value.plain()).flatten().copied().collect();
    assert!(!String::from_utf8_lossy(&stored).contains(secret));
    assert_eq!(scene.ask("GET", "/v1/policy", Some(&key), &[], &Value::Null).await.status, 200);
    let listed = scene.ask("GET", "/v1/keys", Some(&root), &[], &Value::Null).await;
    assert_eq!(listed.body["keys"].as_array().map(Vec::len), Some(2));
    let path = format!("/v1/keys/{}", created.body["id"].as_str().unwrap());
    assert_eq!(scene.ask("DELETE", &path, Some(&root), &[], &Value::Null).await.status, 204);
    assert_eq!(scene.ask("GET", "/v1/policy", Some(&key), &[], &Value::Null).await.status, 401);
    assert!(scene.audit().contains("was created: "), "{}", scene.audit());
    assert!(scene.audit().contains(", with the scopes policy:read, until "), "{}", scene.audit());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_revoked_only_at_devices_that_exist() {
    let scene = Scene::new("concerned").await;
    let root = scene.first_key().await;
    let device = right_body("POST", "/v1/devices");
    assert_eq!(scene.ask("POST", "/v1/devices", Some(&root), &[], &device).await.status, 201);
    let (hash, expires) = (format!("01{}", "5a".repeat(32)), later());
    let revoke = |concerned: &[&str]| json!({ "hash": hash, "expires": expires, "concerned": concerned });
    let before = scene.revision().await;
    let refused = scene.ask("POST", "/v1/revocations", Some(&root), &[], &revoke(&["oven", "ovenn"])).await;
    assert_eq!((refused.status, refused.code(), scene.revision().await), (404, "unknown-device", before));
    assert_eq!(scene.ask("POST", "/v1/revocations", Some(&root), &[], &revoke(&["oven"])).await.status, 201);
    scene.audited(&format!("{hash}, until {expires}, at the devices: oven")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_has_the_scopes_that_the_configuration_gives() {
    let mut scene = Scene::new("certificates").await;
    for (client, devices, policy) in [(0, 200, 403), (1, 403, 200)] {
        scene.use_client(client);
        assert_eq!(scene.ask("GET", "/v1/devices", None, &[], &Value::Null).await.status, devices);
        assert_eq!(scene.ask("GET", "/v1/policy", None, &[], &Value::Null).await.status, policy);
        // A wrong key is not made good by a certificate.
        let wrong = format!("tegmen_0123456789abcdef_{}", "0".repeat(64));
        assert_eq!(scene.ask("GET", "/v1/devices", Some(&wrong), &[], &Value::Null).await.status, 401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_configuration_is_in_force_for_requests_of_connections_that_continue() {
    let mut scene = Scene::new("configured-again").await;
    scene.use_client(0);
    let mut connection = scene.connect().await;
    let mut ask = async |expected: u16| {
        let request = b"GET /v1/devices HTTP/1.1\r\nhost: localhost\r\n\r\n";
        connection.write_all(request).await.unwrap();
        let (mut answer, mut part) = (String::new(), [0; 4096]);
        // The body of each answer is an object of JSON, whose last byte is its end.
        while !(answer.contains("\r\n\r\n") && answer.ends_with('}')) {
            let read = connection.read(&mut part).await.unwrap();
            assert!(read > 0, "the connection was closed: {answer}");
            answer += std::str::from_utf8(&part[..read]).unwrap();
        }
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{answer}");
    };
    ask(200).await;
    scene.accept(|clients| clients.scopes.clear());
    ask(403).await;
    let other = scene.other_authority();
    scene.accept(|clients| clients.roots = other);
    ask(401).await;
    scene.accept(|_| ());
    ask(200).await;
}
