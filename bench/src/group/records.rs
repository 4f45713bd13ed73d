//! Compares records of a group with records of DTLS sessions. The contents and the tags of both kinds of records have
//! the same lengths. Each pass measures both kinds of records, and begins with another kind than the previous pass.
//!
//! One member exchanges records with [`MANY`] other members. Two successive records belong to different members. In the
//! same way, one DTLS endpoint exchanges records with [`MANY`] peers. All keys and states are established before the
//! measurement.

use crate::{
    failure::failure,
    limit::nanoseconds,
    ours::{Ours, path_at_server},
    report::{OURS, Report, Row, Samples},
};
use tegmen::{
    address::{Address, Path},
    axiom::{Association, Kept, Member, Opened, Proof, SenderId, Suite},
    buf::Frame,
    crypto::KEY_LEN,
    dtls::{Channel, CipherSuite, Config, Record, Records, Suites, record::ContentType},
    endpoint::HEADROOM,
    identity::PeerId,
};
use tegmen_bench_line::{Failure, Pair, Tally, Wire};
use tegmen_host::provider::HostCrypto;

/// Number of other members with which the measured member exchanges records.
pub(super) const MANY: usize = 64;
/// Lower limit for the rate of group records, divided by the rate of records of DTLS sessions.
const RECORDS_MIN: f64 = 0.9;
/// Lengths of the content, in bytes.
pub(super) const SIZES: [usize; 2] = [16, 64];
/// Number of turns in a pass. A turn is the smallest unit of the measurement: it seals and opens one record for each of
/// the [`MANY`] members.
const TURNS: u32 = 2_000;
/// Maximum length of a record, in bytes.
const ROOM: usize = 192;
const PORT: u16 = 5684;

/// The kind of records that members exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Traffic {
    /// Each of the other members sends a response to the measured member. The response is protected with the key of the
    /// member that sends it.
    Responses,
    /// Each of the other members sends a request to the measured member. The key of the group protects the request.
    Requests,
    /// The measured member sends one request, and each of the other members opens it.
    OneRequest,
}

impl Traffic {
    pub(super) fn said(self) -> String {
        match self {
            Self::Responses => format!("response of each of {MANY} listeners, seal + open"),
            Self::Requests => format!("request of each of {MANY} senders, seal + open"),
            Self::OneRequest => format!("one request to {MANY} listeners, sealed once, for each listener"),
        }
    }
}

/// Adds the rows for all cipher suites, content sizes and kinds of traffic to the report.
pub(super) fn rows(passes: usize, report: &mut Report) -> Result<(), Failure> {
    report.header.notes.push(format!(
        "records: one member speaks with {MANY} others, and each record is of another one than the record before, as with sessions; \
         all states are there; both ends in one thread, without a network; DTLS sessions have no CCM with 16 bytes of tag, so \
         they have GCM; no number depends on a seed, since only keys are random"
    ));
    let kinds = [
        (Suite::Ccm8, "CCM_8", Suites::CCM_8, CipherSuite::PSK_WITH_AES_128_CCM_8),
        (Suite::Ccm, "CCM", Suites::GCM, CipherSuite::PSK_WITH_AES_128_GCM_SHA256),
        (Suite::Gcm, "GCM", Suites::GCM, CipherSuite::PSK_WITH_AES_128_GCM_SHA256),
    ];
    for (suite, name, suites, channel) in kinds {
        let (mut sessions, mut channels) = (Sessions::new(suites)?, Channels::new(channel)?);
        for size in SIZES {
            let content = vec![0x5a; size];
            for traffic in [Traffic::Responses, Traffic::Requests, Traffic::OneRequest] {
                let operation = format!("{}, {size} B, {name}", traffic.said());
                eprintln!("{operation}");
                let mut samples = Samples::new(operation, "1/CPU s", true);
                let mut group = Group::<KEY_LEN>::new(suite)?;
                for pass in 0..passes {
                    for turn in 0..3 {
                        let (name, rate) = match (pass + turn) % 3 {
                            0 => (OURS, rate(|| group.turn(traffic, &content))?),
                            1 => (Sessions::NAME, rate(|| sessions.turn(traffic, &content))?),
                            _ => (Channels::NAME, rate(|| channels.turn(&content))?),
                        };
                        samples.push(name, rate);
                    }
                }
                report.rows.extend(samples.rows().into_iter().map(|row| judge(row, traffic)));
            }
        }
    }
    Ok(())
}

