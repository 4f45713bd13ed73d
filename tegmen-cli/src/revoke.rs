//! `tegmen revoke`: revokes the key of a session or a token, over the HTTPS interface of an access control server.

use crate::admin::{Admin, after};
use crate::output::{Failure, Output, printable};
use clap::Args;
use hyper::Method;
use serde_json::json;
use std::process::ExitCode;
use tegmen_control::access::protokey::SessionIdentity;
use tegmen_control::access::revocation::token_hash;
use tegmen_host::hex::to_hex;
use tegmen_host::provider::HostCrypto;

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen revoke 'oven;1f0c...' --concerned display\n  \
    tegmen revoke --hash 01ba78... --concerned oven --concerned display\n\n\
    To revoke all keys of a device: tegmen device disable NAME")]
pub(crate) struct Revoke {
    /// Identity of the session, as the audit log has it. The server lists it for its publisher, too.
    #[arg(required_unless_present = "hash")]
    session: Option<String>,
    /// Hash of an access token, 66 hexadecimal digits, as the audit log has it.
    #[arg(long, value_name = "HASH", conflicts_with = "session")]
    hash: Option<String>,
    /// Name of a device that the server notifies: the subscriber of the session, or publisher and client of the token; may be
    /// repeated.
    #[arg(long, required = true, value_name = "NAME")]
    concerned: Vec<String>,
    /// Seconds for which the server lists the revocation: at least as long as the key would be valid.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
    expires_in: u64,
    #[command(flatten)]
    admin: Admin,
}

impl Revoke {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let Self { session, hash, mut concerned, expires_in, admin } = self;
        let hash = match (hash, &session) {
            (Some(hash), _) => hash,
            (None, Some(session)) => {
                let identity = SessionIdentity::parse(session.as_bytes()).ok_or_else(|| {
                    Failure::usage("a session has the identity PUBLISHER;NONCE: copy it from the audit log, in quotes")
                })?;
                if !concerned.iter().any(|name| name == identity.publisher()) {
                    concerned.push(identity.publisher().to_owned());
                }
                to_hex(&token_hash::<HostCrypto>(session.as_bytes()))
            }
            (None, None) => return Err(Failure::usage("name a session, or --hash")),
        };
        let body = json!({ "hash": hash, "expires": after(expires_in), "concerned": concerned });
        let revoked = admin.send_body(Method::POST, "/v1/revocations", &body)?;
        let of = session.unwrap_or_else(|| format!("the token {hash}"));
        let notified = concerned.join(", ");
        out.line(|| printable(&format!("Revoked {of}. The server notifies {notified}.")), || revoked.clone());
        Ok(ExitCode::SUCCESS)
    }
}
