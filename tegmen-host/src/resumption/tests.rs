use super::*;
use crate::clock;
use crate::provider::HostCrypto;
use tegmen::cx::Counters;

fn resumption(credentials: &Credentials, config: &ResumptionConfig) -> ServerResumption {
    let crypto = &mut HostCrypto::from_os().unwrap();
    ServerResumption::new(crypto, config, credentials, &PublicKeys::default(), false).unwrap()
}

fn session(credentials: &Credentials, identity: &str, since: Option<u32>) -> SessionState {
    let principal = credentials.keys_of(identity.as_bytes()).unwrap().current.principal;
    let cipher_suite = CipherSuite::PSK_WITH_AES_128_CCM_8;
    SessionState { cipher_suite, master: Secret::new([7; MASTER_LEN]), principal, since }
}

fn sealed(resumption: &ServerResumption, session: &SessionState) -> Vec<u8> {
    let (crypto, counters) = (&mut HostCrypto::from_os().unwrap(), &mut Counters::default());
    let mut storage = [0; 512];
    let mut ticket = Writer::new(&mut storage);
    let mut cx = Cx { now: clock::now(), crypto, counters };
    resumption.seal_ticket(&mut cx, 0, session, &mut ticket).unwrap();
    ticket.written().to_vec()
}

fn opened(resumption: &ServerResumption, ticket: &[u8]) -> Option<Found> {
    let (crypto, counters) = (&mut HostCrypto::from_os().unwrap(), &mut Counters::default());
    resumption.open_ticket(&mut Cx { now: clock::now(), crypto, counters }, 0, ticket)
}

#[test]
fn a_ticket_of_a_pre_shared_key_takes_less_than_100_bytes() {
    let credentials = Credentials::single("Client_identity", b"0123456789abcdef");
    let resumption = resumption(&credentials, &ResumptionConfig::default());
    let session = session(&credentials, "Client_identity", None);
    let ticket = sealed(&resumption, &session);
    assert!(ticket.len() < 100, "{}", ticket.len());
    let found = opened(&resumption, &ticket).unwrap();
    assert_eq!(found.session.principal, session.principal);
    assert_eq!(found.session.master.expose(), &[7; MASTER_LEN]);
    assert!(!found.renew);
}

#[test]
fn a_ticket_of_who_was_removed_or_got_another_key_is_refused() {
    let credentials = Credentials::single("a", b"one key");
    let resumption = resumption(&credentials, &ResumptionConfig::default());
    let ticket = sealed(&resumption, &session(&credentials, "a", None));
    assert!(opened(&resumption, &ticket).is_some());
    credentials.set_single("a", b"another key");
    assert!(opened(&resumption, &ticket).is_none());
    credentials.set_single("b", b"one key");
    assert!(opened(&resumption, &ticket).is_none());
    credentials.set_single("a", b"one key");
    assert!(opened(&resumption, &ticket).is_some());
    assert_eq!(resumption.counters().tickets_refused, 2);
}

#[test]
fn a_ticket_of_an_earlier_key_of_a_key_store_is_refused() {
    let credentials = Credentials::default();
    let (crypto, config) = (&mut HostCrypto::from_os().unwrap(), ResumptionConfig::default());
    let resumption = ServerResumption::new(crypto, &config, &credentials, &PublicKeys::default(), true).unwrap();
    let with = |key: Option<&[u8]>| {
        let principal = credentials.learn_stored("a", key, None);
        let cipher_suite = CipherSuite::PSK_WITH_AES_128_CCM_8;
        let session = SessionState { cipher_suite, master: Secret::new([7; MASTER_LEN]), principal, since: None };
        (principal, sealed(&resumption, &session))
    };
    let (earlier, ticket) = with(Some(b"one key"));
    assert_eq!(opened(&resumption, &ticket).map(|found| found.session.principal), Some(earlier));
    let (later, newer) = with(Some(b"another key"));
    assert_ne!(earlier, later);
    assert!(opened(&resumption, &ticket).is_none());
    assert_eq!(opened(&resumption, &newer).map(|found| found.session.principal), Some(later));
    // An owner with another key in each session has one number.
    let (owner, of_owner) = with(None);
    assert_eq!(with(None).0, owner);
    assert_eq!(opened(&resumption, &of_owner).map(|found| found.session.principal), Some(owner));
}

