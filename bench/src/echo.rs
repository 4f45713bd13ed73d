//! A UDP echo server that uses `recvmmsg` and `sendmmsg`. It measures the cost of the system calls that every server
//! needs to read and write batches of datagrams.
//!
//! The echo server uses no segmentation offload. So a server that uses segmentation offload may need less CPU time than
//! the echo server.

use crate::{failure::failure, mmsg::Batch};
use std::{env, net::UdpSocket};
use tegmen_bench_line::Failure;

/// Returns the command line that starts the echo server at this port of 127.0.0.1.
pub(crate) fn command(port: u16) -> Result<Vec<String>, Failure> {
    let exe = env::current_exe().map_err(failure)?;
    Ok(vec![exe.to_string_lossy().into_owned(), "echo".into(), format!("127.0.0.1:{port}")])
}

/// Returns every datagram to its sender, until the process is killed.
pub(crate) fn run(address: &str) -> Result<(), Failure> {
    let socket = UdpSocket::bind(address).map_err(|e| Failure::new(format!("{address}: {e}")))?;
    let mut batch = Batch::new();
    loop {
        batch.receive(&socket).and_then(|()| batch.send(&socket)).map_err(|e| Failure::new(e.to_string()))?;
    }
}
