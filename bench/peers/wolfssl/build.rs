//! Builds the wolfSSL source code that the crate `wolfssl-sys` contains. The library has pre-shared keys and all
//! optimizations for the processor. The program of the multicast benchmark uses the same script, but gets a separate
//! library with multicast. Multicast makes each connection larger, so the library for all other measurements does not
//! have it.
//!
//! If the environment variable `TEGMEN_WOLFSSL` names the prefix of an installed wolfSSL, the script builds nothing.
//! The prefix must contain `lib/libwolfssl.a`.
use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TEGMEN_WOLFSSL");
    let prefix = env::var_os("TEGMEN_WOLFSSL").map_or_else(build, PathBuf::from);
    println!("cargo::rustc-link-search=native={}", prefix.join("lib").display());
    println!("cargo::rustc-link-lib=static=wolfssl");
    println!("cargo::rustc-link-lib=dylib=m");
}

/// Configures, builds and installs the library in the output directory. Returns the prefix of the installation.
fn build() -> PathBuf {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let (source, prefix) = (out.join("source"), out.join("prefix"));
    let is_mcast = env::var("CARGO_PKG_NAME").is_ok_and(|name| name.ends_with("mcast"));
    let features = if is_mcast { [OPTIONS, &["--enable-mcast"]].concat() } else { OPTIONS.to_vec() };
    let (complete, options) = (out.join("complete"), [&features[..], &[CFLAGS]].concat().join("\n"));
    // With other options it is another library.
    if fs::read_to_string(&complete).is_ok_and(|built| built == options) {
        return prefix;
    }
    let _ = fs::remove_dir_all(&source);
    copy(&vendored_source(), &source).expect("the source can be copied");
    run(Command::new("autoreconf").args(["--install", "--force"]), &source);
    run(
        Command::new("./configure").arg(format!("--prefix={}", prefix.display())).args(features).env("CFLAGS", CFLAGS),
        &source,
    );
    run(Command::new("make").args(["-j1", "install"]), &source);
    fs::write(complete, options).expect("the output directory can be written");
    prefix
}

/// Returns the directory into which cargo has unpacked the crate. A fetch of this workspace downloads the crate,
/// although nothing depends on it.
fn vendored_source() -> PathBuf {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo"))).expect("there is a home directory");
    let registries = fs::read_dir(home.join("registry/src")).expect("`cargo fetch` has run");
    let sources = registries.flatten().map(|registry| registry.path().join("wolfssl-sys-5.3.0/wolfssl-src"));
    sources.into_iter().find(|source| source.is_dir()).expect("`cargo fetch` has brought wolfssl-sys 5.3.0")
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn run(command: &mut Command, directory: &Path) {
    let status = command.current_dir(directory).status();
    assert!(status.is_ok_and(|status| status.success()), "failed: {command:?}");
}

/// With WOLFSSL_ALWAYS_VERIFY_CB the callback also runs for a verified peer, and gets its name. With
/// WOLFSSL_MAX_RPK_PINS=1 at most one public key is expected.
const CFLAGS: &str =
    "-O3 -DWOLFSSL_STATIC_PSK -DWOLFSSL_STATIC_RSA -DWOLFSSL_ALWAYS_VERIFY_CB -DWOLFSSL_MAX_RPK_PINS=1";

const OPTIONS: &[&str] = &[
    "--enable-static",
    "--disable-shared",
    "--disable-examples",
    "--disable-crypttests",
    "--disable-benchmark",
    "--enable-intelasm",
    "--enable-aesni",
    "--enable-sp",
    "--enable-sp-asm",
    "--enable-dtls",
    "--enable-dtls13",
    "--enable-dtlscid",
    "--enable-psk",
    "--enable-aesccm",
    "--enable-session-ticket",
    "--enable-rpk",
];