#[test]
fn a_ticket_is_taken_for_its_lifetime() {
    let credentials = Credentials::single("a", b"key");
    let config = ResumptionConfig { lifetime: Duration::from_secs(100), ..ResumptionConfig::default() };
    let resumption = resumption(&credentials, &config);
    for (age, taken) in [(0, true), (99, true), (102, false), (1_000_000, false)] {
        let session = session(&credentials, "a", Some(seconds() - age));
        assert_eq!(opened(&resumption, &sealed(&resumption, &session)).is_some(), taken, "{age} s");
    }
    let ahead = session(&credentials, "a", Some(seconds() + 50));
    assert!(opened(&resumption, &sealed(&resumption, &ahead)).is_none());
}

#[test]
fn keys_in_a_file_outlive_the_process_and_are_its_owners_alone() {
    let dir = std::env::temp_dir().join(format!("tegmen-ticket-keys-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("keys");
    let _ = std::fs::remove_file(&file);
    let credentials = Credentials::single("a", b"key");
    let config = ResumptionConfig { keys: Some(file.clone()), ..ResumptionConfig::default() };
    let ticket = sealed(&resumption(&credentials, &config), &session(&credentials, "a", None));
    assert!(opened(&resumption(&credentials, &config), &ticket).is_some());
    std::fs::write(&file, "no keys\n").unwrap();
    let crypto = &mut HostCrypto::from_os().unwrap();
    let damaged = ServerResumption::new(crypto, &config, &credentials, &PublicKeys::default(), false);
    assert!(matches!(damaged, Err(TicketKeyError::Damaged { line: 1, .. })));
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&file, readable).unwrap();
    let exposed = ServerResumption::new(crypto, &config, &credentials, &PublicKeys::default(), false);
    assert!(matches!(exposed, Err(TicketKeyError::Exposed { mode: 0o644, .. })));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn ids_are_bounded() {
    let credentials = Credentials::single("a", b"key");
    let config = ResumptionConfig { max_ids: 8, ..ResumptionConfig::default() };
    let resumption = resumption(&credentials, &config);
    let session = session(&credentials, "a", None);
    for number in 0..100_u8 {
        resumption.remember(clock::now(), 0, &[number; 32], &session);
    }
    let found = (0..100_u8).filter(|number| resumption.find(clock::now(), 0, &[*number; 32]).is_some()).count();
    assert!((4..=8).contains(&found), "{found}");
    assert!(resumption.find(clock::now(), 0, &[99; 32]).is_some());
}

#[test]
fn ticket_keys_that_could_not_be_read_are_read_again_until_they_can() {
    let dir = std::env::temp_dir().join(format!("tegmen-ticket-keys-again-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("keys");
    let _ = std::fs::remove_file(&file);
    let credentials = Credentials::single("a", b"key");
    let config = ResumptionConfig { keys: Some(file.clone()), ..ResumptionConfig::default() };
    let (here, there) = (resumption(&credentials, &config), resumption(&credentials, &config));
    let ticket = sealed(&there, &session(&credentials, "a", None));
    let (good, crypto) = (std::fs::read(&file).unwrap(), &mut HostCrypto::from_os().unwrap());
    std::fs::write(&file, "no keys\n").unwrap();
    let at = std::time::SystemTime::now() + Duration::from_secs(5);
    let touch = || std::fs::File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
    touch();
    assert!(matches!(here.tick(crypto), Err(TicketKeyError::Damaged { .. })));
    assert!(here.tick(crypto).is_ok(), "the same is said once");
    // Nothing other than what is in it changes.
    let other = [b"ff".repeat(tegmen_tickets::TICKET_KEY_LEN), b"\n".to_vec(), good].concat();
    std::fs::write(&file, other).unwrap();
    touch();
    here.tick(crypto).unwrap();
    there.tick(crypto).unwrap();
    assert!(opened(&here, &sealed(&there, &session(&credentials, "a", None))).is_some());
    assert!(opened(&here, &ticket).is_some());
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn an_alert_in_a_session_of_a_device_ends_no_session_with_the_server() {
    let credentials = Credentials::single("a", b"key");
    let resumption = resumption(&credentials, &ResumptionConfig::default());
    let inner = resumption.own.as_ref().unwrap();
    let is_ended = |principal| {
        resumption.end(principal);
        lock(&inner.ended).has(&inner.peer(principal).unwrap(), 0)
    };
    assert!(!is_ended(credentials.delegated_as("b", 1, 1)));
    assert!(is_ended(session(&credentials, "a", None).principal));
}
