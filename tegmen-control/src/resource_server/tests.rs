//! Tests of a resource server without its sockets.

use super::*;
use crate::access::ace::{Right, Scope};
use tegmen_base::crypto::RustCrypto;

const KEY: [u8; LONG_KEY_LEN] = [7; LONG_KEY_LEN];
const NOW: u64 = 1_800_000_000;

fn tokens(most: usize) -> Tokens {
    let settings = TokenSettings { name: "oven".into(), key: Secret::new(KEY), most, hints: None };
    Tokens::new(settings, Credentials::default(), AgreedContexts::default()).expect("randomness")
}

fn rights(path: &str) -> Option<Scope> {
    Some(Scope::of(&Aif(vec![Right { path: path.into(), permissions: 1 }])))
}

fn material(id: u8) -> InputMaterial {
    InputMaterial::new(vec![id], &[id; 32])
}

fn claims(cnf: Confirmation) -> Claims {
    Claims {
        subject: Some("display".into()),
        audience: Some("oven".into()),
        issued_at: Some(NOW),
        expires: Some(NOW + 600),
        cnf: Some(cnf),
        scope: rights("/temp"),
        ..Claims::default()
    }
}

fn sealed(claims: &Claims) -> Vec<u8> {
    cwt::seal(claims, &Secret::new(KEY), &mut RustCrypto::new([1; 32]))
}

fn post(claims: &Claims) -> Vec<u8> {
    let offer = Offer { nonce: vec![1; 8], recipient_id: vec![2] };
    PostedToken { access_token: sealed(claims), offer: Some(offer) }.encode()
}

fn update(claims: &Claims) -> Vec<u8> {
    PostedToken { access_token: sealed(claims), offer: None }.encode()
}

fn first(id: u8) -> Claims {
    claims(Confirmation::Osc(material(id)))
}

/// Returns the principal of the token with this identifier, and the path of the first right of this token.
fn of(tokens: &Tokens, id: u8) -> (Principal, String) {
    let taken = tokens.taken();
    let token = taken.by_id.get(&vec![id]).expect("a token");
    (token.principal, token.rights.0[0].path.clone())
}

#[test]
fn each_post_of_a_token_has_another_nonce_and_id_of_the_server() {
    let tokens = tokens(1);
    let one = tokens.take(&post(&first(1)), NOW).expect("taken").expect("a context");
    let two = tokens.take(&post(&first(1)), NOW).expect("taken").expect("a context");
    assert!(one.nonce.len() == NONCE && one.nonce != two.nonce && one.recipient_id != two.recipient_id);
    assert_ne!(one.recipient_id, [2], "it is that of the client");
    assert_eq!(tokens.count(), 1);
}

