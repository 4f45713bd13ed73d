//! `tegmen revoke`: revokes the key of a session, or a token, over the HTTPS interface of an access control server.

use crate::admin::{Admin, after};
use crate::output::{Failure, Output, printable};
use clap::Args;
use hyper::Method;
use serde_json::json;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen revoke 'oven;1f0c...'\n  \
    tegmen revoke --hash 01ba78... --concerned oven --concerned display\n\n\
    To revoke all keys of a device: tegmen device disable NAME")]
pub(crate) struct Revoke {
    /// Identity of a session that the server accepted, as in the audit log. The server notifies publisher and
    /// subscriber.
    #[arg(required_unless_present = "hash")]
    session: Option<String>,
    /// Hash of an access token as in the audit log, 66 hexadecimal digits.
    #[arg(long, value_name = "HASH", conflicts_with = "session", requires = "concerned")]
    hash: Option<String>,
    /// Name of a device that the server notifies of the revoked token: the publisher or the client of the token; may be
    /// repeated.
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    concerned: Vec<String>,
    /// Seconds for which the server lists the revoked token. Choose at least the remaining lifetime of the token.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, conflicts_with = "session")]
    expires_in: u64,
    #[command(flatten)]
    admin: Admin,
}

impl Revoke {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let Self { session, hash, concerned, expires_in, admin } = self;
        let (body, what) = match (session, hash) {
            (Some(session), _) => (json!({ "session": session }), format!("the session {session}")),
            (None, hash) => {
                let what = format!("the token {}", hash.as_deref().unwrap_or_default());
                (json!({ "hash": hash, "expires": after(expires_in), "concerned": concerned }), what)
            }
        };
        let revoked = admin.send_body(Method::POST, "/v1/revocations", &body)?;
        out.line(|| printable(&format!("Revoked {what}.")), || revoked.clone());
        Ok(ExitCode::SUCCESS)
    }
}
