//! Tests of users, and of their logins with passwords.

#[allow(dead_code, reason = "each test uses its part")]
mod common;

use common::logins::{content, request, request_of};
use common::{Answer, Scene, later};
use rcgen::KeyPair;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use tegmen_admin::LoginAuthority as _;
use tegmen_base::hex::to_hex;
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::state::{Credential, NewDevice};
use tegmen_store::store::Scan;
use tegmen_store::{Store as _, Transaction};
use zeroize::Zeroizing;

const RIGHT: &str = "correct horse battery";
const WRONG: &str = "incorrect horse battery";

/// A server with the users alice and bob.
struct World {
    scene: Scene,
    root: String,
}

impl World {
    async fn new(name: &str) -> Self {
        let scene = Scene::new(name).await;
        let root = scene.first_key().await;
        let world = Self { scene, root };
        for (name, password) in [("alice", RIGHT), ("bob", "the password of b.")] {
            let added = world.ask("POST", "/v1/users", json!({ "name": name, "password": password })).await;
            assert_eq!(added.status, 201, "{added:?}");
            assert_eq!(added.body, json!({ "name": name, "disabled": false, "lifetime": 8 * 3600 }));
        }
        world
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> Answer {
        self.scene.ask(method, path, Some(&self.root), &[], &body).await
    }

    async fn log_in(&self, name: &str, password: &str) -> Answer {
        self.log_in_with(name, password, &request(name)).await
    }

    async fn log_in_with(&self, name: &str, password: &str, request: &str) -> Answer {
        let body = json!({ "name": name, "password": password, "request": request });
        let answer = self.scene.ask("POST", "/v1/login", None, &[], &body).await;
        assert!(!answer.text.contains(password));
        answer
    }

    /// Tries to log in. Checks that the server sends the same answer as for every refused login, and issues no
    /// certificate.
    async fn is_refused(&self, name: &str, password: &str) {
        let before = self.scene.logins.given.lock().unwrap().clone();
        let refused = self.log_in(name, password).await;
        assert_eq!((refused.status, refused.code()), (403, "login-refused"));
        let detail = "no enabled user has this name and this password: try again, or ask an operator";
        assert_eq!(refused.body["detail"], detail);
        assert_eq!(*self.scene.logins.given.lock().unwrap(), before);
    }

    /// Returns the row of a user as JSON.
    async fn row(&self, name: &str) -> Value {
        let entry = self.scene.store.read(format!("admin/user/{name}").as_bytes(), None).await.unwrap().entry.unwrap();
        match entry.value {
            tegmen_store::Value::Secret(bytes) => serde_json::from_slice(&bytes).unwrap(),
            other => panic!("{other:?} is not sealed"),
        }
    }

    /// Writes the row of a user without the checks of the interface.
    async fn write_row(&self, name: &str, row: &Value) {
        let value = tegmen_store::Value::Secret(Zeroizing::new(row.to_string().into_bytes()));
        self.scene.store.commit(Transaction::default().put(format!("admin/user/{name}"), value)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_gets_no_certificate() {
    let world = World::new("wrong-password").await;
    world.is_refused("alice", WRONG).await;
    world.is_refused("alice", &RIGHT[1..]).await;
    world.is_refused("bob", RIGHT).await;
    let logged_in = world.log_in("alice", RIGHT).await;
    assert_eq!(logged_in.status, 200, "{logged_in:?}");
    world.scene.audited("refused (wrong-password)").await;
    world.scene.audited("a login from 127.0.0.1: a certificate until").await;
    // The mutant: the server compares with the hash of the wrong password. The attack succeeds.
    let added = world.ask("POST", "/v1/users", json!({ "name": "mallory", "password": WRONG })).await;
    assert_eq!(added.status, 201);
    world.write_row("alice", &world.row("mallory").await).await;
    assert_eq!(world.log_in("alice", WRONG).await.status, 200);
    assert_eq!(world.scene.logins.given.lock().unwrap().len(), 2);
    let audit = world.scene.audit();
    assert!(!audit.contains(WRONG) && !audit.contains(RIGHT), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_user_takes_as_long_as_a_known_one() {
    let world = World::new("unknown-user").await;
    let disabled = world.ask("PATCH", "/v1/users/bob", json!({ "disabled": true })).await;
    assert_eq!(disabled.status, 200, "{disabled:?}");
    let compared = || world.scene.api.passwords_compared();
    // Each computes one hash.
    for (name, password) in [("alice", WRONG), ("nobody", WRONG), ("bob", "the password of b."), ("bob", WRONG)] {
        let before = compared();
        world.is_refused(name, password).await;
        assert_eq!(compared(), before + 1, "{name}");
    }
    // A login without a hash is not counted: this one is refused before its password is read.
    let before = compared();
    assert_eq!(world.log_in_with("alice", RIGHT, "no request").await.code(), "malformed");
    assert_eq!(compared(), before);
    world.scene.audited("refused (unknown-user)").await;
    world.scene.audited("refused (user-disabled)").await;
    // An unknown name may be a password that was typed in the wrong place.
    assert!(!world.scene.audit().contains("nobody"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_certificate_is_of_its_user_alone() {
    let world = World::new("own-name").await;
    let key = KeyPair::generate().unwrap();
    let logged_in = world.log_in_with("alice", RIGHT, &request_of("alice", &key)).await;
    let certificate = content(logged_in.body["certificate"].as_str().unwrap());
    assert_eq!((certificate.subject.as_str(), certificate.names.len()), ("CN=alice", 0));
    assert!(certificate.spki.ends_with(key.public_key_raw()));
    let end = certificate.not_after.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(logged_in.body["expires"], end);
    // A request for the name of another user, for more names, or by somebody without the key.
    let mut spoiled: Vec<String> = request("alice").lines().map(str::to_owned).collect();
    let last = spoiled.len() - 2;
    let other = if spoiled[last].starts_with('A') { "B" } else { "A" };
    spoiled[last].replace_range(..1, other);
    for request in [request("bob"), request("alice,CN=bob"), request(""), spoiled.join("\n")] {
        let refused = world.log_in_with("alice", RIGHT, &request).await;
        assert_eq!((refused.status, refused.code()), (400, "malformed"), "{refused:?}");
    }
    assert_eq!(world.scene.logins.given.lock().unwrap().len(), 1);
    // The mutant: a server that takes the name from the request. The authority itself certifies each name.
    let mutant = world.scene.logins.certify("bob", &certificate.spki, std::time::Duration::from_secs(60)).unwrap();
    assert_eq!(content(&mutant.certificate).subject, "CN=bob");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_user_has_the_name_of_a_device_or_of_another_certificate() {
    let world = World::new("names").await;
    let device = |name: &str| {
        let digest = to_hex(&tegmen_trust::digest::sha256(name.as_bytes()));
        json!({ "name": name, "kind": "certificate", "sha256": digest })
    };
    for name in ["oven", "CN=hob"] {
        assert_eq!(world.ask("POST", "/v1/devices", device(name)).await.status, 201);
    }
    let config = json!({ "address": "[fd00::1]:5684", "scopes": [["GET /temp"]] });
    let lamp = json!({ "name": "lamp.example", "config": &config });
    assert_eq!(world.ask("POST", "/v1/delegation/devices", lamp).await.status, 201);
    let refused = world.ask("POST", "/v1/delegation/devices", json!({ "name": "alice", "config": config })).await;
    assert_eq!((refused.status, refused.code()), (409, "name-taken"), "{refused:?}");
    let expected = |name: &str| json!({ "name": name, "kind": "certificate", "expires": later() });
    for name in ["CN=panel", "stove"] {
        assert_eq!(world.ask("POST", "/v1/enrolments", expected(name)).await.status, 201);
    }
    for name in ["alice", "CN=bob"] {
        for (path, body) in [("/v1/devices", device(name)), ("/v1/enrolments", expected(name))] {
            let refused = world.ask("POST", path, body).await;
            assert_eq!((refused.status, refused.code()), (409, "name-taken"), "{path} {name}");
        }
    }
    for name in ["oven", "hob", "panel", "stove", "lamp.example", "reader", "alice"] {
        let refused = world.ask("POST", "/v1/users", json!({ "name": name, "password": RIGHT })).await;
        assert_eq!((refused.status, refused.code()), (409, "name-taken"), "{name}");
    }
    for name in ["", "Alice", "a,CN=b", "-a", "a/b", "a b", "ä", &"a".repeat(65)] {
        let refused = world.ask("POST", "/v1/users", json!({ "name": name, "password": RIGHT })).await;
        assert_eq!((refused.status, refused.code()), (422, "invalid-user"), "{name}");
    }
    // If a device gets the name of a user all the same, the user cannot log in any more.
    assert_eq!(world.log_in("alice", RIGHT).await.status, 200);
    let party = OwnedParty::new("CN=alice", Vec::new()).unwrap();
    let device = NewDevice::public(party, Credential::Certificate([1; 32])).unwrap();
    world.scene.service.state().add(&device).await.unwrap();
    let refused = world.log_in("alice", RIGHT).await;
    assert_eq!((refused.status, refused.code()), (409, "name-taken"));
    assert_eq!(world.scene.logins.given.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_user_cannot_log_in() {
    let world = World::new("disabled-user").await;
    assert_eq!(world.log_in("alice", RIGHT).await.status, 200);
    assert_eq!(world.log_in("bob", "the password of b.").await.status, 200);
    let disabled = world.ask("PATCH", "/v1/users/alice", json!({ "disabled": true })).await;
    assert_eq!((disabled.status, disabled.body), (200, json!({ "certificates": 1, "connections": [] })));
    assert_eq!(world.scene.logins.given.lock().unwrap().len(), 1, "that of bob is left");
    world.is_refused("alice", RIGHT).await;
    world.scene.audited("refused (user-disabled)").await;
    // The mutant: a server that does not look at the row.
    let mut row = world.row("alice").await;
    row["disabled"] = json!(false);
    world.write_row("alice", &row).await;
    assert_eq!(world.log_in("alice", RIGHT).await.status, 200);
    // Another password ends the logins by the old one.
    let changed = world.ask("PATCH", "/v1/users/alice", json!({ "password": WRONG, "lifetime": 60 })).await;
    assert_eq!((changed.status, &changed.body["certificates"]), (200, &json!(1)));
    world.is_refused("alice", RIGHT).await;
    let logged_in = world.log_in("alice", WRONG).await;
    assert!(logged_in.body["expires"].as_u64().unwrap() <= later() - 3600 + 61, "{logged_in:?}");
    let removed = world.ask("DELETE", "/v1/users/alice", Value::Null).await;
    assert_eq!((removed.status, &removed.body["certificates"]), (200, &json!(1)));
    world.is_refused("alice", WRONG).await;
    let refused = world.ask("DELETE", "/v1/users/alice", Value::Null).await;
    assert_eq!((refused.status, refused.code()), (404, "unknown-user"));
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_from_many_addresses_are_slowed_and_lock_nobody_out() {
    let world = World::new("guesses").await;
    let from = |last: u8| *world.scene.from.lock().unwrap() = Ipv4Addr::new(127, 0, 0, last);
    assert_eq!(world.log_in("alice", RIGHT).await.status, 200);
    for address in [2, 3] {
        from(address);
        for _ in 0..5 {
            world.is_refused("alice", WRONG).await;
        }
    }
    // No address sent ten of them. A guess from a further one is not compared, whether it is right or not.
    from(4);
    let compared = world.scene.api.passwords_compared();
    for password in [WRONG, RIGHT] {
        let refused = world.log_in("alice", password).await;
        assert_eq!((refused.status, refused.code()), (429, "too-many-failures"));
    }
    assert_eq!(world.scene.api.passwords_compared(), compared);
    assert_eq!(world.log_in("bob", "the password of b.").await.status, 200);
    // The user continues where she logged in before.
    from(1);
    assert_eq!(world.log_in("alice", RIGHT).await.status, 200);
    for _ in 0..10 {
        world.is_refused("alice", WRONG).await;
    }
    assert_eq!(world.log_in("bob", RIGHT).await.code(), "too-many-failures", "this address sent ten");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_long_enough_and_only_its_hash_is_stored() {
    let world = World::new("passwords").await;
    for (password, words) in [
        ("eleven char".to_owned(), "too short"),
        ("a".repeat(129), "too long"),
        ("carol's password".to_owned(), "contains the name"),
    ] {
        let body = json!({ "name": "carol", "password": password });
        let refused = world.ask("POST", "/v1/users", body).await;
        assert_eq!((refused.status, refused.code()), (422, "invalid-user"));
        assert!(refused.body["detail"].as_str().unwrap().contains(words), "{refused:?}");
        let changed =
            world.ask("PATCH", "/v1/users/bob", json!({ "password": password.replace("carol", "bob") })).await;
        assert_eq!((changed.status, changed.code()), (422, "invalid-user"));
    }
    for lifetime in [59, 30 * 24 * 3600 + 1] {
        let body = json!({ "name": "carol", "password": RIGHT, "lifetime": lifetime });
        assert_eq!(world.ask("POST", "/v1/users", body).await.code(), "invalid-user");
    }
    let hash = world.row("alice").await["hash"].as_str().unwrap().to_owned();
    assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
    let rows = world.scene.store.scan(Scan::of("admin/", 1000)).await.unwrap();
    let plain: Vec<u8> = rows.entries.iter().filter_map(|row| row.value.plain()).flatten().copied().collect();
    assert!(!String::from_utf8_lossy(&plain).contains(&hash), "it is sealed");
    // A stored hash of the body of a request would be a fast hash of the password.
    let body = json!({ "name": "carol", "password": RIGHT });
    let key = [("idempotency-key", "carol")];
    let added = world.scene.ask("POST", "/v1/users", Some(&world.root), &key, &body).await;
    assert_eq!(added.status, 201, "{added:?}");
    assert!(world.scene.store.scan(Scan::of("admin/replay/", 10)).await.unwrap().entries.is_empty());
    let (mut names, mut path) = (Vec::new(), "/v1/users?limit=1".to_owned());
    loop {
        let page = world.ask("GET", &path, Value::Null).await;
        assert!(!page.text.contains("argon2"), "{page:?}");
        names.extend(
            page.body["users"].as_array().unwrap().iter().map(|user| user["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page.body["next"].as_str() else { break };
        path = format!("/v1/users?limit=1&after={next}");
    }
    assert_eq!(names, ["alice", "bob", "carol"]);
    assert_eq!(
        world.ask("GET", &format!("/v1/users?after={}", to_hex(b"bob")), Value::Null).await.body["users"][0]["name"],
        "carol"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_an_authority_logs_nobody_in() {
    let world = World::new("login-without-groups").await;
    let refused = world.log_in("alice", RIGHT).await;
    assert_eq!((refused.status, refused.code()), (501, "no-logins"));
    // Nobody makes the server read more than a login has.
    let large = json!({ "name": "a".repeat(20_000), "password": RIGHT, "request": "" });
    let refused = world.scene.ask("POST", "/v1/login", None, &[], &large).await;
    assert_eq!((refused.status, refused.code()), (413, "too-long"));
}