#[test]
fn a_token_that_is_not_valid_is_refused_with_the_code_of_the_rfc() {
    let tokens = tokens(1);
    let with = |change: fn(&mut Claims)| {
        let mut claims = first(1);
        change(&mut claims);
        tokens.take(&post(&claims), NOW).expect_err("a refusal")
    };
    assert_eq!(with(|claims| claims.audience = Some("hob".into())).code(), Code::FORBIDDEN);
    for change in [
        (|claims| claims.expires = Some(NOW)) as fn(&mut Claims),
        |claims| claims.expires = None,
        |claims| claims.not_before = Some(NOW + 1),
    ] {
        assert_eq!(with(change), Refusal::Expired);
    }
    for change in [
        (|claims| claims.scope = None) as fn(&mut Claims),
        |claims| claims.scope = Some(Scope::Text("read".into())),
        |claims| claims.scope = rights("/*"),
        |claims| claims.scope = rights("/authz-info"),
        |claims| claims.cnf = None,
        |claims| claims.cnf = Some(Confirmation::Kid(vec![1])),
        |claims| claims.subject = None,
    ] {
        assert_eq!(with(change).code(), Code::BAD_REQUEST);
    }
    let long = Offer { nonce: vec![1; 8], recipient_id: vec![2; 7] };
    let small = InputMaterial { aead: tegmen::oscore::Aead::AesCcm64_64_128, ..material(1) };
    let access_token = sealed(&claims(Confirmation::Osc(small)));
    let posted = PostedToken { access_token, offer: Some(long) };
    assert_eq!(tokens.take(&posted.encode(), NOW), Err(Refusal::NoContext));
    assert_eq!(tokens.take(&update(&first(1)), NOW), Err(Refusal::Malformed(Malformed::Missing(NONCE_1))));
    assert!(matches!(tokens.take(b"\xa0", NOW), Err(Refusal::Malformed(_))));
    let other = cwt::seal(&first(1), &Secret::new([8; LONG_KEY_LEN]), &mut RustCrypto::new([1; 32]));
    let offer = Some(Offer { nonce: vec![1; 8], recipient_id: vec![2] });
    let refused = tokens.take(&PostedToken { access_token: other, offer }.encode(), NOW);
    assert_eq!(refused.map_err(Refusal::code), Err(Code::UNAUTHORIZED));
    assert_eq!((tokens.count(), tokens.0.credentials.peers()), (0, 0));
}

#[test]
fn an_update_changes_the_rights_of_its_own_context_alone() {
    let tokens = tokens(2);
    tokens.take(&post(&first(1)), NOW).expect("a context");
    tokens.take(&post(&first(3)), NOW).expect("a context");
    let ((principal, _), (other, _)) = (of(&tokens, 1), of(&tokens, 3));
    let door = Claims { scope: rights("/door"), ..claims(Confirmation::Kid(vec![1])) };
    assert_eq!(tokens.update(other, &update(&door), NOW), Err(Refusal::OtherContext));
    assert_eq!(tokens.update(principal, &update(&first(1)), NOW), Err(Refusal::OtherContext), "it has no kid");
    let of_another = Claims { subject: Some("lamp".into()), ..door.clone() };
    assert_eq!(tokens.update(principal, &update(&of_another), NOW), Err(Refusal::OtherContext));
    let old = Claims { issued_at: Some(NOW - 1), ..door.clone() };
    assert_eq!(tokens.update(principal, &update(&old), NOW), Err(Refusal::OtherContext));
    assert_eq!(of(&tokens, 1), (principal, "/temp".into()));
    // A nonce in it has no meaning (RFC 9203, section 4.2).
    assert_eq!(tokens.update(principal, &post(&door), NOW), Ok(()));
    assert_eq!((of(&tokens, 1).1, of(&tokens, 3).1), ("/door".into(), "/temp".into()));
    // The first token again gives a new context, and does not take the update back.
    tokens.take(&post(&first(1)), NOW).expect("a context");
    assert_eq!(of(&tokens, 1), (principal, "/door".into()));
    assert_eq!(tokens.update(principal, &update(&door), NOW + 601), Err(Refusal::Expired));
}

#[test]
fn tokens_end_and_are_as_many_as_the_settings_allow() {
    let tokens = tokens(2);
    let of_client =
        |client: &str, id, expires| Claims { subject: Some(client.into()), expires: Some(NOW + expires), ..first(id) };
    tokens.take(&post(&of_client("display", 1, 10)), NOW).expect("a context");
    tokens.take(&post(&of_client("lamp", 3, 20)), NOW).expect("a context");
    let third = post(&of_client("door", 4, 30));
    assert_eq!(tokens.take(&third, NOW), Err(Refusal::Busy { seconds: 10 }));
    let (principal, _) = of(&tokens, 1);
    assert_eq!(tokens.expire(NOW + 9), []);
    let expired = tokens.expire(NOW + 10);
    assert_eq!(expired.iter().map(|(principal, _)| *principal).collect::<Vec<_>>(), [principal]);
    assert_eq!(tokens.expire(NOW + 11), [], "its observers are notified once");
    assert!(tokens.0.contexts.principals().contains(&principal), "a notification can be protected still");
    assert_eq!(tokens.expire(NOW + 10 + LINGER), []);
    assert_eq!((tokens.count(), tokens.0.credentials.peers(), tokens.0.contexts.principals().len()), (1, 1, 1));
    tokens.take(&third, NOW + 12).expect("room again");
}

