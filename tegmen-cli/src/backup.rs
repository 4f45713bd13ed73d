//! `tegmen backup`: backups of a database. No server may have the database open.

use crate::log::rfc3339;
use crate::output::{Failure, Output};
use crate::sealing;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tegmen_store::backup::{self, BackupError, Manifest};
use tegmen_store::sealing::Keeper;
use tegmen_store::{Database, Options, StateError};

#[derive(Args)]
pub(crate) struct Backup {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a backup of a database. The server that uses the database must have ended.
    #[command(after_help = "Example:\n  systemctl stop tegmen\n  \
        tegmen backup create --state /var/lib/tegmen-state/state.db state.backup\n  systemctl start tegmen")]
    Create(Target),
    /// Check that a backup is complete and, with --sealing-key, that it was made under this key.
    #[command(after_help = "Example:\n  tegmen backup verify state.backup")]
    Verify {
        /// The backup.
        backup: PathBuf,
        /// The sealing key of the database: a file of 64 hexadecimal digits, a credential of systemd, or tpm:FILE.
        #[arg(long, value_name = "FILE")]
        sealing_key: Option<PathBuf>,
    },
    /// Make a database from a backup. Sequence numbers continue after all numbers that may have been used. Sessions are
    /// removed, so that clients perform new handshakes. Changes after the backup are lost, also revocations.
    #[command(after_help = "Example:\n  tegmen backup restore --state /var/lib/tegmen-state/state.db state.backup")]
    Restore(Target),
}

#[derive(Args)]
struct Target {
    /// The database.
    #[arg(long, value_name = "FILE")]
    state: PathBuf,
    /// The backup.
    backup: PathBuf,
    /// The sealing key of the database: a file of 64 hexadecimal digits, a credential of systemd, or tpm:FILE.
    #[arg(long, value_name = "FILE")]
    sealing_key: Option<PathBuf>,
}

fn key(file: Option<&Path>) -> Result<Option<Arc<dyn Keeper>>, Failure> {
    let key = file.map(sealing::open).transpose()?;
    Ok(key.map(|key| Arc::new(key) as Arc<dyn Keeper>))
}

impl Target {
    fn options(&self) -> Result<Options, Failure> {
        Ok(Options { sealing: key(self.sealing_key.as_deref())?, ..Options::default() })
    }
}

/// Makes the error for a backup that failed. The exit code is 2 if the command could not begin its work.
fn failure(error: BackupError) -> Failure {
    match error {
        BackupError::Exists { .. } | BackupError::State(StateError::InUse { .. }) => Failure::usage(error),
        error => Failure::new(error),
    }
}

impl Backup {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let (done, backup, manifest) = match self.command {
            Command::Create(target) => {
                if !target.state.exists() {
                    let state = target.state.display();
                    return Err(Failure::usage(format!("{state}: there is no database; correct the path")));
                }
                let database = Database::open_with(&target.state, target.options()?).map_err(Failure::usage)?;
                let manifest = database.backup(&target.backup).map_err(failure)?;
                ("created", target.backup, manifest)
            }
            Command::Verify { backup, sealing_key } => {
                let manifest = backup::verify(&backup, key(sealing_key.as_deref())?.as_deref()).map_err(failure)?;
                ("whole", backup, manifest)
            }
            Command::Restore(target) => {
                let options = target.options()?;
                let manifest = backup::restore(&target.backup, &target.state, options).map_err(failure)?;
                ("restored", target.backup, manifest)
            }
        };
        report(out, done, &backup, &manifest);
        Ok(ExitCode::SUCCESS)
    }
}

fn report(out: Output, done: &str, backup: &Path, manifest: &Manifest) {
    let Manifest { made, revision, bytes, sha256, authentic } = manifest;
    let made = rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(*made));
    let proof = if authentic.is_empty() { "not authenticated: there is no sealing key" } else { "authentic" };
    out.line(
        || format!("{}: {done}; made {made}, revision {revision}, {bytes} bytes, {proof}", backup.display()),
        || {
            json!({
                "backup": backup.display().to_string(), "event": done, "made": made, "revision": revision, "bytes": bytes,
                "sha256": sha256, "authenticated": !authentic.is_empty(),
            })
        },
    );
}
