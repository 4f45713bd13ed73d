use super::*;

/// The target of a link is percent-encoded (RFC 6690, section 2), and the options of a request are not (RFC 7252,
/// section 6.4).
#[test]
fn the_path_of_a_directory_is_decoded() {
    let path = |links: &str| registrations_in(links.as_bytes()).map(|segments| segments.join("|"));
    assert_eq!(path("</rd>;rt=core.rd"), Some("rd".to_owned()));
    assert_eq!(path("</x>;rt=value,</my%20rd/%C3%A9%2Fa>;rt=\"other core.rd\""), Some("my rd|é/a".to_owned()));
    assert_eq!(path("</rd?x=1>;rt=core.rd"), Some("rd".to_owned()));
    assert_eq!(path("<coap://other/rd>;rt=core.rd"), None);
    assert_eq!(path("</rd>;rt=core.rd-lookup-res"), None);
    assert_eq!(path("</%FF>;rt=core.rd"), None);
}
