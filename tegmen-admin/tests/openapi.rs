//! Tests of the OpenAPI document. All other tests of the interface also check their requests and answers against it.

#[allow(dead_code, reason = "each test uses its part")]
mod common;

use common::document::{DOCUMENT, mistakes, operation, target};
use common::logins::request;
use common::{Scene, filled, later};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tegmen_admin::Api;
use tegmen_base::secret::Secret;
use tegmen_store::Database;

#[test]
fn the_committed_document_is_made_from_the_handlers() {
    assert!(
        *DOCUMENT == Api::<Database>::document(),
        "the operations have changed: write the document again with cargo run -p tegmen-admin --example openapi \
         >openapi.json && mv openapi.json tegmen-admin/"
    );
}

/// Returns all operations of the document: for each its method, its path and its description.
fn operations() -> Vec<(String, String, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object().unwrap().iter();
    let operations = paths.flat_map(|(path, operations)| {
        operations.as_object().unwrap().iter().map(move |(method, one)| (method.to_uppercase(), path.clone(), one))
    });
    operations.collect()
}

#[test]
fn each_reference_has_a_target_and_each_operation_a_name_of_its_own() {
    fn references(value: &Value, found: &mut Vec<Value>) {
        found.extend(value.get("$ref").cloned());
        value.as_object().into_iter().flatten().for_each(|(_, value)| references(value, found));
        value.as_array().into_iter().flatten().for_each(|value| references(value, found));
    }
    let mut found = Vec::new();
    references(&DOCUMENT, &mut found);
    assert!(found.len() > 50);
    assert!(found.iter().all(|reference| target(reference).is_object()));
    let names: BTreeSet<_> = operations().iter().map(|(_, _, one)| one["operationId"].to_string()).collect();
    assert_eq!(names.len(), operations().len());
}

