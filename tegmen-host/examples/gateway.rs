//! A gateway: forwards the datagrams of clients to one server, and the answers of the server back to the clients. The
//! gateway has no key, so it cannot read the datagrams.
//!
//! `cargo run -p tegmen-host --example gateway -- 0.0.0.0:5684 192.0.2.7:5684`
//!
//! The gateway has a separate port towards the server for each client address. If a client changes its address, or if
//! the gateway forgot the address, the datagrams of the client reach the server from another port. A session with a
//! connection id (RFC 9146) continues: the server finds the session by the id, and checks that the client receives
//! datagrams at the new address (RFC 9853).

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Maximum number of client addresses that are remembered. Datagrams from further addresses are dropped.
const MOST: usize = 1024;
/// The time after which a client address is forgotten, if the server sends nothing to it.
const IDLE: Duration = Duration::from_secs(60);
/// Maximum length in bytes of a datagram that is forwarded whole.
const LONGEST: usize = 2048;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, server] = arguments.as_slice() else {
        return Err("usage: gateway LISTEN SERVER: two addresses with ports; start the server at the second one".into());
    };
    let clients = UdpSocket::bind(listen).await?;
    println!("forwarding from {} to {server}; Ctrl-C ends it", clients.local_addr()?);
    forward(clients, server.parse()?, |datagram| println!("{} bytes that it cannot read", datagram.len())).await?;
    Ok(())
}

/// Forwards datagrams until receiving from clients fails. Calls `show` with each datagram.
pub(crate) async fn forward(
    clients: UdpSocket,
    server: SocketAddr,
    show: impl Fn(&[u8]) + Send + Sync + 'static,
) -> io::Result<()> {
    let (clients, show) = (Arc::new(clients), Arc::new(show));
    let mut ports: HashMap<SocketAddr, (Arc<UdpSocket>, JoinHandle<()>)> = HashMap::new();
    let mut datagram = [0; LONGEST];
    loop {
        let (len, client) = clients.recv_from(&mut datagram).await?;
        show(&datagram[..len]);
        if !ports.contains_key(&client) {
            ports.retain(|_, (_, returning)| !returning.is_finished());
            if ports.len() == MOST {
                continue;
            }
            let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let port = Arc::new(UdpSocket::bind(any).await?);
            port.connect(server).await?;
            let returning = tokio::spawn(send_back(Arc::clone(&port), Arc::clone(&clients), client, Arc::clone(&show)));
            ports.insert(client, (port, returning));
        }
        if let Some((port, _)) = ports.get(&client) {
            // A datagram that is lost here is sent again by the client.
            let _ = port.send(&datagram[..len]).await;
        }
    }
}

/// Passes datagrams of the server to one client. Ends when the server has sent nothing for [`IDLE`].
async fn send_back(port: Arc<UdpSocket>, clients: Arc<UdpSocket>, client: SocketAddr, show: Arc<impl Fn(&[u8])>) {
    let mut datagram = [0; LONGEST];
    while let Ok(received) = timeout(IDLE, port.recv(&mut datagram)).await {
        // An error stands for a datagram that did not reach the server.
        if let Ok(len) = received {
            show(&datagram[..len]);
            let _ = clients.send_to(&datagram[..len], client).await;
        }
    }
}
