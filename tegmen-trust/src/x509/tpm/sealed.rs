//! Seals a secret to a TPM, in a file that no other TPM can open.
//!
//! The file has the format of wrapped keys, with the type of sealed data (id-sealedkey of the TCG). The secret is
//! encrypted on its way between this process and the TPM, so that nobody can read it on the wires between the processor
//! and the TPM. The file has no password and does not depend on a measurement of the boot: anyone who has the file and
//! can reach the TPM can open it.

use super::{Place, SEALED_DATA, TpmError, connect, flush, load, parse_file, refused, storage_root, write_file};
use std::path::Path;
use tegmen::secret::Secret;
use tss_esapi::attributes::{ObjectAttributesBuilder, SessionAttributesBuilder};
use tss_esapi::constants::SessionType;
use tss_esapi::handles::{KeyHandle, SessionHandle};
use tss_esapi::interface_types::algorithm::{HashingAlgorithm, PublicAlgorithm};
use tss_esapi::interface_types::session_handles::AuthSession;
use tss_esapi::structures::{
    Digest, KeyedHashScheme, Public, PublicBuilder, PublicKeyedHashParameters, SensitiveData, SymmetricDefinition,
};
use tss_esapi::{Context, Error};

/// Seals a secret of 32 bytes to a TPM. `tpm` names the TPM as for [`TpmKey`](super::TpmKey). Writes a new file that
/// only its owner can read.
///
/// # Errors
/// [`TpmError`], also if the file already exists.
pub fn seal(tpm: &str, file: &Path, secret: &Secret<32>) -> Result<(), TpmError> {
    if file.exists() {
        return Err(Place::File(file.to_owned()).wrong("it exists: move it away, or choose another file"));
    }
    let template = template().map_err(refused("describe the secret"))?;
    let data = SensitiveData::try_from(secret.expose().as_slice()).map_err(refused("take the secret"))?;
    let mut context = connect(tpm)?;
    let root = storage_root(&mut context)?;
    let made = encrypted(&mut context, root, "seal the secret", |context| {
        context.create(root, template, None, Some(data), None, None)
    });
    flush(&mut context, root);
    let made = made?;
    write_file(file, SEALED_DATA, &made.out_private, &made.out_public)
}

/// Opens the secret in a file that [`seal`] wrote.
///
/// # Errors
/// [`TpmError`]: [`TpmError::Place`] if the file has no secret, [`TpmError::Refused`] if another TPM sealed it.
pub fn unseal(tpm: &str, file: &Path) -> Result<Secret<32>, TpmError> {
    let place = Place::File(file.to_owned());
    let contents = std::fs::read(file).map_err(|error| place.wrong(&error.to_string()))?;
    let (private, public) = parse_file(&contents, SEALED_DATA)
        .ok_or_else(|| place.wrong("no secret that a TPM sealed is in it: name the file that `tegmen` wrote"))?;
    let mut context = connect(tpm)?;
    let root = storage_root(&mut context)?;
    let unsealed = load(&mut context, root, &private, &public).and_then(|key| {
        let data = encrypted(&mut context, root, "unseal the secret", |context| context.unseal(key.into()));
        flush(&mut context, key);
        data
    });
    flush(&mut context, root);
    let unsealed = unsealed?;
    let mut secret = Secret::zeroed();
    if unsealed.value().len() != secret.expose().len() {
        return Err(place.wrong("the secret in it has not 32 bytes"));
    }
    secret.expose_mut().copy_from_slice(unsealed.value());
    Ok(secret)
}

fn template() -> Result<Public, Error> {
    let attributes = ObjectAttributesBuilder::new()
        .with_fixed_tpm(true)
        .with_fixed_parent(true)
        .with_user_with_auth(true)
        .with_no_da(true)
        .build()?;
    PublicBuilder::new()
        .with_public_algorithm(PublicAlgorithm::KeyedHash)
        .with_name_hashing_algorithm(HashingAlgorithm::Sha256)
        .with_object_attributes(attributes)
        .with_keyed_hash_parameters(PublicKeyedHashParameters::new(KeyedHashScheme::Null))
        .with_keyed_hash_unique_identifier(Digest::default())
        .build()
}

/// Runs a command in a session whose key is encrypted to the storage root. The session encrypts the first parameter of
/// the command and the first parameter of the response. One of these two parameters is the secret.
fn encrypted<T>(
    context: &mut Context,
    root: KeyHandle,
    doing: &'static str,
    act: impl FnOnce(&mut Context) -> Result<T, Error>,
) -> Result<T, TpmError> {
    let begin = refused("begin an encrypted session");
    let (aes, sha256) = (SymmetricDefinition::AES_128_CFB, HashingAlgorithm::Sha256);
    let session = context.start_auth_session(Some(root), None, None, SessionType::Hmac, aes, sha256).map_err(&begin)?;
    let Some(session) = session else {
        return Err(TpmError::Refused { doing: "begin an encrypted session", message: "it gives none".to_owned() });
    };
    let done = encrypts(context, session)
        .map_err(&begin)
        .and_then(|()| context.execute_with_session(Some(session), act).map_err(refused(doing)));
    // A restart of the TPM ends a session that stays.
    let _ = context.flush_context(SessionHandle::from(session).into());
    done
}

fn encrypts(context: &mut Context, session: AuthSession) -> Result<(), Error> {
    let (attributes, mask) = SessionAttributesBuilder::new().with_decrypt(true).with_encrypt(true).build();
    context.tr_sess_set_attributes(session, attributes, mask)
}
