use super::super::{DirectoryBounds, Registrant};
use super::*;
use tegmen_base::time::Instant;

/// Returns the directory of RFC 9176, section 6.3, with one more endpoint.
fn directory() -> Directory {
    let mut directory = Directory::new(DirectoryBounds::default());
    let links: [&[u8]; 3] = [
        b"</sensors>;ct=40;title=\"Sensor Index\",</sensors/temp>;rt=\"temperature-c\";if=\"sensor\",\
          </sensors/light>;rt=\"light-lux\";if=\"sensor\",\
          </t>;anchor=\"/sensors/temp\";rel=\"alternate\",\
          <http://www.example.com/sensors/t123>;anchor=\"coap://sensor1.example.com/sensors/temp\";rel=\"describedby\"",
        b"</light>;rt=\"tag:example.com:light other\";obs",
        b"",
    ];
    let queries =
        ["ep=sensor1&base=coap://sensor1.example.com", "ep=node2&d=floor-3&et=oic.d.sensor&if=a b", "ep=node3"];
    for (number, (query, links)) in queries.into_iter().zip(links).enumerate() {
        let address = format!("[2001:db8:3::{number}]:61616").parse().unwrap();
        let who = Registrant { name: Some("tool"), address, is_secure: false, is_tool: true };
        directory.register(who, query.split('&'), links, (number as u64, Instant::AT_ONCE)).unwrap();
    }
    directory
}

fn resources(query: &str) -> String {
    directory().resources(query.split('&').filter(|part| !part.is_empty())).unwrap()
}

fn endpoints(query: &str) -> String {
    directory().endpoints(query.split('&').filter(|part| !part.is_empty())).unwrap()
}

#[test]
fn links_are_returned_with_uris_alone() {
    assert_eq!(
        resources("ep=sensor1"),
        "<coap://sensor1.example.com/sensors>;ct=40;title=\"Sensor Index\",\
         <coap://sensor1.example.com/sensors/temp>;rt=\"temperature-c\";if=\"sensor\",\
         <coap://sensor1.example.com/sensors/light>;rt=\"light-lux\";if=\"sensor\",\
         <coap://sensor1.example.com/t>;anchor=\"coap://sensor1.example.com/sensors/temp\";rel=\"alternate\",\
         <http://www.example.com/sensors/t123>;anchor=\"coap://sensor1.example.com/sensors/temp\";rel=\"describedby\""
    );
    assert_eq!(resources("").split(',').count(), 6);
}

#[test]
fn each_criterion_must_fit_the_same_link() {
    let light = "<coap://sensor1.example.com/sensors/light>;rt=\"light-lux\";if=\"sensor\"";
    for query in [
        "rt=light-lux",
        "rt=light-*",
        "if=sensor&rt=light-lux",
        "href=/sensors/light",
        "href=coap://sensor1.example.com/sensors/l*",
        "base=coap://sensor1.example.com&rt=light-lux",
    ] {
        assert_eq!(resources(query), light, "{query}");
    }
    assert_eq!(resources("rt=light-lux&title=Sensor Index"), "");
    assert_eq!(resources("rt=light"), "", "no star, no prefix");
    assert_eq!(resources("rt=other"), resources("d=floor-3"), "one of several types");
    assert_eq!(
        resources("anchor=/sensors/temp"),
        resources("anchor=coap://sensor1.example.com/sensors/temp").split(',').next().unwrap()
    );
    assert_eq!(resources("href=/rd/0000000000000001"), resources("ep=node2"));
    assert_eq!(resources("obs="), resources("ep=node2"));
}

#[test]
fn a_link_without_a_relation_has_the_relation_hosts() {
    for query in ["rel=hosts", "rel=ho*"] {
        assert_eq!(resources(query).split(",<").count(), 4, "{query}");
        assert!(!resources(query).contains("rel="), "{query}");
    }
    assert!(resources("rel=alternate").starts_with("<coap://sensor1.example.com/t>"));
    assert_eq!(resources("rel=hosts&title=Sensor Index"), resources("title=Sensor Index"));
    assert_eq!(endpoints("rel=hosts").split(",<").count(), 2, "the endpoints with such a link");
}

