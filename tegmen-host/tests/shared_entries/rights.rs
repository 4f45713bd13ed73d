//! Tests that the cache entry of a response does not answer other requests: of other groups, for other origins, or of
//! clients with other rights.

use crate::world::{Line, Member, Options, Origin, Person, get, open_proxy, settings, with};
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use tegmen::coap::cache::{self, Treatment};
use tegmen::coap::{Code, MessageRef, OptionNumber};
use tegmen_host::client::{ClientConfig, Response, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::proxy::Proxy;
use tegmen_host::server::Server;
use tegmen_host::uri::Scheme;

const KEY: &[u8] = b"0123456789abcdef";

/// A proxy for one origin. The proxy can have a fault: if a field is false, the keys of cache entries do not contain
/// the part of the request that the field names.
struct Mutant {
    has_oscore: bool,
    has_hash: bool,
    has_payload: bool,
}

impl Mutant {
    const RIGHT: Self = Self { has_oscore: true, has_hash: true, has_payload: true };

    fn key(&self, request: &MessageRef<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        let mut put = |bytes: &[u8]| key.extend_from_slice(bytes);
        cache::write_resource(request.option(OptionNumber::URI_PORT).unwrap(), request, 0, &mut put);
        for (number, value) in request.options().filter(|(number, _)| cache::in_request(*number) == Treatment::Key) {
            let is_left_out = match number {
                OptionNumber::OSCORE => !self.has_oscore,
                OptionNumber::REQUEST_HASH => !self.has_hash,
                _ => false,
            };
            if !is_left_out {
                put(value);
            }
        }
        if self.has_payload {
            put(request.payload());
        }
        key
    }

    fn start(self) -> SocketAddr {
        let (front, back) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        back.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let address = front.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut entries, mut datagram) = (HashMap::<Vec<u8>, Vec<u8>>::new(), [0; 1500]);
            while let Ok((len, from)) = front.recv_from(&mut datagram) {
                let request = datagram[..len].to_vec();
                let message = MessageRef::parse(&request).unwrap();
                let port = u16::from_be_bytes(message.option(OptionNumber::URI_PORT).unwrap().try_into().unwrap());
                let entry = entries.entry(self.key(&message)).or_insert_with(|| {
                    back.send_to(&request, ("127.0.0.1", port)).unwrap();
                    let (len, _) = back.recv_from(&mut datagram).unwrap();
                    datagram[..len].to_vec()
                });
                entry[2..4].copy_from_slice(&request[2..4]);
                front.send_to(entry, from).unwrap();
            }
        });
        address
    }
}

/// Returns an error if a stored response to Alice in the group `house` answers a request of another member or group,
/// another request, or a request for another origin.
fn shares_only_what_it_may(proxy: SocketAddr) -> Result<(), String> {
    let (origin, other) = (Origin::start(), Origin::start());
    let expect = |got: Result<String, String>, expected: &str| match got {
        Ok(got) if got == expected => Ok(()),
        got => Err(format!("{got:?} instead of {expected}")),
    };
    let mut alice = Person::new("house", "alice", proxy);
    for _ in 0..2 {
        expect(alice.get(origin.address, "door"), "house door 1")?;
    }
    expect(Person::new("house", "carol", proxy).get(origin.address, "door"), "house door 1")?;
    expect(alice.get(origin.address, "lamp"), "house lamp 2")?;
    // Carol is in a group of another name, too, and in one of the same name with other keys.
    for (count, group) in [(3, "shop"), (4, "clone")] {
        let mut carol = Person::new(group, "carol", proxy);
        expect(carol.get(origin.address, "door"), &format!("{group} door {count}"))?;
    }
    expect(alice.get(other.address, "door"), "house door 1")?;
    // A client that changes a part of the request of Alice does not get her entry: the origin refuses it.
    let (_, request) = Member::new("house", "alice").ask(&get(origin.address, "door"));
    let entry = payload(&Line::to(proxy).exchange(&request));
    let text = payload(&request);
    for changed in [
        with(&request, (OptionNumber::REQUEST_HASH, &[7; 32]), &text),
        with(&request, (OptionNumber::OSCORE, b"\x19\x00\x04grp2d"), &text),
        with(&request, (OptionNumber::URI_HOST, b"127.0.0.1"), &text[1..]),
    ] {
        if payload(&Line::to(proxy).exchange(&changed)) == entry {
            return Err("a request with a part of that of Alice got her entry".to_owned());
        }
    }
    // The entry is still hers.
    expect(alice.get(origin.address, "door"), "house door 1")
}

