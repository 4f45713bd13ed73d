use super::*;
use crate::hex::to_hex;

fn parse(text: &str) -> Result<Table, String> {
    Table::parse("keys.toml", text).map_err(|error| error.to_string())
}

#[test]
fn a_good_file_is_read() {
    let table = parse("[[psk]]\nidentity = \"a\"\nkey = \"00ff\"\nallow = [\"GET /*\", \"PUT /blink\"]\n").unwrap();
    let entry = &table.psk["a"];
    assert_eq!(**entry.key.bytes, [0, 255]);
    assert!(entry.previous.is_none());
    let rules = entry.allow.as_ref().unwrap();
    assert!(rules.iter().any(|rule| rule.covers(Code::PUT, "/blink".bytes())));
    assert!(!rules.iter().any(|rule| rule.covers(Code::PUT, "/blinker".bytes())));
    assert!(rules.iter().any(|rule| rule.covers(Code::GET, "/anything/below".bytes())));
}

#[test]
fn an_identity_keeps_its_previous_key_while_that_is_in_the_file() {
    let both = "[[psk]]\nidentity = \"a\"\nkey = \"00ff\"\nprevious_key_text = \"old\"\nallow = [\"GET /*\"]\n";
    let credentials = Credentials::default();
    credentials.replace(parse(both).unwrap());
    let keys = credentials.keys_of(b"a").unwrap();
    let previous = keys.previous.clone().unwrap();
    assert_eq!((&keys.current.key[..], &previous.key[..]), (&[0, 255][..], &b"old"[..]));
    assert_ne!(keys.current.principal, previous.principal);
    let may_get = |principal| credentials.allows(principal, Code::GET, b"/x".iter().copied());
    assert!(keys.iter().all(|key| may_get(key.principal) && credentials.is_current(key.principal)));
    credentials.replace(parse("[[psk]]\nidentity = \"a\"\nkey = \"00ff\"\nallow = [\"GET /*\"]\n").unwrap());
    assert!(may_get(keys.current.principal) && credentials.is_current(keys.current.principal));
    assert!(!may_get(previous.principal) && !credentials.is_current(previous.principal));
    assert!(credentials.keys_of(b"a").unwrap().previous.is_none());
}

