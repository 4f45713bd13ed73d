//! `tegmen enrol`: registers this device at an access control server, with a one-time key of its operator.

use crate::admin::secret;
use crate::ca::read_certificate;
use crate::connect::access_control;
use crate::output::{Failure, Output, printable, runtime};
use crate::public_keys::signer;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::access::protokey::Mode;
use tegmen_control::enrolment::{EnrolError, OneTimeKey, client_config, enrol};
use tegmen_control::state::{Credential, NewDevice};
use tegmen_host::client::Session;
use tegmen_host::hex::from_hex;
use tegmen_host::x509::sha256;
use zeroize::Zeroizing;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen enrol coaps://access.example --key-file oven.enrol --certificate oven.pem\n  \
    tegmen enrol coaps://access.example --key-file oven.enrol --protokey oven.protokey\n  \
    tegmen enrol coaps://access.example --key-file hob.enrol --oscore hob.key\n\n\
    The operator creates the one-time key with `tegmen device expect`.")]
pub(crate) struct Enrol {
    /// The access control server: coaps://host[:port].
    uri: String,
    /// The one-time key, in a file that only its owner can read.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    #[command(flatten)]
    credential: Own,
}

/// The credential with which the server identifies this device later.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Own {
    /// Register this certificate (PEM or DER).
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Register the raw public key of this private key, in PEM or in a TPM (tpm:0x81010001).
    #[arg(long, value_name = "FILE")]
    private_key: Option<PathBuf>,
    /// Register the shared key in this file, in hexadecimal: 16 to 64 bytes. Only its owner can read the file.
    #[arg(long, value_name = "FILE")]
    shared_key: Option<PathBuf>,
    /// Register the protokey in this file, in hexadecimal: 16 to 64 bytes. Only its owner can read the file.
    #[arg(long, value_name = "FILE")]
    protokey: Option<PathBuf>,
    /// Register this device as a resource server of the OSCORE profile, with the key for its tokens in this file: 64
    /// hexadecimal digits. Only its owner can read the file. Give the same file to `serve --token-key`.
    #[arg(long, value_name = "FILE")]
    oscore: Option<PathBuf>,
    /// Register this device as a resource server of the profile of EDHOC and OSCORE, with the key for its tokens in
    /// this file: 64 hexadecimal digits. Only its owner can read the file. Give the same file to `serve --token-key`.
    #[arg(long, value_name = "FILE")]
    edhoc: Option<PathBuf>,
}

impl Own {
    fn device(&self, name: &str) -> Result<NewDevice, Failure> {
        let party = OwnedParty::from_words([name]).map_err(Failure::usage)?;
        let public = |credential| NewDevice::public(party.clone(), credential).map_err(Failure::usage);
        match self {
            Self { certificate: Some(file), .. } => public(Credential::Certificate(read_certificate(file)?.digest)),
            Self { private_key: Some(file), .. } => public(Credential::PublicKey(sha256(signer(file)?.public_key()))),
            Self { shared_key: Some(file), .. } => of_secret(party, Credential::SharedKey, file, "--shared-key"),
            Self { protokey: Some(file), .. } => {
                of_secret(party, Credential::Protokey(Mode::Bound), file, "--protokey")
            }
            Self { oscore: Some(file), .. } => of_secret(party, Credential::Oscore, file, "--oscore"),
            Self { edhoc: Some(file), .. } => of_secret(party, Credential::Edhoc, file, "--edhoc"),
            _ => Err(Failure::usage("name the credential of the device: --certificate, for example")),
        }
    }
}

/// Returns the device `party` with the secret that `file` contains in hexadecimal digits. `option` is the command-line
/// option that names the file.
fn of_secret(
    party: OwnedParty,
    credential: Credential,
    file: &Path,
    option: &'static str,
) -> Result<NewDevice, Failure> {
    let digits = secret(file, option)?;
    let bytes = from_hex(&digits).map(Zeroizing::new).ok_or_else(|| {
        let file = file.display();
        Failure::usage(format!("{option}: {file} has a character that is no hexadecimal digit, or half a byte"))
    })?;
    NewDevice::secret(party, credential, &bytes).map_err(|error| Failure::usage(format!("{option}: {error}")))
}

impl Enrol {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let text = secret(&self.key_file, "--key-file")?;
        let wrong = || Failure::usage(format!("--key-file: {} has no one-time key", self.key_file.display()));
        let key = OneTimeKey::parse(&text).ok_or_else(wrong)?;
        let device = self.credential.device(key.name())?;
        let uri = access_control(&self.uri)?;
        let registered: Result<(), EnrolError> = runtime()?.block_on(async {
            let session = Session::connect(&uri, client_config(&key)).await?;
            let registered = enrol(&session, &key, &device).await;
            session.close();
            registered
        });
        registered.map_err(Failure::new)?;
        let kind = device.device().credential.kind();
        out.line(
            || printable(&format!("This device is registered as {}, with a {kind}.", key.name())),
            || json!({ "event": "enrolled", "name": key.name(), "kind": kind }),
        );
        Ok(ExitCode::SUCCESS)
    }
}
