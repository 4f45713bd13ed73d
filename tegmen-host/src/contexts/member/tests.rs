use super::*;
use crate::contexts::{recover, used};
use crate::provider::HostCrypto;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageType};
use tegmen::crypto::Curve;
use tegmen::oscore::Unprotected;
use tegmen::oscore::group::{GroupRequest, Mode, Replies};
use tegmen_store::LEASE;

/// The directory of a group, which is removed at the end of the test.
struct Scene(PathBuf);

impl Scene {
    /// Makes a group of three members.
    fn new(name: &str, curve: Curve) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-members-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        create_group(&dir.join("lights"), &names(), curve, &BTreeMap::new(), None).unwrap();
        Self(dir)
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.0.join("lights").join(name)
    }

    fn open(&self, name: &str) -> StoredMember {
        StoredMember::open(&self.dir(name)).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn names() -> Vec<String> {
    ["switch", "hall", "porch"].map(str::to_owned).to_vec()
}

fn crypto() -> HostCrypto {
    HostCrypto::new([1; 32], 16)
}

/// Protects a request to one member, or to all members if `to` is `None`. Returns the request and its sequence number.
fn ask(member: &mut StoredMember, to: Option<&str>) -> (Vec<u8>, u64) {
    let mut storage = [0; 400];
    let mut frame = Frame::new(&mut storage, 200);
    let mut builder = Builder::new(&mut frame, MessageType::NonConfirmable, Code::PUT, 1, b"t").unwrap();
    builder.payload(b"on").unwrap();
    let id = to.map(|name| member.id_of(name).unwrap());
    let mode = match member.recipients.iter_mut().find(|other| Some(*other.id()) == id) {
        Some(other) => Mode::Pairwise(other),
        None => Mode::Group,
    };
    let number = member.context.lease().next();
    member.context.protect_request(&mut crypto(), mode, [Replies::default(); 3], &mut frame).unwrap();
    (frame.bytes().to_vec(), number)
}

/// Opens the request in a datagram. Returns its payload, its identity, and true if the request is fresh.
fn take(member: &mut StoredMember, datagram: &[u8]) -> (Vec<u8>, GroupRequest, bool) {
    let mut datagram = datagram.to_vec();
    let others = member.recipients.as_mut_slice();
    match member.context.unprotect_request(&mut crypto(), others, &mut datagram).unwrap() {
        Unprotected::Fresh(message, nonce) => (message.payload().to_vec(), nonce.request(), true),
        Unprotected::Unverified(message, request) => (message.payload().to_vec(), request, false),
    }
}

fn refused(dir: &Path) -> String {
    StoredMember::open(dir).err().expect("refused").to_string()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in ["context.toml", "numbers.toml"] {
        let _ = std::fs::remove_file(to.join(file));
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
}

#[test]
fn the_members_of_a_new_group_understand_each_other_in_both_modes() {
    for (name, curve) in [("modes-ed25519", Curve::Ed25519), ("modes-p256", Curve::P256)] {
        let scene = Scene::new(name, curve);
        let [mut switch, mut hall, mut porch] = ["switch", "hall", "porch"].map(|name| scene.open(name));
        assert_eq!((hall.group(), hall.name()), ("lights", "hall"));
        let known: Vec<_> = hall.others().map(|(id, name, allow)| (*id, name, allow)).collect();
        assert_eq!(known, [(*switch.context.id(), "switch", None), (*porch.context.id(), "porch", None)]);
        let (to_all, _) = ask(&mut switch, None);
        for member in [&mut hall, &mut porch] {
            let (payload, request, is_fresh) = take(member, &to_all);
            assert_eq!((payload, request.is_signed(), is_fresh), (b"on".to_vec(), true, true));
            assert_eq!(Some(*request.client()), member.id_of("switch"));
        }
        let (to_hall, _) = ask(&mut switch, Some("hall"));
        let mut datagram = to_hall.clone();
        let others = porch.recipients.as_mut_slice();
        assert!(porch.context.unprotect_request(&mut crypto(), others, &mut datagram).is_err(), "it is for the hall");
        let (payload, request, is_fresh) = take(&mut hall, &to_hall);
        assert_eq!((payload, request.is_signed(), is_fresh), (b"on".to_vec(), false, true));
    }
}

#[test]
fn no_number_is_used_twice_and_windows_are_kept_at_an_orderly_end_alone() {
    let scene = Scene::new("numbers", Curve::Ed25519);
    let (mut switch, mut hall) = (scene.open("switch"), scene.open("hall"));
    let (first, number) = ask(&mut switch, None);
    assert_eq!((number, ask(&mut switch, Some("hall")).1), (0, 1), "both modes have numbers of one lease");
    assert!(take(&mut hall, &first).2);
    hall.close().unwrap();
    assert_eq!(hall.lease_one(), Err(ProtectError::LeaseSpent), "an end that is over sends nothing");
    drop((switch, hall));
    let (mut switch, mut hall) = (scene.open("switch"), scene.open("hall"));
    let others = hall.recipients.as_mut_slice();
    assert!(hall.context.unprotect_request(&mut crypto(), others, &mut first.clone()).is_err(), "a replay");
    assert_eq!(ask(&mut switch, None).1, 2);
    switch.abandon();
    let mut switch = scene.open("switch");
    let (next, number) = ask(&mut switch, None);
    assert_eq!(number, 2 + LEASE, "the rest of the lease is given up");
    assert!(take(&mut hall, &next).2);
    hall.abandon();
    let mut hall = scene.open("hall");
    assert!(!take(&mut hall, &next).2, "a possible replay receives a challenge");
    assert!(!take(&mut hall, &ask(&mut switch, Some("hall")).0).2);
    drop(hall);
    let mut hall = scene.open("hall");
    assert!(!take(&mut hall, &next).2, "a window that is lost stays lost");
    for _ in 0..2 * LEASE {
        switch.lease_one().unwrap();
        ask(&mut switch, Some("hall"));
    }
    assert_eq!(switch.context.lease().next(), 3 + LEASE + 1 + 2 * LEASE);
}

#[test]
fn a_member_is_open_once_and_copies_are_refused() {
    let scene = Scene::new("copies", Curve::Ed25519);
    let (dir, backup) = (scene.dir("hall"), scene.0.join("backup"));
    let golden = scene.0.join("golden");
    copy(&dir, &golden);
    let mut hall = scene.open("hall");
    assert!(refused(&dir).contains("another process uses this context"));
    ask(&mut hall, None);
    drop(hall);
    copy(&dir, &backup);
    assert!(refused(&backup).contains("is a copy, or was restored from a backup"));
    let mut hall = scene.open("hall");
    for _ in 0..3000 {
        hall.lease_one().unwrap();
        ask(&mut hall, None);
    }
    let next = hall.context.lease().next();
    drop(hall);
    copy(&backup, &dir);
    assert!(refused(&dir).contains("tegmen oscore recover"));
    assert!(recover(&dir).unwrap() >= next);
    let mut hall = scene.open("hall");
    assert!(ask(&mut hall, None).1 >= next);
    assert!(hall.recipients.iter().all(|other| other.window().mark().is_some()), "no window is known");
    // A copy that was made before the first use.
    let mut image = StoredMember::open(&golden).unwrap();
    assert!(ask(&mut image, None).1 > 300_000_000, "a day of numbers is left out");
    assert!(image.recipients.iter().all(|other| other.window().mark().is_some()));
}

#[test]
fn a_member_is_recognized_and_its_numbers_are_shown() {
    let scene = Scene::new("shown", Curve::P256);
    let dir = scene.dir("hall");
    assert!(is_member(&dir));
    let unused = used(&dir).unwrap();
    assert!(unused.is_unused && unused.window_known && unused.next == 0 && !unused.open);
    let mut hall = scene.open("hall");
    ask(&mut hall, None);
    assert!(used(&dir).unwrap().open);
    drop(hall);
    let after = used(&dir).unwrap();
    assert!(!after.is_unused && after.window_known && after.next == 1, "{after:?}");
    let mut hall = scene.open("hall");
    ask(&mut hall, None);
    hall.abandon();
    assert!(!used(&dir).unwrap().window_known);
    // Each kind of file refuses the other.
    let error = crate::contexts::StoredContext::open(&dir).err().unwrap().to_string();
    assert!(error.contains("a member of a group"), "{error}");
}

#[test]
fn the_numbers_of_a_member_are_in_a_database_or_in_its_file() {
    let scene = Scene::new("database", Curve::Ed25519);
    let dir = scene.dir("hall");
    let database = Database::open(&scene.0.join("state.db")).unwrap();
    let mut switch = scene.open("switch");
    let open = || StoredMember::open_in(&dir, Some(&database)).unwrap();
    let mut hall = open();
    let (first, _) = ask(&mut switch, None);
    assert!(take(&mut hall, &first).2);
    assert_eq!(ask(&mut hall, None).1, 0);
    drop(hall);
    let mut hall = open();
    let others = hall.recipients.as_mut_slice();
    assert!(hall.context.unprotect_request(&mut crypto(), others, &mut first.clone()).is_err(), "a replay");
    assert_eq!(ask(&mut hall, None).1, 1);
    hall.abandon();
    let mut hall = open();
    assert_eq!(ask(&mut hall, None).1, 1 + LEASE);
    assert!(!take(&mut hall, &first).2);
    drop(hall);
    assert!(refused(&dir).contains("--state"));
}

#[test]
fn a_group_is_made_whole_or_not_at_all() {
    let scene = Scene::new("made", Curve::Ed25519);
    let dir = scene.0.join("lights");
    let make = |names: &[&str], allow: &[(&str, &str)], expires: Option<&str>, to: &str| {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let allow = allow.iter().map(|(name, right)| ((*name).to_owned(), vec![(*right).to_owned()])).collect();
        create_group(&scene.0.join(to), &names, Curve::Ed25519, &allow, expires).map_err(|error| error.to_string())
    };
    for (names, allow, expires, expected) in [
        (&["a"][..], &[][..], None, "2 to 256 members"),
        (&["a", "a"], &[], None, "two members have the name a"),
        (&["a", "../b"], &[], None, "is no name of a member"),
        (&["a", "b\"c"], &[], None, "is no name of a member"),
        (&["a", "b"], &[("c", "GET /*")], None, "c has rights, and is no member"),
        (&["a", "b"], &[("a", "EAT /*")], None, "allow: a method (GET, POST"),
        (&["a", "b"], &[], Some("tomorrow"), "expires: a time with its zone"),
    ] {
        let error = make(names, allow, expires, "other").unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(!scene.0.join("other").exists(), "nothing is written");
    }
    let error = make(&["new", "hall"], &[], None, "lights").unwrap_err();
    assert!(error.contains("nothing is written over"), "{error}");
    assert!(!dir.join("new").exists(), "nothing is written");
    make(&["a", "b"], &[("a", "GET /*")], Some("2099-12-31"), "other").unwrap();
    let b = MemberFile::read(&scene.0.join("other/b")).unwrap();
    assert_eq!(b.others.first().unwrap().allow.as_deref(), Some(&["GET /*".to_owned()][..]));
    assert_eq!(b.expires.unwrap().1, "2099-12-31");
    assert_eq!(MemberFile::read(&scene.0.join("other/a")).unwrap().others.first().unwrap().allow, None);
}
