//! Californium's server of OSCORE, which `bench/setup.sh californium` builds (`peers/californium/Server.java`).

use crate::program::target;
use tegmen_bench_line::Failure;

/// The command that installs it.
pub(crate) const INSTALL: &str = "apt-get install default-jdk-headless maven && bench/setup.sh californium";

/// The command line for a port of 127.0.0.1 and a number of contexts.
pub(crate) fn command(port: u16, contexts: u32) -> Result<Vec<String>, Failure> {
    let place = target()?.join("bench-peers/californium");
    if !place.join("Server.class").is_file() {
        return Err(Failure::new("not built"));
    }
    let path = format!("{0}:{0}/lib/*", place.display());
    let words = ["java", "-cp", &path, "Server", &port.to_string(), &contexts.to_string()];
    Ok(words.map(String::from).into())
}
