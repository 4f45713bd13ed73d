//! Tests of tokens of the OSCORE profile over real sockets. A client gets a token from the access control server, and
//! posts it to a resource server.

#[allow(dead_code, reason = "each test uses its part")]
mod scene;

use scene::{Access, Dir, KEY};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber};
use tegmen_base::secret::Secret;
use tegmen_control::access::ace::oscore::InputMaterial;
use tegmen_control::access::ace::{
    ACE_CBOR, Aif, Claims, Confirmation, CreationHints, Offer, PostedToken, Profile, Right, TokenResponse, cwt,
};
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::access::revocation::{list_key, token_hash};
use tegmen_control::resource_server::{AUTHZ_INFO, RevocationEvent, TokenSettings, Tokens};
use tegmen_control::service::Service;
use tegmen_control::state::{Bounds, Credential, NewDevice};
use tegmen_control::subscriber::NotGranted;
use tegmen_control::token_client::{NotAgreed, post_alone, post_token, request_token};
use tegmen_host::client::{ClientConfig, ClientError, Response, Session};
use tegmen_host::contexts::{self, AgreedContexts, Contexts};
use tegmen_host::credentials::{Credentials, FilePolicy};
use tegmen_host::provider::HostCrypto;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Application, Notifier, Request, Router, Server};
use tegmen_host::uri::{Scheme, Uri};
use tegmen_store::Database;
use tegmen_store::clock::now;
use tokio::sync::mpsc;

/// The key of the resource server `hob`.
const TOKEN_KEY: [u8; 32] = [9; 32];

#[derive(Clone)]
struct Hob {
    tokens: Tokens,
    resources: Resources,
}

impl Application for Hob {
    fn handle(&mut self, request: &Request<'_>, response: &mut tegmen::coap::Response<'_, '_>) -> Result<(), Code> {
        match self.tokens.serve(request, response) {
            Some(answered) => answered,
            None => self.resources.handle(request, response),
        }
    }

    fn every_second(&mut self, notifier: &Notifier) {
        self.tokens.every_second(notifier);
    }
}

/// Starts the resource server `hob`, which has no tokens yet.
fn hob(address: &str) -> (Server, Tokens) {
    let (credentials, agreed) = (Credentials::default(), AgreedContexts::default());
    let settings = TokenSettings {
        name: "hob".to_owned(),
        key: Secret::new(TOKEN_KEY),
        most: 4,
        hints: Some("coaps://access.example/token".to_owned()),
    };
    let tokens = Tokens::new(settings, credentials.clone(), agreed.clone()).expect("randomness");
    let others = FilePolicy { credentials: credentials.clone(), plain_allowed: false };
    let resources = ["temp", "door"].map(|path| (path.to_owned(), Resource::value(path.as_bytes())));
    let application = Hob { tokens: tokens.clone(), resources: Resources::new(resources) };
    let builder = Server::builder().listen(address).shards(2).oscore(Contexts::default().with_agreed(agreed));
    let server = builder.credentials(credentials).policy(tokens.policy(others)).serve(application);
    (server.expect("a server"), tokens)
}

fn at(server: &Server) -> SocketAddr {
    server.addresses()[0].address
}

/// Starts an access control server that knows the resource server `hob`. Returns the server, and a session of the
/// client `display` with the server.
async fn access(dir: &Dir, lifetime: u64) -> (Access, Session) {
    let access = Access::start(dir, None, Bounds { lifetime, ..Bounds::default() }).await;
    add(&access.service, "hob tag:kitchen").await;
    let config = ClientConfig::psk("display", KEY);
    let session = Session::connect_to(at(&access.server), Scheme::Coaps, config).await.expect("a session");
    (access, session)
}

async fn add(service: &Service<Database>, words: &str) {
    let party = OwnedParty::from_words(words.split(' ')).expect(words);
    let device = NewDevice::secret(party, Credential::Oscore, &TOKEN_KEY).expect("a device");
    service.add("operator", &device).await.expect("added");
}

