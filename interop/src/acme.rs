//! Certificates of delegated devices, issued with ACME (RFC 8555) by Pebble, the test server of Let's Encrypt. The peer
//! is OpenSSL, which trusts only the root of Pebble.

use crate::access::write_keys;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, free_port};
use crate::openssl;
use crate::peers::{Built, Places};
use crate::process::Process;
use crate::public_keys::tegmen;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

const VERSION: &str = "2.10.1";
const LAMP: &str = "lamp.example";
/// Validity of a certificate that is not renewed during a test, in seconds.
const LONG: u32 = 90 * 86_400;
/// Validity of a certificate that is renewed after 16 seconds, in seconds.
const SHORT: u32 = 24;
/// The time between two requests for the state of a certificate.
const PAUSE: Duration = Duration::from_millis(200);

/// Returns one [`Cell`] (a row of the result table) for each scenario with ACME, and the programs that must be built
/// for these scenarios.
pub(crate) fn all(places: &Places) -> (Vec<Cell>, Vec<Arc<Built>>) {
    let pebble = places.go_program("pebble", "pebble", "github.com/letsencrypt/pebble/v2/cmd/pebble");
    let names = "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv";
    let names = places.go_program("pebble", "pebble-challtestsrv", names);
    let built = vec![pebble.clone(), names.clone()];
    let programs = Arc::new(Programs { pebble, names });
    let cell = |scenario: &str, play: fn(&Scene, &Programs) -> Check| {
        let programs = Arc::clone(&programs);
        Cell::new("Pebble", VERSION, Role::Server, scenario, move |scene| {
            programs.pebble.ready()?;
            programs.names.ready()?;
            play(&scene.with_new_deadline(), &programs)
        })
    };
    let cells = vec![
        cell("ACME: certificate of a delegated device", issues),
        cell("ACME: renewal of a certificate", renews),
        cell("ACME: refused challenge", refuses),
        cell("ACME: external account binding", binds),
    ];
    (cells, built)
}

/// The programs of Pebble.
struct Programs {
    pebble: Arc<Built>,
    /// A DNS server that answers 127.0.0.1 for each name.
    names: Arc<Built>,
}

/// The properties in which the ACME authorities of the scenarios differ.
#[derive(Clone, Copy)]
struct Wanted {
    /// Validity of a certificate, in seconds.
    valid: u32,
    /// The port of the Tegmen server to which the authority connects to get the challenge responses.
    challenges: u16,
    /// True if each account needs an external account binding.
    binding: bool,
    /// The share of requests that the authority rejects with `badNonce`, in percent.
    rejected: u8,
}

/// The share of requests that Pebble rejects with `badNonce` by default, in percent. It is a value of
/// `Wanted::rejected`.
const FEW: u8 = 5;
/// A large share of requests that the authority rejects with `badNonce`, in percent. It is a value of
/// `Wanted::rejected`. With it a client often has to repeat one request more than twice.
const MANY: u8 = 60;

/// Identifier and key of the external account binding.
const BINDING: (&str, &str) = ("kid-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W");

/// An ACME authority.
struct Authority {
    directory: String,
    /// The address of the interface that Pebble has for tests.
    management: String,
    _processes: [Process; 2],
}

