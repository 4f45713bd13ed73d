//! Tests `tegmen ca`. The verifier of the library and OpenSSL verify the issued certificates.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use tegmen_host::x509::{Files, Purpose, Refusal, Settings, Verifier};

/// A directory that is removed when the test ends.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-ca-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tegmen(dir: &Path, arguments: &str) -> Result<Vec<Value>, String> {
    tegmen_with(dir, &arguments.split(' ').collect::<Vec<_>>())
}

fn tegmen_with(dir: &Path, arguments: &[&str]) -> Result<Vec<Value>, String> {
    let run = Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments).arg("--json").current_dir(dir).output();
    let run = run.unwrap();
    let lines = |bytes: &[u8]| -> Vec<Value> {
        String::from_utf8_lossy(bytes).lines().map(|line| serde_json::from_str(line).unwrap_or(Value::Null)).collect()
    };
    match run.status.success() {
        true => Ok(lines(&run.stdout)),
        false => Err(lines(&run.stderr).first().and_then(|line| line["error"].as_str()).unwrap_or("").to_owned()),
    }
}

/// Runs OpenSSL. Returns true if its exit code is 0; `None` if OpenSSL is not installed.
fn openssl(dir: &Path, arguments: &str) -> Option<bool> {
    match Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output() {
        Ok(done) => {
            println!("openssl {arguments}: {}", String::from_utf8_lossy(&done.stderr));
            Some(done.status.success())
        }
        Err(_) => {
            println!("skipped: openssl is missing; type: sudo apt-get install openssl");
            None
        }
    }
}

fn verify(dir: &Path, certificate: &str, purpose: Purpose, name: Option<&str>) -> Result<String, Refusal> {
    let pem = std::fs::read(dir.join(certificate)).unwrap();
    let der = <rustls_pki_types::CertificateDer<'_> as rustls_pki_types::pem::PemObject>::from_pem_slice(&pem).unwrap();
    let files = Files { anchors: vec![dir.join("ca/ca.pem")], crls: vec![dir.join("ca/crl.pem")], ..Files::default() };
    let verifier = Verifier::from_files(files, Settings::default()).unwrap();
    let list = [&(der.len() as u32).to_be_bytes()[1..], &der].concat();
    verifier.verify(&list, purpose, name, SystemTime::now()).map(|verified| verified.name)
}

#[test]
fn what_a_ca_issues_is_believed_until_it_is_revoked() {
    for kind in ["--ec", "--rsa"] {
        let Dir(dir) = &Dir::new(kind);
        let made = tegmen(dir, &format!("ca init ca {kind}")).unwrap();
        assert!(made[0]["subject"].as_str().unwrap().starts_with("CN=Tegmen CA "));
        tegmen(dir, "ca issue ca --name gateway --dns gateway.example --dns *.gw.example --ip 192.0.2.7 --ip ::1")
            .unwrap();
        let device = tegmen(dir, "ca issue ca --name device1 --days 90").unwrap();
        tegmen(dir, "ca issue ca --name server --server --dns server.example --rsa --out ca/servers").unwrap();
        for name in ["gateway.example", "a.gw.example", "192.0.2.7", "::1"] {
            assert_eq!(verify(dir, "ca/gateway.pem", Purpose::Server, Some(name)), Ok("CN=gateway".into()));
        }
        assert_eq!(verify(dir, "ca/gateway.pem", Purpose::Client, None), Ok("CN=gateway".into()));
        assert_eq!(verify(dir, "ca/device1.pem", Purpose::Client, None), Ok("CN=device1".into()));
        assert!(matches!(verify(dir, "ca/device1.pem", Purpose::Server, None), Err(Refusal::WrongUsage(_))));
        assert!(matches!(verify(dir, "ca/servers/server.pem", Purpose::Client, None), Err(Refusal::WrongUsage(_))));
        let check = "verify -x509_strict -crl_check -CAfile ca/ca.pem -CRLfile ca/crl.pem";
        for purpose_and_file in [
            "sslclient ca/gateway.pem",
            "sslserver ca/gateway.pem",
            "sslclient ca/device1.pem",
            "sslserver ca/servers/server.pem",
        ] {
            assert_ne!(
                openssl(dir, &format!("{check} -purpose {purpose_and_file}")),
                Some(false),
                "{purpose_and_file}"
            );
        }

        let serial = device[0]["serial"].as_str().unwrap();
        let colons: Vec<_> =
            serial.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair).to_uppercase()).collect();
        tegmen(dir, &format!("ca revoke ca {}", colons.join(":"))).unwrap();
        tegmen(dir, "ca revoke ca ca/gateway.pem --crl-days 2").unwrap();
        assert_eq!(verify(dir, "ca/device1.pem", Purpose::Client, None), Err(Refusal::Revoked));
        assert_eq!(verify(dir, "ca/gateway.pem", Purpose::Client, None), Err(Refusal::Revoked));
        assert!(verify(dir, "ca/servers/server.pem", Purpose::Server, None).is_ok());
        assert_ne!(openssl(dir, &format!("{check} ca/device1.pem")), Some(true));
        assert_ne!(openssl(dir, &format!("{check} ca/servers/server.pem")), Some(false));
        let again = tegmen(dir, &format!("ca revoke ca {serial}")).unwrap_err();
        assert!(again.contains("already revoked"), "{again}");
        let states: Vec<_> = tegmen(dir, "ca list ca").unwrap().iter().map(|line| line["state"].clone()).collect();
        assert_eq!(states, ["revoked", "revoked", "valid"]);
        // A later list has them still, and another date.
        let due = tegmen(dir, "ca crl ca --crl-days 3").unwrap()[0]["crl_next_update"].as_u64().unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert!(Duration::from_secs(due) > now + Duration::from_secs(2 * 86_400));
        assert_eq!(verify(dir, "ca/device1.pem", Purpose::Client, None), Err(Refusal::Revoked));
    }
}

