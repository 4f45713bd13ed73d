//! Tests of the operations on groups.

#[allow(dead_code, reason = "each test uses its part")]
mod common;

use common::{Answer, Scene};
use serde_json::{Value, json};
use tegmen_base::hex::from_hex;
use tegmen_control::group::MemberFile;

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
        self.scene.ask(method, &format!("/v1/groups{path}"), Some(&self.key), headers, &body).await
    }

    async fn create(&self, group: Value) -> Answer {
        let created = self.ask("POST", "", &[], group).await;
        assert_eq!(created.status, 201, "{created:?}");
        created
    }

    /// Adds devices to the server. The devices can then become members of a group.
    async fn devices(&self, names: &[&str]) {
        for name in names {
            let device = json!({ "name": name, "kind": "shared-key", "secret": "07".repeat(16) });
            let added = self.scene.ask("POST", "/v1/devices", Some(&self.key), &[], &device).await;
            assert_eq!(added.status, 201, "{added:?}");
        }
    }

    async fn add(&self, member: Value) -> Answer {
        self.ask("POST", "/lamps/members", &[], json!({ "member": member })).await
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

/// Returns the file of a member from `answer`. `number` is the index of the file in the answer.
fn file(answer: &Answer, number: usize) -> MemberFile {
    let digits = answer.body["files"][number]["file"].as_str().unwrap_or_else(|| panic!("{answer:?}"));
    MemberFile::parse(&from_hex(digits).unwrap()).unwrap()
}

fn group(last_epoch: u16) -> Value {
    json!({ "name": "lamps", "address": "[ff15::1]:5684", "levels": 2, "senders": 1, "last_epoch": last_epoch })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_provisioned_with_a_file_that_is_shown_once() {
    let operator = Operator::new("groups-file").await;
    operator.devices(&["hall"]).await;
    operator.create(group(100)).await;
    let once = [("idempotency-key", "hall")];
    let hall =
        json!({ "member": { "name": "hall", "address": "fd00::1", "sends": true }, "controller": "coaps://a:5684/" });
    let added = operator.ask("POST", "/lamps/members", &once, hall.clone()).await;
    assert_eq!((added.status, &added.body["rekeyed"]), (201, &json!({ "epoch": 2, "warning": null })), "{added:?}");
    let provisioned = file(&added, 0);
    assert_eq!((provisioned.group.as_str(), provisioned.member.as_str()), ("lamps", "hall"));
    assert_eq!(provisioned.controller.as_deref(), Some("coaps://a:5684/ace-group/lamps"));
    let keys = &provisioned.keys;
    assert_eq!(added.body["member"]["leaf"], keys.leaf);
    assert_eq!((keys.epoch, keys.sender_id, &added.body["member"]["since"]), (2, Some(0), &json!(2)));
    // A repetition adds nobody, and gets no file. The store has none.
    let again = operator.ask("POST", "/lamps/members", &once, hall.clone()).await;
    assert_eq!((again.status, &again.body["member"], &again.body["files"]), (201, &added.body["member"], &Value::Null));
    let rows = tegmen_store::Store::scan(&operator.scene.store, tegmen_store::store::Scan::of("admin/", 1000));
    let rows = rows.await.unwrap().entries;
    let stored: Vec<u8> = rows.iter().filter_map(|row| row.value.plain()).flatten().copied().collect();
    assert!(!String::from_utf8_lossy(&stored).contains(added.body["files"][0]["file"].as_str().unwrap()));
    // The same key for another group is another request.
    operator.create(json!({ "name": "valves", "address": "[ff15::2]:5684" })).await;
    let other = operator.ask("POST", "/valves/members", &once, hall).await;
    assert_eq!((other.status, other.code()), (422, "idempotency-key-reused"));
    // They are the keys of the controller.
    let known = operator.scene.groups.parameters("lamps", "hall").await.unwrap();
    assert_eq!((keys.secret.expose(), &keys.path, keys.chain), (known.secret.expose(), &known.path, known.chain));
    assert_eq!(keys.controller, known.controller);
    let rekeyed = operator.ask("POST", "/lamps/rekey", &[], Value::Null).await;
    assert_eq!((rekeyed.status, &rekeyed.body["epoch"]), (200, &json!(3)));
    for line in
        ["the group lamps was created", "hall was admitted to the group lamps in the epoch 2", "began the epoch 3"]
    {
        operator.scene.audited(line).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_shown_in_pages_changed_and_deleted() {
    let operator = Operator::new("groups-show").await;
    operator.devices(&["lamp-1", "lamp-2", "lamp-3", "lamp-4", "lamp-5"]).await;
    let members: Vec<Value> =
        (1..=5).map(|host| json!({ "name": format!("lamp-{host}"), "address": format!("fd00::{host}") })).collect();
    let wanted = json!({ "name": "lamps", "address": "[ff15::1]:5684", "suite": "ccm-8", "members": members });
    let created = operator.create(wanted).await;
    assert_eq!(created.body["files"].as_array().unwrap().len(), 5);
    assert!((0..5).all(|number| file(&created, number).keys.epoch == 1), "all files are of one epoch");
    for name in ["a", "b"] {
        operator.create(json!({ "name": name, "address": "239.1.1.1:5684" })).await;
    }
    let page = operator.ask("GET", "?limit=2", &[], Value::Null).await;
    let listed = |name: &str| json!({ "name": name, "epoch": 1, "epochs_left": 65_534, "warning": null });
    assert_eq!(page.body["groups"], json!([listed("a"), listed("b")]));
    let next = page.body["next"].as_str().unwrap();
    let page = operator.ask("GET", &format!("?limit=2&after={next}"), &[], Value::Null).await;
    assert_eq!((&page.body["groups"], &page.body["next"]), (&json!([listed("lamps")]), &Value::Null));
    let (mut names, mut path) = (Vec::new(), "/lamps?limit=2".to_owned());
    let tag = loop {
        let page = operator.ask("GET", &path, &[], Value::Null).await;
        assert_eq!((&page.body["config"]["suite"], &page.body["size"]), (&json!("ccm-8"), &json!(5)));
        let members = page.body["members"].as_array().unwrap();
        assert!(members.len() <= 2);
        names.extend(members.iter().map(|member| member["name"].as_str().unwrap().to_owned()));
        match page.body["next"].as_str() {
            Some(next) => path = format!("/lamps?limit=2&after={next}"),
            None => break page.header("etag").unwrap().to_owned(),
        }
    };
    assert_eq!(names, ["lamp-1", "lamp-2", "lamp-3", "lamp-4", "lamp-5"]);
    let evicted = operator.ask("DELETE", "/lamps/members/lamp-3", &[], Value::Null).await;
    assert_eq!((evicted.status, &evicted.body["epoch"]), (200, &json!(2)));
    let late = operator.ask("DELETE", "/lamps", &[("if-match", &tag)], Value::Null).await;
    assert_eq!((late.status, late.code()), (412, "changed-meanwhile"));
    let shown = operator.ask("GET", "/lamps", &[], Value::Null).await;
    assert_eq!((&shown.body["size"], &shown.body["epochs_left"]), (&json!(4), &json!(65_533)));
    assert!(!shown.text.contains("secret") && !shown.text.contains("file"), "{shown:?}");
    let tag = shown.header("etag").unwrap();
    assert_eq!(operator.ask("DELETE", "/lamps", &[("if-match", tag)], Value::Null).await.status, 204);
    operator.refused("GET", "/lamps", Value::Null, (404, "unknown-group"), "create it").await;
    let again = operator.create(group(100)).await;
    assert_ne!(again.body["group"]["identity"], shown.body["identity"]);
    operator.scene.audited("the group lamps was deleted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_about_groups_has_a_code_and_the_next_step() {
    let operator = Operator::new("groups-refused").await;
    operator.devices(&["a", "b", "1", "2", "3", "4", "5", "hall", "porch", "attic", "cellar", "stairs"]).await;
    let create = async |body, expected, words: &str| operator.refused("POST", "", body, expected, words).await;
    let with = |field: &str, value: Value| {
        let mut group = group(100);
        group[field] = value;
        group
    };
    let invalid = (422, "invalid-group");
    create(with("address", json!("10.0.0.1:5684")), invalid, "multicast").await;
    create(with("name", json!("a/b")), invalid, "letters").await;
    create(with("suite", json!("cbc")), invalid, "gcm").await;
    create(with("controller", json!("coap://a")), invalid, "coaps://HOST").await;
    create(with("members", json!(vec![json!({ "name": "a" }); 257])), invalid, "256").await;
    create(
        with("members", json!([{ "name": "a", "sends": true }, { "name": "b", "sends": true }])),
        (507, "no-sender-id"),
        "evict",
    )
    .await;
    create(
        with("members", json!([{ "name": "a", "address": "fd00::1" }, { "name": "b", "address": "fd00::1" }])),
        (409, "address-taken"),
        "a has the address",
    )
    .await;
    create(
        with("members", json!((1..6).map(|number| json!({ "name": format!("{number}") })).collect::<Vec<_>>())),
        (507, "group-full"),
        "more levels",
    )
    .await;
    create(with("level", json!(1)), (400, "malformed"), "unknown").await;
    operator.create(group(20)).await;
    create(group(20), (409, "name-taken"), "another name").await;
    assert_eq!(operator.add(json!({ "name": "hall", "address": "fd00::1", "sends": true })).await.status, 201);
    let add = async |member, expected, words: &str| {
        operator.refused("POST", "/lamps/members", json!({ "member": member }), expected, words).await;
    };
    add(json!({ "name": "hall" }), (409, "name-taken"), "evict it before").await;
    add(json!({ "name": "porch", "address": "fd00::1" }), (409, "address-taken"), "hall has the address").await;
    add(json!({ "name": "porch", "address": "10.0.0.1" }), invalid, "of the same family").await;
    add(json!({ "name": "porch", "sends": true }), (507, "no-sender-id"), "evict a member that sends").await;
    for name in ["porch", "attic", "cellar"] {
        assert_eq!(operator.add(json!({ "name": name })).await.status, 201);
    }
    add(json!({ "name": "stairs" }), (507, "group-full"), "more levels").await;
    let shown = operator.ask("GET", "/lamps", &[], Value::Null).await;
    assert_eq!(shown.body["lacks"].as_array().unwrap().len(), 2, "{shown:?}");
    operator.refused("DELETE", "/lamps/members/stairs", Value::Null, (404, "unknown-member"), "list its members").await;
    operator.refused("DELETE", "/lamp/members/hall", Value::Null, (404, "unknown-group"), "correct the name").await;
    operator.refused("POST", "/lamp/rekey", Value::Null, (404, "unknown-group"), "correct the name").await;
    // Towards the end of the chain changes warn. Then evictions alone are made.
    let mut warned = 0;
    loop {
        let rekeyed = operator.ask("POST", "/lamps/rekey", &[], Value::Null).await;
        if rekeyed.status != 200 {
            assert_eq!((rekeyed.status, rekeyed.code()), (507, "no-epoch-left"), "{rekeyed:?}");
            break;
        }
        warned += usize::from(rekeyed.body["warning"].is_string());
    }
    assert!(warned > 0);
    let listed = operator.ask("GET", "", &[], Value::Null).await;
    let warning = listed.body["groups"][0]["warning"].as_str().unwrap();
    assert!(warning.contains("2 more epochs") && warning.contains("create a new group"), "{warning}");
    let shown = operator.ask("GET", "/lamps", &[], Value::Null).await;
    assert_eq!(shown.body["lacks"][0], warning);
    let evicted = operator.ask("DELETE", "/lamps/members/hall", &[], Value::Null).await;
    assert!(evicted.body["warning"].as_str().unwrap().contains("create a new group"), "{evicted:?}");
    add(json!({ "name": "stairs" }), (507, "no-epoch-left"), "create a new group").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_an_enabled_device() {
    let operator = Operator::new("groups-device").await;
    let unknown = (404, "unknown-device");
    let mut wanted = group(100);
    wanted["members"] = json!([{ "name": "hall" }]);
    operator.refused("POST", "", wanted.clone(), unknown, "add it by tegmen device add hall").await;
    operator.create(group(100)).await;
    let hall = json!({ "member": { "name": "hall" } });
    operator.refused("POST", "/lamps/members", hall.clone(), unknown, "add it by tegmen device add hall").await;
    operator.devices(&["hall"]).await;
    let disable = async |disabled: bool| {
        let change = json!({ "disabled": disabled });
        let any = [("if-match", "*")];
        let changed = operator.scene.ask("PATCH", "/v1/devices/hall", Some(&operator.key), &any, &change).await;
        assert_eq!(changed.status, 204, "{changed:?}");
    };
    disable(true).await;
    let disabled = (409, "device-disabled");
    operator.refused("POST", "/lamps/members", hall.clone(), disabled, "tegmen device enable hall").await;
    wanted["name"] = json!("valves");
    operator.refused("POST", "", wanted, disabled, "tegmen device enable hall").await;
    disable(false).await;
    assert_eq!(operator.ask("POST", "/lamps/members", &[], hall).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_controls_no_groups_says_so() {
    let operator = Operator::new("without-groups").await;
    operator.refused("GET", "", Value::Null, (501, "no-groups"), "group-controller").await;
    operator.refused("POST", "", group(20), (501, "no-groups"), "group-controller").await;
    operator.refused("DELETE", "/lamps/members/hall", Value::Null, (501, "no-groups"), "group-controller").await;
}
