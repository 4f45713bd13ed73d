//! Searches the memory and the files of a process for certificates and private keys.

use super::Device;
use crate::cell::Check;
use crate::process::Process;
use memchr::memmem;
use std::fs::{File, read, read_dir, read_to_string};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

/// The AlgorithmIdentifier in each certificate and each PKCS#8 private key on secp256r1: id-ecPublicKey and prime256v1
/// (RFC 5480, section 2.1).
const ALGORITHM: &[u8] = b"\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";

/// The key pair of a delegated device. The delegation server holds it, and the device does not.
struct KeyPair {
    /// Both coordinates of the public key, in the form that a certificate contains.
    public: Vec<u8>,
    private: Vec<u8>,
}

impl KeyPair {
    /// Uses OpenSSL to read the key pair in a file.
    fn read(file: &Path) -> Result<Self, String> {
        let written = |form: &[&str]| {
            let output =
                Command::new("openssl").arg("ec").args(["-outform", "DER", "-in"]).arg(file).args(form).output();
            output.map(|output| output.stdout).map_err(|error| format!("openssl: {error}"))
        };
        let public = written(&["-pubout"])?.last_chunk::<64>().map(|public| public.to_vec());
        // ECPrivateKey (RFC 5915, section 3): version 1, then an octet string of 32 bytes.
        let private = written(&[])?.get(7..39).map(<[u8]>::to_vec);
        let pair = public.zip(private).map(|(public, private)| Self { public, private });
        pair.ok_or_else(|| format!("openssl reads no key in {}", file.display()))
    }
}

/// The keys that a search found in the memory of a process: the delegation server, or the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    /// True if the process holds the certificate of the device.
    certificate: bool,
    /// True if the process holds the private key of the device, in either order of its bytes.
    private_key: bool,
    /// True if the process holds any certificate or private key.
    any: bool,
}

impl Held {
    fn of(memory: &[u8], pair: &KeyPair) -> Self {
        let holds = |part: &[u8]| memmem::find(memory, part).is_some();
        let reversed: Vec<u8> = pair.private.iter().rev().copied().collect();
        Self {
            certificate: holds(&pair.public),
            private_key: holds(&pair.private) || holds(&reversed),
            any: holds(ALGORITHM),
        }
    }
}

/// Checks that the server holds the certificate and the private key of the device, and that the device holds no key at
/// all.
pub(super) fn held_by_server_alone(server: (&Process, &Path), device: &Device, files: &Path) -> Check {
    let (server, ca) = server;
    let pair = KeyPair::read(&ca.join("delegated").join(format!("{}.key", device.name)))?;
    let [server, lamp] = [server, &device.process].map(memory);
    let [server, lamp] = [Held::of(&server?, &pair), Held::of(&lamp?, &pair)];
    let (all, none) = (
        Held { certificate: true, private_key: true, any: true },
        Held { certificate: false, private_key: false, any: false },
    );
    if (server, lamp) != (all, none) {
        return Err(format!("the server holds {server:?}, the device {lamp:?}").into());
    }
    match (pem_files(ca)?, pem_files(files)?) {
        (1.., 0) => Ok(()),
        (server, device) => Err(format!("the server has {server} files in PEM, the device {device}").into()),
    }
}

/// Reads the writable memory of a process.
fn memory(process: &Process) -> Result<Vec<u8>, String> {
    let id = process.id();
    let failed = |error: std::io::Error| format!("the memory of process {id}: {error}");
    let file = File::open(format!("/proc/{id}/mem")).map_err(failed)?;
    let mut memory = Vec::new();
    for line in read_to_string(format!("/proc/{id}/maps")).map_err(failed)?.lines() {
        let Some((range, _)) = line.split_once(' ').filter(|(_, rest)| rest.starts_with("rw")) else { continue };
        let ends = range.split_once('-').map(|(start, end)| [start, end].map(|end| u64::from_str_radix(end, 16)));
        let Some([Ok(start), Ok(end)]) = ends else { continue };
        let mut page = [0; PAGE];
        for at in (start..end).step_by(PAGE) {
            // A mapping may have ended meanwhile.
            if file.read_exact_at(&mut page, at).is_ok() && page != [0; PAGE] {
                memory.extend_from_slice(&page);
            }
        }
    }
    Ok(memory)
}

const PAGE: usize = 4096;

/// Counts the files with PEM data in a directory and its subdirectories.
fn pem_files(directory: &Path) -> Result<usize, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut count = 0;
    for entry in read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        count += match path.is_dir() {
            true => pem_files(&path)?,
            false => usize::from(memmem::find(&read(&path).map_err(failed)?, b"-----BEGIN").is_some()),
        };
    }
    Ok(count)
}
