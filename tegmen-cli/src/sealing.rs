//! `--sealing-key`: the key that seals the secrets of a database, from a file, a credential of systemd or a TPM.

use crate::output::Failure;
use std::path::Path;
use tegmen_store::SealingKey;

/// Opens the key at `place`: a file, a credential, or `tpm:FILE` for a key that a TPM sealed.
pub(crate) fn open(place: &Path) -> Result<SealingKey, Failure> {
    match sealed(place) {
        Some(file) => tpm::open(file),
        None => SealingKey::open(place).map_err(Failure::usage),
    }
}

/// Opens the key of a database. `is_first` is true if there is no database yet. In this case, if `place` is `tpm:FILE`
/// and FILE does not exist, makes a key in the TPM.
pub(crate) fn open_or_draw(place: &Path, is_first: bool) -> Result<SealingKey, Failure> {
    match sealed(place) {
        Some(file) if is_first && !file.exists() => tpm::draw(file),
        _ => open(place),
    }
}

/// Checks the key that [`open_or_draw`] would open. Makes no key.
pub(crate) fn check(place: &Path, is_first: bool) -> Result<(), Failure> {
    match sealed(place) {
        Some(file) if is_first && !file.exists() => tpm::can_draw(),
        _ => open(place).map(drop),
    }
}

/// Returns the path in `tpm:FILE`, the file of a key that a TPM sealed; `None` for another kind of key.
fn sealed(place: &Path) -> Option<&Path> {
    place.to_str()?.strip_prefix("tpm:").map(Path::new)
}

#[cfg(feature = "tpm")]
mod tpm {
    use crate::output::Failure;
    use crate::random;
    use std::path::Path;
    use tegmen::secret::Secret;
    use tegmen_host::x509::tpm::{DEFAULT_TPM, TpmError, sealed};
    use tegmen_store::SealingKey;
    use tegmen_store::files::sync_directory;

    fn name() -> String {
        std::env::var("TEGMEN_TPM").unwrap_or_else(|_| DEFAULT_TPM.to_owned())
    }

    fn key(secret: Secret<32>, file: &Path) -> SealingKey {
        SealingKey::new(secret, format!("tpm:{}", file.display()))
    }

    pub(super) fn open(file: &Path) -> Result<SealingKey, Failure> {
        if !file.exists() {
            return Err(Failure::usage(format!(
                "tpm:{}: there is no such file. Without it the secrets of the database are lost: put a copy there, or seal the \
                 key of the database again (tegmen keys tpm seal)",
                file.display()
            )));
        }
        let wrong = |error: TpmError| {
            let next = match error {
                TpmError::Refused { .. } => {
                    ". Use the TPM that sealed it, or seal the key of the database again (tegmen keys tpm seal)"
                }
                TpmError::Unreachable { .. } | TpmError::Place { .. } => "",
            };
            Failure::usage(format!("tpm:{}: {error}{next}", file.display()))
        };
        Ok(key(sealed::unseal(&name(), file).map_err(wrong)?, file))
    }

    pub(super) fn draw(file: &Path) -> Result<SealingKey, Failure> {
        let mut secret = Secret::zeroed();
        random::fill(secret.expose_mut())?;
        sealed::seal(&name(), file, &secret)
            .map_err(|error| Failure::usage(format!("tpm:{}: {error}", file.display())))?;
        // The database has secrets next. After a power cut they would be lost with the name of this file.
        sync_directory(file).map_err(|error| Failure::usage(format!("tpm:{}: {error}", file.display())))?;
        Ok(key(secret, file))
    }

    pub(super) fn can_draw() -> Result<(), Failure> {
        Ok(())
    }
}

#[cfg(not(feature = "tpm"))]
mod tpm {
    use crate::output::Failure;
    use std::path::Path;
    use tegmen_store::SealingKey;

    fn missing() -> Failure {
        Failure::usage("the key is in a TPM, which this build does not know: build it with --features tpm")
    }

    pub(super) fn open(_: &Path) -> Result<SealingKey, Failure> {
        Err(missing())
    }

    pub(super) fn draw(_: &Path) -> Result<SealingKey, Failure> {
        Err(missing())
    }

    pub(super) fn can_draw() -> Result<(), Failure> {
        Err(missing())
    }
}