fn payload(datagram: &[u8]) -> Vec<u8> {
    MessageRef::parse(datagram).unwrap().payload().to_vec()
}

/// Sends a request to a proxy over DTLS, with the options and the payload of `request`. Returns the response.
async fn send(session: &Session, origin: SocketAddr, request: &MessageRef<'_>) -> Response {
    let host = origin.ip().to_string();
    let port = origin.port().to_be_bytes();
    let target: Options<'_> = &[
        (OptionNumber::URI_HOST, host.as_bytes()),
        (OptionNumber::URI_PORT, &port),
        (OptionNumber::PROXY_SCHEME, b"coap"),
    ];
    let protected = [OptionNumber::OSCORE, OptionNumber::REQUEST_HASH];
    let protected = protected.map(|number| (number, request.option(number).unwrap()));
    let options: Vec<_> = target.iter().chain(&protected).map(|(number, value)| (*number, value.to_vec())).collect();
    session.request(Code::FETCH, "").options(&options).payload(request.payload()).await.unwrap()
}

#[tokio::test]
async fn a_proxy_never_answers_one_client_with_what_another_may_not_see() {
    let (_server, address, _) = open_proxy();
    shares_only_what_it_may(address).unwrap();
    shares_only_what_it_may(Mutant::RIGHT.start()).unwrap();
    // The mutants, whose entries have a part of the request too little in their keys.
    for mutant in [
        Mutant { has_oscore: false, ..Mutant::RIGHT },
        Mutant { has_hash: false, ..Mutant::RIGHT },
        Mutant { has_payload: false, ..Mutant::RIGHT },
        Mutant { has_oscore: false, has_hash: false, has_payload: false },
    ] {
        assert!(shares_only_what_it_may(mutant.start()).is_err());
    }

    // Alice has the right to send requests to the origin. Mallory has not, and replays the request of Alice.
    let origin = Origin::start();
    let at = origin.address;
    let rule = |identity: &str, path: &str| {
        let key = tegmen_host::hex::to_hex(KEY);
        format!("[[psk]]\nidentity = \"{identity}\"\nkey = \"{key}\"\nallow = [\"FETCH /proxy/coap/{path}\"]\n")
    };
    let rules =
        [rule("alice", &at.to_string()), rule("mallory", "127.0.0.1:1"), rule("mutant", &at.to_string())].concat();
    let builder = Server::builder().listen("coaps://127.0.0.1:0").on_event(|_| ());
    let proxy = Proxy::new(settings()).unwrap();
    let server = builder.credentials(credentials(&rules)).serve(proxy.clone()).unwrap();
    let open = |name: &'static str| {
        Session::connect_to(server.addresses()[0].address, Scheme::Coaps, ClientConfig::psk(name, KEY))
    };
    let (alice, mallory, mutant) =
        (open("alice").await.unwrap(), open("mallory").await.unwrap(), open("mutant").await.unwrap());
    let (_, request) = Member::new("house", "alice").ask(&get(at, "door"));
    let request = MessageRef::parse(&request).unwrap();
    let entry = send(&alice, at, &request).await;
    assert_eq!(entry.code, Code::CONTENT);
    assert_eq!(send(&mallory, at, &request).await.code, Code::FORBIDDEN);
    // The mutant: a policy that gives her the right of Alice. She has the entry then, and no key to read it.
    assert_eq!(send(&mutant, at, &request).await.payload, entry.payload);
    assert_eq!((origin.requests(), proxy.counts().hits, proxy.counts().entries), (1, 1, 1));
}

fn credentials(rules: &str) -> Credentials {
    let file = std::env::temp_dir().join(format!("tegmen-shared-{}.toml", std::process::id()));
    std::fs::write(&file, rules).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let credentials = Credentials::from_file(&file).unwrap();
    let _ = std::fs::remove_file(&file);
    credentials
}
