//! Tests the whole chain with certificates: an operator registers a publisher and a subscriber at an access control
//! server, and the publisher delivers to the subscriber over DTLS with two X.509 certificates.

use super::operator::{runtime, secret};
use super::works::Server;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tegmen::coap::{Code, Response};
use tegmen::dtls::ClientAuthentication;
use tegmen_control::subscriber::Deliveries;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::server::{Request, Router};
use tegmen_host::uri::Scheme;
use tegmen_host::x509::signer::{Signer, SoftwareKey};
use tegmen_host::x509::{Files, Settings, Verifier};
use tokio::sync::mpsc;

const CONFIG: &str = r#"[addresses]
listen = "127.0.0.1"
port = 0
[access]
store = "access.db"
sealing-key = "sealing.key"
policy = "policy.toml"
audit = "audit.log"
audit-key = "audit.pem"
[public-keys]
cert = "ca/access.pem"
cert-key = "ca/access.key"
client-ca = "ca/ca.pem"
client-crl = "ca/crl.pem"
[admin]
admin = "127.0.0.1:0"
admin-cert = "ca/access.pem"
admin-cert-key = "ca/access.key"
bootstrap = "bootstrap"
"#;

const POLICY: &str = r#"[[rule]]
name = "displays read the kitchen"
subject = "tag:display"
publisher = "tag:kitchen"
allow = "read /*"

[[rule]]
name = "nobody sees doors"
subject = "*"
publisher = "*"
deny = "* /door"
"#;

/// The publisher, with its files.
pub(crate) struct Publisher<'t> {
    /// The directory of the test. Its directory `ca` contains the authority, and `ca/oven.pem` the certificate of the
    /// publisher.
    pub(crate) dir: PathBuf,
    /// The private key, as a value of the option `--cert-key`.
    pub(crate) key: &'t str,
    /// Opens the private key for this process. A TPM in software serves only one process at a time, so the key is not
    /// kept open.
    pub(crate) signer: &'t dyn Fn() -> Arc<dyn Signer>,
    /// The TPM, in the syntax of the TPM2 software stack; `None` if the key is in a file.
    pub(crate) tpm: Option<String>,
}

impl Publisher<'_> {
    /// Sends a value to a subscriber. A separate process does this in a new session, with the certificate `name` and
    /// the private key `key`. Returns the exit code and the output.
    async fn puts(&self, to: SocketAddr, path: &str, name: &str, key: &str) -> (i32, String) {
        let words = format!("put coaps://{to}{path} 21.5 --ca ca/ca.pem --crl ca/crl.pem --cert ca/{name}.pem");
        let mut tegmen = Command::new(env!("CARGO_BIN_EXE_tegmen"));
        tegmen.args(words.split(' ')).args(["--cert-key", key]).current_dir(&self.dir);
        tegmen.envs(self.tpm.as_ref().map(|tpm| ("TEGMEN_TPM", tpm)));
        // The subscriber of this process works meanwhile.
        let output = tokio::task::spawn_blocking(move || tegmen.output().unwrap()).await.unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (output.status.code().unwrap(), text)
    }
}

/// Runs a command of `tegmen`, and checks that it succeeds.
fn tegmen(dir: &Path, arguments: &str) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments.split(' ')).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Issues the certificates of all parties except the publisher. The directory already contains the authority.
fn certify(dir: &Path) {
    for issue in ["access --ip 127.0.0.1", "display --ip 127.0.0.1", "stranger --client"] {
        tegmen(dir, &format!("ca issue ca --name {issue}"));
    }
}

/// Returns the certificate and the private key of a party, with a verifier that trusts the authority.
fn keys(dir: &Path, name: &str, signer: Arc<dyn Signer>) -> PublicKeys {
    let ca = dir.join("ca");
    let pem = std::fs::read(ca.join(format!("{name}.pem"))).unwrap();
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem).map(|der| der.unwrap().to_vec()).collect();
    let files = Files { anchors: vec![ca.join("ca.pem")], crls: vec![ca.join("crl.pem")], revoked: Vec::new() };
    let verifier = Verifier::from_files(files, Settings::default()).unwrap();
    PublicKeys::new(SUITES).with_chain(&chain, signer).unwrap().believing(Arc::new(verifier))
}

async fn connect(to: SocketAddr, keys: PublicKeys) -> Session {
    let keys = keys.expecting("127.0.0.1");
    let config = ClientConfig::default().with(|config| config.trust.public_keys = Some(keys));
    Session::connect_to(to, Scheme::Coaps, config).await.unwrap()
}

fn taken(_: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
    response.set_code(Code::CHANGED);
    Ok(())
}

