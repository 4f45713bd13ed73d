//! Many DTLS clients of one server in one process. Each client has its own address, from 127.1.0.0 upwards. All clients
//! share a socket, and one endpoint of the core library performs their handshakes.

use crate::{
    crowd::{Crowd, Letters, request},
    failure::failure,
};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
    time::{Duration, Instant},
};
use tegmen::address::{Address, Path};
use tegmen::coap::{Code, MessageRef};
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, ClientOnly, Config, Fatal, Need, PublicKeys, Records, Suites};
use tegmen::endpoint::{Endpoint, Event, MAX_HEADROOM, Peers as _};
use tegmen::identity::{PeerId, Principal};
use tegmen_bench_line::{Failure, IDENTITY};
use tegmen_host::{
    provider::HostCrypto,
    public_keys::PublicKeys as HostKeys,
    slab::{Capacity, Slab},
};

/// The clients of one server. A client is also called a member.
pub(crate) struct Fleet {
    crowd: Crowd,
    /// The received datagrams; `None` while they are processed.
    inbound: Option<Letters>,
    outbound: Letters,
    endpoint: Endpoint<Slab<()>, PublicKeys<ClientOnly, HostKeys>>,
    environment: Environment<HostCrypto>,
    begin: Instant,
    server: Address,
    /// The IPv4 address of the first member of this fleet, minus the address [`FIRST`].
    first: u32,
    /// The number of members in each network prefix.
    of_prefix: u32,
    peers: Vec<Option<PeerId>>,
}

/// An event at one client.
pub(crate) enum News {
    /// The session of this member is now established.
    Established(u32),
    /// The handshake or the session of this member has ended for this reason.
    Closed(u32, Fatal),
    /// The server has answered the request that has this token. The answer has this code.
    Answered(u32, [u8; 4], Code),
}

/// Size of the buffer for a datagram, in bytes.
const ROOM: usize = 1280;

impl Fleet {
    /// Makes `count` clients of `server`, with `of_prefix` clients in each /24 network. The first `skipped` networks
    /// are not used, so that another fleet can use them.
    pub(crate) fn new(
        server: SocketAddrV4,
        count: u32,
        (skipped, of_prefix): (u32, u32),
        config: Config,
    ) -> Result<Self, Failure> {
        let mut environment = Environment::new(HostCrypto::from_os().map_err(failure)?);
        let capacity = Capacity { peers: count as usize + 1, handshakes: count as usize + 1 };
        let role = PublicKeys { role: ClientOnly, keys: HostKeys::new(config.suites) };
        let endpoint = Endpoint::with_roles(
            &mut environment.at(tegmen::time::Instant::default()),
            Slab::new(capacity),
            config,
            role,
        );
        Ok(Self {
            crowd: Crowd::new(server, Duration::from_millis(1))?,
            inbound: Some(Letters::new()),
            outbound: Letters::new(),
            endpoint,
            environment,
            begin: Instant::now(),
            server: SocketAddr::V4(server).into(),
            first: skipped * 256,
            of_prefix,
            peers: vec![None; count as usize],
        })
    }

    /// Returns the IPv4 address of a member, minus the address [`FIRST`]. Each /24 network has 256 addresses, of which
    /// members use only the first `of_prefix`.
    const fn in_crowd(&self, member: u32) -> u32 {
        self.first + member / self.of_prefix * 256 + member % self.of_prefix
    }

    fn member(&self, in_crowd: u32) -> Option<u32> {
        let place = in_crowd.checked_sub(self.first)?;
        let member = place / 256 * self.of_prefix + place % 256;
        (place % 256 < self.of_prefix && (member as usize) < self.peers.len()).then_some(member)
    }

    fn path(&self, member: u32) -> Path {
        let ip = Ipv4Addr::from(FIRST + self.in_crowd(member));
        Path { local: SocketAddr::new(IpAddr::V4(ip), 1).into(), remote: self.server }
    }

    fn now(&self) -> tegmen::time::Instant {
        // Not at the start of the clock, where everything is due.
        tegmen::time::Instant::from_micros(1_000_000 + self.begin.elapsed().as_micros() as u64)
    }

    /// Begins a handshake of a member. The new handshake replaces an incomplete handshake of the same member.
    pub(crate) fn connect(&mut self, member: u32) -> Result<(), Failure> {
        let path = self.path(member);
        let now = self.now();
        let peer = self.endpoint.connect(&mut self.environment.at(now), &path).map_err(failure)?;
        self.peers[member as usize] = Some(peer);
        Ok(())
    }

    /// Sends a confirmable GET for the value at `path` in the session of a member. The request is never retransmitted.
    pub(crate) fn ask(&mut self, member: u32, message_id: u16, token: u32, path: &str) -> Result<(), Failure> {
        let Some(peer) = self.peers[member as usize] else { return Err(Failure::new("no session")) };
        let mut plain = [0; 128];
        let len = request(&mut plain, Code::GET, message_id, token, |builder| builder.path(path)).map_err(failure)?;
        let mut room = [0; 256];
        let mut frame = tegmen::buf::Frame::new(&mut room, MAX_HEADROOM);
        frame.append(&plain[..len]).map_err(failure)?;
        let now = self.now();
        self.endpoint.seal(&mut self.environment.at(now), peer, &mut frame).map_err(failure)?;
        let number = self.in_crowd(member);
        self.crowd.push(&mut self.outbound, number, |room| Ok(copied(frame.bytes(), room)))
    }

