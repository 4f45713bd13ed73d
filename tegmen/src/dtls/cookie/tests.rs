use super::*;
use crate::crypto::Compact;
use crate::dtls::Config;
use crate::time::Duration;

const HERE: Address = Address { ip: [1; 16], port: 1, scope: 0 };
const THERE: Address = Address { ip: [1; 16], port: 2, scope: 0 };
const START: Instant = Instant::from_micros(0);

fn cookies_of(crypto: &mut Compact) -> Cookies {
    let mut cookies = Cookies::none();
    cookies.begin(crypto);
    cookies
}

fn hello(cookie: &[u8]) -> ClientHello<'_> {
    let body = b"\xfe\xfd................................\0\0\0\x02\xc0\xa8\x01\0";
    let mut hello = ClientHello::read(body, false).unwrap();
    hello.cookie = cookie;
    hello
}

/// True if the cookie in `hello` is valid in this generation.
fn is_valid(cookies: &Cookies, generation: u32, address: &Address, hello: &ClientHello<'_>) -> bool {
    cookies.of::<Compact>(generation, address, hello) == hello.cookie
}

fn valid_after(seconds: u64) -> bool {
    let settings = Settings::from(Config { cookie_lifetime: Duration::from_secs(60), ..Config::default() });
    let cookies = cookies_of(&mut Compact::new([1; 32]));
    let cookie = cookies.of::<Compact>(generation(START, &settings), &HERE, &hello(&[]));
    let later = generation(START.after(Duration::from_secs(seconds)), &settings);
    is_valid(&cookies, later, &HERE, &hello(&cookie))
}

#[test]
fn a_cookie_is_valid_for_one_generation_more_and_not_for_two() {
    assert!(valid_after(0));
    assert!(valid_after(59));
    assert!(valid_after(63));
    assert!(valid_after(119));
    assert!(!valid_after(125));
}

#[test]
fn a_cookie_is_not_valid_after_a_long_silence() {
    assert!(!valid_after(180));
    assert!(!valid_after(100_000));
}

#[test]
fn a_wrong_cookie_of_either_generation_is_answered_with_one_that_is_taken() {
    let cookies = cookies_of(&mut Compact::new([1; 32]));
    for generation in [0, 1, u32::MAX] {
        for wrong in [&[0; 16][..], &[1; 16], &[1], &[0; 255]] {
            let sent = cookies.of::<Compact>(generation, &HERE, &hello(wrong));
            assert!(!is_valid(&cookies, generation, &HERE, &hello(wrong)));
            assert!(is_valid(&cookies, generation, &HERE, &hello(&sent)));
        }
    }
}

#[test]
fn a_cookie_is_bound_to_address_and_key() {
    let mut crypto = Compact::new([1; 32]);
    let cookies = cookies_of(&mut crypto);
    let cookie = cookies.of::<Compact>(1, &HERE, &hello(&[]));
    assert!(is_valid(&cookies, 1, &HERE, &hello(&cookie)));
    assert!(!is_valid(&cookies, 1, &THERE, &hello(&cookie)));
    assert!(!is_valid(&cookies, 1, &HERE, &hello(&[])));
    let other = cookies_of(&mut crypto);
    assert!(!is_valid(&other, 1, &HERE, &hello(&cookie)));
}

/// wolfSSL writes the extensions of its second ClientHello in another order than those of the first.
#[test]
fn a_cookie_is_bound_to_the_parameters_of_the_client_and_not_to_its_extensions() {
    let hello = |random: u8, suite: u8, extensions: [u8; 2]| {
        let mut body = [b"\xfe\xfd".as_slice(), &[random; 32], b"\0\0\0\x02\xc0", &[suite], b"\x01\0\0\x08"].concat();
        extensions.iter().for_each(|kind| body.extend([0, *kind, 0, 0]));
        body
    };
    let cookies = cookies_of(&mut Compact::new([1; 32]));
    let first = hello(7, 0xa8, [22, 23]);
    let cookie = cookies.of::<Compact>(1, &HERE, &ClientHello::read(&first, false).unwrap());
    let shown_with = |body: &[u8]| {
        let mut hello = ClientHello::read(body, false).unwrap();
        hello.cookie = &cookie;
        is_valid(&cookies, 1, &HERE, &hello)
    };
    assert!(shown_with(&first));
    assert!(shown_with(&hello(7, 0xa8, [23, 22])));
    assert!(!shown_with(&hello(8, 0xa8, [22, 23])));
    assert!(!shown_with(&hello(7, 0xae, [22, 23])));
}
