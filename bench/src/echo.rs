//! A UDP echo server that uses `recvmmsg` and `sendmmsg`. It measures the cost of the system calls that every server
//! needs to read and write batches of datagrams.
//!
//! The echo server uses no segmentation offload. So a server that uses segmentation offload may need less CPU time than
//! the echo server.

use crate::mmsg::Batch;
use std::net::UdpSocket;
use tegmen_bench_line::Failure;

/// Returns every datagram to its sender, until the process is killed.
pub(crate) fn run(address: &str) -> Result<(), Failure> {
    let socket = UdpSocket::bind(address).map_err(|e| Failure::new(format!("{address}: {e}")))?;
    let mut batch = Batch::new();
    loop {
        batch.receive(&socket).and_then(|()| batch.send(&socket)).map_err(|e| Failure::new(e.to_string()))?;
    }
}
