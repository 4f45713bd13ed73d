use super::*;
use crate::subscriber::SessionKey;
use proptest::prelude::*;

const IDENTITY: &str = "oven;AAECAwQFBgcI";

#[test]
fn a_question_is_read_as_it_is_written() {
    for question in [Question::Session(IDENTITY.to_owned()), Question::Publisher("oven".to_owned())] {
        let line = question.line();
        assert_eq!(Question::parse(line.strip_suffix('\n').unwrap().as_bytes()), Some(question));
    }
}

#[test]
fn a_line_that_is_no_question_is_none() {
    let long = format!("publisher {}", "a".repeat(65));
    for line in [
        "",
        "session",
        "session ",
        "session oven",
        "session oven;short",
        " session oven;AAECAwQFBgcI",
        "session  oven;AAECAwQFBgcI",
        "session oven;AAECAwQFBgcI ",
        "session oven;AAECAwQFBgcI\r",
        "Session oven;AAECAwQFBgcI",
        "publisher",
        "publisher ",
        "publisher oven;AAECAwQFBgcI",
        "publisher oven mallory",
        "publisher \u{e9}",
        &long,
    ] {
        assert_eq!(Question::parse(line.as_bytes()), None, "{line:?}");
    }
}

#[test]
fn an_answer_is_read_as_it_is_written() {
    for (expires_in, seconds) in [(Some(3600), "3600"), (None, "0")] {
        let key = SessionKey { key: Zeroizing::new(vec![0x00, 0x0a, 0xff]), expires_in };
        let line = Answer::Key { identity: IDENTITY.to_owned(), key }.line();
        assert_eq!(*line, format!("key {IDENTITY} 000aff {seconds}\n"));
        let Some(Answer::Key { identity, key }) = Answer::parse(line.trim_end().as_bytes()) else { panic!("{line:?}") };
        assert_eq!((identity.as_str(), &**key.key, key.expires_in), (IDENTITY, &[0, 10, 255][..], expires_in));
    }
}

#[test]
fn a_line_that_is_no_answer_is_none() {
    let long_key = format!("key {IDENTITY} {} 1", "00".repeat(65));
    for line in [
        "",
        "key",
        "key oven 00 1",
        "key oven;AAECAwQFBgcI  1",
        "key oven;AAECAwQFBgcI 0 1",
        "key oven;AAECAwQFBgcI 00",
        "key oven;AAECAwQFBgcI 00 -1",
        "key oven;AAECAwQFBgcI 00 1 1",
        "error refused",
        &long_key,
    ] {
        assert!(Answer::parse(line.as_bytes()).is_none(), "{line:?}");
    }
}

#[test]
fn an_error_stays_one_line_of_bounded_length() {
    let text = "two\nlines\r".to_owned() + &"\u{20ac}".repeat(1000);
    let line = Answer::Error { code: "refused".to_owned(), text }.line();
    assert!(line.len() <= MAX_ANSWER && line.matches('\n').count() == 1 && line.ends_with("\u{20ac}\n"), "{line:?}");
    assert!(line.starts_with("error refused two lines \u{20ac}"), "{line:?}");
}

#[test]
fn a_key_is_not_in_its_debug_output() {
    let key = SessionKey { key: Zeroizing::new(vec![171; 16]), expires_in: None };
    let text = format!("{:?}", Answer::Key { identity: IDENTITY.to_owned(), key });
    assert!(!text.contains("171") && !text.contains("ab"), "{text}");
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_fail(line in prop::collection::vec(any::<u8>(), 0..200), kind in 0..4_usize) {
        let line = [["session ", "publisher ", "key ", "error "][kind].as_bytes(), &line].concat();
        if let Some(question) = Question::parse(&line) {
            let again = question.line();
            prop_assert_eq!(again.as_bytes(), [&line[..], b"\n"].concat());
        }
        if let Some(answer) = Answer::parse(&line) {
            prop_assert!(answer.line().len() <= MAX_ANSWER);
        }
    }
}

#[tokio::test]
async fn a_socket_is_for_its_owner_alone_and_replaces_only_that_of_an_agent_that_ended() {
    let dir = std::env::temp_dir().join(format!("tegmen-agent-socket-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("agent.sock");
    let agent = Agent::bind(&path, None).unwrap();
    let metadata = std::fs::symlink_metadata(&path).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.uid()), (0o600, agent.user));
    assert!(matches!(Agent::bind(&path, None), Err(SocketError::InUse(_))));
    drop(agent);
    assert!(!path.exists());
    // An agent that was killed leaves its file.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(Agent::bind(&path, None).unwrap());
    std::fs::write(&path, "a file").unwrap();
    assert!(matches!(Agent::bind(&path, None), Err(SocketError::NoSocket(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
    // There another user could replace the socket between two steps of its opening.
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
    let (below, path) = (dir.join("below"), dir.join("below/agent.sock"));
    std::fs::create_dir(&below).unwrap();
    assert!(matches!(Agent::bind(&path, None), Err(SocketError::OpenDirectory(_))));
    assert!(!path.exists());
    std::fs::remove_dir_all(&dir).unwrap();
}
