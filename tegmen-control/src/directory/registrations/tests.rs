use super::*;
use std::net::Ipv6Addr;

const NOW: Instant = Instant::from_micros(1_000_000_000);

fn address(last: u16, port: u16) -> SocketAddr {
    (Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, last), port).into()
}

fn plain(last: u16) -> Registrant<'static> {
    Registrant { name: None, address: address(last, 61616), is_secure: false, is_tool: false }
}

fn named(name: &str) -> Registrant<'_> {
    Registrant { name: Some(name), address: address(9, 5684), is_secure: true, is_tool: false }
}

fn small() -> Directory {
    Directory::new(DirectoryBounds { registrations: 4, each: 2, links: 64, bytes: 500 })
}

fn put(directory: &mut Directory, who: Registrant<'_>, query: &str, id: u64) -> Result<String, DirectoryError> {
    let query = query.split('&').filter(|argument| !argument.is_empty());
    directory.register(who, query, b"</t>;rt=\"x\"", (id, NOW))
}

fn bases(directory: &Directory) -> Vec<&str> {
    directory.registrations().map(|registration| registration.base.as_str()).collect()
}

#[test]
fn an_endpoint_is_registered_at_the_address_of_its_request() {
    let mut directory = small();
    assert_eq!(put(&mut directory, plain(0x123), "ep=node1", 0x4521).unwrap(), "/rd/0000000000004521");
    assert_eq!(bases(&directory), ["coap://[2001:db8:3::123]:61616"]);
    let mapped = Registrant { address: "[::ffff:192.0.2.1]:5683".parse().unwrap(), ..plain(0) };
    put(&mut directory, mapped, "ep=node2", 0x4522).unwrap();
    assert_eq!(bases(&directory)[1], "coap://192.0.2.1:5683");
    put(&mut directory, named("node3"), "", 0x4523).unwrap();
    assert_eq!(bases(&directory)[2], "coaps://[2001:db8:3::9]:5684");
}

#[test]
fn an_endpoint_that_registers_again_keeps_its_path() {
    let mut directory = small();
    let first = put(&mut directory, plain(1), "ep=node1", 1).unwrap();
    let again = directory.register(plain(2), ["ep=node1"].into_iter(), b"</a>,</b>", (2, NOW)).unwrap();
    assert_eq!((again, directory.len()), (first, 1));
    assert_eq!(directory.registrations().next().unwrap().links.len(), 2);
    assert_ne!(put(&mut directory, plain(1), "ep=node1&d=other", 3).unwrap(), "/rd/0000000000000001");
}

#[test]
fn a_name_belongs_to_the_identity_that_registered_it_first() {
    let mut directory = small();
    let path = put(&mut directory, named("a"), "ep=lamp", 1).unwrap();
    assert_eq!(put(&mut directory, named("b"), "ep=lamp", 2), Err(DirectoryError::NameTaken));
    assert_eq!(put(&mut directory, plain(1), "ep=lamp", 3), Err(DirectoryError::NameTaken));
    let path = path.trim_start_matches('/');
    for other in [named("b"), plain(9)] {
        assert_eq!(directory.renew(other, path, std::iter::empty(), NOW), Err(DirectoryError::NotOwner));
        assert_eq!(directory.remove(other, path), Err(DirectoryError::NotOwner));
    }
    directory.remove(named("a"), path).unwrap();
    // Nor after its registration ended.
    assert_eq!(put(&mut directory, named("b"), "ep=lamp", 2), Err(DirectoryError::NameTaken));
    put(&mut directory, named("a"), "ep=lamp", 4).unwrap();
}

/// Only the tool may change a registration that it made, although the name of the endpoint has no owner.
#[test]
fn a_registration_of_a_tool_is_not_taken_over() {
    let mut directory = small();
    let tool = Registrant { is_tool: true, ..named("tool") };
    put(&mut directory, tool, "ep=lamp&base=coap://lamp.example", 1).unwrap();
    assert_eq!(put(&mut directory, named("b"), "ep=lamp", 2), Err(DirectoryError::NameTaken));
    assert_eq!(bases(&directory), ["coap://lamp.example"]);
}

/// The name of an endpoint belongs to its identity, also if a tool has changed the registration since.
#[test]
fn an_endpoint_keeps_its_registration_after_a_change_by_a_tool() {
    let mut directory = small();
    let tool = Registrant { is_tool: true, ..named("tool") };
    let path = put(&mut directory, named("a"), "ep=lamp", 1).unwrap();
    assert_eq!(put(&mut directory, tool, "ep=lamp&base=coap://lamp.example", 2).unwrap(), path);
    directory.renew(named("a"), &path[1..], ["lt=60"].into_iter(), NOW).unwrap();
    assert_eq!(directory.renew(named("b"), &path[1..], std::iter::empty(), NOW), Err(DirectoryError::NotOwner));
    assert_eq!(put(&mut directory, named("a"), "ep=lamp", 3).unwrap(), path);
    assert_eq!(put(&mut directory, named("b"), "ep=lamp", 4), Err(DirectoryError::NameTaken));
}