fn rights(paths: &[&str]) -> Aif {
    Aif(paths.iter().map(|path| Right { path: (*path).to_owned(), permissions: 1 }).collect())
}

fn material(response: &TokenResponse) -> &InputMaterial {
    match &response.cnf {
        Some(Confirmation::Osc(material)) => material,
        other => panic!("no input material: {other:?}"),
    }
}

fn token(response: &TokenResponse) -> &[u8] {
    response.access_token.as_deref().expect("a token")
}

async fn in_clear(to: SocketAddr) -> Session {
    Session::connect_to(to, Scheme::Coap, ClientConfig::default()).await.expect("a session")
}

/// Posts a token to the resource server, and opens a session that is protected by the Security Context that both
/// endpoints derive.
async fn agree(dir: &Dir, name: &str, to: SocketAddr, response: &TokenResponse) -> Session {
    let context = post_token(&in_clear(to).await, token(response), material(response)).await.expect("a context");
    let context_dir = dir.0.join(name);
    contexts::create(&context_dir, &context).expect("a directory");
    in_context(context_dir, to).await
}

async fn in_context(dir: PathBuf, to: SocketAddr) -> Session {
    let config = ClientConfig::default().with(|config| config.oscore = Some(dir));
    Session::connect_to(to, Scheme::Coap, config).await.expect("a session")
}

async fn code(session: &Session, path: &str) -> Code {
    session.get(path).await.expect("a response").code
}

/// Returns true if the response to a request has no protection, because the resource server does not know the Security
/// Context.
async fn is_unknown(session: &Session) -> bool {
    matches!(session.get("/temp").await, Err(ClientError::NotProtected { .. }))
}

#[tokio::test]
async fn a_client_with_a_token_has_its_rights_and_no_others() {
    let dir = Dir::new("profile-rights");
    let (_access, asking) = access(&dir, 600).await;
    let (server, tokens) = hob("coap://127.0.0.1:0");
    let (_, response) = request_token(&asking, "hob", &rights(&["/temp"]), None).await.expect("a token");
    let session = agree(&dir, "one", at(&server), &response).await;
    let answered = session.get("/temp").await.expect("a response");
    assert_eq!((answered.code, &answered.payload[..]), (Code::CONTENT, &b"temp"[..]));
    // RFC 9200, section 5.10.2: no right on the resource, or none on the action.
    assert_eq!(code(&session, "/door").await, Code::FORBIDDEN);
    assert_eq!(session.put("/temp", b"1").await.expect("a response").code, Code::METHOD_NOT_ALLOWED);
    assert_eq!(code(&session, "/authz-info").await, Code::METHOD_NOT_ALLOWED);

    // The update keeps the context.
    let id = material(&response).id.clone();
    let (_, update) =
        request_token(&asking, "hob", &rights(&["/door"]), Some(Confirmation::Kid(id.clone()))).await.expect("a token");
    assert_eq!(update.cnf, None);
    post_alone(&session, token(&update)).await.expect("updated");
    assert_eq!((code(&session, "/door").await, code(&session, "/temp").await), (Code::CONTENT, Code::FORBIDDEN));
    // The first token is older, and updates nothing; neither does one of another context.
    let refused = post_alone(&session, token(&response)).await;
    assert!(matches!(refused, Err(NotAgreed::Refused { code: Code::UNAUTHORIZED })), "{refused:?}");
    // So does one for another resource server that has the same key (RFC 9203, section 4.2).
    let other = Claims {
        audience: Some("oven".to_owned()),
        subject: Some("display".to_owned()),
        expires: Some(u64::MAX),
        cnf: Some(Confirmation::Kid(id.clone())),
        ..Claims::default()
    };
    let other = cwt::seal(&other, &Secret::new(TOKEN_KEY), &mut HostCrypto::from_os().expect("randomness"));
    let refused = post_alone(&session, &other).await;
    assert!(matches!(refused, Err(NotAgreed::Refused { code: Code::UNAUTHORIZED })), "{refused:?}");
    assert_eq!(tokens.count(), 1);

    // The policy of the access control server decides on an update, too, and on the key that it names.
    assert!(matches!(
        request_token(&asking, "hob", &rights(&["/temp"]), Some(Confirmation::Kid(b"hob;000000000000".to_vec()))).await,
        Err(NotGranted::Unexpected { code: Code::BAD_REQUEST })
    ));
    let put = Aif(vec![Right { path: "/temp".to_owned(), permissions: 4 }]);
    assert!(matches!(
        request_token(&asking, "hob", &put, Some(Confirmation::Kid(id.clone()))).await,
        Err(NotGranted::Refused)
    ));
}

