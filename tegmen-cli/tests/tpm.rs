//! `tegmen keys tpm` as a user runs it, against a TPM in software: from the key to the certificate.

#[path = "../../tegmen-trust/tests/swtpm/mod.rs"]
mod swtpm;

use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use swtpm::Swtpm;

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

/// A client whose key is in the TPM gets what a server gives to certified clients alone.
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
