//! Trust schemas: what they allow, and models and texts that are refused.

use proptest::prelude::*;
use std::collections::BTreeSet;
use tegmen_ndn::Name;
use tegmen_ndn_host::client::name_bytes;
use tegmen_ndn_host::schema::{MAX_COMPONENTS, Schema, SchemaError, compile};

const TEXT: &str = include_str!("schema/house.lvs");
/// The model that the compiler of python-ndn 0.5.2 made of [`TEXT`].
const MODEL: &[u8] = include_bytes!("schema/house.tlv");

fn schema(text: &str) -> Schema {
    Schema::parse(&compile(text).unwrap()).unwrap()
}

fn allows(schema: &Schema, packet: &str, key: &str) -> bool {
    let (packet, key) = (name_bytes(packet).unwrap(), name_bytes(key).unwrap());
    schema.allows(&Name::of_checked(&packet), &Name::of_checked(&key))
}

fn rules(schema: &Schema, name: &str) -> Vec<String> {
    schema.rules_of(&Name::of_checked(&name_bytes(name).unwrap())).into_iter().collect()
}

#[test]
fn a_model_is_that_of_python_ndn_byte_for_byte() {
    assert_eq!(compile(TEXT).unwrap(), MODEL);
}

#[test]
fn a_key_signs_the_names_that_its_rule_allows() {
    let schema = Schema::parse(MODEL).unwrap();
    for (packet, key, wanted) in [
        ("/house/1/temp/v=3", "/house/1/temp/KEY/a/b/v=1", true),
        // Another sensor, another floor, a floor that does not exist, a component of another type.
        ("/house/1/temp/v=3", "/house/1/door/KEY/a/b/v=1", false),
        ("/house/1/temp/v=3", "/house/2/temp/KEY/a/b/v=1", false),
        ("/house/1/temp/x", "/house/1/temp/KEY/a/b/v=1", false),
        ("/house/1/temp/v=3", "/house/1/temp/KEY/a/b", false),
        ("/house/1/temp/KEY/a/b/v=1", "/house/1/KEY/a/b/v=1", true),
        // A constraint holds for the first component of a pattern alone, here that of the packet. The root does not sign this key.
        ("/house/3/temp/KEY/a/b/v=1", "/house/3/KEY/a/b/v=1", true),
        ("/house/1/KEY/a/b/v=1", "/house/KEY/a/b/v=1", true),
        ("/house/3/KEY/a/b/v=1", "/house/KEY/a/b/v=1", false),
        // No key signs itself, and the root signs no packet.
        ("/house/KEY/a/b/v=1", "/house/KEY/a/b/v=1", false),
        ("/house/1/temp/v=3", "/house/KEY/a/b/v=1", false),
        ("/house/copy/x/x", "/house/1/temp/KEY/a/b/v=1", true),
        ("/house/copy/x/y", "/house/1/temp/KEY/a/b/v=1", false),
        ("/house/copy/y/z", "/house/2/KEY/a/b/v=1", true),
        ("/", "/house/KEY/a/b/v=1", false),
        ("/house/1/temp/v=3", "/", false),
    ] {
        assert_eq!(allows(&schema, packet, key), wanted, "{key} signs {packet}");
    }
}

#[test]
fn a_digest_at_the_end_of_a_name_is_ignored() {
    let schema = Schema::parse(MODEL).unwrap();
    let digest = format!("/house/1/temp/v=3/sha256digest={}", "ab".repeat(32));
    assert!(allows(&schema, &digest, "/house/1/temp/KEY/a/b/v=1"));
}

#[test]
fn rules_and_roots_are_those_of_the_text() {
    let schema = Schema::parse(MODEL).unwrap();
    assert_eq!(schema.len(), 27);
    let wanted = ["#KEY", "#copy", "#floor", "#root", "#sensor", "#value"];
    assert_eq!(schema.rules(), BTreeSet::from(wanted));
    assert_eq!(schema.roots(), ["#root"]);
    assert_eq!(rules(&schema, "/house/KEY/a/b/v=1"), ["#root"]);
    assert_eq!(rules(&schema, "/KEY/a/b/v=1"), ["#KEY"]);
    assert_eq!(rules(&schema, "/house"), ["#_5"]);
    assert_eq!(rules(&schema, "/office"), [""; 0]);
    let name = name_bytes("/house/1/temp/v=3").unwrap();
    let found = schema.matches(&Name::of_checked(&name));
    let bound: Vec<_> = found[0].bound.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    assert_eq!(bound, [("floor", &b"\x08\x011"[..]), ("sensor", b"\x08\x04temp")]);
}

