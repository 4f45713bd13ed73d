//! Tests `tegmen keys tpm` with a TPM in software: from the creation of a key to a certificate for it.

#[path = "works/chain.rs"]
mod chain;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/operator.rs"]
mod operator;
#[path = "../../tegmen-trust/tests/swtpm/mod.rs"]
mod swtpm;
#[allow(dead_code, reason = "each test uses its part")]
mod works;

use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use swtpm::Swtpm;
use tegmen_host::x509::signer::Signer;
use tegmen_host::x509::tpm::{Place, TpmKey};

fn tegmen(tpm: &Swtpm, arguments: &str) -> Result<Value, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    command.args(arguments.split(' ')).arg("--json").env("TEGMEN_TPM", &tpm.name).current_dir(tpm.dir());
    let run = command.output().unwrap();
    match run.status.success() {
        true => Ok(serde_json::from_slice(&run.stdout).unwrap()),
        // The software stack writes lines of its own before ours.
        false => Err(String::from_utf8_lossy(&run.stderr).lines().last().unwrap_or("").to_owned()),
    }
}

/// Checks that a client whose key is in the TPM gets a resource that the server gives only to clients with a
/// certificate.
fn speaks(tpm: &Swtpm, name: &str, key: &str) {
    if !tpm.dir().join("ca/server.pem").exists() {
        tegmen(tpm, "ca issue ca --name server --ip 127.0.0.1").unwrap();
    }
    let words = "serve --value /temp=21.5 --listen 127.0.0.1 --port 0 --cert ca/server.pem --cert-key ca/server.key \
                 --client-ca ca/ca.pem --json";
    let mut serve = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    let mut serve = serve.args(words.split_whitespace()).current_dir(tpm.dir()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(serve.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let said: Value = serde_json::from_str(&line.unwrap()).unwrap();
        said["address"].as_str().map(str::to_owned)
    });
    let uri = format!("coaps://{}/temp", address.unwrap());
    let got = tegmen(tpm, &format!("get {uri} --ca ca/ca.pem --cert ca/{name}.pem --cert-key {key}"));
    serve.kill().unwrap();
    serve.wait().unwrap();
    assert!(got.as_ref().is_ok_and(|got| got.to_string().contains("21.5")), "{got:?}");
}