#[tokio::test]
async fn a_request_in_clear_gets_the_codes_and_hints_of_the_rfc() {
    let dir = Dir::new("profile-codes");
    let (_access, asking) = access(&dir, 600).await;
    let (server, tokens) = hob("coap://127.0.0.1:0");
    let session = in_clear(at(&server)).await;
    let unauthorized = session.get("/temp").await.expect("a response");
    assert_eq!(unauthorized.code, Code::UNAUTHORIZED);
    let hints = CreationHints::parse(&unauthorized.payload).expect("hints");
    assert_eq!(hints.auth_server.as_deref(), Some("coaps://access.example/token"));
    assert_eq!(hints.audience.as_deref(), Some("hob"));
    assert_eq!(code(&session, "/authz-info").await, Code::METHOD_NOT_ALLOWED);
    // A body is refused with its first block.
    let refused = session.put("/temp", &[0; 4096]).await.expect("a response");
    assert_eq!((refused.code, refused.payload.len()), (Code::UNAUTHORIZED, 0));

    let (_, response) = request_token(&asking, "hob", &rights(&["/temp"]), None).await.expect("a token");
    let offer = Offer { nonce: vec![1; 8], recipient_id: vec![2] };
    let posted = PostedToken { access_token: token(&response).to_vec(), offer: Some(offer) };
    let post = async |payload: &[u8], format: u16| {
        session.post(AUTHZ_INFO, payload).content_format(format).await.expect("a response").code
    };
    assert_eq!(post(&posted.encode(), 60).await, Code::UNSUPPORTED_CONTENT_FORMAT);
    assert_eq!(post(b"none", ACE_CBOR).await, Code::BAD_REQUEST);
    assert_eq!(post(&PostedToken { offer: None, ..posted.clone() }.encode(), ACE_CBOR).await, Code::BAD_REQUEST);
    let mut changed = posted.clone();
    changed.access_token.last_mut().into_iter().for_each(|byte| *byte ^= 1);
    assert_eq!(post(&changed.encode(), ACE_CBOR).await, Code::UNAUTHORIZED);
    assert_eq!(tokens.count(), 0);
    let created = session.post(AUTHZ_INFO, &posted.encode()).content_format(ACE_CBOR).await.expect("a response");
    assert_eq!((created.code, created.uint(OptionNumber::CONTENT_FORMAT)), (Code::CREATED, Some(ACE_CBOR.into())));
    assert!(Offer::parse_response(&created.payload).is_ok_and(|offer| offer.recipient_id != [2]));
}

