use super::*;

/// Sends a request to a new server, whose table of accepted identities is empty.
fn forgetful(subscriber: &str, token: &str, hint: Option<&str>) -> Outcome {
    Server::new().ask_for(subscriber, token, hint)
}

/// The subscriber `mallory` rightfully gets the key of a session, and then shows the identity of this session to
/// `alice`. If the server gave `alice` the same key, the handshake between the two would succeed, and `alice` would
/// take `mallory` for the oven.
#[test]
fn psk_of_one_subscriber_is_useless_to_another() {
    let (mallory, alice) = ("mallory tag:display", "alice tag:display");
    let (old, token) = ("old-oven;AAECAwQFBgcI", "oven;AAECAwQFBgcI");
    // The attack on the paper's derivation, at two servers, or at one after the table forgot.
    let stolen = key(&forgetful(mallory, old, Some(HINT_PAPER)));
    assert!(stolen.is_some());
    assert_eq!(stolen, key(&forgetful(alice, old, Some(HINT_PAPER))), "mallory poses as the oven");
    // By default the attack gives another key, even without the table.
    let stolen = key(&forgetful(mallory, token, None)).expect("a key");
    let asked = key(&forgetful(alice, token, None)).expect("a key");
    assert_ne!(stolen, asked);
    // At one server the identity is bound to its first subscriber, in both modes.
    let mut server = Server::new();
    for (token, hint) in [(old, Some(HINT_PAPER)), (token, None)] {
        assert!(key(&server.ask_for(mallory, token, hint)).is_some());
        let second = server.ask_for(alice, token, hint);
        assert_eq!((key(&second), second.refused), (None, Some(Reason::Identity(NotAccepted::OfAnother))));
    }
}

/// An attacker records the identity of a session. The key of this session is revealed later, and the attacker begins a
/// handshake with the same subscriber again. The subscriber asks the server for the key.
#[test]
fn a_session_identity_is_accepted_once() {
    for (token, hint) in [("old-oven;AAECAwQFBgcI", Some(HINT_PAPER)), ("oven;AAECAwQFBgcI", None)] {
        // The mutant forgets what it accepted: the revealed key opens a new session.
        let revealed = key(&forgetful("alice tag:display", token, hint));
        assert!(revealed.is_some());
        assert_eq!(revealed, key(&forgetful("alice tag:display", token, hint)), "the replay succeeds");
        let mut server = Server::new();
        assert_eq!(key(&server.ask_for("alice tag:display", token, hint)), revealed);
        for _ in 0..3 {
            let again = server.ask_for("alice tag:display", token, hint);
            assert_eq!((key(&again), again.refused), (None, Some(Reason::Identity(NotAccepted::Used))));
        }
        // Shortly before the end of the table's memory it holds still.
        server.now = Instant::AT_ONCE.after(Duration::from_millis(99_999));
        assert_eq!(key(&server.ask_for("alice tag:display", token, hint)), None);
    }
}

/// Returns the key that a faulty publisher derives: if the hint is missing, it derives the key in the weaker mode
/// [`Mode::Paper`].
fn falling_back(protokey: &Protokey, identity: SessionIdentity<'_>, hint: Option<&[u8]>) -> Vec<u8> {
    let mode = if hint.is_some() { Mode::Bound } else { Mode::Paper };
    protokey.session_key::<RustCrypto>(mode, identity, "alice").expose().to_vec()
}

/// A peer omits, adds or repeats parameters after a refusal. The peer never gets the key of the weaker mode or a
/// smaller scope. A publisher never derives the key of the weaker mode.
#[test]
fn refusal_never_weakens() {
    let (protokey, alice) = (protokey(), "alice tag:display");
    let identity = SessionIdentity::parse(b"oven;AAECAwQFBgcI").expect("an identity");
    let weak = protokey.session_key::<RustCrypto>(Mode::Paper, identity, "").expose().to_vec();
    // The attack on the mutant: an attacker that removes the hint from the handshake gets the key that each subscriber may
    // have.
    assert_eq!(falling_back(&protokey, identity, None), weak);
    assert_ne!(falling_back(&protokey, identity, Some(b"alice")), weak);
    // The publisher gives up instead.
    let publisher = crate::access::protokey::Publisher { protokey: &protokey, mode: Mode::Bound, subscriber: "alice" };
    for hint in [None, Some(&b""[..]), Some(b"mallory")] {
        assert!(publisher.key::<RustCrypto>(identity, hint).is_err());
    }
    // The server: each hint after each other one, a scope that is too large before and behind a smaller one and none.
    let hints = [None, Some(HINT_PROTOKEY), Some(HINT_PAPER), Some(HINT_THUMBPRINT), Some("")];
    let scopes: [Option<&[(&str, u64)]>; 3] = [None, Some(&[("/temp", 1)]), Some(&[("/temp", 127)])];
    let mut granted = 0;
    for first in hints {
        for second in hints {
            for (before, after) in [(0, 1), (1, 2), (2, 0), (2, 1)] {
                let mut server = Server::new();
                let outcomes = [(first, before), (second, after)].map(|(hint, scope)| {
                    let asked = scopes[scope];
                    let payload = request(identity.as_str().as_bytes(), hint, asked);
                    (asked, server.ask(Some(alice), &payload))
                });
                for (asked, outcome) in outcomes.iter().filter(|(_, outcome)| outcome.refused.is_none()) {
                    assert!(key(outcome).is_some_and(|key| key != weak), "{}", outcome.message);
                    let response = IntrospectionResponse::parse(&outcome.reply.payload).expect("a response");
                    let rights = response.claims.scope.and_then(|scope| scope.rights());
                    let rights = rights.map(|rights| rights.0[0].permissions);
                    assert_eq!(rights, asked.map(|asked| asked[0].1), "the scope that was asked for");
                    granted += 1;
                }
                assert!(outcomes.iter().filter(|(_, outcome)| outcome.refused.is_none()).count() <= 1);
            }
        }
    }
    assert!(granted > 0);
    // A publisher that the operator set to the paper's mode is served in it alone.
    for hint in [None, Some(HINT_PROTOKEY), Some(HINT_THUMBPRINT)] {
        assert_eq!(key(&forgetful(alice, "old-oven;AAECAwQFBgcI", hint)), None);
    }
    assert!(key(&forgetful(alice, "old-oven;AAECAwQFBgcI", Some(HINT_PAPER))).is_some());
}
