//! A subscriber: takes readings of publishers with certificates, and asks the access control server about each request.
//!
//! `cargo run -p tegmen-control --example subscriber -- coaps://access.example ca.pem display.pem display.key coaps://[::]`
//!
//! The example `publisher` of `tegmen-host` delivers readings to this subscriber. docs/access.md describes the access
//! control server.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::error::Error;
use std::sync::Arc;
use tegmen::coap::Code;
use tegmen::dtls::ClientAuthentication;
use tegmen_control::subscriber::Deliveries;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::server::{Router, Server};
use tegmen_host::uri::Uri;
use tegmen_host::x509::signer::SoftwareKey;
use tegmen_host::x509::{Files, Settings, Verifier};
use tokio::runtime::Handle;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [access, ca, certificate, key, listen] = arguments.as_slice() else {
        let next = "start an access control server, as in docs/access.md; `tegmen ca issue` makes the files";
        return Err(format!("usage: subscriber ACCESS CA CERTIFICATE KEY LISTEN: {next}").into());
    };
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let chain: Vec<_> = chain.iter().map(|certificate| certificate.to_vec()).collect();
    let trusted = Verifier::from_files(Files { anchors: vec![ca.into()], ..Files::default() }, Settings::default())?;
    let signer = Arc::new(SoftwareKey::from_file(key.as_ref())?);
    let keys = PublicKeys::new(SUITES).with_chain(&chain, signer)?.believing(Arc::new(trusted));

    let config = ClientConfig::default().with(|config| config.trust.public_keys = Some(keys.clone()));
    let access = Session::connect(&Uri::parse(access)?, config).await?;
    let credentials = Credentials::default();
    let deliveries = Deliveries::new(access, Handle::current(), credentials.clone(), |refusal| println!("{refusal}"));
    let router = Router::new().put("/temp", |request, response| {
        println!("{} degrees", String::from_utf8_lossy(request.payload()));
        response.set_code(Code::CHANGED);
        Ok(())
    });
    let builder =
        Server::builder().listen(listen).credentials(credentials).trust(keys.asking(ClientAuthentication::Required));
    let server = builder.policy_later(move |request, later| deliveries.decide(request, later)).serve(router)?;
    println!("listening at {}; Ctrl-C ends it", server.addresses()[0]);
    std::future::pending().await
}