/// Starts a subscriber that accepts deliveries of publishers. Returns its server, and the codes of the requests that it
/// refuses.
async fn subscriber(dir: &Path, access: SocketAddr) -> (tegmen_host::server::Server, mpsc::UnboundedReceiver<String>) {
    let signer: Arc<dyn Signer> = Arc::new(SoftwareKey::from_file(&dir.join("ca/display.key")).unwrap());
    let session = connect(access, keys(dir, "display", Arc::clone(&signer))).await;
    let (refusals, refused) = mpsc::unbounded_channel();
    let credentials = Credentials::default();
    let deliveries = Deliveries::new(session, tokio::runtime::Handle::current(), credentials.clone(), move |refusal| {
        refusals.send(refusal.why.code().to_owned()).unwrap();
    });
    let router =
        Router::new().put("/temp", taken).put("/door", taken).get("/temp", |_, response| response.payload(b"1"));
    let builder = tegmen_host::server::Server::builder().listen("coaps://127.0.0.1:0").shards(1);
    let keys = keys(dir, "display", signer).asking(ClientAuthentication::Required);
    let builder = builder.credentials(credentials).trust(keys);
    (builder.policy_later(move |request, later| deliveries.decide(request, later)).serve(router).unwrap(), refused)
}

/// Tests the whole chain: requests that the policy allows, requests that it refuses and the rule of each refusal, and
/// rights that an operator takes away.
pub(crate) fn walk(publisher: &Publisher<'_>) {
    let dir = publisher.dir.as_path();
    certify(dir);
    secret(dir, "sealing.key", &"4".repeat(64));
    secret(dir, "audit.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    std::fs::write(dir.join("policy.toml"), POLICY).unwrap();
    std::fs::write(dir.join("tegmen.toml"), CONFIG).unwrap();
    let server = Server::spawn(dir, &["serve", "--config", "tegmen.toml"], 2);
    let at = format!("--server https://{} --ca ca/ca.pem --key-file", server.addresses[1]);
    let first = "key create root --scope keys:write --scope devices:write --output root.key";
    tegmen(dir, &format!("{first} {at} bootstrap"));
    let operator = |words: &str| tegmen(dir, &format!("device {words} {at} root.key"));
    operator("add oven --tag kitchen --kind certificate --certificate ca/oven.pem");
    operator("add display --tag display --kind certificate --certificate ca/display.pem");
    runtime().block_on(deliver(publisher, server.addresses[0], operator));
    server.end();
    let log = std::fs::read_to_string(dir.join("audit.log")).unwrap();
    let line = |words: [&str; 2]| log.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(line(["\"denied-by-rule\"", "nobody sees doors"]), "the rule that refused: {log}");
    assert!(line(["\"unknown-publisher\"", "display asks for the certificate"]), "{log}");
    assert!(line(["\"granted\"", "display asks for the certificate"]), "{log}");
}

async fn deliver(publisher: &Publisher<'_>, access: SocketAddr, operator: impl Fn(&str)) {
    let dir = publisher.dir.as_path();
    let (display, mut refusals) = subscriber(dir, access).await;
    let at = display.addresses()[0].address;
    let key = publisher.key;
    let (code, text) = publisher.puts(at, "/temp", "oven", key).await;
    assert_eq!(code, 0, "{text}");
    let (code, text) = publisher.puts(at, "/door", "oven", key).await;
    assert!(code == 1 && text.contains("4.03"), "{code}: {text}");
    assert_eq!(refusals.recv().await.as_deref(), Some("refused"));
    // A certificate of the authority is no registration.
    let (code, text) = publisher.puts(at, "/temp", "stranger", "ca/stranger.key").await;
    assert!(code == 1 && text.contains("4.03"), "{code}: {text}");
    assert_eq!(refusals.recv().await.as_deref(), Some("refused"));

    // A session that is open loses its right with its next request.
    let session = connect(at, keys(dir, "oven", (publisher.signer)())).await;
    let put = async || session.put("/temp", b"21.5").await.unwrap().code;
    assert_eq!(put().await, Code::CHANGED);
    assert_eq!(session.get("/temp").await.unwrap().code, Code::FORBIDDEN, "a publisher only delivers");
    operator("disable oven");
    assert_eq!(put().await, Code::FORBIDDEN);
    assert_eq!(refusals.recv().await.as_deref(), Some("refused"));
    operator("enable oven");
    assert_eq!(put().await, Code::CHANGED);
    operator("disable display");
    assert_eq!(put().await, Code::FORBIDDEN, "a subscriber without rights takes nothing");
    assert_eq!(refusals.recv().await.as_deref(), Some("not-a-device"));
    operator("remove oven");
    operator("enable display");
    assert_eq!(put().await, Code::FORBIDDEN);
    assert_eq!(refusals.recv().await.as_deref(), Some("refused"));
}
