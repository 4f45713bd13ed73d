//! Builds the images with the compiler of the Linux distribution, and the QEMU plugin with gcc. Reports the versions of
//! both compilers.

use super::Error;
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fails if a tool is missing that a measurement needs.
pub(super) fn require_tools() -> Result<(), Error> {
    for (file, packages) in [
        (RUSTC, "rustc-web"),
        (CARGO, "cargo-web"),
        (CORE_SOURCES, "rust-web-src"),
        ("/usr/bin/arm-none-eabi-ld", "binutils-arm-none-eabi"),
        ("/usr/bin/qemu-system-arm", "qemu-system-arm"),
        ("/usr/bin/gcc", "gcc"),
    ] {
        if !Path::new(file).exists() {
            return Err(Error::MissingTool { tool: file.into(), packages: packages.into() });
        }
    }
    Ok(())
}

/// Builds every image with one cryptographic provider. Returns the name of each image and the path of its ELF file.
pub(super) fn images(project: &Path, target: &Path, provider: &str) -> Result<Vec<(String, PathBuf)>, Error> {
    let sources = project.join("firmware/src/bin");
    let entries = fs::read_dir(&sources).map_err(|error| Error::File(sources.clone(), error))?;
    let mut names = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.strip_suffix(".rs").map(str::to_owned))
        .filter(|name| provider == OF_MOTES || !WITH_OF_MOTES.contains(&name.as_str()))
        .collect::<Vec<_>>();
    names.sort();

    let folder = folder(target, provider)?;
    let release = release(&folder);
    delete_old(&release, &names)?;
    let place = Place::of(project)?;
    output_of(&mut cargo(&place, &folder, provider))?;
    // The images with public keys are built separately, because the other images are measured without the feature
    // `public-keys`.
    let mut with_public_keys = cargo(&place, &folder, public_keys(provider));
    let chosen = WITH_PUBLIC_KEYS.iter().filter(|name| names.iter().any(|chosen| chosen == *name));
    chosen.for_each(|name| _ = with_public_keys.args(["--bin", name]));
    output_of(&mut with_public_keys)?;
    if provider == OF_MOTES {
        let mut small = cargo(&place, &folder, "small");
        SMALL.iter().for_each(|name| _ = small.args(["--bin", name]));
        output_of(&mut small)?;
    }
    Ok(names.into_iter().map(|name| (name.clone(), release.join(name))).collect())
}

/// Builds the images with these names, with one cryptographic provider. Builds no image that is up to date. Returns the
/// paths of the images.
pub(crate) fn chosen_images<const N: usize>(
    project: &Path,
    target: &Path,
    provider: &str,
    names: [&str; N],
) -> Result<[PathBuf; N], Error> {
    require_tools()?;
    let folder = folder(target, provider)?;
    let place = Place::of(project)?;
    let mut cargo = cargo(&place, &folder, provider);
    names.iter().for_each(|name| _ = cargo.args(["--bin", name]));
    output_of(&mut cargo)?;
    Ok(names.map(|name| release(&folder).join(name)))
}

/// Returns the build directory for the images with one cryptographic provider.
fn folder(target: &Path, provider: &str) -> Result<PathBuf, Error> {
    Ok(absolute(target)?.join("firmware").join(provider))
}

fn release(folder: &Path) -> PathBuf {
    folder.join(TRIPLE).join("release")
}

/// A symbolic link to the project directory. The path of the link is the same on every machine. As long as this value
/// exists, no other process that builds images changes the link. The link remains when this value is dropped. Cargo
/// puts the paths of crates into the names of symbols. These names determine the order of the symbols, and the order
/// changes the instructions of an image. With two different folders the instructions of a handshake differed by 190.
struct Place {
    firmware: PathBuf,
    _lock: File,
}

impl Place {
    /// Makes the symbolic link to the project directory, unless it exists. Waits until no other process builds images.
    fn of(project: &Path) -> Result<Self, Error> {
        let link = PathBuf::from(SAME_PATH);
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| Error::File(path, error)
        };
        let lock = link.with_extension("lock");
        // The lock file is opened without truncation. Otherwise a link with this name, which another user made, could
        // empty another file.
        let locked = OpenOptions::new().create(true).append(true).open(&lock).map_err(at(&lock))?;
        locked.lock().map_err(at(&lock))?;
        let project = absolute(project)?;
        if fs::read_link(&link).ok().as_ref() != Some(&project) {
            let _ = fs::remove_file(&link);
            symlink(&project, &link).map_err(at(&link))?;
        }
        Ok(Self { firmware: link.join("firmware"), _lock: locked })
    }
}