#[test]
fn keys_and_requests_that_exist_are_certified_and_private_keys_are_private() {
    let Dir(dir) = &Dir::new("existing");
    tegmen(dir, "ca init ca --name Works").unwrap();
    tegmen(dir, "ca issue ca --name one").unwrap();
    let two = tegmen(dir, "ca issue ca --name two --key ca/one.key").unwrap();
    let shown = |file: &str| tegmen(dir, &format!("keys show {file}")).unwrap()[0]["public_key_digest"].clone();
    assert_eq!(shown("ca/two.pem"), shown("ca/one.key"));
    assert_eq!(two[0]["key"], "ca/one.key");
    assert!(!dir.join("ca/two.key").exists());
    #[cfg(unix)]
    for file in ["ca/ca.key", "ca/one.key", "ca/index.json"] {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(dir.join(file)).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
    }
    for (number, key) in ["ec -pkeyopt ec_paramgen_curve:P-256", "rsa:2048"].iter().enumerate() {
        let made = openssl(
            dir,
            &format!("req -new -newkey {key} -nodes -keyout {number}.key -out {number}.csr -subj /CN=asked"),
        );
        if made != Some(true) {
            assert_eq!(made, None);
            continue;
        }
        tegmen(dir, &format!("ca issue ca --name from{number} --csr {number}.csr")).unwrap();
        assert_eq!(verify(dir, &format!("ca/from{number}.pem"), Purpose::Client, None), Ok(format!("CN=from{number}")));
        assert_eq!(shown(&format!("ca/from{number}.pem")), shown(&format!("{number}.key")));
        // A request that was changed on its way: another key in it would be certified.
        let pem = std::fs::read(dir.join(format!("{number}.csr"))).unwrap();
        let (_, mut der) =
            <(rustls_pki_types::pem::SectionKind, Vec<u8>) as rustls_pki_types::pem::PemObject>::from_pem_slice(&pem)
                .unwrap();
        let at = der.len() / 3;
        der[at] ^= 1;
        std::fs::write(dir.join("changed.csr"), &der).unwrap();
        assert!(tegmen(dir, "ca issue ca --name changed --csr changed.csr").is_err());
    }
}

#[test]
fn a_second_key_of_a_subject_is_reported() {
    let dir = Dir::new("second");
    let issue = |more: &str| tegmen(&dir.0, &format!("ca issue ca --name lamp{more}")).unwrap().remove(0);
    tegmen(&dir.0, "ca init ca").unwrap();
    let first = issue("");
    assert_eq!(first["other_keys"], serde_json::json!([]));
    let second = issue(" --out elsewhere");
    assert_eq!(second["other_keys"], serde_json::json!([first["serial"]]));
    let renewed = issue(" --key ca/lamp.key --out renewed");
    assert_eq!(renewed["other_keys"], serde_json::json!([second["serial"]]), "the first one has the same key");
    tegmen(&dir.0, &format!("ca revoke ca {}", second["serial"].as_str().unwrap())).unwrap();
    let renewed = issue(" --key ca/lamp.key --out again");
    assert_eq!(renewed["other_keys"], serde_json::json!([]));
}