#[test]
fn a_pattern_binds_the_same_component_in_the_packet_and_in_the_key() {
    let schema = schema("#k: who/\"KEY\"/_ \n #p: \"p\"/who/who <= #k");
    assert!(allows(&schema, "/p/a/a", "/a/KEY/1"));
    assert!(!allows(&schema, "/p/a/b", "/a/KEY/1"));
    assert!(!allows(&schema, "/p/a/a", "/b/KEY/1"));
    assert!(!allows(&schema, "/p/a/54=a", "/a/KEY/1"));
}

#[test]
fn a_function_compares_all_its_arguments() {
    let schema = schema(
        "#k: \"k\"\n#p: a/b & {a: \"x\" | $eq(\"y\", \"y\"), b: $eq(a)} <= #k\n\
         #q: \"q\"/a/b & {b: $eq_type(a, \"v=1\")} <= #k\n#r: \"r\"/a & {a: $eq(\"x\", \"y\")} <= #k",
    );
    for (packet, wanted) in [
        ("/x/x", true),
        ("/y/y", true),
        ("/x/y", false),
        ("/z/z", false),
        ("/q/v=1/v=2", true),
        ("/q/seg=1/v=2", false),
        ("/q/v=1/seg=2", false),
        ("/r/x", false),
    ] {
        assert_eq!(allows(&schema, packet, "/k"), wanted, "{packet}");
    }
}

#[test]
fn a_constraint_on_a_pattern_that_is_not_bound_does_not_hold() {
    // `b` comes behind `a`.
    let schema = schema("#k: \"k\"\n#p: a/b & {a: b} <= #k\n#q: \"q\"/a/b & {a: $eq(b)} <= #k");
    assert!(!allows(&schema, "/x/x", "/k"));
    assert!(!allows(&schema, "/q/x/x", "/k"));
}

#[test]
fn mistakes_in_a_text_are_named_with_their_line() {
    for (text, line, part) in [
        ("", 1, "no rule"),
        ("#a: \"x\"\n\n#b: c/ <= #a", 3, "component is expected"),
        ("#a: \"x", 1, "quote"),
        ("#a: \"x\"\n// no\n#b: ?", 3, "? is not expected"),
        ("#a \"x\"", 1, ": is expected"),
        ("#a: \"x\" <= #b", 1, "#b does not exist"),
        ("#a: #b", 1, "#b does not exist"),
        ("#a: #b\n#b: #a", 1, "loop"),
        ("#_a: \"x\"\n#b: #_a", 2, "one use"),
        ("#a: x & {y: \"1\"}", 1, "pattern y"),
        ("#a: x & {_y: \"1\"}", 1, "pattern _y"),
        ("#a: x & {x: y}", 1, "pattern y"),
        ("#a: x/_y & {x: _y}", 1, "_y has no name"),
        ("#a: x & {x: $later(\"y\")}", 1, "$later"),
        ("#a: x & {x: $eq(\"y\" \"z\")}", 1, ", is expected"),
        ("#a: x & {x: $eq($eq())}", 1, "value is expected"),
        ("#a: x & {x \"y\"}", 1, ": is expected"),
        ("#a: \"x/y\"", 1, "not one component"),
        ("#a: \"%g0\"", 1, "hexadecimal"),
        ("#: x", 1, "name does not follow"),
        ("#a: x\n&", 2, "{ is missing"),
    ] {
        let error = compile(text).unwrap_err();
        assert!(error.line == line && error.message.contains(part), "{text}: {error}");
    }
}

#[test]
fn keys_that_sign_each_other_in_a_loop_are_refused() {
    let model = compile("#a: \"a\"/x <= #b\n#b: \"b\"/x <= #a").unwrap();
    assert_eq!(Schema::parse(&model).unwrap_err(), SchemaError::Loop);
    let model = compile("#a: \"a\" <= #a").unwrap();
    assert_eq!(Schema::parse(&model).unwrap_err(), SchemaError::Loop);
}

#[test]
fn a_text_whose_names_grow_without_end_is_refused() {
    let doubled: String = (1..40).map(|rule| format!("#r{rule}: #r{}/#r{}\n", rule - 1, rule - 1)).collect();
    let error = compile(&format!("#r0: a\n{doubled}")).unwrap_err();
    assert!(error.message.contains(&MAX_COMPONENTS.to_string()), "{error}");
    let sets = "{a: \"1\"} | {a: \"2\"} | {a: \"3\"} | {a: \"4\"}";
    let doubled: String = (1..40).map(|rule| format!("#r{rule}: #r{}/a & {sets}\n", rule - 1)).collect();
    let error = compile(&format!("#r0: a\n{doubled}")).unwrap_err();
    assert!(error.message.contains("combinations"), "{error}");
}