#[tokio::test]
async fn a_token_that_is_posted_again_gives_new_keys_also_after_a_restart() {
    let dir = Dir::new("profile-again");
    let (_access, asking) = access(&dir, 600).await;
    let (server, tokens) = hob("coap://127.0.0.1:0");
    let address = at(&server);
    let (_, response) = request_token(&asking, "hob", &rights(&["/temp"]), None).await.expect("a token");
    let one = agree(&dir, "one", address, &response).await;
    assert_eq!(code(&one, "/temp").await, Code::CONTENT);
    // Anyone can repeat the request with the token. Nobody can use the contexts that this makes, and the client keeps its own.
    let offer = Offer { nonce: vec![1; 8], recipient_id: vec![2] };
    let heard = PostedToken { access_token: token(&response).to_vec(), offer: Some(offer) }.encode();
    let anyone = in_clear(address).await;
    for _ in 0..20 {
        assert_eq!(anyone.post(AUTHZ_INFO, &heard).content_format(ACE_CBOR).await.expect("made").code, Code::CREATED);
    }
    assert_eq!((code(&one, "/temp").await, tokens.count()), (Code::CONTENT, 1));
    // With the first request under new keys the old ones end.
    let two = agree(&dir, "two", address, &response).await;
    assert_eq!(code(&one, "/temp").await, Code::CONTENT);
    assert_eq!(code(&two, "/temp").await, Code::CONTENT);
    assert!(is_unknown(&one).await);
    // Another token of the same client ends the context, too.
    let (_, other) = request_token(&asking, "hob", &rights(&["/door"]), None).await.expect("a token");
    let three = agree(&dir, "three", address, &other).await;
    assert_eq!((code(&three, "/door").await, code(&three, "/temp").await), (Code::CONTENT, Code::FORBIDDEN));
    assert!(is_unknown(&two).await);

    drop((server, tokens));
    let (server, tokens) = hob(&format!("coap://{address}"));
    assert!(is_unknown(&three).await);
    let four = agree(&dir, "four", at(&server), &response).await;
    assert_eq!((code(&four, "/temp").await, tokens.count()), (Code::CONTENT, 1));
    let salts = ["one", "two", "four"].map(|name| {
        let file = contexts::ContextFile::read(&dir.0.join(name)).expect("a context");
        assert_eq!(*file.master_secret, *material(&response).master_secret);
        file.master_salt
    });
    assert!(salts[0] != salts[1] && salts[1] != salts[2] && salts[0] != salts[2]);
}

#[tokio::test]
async fn the_context_of_a_token_ends_with_it_and_its_observers_learn_so() {
    let dir = Dir::new("profile-expires");
    let (_access, asking) = access(&dir, 3).await;
    let (server, tokens) = hob("coap://127.0.0.1:0");
    let (_, response) = request_token(&asking, "hob", &rights(&["/temp"]), None).await.expect("a token");
    let session = agree(&dir, "one", at(&server), &response).await;
    let mut observation = session.observe("/temp").await.expect("an observation");
    let mut last = Code::CONTENT;
    while last == Code::CONTENT {
        match observation.next().await.expect("no error") {
            Some(notification) => last = notification.code,
            None => break,
        }
    }
    assert_eq!(last, Code::UNAUTHORIZED);
    assert!(is_unknown(&session).await);
    let refused = post_token(&in_clear(at(&server)).await, token(&response), material(&response)).await;
    assert!(matches!(refused, Err(NotAgreed::Refused { code: Code::UNAUTHORIZED })));
    while tokens.count() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Lets a resource server observe the list of revoked tokens. The returned channel receives, for each list, the number
/// of tokens that end because of it.
fn follow(tokens: &Tokens, access: &Access) -> mpsc::UnboundedReceiver<usize> {
    let uri = Uri::parse(&format!("coaps://{}", at(&access.server))).expect("a URI");
    let (ends, ended) = mpsc::unbounded_channel();
    let tokens = tokens.clone();
    tokio::spawn(async move {
        let report = |event: RevocationEvent<'_>| match event {
            RevocationEvent::Read { ended, .. } => drop(ends.send(ended)),
            RevocationEvent::Refused(code) => panic!("the list is refused: {code}"),
            RevocationEvent::Failed(error, _) => panic!("the list is not read: {error}"),
        };
        tokens.follow_revocations(&uri, report).await;
    });
    ended
}

