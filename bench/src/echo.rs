//! A bare UDP echo with `recvmmsg` and `sendmmsg`. It measures the cost of the system calls of a server that reads and
//! writes batches.
//!
//! The echo uses no segmentation offload, so a server with segmentation offload may need less CPU time.

use crate::mmsg::Batch;
use std::net::UdpSocket;
use tegmen_bench_line::Failure;

/// Returns every datagram to its sender until it is killed.
pub(crate) fn run(address: &str) -> Result<(), Failure> {
    let socket = UdpSocket::bind(address).map_err(|e| Failure::new(format!("{address}: {e}")))?;
    let mut batch = Batch::new();
    loop {
        batch.receive(&socket).and_then(|()| batch.send(&socket)).map_err(|e| Failure::new(e.to_string()))?;
    }
}
