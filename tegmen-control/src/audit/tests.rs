//! Tests of logs on the disk, with every kind of manipulation.

use super::*;
use std::path::PathBuf;
use std::sync::Arc;
use tegmen_trust::x509::signer::{Signer, SoftwareKey};

/// A key, and a temporary directory that is removed when the value is dropped.
struct Scene {
    dir: PathBuf,
    key: Arc<dyn Signer>,
}

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-audit-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        Self { dir, key: key() }
    }

    fn file(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    fn open(&self, bounds: AuditBounds) -> Result<AuditLog, AuditError> {
        AuditLog::open(&self.file(), Arc::clone(&self.key), bounds)
    }

    /// Writes a log. Its first line records the start of the log, and `grants` lines follow. Returns the bytes of the
    /// log, and its head.
    fn log(&self, grants: usize) -> (Vec<u8>, Head) {
        let log = self.open(AuditBounds::default()).expect("a log");
        for number in 0..grants {
            wait(log.write(record(number))).expect("written");
        }
        drop(log);
        (std::fs::read(self.file()).expect("a log"), self.head())
    }

    fn head(&self) -> Head {
        Head::parse(&std::fs::read(self.dir.join("audit.log.head")).expect("a head")).expect("a head")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn key() -> Arc<dyn Signer> {
    let pair = rcgen::KeyPair::generate().expect("a key pair");
    Arc::new(SoftwareKey::from_pem(pair.serialize_pem().as_bytes()).expect("a key"))
}

fn record(number: usize) -> Record {
    let who = format!("display-{number}");
    Record {
        kind: Kind::Grant,
        who,
        code: "granted",
        message: "asks for the session oven;AAECAwQFBgcI: granted".into(),
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

#[test]
fn a_record_is_written_as_the_json_of_its_fields() {
    let kinds = [
        (Kind::Grant, "grant"),
        (Kind::Refusal, "refusal"),
        (Kind::Revocation, "revocation"),
        (Kind::Policy, "policy"),
        (Kind::Device, "device"),
        (Kind::Group, "group"),
        (Kind::Key, "key"),
        (Kind::User, "user"),
        (Kind::Server, "server"),
    ];
    let texts =
        ["", "plain", "a \"quoted\" word", "back\\slash", "two\nlines\t", "\u{0}\u{1f} \u{7f}", "\u{e9}\u{2028}", "'"];
    for (kind, name) in kinds {
        for text in texts {
            let mut out = b"before".to_vec();
            Record { kind, who: text.to_owned(), code: "code", message: text.repeat(3) }.write(17, &mut out);
            let expected = format!(
                r#"before{{"at":17,"kind":"{name}","who":{},"code":"code","message":{}}}"#,
                serde_json::to_string(text).expect("a text"),
                serde_json::to_string(&text.repeat(3)).expect("a text")
            );
            assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
        }
    }
}

#[test]
fn numbers_are_written_in_decimal_digits() {
    let record = Record { kind: Kind::Server, who: String::new(), code: "started", message: String::new() };
    let longest = (0..=20).map(|digits| 10_u64.saturating_pow(digits));
    for number in [0, 5].into_iter().chain(longest.flat_map(|power| [power - 1, power])) {
        let (mut event, mut line) = (Vec::new(), Vec::new());
        record.write(number, &mut event);
        super::line::write_line(&mut line, number, &super::line::GENESIS, &event);
        let line: serde_json::Value = serde_json::from_slice(&line).expect("a line of JSON");
        assert_eq!((line["n"].as_u64(), line["at"].as_u64()), (Some(number), Some(number)));
    }
}

/// Returns the number of the first line that is broken in a manipulated log.
fn broken(log: &[u8], head: &Head) -> Option<u64> {
    match verify(log, Some(head)) {
        Ok(_) => None,
        Err(Broken::Line { line, .. }) => Some(line),
        Err(Broken::Unreadable(error)) => panic!("{error}"),
    }
}

#[test]
fn the_audit_chain_breaks_where_it_was_touched() {
    let (log, head) = Scene::new("touched").log(4);
    let verified = verify(&log[..], Some(&head)).expect("an untouched log");
    assert_eq!(verified, Verified { lines: 5, signed: 5 });
    let lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
    let line_of = |at: usize| log[..at].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    // The mutant compares only the numbers of lines, as a log without hashes could: a change of a name passes.
    let renamed = String::from_utf8(log.clone()).expect("text").replace("display-1", "display-9");
    let numbers = renamed
        .lines()
        .zip(1..)
        .all(|(line, number)| serde_json::from_str::<serde_json::Value>(line).is_ok_and(|line| line["n"] == number));
    assert!(numbers && verify(renamed.as_bytes(), Some(&head)).is_err());
    // Every change of a byte to each of some others, and its deletion.
    for at in 0..log.len() {
        for other in [log[at] ^ 1, log[at] ^ 0x20, b'\n', b' ', b'0', b'"', 0] {
            let mut touched = log.clone();
            touched[at] = other;
            if other != log[at] {
                assert_eq!(broken(&touched, &head), Some(line_of(at)), "byte {at} becomes {other}");
            }
        }
        let without = [&log[..at], &log[at + 1..]].concat();
        assert_eq!(broken(&without, &head), Some(line_of(at)), "byte {at} goes");
        // Every truncation.
        assert_eq!(broken(&log[..at], &head), Some(line_of(at)), "cut at {at}");
    }
    for one in 0..lines.len() {
        // Every deletion and every repetition of a line.
        let without = [&lines[..one], &lines[one + 1..]].concat().concat();
        assert_eq!(broken(&without, &head), Some(one as u64 + 1), "line {} goes", one + 1);
        let twice = [&lines[..=one], &lines[one..]].concat().concat();
        assert_eq!(broken(&twice, &head), Some(one as u64 + 2), "line {} twice", one + 1);
        for other in one + 1..lines.len() {
            let mut moved = lines.clone();
            moved.swap(one, other);
            assert_eq!(broken(&moved.concat(), &head), Some(one as u64 + 1), "{one} and {other} change places");
        }
    }
    // A whole log that another key signed has another key's digest, and a head that was changed is refused.
    let forged = Head::sign(head.lines, head.hash, head.at, &*key()).expect("signed");
    assert_ne!(Head::parse(forged.text().as_bytes()).expect("a head").key(), head.key());
    let fewer = head.text().replacen("\"lines\":5", "\"lines\":4", 1);
    assert_eq!(Head::parse(fewer.as_bytes()), Err(HeadError::Signature));
}

#[test]
fn a_log_goes_on_after_a_restart_and_after_a_cut_line() {
    let scene = Scene::new("restart");
    let (log, first) = scene.log(2);
    std::fs::write(scene.file(), [&log[..], b"{\"n\":4,\"prev\":\"a cra"].concat()).expect("written");
    let (log, second) = scene.log(1);
    for (head, signed) in [(&first, 3), (&second, 5)] {
        assert_eq!(verify(&log[..], Some(head)).expect("a whole log"), Verified { lines: 5, signed });
    }
    // A log that was cut at a line does not open.
    let cut = log.len() - log[..log.len() - 1].iter().rev().take_while(|byte| **byte != b'\n').count() - 1;
    std::fs::write(scene.file(), &log[..cut]).expect("written");
    let refused = scene.open(AuditBounds::default());
    assert!(matches!(refused, Err(AuditError::Touched { .. })));
}

#[test]
fn two_processes_do_not_write_one_log() {
    let scene = Scene::new("twice");
    let log = scene.open(AuditBounds::default()).expect("a log");
    assert!(matches!(scene.open(AuditBounds::default()), Err(AuditError::InUse(_))));
    drop(log);
    assert!(scene.open(AuditBounds::default()).is_ok());
}

#[test]
fn a_full_log_refuses_grants_and_counts_what_it_lost() {
    let scene = Scene::new("full");
    let bounds = AuditBounds { spool: 8, file: 1500, ..AuditBounds::default() };
    let log = scene.open(bounds).expect("a log");
    let granted = (0..).take_while(|number| wait(log.write(record(*number))).is_ok()).count();
    assert!(granted > 1 && log.is_writable().is_err());
    // Revocations are recorded while there are places, and never refused.
    for _ in 0..20 {
        log.note(Record { kind: Kind::Revocation, who: "operator".into(), code: "revoked", message: "a token".into() });
    }
    let lines = || std::fs::read_to_string(scene.file()).expect("a log");
    assert_eq!(lines().lines().count(), granted + 1, "what was refused has no line");
    // With space the log continues, and has the number of records that it lost.
    log.set_longest(u64::MAX);
    while wait(log.write(record(9))).is_err() {
        std::thread::yield_now();
    }
    drop(log);
    let text = lines();
    let revoked = text.lines().filter(|line| line.contains("\"kind\":\"revocation\"")).count();
    let lost = text.lines().find_map(|line| line.split("written; ").nth(1)?.split(' ').next()?.parse::<usize>().ok());
    assert_eq!(lost.map(|lost| lost + revoked), Some(20), "{text}");
    assert!((1..20).contains(&revoked), "{revoked}");
    assert!(verify(text.as_bytes(), Some(&scene.head())).is_ok());
}

#[test]
fn a_message_is_cut_and_cannot_begin_a_line() {
    let scene = Scene::new("message");
    let log = scene.open(AuditBounds::default()).expect("a log");
    let message = format!("a\n{{\"n\":9}}\n{}", "ä".repeat(MAX_MESSAGE));
    wait(log.write(Record { kind: Kind::Policy, who: "o\n".repeat(9000), code: "applied", message })).expect("written");
    drop(log);
    let text = std::fs::read(scene.file()).expect("a log");
    assert_eq!(verify(&text[..], Some(&scene.head())).expect("a whole log").lines, 2);
}