/// A client with many valid tokens leaves space for the tokens of other clients.
#[test]
fn a_client_has_a_share_of_the_tokens() {
    let table = tokens(12);
    let of_client =
        |client: &str, id, expires| Claims { subject: Some(client.into()), expires: Some(NOW + expires), ..first(id) };
    let take = |table: &Tokens, client: &str, id, expires| table.take(&post(&of_client(client, id, expires)), NOW);
    for id in 0..3 {
        take(&table, "display", id, 10 + u64::from(id)).expect("a context");
    }
    let refused = take(&table, "display", 3, 11).expect_err("a quarter of 12, and not newer than these");
    assert_eq!(refused.code(), Code::TOO_MANY_REQUESTS);
    assert!(refused.to_string().ends_with("ask again in 10 s"), "{refused}");
    take(&table, "display", 2, 12).expect("a token that is there already");
    take(&table, "lamp", 4, 20).expect("a context of another client");
    take(&table, "display", 6, 30).expect("a newer token");
    assert_eq!(table.count(), 4);
    table.expire(NOW + 11 + LINGER);
    take(&table, "display", 5, 20).expect("one of the tokens expired");
    // A small table has space for two tokens of each client.
    let table = tokens(3);
    take(&table, "display", 1, 10).expect("a context");
    take(&table, "display", 2, 11).expect("a context");
    assert_eq!(take(&table, "display", 3, 10).map_err(Refusal::code), Err(Code::TOO_MANY_REQUESTS));
    take(&table, "lamp", 4, 12).expect("a context of another client");
    assert_eq!(take(&table, "lamp", 5, 12), Err(Refusal::Busy { seconds: 10 }));
    take(&table, "display", 6, 20).expect("a newer token, which needs no further space");
    assert_eq!(table.count(), 3);
}

/// A client that has restarted several times gets a context. A replayed token does not end the context of a newer one.
#[test]
fn a_newer_token_ends_the_oldest_token_of_its_client() {
    let table = tokens(4);
    let issued = |id, at| Claims { issued_at: Some(NOW + at), ..first(id) };
    let take = |id, at| table.take(&post(&issued(id, at)), NOW);
    take(2, 2).expect("a context");
    take(1, 1).expect("the replay of an old token, while there is space");
    let (kept, _) = of(&table, 2);
    take(3, 3).expect("the token after a restart");
    let (new, _) = of(&table, 3);
    assert_eq!(table.0.contexts.principals(), [kept, new].into());
    assert_eq!((table.count(), table.0.credentials.peers()), (2, 2));
    for (id, at) in [(1, 1), (4, 2), (5, 3)] {
        assert_eq!(take(id, at), Err(Refusal::TooMany { seconds: 600 }));
    }
    assert_eq!((of(&table, 2).0, of(&table, 3).0), (kept, new));
}

#[test]
fn a_newer_token_of_the_edhoc_profile_ends_the_oldest_token_of_its_client() {
    use crate::access::ace::{CoseKey, Material};
    let table = tokens(4);
    table.0.has_edhoc.store(true, std::sync::atomic::Ordering::Relaxed);
    let take = |x: u8, at: u64| {
        let material = Material::Ec2 { curve: 1, x: vec![x; 32], y: vec![2; 32] };
        let cnf = Confirmation::Key(CoseKey { kid: Some(vec![x]), algorithm: None, material });
        table.take(&update(&Claims { issued_at: Some(NOW + at), ..claims(cnf) }), NOW)
    };
    for n in 1..=4 {
        assert_eq!(take(n, n.into()), Ok(None));
    }
    assert_eq!(take(2, 2), Err(Refusal::TooMany { seconds: 600 }), "a replay");
    assert_eq!((table.count(), table.0.credentials.peers()), (2, 2));
}

