//! Certificates at both ends: a server admits each client whose certificate was issued by its authority. The subject of
//! the certificate is the identity of the client. A client whose certificate was issued by another authority is
//! refused.
//!
//! `cargo run -p tegmen-host --example certificates`
//!
//! This example makes its authority with the crate `rcgen`. `tegmen ca init` and `tegmen ca issue` make an authority
//! and certificates in files, and [`Verifier::from_files`] reads these files.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use tegmen::dtls::ClientAuthentication;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::server::{Router, Server};
use tegmen_host::uri::Scheme;
use tegmen_host::x509::signer::SoftwareKey;
use tegmen_host::x509::{Settings, Trust, Verifier};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Result<Authority, Box<dyn Error>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// Returns a verifier that trusts only this authority.
fn trusting(authority: &Authority) -> Result<Arc<Verifier>, Box<dyn Error>> {
    let mut trust = Trust::default();
    trust.add_anchors(authority.pem().as_bytes())?;
    Ok(Arc::new(Verifier::new(trust, Settings::default())))
}

/// Makes a new key, and a certificate with this name. The authority issues the certificate.
fn issue(authority: &Authority, name: &str, purpose: ExtendedKeyUsagePurpose) -> Result<PublicKeys, Box<dyn Error>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![purpose];
    let certificate = params.signed_by(&key, authority)?.der().to_vec();
    let signer = SoftwareKey::from_pem(key.serialize_pem().as_bytes())?;
    Ok(PublicKeys::new(SUITES).with_chain(&[certificate], Arc::new(signer))?)
}

async fn run() -> Result<(), Box<dyn Error>> {
    let (ours, other) = (authority("Works")?, authority("Others")?);

    let keys = issue(&ours, "127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth)?;
    let credentials = Credentials::default();
    let names = credentials.clone();
    let server = Server::builder()
        .listen("coaps://127.0.0.1:0")
        .credentials(credentials)
        .trust(keys.believing(trusting(&ours)?).asking(ClientAuthentication::Required))
        .on_event(|event| println!("server: {event}"))
        // The default policy gives rights by name, from a credentials file. This policy admits each client that proved a name.
        .policy_later(move |request, _| Some(names.name_of(request.identity.principal).is_some()))
        .serve(Router::new().get("/temp", |_, response| response.payload(b"21.5")))?;
    let at = server.addresses()[0].address;

    // The client verifies that the server has a certificate for the name that the client expects.
    let client = |authority| issue(authority, "oven", ExtendedKeyUsagePurpose::ClientAuth);
    let keys = client(&ours)?.believing(trusting(&ours)?).expecting("127.0.0.1");
    let session =
        Session::connect_to(at, Scheme::Coaps, ClientConfig::default().with(|c| c.trust.public_keys = Some(keys)));
    let session = session.await?;
    let response = session.get("/temp").await?;
    println!(
        "{}: {} {}",
        session.server().unwrap_or_default(),
        response.code,
        String::from_utf8_lossy(&response.payload)
    );
    if response.payload != b"21.5" || session.server().as_deref() != Some("CN=127.0.0.1") {
        return Err("the client did not receive the value from the server with the certificate".into());
    }
    session.close();

    let keys = client(&other)?.believing(trusting(&ours)?).expecting("127.0.0.1");
    let config = ClientConfig::default().with(|config| config.trust.public_keys = Some(keys));
    match Session::connect_to(at, Scheme::Coaps, config).await {
        Ok(_) => return Err("the server admitted a client of another authority".into()),
        Err(error) => println!("client of another authority: {error}"),
    }
    server.stop();
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
