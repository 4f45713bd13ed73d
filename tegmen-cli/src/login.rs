//! `tegmen login`: a user logs in at a delegation server, and gets a client certificate.

use crate::admin::{Admin, Interface, rfc3339_of};
use crate::ca::{CertificateKey, KeyType, draw_key, request};
use crate::files::{self, Readers};
use crate::output::{Failure, Output, printable};
use crate::password;
use clap::Args;
use hyper::Method;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use tegmen_host::x509::signer::SoftwareKey;

#[derive(Args)]
#[command(after_help = "Example:\n  tegmen login alice --output . --server https://server.example:8443 --ca ca.pem")]
pub(crate) struct Login {
    /// Name of the user.
    name: String,
    /// Write the key and the certificate to this directory, as NAME.key and NAME.pem, and the certificate of the
    /// authority as authority.pem. These files replace the files of an earlier login.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Read the password from this file, which only its owner can read. Without this option the command asks for the
    /// password.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    interface: Interface,
}

/// The body of the login request.
#[derive(Serialize)]
struct Body<'b> {
    name: &'b str,
    password: &'b str,
    request: &'b str,
}

impl Login {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let Self { name, output, password_file, interface } = self;
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\']) {
            return Err(Failure::usage(format!("{name} is no name of a user")));
        }
        let host = interface.server.host().unwrap_or_default().to_owned();
        let wrong = |error| Failure::usage(format!("--output: {}: {error}: correct the path", output.display()));
        std::fs::create_dir_all(&output).map_err(wrong)?;
        let private = draw_key(KeyType::P256)?;
        let key = CertificateKey::from(SoftwareKey::from_pem(private.as_bytes()).map_err(Failure::new)?)?;
        let request = request(&name, &key)?;
        let password = password::read(password_file.as_deref(), &name)?;
        let body = Body { name: &name, password: &password, request: &request };
        let answer = Admin::from(interface).send_body(Method::POST, "/v1/login", &body)?;
        let pem = |field: &str| {
            let text = answer[field].as_str().filter(|text| !text.is_empty());
            text.ok_or_else(|| Failure::new("the server answered without a certificate: compare --server"))
        };
        let (certificate, authority) = (pem("certificate")?, pem("authority")?);
        let file = |end: &str| output.join(format!("{name}.{end}"));
        let (key_file, certificate_file, authority_file) = (file("key"), file("pem"), output.join("authority.pem"));
        files::write(&key_file, private.as_bytes(), Readers::Owner)?;
        files::write(&certificate_file, certificate.as_bytes(), Readers::All)?;
        files::write(&authority_file, authority.as_bytes(), Readers::All)?;
        let (key, cert, ca) = (key_file.display(), certificate_file.display(), authority_file.display());
        let line = format!(
            "openssl s_client -dtls1_2 -cipher ECDHE-ECDSA-AES128-CCM8:@SECLEVEL=0 -connect {host}:5684 -servername DEVICE \
             -verify_hostname DEVICE -CAfile {ca} -verify_return_error -cert {cert} -key {key} -sess_out {}",
            file("session").display()
        );
        let end = rfc3339_of(&answer["expires"]);
        out.line(
            || {
                printable(&format!(
                    "{cert} is a certificate of CN={name} until {end}. Its key is {key}, which nobody else can read."
                ))
            },
            || {
                json!({ "event": "logged-in", "name": name, "certificate": certificate_file, "key": key_file,
                    "authority": authority_file, "expires": answer["expires"], "command": line })
            },
        );
        out.text(printable(&format!("A session with a device begins with: {line}")));
        Ok(ExitCode::SUCCESS)
    }
}