impl Authority {
    fn start(scene: &Scene, programs: &Programs, wanted: Wanted) -> Result<Self, String> {
        let [listen, management, names] =
            [free_port()?, free_port()?, free_port()?].map(|port| format!("127.0.0.1:{port}"));
        let Wanted { valid, challenges, binding, rejected } = wanted;
        let keys = if binding { json!({ BINDING.0: BINDING.1 }) } else { json!({}) };
        let config = json!({ "pebble": {
            "listenAddress": listen,
            "managementListenAddress": management,
            "certificate": "ca/pebble.pem",
            "privateKey": "ca/pebble.key",
            "httpPort": challenges,
            "externalAccountBindingRequired": binding,
            "externalAccountMACKeys": keys,
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": { "default": { "description": "the only one", "validityPeriod": valid } },
        }});
        scene.file("pebble.json", config.to_string())?;
        let mut dns = programs.names.command()?;
        dns.args([
            "-dnsserver",
            &names,
            "-defaultIPv6",
            "",
            "-http01",
            "",
            "-https01",
            "",
            "-tlsalpn01",
            "",
            "-doh",
            "",
        ]);
        dns.args(["-management", &format!("127.0.0.1:{}", free_port()?)]);
        let dns = scene.start_command(dns)?;
        let mut pebble = programs.pebble.command()?;
        pebble.args(["-config", "pebble.json", "-dnsserver", &names]);
        // It waits for nothing, and asks for a proof each time.
        pebble.envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_AUTHZREUSE", "0")]);
        pebble.env("PEBBLE_WFE_NONCEREJECT", rejected.to_string());
        let pebble = scene.start_command(pebble)?;
        pebble.await_output("ACME directory available at", 0)?;
        let directory = format!("https://{listen}/dir");
        Ok(Self { directory, management, _processes: [pebble, dns] })
    }

    /// Writes the root of the certificates of devices to `root.pem`.
    fn root(&self, scene: &Scene) -> Check {
        let at = ["s_client", "-quiet", "-connect", &self.management, "-CAfile", "ca/ca.pem", "-verify_return_error"];
        let mut client = scene.start(openssl::PROGRAM, &at)?;
        client.write(b"GET /roots/0 HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")?;
        client.await_output("-----END CERTIFICATE-----", 0)?;
        let text = client.out.text();
        let begin = text.find("-----BEGIN CERTIFICATE-----").ok_or("Pebble gives no root")?;
        scene.file("root.pem", text.get(begin..).unwrap_or_default())?;
        Ok(())
    }
}

/// A Tegmen server that delegates sessions, and the commands of its operator.
struct Delegating {
    coaps: SocketAddr,
    admin: String,
    _process: Process,
}

impl Delegating {
    /// Creates the files that the server and the authority need before their first start: the keys of the server, and
    /// certificates with their keys for Pebble and for the administration interface.
    fn prepare(scene: &Scene) -> Check {
        write_keys(scene)?;
        tegmen(scene, &["ca", "init", "ca", "--name", "Works CA"])?;
        for name in ["pebble", "admin"] {
            tegmen(scene, &["ca", "issue", "ca", "--name", name, "--dns", "localhost", "--ip", "127.0.0.1"])?;
        }
        std::fs::create_dir_all(scene.directory().join("acme")).map_err(|error| error.to_string())?;
        Ok(())
    }

    fn start(scene: &Scene, directory: &str, challenges: u16, more: &[&str]) -> Result<Self, String> {
        let coaps = SocketAddr::new(LOOPBACK, free_port()?);
        let (port, admin) = (coaps.port().to_string(), format!("127.0.0.1:{}", free_port()?));
        let challenges = format!("127.0.0.1:{challenges}");
        let options = "serve --listen 127.0.0.1 --store access.db --sealing-key sealing.key --audit audit.log --audit-key audit.pem \
                       --admin-cert ca/admin.pem --admin-cert-key ca/admin.key --bootstrap bootstrap \
                       --suites ecdhe-ecdsa-ccm8,ccm8 --delegation-acme-dir acme --delegation-acme-trust ca/ca.pem \
                       --delegation-acme-contact mailto:ops@example.org";
        let own = ["--port", &port, "--admin", &admin, "--delegation-acme", directory];
        let options: Vec<&str> = options.split_ascii_whitespace().chain(own).collect();
        let process = scene.tegmen(&[&options[..], &["--delegation-acme-listen", &challenges], more].concat())?;
        process.await_output(format!("administration at https://{admin}"), 0)?;
        Ok(Self { coaps, admin: format!("https://{admin}"), _process: process })
    }