/// Sets the minimum rate of group records in a row that compares group records with sessions. Two kinds of rows have no
/// minimum. In rows with [`Traffic::OneRequest`] the measured member seals fewer records than the sessions. In rows
/// that compare the group with [`Channels`], only the group searches for the sender of a record.
fn judge(row: Row, traffic: Traffic) -> Row {
    if traffic == Traffic::OneRequest || row.peer_name != Sessions::NAME {
        return row;
    }
    Row { judged: row.judge_bound(RECORDS_MIN), ..row }
}

/// Returns the number of records for each CPU second, measured over [`TURNS`] calls of `turn`. Each call seals and
/// opens one record for each of the [`MANY`] members.
pub(super) fn rate(mut turn: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    turn()?;
    let spent = nanoseconds(|| (0..TURNS).try_for_each(|_| turn()))?;
    Ok(MANY as f64 * f64::from(TURNS) * 1e9 / spent)
}

/// One datagram for each of the [`MANY`] members: a buffer, and the length of the datagram in this buffer, in bytes.
struct Datagrams(Vec<([u8; ROOM], usize)>);

impl Datagrams {
    fn new() -> Self {
        Self(vec![([0; ROOM], 0); MANY])
    }

    /// Opens the datagram of each of the [`MANY`] members. `open` opens one datagram, and returns true if its content
    /// is `content`. This function fails if `open` returns false.
    #[inline]
    fn open_each(
        &mut self,
        content: &[u8],
        mut open: impl FnMut(usize, &mut [u8]) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        for (at, (datagram, len)) in self.0.iter_mut().enumerate() {
            if !open(at, &mut datagram[..*len])? {
                return Err(Failure::new(format!("{} bytes came out changed", content.len())));
            }
        }
        Ok(())
    }
}

