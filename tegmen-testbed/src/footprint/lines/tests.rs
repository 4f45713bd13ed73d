use super::*;

#[test]
fn the_innermost_line_outside_of_core_is_to_blame() {
    let lines = "0x000003c2
/usr/src/rustc/library/core/src/slice/index.rs:10
/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/aes-0.9.1/src/soft.rs:12 (discriminator 2)
/home/me/tegmen/src/crypto/rustcrypto.rs:7
0x000003c8
/usr/src/rustc/library/core/src/fmt/mod.rs:7
0x00000400
/home/me/project/firmware/src/bin/coap.rs:30
";
    let expected =
        [("aes-0.9.1", "src/soft.rs:12"), ("core", "src/fmt/mod.rs:7"), ("tegmen-firmware", "src/bin/coap.rs:30")];
    assert_eq!(sources(lines), expected.map(|(krate, at)| (krate.to_owned(), at.to_owned())));
}
