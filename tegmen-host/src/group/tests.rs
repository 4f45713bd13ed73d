use super::*;

#[test]
fn groups_are_read_and_what_is_wrong_is_said() {
    assert_eq!("224.0.1.187".parse::<Group>().unwrap().at(5683), "224.0.1.187:5683".parse().unwrap());
    let group: Group = "224.0.1.187%127.0.0.1".parse().unwrap();
    assert_eq!(group.interface_address(), Some(Ipv4Addr::LOCALHOST));
    let group: Group = "ff02::fd%lo".parse().unwrap();
    assert!(group.index > 0);
    assert_eq!("ff02::fd%1".parse::<Group>().unwrap().index, 1);
    for (text, part) in [
        ("10.0.0.1", "not a multicast"),
        ("ff02::fd", "needs its interface"),
        ("224.0.1.187%nowhere", "no such interface"),
        ("all", "not an address"),
    ] {
        let error = text.parse::<Group>().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(Group::is_named_by("ff02::fd%lo") && !Group::is_named_by("localhost"));
}