#[test]
fn a_body_that_its_schema_does_not_have_is_a_mistake() {
    let schema = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let device =
        json!({ "name": "a", "tags": [], "kind": "protokey", "sha256": null, "disabled": false, "address": null });
    assert_eq!(mistakes(&schema("Device"), &device), Vec::<String>::new());
    for (field, wrong) in [("name", json!(1)), ("kind", json!("key")), ("tags", json!([1])), ("disabled", Value::Null)]
    {
        let mut device = device.clone();
        device[field] = wrong;
        assert_eq!(mistakes(&schema("Device"), &device).len(), 1, "{field}");
        device.as_object_mut().unwrap().remove(field);
        assert_eq!(mistakes(&schema("Device"), &device).len(), 1, "{field}");
    }
    let both = json!({ "session": "a;b", "hash": "01", "expires": 1, "concerned": [] });
    assert!(!mistakes(&schema("Revocation"), &both).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_has_the_routes_of_the_router_and_no_others() {
    let scene = Scene::new("document").await;
    for path in DOCUMENT["paths"].as_object().unwrap().keys() {
        let address = filled(path);
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let answer = scene.ask(method, &address, None, &[], &Value::Null).await;
            match operation(method, &address) {
                None => assert_eq!(answer.code(), "no-method", "{method} {path}"),
                // Without a body a login is malformed.
                Some(one) if one["security"] == json!([]) => {
                    assert!(answer.status == 200 || answer.code() == "malformed", "{method} {path}");
                }
                Some(_) => assert_eq!(answer.code(), "unauthorized", "{method} {path}"),
            }
        }
    }
    let paths: BTreeSet<_> = Api::<Database>::routes().iter().map(|route| route.path.to_owned()).collect();
    assert_eq!(paths, DOCUMENT["paths"].as_object().unwrap().keys().cloned().collect());
    let served = scene.ask("GET", "/v1/openapi.json", None, &[], &Value::Null).await;
    assert_eq!(served.body, *DOCUMENT);
}

/// Calls the operations on delegated devices, and checks that each operation succeeds. Returns the names of the
/// operations. The policy allows the device `a` to read at the device `b`.
async fn delegated(scene: &Scene, root: &str) -> BTreeSet<&'static str> {
    let config = json!({ "address": "[fd00::1]:5684", "scopes": [["GET /temp"]] });
    let new = |name: &str| ("POST", "/v1/delegation/devices", json!({ "name": name, "config": config }));
    let before = [new("a"), new("b"), ("GET", "/v1/delegation/devices?limit=1", Value::Null)];
    let behind = [
        ("POST", "/v1/delegation/introductions", json!({ "opener": "a", "other": "b" })),
        ("GET", "/v1/delegation/devices/b", Value::Null),
        ("GET", "/v1/delegation/devices/b/connections", Value::Null),
        ("GET", "/v1/delegation/devices/b/unaccounted", Value::Null),
        ("DELETE", "/v1/delegation/devices/b/connections/1-0", Value::Null),
        ("GET", "/v1/delegation/devices/b/reset", Value::Null),
        ("POST", "/v1/delegation/devices/b/reset", Value::Null),
        ("GET", "/v1/delegation/devices/b/reissue", Value::Null),
        ("POST", "/v1/delegation/devices/b/reissue", Value::Null),
        ("PUT", "/v1/delegation/devices/b", config.clone()),
        ("PATCH", "/v1/delegation/devices/b", json!({ "disabled": true })),
        ("POST", "/v1/delegation/devices/b/imprint", Value::Null),
        ("POST", "/v1/delegation/server-compromised", json!({ "devices": ["a"] })),
    ];
    let mut seen = BTreeSet::new();
    for (steps, epoch) in [(&before[..], true), (&behind[..], false)] {
        for (method, path, body) in steps {
            let answer = scene.ask(method, path, Some(root), &[("if-match", "*")], body).await;
            assert!((200..300).contains(&answer.status), "{method} {path}: {answer:?}");
            seen.insert(operation(method, path).unwrap()["operationId"].as_str().unwrap());
        }
        for name in ["a", "b"].into_iter().filter(|_| epoch) {
            let next = scene.delegations.begin_epoch(name, &Secret::new([5; 32])).await.unwrap();
            scene.delegations.epoch_begun(name, next).await.unwrap();
            scene.delegations.settle().await.unwrap();
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_succeeds_as_the_document_describes_it() {
    let scene = Scene::new("described").await;
    let root = scene.first_key().await;
    let policy = json!({ "text": "[[rule]]\nsubject = \"a\"\npublisher = \"b\"\nallow = \"read /*\"\n" });
    let question = json!({ "subject": ["a"], "publisher": ["b"], "request": "GET /temp" });
    let device = json!({ "name": "a", "tags": ["x"], "kind": "certificate", "sha256": "1f".repeat(32) });
    let token = json!({ "hash": format!("01{}", "5a".repeat(32)), "expires": later(), "concerned": ["a"] });
    let key = json!({ "name": "one", "scopes": ["revoke"], "expires": later() - 100 });
    let enrolment = json!({ "name": "b", "tags": ["x"], "kind": "protokey", "expires": later() - 100 });
    let hall = json!({ "name": "hall", "address": "fd00::1" });
    let group = json!({ "name": "lamps", "address": "[ff15::1]:5684", "members": [hall], "controller": "coaps://a" });
    let login = json!({ "name": "alice", "password": "correct horse battery", "request": request("alice") });
    let shared = |name: &str| json!({ "name": name, "kind": "shared-key", "secret": "07".repeat(16) });
    let steps = [
        ("POST", "/v1/devices", device),
        ("GET", "/v1/devices?limit=1", Value::Null),
        ("PUT", "/v1/devices/a", json!({ "kind": "protokey", "secret": "a1".repeat(32) })),
        ("PATCH", "/v1/devices/a", json!({ "disabled": true })),
        ("GET", "/v1/devices/a", Value::Null),
        ("POST", "/v1/enrolments", enrolment),
        ("GET", "/v1/enrolments?limit=1", Value::Null),
        ("DELETE", "/v1/enrolments/b", Value::Null),
        ("PUT", "/v1/policy", policy.clone()),
        ("GET", "/v1/policy", Value::Null),
        ("POST", "/v1/policy/test", policy.clone()),
        ("POST", "/v1/policy/diff", policy),
        ("POST", "/v1/policy/explain", question),
        ("POST", "/v1/revocations", token),
        ("GET", "/v1/revocations", Value::Null),
        ("DELETE", "/v1/devices/a", Value::Null),
        ("POST", "/v1/keys", key),
        ("GET", "/v1/keys", Value::Null),
        ("POST", "/v1/devices", shared("hall")),
        ("POST", "/v1/devices", shared("switch")),
        ("POST", "/v1/groups", group),
        ("GET", "/v1/groups?limit=1", Value::Null),
        ("POST", "/v1/groups/lamps/members", json!({ "member": { "name": "switch", "sends": true } })),
        ("GET", "/v1/groups/lamps?limit=1", Value::Null),
        ("POST", "/v1/groups/lamps/rekey", Value::Null),
        ("DELETE", "/v1/groups/lamps/members/switch", Value::Null),
        ("DELETE", "/v1/groups/lamps", Value::Null),
        ("POST", "/v1/users", json!({ "name": "alice", "password": "correct horse battery", "lifetime": 60 })),
        ("GET", "/v1/users?limit=1", Value::Null),
        ("PATCH", "/v1/users/alice", json!({ "lifetime": 3600 })),
        ("POST", "/v1/login", login),
        ("DELETE", "/v1/users/alice", Value::Null),
        ("GET", "/v1/events", Value::Null),
        ("GET", "/v1/openapi.json", Value::Null),
    ];
    let mut seen = BTreeSet::new();
    let mut id = String::new();
    for (method, path, body) in steps {
        let answer = scene.ask(method, path, Some(&root), &[("if-match", "*")], &body).await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {answer:?}");
        seen.insert(operation(method, path).unwrap()["operationId"].as_str().unwrap());
        id = answer.body["id"].as_str().map_or(id, str::to_owned);
    }
    seen.extend(delegated(&scene, &root).await);
    // It needs a server elsewhere, and succeeds in the tests of the command.
    seen.insert("openDelegatedSession");
    let path = format!("/v1/keys/{id}");
    assert_eq!(scene.ask("DELETE", &path, Some(&root), &[], &Value::Null).await.status, 204);
    seen.insert("deleteKey");
    let all: BTreeSet<_> = operations().iter().map(|(_, _, one)| one["operationId"].as_str().unwrap()).collect();
    assert_eq!(seen, all);
}
