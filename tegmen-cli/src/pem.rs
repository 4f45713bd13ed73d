//! Reads certificates and keys of TLS from files in PEM.

use crate::files::read_secret;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use tokio_rustls::rustls::RootCertStore;

/// Reads the certificates in a file. The error is the reason why no certificate could be read.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| format!("{}: {error}", file.display()))?;
    if certificates.is_empty() {
        return Err(format!("{} has no certificate: write it in PEM", file.display()));
    }
    Ok(certificates)
}

/// Reads the certificates of authorities in a file. The error is the reason why they cannot be used.
pub(crate) fn authorities(file: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(roots)
}

/// Reads a private key from a file that only its owner can read. The error is the reason why the key cannot be read.
pub(crate) fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = read_secret(file)?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| format!("{}: {error}", file.display()))
}
