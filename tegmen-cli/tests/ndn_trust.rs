//! Tests the keys, the packets in files and the trust schemas of `tegmen ndn`.

use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// A directory that is removed when the test ends.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-ndn-trust-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }

    /// Runs a command. Returns its exit code, and its text on standard output and standard error.
    fn tegmen(&self, arguments: &str) -> (i32, String) {
        let run = Command::new(env!("CARGO_BIN_EXE_tegmen"))
            .arg("ndn")
            .args(arguments.split(' '))
            .current_dir(&self.0)
            .output()
            .unwrap();
        let text = [run.stdout, run.stderr].concat();
        (run.status.code().unwrap(), String::from_utf8_lossy(&text).into_owned())
    }

    fn must(&self, arguments: &str) -> String {
        let (code, text) = self.tegmen(arguments);
        assert_eq!(code, 0, "{arguments}: {text}");
        text
    }

    /// Runs a command. Checks that it ends with this exit code, and that its text contains `part`, the cause.
    fn refused(&self, arguments: &str, code: i32, part: &str) {
        let (found, text) = self.tegmen(arguments);
        assert!(found == code && text.contains(part), "{arguments}: {found} {text}");
    }

    /// Makes the keys of a house and of its sensor. The key of the house signs the certificate of the sensor.
    fn with_keys(name: &str) -> Self {
        let dir = Self::new(name);
        dir.must("key new k/house /house");
        dir.must("key new k/temp /house/temp --kind ed25519");
        dir.must("key certify k/house k/temp.cert --issuer-id house --output k/temp.cert");
        dir.write("value", "21.5");
        dir
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_packet_is_verified_by_the_chain_of_its_key() {
    let dir = Dir::with_keys("chain");
    dir.must("sign /house/temp/v=1 value --key k/temp --output packet");
    let text = dir.must("verify packet --anchor k/house.cert --certificate k/temp.cert");
    assert_eq!(text.trim(), "/house/temp/v=1 is verified");
    dir.refused("verify packet --anchor k/house.cert", 1, "name its file by --certificate");
    dir.must("key new k/other /house");
    dir.refused("verify packet --anchor k/other.cert --certificate k/temp.cert", 1, "is not known");
    dir.refused("verify packet", 2, "--anchor");
    dir.refused("verify value --anchor k/house.cert", 2, "no Data packet");
    dir.refused("verify packet --anchor value", 2, "no block NDN CERT");
}

#[test]
fn a_changed_packet_and_one_of_another_name_are_refused() {
    let dir = Dir::with_keys("forged");
    dir.must("sign /house/temp/v=1 value --key k/temp --output packet");
    let mut packet = std::fs::read(dir.0.join("packet")).unwrap();
    let place = packet.windows(4).position(|part| part == b"21.5").unwrap();
    packet[place] = b'3';
    dir.write("packet", packet);
    dir.refused(
        "verify packet --anchor k/house.cert --certificate k/temp.cert",
        1,
        "signature of /house/temp/v=1 is wrong",
    );
    dir.must("sign /house/door value --key k/temp --output packet");
    dir.refused("verify packet --anchor k/house.cert --certificate k/temp.cert", 1, "must not sign /house/door");
    dir.must("sign /house/temp/v=1 value --output packet");
    dir.refused("verify packet --anchor k/house.cert", 1, "names no key");
}

#[cfg(unix)]
#[test]
fn a_private_key_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = Dir::with_keys("mode");
    let file = dir.0.join("k/temp.key");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(dir.read("k/temp.key").starts_with("-----BEGIN NDN KEY-----\nName: /house/temp/KEY/"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    dir.refused("sign /house/temp/v=1 value --key k/temp", 2, "chmod 600");
    dir.must("key export k/house --secret secret");
    assert_eq!(std::fs::metadata(dir.0.join("secret")).unwrap().permissions().mode() & 0o777, 0o600);
    dir.refused("key export k/house --secret secret", 2, "exists");
}

#[test]
fn keys_are_exported_and_imported_and_never_overwritten() {
    let dir = Dir::with_keys("import");
    dir.must("key export k/temp --secret secret");
    let certificates = dir.must("key export k/temp");
    dir.write("both", dir.read("secret") + &certificates);
    dir.must("key import copy/temp both");
    assert_eq!(dir.read("copy/temp.cert"), dir.read("k/temp.cert"));
    dir.must("sign /house/temp/v=1 value --key copy/temp --output packet");
    dir.must("verify packet --anchor k/house.cert --certificate k/temp.cert");
    dir.refused("key new k/temp /house/temp", 2, "exists");
    dir.refused("key import copy/temp both", 2, "exists");
    dir.refused("key import copy/other k/temp.cert", 2, "has no private key");
    dir.refused("key import copy/temp k/house.cert", 2, "put a certificate of the key there");
    // A key without a certificate is given one.
    dir.must("key import alone/temp secret");
    let list: Value = serde_json::from_str(&dir.must("key list alone --json")).unwrap();
    assert_eq!(
        (&list["self_signed"], &list["state"], &list["kind"]),
        (&true.into(), &"valid".into(), &"ed25519".into())
    );
    dir.must("key export k/temp --packet");
}

#[test]
fn a_key_whose_certificate_is_of_another_key_signs_nothing() {
    let dir = Dir::with_keys("mixed");
    std::fs::copy(dir.0.join("k/house.cert"), dir.0.join("k/temp.cert")).unwrap();
    dir.refused("sign /house/temp/v=1 value --key k/temp", 2, "put a certificate of the key there");
}

#[test]
fn a_file_with_a_mistake_is_named() {
    let dir = Dir::with_keys("pem");
    let text = dir.read("k/house.cert");
    for (changed, part) in [
        (text.replace("-----END NDN CERT-----", ""), "-----END NDN CERT----- is missing"),
        (text.replace("=\n-----END", "?\n-----END").replacen("\n\n", "\n\n?", 1), "base64"),
        ("-----BEGIN NDN CERT-----\n\nBgA=\n-----END NDN CERT-----\n".into(), "is missing"),
        ("hello".into(), "no block NDN CERT"),
    ] {
        dir.write("bad", changed);
        dir.refused("key certify k/house bad", 2, part);
    }
}

#[test]
fn a_certificate_that_its_key_did_not_sign_is_not_certified() {
    let dir = Dir::with_keys("uncertified");
    let packet = Command::new(env!("CARGO_BIN_EXE_tegmen"))
        .args(["ndn", "key", "export", "k/house", "--packet"])
        .current_dir(&dir.0)
        .output()
        .unwrap();
    let mut packet = packet.stdout;
    *packet.last_mut().unwrap() ^= 1;
    dir.write("bad", packet);
    dir.refused("key certify k/house bad", 2, "ask its owner for another one");
}

const TEXT: &str = "#KEY: \"KEY\"/_/_/_\n#root: \"house\"/#KEY\n#sensor: \"house\"/sensor/#KEY <= #root\n\
    #value: \"house\"/sensor/_ <= #sensor\n";

#[test]
fn a_schema_is_compiled_checked_and_tested() {
    let dir = Dir::new("schema");
    dir.write("house.lvs", TEXT);
    dir.must("trust compile house.lvs house.tlv");
    for file in ["house.lvs", "house.tlv"] {
        let text = dir.must(&format!("trust check {file}"));
        assert!(text.contains("#KEY #root #sensor #value; roots of trust: #root"), "{text}");
        let pair = "--packet /house/temp/v=1 --key";
        dir.must(&format!("trust check {file} {pair} /house/temp/KEY/1/house/v=7"));
        dir.refused(&format!("trust check {file} {pair} /house/door/KEY/1/house/v=7"), 3, "must not sign");
        dir.refused(&format!("trust check {file} --packet /office"), 3, "no rule");
        let test = |key: &str, expect: &str| {
            format!("[[test]]\npacket = \"/house/temp/v=1\"\nkey = \"{key}\"\nexpect = \"{expect}\"\n")
        };
        let right = test("/house/temp/KEY/1/house/v=7", "allow") + &test("/house/KEY/1/self/v=7", "deny");
        dir.write("tests.toml", format!("schema = \"{file}\"\n{right}"));
        assert_eq!(dir.must("trust test tests.toml").trim(), "2 of 2 tests passed");
        let wrong = test("/house/door/KEY/1/house/v=7", "allow");
        dir.write("tests.toml", format!("schema = \"{file}\"\n{right}{wrong}"));
        dir.refused("trust test tests.toml", 1, "must not sign /house/temp/v=1\n2 of 3 tests passed");
    }
    dir.write("tests.toml", "schema = \"house.tlv\"\n");
    dir.refused("trust test tests.toml", 2, "no [[test]]");
    dir.write("bad.lvs", "#a: \"a\"\n#b: c <= #d\n");
    dir.refused("trust compile bad.lvs bad.tlv", 2, "line 2: the rule #d does not exist");
    dir.write("bad.lvs", "#a: \"a\" <= #a\n");
    dir.refused("trust compile bad.lvs bad.tlv", 2, "loop");
}

#[test]
fn a_schema_decides_about_packets_and_anchors() {
    let dir = Dir::with_keys("by-schema");
    dir.write("house.lvs", TEXT);
    let chain = "--anchor k/house.cert --certificate k/temp.cert --schema house.lvs";
    dir.must("sign /house/temp/v=1 value --key k/temp --output packet");
    dir.must(&format!("verify packet {chain}"));
    // Without the schema the key may sign this name.
    dir.must("sign /house/temp/v=1/seg=0 value --key k/temp --output packet");
    dir.must("verify packet --anchor k/house.cert --certificate k/temp.cert");
    dir.refused(&format!("verify packet {chain}"), 1, "must not sign /house/temp/v=1/seg=0");
    dir.refused("verify packet --anchor k/temp.cert --schema house.lvs", 2, "roots of trust");
    dir.refused("verify packet --schema house.lvs", 2, "--anchor");
}