/// A registration in clear has no owner, so any sender takes it over. It then counts for this sender.
#[test]
fn a_registration_that_is_taken_over_counts_for_its_new_owner() {
    let mut directory = small();
    put(&mut directory, plain(1), "ep=lamp", 1).unwrap();
    for (id, name) in [(2, "b"), (3, "c")] {
        put(&mut directory, named("a"), &format!("ep={name}"), id).unwrap();
    }
    assert_eq!(put(&mut directory, named("a"), "ep=lamp", 4), Err(DirectoryError::TooMany));
    put(&mut directory, named("z"), "ep=lamp", 4).unwrap();
    // A renewed registration is no further one.
    put(&mut directory, named("a"), "ep=c", 5).unwrap();
}

/// The names of other identities stay remembered, however many names one identity registers and removes.
#[test]
fn one_identity_does_not_use_up_the_remembered_names() {
    let mut directory = small();
    for id in 0..8 {
        let path = put(&mut directory, named("a"), &format!("ep=node{id}"), id).unwrap();
        directory.remove(named("a"), &path[1..]).unwrap();
    }
    let path = put(&mut directory, named("b"), "ep=lamp", 9).unwrap();
    directory.remove(named("b"), &path[1..]).unwrap();
    assert_eq!(put(&mut directory, named("c"), "ep=lamp", 10), Err(DirectoryError::NameTaken));
    // The identity keeps the newest of its names.
    assert_eq!(put(&mut directory, named("c"), "ep=node7", 11), Err(DirectoryError::NameTaken));
}

#[test]
fn an_identity_takes_a_name_that_was_registered_in_clear() {
    let mut directory = small();
    put(&mut directory, plain(1), "ep=lamp", 1).unwrap();
    put(&mut directory, named("a"), "ep=lamp", 2).unwrap();
    assert_eq!(bases(&directory), ["coaps://[2001:db8:3::9]:5684"]);
    assert_eq!(put(&mut directory, plain(1), "ep=lamp", 3), Err(DirectoryError::NameTaken));
}

#[test]
fn an_endpoint_registers_no_other_address() {
    let mut directory = small();
    let other = "ep=x&base=coap://[2001:db8:3::2]:5683";
    assert_eq!(put(&mut directory, plain(1), other, 1), Err(DirectoryError::OtherBase));
    assert_eq!(put(&mut directory, plain(1), "ep=x&base=coap://host", 1), Err(DirectoryError::OtherBase));
    let path = put(&mut directory, plain(2), other, 1).unwrap();
    let moved = directory.renew(plain(2), &path[1..], ["base=coap://[::1]"].into_iter(), NOW);
    assert_eq!(moved, Err(DirectoryError::OtherBase));
    assert_eq!(bases(&directory), ["coap://[2001:db8:3::2]:5683"]);
}

#[test]
fn a_renewal_changes_what_it_has() {
    let mut directory = small();
    let path = put(&mut directory, plain(1), "ep=x&lt=100&et=old", 1).unwrap();
    let version = directory.version();
    let later = NOW.after(Duration::from_secs(90));
    directory.renew(plain(1), &path[1..], std::iter::empty(), later).unwrap();
    assert_eq!(directory.version(), version, "observers have nothing to learn");
    directory.expire(NOW.after(Duration::from_secs(189)));
    assert_eq!(directory.len(), 1, "the lifetime of the registration is 100 seconds still");
    directory.renew(plain(2), &path[1..], ["et=new", "lt=10"].into_iter(), later).unwrap();
    assert_eq!(bases(&directory), ["coap://[2001:db8:3::2]:61616"]);
    assert_eq!(directory.registrations().next().unwrap().attributes, [("et".to_owned(), "new".to_owned())]);
    assert!(matches!(
        directory.renew(plain(1), &path[1..], ["ep=y"].into_iter(), later),
        Err(DirectoryError::Malformed(_))
    ));
    directory.expire(NOW.after(Duration::from_secs(100)));
    assert!(directory.is_empty());
    assert_eq!(directory.renew(plain(1), &path[1..], std::iter::empty(), later), Err(DirectoryError::Unknown));
    assert_eq!(directory.bytes, 0);
}

