//! A client whose private key is in a TPM 2.0: the TPM makes the key and signs in the handshake, and the key never leaves the TPM.
//!
//! `cargo run -p tegmen-host --features tpm --example tpm`
//!
//! The build needs the packages libtss2-dev and pkg-config. The environment variable TEGMEN_TPM names the TPM; without it the example
//! uses `/dev/tpmrm0`. The example leaves nothing in the TPM: the key is in a file that only this TPM can decrypt.

use std::process::ExitCode;

#[cfg(not(feature = "tpm"))]
mod example {
    pub(crate) async fn run(_: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
        Err("this example was built without support for a TPM. Install libtss2-dev and pkg-config, then type: \
             cargo run -p tegmen-host --features tpm --example tpm"
            .into())
    }
}

#[cfg(feature = "tpm")]
mod example {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use std::error::Error;
    use std::path::Path;
    use std::sync::Arc;
    use tegmen::dtls::ClientAuthentication;
    use tegmen_host::client::{ClientConfig, Session};
    use tegmen_host::credentials::Credentials;
    use tegmen_host::public_keys::{PublicKeys, SUITES};
    use tegmen_host::server::{Router, Server};
    use tegmen_host::uri::Scheme;
    use tegmen_host::x509::signer::{Signer as _, SoftwareKey};
    use tegmen_host::x509::tpm::{DEFAULT_TPM, Place, TpmKey, TpmKeyKind};
    use tegmen_host::x509::{Settings, Trust, Verifier};

    const NO_TPM: &str = "Without a TPM, install swtpm, which is one in software, and start it:\n\
        mkdir -p /tmp/swtpm && swtpm socket --tpm2 --flags not-need-init,startup-clear --tpmstate dir=/tmp/swtpm \
        --server type=tcp,port=2321 --ctrl type=tcp,port=2322 &\n\
        Then type: TEGMEN_TPM=swtpm:host=127.0.0.1,port=2321 cargo run -p tegmen-host --features tpm --example tpm";

    /// The public key in the TPM, for a certificate. It is the point on the curve, which follows 26 bytes of header in
    /// the encoded key.
    struct PublicKey<'k>(&'k TpmKey);

    impl rcgen::PublicKeyData for PublicKey<'_> {
        fn der_bytes(&self) -> &[u8] {
            self.0.public_key().get(26..).unwrap_or_default()
        }

        fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
            &rcgen::PKCS_ECDSA_P256_SHA256
        }
    }

    fn params(name: &str) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(params)
    }

    pub(crate) async fn run(dir: &Path) -> Result<(), Box<dyn Error>> {
        let tpm = std::env::var("TEGMEN_TPM").unwrap_or_else(|_| DEFAULT_TPM.to_owned());
        std::fs::create_dir_all(dir)?;
        let key = TpmKey::create(&tpm, TpmKeyKind::P256, &Place::File(dir.join("oven.key")));
        let key = key.map_err(|error| format!("{error}\n{NO_TPM}"))?;
        println!("{tpm} made a key");

        let mut of_authority = params("Works")?;
        of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(of_authority, KeyPair::generate()?)?;
        let mut trust = Trust::default();
        trust.add_anchors(authority.pem().as_bytes())?;
        let trusted = Arc::new(Verifier::new(trust, Settings::default()));

        let server_key = KeyPair::generate()?;
        let certificate = params("127.0.0.1")?.signed_by(&server_key, &authority)?.der().to_vec();
        let signer = Arc::new(SoftwareKey::from_pem(server_key.serialize_pem().as_bytes())?);
        let keys = PublicKeys::new(SUITES).with_chain(&[certificate], signer)?.believing(trusted.clone());
        let credentials = Credentials::default();
        let names = credentials.clone();
        let server = Server::builder()
            .listen("coaps://127.0.0.1:0")
            .credentials(credentials)
            .trust(keys.asking(ClientAuthentication::Required))
            .policy_later(move |request, _| Some(names.name_of(request.identity.principal).is_some()))
            .on_event(|event| println!("server: {event}"))
            .serve(Router::new().get("/temp", |_, response| response.payload(b"21.5")))?;

        let certificate = params("oven")?.signed_by(&PublicKey(&key), &authority)?.der().to_vec();
        let keys = PublicKeys::new(SUITES).with_chain(&[certificate], Arc::new(key))?.believing(trusted);
        let keys = keys.expecting("127.0.0.1");
        let config = ClientConfig::default().with(|config| config.trust.public_keys = Some(keys));
        let session = Session::connect_to(server.addresses()[0].address, Scheme::Coaps, config).await?;
        let response = session.get("/temp").await?;
        println!("GET /temp: {} {}", response.code, String::from_utf8_lossy(&response.payload));
        if response.payload != b"21.5" {
            return Err("the client did not receive the value".into());
        }
        session.close();
        server.stop();
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let dir = std::env::temp_dir().join(format!("tegmen-example-tpm-{}", std::process::id()));
    let result = example::run(&dir).await;
    let _ = std::fs::remove_dir_all(&dir);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