#[test]
fn endpoints_are_returned_with_their_attributes_and_without_their_lifetime() {
    let second = "</rd/0000000000000001>;base=\"coap://[2001:db8:3::1]:61616\";ep=\"node2\";d=\"floor-3\";\
                  et=\"oic.d.sensor\";if=\"a b\";rt=\"core.rd-ep\"";
    let whole = ["ep=node2", "et=oic.d.sensor", "d=floor*", "href=/rd/0000000000000001"];
    let one_of_several = ["rt=tag:example.com:light", "if=a", "if=b*"];
    for query in whole.into_iter().chain(one_of_several) {
        assert_eq!(endpoints(query), second, "{query}");
    }
    assert_eq!(endpoints("rt=core.rd-ep").split(',').count(), 3);
    assert_eq!(endpoints("ep=nobody"), "");
    assert_eq!(endpoints("if=a b"), "", "the values are compared one by one");
}

/// Each response is one list of links, so a name with `,` or `;` would add an entry for another endpoint.
#[test]
fn an_attribute_adds_no_entry_to_a_lookup() {
    let mut directory = directory();
    let before = directory.endpoints(std::iter::empty()).unwrap();
    let who = Registrant { name: None, address: "[::1]:5683".parse().unwrap(), is_secure: false, is_tool: false };
    for forged in ["x,</rd/9>;ep=sensor1", "x;base=coap://[::2]", "x\"=y", "a b=c", "x>=y", "=y"] {
        let query = ["ep=mine", forged].into_iter();
        let refused = directory.register(who, query, b"", (9, Instant::AT_ONCE));
        assert!(matches!(refused, Err(DirectoryError::Malformed(_))), "{forged}: {refused:?}");
    }
    assert_eq!(directory.endpoints(std::iter::empty()).unwrap(), before);
    let path = directory.register(who, ["ep=mine"].into_iter(), b"", (9, Instant::AT_ONCE)).unwrap();
    let renewed = directory.renew(who, &path[1..], ["x,</rd/9>;ep=sensor1"].into_iter(), Instant::AT_ONCE);
    assert!(matches!(renewed, Err(DirectoryError::Malformed(_))), "{renewed:?}");
}

#[test]
fn pages_follow_one_another() {
    let pages: Vec<String> = (0..3).map(|page| resources(&format!("page={page}&count=2"))).collect();
    assert_eq!(pages.join(","), resources(""));
    assert_eq!(resources("page=3&count=2"), "");
    assert_eq!(resources("count=1"), resources("").split_once(',').unwrap().0);
    assert_eq!(resources("page=18446744073709551615&count=18446744073709551615"), "");
}

#[test]
fn a_query_that_means_nothing_is_refused() {
    for query in ["page=1", "page=x&count=1", "count=-1", "rt"] {
        assert!(directory().resources(query.split('&')).is_err(), "{query}");
        assert!(directory().endpoints(query.split('&')).is_err(), "{query}");
    }
}

/// A URI has no zone (RFC 9176, sections 5, 6.1 and 6.4).
#[test]
fn no_base_and_no_link_has_a_zone() {
    let mut directory = Directory::new(DirectoryBounds::default());
    let address = std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 61616, 0, 7).into();
    for is_tool in [false, true] {
        let who = Registrant { name: Some("node"), address, is_secure: false, is_tool };
        let mut put = |query: &str| directory.register(who, query.split('&'), b"</t>", (1, Instant::AT_ONCE));
        for zone in ["%257", "%7", "%25eth0", "%eth0"] {
            let refused = put(&format!("ep=a&base=coap://[fe80::1{zone}]"));
            assert!(matches!(refused, Err(DirectoryError::Malformed(_))), "{refused:?}");
        }
        put("ep=node").unwrap();
    }
    assert_eq!(directory.resources(std::iter::empty()).unwrap(), "<coap://[fe80::1]:61616/t>");
    assert!(directory.endpoints(std::iter::empty()).unwrap().contains("base=\"coap://[fe80::1]:61616\""));
}
