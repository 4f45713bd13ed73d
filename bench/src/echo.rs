//! A bare UDP echo with `recvmmsg` and `sendmmsg`: what the system calls of a batched server cost by themselves.
//!
//! It uses no segmentation offload, so a server that does may need less.

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