/// Returns the cargo command that builds the images with one cryptographic provider.
fn cargo(place: &Place, folder: &Path, provider: &str) -> Command {
    let mut cargo = Command::new(CARGO);
    cargo
        .current_dir(&place.firmware)
        .args(["build", "--release", "--quiet", "--locked", "--no-default-features", "--features", provider])
        .arg("--manifest-path")
        .arg(place.firmware.join("Cargo.toml"))
        .env("RUSTC", RUSTC)
        .env("RUSTC_BOOTSTRAP", "1") // for -Zbuild-std
        .env("CARGO_TARGET_DIR", folder);
    for name in CALLER {
        cargo.env_remove(name); // the sizes must not depend on the caller's settings
    }
    cargo
}

/// Deletes the images of earlier builds, so that no old image is measured. The files in `deps` are deleted too, because
/// cargo would otherwise put these old files into the folder of the images again.
fn delete_old(release: &Path, names: &[String]) -> Result<(), Error> {
    for folder in [release.to_owned(), release.join("deps")] {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let image = stem.rsplit_once('-').map_or(stem, |(image, _hash)| image);
            if names.iter().any(|name| name == image) && path.is_file() {
                fs::remove_file(&path).map_err(|error| Error::File(path.clone(), error))?;
            }
        }
    }
    Ok(())
}

/// Returns the cargo features for a build of the images with public keys.
fn public_keys(provider: &str) -> &'static str {
    if provider == "rustcrypto" { "public-keys-rustcrypto" } else { "compact,public-keys" }
}

/// Builds the QEMU plugin that counts instructions.
pub(super) fn plugin(project: &Path, target: &Path) -> Result<PathBuf, Error> {
    let folder = absolute(target)?.join("firmware");
    fs::create_dir_all(&folder).map_err(|error| Error::File(folder.clone(), error))?;
    let library = folder.join("region.so");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-o"])
        .arg(&library)
        .arg(project.join("firmware/qemu/region.c"));
    output_of(&mut gcc)?;
    Ok(library)
}

/// Versions of the tools that a measurement uses. Other versions lead to other numbers.
#[derive(Debug, Serialize)]
pub(super) struct Versions {
    compiler: String,
    linker: String,
    emulator: String,
    /// The commit of the checkout, with the suffix `-modified` if files were changed after the commit.
    commit: String,
}

impl Versions {
    pub(super) fn read(project: &Path) -> Result<Self, Error> {
        let first_line = |command: &mut Command| {
            output_of(command).map(|output| output.lines().next().unwrap_or_default().to_owned())
        };
        let commit = Command::new("git")
            .current_dir(project)
            .args(["describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=-modified"])
            .output();
        let commit = commit.ok().filter(|output| output.status.success());
        Ok(Self {
            compiler: first_line(Command::new(RUSTC).arg("--version"))?,
            linker: first_line(Command::new("arm-none-eabi-ld").arg("--version"))?,
            emulator: first_line(Command::new("qemu-system-arm").arg("--version"))?,
            commit: commit.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().into()),
        })
    }
}

/// Runs a command and waits for its end. Returns its standard output.
pub(super) fn output_of(command: &mut Command) -> Result<String, Error> {
    let described = format!("{command:?}");
    let output = command.output().map_err(|error| Error::Command(described.clone(), error.to_string()))?;
    if !output.status.success() {
        return Err(Error::Command(described, String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|error| Error::File(path.into(), error))
}

/// Images that need the feature `public-keys` of the firmware.
const WITH_PUBLIC_KEYS: [&str; 6] = ["dtls_rpk", "dtls_x509", "edhoc", "group_oscore", "ndn_ecdsa", "p256"];
/// Images that need the feature `small` of the firmware, which changes the provider of motes.
const SMALL: [&str; 1] = ["ndn"];
/// Images that are built only with the cryptographic provider of motes. Their entries `required-features` in the
/// Cargo.toml of the firmware must name the same provider.
const WITH_OF_MOTES: [&str; 10] = [
    "coap_listener",
    "coap_mul_sender",
    "coap_uni_sender",
    "dtls_mul_uni_listener",
    "dtls_mul_uni_sender",
    "dtls_uni_uni_listener",
    "dtls_uni_uni_sender",
    "edhoc",
    "ndn",
    "ndn_ecdsa",
];
/// The cryptographic provider of motes.
const OF_MOTES: &str = "compact";
/// The caller's environment variables that would change the images. They are removed for the build.
const CALLER: [&str; 6] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_PROFILE_RELEASE_LTO",
    "RUSTC_WRAPPER",
    "RUSTUP_TOOLCHAIN",
];
const RUSTC: &str = "/usr/bin/rustc";
const CARGO: &str = "/usr/bin/cargo";
const CORE_SOURCES: &str = "/usr/lib/rustlib/src/rust/library/core/src/lib.rs";
const SAME_PATH: &str = "/tmp/tegmen-firmware-sources";
const TRIPLE: &str = "thumbv7m-none-eabi";
