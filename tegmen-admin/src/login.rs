//! The login of a user. The user sends a password and a certificate request, and gets a client certificate.

use crate::api::Api;
use crate::authority::LoginCertificate;
use crate::failures::MOST;
use crate::parts::{Body, Sender};
use crate::passwords::Password;
use crate::problem::{Code, Problem};
use crate::reply::Shown;
use crate::users;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tegmen_control::audit::{Kind, Record};
use tegmen_control::service::ServiceError;
use tegmen_store::Store;
use tegmen_store::clock::now;
use tegmen_trust::x509::Request;
use tokio_rustls::rustls::pki_types::CertificateSigningRequestDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use zeroize::Zeroizing;

/// A login.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    /// The name of the user.
    name: String,
    /// The password. No response contains it.
    password: String,
    /// A certificate request (PKCS #10) in PEM with the subject CN=NAME. The key of the user has signed it: ECDSA on
    /// P-256, or RSA of 2048 to 4096 bits.
    request: String,
}

/// A client certificate.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LoggedIn")]
pub(crate) struct ShownLogin {
    /// The certificate in PEM. Its subject is CN=NAME.
    certificate: String,
    /// The certificate of the issuing authority in PEM.
    authority: String,
    /// The time at which the certificate expires, in seconds since 1970.
    expires: u64,
}

/// A login request whose certificate request has a valid signature.
pub(crate) struct Checked {
    name: String,
    password: Password,
    spki: Vec<u8>,
    address: IpAddr,
}

/// Verifies that the sender has the private key of the certificate request, and that the certificate request contains
/// only the name of the user.
pub(crate) fn check((Body(login), sender): (Body<Login>, Sender)) -> Result<Checked, Problem> {
    let Login { name, password, request } = login;
    let password = Zeroizing::new(password);
    if !users::is_name(&name) {
        return Err(Problem::malformed("name: no user has such a name"));
    }
    let malformed = |why: &str| Problem::malformed(format!("request: {why}"));
    let der = CertificateSigningRequestDer::from_pem_slice(request.as_bytes());
    let der = der.map_err(|_| malformed("no certificate request (PKCS #10) in PEM"))?;
    let Request { subject, spki } = Request::verify(&der).map_err(malformed)?;
    if subject != users::subject(&name) {
        return Err(malformed("its subject is CN= and the name of the user, and nothing else"));
    }
    Ok(Checked { name, password, spki, address: sender.address() })
}

/// Returns the problem for a refused login. It is the same for each reason, so that it does not reveal the names of
/// users.
fn refused() -> Problem {
    Problem::new(Code::LoginRefused, "no enabled user has this name and this password: try again, or ask an operator")
}

pub(crate) async fn log_in<S: Store>(api: Arc<Api<S>>, login: Checked) -> Result<Shown<ShownLogin>, Problem> {
    let missing = "this server logs no users in: set delegation-ca in the section [delegation] of its configuration";
    let logins = api.logins.clone().ok_or_else(|| Problem::new(Code::NoLogins, missing))?;
    let Checked { name, password, spki, address } = login;
    let (audit, at) = (api.service.audit(), now());
    if api.failures.is_refused(&address, at) || api.attempts.are_refused(&name, address, at) {
        let detail = format!("{MOST} wrong passwords came within a minute: try again when it is over");
        return Err(Problem::new(Code::TooManyFailures, detail));
    }
    audit.is_writable().map_err(ServiceError::from)?;
    let found = users::find(&api.store, &name).await?;
    let is_same = api.passwords.compare(password, found.as_ref().map(|(row, _)| row.hash.clone())).await?;
    let (row, revision, code) = match found {
        Some((row, revision)) if is_same && !row.disabled => (row, revision, None),
        Some((row, revision)) if is_same => (row, revision, Some("user-disabled")),
        Some((row, revision)) => (row, revision, Some("wrong-password")),
        None => return Err(api.refuse("", &name, address, "unknown-user")),
    };
    if let Some(code) = code {
        return Err(api.refuse(&name, &name, address, code));
    }
    if let Err(taken) = users::check_free(&api, &name).await {
        let message = format!("a login from {address}: refused ({})", taken.code.name());
        audit.note(Record { kind: Kind::Refusal, who: name, code: taken.code.name(), message });
        return Err(taken);
    }
    let (of, valid) = (name.clone(), Duration::from_secs(row.lifetime.into()));
    let certified = tokio::task::spawn_blocking(move || logins.certify(&of, &spki, valid)).await;
    let LoginCertificate { certificate, authority, expires } =
        certified.map_err(|_| Problem::new(Code::Internal, "the authority of logins failed"))??;
    // A user who was changed meanwhile gets no certificate.
    if users::find(&api.store, &name).await?.map(|(_, at)| at) != Some(revision) {
        users::revoke_certificates(&api, &name).await?;
        return Err(api.refuse(&name, &name, address, "user-changed"));
    }
    let message = format!("a login from {address}: a certificate until {expires}");
    audit
        .write(Record { kind: Kind::Grant, who: name.clone(), code: "login", message })
        .await
        .map_err(ServiceError::from)?;
    api.attempts.add_login(&name, address, at);
    Ok(Shown(ShownLogin { certificate, authority, expires }))
}

impl<S: Store> Api<S> {
    /// Counts a refused login, and records it in the audit log. An unknown name is not recorded, because the user may
    /// have typed the password in place of the name.
    fn refuse(&self, who: &str, name: &str, address: IpAddr, code: &'static str) -> Problem {
        let at = now();
        self.failures.add(address, at);
        self.attempts.failures.add(name.to_owned(), at);
        let message = format!("a login from {address}: refused ({code})");
        self.service.audit().note(Record { kind: Kind::Refusal, who: who.to_owned(), code, message });
        refused()
    }
}