    /// Runs a command of the operator. Returns its output.
    fn command(&self, scene: &Scene, key: &str, words: &str, more: &[&str]) -> Result<String, String> {
        let words = words.split_ascii_whitespace().chain(more.iter().copied());
        let words = words.chain(["--json", "--server", &self.admin, "--ca", "ca/ca.pem", "--key-file", key]);
        let mut process = scene.tegmen(&words.collect::<Vec<_>>())?;
        match process.await_end()?.success() {
            true => Ok(process.out.text()),
            false => Err(process.err.text()),
        }
    }

    /// Creates the device at the server (`tegmen device imprint`). No program of the device runs.
    fn imprint(&self, scene: &Scene) -> Check {
        let scopes = "--scope keys:write --scope delegation:read --scope delegation:write";
        self.command(scene, "bootstrap", &format!("key create root {scopes} --output root.key"), &[])?;
        let address = SocketAddr::new(LOOPBACK, free_port()?);
        let imprint = format!("device imprint {LAMP} --address {address} --output lamp.key");
        self.command(scene, "root.key", &imprint, &["--scope", "GET /temp"])?;
        Ok(())
    }

    /// Waits until `is_it` is true for the certificate of the device.
    fn certificate(&self, scene: &Scene, is_it: impl Fn(&Value) -> bool) -> Result<Value, String> {
        let mut last = Value::Null;
        loop {
            let shown = self.command(scene, "root.key", &format!("delegation show {LAMP}"), &[]);
            let late = |why| if Instant::now() > scene.deadline { format!("it stays {last}") } else { why };
            let shown = shown.map_err(late)?;
            let shown: Value = serde_json::from_str(&shown).map_err(|_| shown)?;
            last = shown["certificate"].clone();
            if is_it(&last) {
                return Ok(last);
            }
            sleep(PAUSE);
        }
    }

    /// Runs a handshake of OpenSSL with the name of the device, which must succeed. Returns the output of OpenSSL.
    fn handshake(&self, scene: &Scene) -> Result<String, String> {
        let at = self.coaps.to_string();
        let words = ["s_client", "-dtls1_2", "-connect", &at, "-servername", LAMP, "-verify_hostname", LAMP];
        let trust = ["-CAfile", "root.pem", "-verify_return_error", "-cipher", "ECDHE-ECDSA-AES128-CCM8@SECLEVEL=0"];
        let mut client =
            scene.start(openssl::PROGRAM, &[&words[..], &trust, &["-nocommands", "-showcerts"]].concat())?;
        client.await_output("Verify return code: ", 0)?;
        client.close_input();
        client.await_end()?;
        let text = client.out.text();
        let is_open = ["Cipher is ECDHE-ECDSA-AES128-CCM8", "Verification: OK"].iter().all(|part| text.contains(part));
        if is_open { Ok(text) } else { Err(format!("no session: {text}")) }
    }
}

/// Checks that only the owner of the files with private keys can read them.
fn are_private(scene: &Scene, files: &[&str]) -> Check {
    for file in files {
        let metadata = std::fs::metadata(scene.directory().join(file)).map_err(|error| format!("{file}: {error}"))?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode != 0o600 {
            return Err(format!("{file} has mode {mode:o}").into());
        }
    }
    Ok(())
}

fn has_certificate(certificate: &Value) -> bool {
    certificate["expires"].is_u64() && certificate["problem"].is_null()
}

/// Checks that a new device (`tegmen device imprint`) soon gets a certificate and a certificate chain. After a restart
/// of the server, the certificate must be available at once.
fn issues(scene: &Scene, programs: &Programs) -> Check {
    Delegating::prepare(scene)?;
    let challenges = free_port()?;
    let authority =
        Authority::start(scene, programs, Wanted { valid: LONG, challenges, binding: false, rejected: MANY })?;
    authority.root(scene)?;
    let server = Delegating::start(scene, &authority.directory, challenges, &[])?;
    server.imprint(scene)?;
    let first = server.certificate(scene, has_certificate)?;
    let shown = server.handshake(scene)?;
    // The certificate and the one of its authority.
    if shown.matches("-----BEGIN CERTIFICATE-----").count() < 2 {
        return Err(format!("the chain is not whole: {shown}").into());
    }
    are_private(scene, &["acme/account.json", "acme/lamp.example.pem"])?;
    drop(server);
    // The authority is not asked again.
    let directory = authority.directory.clone();
    drop(authority);
    let server = Delegating::start(scene, &directory, challenges, &[])?;
    if server.certificate(scene, has_certificate)? != first {
        return Err("it is another certificate after a restart".into());
    }
    server.handshake(scene).map(drop)?;
    Ok(())
}

