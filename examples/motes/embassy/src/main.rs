//! A CoAPs client on a Cortex-M3 with the network stack embassy-net. It has async code and no heap.
//!
//! The client reads `/temp` from the server, writes `on` to `/led`, and ends the session.
#![no_std]
#![no_main]

mod driver;
mod session;
mod time;

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::str::from_utf8;
use defmt::{Display2Format, error, info};
use driver::Controller;
use embassy_executor::Spawner;
use embassy_net::udp::{PacketMetadata, UdpSocket};
use embassy_net::{Config, IpEndpoint, Ipv4Cidr, Runner, Stack, StackResources, StaticConfigV4};
use mote_board::{Settings, clock};
use mote_client::{Client, Code, DATAGRAM_LEN, Error, Path, Response};
use session::Session;
use static_cell::StaticCell;

/// The address of the mote in the user network of QEMU. The router of this network is 10.0.2.2.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const PREFIX_LEN: u8 = 24;
const PORT: u16 = 49152;
/// A locally administered hardware address. Each product has its own hardware address.
const HARDWARE_ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 0, 1];

#[embassy_executor::main]
async fn main(spawner: Spawner) {
    let Some(peripherals) = cortex_m::Peripherals::take() else { panic!("main runs once") };
    clock::start(peripherals.SYST);
    let settings = Settings::of_host().unwrap_or_else(|message| panic!("{message}"));

    static RESOURCES: StaticCell<StackResources<2>> = StaticCell::new();
    let config = StaticConfigV4 {
        address: Ipv4Cidr::new(ADDRESS, PREFIX_LEN),
        gateway: Some(ROUTER),
        dns_servers: Default::default(),
    };
    let (stack, runner) = embassy_net::new(
        Controller::start(HARDWARE_ADDRESS),
        Config::ipv4_static(config),
        RESOURCES.init(StackResources::new()),
        // It only chooses local ports, of which this example names its own.
        0,
    );
    match network(runner) {
        Ok(task) => spawner.spawn(task),
        Err(_) => panic!("the task runs already"),
    }
    let result = converse(stack, settings).await;
    if let Err(reason) = &result {
        error!("{}", Display2Format(reason));
    }
    mote_board::exit(result.is_ok())
}

/// Runs the network stack.
#[embassy_executor::task]
async fn network(mut runner: Runner<'static, Controller>) -> ! {
    runner.run().await
}

async fn converse(stack: Stack<'_>, settings: Settings) -> Result<(), Error> {
    let (mut received, mut sent) = ([0; 2 * DATAGRAM_LEN], [0; 2 * DATAGRAM_LEN]);
    let (mut received_ends, mut sent_ends) = ([PacketMetadata::EMPTY; 2], [PacketMetadata::EMPTY; 2]);
    let mut socket = UdpSocket::new(stack, &mut received_ends, &mut received, &mut sent_ends, &mut sent);
    if socket.bind(PORT).is_err() {
        panic!("another socket has the port");
    }
    let local = SocketAddrV4::new(ADDRESS, PORT);
    let path = Path { local: SocketAddr::from(local).into(), remote: SocketAddr::from(settings.server).into() };
    let client = Client::new(path, settings.credentials, settings.seed);

    let mut session = Session::connect(socket, IpEndpoint::from(settings.server), client).await?;
    info!("the server has the same key");
    print("GET /temp", &session.request(Code::GET, "temp", b"").await?);
    print("PUT /led", &session.request(Code::PUT, "led", b"on").await?);
    session.close().await;
    Ok(())
}

fn print(request: &str, response: &Response) {
    info!("{}: {} {}", request, Display2Format(&response.code), from_utf8(&response.payload).unwrap_or("(no text)"));
}
