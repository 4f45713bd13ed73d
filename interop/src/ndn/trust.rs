//! Checks keys, certificates and trust schemas that one project makes, and that another project uses.

use super::forwarding::{forwarder, ours, python};
use super::schemas::{Drawn, PAIRS, SCHEMAS};
use crate::cell::{Check, Role, Scene, holds};
use crate::peers::Built;
use crate::process::Process;
use serde_json::Value;
use std::path::PathBuf;
use tegmen_host::hex::to_hex;
use tegmen_ndn::Name;
use tegmen_ndn_host::client::name_bytes;
use tegmen_ndn_host::schema::{Schema, SchemaError, compile};

type Row = (Role, &'static str, fn(&Scene, &Built) -> Check);

/// The scenarios of programs that use python-ndn.
pub(super) const PYTHON: &[Row] = &[
    (Role::Server, "NDN: its chain of certificates, verified by our consumer", python_chain),
    (Role::Client, "NDN: our chain of certificates, verified by its LVS validator", python_validates),
];

/// The scenarios of ndnd's program.
pub(super) const NDND: &[Row] = &[(Role::Reader, "NDN: keys and certificates in files of each other", ndnd_files)];

/// The scenarios of a program that uses the library of ndnd.
pub(super) const LIBRARY: &[Row] =
    &[(Role::Reader, "NDN: certificates verify signatures of each other", ndnd_verifies)];

/// Returns the name of the scenario with random schemas.
pub(super) fn scenario() -> String {
    format!("NDN: {SCHEMAS} trust schemas decide equally about {} pairs of names", SCHEMAS * PAIRS)
}

/// Runs `tegmen ndn` until it ends. Returns true if it succeeded, and the text of both outputs.
fn run(scene: &Scene, arguments: &[&str]) -> Result<(bool, String), String> {
    let mut process = scene.start_command(scene.tegmen_command(&[&["ndn"], arguments].concat()))?;
    let is_success = process.await_end()?.success();
    Ok((is_success, process.out.text() + &process.err.text()))
}

/// Runs `tegmen ndn` as [`run`] does, and fails if the command fails.
fn must(scene: &Scene, arguments: &[&str]) -> Result<String, String> {
    let (is_success, text) = run(scene, arguments)?;
    if is_success { Ok(text) } else { Err(format!("tegmen ndn {}: {text}", arguments.join(" "))) }
}

/// Returns the path of the file `name` in the directory of the scenario.
fn path(scene: &Scene, name: &str) -> String {
    scene.directory().join(name).display().to_string()
}

fn decisions_of(packets: &[(String, String)], schema: &Schema) -> Result<String, String> {
    let bytes = |text: &String| name_bytes(text).map_err(|error| format!("{text}: {error}"));
    packets
        .iter()
        .map(|(packet, key)| {
            let is_allowed = schema.allows(&Name::of_checked(&bytes(packet)?), &Name::of_checked(&bytes(key)?));
            Ok(if is_allowed { '1' } else { '0' })
        })
        .collect()
}

/// Makes random schemas and pairs of names, and compares Tegmen's decisions with those of a peer. The peer reads the
/// schemas and the pairs from a file. A peer with a compiler also prints its model (the compiled schema), which must be
/// equal to Tegmen's model. Other peers read Tegmen's model.
pub(super) fn decide_equally(scene: &Scene, built: &Built, with_functions: bool) -> Check {
    let (mut lines, mut wanted, mut allowed, mut seeds) = (String::new(), Vec::new(), 0, 0..);
    let mut decided = 0;
    while decided < SCHEMAS {
        let drawn = Drawn::new(seeds.next().unwrap_or_default(), with_functions);
        let model = compile(&drawn.text).map_err(|error| format!("{}: {error}", drawn.text))?;
        let decisions = match Schema::parse(&model) {
            Ok(schema) => {
                decided += 1;
                decisions_of(&drawn.pairs, &schema)?
            }
            // ndnd has no test for loops.
            Err(SchemaError::Loop) if !with_functions => continue,
            Err(SchemaError::Loop) => "loop".to_owned(),
            Err(error) => return Err(format!("{}: {error}", drawn.text).into()),
        };
        allowed += decisions.matches('1').count();
        let line = serde_json::json!({ "text": drawn.text, "model": to_hex(&model), "pairs": drawn.pairs });
        lines += &format!("{line}\n");
        wanted.push((drawn, format!("{} {decisions}", to_hex(&model))));
    }
    let all = SCHEMAS * PAIRS;
    // Pairs of which nearly all are refused would show nothing.
    if !(all / 10..all * 9 / 10).contains(&allowed) {
        return Err(format!("{allowed} of {all} pairs are allowed").into());
    }
    let file = scene.file("schemas", lines)?;
    let mut command = built.command()?;
    command.arg("schemas").arg(file);
    let mut peer: Process = scene.start_command(command)?;
    peer.await_end()?;
    let text = peer.out.text();
    let found: Vec<&str> = text.lines().collect();
    if found.len() != wanted.len() {
        return Err(
            format!("{} of {} schemas are decided: {}", found.len(), wanted.len(), peer.err.text().trim()).into()
        );
    }
    for (theirs, (drawn, ours)) in found.iter().zip(&wanted) {
        if theirs != ours {
            return Err(format!("they have {theirs}, we have {ours} for {:?} of\n{}", drawn.pairs, drawn.text).into());
        }
    }
    Ok(())
}

/// Creates the key pairs `house` and `temp` with Tegmen. `house` signs the certificate of `temp`.
fn our_keys(scene: &Scene, kind: &str) -> Result<(String, String), String> {
    let (house, temp) = (path(scene, "house"), path(scene, "temp"));
    must(scene, &["key", "new", &house, "/house"])?;
    must(scene, &["key", "new", &temp, "/house/temp", "--kind", kind])?;
    let certificate = format!("{temp}.cert");
    must(scene, &["key", "certify", &house, &certificate, "--output", &certificate])?;
    Ok((house, temp))
}

/// Runs `ndnd sec` with this input. Returns its output.
fn sec(scene: &Scene, program: &Built, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, String> {
    let mut command = program.command()?;
    command.arg("sec").args(arguments);
    let mut process = scene.start_command(command)?;
    process.write(input)?;
    process.close_input();
    let status = process.await_end()?;
    if status.success() { Ok(process.out.bytes()) } else { Err(format!("ndnd sec: {}", process.err.text())) }
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{path}: {error}"))
}

/// Checks that ndnd and Tegmen sign the same certificate with the same private key and make equal packets. Tegmen also
/// reads a key of ndnd and signs with it.
fn ndnd_files(scene: &Scene, program: &Built) -> Check {
    let (house, temp) = our_keys(scene, "ed25519")?;
    let (key, certificate) = (format!("{house}.key"), format!("{temp}.cert"));
    let theirs = sec(scene, program, &["sign-cert", &key, "--issuer", "ndnd"], &read(&certificate)?)?;
    let theirs = scene.file("theirs.cert", theirs)?.display().to_string();
    let value = scene.file("value", "21.5")?.display().to_string();
    let (packet, anchor) = (path(scene, "packet"), format!("{house}.cert"));
    must(scene, &["key", "import", &temp, &theirs])?;
    must(scene, &["sign", "/house/temp/v=1", &value, "--key", &temp, "--output", &packet])?;
    let text = must(scene, &["verify", &packet, "--anchor", &anchor, "--certificate", &theirs])?;
    holds(&text, &["/house/temp/v=1 is verified"])?;
    for kind in [&["ed25519"][..], &["ecc", "secp256r1"]] {
        let made = sec(scene, program, &[&["keygen", "/house/door"], kind].concat(), b"")?;
        let (pair, file) = (path(scene, kind[0]), scene.file("made", &made)?.display().to_string());
        let signed = sec(scene, program, &["sign-cert", &file], &made)?;
        let both = scene.file("both", [made, signed].concat())?.display().to_string();
        must(scene, &["key", "import", &pair, &both])?;
        let certificate = format!("{pair}.cert");
        must(scene, &["key", "certify", &house, &certificate, "--output", &certificate])?;
        must(scene, &["sign", "/house/door/v=1", &value, "--key", &pair, "--output", &packet])?;
        must(scene, &["verify", &packet, "--anchor", &anchor, "--certificate", &certificate])?;
        // The packet that we export is the one that we took.
        let secret = format!("{pair}.pem");
        must(scene, &["key", "export", &pair, "--secret", &secret])?;
        let ours = sec(scene, program, &["pem-decode"], &read(&secret)?)?;
        let name = must(scene, &["key", "list", &path(scene, ""), "--json"])?;
        if ours.first() != Some(&6) || !name.contains("/house/door/KEY/") {
            return Err(format!("ndnd decodes {}", to_hex(&ours)).into());
        }
    }
    Ok(())
}

/// Checks that the library of ndnd verifies a packet with Tegmen's certificates, and refuses it with the certificates
/// of another key.
fn ndnd_verifies(scene: &Scene, library: &Built) -> Check {
    let (house, temp) = our_keys(scene, "ed25519")?;
    let other = path(scene, "other");
    must(scene, &["key", "new", &other, "/house"])?;
    let value = scene.file("value", "21.5")?.display().to_string();
    let packet = path(scene, "packet");
    must(scene, &["sign", "/house/temp/v=1", &value, "--key", &temp, "--output", &packet])?;
    let file = |pair: &str| format!("{pair}.cert");
    for (signed, by, wanted) in [
        (packet.clone(), file(&temp), "valid"),
        (file(&temp), file(&house), "valid"),
        (file(&house), file(&house), "valid"),
        (file(&temp), file(&other), "wrong"),
        (packet, file(&house), "wrong"),
    ] {
        let mut command = library.command()?;
        command.args(["verify", &signed, &by]);
        let mut peer = scene.start_command(command)?;
        peer.await_end()?;
        let text = peer.out.text();
        if text.trim() != wanted {
            return Err(format!("{signed} by {by} is {text:?}: {}", peer.err.text()).into());
        }
    }
    Ok(())
}

/// Checks a producer that uses python-ndn. The producer signs packets with a key, and a root key has signed the
/// certificate of this key. Tegmen verifies this chain of certificates, and refuses it if the trust anchor is another
/// key.
fn python_chain(scene: &Scene, program: &Built) -> Check {
    let (_forwarder, socket) = forwarder(scene, &[])?;
    let anchor = path(scene, "root.data");
    let producer = python(scene, program, "chain", &socket, &["/house", &anchor])?;
    producer.await_output("registered", 0)?;
    let (other, _) = our_keys(scene, "ed25519")?;
    let other = format!("{other}.cert");
    for (name, anchor, wanted, is_refused) in [
        ("/house/temp/1", &anchor, "content /house/temp/1", false),
        ("/house/temp/2", &other, "is not fetched", true),
        // The producer signs names outside of its identity with the same key.
        ("/house/door/3", &anchor, "must not sign", true),
        // A key that no certificate is for.
        ("/house/temp/unknown", &anchor, "is not fetched", true),
    ] {
        let mut consumer = ours(scene, &socket, &["get", name, "--packet", "--anchor", anchor, "--lifetime", "500"])?;
        let is_success = consumer.await_end()?.success();
        if is_success == is_refused || (is_refused && !consumer.out.bytes().is_empty()) {
            return Err(format!("{name}: {}{}", consumer.out.text(), consumer.err.text()).into());
        }
        holds(&(consumer.out.text() + &consumer.err.text()), &[wanted])?;
    }
    Ok(())
}

const TEXT: &str = "#KEY: \"KEY\"/_/_/_\n#root: \"house\"/#KEY\n#sensor: \"house\"/sensor/#KEY <= #root\n\
    #value: \"house\"/sensor/_ <= #sensor\n";

/// Checks a consumer that uses python-ndn. It validates Tegmen's packets with a model that Tegmen compiled, and refuses
/// a name that the schema does not allow.
fn python_validates(scene: &Scene, program: &Built) -> Check {
    let (_forwarder, socket) = forwarder(scene, &[])?;
    // The validator of python-ndn has no Ed25519.
    let (house, temp) = our_keys(scene, "p256")?;
    let (text, model) = (scene.file("house.lvs", TEXT)?.display().to_string(), path(scene, "house.tlv"));
    must(scene, &["trust", "compile", &text, &model])?;
    let anchor = path(scene, "anchor.data");
    let exported = scene.start_command(scene.tegmen_command(&["ndn", "key", "export", &house, "--packet"]));
    let mut exported = exported?;
    exported.await_end()?;
    let _written: PathBuf = scene.file("anchor.data", exported.out.bytes())?;
    let values = ["--value", "/house/temp/now=21.5", "--value", "/house/door/now=open"];
    let producer = ours(scene, &socket, &[&["serve", "--key", &temp][..], &values].concat())?;
    producer.await_output("/house/door/now is registered", 0)?;
    for (name, wanted) in [("/house/temp/now", "content 21.5"), ("/house/door/now", "wrong signature")] {
        let mut consumer = python(scene, program, "validate", &socket, &[name, &model, &anchor])?;
        consumer.await_end()?;
        holds(&consumer.out.text(), &[wanted])?;
        // We decide as it does.
        let consumer = ["get", name, "--packet", "--schema", &model, "--anchor", &anchor];
        let mut consumer = ours(scene, &socket, &consumer)?;
        if consumer.await_end()?.success() != wanted.starts_with("content") {
            return Err(format!("{name}: {}", consumer.err.text()).into());
        }
    }
    let tests = "schema = \"house.tlv\"\n[[test]]\npacket = \"/house/temp/v=1\"\nkey = \"/house/temp/KEY/1/2/v=3\"\n\
        expect = \"allow\"\n[[test]]\npacket = \"/house/temp/v=1\"\nkey = \"/house/KEY/1/2/v=3\"\nexpect = \"deny\"\n";
    let tests = scene.file("house.toml", tests)?.display().to_string();
    let report: Value =
        serde_json::from_str(&must(scene, &["trust", "test", &tests, "--json"])?).map_err(|error| error.to_string())?;
    if report["tests"] == 2 { Ok(()) } else { Err(report.to_string().into()) }
}
