//! Tests of the stream of events, over the listener, TLS and a database in a file.

#[allow(dead_code, reason = "each test uses its part")]
mod common;

use common::events::Follower;
use common::{Scene, later};
use serde_json::{Value, json};
use std::sync::Arc;
use tegmen_admin::Scope;
use tegmen_store::{Store, Transaction};

fn device(name: &str) -> Value {
    json!({ "name": name, "tags": ["x"], "kind": "protokey", "secret": "a1".repeat(32) })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_cut_off_anywhere_misses_no_event_and_gets_none_twice() {
    let scene = Arc::new(Scene::new("events-cut").await);
    let root = scene.first_key().await;
    let names: Vec<String> = (0..150).map(|number| format!("device-{number}")).collect();
    let mut follower = Follower::new(&scene, Some(&root), None).await;
    let mut last = follower.block().await.unwrap().id.unwrap();
    let (writing, key, added) = (Arc::clone(&scene), root.clone(), names.clone());
    let writer = tokio::spawn(async move {
        for name in &added {
            assert_eq!(writing.ask("POST", "/v1/devices", Some(&key), &[], &device(name)).await.status, 201);
        }
    });
    let (mut seen, mut cuts, mut random) = (Vec::new(), 0, 1_u32);
    while seen.len() < names.len() {
        // A linear congruential generator: the number of bytes of a block that come before the connection is cut.
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let Some(block) = follower.block_within((random >> 16) as usize % 600 + 1).await else {
            cuts += 1;
            follower = Follower::new(&scene, Some(&root), Some(last)).await;
            continue;
        };
        let id = block.id.unwrap();
        assert!(id > last || block.event.is_empty(), "{block:?} after {last}");
        seen.extend(block.changes().map(|change| {
            assert_eq!(change["change"], "device-added");
            change["device"]["name"].as_str().unwrap().to_owned()
        }));
        last = id;
    }
    assert_eq!(seen, names);
    assert!(cuts > 10, "{cuts} cuts");
    writer.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_change_is_an_event_and_no_event_has_a_secret() {
    let scene = Scene::new("events-kinds").await;
    let root = scene.first_key().await;
    let mut follower = Follower::new(&scene, Some(&root), None).await;
    let policy = json!({ "file": "p", "text": "[[rule]]\nsubject = \"a\"\npublisher = \"b\"\nallow = \"read /*\"\n" });
    let any = [("if-match", "*")];
    let token =
        |digits: &str| json!({ "hash": format!("01{}", digits.repeat(32)), "expires": later(), "concerned": ["a"] });
    let key = json!({ "name": "one", "scopes": ["revoke"], "expires": later() - 100 });
    let ask = async |method, path: &str, body| scene.ask(method, path, Some(&root), &any, &body).await;
    ask("POST", "/v1/devices", device("a")).await;
    ask("PATCH", "/v1/devices/a", json!({ "tags": ["y"] })).await;
    ask("PUT", "/v1/policy", policy).await;
    ask("POST", "/v1/revocations", token("5a")).await;
    ask("POST", "/v1/revocations", token("5b")).await;
    let created = ask("POST", "/v1/keys", key).await;
    let id = created.body["id"].as_str().unwrap();
    ask("DELETE", &format!("/v1/keys/{id}"), Value::Null).await;
    let switch = json!({ "member": { "name": "a", "sends": true } });
    ask("POST", "/v1/groups", json!({ "name": "lamps", "address": "[ff15::1]:5684", "last_epoch": 9 })).await;
    ask("POST", "/v1/groups/lamps/members", switch).await;
    ask("DELETE", "/v1/groups/lamps/members/a", Value::Null).await;
    ask("POST", "/v1/groups/lamps/rekey", Value::Null).await;
    ask("DELETE", "/v1/groups/lamps", Value::Null).await;
    ask("DELETE", "/v1/devices/a", Value::Null).await;
    let row = |digits: &str| format!("access/revoked/01{}", digits.repeat(32));
    // Both in one transaction, as at their end: one event.
    scene.store.commit(Transaction::default().delete(row("5a")).delete(row("5b"))).await.unwrap();
    let expected: [&[(&str, &str, Value)]; 14] = [
        &[("device-added", "/device/tags", json!(["x"]))],
        &[("device-changed", "/device/tags", json!(["y"]))],
        &[("policy-applied", "/file", json!("p"))],
        &[("token-revoked", "/hash", json!(format!("01{}", "5a".repeat(32))))],
        &[("token-revoked", "/concerned", json!(["a"]))],
        &[("key-created", "/key/id", json!(id))],
        &[("key-deleted", "/id", json!(id))],
        &[("group-created", "/config/address", json!("[ff15::1]:5684"))],
        &[("member-admitted", "/member/sender_id", json!(0)), ("epoch-began", "/epochs_left", json!(7))],
        &[("member-left", "/name", json!("a")), ("epoch-began", "/epoch", json!(3))],
        &[("epoch-began", "/group", json!("lamps"))],
        &[("group-deleted", "/group", json!("lamps"))],
        &[("device-removed", "/name", json!("a"))],
        &[
            ("revocation-expired", "/hash", json!(format!("01{}", "5a".repeat(32)))),
            ("revocation-expired", "/hash", json!(format!("01{}", "5b".repeat(32)))),
        ],
    ];
    for expected in expected {
        let event = follower.event("changes").await;
        assert_eq!(event.id, event.data["revision"].as_u64());
        let changes: Vec<_> = event.changes().collect();
        assert_eq!(changes.len(), expected.len(), "{event:?}");
        for (change, (kind, pointer, value)) in changes.into_iter().zip(expected) {
            assert_eq!((&change["change"], change.pointer(pointer)), (&json!(kind), Some(value)), "{event:?}");
        }
        let text = event.data.to_string();
        assert!(!text.contains("a1a1") && !text.contains(root.rsplit('_').next().unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_blocks_no_change_and_learns_that_history_is_gone() {
    let scene = Scene::new("events-slow").await;
    let root = scene.first_key().await;
    let mut slow = Follower::new(&scene, Some(&root), None).await;
    // More than all buffers on the way hold, while nobody reads.
    let concerned: Vec<String> = (0..1000).map(|number| format!("{number:050}")).collect();
    let row =
        tegmen_store::Value::Plain(json!({ "expires": later(), "concerned": concerned }).to_string().into_bytes());
    for number in 0..30 {
        let names = (0..18).map(|place| format!("access/revoked/01{number:032x}{place:032x}"));
        let transaction = names.fold(Transaction::default(), |whole, name| whole.put(name, row.clone()));
        scene.store.commit(transaction).await.unwrap();
    }
    scene.store.compact(scene.revision().await).await.unwrap();
    let mut last = None;
    let end = loop {
        let block = slow.block().await.expect("the stream ended without a reason");
        last = block.id.or(last);
        if block.event == "end" {
            break block;
        }
    };
    assert_eq!(end.data["code"], "history-gone");
    assert!(slow.block().await.is_none());
    for gone in [last.unwrap(), u64::MAX] {
        let gone = gone.to_string();
        let refused = scene.ask("GET", "/v1/events", Some(&root), &[("last-event-id", &gone)], &Value::Null).await;
        assert_eq!((refused.status, refused.code()), (410, "history-gone"));
    }
    let wrong = scene.ask("GET", "/v1/events", Some(&root), &[("last-event-id", "x")], &Value::Null).await;
    assert_eq!((wrong.status, wrong.code()), (400, "malformed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_the_key_that_opened_it() {
    let scene = Scene::new("events-key").await;
    let root = scene.first_key().await;
    let (id, key) = scene.key(&root, &["audit:read"]).await;
    let mut follower = Follower::new(&scene, Some(&key), None).await;
    assert_eq!(scene.ask("DELETE", &format!("/v1/keys/{id}"), Some(&root), &[], &Value::Null).await.status, 204);
    assert_eq!(scene.ask("POST", "/v1/devices", Some(&root), &[], &device("a")).await.status, 201);
    let first = follower.block().await.unwrap();
    assert_eq!(first.event, "");
    let end = follower.block().await.unwrap();
    assert_eq!((end.event.as_str(), &end.data["code"]), ("end", &json!("unauthorized")));
    assert!(follower.block().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn further_streams_are_refused_until_one_ends() {
    let scene = Scene::new("events-many").await;
    let root = scene.first_key().await;
    let mut streams = Vec::new();
    for _ in 0..32 {
        streams.push(Follower::new(&scene, Some(&root), None).await);
    }
    let refused = scene.ask("GET", "/v1/events", Some(&root), &[], &Value::Null).await;
    assert_eq!((refused.status, refused.code()), (503, "too-many-streams"));
    streams.pop();
    while scene.ask("GET", "/v1/events", Some(&root), &[], &Value::Null).await.status != 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_the_certificate_that_opened_it() {
    let mut scene = Scene::new("events-certificate").await;
    let root = scene.first_key().await;
    scene.use_client(1);
    scene.accept(|clients| clients.others = [Scope::AuditRead].into());
    let mut follower = Follower::new(&scene, None, None).await;
    scene.accept(|clients| clients.others.clear());
    assert_eq!(scene.ask("POST", "/v1/devices", Some(&root), &[], &device("a")).await.status, 201);
    assert_eq!(follower.block().await.unwrap().event, "");
    let end = follower.block().await.unwrap();
    assert_eq!((end.event.as_str(), &end.data["code"]), ("end", &json!("unauthorized")));
}
