//! Tests of the counts, with small programs that each test writes into a folder.

use super::counts::{LONGEST, count};
use super::draw::draw;
use super::layers::{arrows, circles};
use super::names::Names;
use super::prose::change;
use super::ratchet::{shorten, tighten};
use super::source::{Crate, load};
use super::text::{Kind, texts};
use super::words::{Words, by_folder, hits};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder with packages, which is removed when this value is dropped.
struct Folder(PathBuf);

impl Folder {
    /// Writes `files` into a new folder. A package is a folder that contains a file `src/lib.rs`.
    fn with(files: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("tegmen-house-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().canonicalize().unwrap().join(name);
        for (file, text) in files {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, text).unwrap();
            if file.ends_with("src/lib.rs") {
                let package = file.ancestors().nth(2).unwrap();
                let manifest = format!("[package]\nname = \"{}\"\n", package.file_name().unwrap().display());
                std::fs::write(package.join("Cargo.toml"), manifest).unwrap();
            }
        }
        Self(root)
    }

    fn crates(&self) -> Vec<Crate> {
        load(&self.0).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Returns the places that one count finds, as "file:line remark".
fn counted(key: &str, files: &[(&str, &str)]) -> Vec<String> {
    let crates = Folder::with(files).crates();
    let places = count(&crates, &Names::of(&crates)).remove(key).unwrap_or_default();
    places
        .iter()
        .map(|(place, remark)| format!("{}:{} {remark}", place.file, place.line).trim_end().to_owned())
        .collect()
}

/// Returns a function of `lines` lines. A line of comment precedes it.
fn function_of(lines: usize) -> String {
    format!("/// Long.\npub fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
}

#[test]
fn a_function_is_long_from_81_lines_on() {
    assert_eq!(counted("long_functions", &[("a/src/lib.rs", &function_of(LONGEST))]), [""; 0]);
    let long = counted("long_functions", &[("a/src/lib.rs", &function_of(LONGEST + 1))]);
    assert_eq!(long, ["a/src/lib.rs:2 long: 81 lines"]);
}

#[test]
fn tests_are_not_product_code() {
    let long = function_of(LONGEST + 1);
    let inline = format!("#[cfg(test)]\nmod tests {{\n{long}}}\n#[cfg(all(test, unix))]\nmod more;\n");
    let files = [("a/src/lib.rs", inline.as_str()), ("a/src/more.rs", &long), ("a/tests/all.rs", &long)];
    assert_eq!(counted("long_functions", &files), [""; 0]);
    let product = inline.replace("cfg(all(test, unix))", "cfg(not(test))");
    let files = [("a/src/lib.rs", product.as_str()), ("a/src/more.rs", &long)];
    assert_eq!(counted("long_functions", &files), ["a/src/more.rs:2 long: 81 lines"]);
}

const RETRANSMIT: &str =
    "fn f(due: Due) {\n    if let Due::Retransmit(_) = due {}\n    assert!(matches!(due, Due::Retransmit(_)));\n}\n";

#[test]
fn retransmissions_are_counted_outside_coap_and_node_and_in_macros() {
    let files = [
        ("tegmen/src/lib.rs", "mod coap;\nmod dtls;\nmod node { mod serve; }\n"),
        ("tegmen/src/coap.rs", RETRANSMIT),
        ("tegmen/src/dtls.rs", RETRANSMIT),
        ("tegmen/src/node/serve.rs", RETRANSMIT),
        ("tegmen-coap/src/lib.rs", RETRANSMIT),
        ("other/src/lib.rs", "mod coap;\n"),
        ("other/src/coap/mod.rs", RETRANSMIT),
    ];
    let places = ["other/src/coap/mod.rs:2", "other/src/coap/mod.rs:3", "tegmen/src/dtls.rs:2", "tegmen/src/dtls.rs:3"];
    assert_eq!(counted("retransmit", &files), places);
}

#[test]
fn contexts_are_counted_where_they_are_built_or_taken_apart() {
    let text = "fn f(cx: &mut Cx<'_, C>) {\n    let Cx { now, .. } = cx;\n    g(&mut Cx { now, crypto });\n    \
                g(Cx::new(now));\n    dbg!(Cx { now });\n    cx.now();\n}\n";
    let files = [
        ("tegmen/src/lib.rs", "mod endpoint;\nmod dtls;\n"),
        ("tegmen/src/endpoint.rs", text),
        ("tegmen/src/dtls.rs", text),
    ];
    assert_eq!(counted("cx", &files), [2, 3, 4, 5].map(|line| format!("tegmen/src/dtls.rs:{line}")));
}

#[test]
fn copies_of_the_event_are_conversions_and_functions_over_every_variant() {
    let core = "pub mod endpoint { mod event; pub use event::Event; }\n";
    let event = "pub enum Event<'r> { Need(u8), Message { bytes: &'r [u8] } }\n";
    let user = "use tegmen::endpoint::Event;\n\
        impl From<Event<'_>> for Noted { fn from(event: Event<'_>) -> Self { Self::Other } }\n\
        impl From<Other<'_>> for Noted { fn from(event: Other<'_>) -> Self { Self::Other } }\n\
        fn copy(event: Event<'_>) -> Noted {\n\
            match event { Event::Need(id) => Noted::Need(id), Event::Message { bytes } => { Noted::Message(bytes.to_vec()) } }\n\
        }\n\
        fn act(event: Event<'_>) { match event { Event::Need(id) => need(id), Event::Message { bytes } => print(bytes) } }\n\
        fn some(event: Event<'_>) -> Noted { match event { Event::Need(id) => Noted::Need(id), _ => Noted::Other } }\n";
    let files = [("tegmen/src/lib.rs", core), ("tegmen/src/endpoint/event.rs", event), ("user/src/lib.rs", user)];
    assert_eq!(counted("event_copies", &files), ["user/src/lib.rs:2 impl From<Event>", "user/src/lib.rs:4 fn copy"]);
}

#[test]
fn public_items_are_those_that_a_user_can_name() {
    let files = [
        ("tegmen/src/lib.rs", "pub mod a;\nmod b;\npub use b::{Seen, Seen as Again};\npub use core::time::Duration;\n"),
        (
            "tegmen/src/a.rs",
            "pub use super::b::Seen;\npub const ONE: u8 = 1;\npub(crate) fn inner() {}\nfn private() {}\n",
        ),
        (
            "tegmen/src/b.rs",
            "pub struct Seen {\n    pub field: u8,\n}\npub struct Hidden;\nimpl Hidden {\n    pub fn no() {}\n}\n\
             impl<T> super::a::Seen {\n    pub fn yes(&self) {}\n    fn not() {}\n}\n\
             impl Default for Seen {\n    fn default() -> Self {}\n}\n",
        ),
    ];
    let seen = [
        "tegmen/src/a.rs:2 tegmen::a::ONE",
        "tegmen/src/b.rs:1 tegmen::b::Seen",
        "tegmen/src/b.rs:9 tegmen::b::super::a::Seen::yes",
        "tegmen/src/lib.rs:1 tegmen::a",
        "tegmen/src/lib.rs:4 core::time::Duration",
    ];
    assert_eq!(counted("public_items", &files), seen);
}

/// Returns the arrows that belong to circles, as "folder: from -> to".
fn on_circles(files: &[(&str, &str)]) -> Vec<String> {
    let crates = Folder::with(files).crates();
    let folders = arrows(&crates, &Names::of(&crates));
    let lines = folders.iter().flat_map(|(folder, arrows)| {
        circles(arrows).into_iter().flatten().map(move |(from, to)| format!("{folder}: {from} -> {to}"))
    });
    lines.collect()
}

#[test]
fn a_circle_of_top_level_modules_is_found_in_nested_imports_and_in_paths() {
    let root = ("x/src/lib.rs", "mod a;\nmod b;\nmod c;\n");
    let closed = ["x: a -> b", "x: b -> c", "x: c -> a"];
    let a = ("x/src/a.rs", "use crate::{b::{self, deep::T}, d};\n");
    let c = ("x/src/c.rs", "fn f() -> crate::a::inner::T { todo() }\n");
    for b in [
        "fn f() { crate::c::g() }\npub mod deep {}\n",
        "fn f() { use super::c; }\n",
        "fn f() { if x { print!(\"{}\", super::c::g()) } }\n",
        "use super::c as other;\n",
        "use crate::c::*;\n",
        "mod inner { impl super::super::c::Trait for T {} }\n",
        "use crate as root;\nfn f(x: root::c::T) {}\n",
    ] {
        assert_eq!(on_circles(&[root, a, ("x/src/b.rs", b), c]), closed, "{b}");
    }
    for b in ["use other::c;\n", "fn c() { c() }\n", "#[cfg(test)]\nmod tests { use super::super::c; }\n"] {
        assert_eq!(on_circles(&[root, a, ("x/src/b.rs", b), c]), [""; 0], "{b}");
    }
}

#[test]
fn a_circle_of_siblings_is_found_through_the_names_of_their_parent() {
    let parent = "mod a;\nmod b;\npub use a::A;\nuse b::B;\npub struct P(A, B);\n";
    let files =
        |a, b| [("x/src/lib.rs", "mod p;"), ("x/src/p.rs", parent), ("x/src/p/a.rs", a), ("x/src/p/b/mod.rs", b)];
    let circle = ["x::p: a -> b", "x::p: b -> a"];
    assert_eq!(on_circles(&files("use super::B;\npub struct A;\n", "use crate::p::A;\npub struct B;\n")), circle);
    // Parents and children may use each other.
    assert_eq!(on_circles(&files("use super::{B, P};\npub struct A;\n", "use super::P;\npub struct B;\n")), [""; 0]);
}

#[test]
fn circles_are_kept_apart_and_what_only_leads_to_one_is_not_in_it() {
    let root = "mod a { use super::{b::B, c::C}; }\nmod b { use super::a::A; }\nmod c { use super::d::D; }\n\
                mod d { use super::c::C; }\nmod e { use super::a::A; }\n";
    let crates = Folder::with(&[("x/src/lib.rs", root)]).crates();
    let folders = arrows(&crates, &Names::of(&crates));
    let lengths: Vec<usize> = circles(&folders["x"]).iter().map(Vec::len).collect();
    assert_eq!((folders["x"].len(), lengths), (6, vec![2, 2]));
}

#[test]
fn a_ratchet_falls_and_never_rises() {
    let values = |pairs: &[(&str, usize)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let mut ratchet: BTreeMap<String, usize> = values(&[("falls", 3), ("gone", 1), ("rises", 3), ("stays", 3)]);
    let now = values(&[("falls", 2), ("new", 1), ("rises", 4), ("stays", 3)]);
    let [rose, fell] = tighten(&mut ratchet, &now);
    assert_eq!(rose, ["new rose from 0 to 1", "rises rose from 3 to 4"]);
    assert_eq!(fell, ["falls fell from 3 to 2", "gone fell from 1 to 0"]);
    assert_eq!(ratchet, values(&[("falls", 2), ("gone", 0), ("rises", 3), ("stays", 3)]));
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    let mut ratchet = names(&["a: x -> y", "a::x: u -> v", "b: x -> y", "c: x -> y"]);
    let changes = shorten(&mut ratchet, &names(&["a: x -> z", "a::x: u -> v", "b: x -> y", "b::y: u -> v"]));
    assert_eq!(changes[0], ["b::y: u -> v is new"]);
    assert_eq!(changes[1], ["a: x -> z is new", "a: x -> y is gone", "c: x -> y is gone"]);
    assert_eq!(ratchet, names(&["a: x -> z", "a::x: u -> v", "b: x -> y"]));
}

/// Returns the paragraphs of a file, each with its kind and the line of its end.
fn texts_of(file: &str, content: &str) -> Vec<(Kind, usize, String)> {
    let texts = texts(Path::new(file), content);
    texts.into_iter().map(|text| (text.kind, text.line(text.text.len()), text.text)).collect()
}

#[test]
fn comments_and_strings_are_found_as_the_compiler_finds_them() {
    let source = r##"//! First line,
//! second line.
//!
//! ```
//! let code = 1;
//! ```
/* a block */
fn f<'a>(x: &'a str) -> char { // behind code
    let quote = ('"', '\'', "// no comment \" here", r#"raw "text" // here"#, "word");
    let lines = "one \
        two";
}
/// Doc.
//// Not doc.
"##;
    let found = [
        (Kind::Doc, 2, "First line, second line."),
        (Kind::Comment, 7, "a block"),
        (Kind::Comment, 8, "behind code"),
        (Kind::Literal, 9, r#"// no comment \" here"#),
        (Kind::Literal, 9, r#"raw "text" // here"#),
        (Kind::Literal, 11, "one two"),
        (Kind::Doc, 13, "Doc."),
        (Kind::Comment, 14, "// Not doc."),
    ];
    let found = found.map(|(kind, line, text)| (kind, line, text.to_owned()));
    assert_eq!(texts_of("a/src/lib.rs", source), found);
    let without_strings = found.into_iter().filter(|(kind, ..)| *kind != Kind::Literal).collect::<Vec<_>>();
    assert_eq!(texts_of("a/src/x/tests.rs", source), without_strings);
}

#[test]
fn items_rows_and_headings_are_paragraphs_and_code_is_not_prose() {
    let source = "# Title\n\nText of\ntwo lines.\n* item\n  goes on\n* next\n\n```console\n$ code\n```\n| a | b |\n";
    let found = [(1, "# Title"), (4, "Text of two lines."), (6, "* item goes on"), (7, "* next"), (12, "| a | b |")];
    assert_eq!(texts_of("README.md", source), found.map(|(line, text)| (Kind::Markdown, line, text.to_owned())));
    let comments = texts_of("ci.sh", "#!/bin/sh\n# One\n# two\nls # not this\n");
    assert_eq!(comments, [(Kind::Comment, 3, "One two".to_owned())]);
}

const IDIOMS: &str = r#"
idiom = [
    { name = "what", pattern = '^what\b', better = "a noun", doc = true },
    { name = "told", pattern = '\btold\b', better = "reports", except = 'told apart' },
    { name = "of use", pattern = '\bof use\b', better = "useful" },
]
"#;

#[test]
fn idioms_are_found_over_line_ends_and_not_in_names() {
    let source = "/// What is sent. It is of\n/// use. That is `told` here, and told apart.\nfn f() {\n    // What is told.\n}\n";
    let folder = Folder::with(&[("a/src/lib.rs", source), ("b/c/d/e.md", "Told, TOLD.\n"), ("README.md", "told\n")]);
    let words: Words = toml::from_str(IDIOMS).unwrap();
    let hits = hits(&folder.0, &words).unwrap();
    let found: Vec<String> = hits
        .iter()
        .map(|hit| format!("{}:{} {}: {}", hit.place.file, hit.place.line, hit.idiom, hit.sentence))
        .collect();
    let expected = [
        "README.md:1 told: told",
        "a/src/lib.rs:1 what: What is sent.",
        "a/src/lib.rs:2 of use: It is of use.",
        "a/src/lib.rs:4 told: What is told.",
        "b/c/d/e.md:1 told: Told, TOLD.",
        "b/c/d/e.md:1 told: Told, TOLD.",
    ];
    assert_eq!(found, expected);
    let folders = [(".", 1), ("a/src", 3), ("b/c", 2)].map(|(folder, count)| (folder.to_owned(), count));
    assert_eq!(by_folder(&hits), BTreeMap::from(folders));
}

#[test]
fn every_committed_idiom_is_a_pattern() {
    let words: Words = toml::from_str(include_str!("../../words.toml")).unwrap();
    let folder =
        Folder::with(&[("a.md", "Whoever goes on may not say what else is of use; so many are at hand anew.\n")]);
    assert_eq!(hits(&folder.0, &words).unwrap().len(), 8);
}

#[test]
fn a_drawing_repeats_and_holds_each_line_of_prose_once() {
    let page = "# A heading. It is longer than forty characters, as you see\n\nShort.\n\n\
                One sentence begins on this line of the page,\nends.\n\n\
                | a row of a table | with words in it | and more |\n|------------------|------------------|----------|\n\n\
                no sentence, no end of one, but more than forty characters\n\n\
                ```\ncode of a block, which is no prose: none of this is drawn.\n```\n";
    let source = "/// A doc comment of more than forty characters.\nfn f() {\n    // Another comment of more than forty characters.\n}\n";
    let mut content =
        vec![("docs/reading.md", page), ("a/README.md", page), ("a/tests/b.rs", source), ("a/src/tests.rs", source)];
    content.extend([("README.md", page), ("docs/b.md", page), ("a/src/lib.rs", source), ("a/src/b/c.rs", source)]);
    let folder = Folder::with(&content);
    let drawn = |seed, count| -> Vec<String> {
        let lines = draw(&folder.0, seed, count).unwrap();
        lines.iter().map(|line| format!("{}:{} {}", line.place.file, line.place.line, &line.text[..5])).collect()
    };
    let all = [
        "README.md:5 One s",
        "README.md:8 | a r",
        "a/src/b/c.rs:1 A doc",
        "a/src/lib.rs:1 A doc",
        "docs/b.md:5 One s",
        "docs/b.md:8 | a r",
    ];
    assert_eq!(drawn(1, 6), all);
    assert_eq!(drawn(2, 100), all);
    assert_eq!(drawn(3, 2), drawn(3, 2));
    let pairs: BTreeSet<Vec<String>> = (0..20).map(|seed| drawn(seed, 2)).collect();
    assert!(pairs.len() > 5, "{pairs:?}");
}

#[test]
fn a_rewrite_of_prose_changes_no_token_and_everything_else_does() {
    let changes = |file: &str, before: &str, now: &str| change(file, before, now).unwrap();
    let source = "//! Old.\n/// Old.\n#[doc(hidden)]\nfn f() -> &'static str { /* old */ \"old\" } // old\n";
    let reworded = "/// New.\n///\n/// More.\n#[doc(hidden)]\nfn f() -> &'static str {\n    // new\n    \"old\"\n}\n";
    assert_eq!(changes("a.rs", source, reworded), None);
    for other in [
        source.replace("\"old\"", "\"new\""),
        source.replace("#[doc(hidden)]", ""),
        source.replace("fn f", "fn g"),
        source.replace("{ /* old */ \"old\" }", "({ \"old\" })"),
        format!("{source}fn g() {{}}"),
    ] {
        assert!(changes("a.rs", source, &other).is_some(), "{other}");
    }
    assert_eq!(changes("a.toml", "# old\na = 1 # old\n", "a   = 1\n# new\n"), None);
    assert!(changes("a.toml", "a = 1\n", "a = 2\n").is_some());
    assert_eq!(changes("a.md", "Old.\n```\ncode\n```\n", "New,\nlonger.\n```\ncode\n```\n"), None);
    assert!(changes("a.md", "```\ncode\n```\n", "```\nother\n```\n").is_some());
    assert_eq!(changes("a.sh", "#!/bin/sh\n# Old.\ntrue\n", "#!/bin/sh\n\n# New.\ntrue\n"), None);
    assert!(changes("a.sh", "#!/bin/sh\ntrue\n", "#!/bin/bash\ntrue\n").is_some());
    assert!(change("a.rs", "fn f() {", "fn f() {}").is_err());
}
