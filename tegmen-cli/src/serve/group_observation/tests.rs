//! Tests of the options for resources whose observers get one notification together.

use super::*;

#[test]
fn a_group_observation_is_the_uri_of_the_group_with_the_path_of_the_resource() {
    let clear = group_observation("coap://239.255.79.2%127.0.0.1:61616/a/temp").unwrap();
    assert_eq!((clear.path.as_str(), clear.port, &clear.oscore), ("a/temp", 61_616, &None));
    assert_eq!(clear.group, "239.255.79.2%127.0.0.1".parse().unwrap());
    let protected = group_observation("lights=coap://[ff05::79:1]/temp").unwrap();
    assert_eq!((protected.oscore.as_deref(), protected.port), (Some("lights"), 5683));
    for wrong in [
        "coap://127.0.0.1/temp",
        "coaps://239.255.79.2/temp",
        "coap://239.255.79.2",
        "coap://239.255.79.2/temp?unit=F",
        "=coap://239.255.79.2/temp",
        "/temp",
        "",
    ] {
        assert!(group_observation(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn mistakes_name_what_is_missing() {
    let [clear, lights] = ["coap://239.255.79.2/temp", "lights=coap://239.255.79.2/temp"].map(group_observation);
    let both = [clear.unwrap(), lights.unwrap()];
    assert!(mistakes(&both, true, true).is_empty());
    let texts = |plain, oscore| {
        let all = mistakes(&both, plain, oscore);
        all.iter().map(|mistake| mistake.why.clone()).collect::<Vec<_>>()
    };
    assert!(texts(false, true)[0].contains("--plain"));
    assert!(texts(true, false)[0].contains("--oscore"));
    let twice = [both[0].clone(), both[0].clone()];
    assert!(mistakes(&twice, true, true)[0].why.contains("two groups"));
}