/// Checks that the running server replaces a certificate that ends soon.
fn renews(scene: &Scene, programs: &Programs) -> Check {
    Delegating::prepare(scene)?;
    let challenges = free_port()?;
    let authority =
        Authority::start(scene, programs, Wanted { valid: SHORT, challenges, binding: false, rejected: FEW })?;
    authority.root(scene)?;
    let server = Delegating::start(scene, &authority.directory, challenges, &[])?;
    server.imprint(scene)?;
    let first = server.certificate(scene, has_certificate)?["expires"].as_u64();
    // The renewal takes most of the time of a scenario.
    let scene = &scene.with_new_deadline();
    let second = server.certificate(scene, |certificate| certificate["expires"].as_u64() > first)?["expires"].as_u64();
    let own = |text: &str| text.split("-----END CERTIFICATE-----").next().map(str::to_owned);
    let shown = server.handshake(scene)?;
    let file =
        std::fs::read_to_string(scene.directory().join("acme/lamp.example.pem")).map_err(|error| error.to_string())?;
    // The peer sees the certificate of the file, if the next one did not come meanwhile.
    let is_renewed = server.certificate(scene, has_certificate)?["expires"].as_u64() > second;
    let body = |text: String| text.rsplit("-----BEGIN CERTIFICATE-----").next().unwrap_or_default().trim().to_owned();
    if !is_renewed && own(&shown).map(body) != own(&file).map(body) {
        return Err("the peer sees another certificate than the one in the file".into());
    }
    Ok(())
}

/// Checks a failed challenge: the authority requests the challenge response from a port where no server listens. The
/// operator must see the reason, and the device must have no session.
fn refuses(scene: &Scene, programs: &Programs) -> Check {
    Delegating::prepare(scene)?;
    let (challenges, elsewhere) = (free_port()?, free_port()?);
    let authority = Authority::start(
        scene,
        programs,
        Wanted { valid: LONG, challenges: elsewhere, binding: false, rejected: FEW },
    )?;
    authority.root(scene)?;
    let server = Delegating::start(scene, &authority.directory, challenges, &[])?;
    server.imprint(scene)?;
    let refused = server.certificate(scene, |certificate| {
        certificate["problem"].as_str().is_some_and(|why| why.contains("refuses the challenge"))
    })?;
    let why = refused["problem"].as_str().unwrap_or_default();
    if !refused["expires"].is_null() || !why.contains("lead to --delegation-acme-listen. The next attempt is at 20") {
        return Err(format!("it is {refused}").into());
    }
    if server.handshake(scene).is_ok() {
        return Err("the device has a session without a certificate".into());
    }
    Ok(())
}

/// Checks that the authority creates an account only with the external account binding: an identifier and a key that it
/// gave to the operator before.
fn binds(scene: &Scene, programs: &Programs) -> Check {
    Delegating::prepare(scene)?;
    let challenges = free_port()?;
    let authority =
        Authority::start(scene, programs, Wanted { valid: LONG, challenges, binding: true, rejected: FEW })?;
    let server = Delegating::start(scene, &authority.directory, challenges, &[])?;
    server.imprint(scene)?;
    server.certificate(scene, |certificate| {
        certificate["problem"].as_str().is_some_and(|why| why.contains("externalAccountRequired"))
    })?;
    drop(server);
    let binding = scene.file("binding", format!("{} {}\n", BINDING.0, BINDING.1))?;
    crate::ours::restrict(&binding)?;
    let server = Delegating::start(scene, &authority.directory, challenges, &["--delegation-acme-binding", "binding"])?;
    server.certificate(scene, has_certificate)?;
    Ok(())
}