#[tokio::test]
async fn a_revoked_token_ends_and_is_not_taken_again() {
    let dir = Dir::new("profile-revoked");
    let (access, asking) = access(&dir, 600).await;
    let (server, tokens) = hob("coap://127.0.0.1:0");
    let mut ended = follow(&tokens, &access);
    assert_eq!(ended.recv().await, Some(0));
    let (_, first) = request_token(&asking, "hob", &rights(&["/temp"]), None).await.expect("a token");
    let (_, unused) = request_token(&asking, "hob", &rights(&["/temp"]), None).await.expect("a token");
    let session = agree(&dir, "first", at(&server), &first).await;
    assert_eq!(code(&session, "/temp").await, Code::CONTENT);

    let revoke = async |response: &TokenResponse| {
        let identity = String::from_utf8(material(response).id.clone()).expect("an identity");
        access.service.revoke_session("operator", &identity).await.expect("revoked");
    };
    revoke(&unused).await;
    assert_eq!(ended.recv().await, Some(0));
    assert_eq!(code(&session, "/temp").await, Code::CONTENT);
    revoke(&first).await;
    assert_eq!(ended.recv().await, Some(1));
    // The context answers until observers have learned of the end. Then the resource server does not know it.
    assert!(matches!(session.get("/temp").await, Err(_) | Ok(Response { code: Code::UNAUTHORIZED, .. })));
    for revoked in [&first, &unused] {
        let refused = post_token(&in_clear(at(&server)).await, token(revoked), material(revoked)).await;
        assert!(matches!(refused, Err(NotAgreed::Refused { code: Code::UNAUTHORIZED })), "{:?}", refused.err());
    }

    // A token that is not revoked is taken.
    let (_, next) = request_token(&asking, "hob", &rights(&["/temp"]), None).await.expect("a token");
    let session = agree(&dir, "next", at(&server), &next).await;
    assert_eq!(code(&session, "/temp").await, Code::CONTENT);
}

#[tokio::test]
async fn a_revoked_update_ends_the_context_and_a_revoked_first_token_does_not() {
    let dir = Dir::new("profile-revoked-update");
    let (access, asking) = access(&dir, 600).await;
    let (server, tokens) = hob("coap://127.0.0.1:0");
    let (_, first) = request_token(&asking, "hob", &rights(&["/temp"]), None).await.expect("a token");
    let session = agree(&dir, "one", at(&server), &first).await;
    let id = material(&first).id.clone();
    let (_, update) =
        request_token(&asking, "hob", &rights(&["/door"]), Some(Confirmation::Kid(id))).await.expect("a token");
    post_alone(&session, token(&update)).await.expect("updated");
    let hash = |response: &TokenResponse| token_hash::<HostCrypto>(token(response));
    assert_eq!(tokens.revoke([hash(&first)].into(), now()), 0);
    assert_eq!(code(&session, "/door").await, Code::CONTENT);
    assert_eq!(tokens.revoke([hash(&first), hash(&update)].into(), now()), 1);
    assert_eq!(tokens.revoke([hash(&first), hash(&update)].into(), now()), 0, "it has ended");
    assert!(matches!(session.get("/door").await, Err(_) | Ok(Response { code: Code::UNAUTHORIZED, .. })));
    drop(access);
}

#[tokio::test]
async fn the_session_for_the_revocation_list_has_no_other_right() {
    let dir = Dir::new("profile-list");
    let (access, asking) = access(&dir, 600).await;
    drop(asking);
    let list =
        async |key: &[u8]| Session::connect_to(at(&access.server), Scheme::Coaps, ClientConfig::psk("hob", key)).await;
    let key = list_key::<HostCrypto>(&Secret::new(TOKEN_KEY));
    let session = list(key.expose()).await.expect("a session");
    assert_eq!(session.get("/revoke/trl").await.expect("a response").code, Code::CONTENT);
    let other = list_key::<HostCrypto>(&Secret::new([8; 32]));
    for path in ["/introspect", "/token", "/enrol"] {
        assert_eq!(session.post(path, b"").content_format(ACE_CBOR).await.expect("a response").code, Code::FORBIDDEN);
    }
    // The key for tokens itself opens no session, nor does the key of another resource server.
    assert!(list(&TOKEN_KEY).await.is_err());
    assert!(list(other.expose()).await.is_err());
    access.service.disable("operator", "hob").await.expect("disabled");
    assert!(list(key.expose()).await.is_err());
}

