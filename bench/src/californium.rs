//! The servers of Californium. `bench/setup.sh californium` builds them (`peers/californium/`).

use crate::program::target;
use tegmen_bench_line::{Failure, IDENTITY};

/// The command that installs the servers of Californium.
pub(crate) const INSTALL: &str = "apt-get install default-jdk-headless maven && bench/setup.sh californium";

/// Returns the command line that starts the OSCORE server on a port of 127.0.0.1, with this number of contexts.
pub(crate) fn command(port: u16, contexts: u32) -> Result<Vec<String>, Failure> {
    java("oscore", "Server", &[&port.to_string(), &contexts.to_string()])
}

/// Returns the command line that starts the server of CoAP over DTLS on a port of 127.0.0.1, with one pre-shared key.
pub(crate) fn secure_command(port: u16, key: &str) -> Result<Vec<String>, Failure> {
    java("dtls", "SecureServer", &[&port.to_string(), IDENTITY, key])
}

/// Returns the command line that starts the caching reverse proxy on a port of 127.0.0.1. It has one resource with the
/// path `name`, whose origin is the URI `origin`.
pub(crate) fn proxy_command(port: u16, name: &str, origin: &str) -> Result<Vec<String>, Failure> {
    java("proxy", "Proxy", &[&port.to_string(), name, origin])
}

fn java(libraries: &str, class: &str, words: &[&str]) -> Result<Vec<String>, Failure> {
    let place = target()?.join("bench-peers/californium");
    if !place.join(class).with_extension("class").is_file() {
        return Err(Failure::new("not built"));
    }
    let path = format!("{0}:{0}/{libraries}/*", place.display());
    Ok(["java", "-cp", &path, class].iter().chain(words).map(|word| (*word).to_owned()).collect())
}