fn element(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind, value.len() as u8], value].concat()
}

/// A model with these nodes.
fn model(nodes: &[Vec<u8>]) -> Vec<u8> {
    let mut model = vec![0x61, 4, 0, 1, 0x10, 0, 0x25, 1, 0, 0x69, 1, 1];
    nodes.iter().for_each(|node| model.extend(element(0x63, node)));
    model
}

#[test]
fn a_model_that_is_no_tree_is_refused() {
    let edge = |to: u8| element(0x51, &[0x25, 1, to, 0x21, 3, 8, 1, b'a']);
    let node = |id: u8, parent: Option<u8>, edges: &[u8]| {
        let mut node = vec![0x25, 1, id];
        parent.iter().for_each(|parent| node.extend([0x57, 1, *parent]));
        edges.iter().for_each(|to| node.extend(edge(*to)));
        node
    };
    let refused = |nodes: &[Vec<u8>]| Schema::parse(&model(nodes)).unwrap_err();
    assert!(Schema::parse(&model(&[node(0, None, &[1]), node(1, Some(0), &[])])).is_ok());
    assert_eq!(refused(&[]), SchemaError::Node(0));
    assert_eq!(refused(&[node(1, None, &[])]), SchemaError::Node(0));
    // To itself, to a node of another parent, to none, to a start in a circle, and twice to the same.
    assert_eq!(refused(&[node(0, None, &[0])]), SchemaError::Edge(0));
    assert_eq!(refused(&[node(0, None, &[1]), node(1, None, &[])]), SchemaError::Edge(0));
    assert_eq!(refused(&[node(0, None, &[7])]), SchemaError::Edge(0));
    assert_eq!(refused(&[node(0, Some(1), &[1]), node(1, Some(0), &[0])]), SchemaError::Node(0));
    assert_eq!(refused(&[node(0, None, &[1, 1]), node(1, Some(0), &[])]), SchemaError::Edge(0));
    let key = [node(0, None, &[]), vec![0x55, 1, 9]].concat();
    assert_eq!(refused(&[key]), SchemaError::Key(0));
}

#[test]
fn a_malformed_constraint_and_an_unknown_function_are_refused() {
    let with = |option: &[u8]| {
        let constraint = element(0x43, &element(0x41, option));
        let edge = element(0x53, &[&[0x25, 1, 1, 0x23, 1, 1], &constraint[..]].concat());
        let nodes = [[&[0x25, 1, 0], &edge[..]].concat(), vec![0x25, 1, 1, 0x57, 1, 0]];
        Schema::parse(&model(&nodes)).err()
    };
    assert_eq!(with(&[0x23, 1, 1]), None);
    assert_eq!(with(&[]), Some(SchemaError::Option(0)));
    assert_eq!(with(&[0x21, 3, 8, 1, b'a', 0x23, 1, 1]), Some(SchemaError::Option(0)));
    assert_eq!(with(&[0x21, 2, 8, 9]), Some(SchemaError::Option(0)));
    assert_eq!(with(&element(0x31, &element(0x27, b"$fresh"))), Some(SchemaError::Function("$fresh".into())));
}

#[test]
fn another_version_is_refused() {
    let mut changed = MODEL.to_vec();
    changed[5] = 1;
    assert_eq!(Schema::parse(&changed).unwrap_err(), SchemaError::Version(0x0001_1001));
    assert!(Schema::parse(&MODEL[6..]).is_err());
}

proptest! {
    #[test]
    fn changed_models_are_refused_or_decide(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in any::<Option<prop::sample::Index>>(),
    ) {
        let mut model = MODEL.to_vec();
        for (place, byte) in places {
            let place = place.index(model.len());
            model[place] = byte;
        }
        model.truncate(end.map_or(MODEL.len(), |end| end.index(MODEL.len())));
        if let Ok(schema) = Schema::parse(&model) {
            // No key of another house.
            prop_assert!(!allows(&schema, "/house/1/temp/v=3", "/office/1/KEY/a/b/v=1/2"));
        }
    }

    #[test]
    fn any_text_is_compiled_or_refused(text in "[#a-c:\"/&{}|,()<=_$ \n]{0,60}") {
        if let Ok(model) = compile(&text) {
            let parsed = Schema::parse(&model);
            prop_assert!(parsed.is_ok() || matches!(parsed, Err(SchemaError::Loop)), "{:?}", parsed);
        }
    }
}