#[test]
fn a_key_of_the_tpm_gets_a_certificate() {
    let Some(tpm) = Swtpm::start("tpm-cli") else { return };
    tegmen(&tpm, "ca init ca").unwrap();
    for (number, place) in
        ["--handle 0x81010001", "--file key.tpm", "--handle 0x81010002 --rsa", "--file rsa.tpm --rsa"]
            .iter()
            .enumerate()
    {
        let made = tegmen(&tpm, &format!("keys tpm create {place}")).unwrap();
        let place = place.trim_end_matches(" --rsa");
        assert_eq!(tegmen(&tpm, &format!("keys tpm show {place}")).unwrap(), made);
        let name = format!("device{number}");
        tegmen(&tpm, &format!("keys tpm csr {place} --name asked --out {name}.csr")).unwrap();
        tegmen(&tpm, &format!("ca issue ca --name {name} --csr {name}.csr")).unwrap();
        let shown = tegmen(&tpm, &format!("keys show ca/{name}.pem")).unwrap();
        assert_eq!(shown["public_key_digest"], made["public_key_digest"]);
        assert_eq!(shown["subject"], format!("CN={name}"));
        if let Ok(done) = Command::new("openssl")
            .args(["req", "-verify", "-noout", "-in"])
            .arg(format!("{name}.csr"))
            .current_dir(tpm.dir())
            .output()
        {
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
    }
    for key in ["tpm:0x81010001", "key.tpm"] {
        let name = if key == "key.tpm" { "device1" } else { "device0" };
        speaks(&tpm, name, key);
    }
    let said = tegmen(&tpm, "keys tpm create --handle 0x81010001").unwrap_err();
    assert!(said.contains("choose another handle"), "{said}");
    tegmen(&tpm, "keys tpm remove --handle 0x81010001").unwrap();
    let said = tegmen(&tpm, "keys tpm show --handle 0x81010001").unwrap_err();
    assert!(said.contains("nothing is there"), "{said}");
    let said = tegmen(&tpm, "keys tpm show --handle 7").unwrap_err();
    assert!(said.contains("0x81000000 to 0x817fffff"), "{said}");
}

#[test]
fn a_publisher_with_a_key_in_the_tpm_delivers_what_the_access_control_server_allows() {
    let Some(tpm) = Swtpm::start("tpm-chain") else { return };
    for arguments in [
        "ca init ca",
        "keys tpm create --handle 0x81010001",
        "keys tpm csr --handle 0x81010001 --name oven --out oven.csr",
        "ca issue ca --name oven --csr oven.csr",
    ] {
        tegmen(&tpm, arguments).unwrap();
    }
    let signer = || -> Arc<dyn Signer> { Arc::new(TpmKey::open(&tpm.name, &Place::Persistent(0x8101_0001)).unwrap()) };
    let (dir, name) = (tpm.dir().to_owned(), Some(tpm.name.clone()));
    chain::walk(&chain::Publisher { dir, key: "tpm:0x81010001", signer: &signer, tpm: name });
}

/// Starts an access control server whose sealing key is sealed to a TPM. Returns the reason if the server does not
/// start.
fn starts(dir: &Path, tpm: &str) -> Result<(), String> {
    let options: Vec<&str> = SEALED.split_whitespace().collect();
    let mut check = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    let check = check.arg("serve").args(&options).arg("--check-config").env("TEGMEN_TPM", tpm).current_dir(dir);
    let checked = check.output().unwrap();
    if !checked.status.success() {
        assert_eq!(checked.status.code(), Some(2));
        return Err(String::from_utf8_lossy(&checked.stderr).into_owned());
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    works::Server::of(command.arg("serve").args(&options).env("TEGMEN_TPM", tpm).current_dir(dir), 1).end();
    Ok(())
}

const SEALED: &str = "--listen 127.0.0.1 --port 0 --store access.db --sealing-key tpm:sealing.tpm --audit audit.log \
                      --audit-key audit.pem";

#[test]
fn a_database_is_sealed_to_the_tpm_that_drew_its_key() {
    let Some(mut tpm) = Swtpm::start("tpm-database") else { return };
    let other = Swtpm::start("tpm-database-other").unwrap();
    let scene = works::Scene::new("tpm-database-scene");
    let dir = scene.0.as_path();
    operator::secret(dir, "audit.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    starts(dir, &tpm.name).unwrap();
    tpm.restart();
    starts(dir, &tpm.name).expect("the same TPM opens it after a restart");
    let said = starts(dir, &other.name).unwrap_err();
    assert!(said.contains("--sealing-key: tpm:sealing.tpm") && said.contains("Use the TPM that sealed it"), "{said}");
    let said = starts(dir, "swtpm:host=127.0.0.1,port=1").unwrap_err();
    assert!(said.contains("is there a TPM 2.0"), "{said}");
    // No other key takes the place of one that is lost.
    std::fs::rename(dir.join("sealing.tpm"), dir.join("away")).unwrap();
    let said = starts(dir, &tpm.name).unwrap_err();
    assert!(said.contains("there is no such file") && !dir.join("sealing.tpm").exists(), "{said}");
    std::fs::rename(dir.join("away"), dir.join("sealing.tpm")).unwrap();
    starts(dir, &tpm.name).unwrap();

    // A key that the operator keeps, sealed to the TPMs of two machines.
    let keep = works::Scene::new("tpm-database-kept");
    let dir = keep.0.as_path();
    operator::furnish(dir);
    for tpm in [&tpm.name, &other.name] {
        let _ = std::fs::remove_file(dir.join("sealing.tpm"));
        let mut seal = Command::new(env!("CARGO_BIN_EXE_tegmen"));
        let seal = seal.args("keys tpm seal --key sealing.key --file sealing.tpm".split(' ')).env("TEGMEN_TPM", tpm);
        assert!(seal.current_dir(dir).stdout(Stdio::null()).status().unwrap().success());
        starts(dir, tpm).unwrap();
    }
}