#[test]
fn a_bad_file_names_line_key_and_fix() {
    for (text, expected) in [
        ("[[psk]]\nidentity = \"a\"\nkey = \"0g\"", "keys.toml:3: key: an even number of hexadecimal"),
        ("[[psk]]\nidentity = \"a\"\nkye = \"00\"", "keys.toml:3: unknown field `kye`"),
        ("[[psk]]\nidentity = \"a\"\n", "keys.toml:1: a: key is missing"),
        ("[[psk]]\nidentity = \"\"\nkey = \"00\"", "keys.toml:2: identity: 1 to 128 bytes"),
        ("[[psk]]\nidentity = \"a\"\nkey = \"\"", "keys.toml:3: key: 1 to 64 bytes"),
        ("\n\n[[psk]\n", "keys.toml:3: "),
        ("[[psk]]\nidentity=\"a\"\nkey=\"00\"\nprevious_key=\"0\"", "keys.toml:4: previous_key: an even number"),
        ("[[psk]]\nidentity=\"a\"\nprevious_key=\"00\"", "keys.toml:1: a: key is missing"),
        ("[[psk]]\nidentity=\"a\"\nkey=\"00\"\nallow=[\"READ /\"]", "keys.toml:4: allow: a method"),
        (
            "[[psk]]\nidentity=\"a\"\nkey=\"00\"\n[[psk]]\nidentity=\"a\"\nkey=\"00\"",
            "keys.toml:5: identity: a is there twice",
        ),
    ] {
        let error = parse(text).err().unwrap();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_file_that_others_may_read_is_refused_and_a_bad_change_keeps_the_old() {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::temp_dir().join(format!("tegmen-credentials-{}.toml", std::process::id()));
    std::fs::write(&path, "[[psk]]\nidentity = \"a\"\nkey = \"00\"\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(Credentials::from_file(&path), Err(CredentialsError::Exposed { mode: 0o644, .. })));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let credentials = Credentials::from_file(&path).unwrap();
    let first = credentials.keys_of(b"a").unwrap().current.principal;
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    std::fs::write(&path, "[[psk]]\nidentity = \"a\"\n").unwrap();
    std::fs::File::open(&path).unwrap().set_modified(later).unwrap();
    assert!(credentials.reload_if_changed().is_err());
    assert!(credentials.keys_of(b"a").is_some());
    std::fs::write(&path, "[[psk]]\nidentity = \"b\"\nkey = \"01\"\n").unwrap();
    std::fs::File::open(&path).unwrap().set_modified(later + std::time::Duration::from_secs(5)).unwrap();
    assert_eq!(credentials.reload_if_changed().unwrap(), Some(1));
    assert!(credentials.keys_of(b"a").is_none());
    assert!(!credentials.allows(first, Code::GET, "/".bytes()));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_failed_reload_is_tried_again_until_it_succeeds_and_reported_once() {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::temp_dir().join(format!("tegmen-credentials-again-{}.toml", std::process::id()));
    let replace = |text: &str, mode| {
        let draft = path.with_extension("new");
        std::fs::write(&draft, text).unwrap();
        std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(mode)).unwrap();
        let earlier =
            std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000 + text.len() as u64);
        std::fs::File::options().write(true).open(&draft).unwrap().set_modified(earlier).unwrap();
        std::fs::rename(&draft, &path).unwrap();
    };
    replace("[[psk]]\nidentity = \"lost\"\nkey = \"00\"\n", 0o600);
    let credentials = Credentials::from_file(&path).unwrap();
    // The lost key is removed, by a file that others may read; what mends that leaves the time of modification alone.
    replace("[[psk]]\nidentity = \"a\"\nkey = \"00\"\n", 0o644);
    assert!(matches!(credentials.reload_if_changed(), Err(CredentialsError::Exposed { mode: 0o644, .. })));
    assert!(matches!(credentials.reload_if_changed(), Ok(None)));
    assert!(credentials.keys_of(b"lost").is_some());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(credentials.reload_if_changed().unwrap(), Some(1));
    assert!(credentials.keys_of(b"lost").is_none());
    assert_eq!(credentials.reload_if_changed().unwrap(), None);
    // A new file with the same time and length is read; another error is reported again.
    replace("[[psk]]\nidentity = \"b\"\nkey = \"00\"\n", 0o600);
    assert_eq!(credentials.reload_if_changed().unwrap(), Some(1));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(credentials.reload_if_changed(), Err(CredentialsError::Unreadable { .. })));
    assert!(matches!(credentials.reload_if_changed(), Ok(None)));
    assert!(credentials.keys_of(b"b").is_some());
    replace("[[psk]]\nidentity = \"b\"\nkey = \"0\"\n", 0o600);
    assert!(matches!(credentials.reload_if_changed(), Err(CredentialsError::Syntax { .. })));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn those_without_an_entry_have_the_rights_of_the_star() {
    let digest = [0xab; 32];
    let text = format!(
        "[[certificate]]\nname = \"*\"\nallow = []\n[[certificate]]\nname = \"CN=a\"\nallow = [\"GET /*\"]\n\
         [[certificate]]\nname = \"sha256:{}\"\nallow = [\"PUT /x\"]\n",
        to_hex(&digest)
    );
    let credentials = Credentials::default();
    credentials.replace(parse(&text).unwrap());
    let may = |name, kind, digest| {
        let principal = credentials.certified_as(name, kind, digest);
        [(Code::GET, "/x"), (Code::PUT, "/x")].map(|(code, path)| credentials.allows(principal, code, path.bytes()))
    };
    assert_eq!(may("CN=a", CertificateType::X509, [1; 32]), [true, false]);
    assert_eq!(may("CN=b", CertificateType::X509, [1; 32]), [false, false]);
    assert_eq!(may("CN=a", CertificateType::X509, digest), [false, true]);
    assert_eq!(may("CN=b", CertificateType::RAW_PUBLIC_KEY, digest), [true, true]);
    for (text, expected) in [
        ("[[certificate]]\nname = \"sha256:00\"", "keys.toml:2: name: behind sha256: 64 hex"),
        ("[[raw_key]]\nname = \"\"", "keys.toml:2: name: the subject"),
        ("[[raw_key]]\nname = \"a\"\n[[raw_key]]\nname = \"a\"", "keys.toml:4: name: a is there twice"),
        ("[anonymous]\n", "keys.toml:1: missing field `allow`"),
    ] {
        let error = parse(text).err().unwrap();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_delegated_peer_has_the_rights_of_certificates_of_its_name_and_without_an_entry_none() {
    let credentials = Credentials::default();
    credentials.replace(parse("[[certificate]]\nname = \"CN=a\"\nallow = [\"GET /*\"]\n").unwrap());
    let may = |principal, code| credentials.allows(principal, code, b"/x".iter().copied());
    let (a, b) = (credentials.delegated_as("CN=a", 1, 5), credentials.delegated_as("CN=b", 1, 6));
    assert!(may(a, Code::GET) && !may(a, Code::PUT) && !may(b, Code::GET));
    // Device, number and name tell peers apart.
    assert_eq!(a, credentials.delegated_as("CN=a", 1, 5));
    assert!(a != credentials.delegated_as("CN=a", 2, 5) && a != credentials.delegated_as("CN=a", 1, 6));
    assert_eq!(credentials.delegated(a), Some((1, 5)));
    assert_eq!(credentials.name_of(a).as_deref(), Some("CN=a"));
    let certified = credentials.certified_as("CN=a", CertificateType::X509, Digest::default());
    assert_eq!(credentials.delegated(certified), None);
    credentials.replace(parse("[[certificate]]\nname = \"*\"\nallow = [\"PUT /x\"]\n").unwrap());
    assert!(may(a, Code::PUT) && !may(a, Code::GET) && may(b, Code::PUT));
}

#[test]
fn a_peer_with_a_delegated_session_has_its_number_until_the_last_session_ends() {
    let credentials = Credentials::default();
    credentials.replace(parse("[[certificate]]\nname = \"*\"\nallow = [\"GET /*\"]\n").unwrap());
    let peer = || credentials.delegated_as("CN=a", 1, 5);
    let may = |principal| credentials.allows(principal, Code::GET, b"/x".iter().copied());
    let principal = peer();
    let (first, second) = (credentials.hold(principal), credentials.hold(peer()));
    assert!(first.is_some() && second.is_some());
    drop(first);
    assert_eq!((peer(), may(principal), credentials.peers()), (principal, true, 1), "one session is left");
    let third = credentials.hold(principal);
    drop((second, third));
    assert_eq!((credentials.peers(), credentials.name_of(principal), may(principal)), (0, None, false));
    // The number of a peer that is gone is no other's.
    assert!(peer() != principal && !may(principal) && credentials.hold(principal).is_none());
}

#[test]
fn a_peer_with_a_certificate_has_its_number_until_the_last_session_ends() {
    let credentials = Credentials::default();
    let principal = credentials.certified_as("CN=a", CertificateType::X509, [1; 32]);
    let held = credentials.hold(principal);
    assert_eq!(credentials.certified(principal), Some((CertificateType::X509, [1; 32])));
    drop(held);
    assert_eq!((credentials.certified(principal), credentials.peers()), (None, 0));
}

#[test]
fn a_session_that_ends_during_a_handshake_of_its_peer_leaves_the_number() {
    let credentials = Credentials::default();
    let peer = || credentials.delegated_as("CN=a", 1, 5);
    let principal = peer();
    let before = credentials.hold(principal);
    assert_eq!(peer(), principal);
    drop(before);
    let after = credentials.hold(principal);
    assert_eq!((credentials.delegated(principal), credentials.peers()), (Some((1, 5)), 1));
    drop(after);
    assert_eq!(credentials.peers(), 0);
}

#[test]
fn a_handshake_without_a_session_is_forgotten_and_keys_of_the_file_are_not() {
    let (mut principals, start) = (Principals::default(), Instant::now());
    let shared = Arc::default();
    let key = principals.number(Proof::Psk([1; 32]), "a", start);
    let mut peer = |number, seconds| {
        let now = start + std::time::Duration::from_secs(seconds);
        (principals.number(Proof::Delegated(1, number), "a", now), principals.len())
    };
    let (first, second) = (peer(1, 0).0, peer(2, 10).0);
    // A handshake of the first begins again, and the second one sends nothing more.
    assert_eq!(peer(1, 200), (first, 3));
    assert_eq!(peer(3, 310).1, 3);
    assert!(principals.get(first).is_some() && principals.get(second).is_none() && principals.get(key).is_some());
    assert!(principals.hold(key, &shared).is_none());
    let held = principals.hold(first, &shared);
    principals.give_up_handshakes(start + std::time::Duration::from_secs(10_000));
    assert!(principals.get(first).is_some() && principals.len() == 2);
    // The lease is of a table of its own here.
    drop(held);
}

#[test]
fn a_peer_of_a_key_store_has_its_number_for_a_while_after_its_last_session() {
    const MOST: usize = 1 << 14;
    let credentials = Credentials::default();
    let allow = ["GET /*".to_owned()];
    let session = |identity: &str| {
        let principal = credentials.learn_stored(identity, Some(b"key"), Some(&allow));
        (principal, credentials.hold(principal).expect("a peer with sessions"))
    };
    let (first, held) = session("first");
    for number in 0..MOST {
        drop(session(&format!("{number}")));
    }
    assert_eq!(credentials.peers(), MOST + 1);
    assert!(credentials.stored("0").is_some() && credentials.stored("first") == Some(first));
    // It may resume its session, and is then the last one.
    drop(held);
    assert_eq!((credentials.peers(), credentials.stored("0")), (MOST, None));
    let resumed = credentials.stored("1").expect("a registered peer");
    drop(credentials.hold(resumed));
    drop(session("another"));
    assert_eq!((credentials.stored("1"), credentials.stored("2")), (Some(resumed), None));
    assert_eq!((credentials.peers(), credentials.stored("first")), (MOST, Some(first)));
    // Rights end with the number, and an earlier key has its own number.
    let rekeyed = credentials.learn_stored("first", Some(b"another key"), None);
    assert!(rekeyed != first && credentials.standing(first).is_some());
    for number in 0..MOST {
        drop(session(&format!("later {number}")));
    }
    assert_eq!((credentials.name_of(first), credentials.standing(first)), (None, None));
    assert_eq!(credentials.stored("first"), Some(rekeyed), "its handshake is not over");
}

#[test]
fn handshakes_that_fail_take_the_number_of_no_peer_that_had_a_session() {
    let (credentials, start) = (Credentials::default(), Instant::now());
    let proved = credentials.learn_stored("proved", Some(b"key"), None);
    drop(credentials.hold(proved));
    credentials.write(|shared| {
        // The server learns the key of an identity before the peer has proved it.
        for number in 0..=1 << 14 {
            shared.principals.store(None, &format!("{number}"), start);
        }
        shared.principals.give_up_handshakes(start + std::time::Duration::from_secs(300));
    });
    assert_eq!((credentials.peers(), credentials.stored("proved")), (1, Some(proved)));
}
