//! A CoAPs client on a Cortex-M3 with the network stack smoltcp. It has one loop, no heap and no async code.
//!
//! The client reads `/temp` from the server, writes `on` to `/led`, and ends the session.
#![no_std]
#![no_main]

mod device;

use core::net::{SocketAddr, SocketAddrV4};
use core::str::from_utf8;
use cortex_m_rt::{entry, exception};
use defmt::{Display2Format, error, info, warn};
use device::Controller;
use mote_board::ethernet::Ethernet;
use mote_board::{Settings, clock};
use mote_client::{Client, Code, DATAGRAM_LEN, Error, Event, Instant, Path, Records, Response};
use smoltcp::iface::{Config, Interface, SocketSet, SocketStorage};
use smoltcp::socket::udp::{self, PacketBuffer, PacketMetadata};
use smoltcp::wire::{EthernetAddress, IpCidr, IpEndpoint, Ipv4Address};

/// The address of the mote in the user network of QEMU. The router of this network is 10.0.2.2.
const ADDRESS: Ipv4Address = Ipv4Address::new(10, 0, 2, 15);
const ROUTER: Ipv4Address = Ipv4Address::new(10, 0, 2, 2);
const PREFIX_LEN: u8 = 24;
const PORT: u16 = 49152;
/// A locally administered hardware address. Each product has its own hardware address.
const HARDWARE_ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 0, 1];

#[entry]
fn main() -> ! {
    let result = run();
    if let Err(reason) = &result {
        error!("{}", Display2Format(reason));
    }
    mote_board::exit(result.is_ok())
}

/// Handles the interrupt of the clock. This interrupt also ends each wait in [`run`].
#[exception]
fn SysTick() {
    clock::tick();
}

fn run() -> Result<(), Error> {
    let Some(peripherals) = cortex_m::Peripherals::take() else { panic!("main runs once") };
    clock::start(peripherals.SYST);
    let settings = Settings::of_host().unwrap_or_else(|message| panic!("{message}"));

    let mut device = Controller::new(Ethernet::start(HARDWARE_ADDRESS));
    let config = Config::new(EthernetAddress(HARDWARE_ADDRESS).into());
    let mut interface = Interface::new(config, &mut device, network_now());
    interface.update_ip_addrs(|addresses| {
        // An interface has space for at least one address.
        let _ = addresses.push(IpCidr::new(ADDRESS.into(), PREFIX_LEN));
    });
    let _ = interface.routes_mut().add_default_ipv4_route(ROUTER);

    let (mut received, mut sent) = ([0; 2 * DATAGRAM_LEN], [0; 2 * DATAGRAM_LEN]);
    let (mut received_ends, mut sent_ends) = ([PacketMetadata::EMPTY; 2], [PacketMetadata::EMPTY; 2]);
    let mut socket = udp::Socket::new(
        PacketBuffer::new(&mut received_ends[..], &mut received[..]),
        PacketBuffer::new(&mut sent_ends[..], &mut sent[..]),
    );
    if socket.bind(PORT).is_err() {
        panic!("the port is 0");
    }
    let mut storage = [SocketStorage::EMPTY; 1];
    let mut sockets = SocketSet::new(&mut storage[..]);
    let handle = sockets.add(socket);

    let server = IpEndpoint::from(settings.server);
    let local = SocketAddrV4::new(ADDRESS, PORT);
    let path = Path { local: SocketAddr::from(local).into(), remote: SocketAddr::from(settings.server).into() };
    let mut client = Client::new(path, settings.credentials, settings.seed);
    let mut is_temperature_known = false;
    client.connect(now())?;
    loop {
        interface.poll(network_now(), &mut device, &mut sockets);
        let socket = sockets.get_mut::<udp::Socket<'_>>(handle);
        let (mut datagram, mut out) = ([0; DATAGRAM_LEN], [0; DATAGRAM_LEN]);
        let len = match socket.recv_slice(&mut datagram) {
            Ok((len, from)) if from.endpoint == server => len,
            _ => 0,
        };
        let mut records = Records::new(datagram.get_mut(..len).unwrap_or(&mut []));
        let mut is_done = false;
        while let Some(event) = client.poll(now(), &mut records, &mut out) {
            match event {
                Event::Send(datagram) => send(socket, datagram, server),
                Event::Connected => {
                    info!("the server has the same key");
                    send(socket, client.request(now(), Code::GET, "temp", b"", &mut out)?, server);
                }
                Event::Response(response) if !is_temperature_known => {
                    is_temperature_known = true;
                    print("GET /temp", &response);
                    send(socket, client.request(now(), Code::PUT, "led", b"on", &mut out)?, server);
                }
                Event::Response(response) => {
                    print("PUT /led", &response);
                    is_done = true;
                    client.close();
                }
                Event::Failed(error) => return Err(error),
            }
        }
        if is_done {
            // The last datagrams leave.
            interface.poll(network_now(), &mut device, &mut sockets);
            return Ok(());
        }
        if len == 0 {
            // Until the next millisecond. A product sleeps until `Client::next_alarm` and `Interface::poll_at`, or an interrupt.
            cortex_m::asm::wfi();
        }
    }
}

/// Sends a datagram. If the buffer of the socket has no space for it, the datagram is lost. This is like a loss in the
/// network: the client sends the datagram again.
fn send(socket: &mut udp::Socket<'_>, datagram: &[u8], server: IpEndpoint) {
    if socket.send_slice(datagram, server).is_err() {
        warn!("a datagram does not fit the buffer of the socket");
    }
}

fn print(request: &str, response: &Response) {
    info!("{}: {} {}", request, Display2Format(&response.code), from_utf8(&response.payload).unwrap_or("(no text)"));
}

/// Returns the time in the form that the client takes.
fn now() -> Instant {
    Instant::from_micros(clock::millis().saturating_mul(1000))
}

/// Returns the time in the form that smoltcp takes.
fn network_now() -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_millis(clock::millis() as i64)
}