#[test]
fn a_token_with_a_public_key_waits_for_edhoc() {
    use crate::access::ace::{CoseKey, Material};
    let key = |x: u8, len: usize| {
        let material = Material::Ec2 { curve: 1, x: vec![x; len], y: vec![2; 32] };
        Confirmation::Key(CoseKey { kid: Some(vec![3]), algorithm: None, material })
    };
    let tokens = tokens(1);
    assert_eq!(tokens.take(&update(&claims(key(1, 32))), NOW), Err(Refusal::NoContext), "there is no EDHOC");
    tokens.0.has_edhoc.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(tokens.take(&update(&claims(key(1, 31))), NOW), Err(Refusal::NoContext));
    let Confirmation::Key(signs) = key(1, 32) else { panic!("a key") };
    let signs = Confirmation::Key(CoseKey { algorithm: Some(-7), ..signs });
    assert_eq!(tokens.take(&update(&claims(signs)), NOW), Err(Refusal::NoContext), "it is for ES256 alone");
    assert_eq!(tokens.take(&update(&claims(key(1, 32))), NOW), Ok(None));
    assert_eq!(tokens.take(&update(&claims(key(1, 32))), NOW), Ok(None), "the same again");
    let of_another = Claims { subject: Some("lamp".into()), ..claims(key(1, 32)) };
    assert_eq!(tokens.take(&update(&of_another), NOW), Err(Refusal::OtherContext));
    assert_eq!(tokens.take(&update(&claims(key(4, 32))), NOW), Err(Refusal::Busy { seconds: 600 }));
    assert_eq!(tokens.expire(NOW + 9), []);
    assert_eq!(tokens.count(), 1);
    tokens.expire(NOW + 600 + LINGER);
    assert_eq!((tokens.count(), tokens.0.credentials.peers()), (0, 0));
}

/// A client chooses the kid of its key. It cannot hide the token of another client by its kid.
#[test]
fn each_valid_token_whose_key_has_a_kid_is_found() {
    use crate::access::ace::{CoseKey, Material};
    use tegmen_host::edhoc::CredentialId;
    let tokens = tokens(5);
    tokens.0.has_edhoc.store(true, std::sync::atomic::Ordering::Relaxed);
    let take = |client: &str, x: u8, issued: u64, lifetime: u64| {
        let material = Material::Ec2 { curve: 1, x: vec![x; 32], y: vec![2; 32] };
        let cnf = Confirmation::Key(CoseKey { kid: Some(vec![3]), algorithm: None, material });
        let (issued_at, expires) = (Some(NOW + issued), Some(NOW + lifetime));
        let claims = Claims { subject: Some(client.into()), issued_at, expires, ..claims(cnf) };
        assert_eq!(tokens.take(&update(&claims), NOW), Ok(None));
    };
    take("over", 1, 0, 10);
    take("copy", 2, 0, 20);
    take("display", 3, 0, 30);
    // This client has replaced its key.
    take("lamp", 5, 1, 30);
    take("lamp", 4, 0, 30);
    let found = |now| {
        let peers = tokens.find_peers(&CredentialId::Kid(&[3]), now);
        peers.into_iter().map(|peer| (peer.client, peer.credential.has_x(&[5; 32]))).collect::<Vec<_>>()
    };
    let [copy, display, lamp] = [("copy", false), ("display", false), ("lamp", true)].map(|(a, b)| (a.to_owned(), b));
    assert_eq!(found(NOW + 10), [copy, display.clone(), lamp.clone()]);
    assert_eq!(found(NOW + 20), [display, lamp]);
    assert_eq!(found(NOW + 30), []);
}
