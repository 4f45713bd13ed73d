use super::*;
use crate::contexts::member::create_group;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Makes the file of a member, and returns its path and text.
fn text(name: &str, curve: Curve) -> (PathBuf, String) {
    let dir = std::env::temp_dir().join(format!("tegmen-member-file-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let allow = BTreeMap::from([("hall".to_owned(), vec!["GET /*".to_owned()])]);
    let names = ["switch", "hall", "porch"].map(str::to_owned);
    create_group(&dir, &names, curve, &allow, None).unwrap();
    let text = std::fs::read_to_string(dir.join("switch/context.toml")).unwrap();
    (dir, text)
}

/// Returns the number of the line with this key, from 1. Searches from the member `of` on.
fn line(text: &str, of: &str, key: &str) -> usize {
    let lines = text.lines().zip(1..).skip_while(|(line, _)| !line.contains(of));
    lines.into_iter().find(|(line, _)| line.starts_with(key)).unwrap().1
}

fn value(text: &str, at: usize) -> &str {
    text.lines().nth(at - 1).unwrap().split_once(" = ").unwrap().1
}

#[test]
fn a_mistake_is_reported_with_its_line() {
    let (dir, text) = text("mistakes", Curve::Ed25519);
    let _ = std::fs::remove_dir_all(dir);
    let (own, hall, porch) = ("group = ", "\"hall\"", "\"porch\"");
    for (of, key, with, expected) in [
        (own, "group_id", "\"00112233445566778899aabbccddeeff00\"", "group_id: at most 16 bytes"),
        (own, "sender_id", "\"0102030405060708\"", "sender_id: at most 7 bytes"),
        (own, "sender_id", "\"0\"", "sender_id: an even number of hexadecimal digits"),
        (own, "master_secret", "\"00\"", "master_secret: at least 16 random bytes"),
        (own, "private_key", "\"00\"", "private_key: 32 bytes, the key that credential"),
        (own, "private_key", &format!("\"{}\"", "07".repeat(32)), "private_key: 32 bytes, the key that credential"),
        (own, "credential", "\"a0\"", "credential: a CWT Claims Set with a key on ed25519"),
        (own, "curve", "\"p521\"", "curve: ed25519 or p256"),
        (own, "group_manager_credential", "\"\"", "group_manager_credential: a CWT Claims Set"),
        (own, "created", "2026-01-01T00:00:00", "created: a time with its zone"),
        (hall, "id", "\"00\"", "id: two members have the ID 00"),
        (porch, "id", "\"01\"", "id: two members have the ID 01"),
        (porch, "name", "\"hall\"", "name: two members have the name hall"),
        (hall, "name", "\"switch\"", "name: two members have the name switch"),
        (porch, "credential", "\"a10801\"", "credential: a CWT Claims Set with a key on ed25519"),
        (hall, "allow", "[\"EAT /x\"]", "allow: a method (GET, POST"),
        (porch, "id", "\"01\"\ncolor = 1", "unknown field"),
    ] {
        let at = line(&text, of, key);
        let lines = text.lines().zip(1..).map(|(line, number)| match number == at {
            true => format!("{key} = {with}\n"),
            false => format!("{line}\n"),
        });
        let error = MemberFile::parse(&Source::of("c", &lines.collect::<String>())).err().unwrap().to_string();
        let at = at + with.matches('\n').count();
        assert!(error.starts_with(&format!("c:{at}: {expected}")), "{error} (expected c:{at}: {expected})");
    }
}

#[test]
fn only_the_file_of_a_monitor_has_no_keys_of_its_own() {
    let (dir, text) = text("monitor", Curve::Ed25519);
    let _ = std::fs::remove_dir_all(dir);
    let manager = "[manager]\nuri = \"coaps://127.0.0.1/ace-group/lights\"\nnode = \"8\"\nepoch = 2\n";
    let (head, members) = text.split_once("\n[[member]]").unwrap();
    let without = |keys: &[&str], manager: &str| {
        let is_left_out = |line: &&str| keys.iter().any(|key| line.starts_with(&format!("{key} = ")));
        let head: Vec<&str> = head.lines().filter(|line| !is_left_out(line)).collect();
        let text = format!("{}\n{manager}\n[[member]]{members}", head.join("\n"));
        MemberFile::parse(&Source::of("c", &text)).map_err(|error| error.to_string())
    };
    let all = ["sender_id", "private_key", "credential"];
    let monitor = without(&all, manager).unwrap();
    assert!(monitor.own.is_none());
    let context = monitor.context(0).unwrap();
    assert!(monitor.others.iter().all(|other| other.id != *context.id()), "no member has its ID");
    let member = without(&[], manager).unwrap();
    assert!(member.own.is_some());
    assert_ne!(monitor.terms().row, member.terms().row);
    for (keys, manager) in [(&all[..], ""), (&all[..1], manager), (&all[1..], manager), (&all[..2], manager)] {
        let error = without(keys, manager).err().unwrap();
        assert!(error.contains("name: a member has sender_id, private_key and credential"), "{error}");
    }
}

#[test]
fn keys_of_another_curve_and_points_that_are_none_are_refused() {
    let (dir, text) = text("points", Curve::P256);
    let credential = line(&text, "\"porch\"", "credential");
    let other_curve = text.replace("curve = \"p256\"", "curve = \"ed25519\"");
    let error = MemberFile::parse(&Source::of("c", &other_curve)).err().unwrap().to_string();
    assert!(error.contains("credential: a CWT Claims Set with a key on ed25519"), "{error}");
    // Another y coordinate.
    let digits = value(&text, credential).trim_matches('"');
    let spoiled = format!("{}{}", &digits[..digits.len() - 2], if digits.ends_with("00") { "01" } else { "00" });
    let file = MemberFile::parse(&Source::of("c", &text.replace(digits, &spoiled))).unwrap();
    let (context, mut crypto) = (file.context(0).unwrap(), HostCrypto::new([0; 32], 1));
    let porch = file.others.iter().find(|other| other.name == "porch").unwrap();
    let error = file.recipient(&context, &mut crypto, porch, None).err().unwrap().to_string();
    assert!(error.starts_with(&format!("c:{credential}: credential: its key is no valid point")), "{error}");
    // A credential that is too long for the buffer.
    let own_key = &file.own.as_ref().unwrap().private_key;
    let long = keys::credential(&"n".repeat(900), &keys::public_of(Curve::P256, own_key).unwrap());
    let own = line(&text, "group = ", "credential");
    let text = text.replace(value(&text, own), &format!("\"{}\"", to_hex(&long)));
    let error = MemberFile::parse(&Source::of("c", &text)).unwrap().context(0).err().unwrap().to_string();
    assert!(error.starts_with(&format!("c:{own}: credential: this one and group_manager_credential")), "{error}");
    let _ = std::fs::remove_dir_all(dir);
}

#[cfg(unix)]
#[test]
fn a_file_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let (dir, _) = text("exposed", Curve::Ed25519);
    let file = dir.join("hall/context.toml");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = super::super::StoredMember::open(&dir.join("hall")).err().unwrap().to_string();
    assert!(error.contains("others may read it (mode 640)"), "{error}");
    let _ = std::fs::remove_dir_all(dir);
}