/// Seals a record with this content into the buffer, and sets the length of the datagram.
#[inline]
fn sealed(
    (place, len): &mut ([u8; ROOM], usize),
    headroom: usize,
    content: &[u8],
    seal: impl FnOnce(&mut Frame<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut frame = Frame::new(place, headroom);
    frame.append(content).map_err(failure)?;
    seal(&mut frame)?;
    *len = frame.finish().len();
    Ok(())
}

/// The measured member of a group, and its [`MANY`] partners. A partner is a member that has already exchanged a
/// request and a response with the measured member. `KEY` is the length of a key in bytes.
pub(super) struct Group<const KEY: usize> {
    one: Box<Member<MANY, MANY, KEY>>,
    many: Vec<Member<1, 1, KEY>>,
    /// The addresses of the [`MANY`] partners of the measured member.
    addresses: Vec<Address>,
    /// The SenderID of the measured member. All partners know this SenderID.
    sender: SenderId,
    /// The cryptographic provider of the measured member, and then the one that all partners use.
    cryptos: [HostCrypto; 2],
    datagrams: Datagrams,
}

impl<const KEY: usize> Group<KEY> {
    pub(super) fn new(suite: Suite) -> Result<Self, Failure> {
        let mut cryptos = [HostCrypto::from_os().map_err(failure)?, HostCrypto::from_os().map_err(failure)?];
        let address = |number: usize| Address::from(std::net::SocketAddr::from(([10, 0, 0, number as u8], PORT)));
        let association = |number: usize| Association {
            group_id: 1,
            group: std::net::SocketAddr::from(([239, 0, 0, 1], PORT)).into(),
            suite,
            epoch: 1,
            senders: MANY as u16 + 1,
            sender_id: Some(number as u8),
            address: address(number).ip,
            master_secret: &[7; 48],
            client_random: &[8; 32],
            server_random: &[9; 32],
        };
        let mut one = Box::new(Member::new(&mut cryptos[0], &association(0), &Kept::default()).map_err(failure)?);
        one.extend(&one.reserve(u64::MAX, u64::MAX));
        let mut many = Vec::new();
        for number in 1..=MANY {
            let member = Member::new(&mut cryptos[1], &association(number), &Kept::default());
            let mut member: Member<1, 1, KEY> = member.map_err(failure)?;
            member.extend(&member.reserve(u64::MAX, u64::MAX));
            // The response to a join names them.
            member.know_sender::<HostCrypto>(0, 0).map_err(failure)?;
            one.know_sender::<HostCrypto>(number as u8, 0).map_err(failure)?;
            many.push(member);
        }
        let mut datagrams = Datagrams::new();
        let mut tsn = 0;
        let request = &mut datagrams.0[0];
        sealed(request, one.overhead().0, b"", |frame| {
            tsn = one.seal_request(&mut cryptos[0], frame).map_err(failure)?;
            Ok(())
        })?;
        let mut sender = None;
        for member in &mut many {
            let (mut copy, len) = *request;
            let mut records = Records::new(&mut copy[..len]);
            sender = Some(member.open_request(&mut cryptos[1], record(&mut records)?).map_err(failure)?.0);
        }
        let sender = sender.ok_or_else(|| Failure::new("nobody opened the request"))?;
        let addresses = (1..=MANY).map(address).collect();
        let mut group = Self { one, many, addresses, sender, cryptos, datagrams };
        group.seal_responses(b"")?;
        group.first_contact(tsn)?;
        Ok(group)
    }

    /// Seals and opens one record for each of the other members. `traffic` selects the sender of the record. With
    /// [`Traffic::OneRequest`] only one record is sealed, and each of the other members opens it.
    pub(super) fn turn(&mut self, traffic: Traffic, content: &[u8]) -> Result<(), Failure> {
        match traffic {
            Traffic::Responses => {
                self.seal_responses(content)?;
                let Self { one, addresses, cryptos: [crypto, _], datagrams, .. } = self;
                datagrams.open_each(content, |at, datagram| {
                    let mut records = Records::new(datagram);
                    let opened = one.open_response(crypto, &addresses[at], record(&mut records)?);
                    Ok(is_fresh(&opened.map_err(failure)?, content))
                })
            }
            Traffic::Requests => {
                let Self { one, many, cryptos: [crypto, of_many], datagrams, .. } = self;
                for (member, place) in many.iter_mut().zip(&mut datagrams.0) {
                    sealed(place, member.overhead().0, content, |frame| {
                        member.seal_request(of_many, frame).map(drop).map_err(failure)
                    })?;
                }
                datagrams.open_each(content, |_, datagram| {
                    let mut records = Records::new(datagram);
                    let (_, opened) = one.open_request(crypto, record(&mut records)?).map_err(failure)?;
                    Ok(is_fresh(&opened, content))
                })
            }
            Traffic::OneRequest => {
                let Self { one, many, cryptos: [crypto, of_many], datagrams, .. } = self;
                let [first, others @ ..] = datagrams.0.as_mut_slice() else { return Ok(()) };
                sealed(first, one.overhead().0, content, |frame| {
                    one.seal_request(crypto, frame).map(drop).map_err(failure)
                })?;
                // The network copies it.
                others.fill(*first);
                datagrams.open_each(content, |at, datagram| {
                    let mut records = Records::new(datagram);
                    let (_, opened) = many[at].open_request(of_many, record(&mut records)?).map_err(failure)?;
                    Ok(is_fresh(&opened, content))
                })
            }
        }
    }

    fn seal_responses(&mut self, content: &[u8]) -> Result<(), Failure> {
        let Self { many, sender, cryptos: [_, crypto], datagrams, .. } = self;
        for (member, place) in many.iter_mut().zip(&mut datagrams.0) {
            sealed(place, member.overhead().0, content, |frame| {
                member.seal_response(crypto, *sender, frame).map_err(failure)
            })?;
        }
        Ok(())
    }

    /// Lets the measured member open the first response of each other member. For each response the measured member
    /// then stores the state of the member that sent it.
    fn first_contact(&mut self, tsn: u64) -> Result<(), Failure> {
        let Self { one, addresses, cryptos: [crypto, _], datagrams, .. } = self;
        datagrams.open_each(b"", |at, datagram| {
            let mut records = Records::new(datagram);
            match one.open_response(crypto, &addresses[at], record(&mut records)?).map_err(failure)? {
                Opened::Unverified(_, unverified) => {
                    one.accept::<HostCrypto>(unverified, Proof::AnswerTo(tsn)).map_err(failure).map(|()| true)
                }
                _ => Ok(false),
            }
        })
    }
}

/// Returns true if the record is not a replay and has this content.
#[inline]
fn is_fresh(opened: &Opened<'_>, content: &[u8]) -> bool {
    matches!(opened, Opened::Fresh(opened) if **opened == *content)
}

/// Returns the first record of a datagram.
#[inline]
fn record<'r>(records: &'r mut Records<'_>) -> Result<Record<'r>, Failure> {
    records.next_record().ok_or_else(|| Failure::new("no record"))?.map_err(failure)
}

/// DTLS sessions with [`MANY`] peers. All clients share one endpoint, and all servers share another endpoint.
struct Sessions {
    stack: Ours,
    /// The sessions at the endpoint of the clients, and then the sessions at the endpoint of the servers.
    peers: [Vec<PeerId>; 2],
    /// The paths of the sessions at the endpoint of the clients, and then those at the endpoint of the servers.
    paths: [Vec<Path>; 2],
    datagrams: Datagrams,
}

impl Sessions {
    const NAME: &str = "DTLS sessions";

    fn new(suites: Suites) -> Result<Self, Failure> {
        let mut stack = Ours::new(Config { suites, ..Config::default() })?;
        let (mut wire, mut tally) = (Wire::default(), Tally::default());
        let (mut peers, mut paths) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for number in 1..=MANY as u32 {
            let mut pair = Pair::establish(&mut stack, &mut wire, &mut tally)?;
            pair.transfer(&mut wire, &mut tally, b"first", &mut [0; 8])?;
            let at_server = path_at_server(number);
            paths[0].push(Path { local: at_server.remote, remote: at_server.local });
            paths[1].push(at_server);
            peers[0].push(pair.client.keep()?);
            peers[1].push(pair.server.keep()?);
        }
        Ok(Self { stack, peers, paths, datagrams: Datagrams::new() })
    }

    /// Seals and opens one record of each session. `traffic` selects whether the client or the server seals it.
    fn turn(&mut self, traffic: Traffic, content: &[u8]) -> Result<(), Failure> {
        // The many are the clients.
        let (from, to) = if traffic == Traffic::OneRequest { (1, 0) } else { (0, 1) };
        let sides = [&self.stack.client, &self.stack.server];
        {
            let node = &mut sides[from].borrow_mut().node;
            for (peer, place) in self.peers[from].iter().zip(&mut self.datagrams.0) {
                sealed(place, HEADROOM, content, |frame| node.seal_frame(*peer, frame))?;
            }
        }
        let node = &mut sides[to].borrow_mut().node;
        let paths = &self.paths[to];
        self.datagrams.open_each(content, |at, datagram| Ok(*node.open(&paths[at], datagram)? == *content))
    }
}

/// The keys and record numbers of sessions with [`MANY`] peers. There is no endpoint, so nothing searches for the
/// session of a record.
struct Channels {
    pairs: Vec<[Channel; 2]>,
    cryptos: [HostCrypto; 2],
    datagrams: Datagrams,
}

impl Channels {
    const NAME: &str = "DTLS records alone";

    fn new(suite: CipherSuite) -> Result<Self, Failure> {
        let cryptos = [HostCrypto::from_os().map_err(failure)?, HostCrypto::from_os().map_err(failure)?];
        let mut pairs = Vec::new();
        for number in 0..MANY as u8 {
            let block: Vec<u8> = (0..40).map(|at: u8| at.wrapping_mul(number.wrapping_add(3))).collect();
            let end = |client| suite.channel(false, &block, client).ok_or_else(|| Failure::new("no channel"));
            pairs.push([end(true)?, end(false)?]);
        }
        Ok(Self { pairs, cryptos, datagrams: Datagrams::new() })
    }

    /// Seals and opens one record of each session.
    fn turn(&mut self, content: &[u8]) -> Result<(), Failure> {
        let Self { pairs, cryptos: [crypto, of_many], datagrams } = self;
        for ([channel, _], place) in pairs.iter_mut().zip(&mut datagrams.0) {
            sealed(place, HEADROOM, content, |frame| {
                channel.seal(of_many, ContentType::APPLICATION_DATA, frame).map_err(failure)
            })?;
        }
        datagrams.open_each(content, |at, datagram| {
            let mut records = Records::new(datagram);
            Ok(*pairs[at][1].open(crypto, record(&mut records)?).map_err(failure)? == *content)
        })
    }
}