#[tokio::test]
async fn a_resource_server_that_is_disabled_learns_that_it_gets_no_list() {
    let dir = Dir::new("profile-refused");
    let (access, asking) = access(&dir, 600).await;
    let (_server, tokens) = hob("coap://127.0.0.1:0");
    let uri = Uri::parse(&format!("coaps://{}", at(&access.server))).expect("a URI");
    let (events, mut reported) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let report = |event: RevocationEvent<'_>| match event {
            RevocationEvent::Read { .. } => drop(events.send(None)),
            RevocationEvent::Refused(code) => drop(events.send(Some(code))),
            RevocationEvent::Failed(..) => {}
        };
        tokens.follow_revocations(&uri, report).await;
    });
    assert_eq!(reported.recv().await, Some(None));
    request_token(&asking, "hob", &rights(&["/temp"]), None).await.expect("a token");
    access.service.disable("operator", "hob").await.expect("disabled");
    assert_eq!(reported.recv().await, Some(Some(Code::UNAUTHORIZED)));
}

/// The table of `hob` has four places, two of them for one client. The time of issue is in whole seconds.
#[tokio::test]
async fn a_client_with_too_many_tokens_learns_when_to_post_another_one() {
    let dir = Dir::new("profile-share");
    let (_access, asking) = access(&dir, 600).await;
    let (server, tokens) = hob("coap://127.0.0.1:0");
    let plain = in_clear(at(&server)).await;
    let mut granted = Vec::new();
    for _ in 0..4 {
        let (_, response) = request_token(&asking, "hob", &rights(&["/temp"]), None).await.expect("a token");
        granted.push((token(&response).to_vec(), material(&response).clone()));
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    let post = async |n: usize| post_token(&plain, &granted[n].0, &granted[n].1).await;
    assert!(post(1).await.is_ok() && post(2).await.is_ok());
    let refused = post(0).await;
    assert!(matches!(refused, Err(NotAgreed::Later { seconds: 1..=600 })), "{:?}", refused.err());
    assert!(post(3).await.is_ok(), "a newer token ends the oldest one");
    assert_eq!(tokens.count(), 2);
}

/// RFC 9200, section 5.8.2.
#[tokio::test]
async fn a_token_of_another_profile_is_refused() {
    let granted = |profile| TokenResponse {
        access_token: Some(vec![1]),
        cnf: Some(Confirmation::Osc(InputMaterial::new(vec![1], &[2; 16]))),
        ace_profile: profile,
        ..TokenResponse::default()
    };
    for (profile, is_taken) in [(None, true), (Some(Profile::COAP_OSCORE), true), (Some(Profile::COAP_DTLS), false)] {
        let payload = granted(profile).encode();
        let router = Router::new().post("/token", move |_, response| {
            response.set_code(Code::CREATED);
            response.uint(OptionNumber::CONTENT_FORMAT, ACE_CBOR.into())?;
            response.payload(&payload)
        });
        let server = Server::builder().listen("coap://127.0.0.1:0").allow_plain().serve(router).expect("a server");
        let asked = request_token(&in_clear(at(&server)).await, "hob", &rights(&["/temp"]), None).await;
        assert_eq!(asked.is_ok(), is_taken, "{profile:?}");
        assert!(is_taken || matches!(asked, Err(NotGranted::Unexpected { code: Code::CREATED })));
    }
}
