//! A publisher: sends a reading each second to a subscriber. Both ends of the session prove their identities by
//! certificates.
//!
//! `cargo run -p tegmen-host --example publisher -- coaps://display.example/temp ca.pem oven.pem oven.key`
//!
//! With `--features tpm` the private key may be in a TPM. The last argument is then the handle of the key, such as
//! 0x81010001 (`tegmen keys tpm create --handle 0x81010001`). The environment variable TEGMEN_TPM names the TPM.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::uri::Uri;
use tegmen_host::x509::signer::{Signer, SoftwareKey};
use tegmen_host::x509::{Files, Settings, Verifier};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [uri, ca, certificate, key] = arguments.as_slice() else {
        let next = "start a subscriber at the URI; `tegmen ca init` and `tegmen ca issue` make the files";
        return Err(format!("usage: publisher URI CA CERTIFICATE KEY: {next}").into());
    };
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let chain: Vec<_> = chain.iter().map(|certificate| certificate.to_vec()).collect();
    let trusted = Verifier::from_files(Files { anchors: vec![ca.into()], ..Files::default() }, Settings::default())?;
    let keys = PublicKeys::new(SUITES).with_chain(&chain, signer(key)?)?.believing(Arc::new(trusted));
    let config = ClientConfig::default().with(|config| config.trust.public_keys = Some(keys));

    let uri = Uri::parse(uri)?;
    let path = format!("/{}", uri.path.join("/"));
    let session = Session::connect(&uri, config).await?;
    for tenths in (215..235).cycle() {
        let reading = format!("{}.{}", tenths / 10, tenths % 10);
        let response = session.put(&path, reading.as_bytes()).await?;
        println!("{reading}: {}", response.code);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Opens the private key. `key` is the handle of a key in a TPM, or the path of a file that only its owner can read.
fn signer(key: &str) -> Result<Arc<dyn Signer>, Box<dyn Error>> {
    #[cfg(feature = "tpm")]
    if let Some(handle) = key.strip_prefix("0x") {
        use tegmen_host::x509::tpm::{DEFAULT_TPM, Place, TpmKey};
        let tpm = std::env::var("TEGMEN_TPM").unwrap_or_else(|_| DEFAULT_TPM.to_owned());
        return Ok(Arc::new(TpmKey::open(&tpm, &Place::Persistent(u32::from_str_radix(handle, 16)?))?));
    }
    Ok(Arc::new(SoftwareKey::from_file(key.as_ref())?))
}
