use super::*;

#[test]
fn the_longest_pattern_that_matches_counts_and_without_one_nothing_is_sent() {
    let dir = std::env::temp_dir().join(format!("tegmen-map-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("map.json");
    let text = r#"{ "coap://host/*": { "oscore": { "basedir": "a" } }, "coap://host/deep/*": ":b",
            ":b": { "oscore": { "basedir": "b" } }, "coap://host/open": { "unprotected": true },
            "coap://[::1]:7777*": { "oscore": { "basedir": "c" } }, "coap://odd/*": {} }"#;
    std::fs::write(&file, text).unwrap();
    let ask = |uri: &str| find(&file, &Uri::parse(uri).unwrap()).map_err(|failure| failure.message);
    assert_eq!(ask("coap://host/x"), Ok(Credential::Oscore(dir.join("a"))));
    assert_eq!(ask("coap://host:5683/deep/x"), Ok(Credential::Oscore(dir.join("b"))));
    assert_eq!(ask("coap://host/open"), Ok(Credential::Unprotected));
    assert_eq!(ask("coap://[::1]:7777/x"), Ok(Credential::Oscore(dir.join("c"))));
    assert!(ask("coap://host:7/x").unwrap_err().contains("no pattern matches coap://host:7/x, and nothing was sent"));
    assert!(ask("coap://odd/x").unwrap_err().contains("basedir"));
    std::fs::remove_dir_all(&dir).unwrap();
}