#[test]
fn mistakes_are_answered_with_cause_and_next_step() {
    let Dir(dir) = &Dir::new("mistakes");
    tegmen(dir, "ca init ca --name Works --days 100").unwrap();
    tegmen(dir, "ca issue ca --name one --days 50").unwrap();
    for (arguments, expected) in [
        ("ca init ca", "choose another directory"),
        ("ca issue none --name x", "make a CA with `tegmen ca init none`"),
        ("ca issue ca --name one", "one.pem exists: move it away"),
        ("ca issue ca --name x --server", "give --dns NAME or --ip ADDRESS"),
        ("ca issue ca --name a/b", "without /"),
        ("ca issue ca --name Works --days 50", "the CA itself has this name"),
        ("ca issue ca --name x --days 200", "beyond the CA's own end"),
        ("ca issue ca --name x --days 50 --dns gäteway", "--dns"),
        ("ca issue ca --name x --key none.key", "give a private key in PEM"),
        ("ca issue ca --name x --csr ca/one.pem", "no certificate request in it"),
        ("ca revoke ca 0123", "`tegmen ca list`"),
        ("ca revoke ca xyz", "neither a file nor a serial number"),
        ("keys show ca/index.json", "give one in PEM or DER"),
    ] {
        let said = tegmen(dir, arguments).unwrap_err();
        assert!(said.contains(expected), "{arguments}: {said}");
    }
    assert_eq!(tegmen(dir, "ca list ca").unwrap().len(), 1, "nothing of it was issued");
    std::fs::write(dir.join("ca/ca.pem"), std::fs::read(dir.join("ca/one.pem")).unwrap()).unwrap();
    assert!(tegmen(dir, "ca list ca").unwrap_err().contains("ca.pem is not of ca.key"));
}

#[test]
fn a_dns_name_has_the_syntax_of_a_host_name() {
    let Dir(dir) = &Dir::new("dns");
    tegmen(dir, "ca init ca").unwrap();
    let issue =
        |name: &str, dns: &str| tegmen_with(dir, &["ca", "issue", "ca", "--name", name, &format!("--dns={dns}")]);
    let (label, long_label) = ("a".repeat(63), "a".repeat(64));
    let longest = [&label[..], &label, &label, &label[..61]].join(".");
    let (too_long, too_long_wildcard) = (format!("{longest}a"), format!("*.{longest}"));
    for wrong in [
        "",
        " ",
        "a b",
        "a_b",
        "a@b",
        ".",
        "a..b",
        ".a",
        "a.",
        "-a",
        "a-",
        "a.-b",
        "a-.b",
        "*",
        "*.",
        "a.*",
        "*a.b",
        "*.*.a",
        "192.0.2.7",
        "gäteway",
        &long_label,
        &too_long,
        &too_long_wildcard,
    ] {
        let said = issue("wrong", wrong).expect_err(wrong);
        assert!(said.starts_with("--dns: ") && said.contains("--ip"), "{wrong}: {said}");
    }
    assert_eq!(tegmen(dir, "ca list ca").unwrap().len(), 0);
    let right = ["a1.b-c.example", "7.example", "a--b", "xn--gteway-5wa.example", "*.gw.example", &label, &longest];
    for (number, right) in right.into_iter().enumerate() {
        assert_eq!(issue(&format!("right{number}"), right).unwrap()[0]["names"][0], right);
    }
}

#[test]
fn a_common_name_has_at_most_64_bytes() {
    let Dir(dir) = &Dir::new("common");
    let (longest, too_long) = ("n".repeat(64), "n".repeat(65));
    assert!(tegmen(dir, &format!("ca init ca --name {too_long}")).unwrap_err().contains("1 to 64 bytes"));
    tegmen(dir, "ca init ca").unwrap();
    assert!(tegmen(dir, &format!("ca issue ca --name {too_long}")).unwrap_err().contains("1 to 64 bytes"));
    tegmen(dir, &format!("ca issue ca --name {longest}")).unwrap();
    tegmen(dir, &format!("ca init other --name {longest}")).unwrap();
}

#[test]
fn what_ends_soon_is_marked() {
    let Dir(dir) = &Dir::new("soon");
    tegmen(dir, "ca init ca").unwrap();
    for (name, days) in [("soon", 20), ("later", 90), ("revoked", 20)] {
        tegmen(dir, &format!("ca issue ca --name {name} --days {days}")).unwrap();
    }
    tegmen(dir, "ca revoke ca ca/revoked.pem").unwrap();
    let marked: Vec<_> = tegmen(dir, "ca list ca").unwrap().iter().map(|line| line["ends_soon"].clone()).collect();
    assert_eq!(marked, [true, false, false]);
}

#[test]
fn two_who_issue_at_once_lose_nothing() {
    let Dir(dir) = &Dir::new("at-once");
    tegmen(dir, "ca init ca").unwrap();
    let names: Vec<_> = (0..8).map(|number| format!("device{number}")).collect();
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(move || tegmen(dir, &format!("ca issue ca --name {name}")).unwrap());
        }
    });
    let listed = tegmen(dir, "ca list ca").unwrap();
    let mut subjects: Vec<_> =
        listed.iter().map(|line| line["subject"].as_str().unwrap()["CN=".len()..].to_owned()).collect();
    subjects.sort();
    assert_eq!(subjects, names);
}
