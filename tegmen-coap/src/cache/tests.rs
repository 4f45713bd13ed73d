use super::*;
use std::vec::Vec;

type Options<'a> = &'a [(OptionNumber, &'a [u8])];

const ETAG: (OptionNumber, &[u8]) = (OptionNumber::ETAG, b"one");
const PATH: (OptionNumber, &[u8]) = (OptionNumber::URI_PATH, b"temp");
/// An option that is not registered. It is elective, safe to forward and not part of the cache key.
const UNKNOWN_PASSED: OptionNumber = OptionNumber(0x2fc);
const UNKNOWN_SAFE: OptionNumber = OptionNumber(0x2f9);
const UNKNOWN_UNSAFE: OptionNumber = OptionNumber(0x2fa);

fn message(code: Code, options: Options<'_>, payload: &[u8]) -> Vec<u8> {
    let mut storage = [0; 400];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, code, 1, b"t").unwrap();
    let mut options = options.to_vec();
    options.sort_by_key(|(number, _)| *number);
    options.iter().for_each(|(number, value)| builder.option(*number, value).unwrap());
    builder.payload(payload).unwrap();
    frame.bytes().to_vec()
}

fn key_of(authority: &[u8], request: &[u8], skipped: usize) -> (Vec<u8>, usize) {
    let (request, mut key) = (MessageRef::parse(request).unwrap(), Vec::new());
    write_resource(authority, &request, skipped, |bytes| key.extend(bytes));
    let resource = key.len();
    write_variant(&request, |bytes| key.extend(bytes));
    (key, resource)
}

fn same_key(one: &[u8], other: &[u8]) -> bool {
    key_of(b"a", one, 0) == key_of(b"a", other, 0)
}

fn get(options: Options<'_>) -> Vec<u8> {
    message(Code::GET, options, b"")
}

fn seconds(response: &[u8]) -> Option<u64> {
    lifetime(&MessageRef::parse(response).unwrap()).map(|lifetime| lifetime.as_secs())
}

/// A cache and its clock.
struct Scene {
    cache: Cache<FixedCache<3, 200>>,
    now: Instant,
}

impl Scene {
    fn new() -> Self {
        Self { cache: Cache::default(), now: Instant::from_micros(7_000_000) }
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    fn take(&mut self, request: &[u8], response: &[u8]) -> Taken {
        let (key, resource) = key_of(b"a", request, 0);
        let response = MessageRef::parse(response).unwrap();
        let mut storage = [0; 400];
        let mut frame = Frame::new(&mut storage, 0);
        write_stored(response.code(), response.options(), response.payload(), &mut frame).unwrap();
        self.cache.take(self.now, (&key, resource), (), (&response, frame.bytes()))
    }

    fn revalidate(&mut self, request: &[u8], valid: &[u8]) -> bool {
        let (key, resource) = key_of(b"a", request, 0);
        let mut storage = [0; 400];
        let mut frame = Frame::new(&mut storage, 0);
        let valid = MessageRef::parse(valid).unwrap();
        self.cache.revalidate(self.now, (&key, resource), (), (b"one", &valid), &mut frame)
    }

    fn look_up(&mut self, request: &[u8]) -> Found<'_> {
        let (key, _) = key_of(b"a", request, 0);
        self.cache.look_up(self.now, &key, &MessageRef::parse(request).unwrap())
    }

    fn max_age(&mut self, request: &[u8]) -> Option<u32> {
        match self.look_up(request) {
            Found::Fresh { max_age, .. } | Found::Known { max_age, .. } => Some(max_age),
            Found::Stale { .. } | Found::Nothing => None,
        }
    }
}

#[test]
fn an_unknown_option_is_forwarded_if_it_is_safe_and_refused_if_it_is_not() {
    assert_eq!(in_request(UNKNOWN_SAFE), Treatment::Key);
    assert_eq!(in_request(UNKNOWN_PASSED), Treatment::Passed);
    assert_eq!(in_request(UNKNOWN_UNSAFE), Treatment::Refused);
    assert_eq!(in_response(UNKNOWN_SAFE), Treatment::Passed);
    assert_eq!(in_response(UNKNOWN_UNSAFE), Treatment::Refused);
    // Q-Block1 (RFC 9177) is unsafe, and nobody acts upon it here.
    assert_eq!(in_request(OptionNumber(19)), Treatment::Refused);
}

#[test]
fn oscore_is_forwarded_untouched() {
    assert_eq!(in_request(OptionNumber::OSCORE), Treatment::Key);
    assert_eq!(in_response(OptionNumber::OSCORE), Treatment::Passed);
}

#[test]
fn requests_have_one_key_if_method_resource_and_options_agree() {
    let request = get(&[PATH, (OptionNumber::URI_QUERY, b"unit=C"), (OptionNumber::ACCEPT, &[50])]);
    assert!(same_key(&request, &request.clone()));
    assert!(!same_key(&request, &get(&[PATH, (OptionNumber::ACCEPT, &[50])])));
    assert!(!same_key(&request, &get(&[PATH, (OptionNumber::URI_QUERY, b"unit=C"), (OptionNumber::ACCEPT, &[60])])));
    assert!(!same_key(&request, &get(&[(OptionNumber::URI_QUERY, b"unit=C"), (OptionNumber::ACCEPT, &[50])])));
    assert!(!same_key(&get(&[PATH]), &get(&[PATH, (UNKNOWN_SAFE, b"x")])));
    assert!(!same_key(&get(&[PATH]), &message(Code::FETCH, &[PATH], b"")));
    assert_ne!(key_of(b"a", &request, 0), key_of(b"b", &request, 0));
}

#[test]
fn options_without_effect_on_the_representation_are_no_part_of_the_key() {
    let taken = [
        ETAG,
        (OptionNumber::OBSERVE, b""),
        (OptionNumber::BLOCK2, &[0x12]),
        (OptionNumber::SIZE2, b""),
        (OptionNumber::HOP_LIMIT, &[3]),
        (OptionNumber::ECHO, b"echo"),
        (UNKNOWN_PASSED, b"x"),
    ];
    for option in taken {
        assert!(same_key(&get(&[PATH]), &get(&[PATH, option])), "{option:?}");
    }
}

#[test]
fn the_payload_of_a_fetch_is_a_part_of_its_key_and_that_of_a_get_is_not() {
    let fetch = |payload: &[u8]| message(Code::FETCH, &[PATH], payload);
    assert!(same_key(&fetch(b"a"), &fetch(b"a")));
    assert!(!same_key(&fetch(b"a"), &fetch(b"b")));
    assert!(same_key(&message(Code::GET, &[PATH], b"x"), &get(&[PATH])));
}

#[test]
fn no_resource_begins_with_another() {
    let (long, _) = key_of(b"a", &get(&[PATH, (OptionNumber::URI_PATH, b"x")]), 0);
    let (short, resource) = key_of(b"a", &get(&[PATH]), 0);
    assert!(!long.starts_with(&short[..resource]));
    // The segments of a path are not those of another one.
    let cut = |parts: [&[u8]; 2]| key_of(b"a", &get(&parts.map(|part| (OptionNumber::URI_PATH, part))), 0);
    assert_ne!(cut([b"ab", b"c"]), cut([b"a", b"bc"]));
}

#[test]
fn a_prefix_of_the_path_may_be_left_out() {
    let request = get(&[(OptionNumber::URI_PATH, b"house"), PATH]);
    assert_eq!(key_of(b"a", &request, 1), key_of(b"a", &get(&[PATH]), 0));
}

#[test]
fn a_response_is_fresh_for_its_max_age_and_for_60_seconds_without_one() {
    assert_eq!(seconds(&message(Code::CONTENT, &[], b"x")), Some(60));
    assert_eq!(seconds(&message(Code::CONTENT, &[(OptionNumber::MAX_AGE, &[1, 0])], b"x")), Some(256));
    assert_eq!(seconds(&message(Code::CONTENT, &[(OptionNumber::MAX_AGE, &[0xff; 4])], b"x")), Some(0xffff_ffff));
    assert_eq!(seconds(&message(Code::CONTENT, &[(OptionNumber::MAX_AGE, b"")], b"x")), None);
    assert_eq!(seconds(&message(Code::CONTENT, &[(OptionNumber::MAX_AGE, &[1; 5])], b"x")), None);
}

#[test]
fn content_and_errors_are_stored_and_results_of_changes_are_not() {
    for code in [Code::CONTENT, Code::NOT_FOUND, Code::NOT_ACCEPTABLE, Code::SERVICE_UNAVAILABLE, Code::BAD_GATEWAY] {
        assert_eq!(seconds(&message(code, &[], b"")), Some(60), "{code}");
    }
    for code in [Code::CREATED, Code::DELETED, Code::VALID, Code::CHANGED, Code::CONTINUE, Code::new(2, 30)] {
        assert_eq!(seconds(&message(code, &[], b"")), None, "{code}");
    }
}

#[test]
fn a_response_for_one_client_alone_is_not_stored() {
    for code in [Code::UNAUTHORIZED, Code::TOO_MANY_REQUESTS, Code::HOP_LIMIT_REACHED, Code::REQUEST_ENTITY_TOO_LARGE] {
        assert_eq!(seconds(&message(code, &[], b"")), None, "{code}");
    }
    assert_eq!(seconds(&message(Code::CONTENT, &[(OptionNumber::ECHO, b"echo")], b"x")), None);
}

#[test]
fn get_and_fetch_are_answered_from_a_cache_and_with_oscore_deterministic_requests_alone() {
    let is = |code, options: Options<'_>| is_cacheable(&MessageRef::parse(&message(code, options, b"")).unwrap());
    assert!(is(Code::GET, &[PATH]) && is(Code::FETCH, &[PATH]));
    assert!(!is(Code::POST, &[PATH]) && !is(Code::PUT, &[PATH]) && !is(Code::DELETE, &[PATH]));
    assert!(!is(Code::PATCH, &[PATH]) && !is(Code::IPATCH, &[PATH]));
    assert!(!is(Code::GET, &[(OptionNumber::OSCORE, &[9, 1, 2])]));
    assert!(!is(Code::FETCH, &[(OptionNumber::OSCORE, &[9, 1, 2])]));
    let deterministic = [(OptionNumber::OSCORE, &[9, 0, 2][..]), (OptionNumber::REQUEST_HASH, &[1; 32])];
    assert!(is(Code::FETCH, &deterministic));
    assert!(!is(Code::GET, &deterministic) && !is(Code::POST, &deterministic));
    assert!(!is(Code::FETCH, &[deterministic[0], deterministic[1], (OptionNumber::OBSERVE, b"")]));
}

#[test]
fn a_deterministic_request_is_stored_under_all_that_is_in_it() {
    let fetch = |oscore: &[u8], hash: &[u8], payload: &[u8]| {
        message(Code::FETCH, &[(OptionNumber::OSCORE, oscore), (OptionNumber::REQUEST_HASH, hash)], payload)
    };
    assert_eq!(in_request(OptionNumber::REQUEST_HASH), Treatment::Key);
    assert_eq!(in_response(OptionNumber::REQUEST_HASH), Treatment::Passed);
    let request = fetch(b"one", &[1; 32], b"text");
    for other in [fetch(b"two", &[1; 32], b"text"), fetch(b"one", &[2; 32], b"text"), fetch(b"one", &[1; 32], b"texts")]
    {
        assert!(!same_key(&request, &other));
    }
    let mut scene = Scene::new();
    let options = [(OptionNumber::OSCORE, &b"piv"[..]), (OptionNumber::MAX_AGE, &[10])];
    assert_eq!(scene.take(&request, &message(Code::CONTENT, &options, b"text")), Taken::Stored);
    let Found::Fresh { response, max_age: 10 } = scene.look_up(&request) else { panic!("it is fresh") };
    assert_eq!((response.option(OptionNumber::OSCORE), response.payload()), (Some(&b"piv"[..]), &b"text"[..]));
}

#[test]
fn a_method_that_is_not_safe_makes_responses_invalid_unless_it_is_refused() {
    for method in [Code::POST, Code::PUT, Code::DELETE, Code::PATCH, Code::IPATCH] {
        assert!(changes(method, Code::CHANGED) && changes(method, Code::CREATED) && changes(method, Code::DELETED));
        assert!(changes(method, Code::INTERNAL_SERVER_ERROR));
        assert!(!changes(method, Code::FORBIDDEN));
    }
    assert!(!changes(Code::GET, Code::CONTENT) && !changes(Code::FETCH, Code::CONTENT));
}

#[test]
fn max_age_is_counted_down() {
    let mut scene = Scene::new();
    let request = get(&[PATH]);
    assert_eq!(scene.take(&request, &message(Code::CONTENT, &[(OptionNumber::MAX_AGE, &[10])], b"21")), Taken::Stored);
    assert_eq!(scene.max_age(&request), Some(10));
    scene.wait(9);
    assert_eq!(scene.max_age(&request), Some(1));
    scene.wait(1);
    assert_eq!(scene.max_age(&request), None);
}

#[test]
fn the_stored_response_has_the_options_that_are_forwarded() {
    let mut scene = Scene::new();
    let request = get(&[PATH]);
    let options = [
        ETAG,
        (OptionNumber::OBSERVE, &[7][..]),
        (OptionNumber::CONTENT_FORMAT, &[50]),
        (OptionNumber::MAX_AGE, &[10]),
        (OptionNumber::BLOCK2, &[6]),
        (UNKNOWN_SAFE, b"x"),
    ];
    scene.take(&request, &message(Code::CONTENT, &options, b"21"));
    let Found::Fresh { response, .. } = scene.look_up(&request) else { panic!("it is fresh") };
    let numbers: Vec<_> = response.options().map(|(number, _)| number).collect();
    assert_eq!(numbers, [OptionNumber::ETAG, OptionNumber::CONTENT_FORMAT, UNKNOWN_SAFE]);
    assert_eq!(response.payload(), b"21");
}

#[test]
fn a_client_that_has_the_representation_is_told_so() {
    let mut scene = Scene::new();
    scene.take(&get(&[PATH]), &message(Code::CONTENT, &[ETAG], b"21"));
    assert!(matches!(scene.look_up(&get(&[PATH, ETAG])), Found::Known { etag: b"one", .. }));
    let other = get(&[PATH, (OptionNumber::ETAG, b"two")]);
    assert!(matches!(scene.look_up(&other), Found::Fresh { .. }));
    let both = get(&[PATH, (OptionNumber::ETAG, b"two"), ETAG]);
    assert!(matches!(scene.look_up(&both), Found::Known { .. }));
}

#[test]
fn a_response_that_is_not_fresh_is_asked_about_with_its_etag() {
    let mut scene = Scene::new();
    let request = get(&[PATH]);
    scene.take(&request, &message(Code::CONTENT, &[ETAG], b"21"));
    scene.wait(61);
    assert!(matches!(scene.look_up(&request), Found::Stale { etag: b"one" }));
    // An error cannot be validated (RFC 7252, section 5.9.2).
    scene.take(&request, &message(Code::NOT_FOUND, &[ETAG], b""));
    scene.wait(61);
    assert!(matches!(scene.look_up(&request), Found::Nothing));
}

#[test]
fn a_2_03_makes_the_stored_response_fresh_and_replaces_its_options() {
    let mut scene = Scene::new();
    let request = get(&[PATH]);
    scene.take(&request, &message(Code::CONTENT, &[ETAG, (OptionNumber::CONTENT_FORMAT, &[50])], b"21"));
    scene.wait(61);
    let valid = message(Code::VALID, &[ETAG, (OptionNumber::MAX_AGE, &[5]), (UNKNOWN_SAFE, b"new")], b"");
    assert!(scene.revalidate(&request, &valid));
    let Found::Fresh { response, max_age: 5 } = scene.look_up(&request) else { panic!("it is fresh again") };
    assert_eq!((response.code(), response.payload()), (Code::CONTENT, &b"21"[..]));
    assert_eq!(response.uint(OptionNumber::CONTENT_FORMAT), Some(50));
    assert_eq!(response.option(UNKNOWN_SAFE), Some(&b"new"[..]));
}

#[test]
fn a_2_03_for_another_representation_changes_nothing() {
    let mut scene = Scene::new();
    let request = get(&[PATH]);
    scene.take(&request, &message(Code::CONTENT, &[ETAG], b"21"));
    scene.wait(61);
    assert!(!scene.revalidate(&request, &message(Code::VALID, &[(OptionNumber::ETAG, b"two")], b"")));
    assert!(!scene.revalidate(&get(&[]), &message(Code::VALID, &[ETAG], b"")));
    assert!(!scene.revalidate(&request, &message(Code::CONTENT, &[ETAG], b"")));
    assert!(matches!(scene.look_up(&request), Found::Stale { .. }));
}

#[test]
fn a_response_that_may_not_be_stored_removes_the_earlier_one() {
    let mut scene = Scene::new();
    let request = get(&[PATH]);
    scene.take(&request, &message(Code::CONTENT, &[], b"21"));
    let unstored = message(Code::CONTENT, &[(OptionNumber::MAX_AGE, b"")], b"22");
    assert_eq!(scene.take(&request, &unstored), Taken::NotStored);
    assert!(matches!(scene.look_up(&request), Found::Nothing));
}

#[test]
fn a_change_removes_all_responses_for_its_resource_and_no_other() {
    let mut scene = Scene::new();
    let (json, below) = (get(&[PATH, (OptionNumber::ACCEPT, &[50])]), get(&[PATH, (OptionNumber::URI_PATH, b"x")]));
    for request in [&get(&[PATH]), &json, &below] {
        scene.take(request, &message(Code::CONTENT, &[], b"21"));
    }
    let (key, resource) = key_of(b"a", &get(&[PATH]), 0);
    scene.cache.storage.remove_resource(&key[..resource]);
    assert_eq!([get(&[PATH]), json, below].map(|request| scene.max_age(&request).is_some()), [false, false, true]);
}

#[test]
fn the_response_that_was_not_used_for_longest_goes_from_a_full_array() {
    let mut scene = Scene::new();
    let request = |name: &[u8]| get(&[(OptionNumber::URI_PATH, name)]);
    for name in [b"a", b"b", b"c"] {
        scene.take(&request(name), &message(Code::CONTENT, &[], b"1"));
    }
    assert_eq!(scene.max_age(&request(b"a")), Some(60));
    scene.take(&request(b"d"), &message(Code::CONTENT, &[], b"1"));
    let are_there = [b"a", b"b", b"c", b"d"].map(|name| scene.max_age(&request(name)).is_some());
    assert_eq!(are_there, [true, false, true, true]);
}

#[test]
fn a_response_that_is_too_long_is_not_stored() {
    let mut scene = Scene::new();
    let long = message(Code::CONTENT, &[], &[1; 250]);
    assert_eq!(scene.take(&get(&[PATH]), &long), Taken::NotStored);
    assert!(matches!(scene.look_up(&get(&[PATH])), Found::Nothing));
}