/// RFC 9176, sections 5 and 5.3.1.
#[test]
fn a_renewal_with_a_parameter_twice_is_refused_and_its_attributes_replace_those_of_their_names() {
    let mut directory = small();
    let path = put(&mut directory, plain(1), "ep=x&lt=100&a=1&b=1&b=2", 1).unwrap();
    let mut renew = |query: &str| {
        let renewed = directory.renew(plain(1), &path[1..], query.split('&'), NOW);
        let there = directory.registrations().next().unwrap();
        let attributes: Vec<_> = there.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (renewed.map_err(|error| error.code()), there.lifetime, attributes.join("&"))
    };
    let base = "base=coap://[2001:db8:3::1]";
    for query in ["lt=60&lt=70", &format!("{base}&{base}"), "if=a&if=b", "lt=60&b=3&lt=60"] {
        let before = "a=1&b=1&b=2".to_owned();
        assert_eq!(renew(query), (Err(tegmen::coap::Code::BAD_REQUEST), 100, before), "{query}");
    }
    assert_eq!(renew("b=3"), (Ok(()), 100, "a=1&b=3".to_owned()));
    assert_eq!(renew("b=4&c=1&b=5&c=2"), (Ok(()), 100, "a=1&b=4&c=1&b=5&c=2".to_owned()));
    let many = |count: usize| (0..count).map(|number| format!("n{number}=1")).collect::<Vec<_>>().join("&");
    assert_eq!(renew(&many(12)), (Err(tegmen::coap::Code::BAD_REQUEST), 100, "a=1&b=4&c=1&b=5&c=2".to_owned()));
    assert_eq!(renew(&many(11)).0, Ok(()));
}

#[test]
fn a_base_that_was_given_stays() {
    let mut directory = small();
    let path = put(&mut directory, plain(1), "ep=x&base=coap://[2001:db8:3::1]", 1).unwrap();
    directory.renew(plain(2), &path[1..], std::iter::empty(), NOW).unwrap();
    assert_eq!(bases(&directory), ["coap://[2001:db8:3::1]"]);
}

#[test]
fn a_directory_is_bounded() {
    let mut directory = small();
    let long = [b'a'; 65];
    assert_eq!(directory.register(plain(1), ["ep=x"].into_iter(), &long, (1, NOW)), Err(DirectoryError::TooLong(64)));
    for id in 0..2 {
        put(&mut directory, plain(1), &format!("ep=node{id}"), id).unwrap();
    }
    assert_eq!(put(&mut directory, plain(1), "ep=node2", 2), Err(DirectoryError::TooMany));
    put(&mut directory, plain(1), "ep=node1", 3).unwrap();
    assert_eq!(put(&mut directory, plain(2), "ep=node3", 3), Err(DirectoryError::Full), "half is for identities");
    let links = format!("</{}>", "a".repeat(60));
    let links = links.as_bytes();
    assert_eq!(links.len(), 63);
    directory.register(named("a"), ["ep=node3"].into_iter(), links, (3, NOW)).unwrap();
    assert_eq!(
        directory.register(named("b"), ["ep=node4"].into_iter(), links, (4, NOW)),
        Err(DirectoryError::Full),
        "the bytes of all links"
    );
    // Each attribute takes many times the bytes of its text.
    let attributes = format!("</>{}", ";a".repeat(30));
    let many = directory.register(named("b"), ["ep=node4"].into_iter(), attributes.as_bytes(), (4, NOW));
    assert_eq!(many, Err(DirectoryError::TooLong(64)));
    directory.register(named("b"), ["ep=node4"].into_iter(), b"", (4, NOW)).unwrap();
    assert_eq!(put(&mut directory, named("c"), "ep=node5", 5), Err(DirectoryError::Full));
}

/// The links are like those of RFC 9176, section 5.
#[test]
fn links_up_to_the_limit_of_their_text_fit_into_the_limit_of_their_memory() {
    let bounds = DirectoryBounds::default();
    let mut directory = Directory::new(bounds);
    let link = "</sensors/temp>;rt=temperature-c;if=sensor";
    let links = vec![link; bounds.links / (link.len() + 1)].join(",");
    assert!(links.len() > bounds.links - 2 * link.len());
    directory.register(plain(1), ["ep=x"].into_iter(), links.as_bytes(), (1, NOW)).unwrap();
}

#[test]
fn parameters_that_mean_nothing_are_refused() {
    let mut directory = small();
    let long = format!("ep={}", "n".repeat(64));
    let all = [
        "",
        "ep=",
        &long,
        "ep=a\u{7}",
        "ep=a&ep=b",
        "ep=a&lt=60&lt=61",
        "ep=a&lt=60&et=x&lt=60",
        "ep=a&lt=0",
        "ep=a&lt=4294967296",
        "ep=a&lt=soon",
        "ep=a&base=coap://h/path",
        "ep=a&base=/path",
        "ep=a&base=mailto:x",
        "ep=a&href=/x",
        "ep=a&rt=core.rd-ep",
        "ep=a&d=",
        "ep=a&if=x&if=y",
        "ep=a&sz=1&et=x&sz=1",
        "ep=a&=x",
        "ep=a&et;ep=b",
        "ep=a&x,</rd/0000000000000009>;ep=lamp",
    ];
    for query in all {
        let refused = directory.register(plain(1), query.split('&').filter(|part| !part.is_empty()), b"", (1, NOW));
        assert!(matches!(refused, Err(DirectoryError::Malformed(_))), "{query}: {refused:?}");
    }
    assert!(directory.is_empty());
}