    /// Sends the datagrams that are due. Then waits up to a millisecond for datagrams, and processes the datagrams that
    /// have arrived. Calls `news` with each event at a client.
    pub(crate) fn turn(&mut self, mut news: impl FnMut(News)) -> Result<(), Failure> {
        self.poll(&mut news)?;
        self.crowd.send(&mut self.outbound)?;
        let mut inbound = self.inbound.take().unwrap_or_else(Letters::new);
        self.crowd.receive(&mut inbound)?;
        for (in_crowd, datagram) in inbound.iter() {
            if let Some(member) = self.member(in_crowd) {
                self.on_datagram(member, datagram, &mut news)?;
            }
        }
        self.inbound = Some(inbound);
        self.poll(&mut news)?;
        self.crowd.send(&mut self.outbound)
    }

    fn on_datagram(&mut self, member: u32, datagram: &[u8], news: &mut impl FnMut(News)) -> Result<(), Failure> {
        let (path, number, now) = (self.path(member), self.in_crowd(member), self.now());
        let (mut bytes, mut out) = ([0; ROOM], [0; ROOM]);
        let len = copied(datagram, &mut bytes);
        let mut records = Records::new(&mut bytes[..len]);
        loop {
            let cx = &mut self.environment.at(now);
            let mut event = match self.endpoint.handle(cx, &path, &mut records, &mut out) {
                None => return Ok(()),
                event => event,
            };
            while let Some(Event::Need(peer)) = event {
                let answer = match self.endpoint.need(peer) {
                    Some(Need::PskForServer { .. }) => {
                        Answer::Psk { identity: IDENTITY.as_bytes(), key: SECRET.as_bytes(), principal: Principal(0) }
                    }
                    // Who asks for certificates here wants nothing but to be answered.
                    _ => break,
                };
                event = self.endpoint.resume(&mut self.environment.at(now), peer, answer);
            }
            match event {
                Some(Event::Answer { len } | Event::Transmit { len, .. }) => {
                    self.crowd.push(&mut self.outbound, number, |room| Ok(copied(&out[..len.into()], room)))?;
                }
                Some(Event::Established(_)) => news(News::Established(member)),
                Some(Event::Closed { reason, .. }) => news(News::Closed(member, reason)),
                Some(Event::Message { bytes, .. }) => {
                    if let Ok(message) = MessageRef::parse(records.bytes(bytes))
                        && let Some(token) = message.token().first_chunk()
                    {
                        news(News::Answered(member, *token, message.code()));
                    }
                }
                _ => {}
            }
        }
    }

    fn poll(&mut self, news: &mut impl FnMut(News)) -> Result<(), Failure> {
        let mut out = [0; ROOM];
        let now = self.now();
        loop {
            let (peer, closed, len) = match self.endpoint.poll(&mut self.environment.at(now), &mut out) {
                None => return Ok(()),
                Some(Event::Transmit { peer, len }) => (peer, None, usize::from(len)),
                Some(Event::Closed { peer, reason }) => (peer, Some(reason), 0),
                Some(_) => continue,
            };
            let Some(local) = self.endpoint.peers.peer(peer).map(|peer| SocketAddr::from(peer.path().local)) else {
                continue;
            };
            let IpAddr::V4(ip) = local.ip() else { continue };
            let number = u32::from(ip).wrapping_sub(FIRST);
            match closed {
                Some(reason) => {
                    if let Some(member) = self.member(number) {
                        news(News::Closed(member, reason));
                    }
                }
                None => self.crowd.push(&mut self.outbound, number, |room| Ok(copied(&out[..len], room)))?,
            }
        }
    }
}

fn copied(bytes: &[u8], room: &mut [u8]) -> usize {
    let len = bytes.len().min(room.len());
    room[..len].copy_from_slice(&bytes[..len]);
    len
}

/// Returns the DTLS settings of clients that use a pre-shared key.
pub(crate) fn known() -> Config {
    Config { suites: Suites::CCM_8_THEN_GCM, ..Config::default() }
}

/// The pre-shared key of all clients. It is text, because libcoap's server accepts no binary key.
pub(crate) const SECRET: &str = "sixteen bytes it";

/// Returns the text of a credentials file that contains [`SECRET`].
pub(crate) fn credentials() -> String {
    format!("[[psk]]\nidentity = \"{IDENTITY}\"\nkey_text = \"{SECRET}\"\n")
}

/// The lowest IPv4 address that a client can have. All clients of all fleets have addresses from this one upwards.
const FIRST: u32 = u32::from_be_bytes([127, 1, 0, 0]);
