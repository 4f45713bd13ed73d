//! Nodes of a group with Group OSCORE (RFC 10021). One node sends each request to all members, and each member
//! responds. The network loses, repeats and delays messages. An attacker records, repeats, redirects and changes
//! messages. Members restart without their replay windows.

use super::Random;
use std::collections::{HashMap, HashSet};
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::coap::handler::Policy;
use tegmen::coap::{
    Authorized, Builder, Code, Exchanges, Fixed, Handler, MessageRef, MessageType, OptionNumber, Request, RequestId,
    Response, Token,
};
use tegmen::crypto::{Crypto, Curve, RustCrypto, curves};
use tegmen::cx::Environment;
use tegmen::dtls::{Both, Config, Extended};
use tegmen::endpoint::{Endpoint, Event, PeerArray};
use tegmen::identity::{Identity, PeerId, Principal, Protection};
use tegmen::node::{
    Application, Features, GroupRequestArray, LeisureArray, Node, Opened, Oscore, Parts, RequestHead, SendError,
};
use tegmen::oscore::group::{
    Algorithms, GroupContext, GroupNonce, GroupParameters, GroupPending, GroupRequest, Mode, Ourselves, Recipient,
    Replies,
};
use tegmen::oscore::{Id, OscoreOption, ProtectError, ReplayWindow, UnprotectError, Unprotected};
use tegmen::secret::Secret;
use tegmen::time::{Duration, Instant};

/// The member that sends the requests.
const ASKER: u8 = 0;
const MEMBERS: u8 = 3;
const GROUP_MANAGER: u8 = 9;
const LEISURE: Duration = Duration::from_secs(5);
/// Number of requests to the group in a run.
const REQUESTS: u32 = 8;
/// Maximum number of bytes of a datagram.
const DATAGRAM: usize = 300;

type Context = GroupContext<Vec<u8>, 320>;

fn private_key(number: u8) -> [u8; 32] {
    [number + 1; 32]
}

fn credential(number: u8) -> Vec<u8> {
    let spki = curves::public_key_of(&private_key(number)).unwrap();
    let (x, y) = spki[spki.len() - 64..].split_at(32);
    let head = [0xa1, 0x08, 0xa1, 0x01, 0xa4, 0x01, 0x02, 0x20, 0x01, 0x21, 0x58, 0x20];
    [&head[..], x, &[0x22, 0x58, 0x20], y].concat()
}

fn id(number: u8) -> Id {
    Id::new(&[number]).unwrap()
}

/// The security context of one member, with a separate crypto provider.
struct Member {
    context: Context,
    others: Vec<Recipient<Vec<u8>>>,
    crypto: RustCrypto,
    asked: Vec<(RequestId, GroupPending<Vec<Replies>>)>,
    /// The member that the next request is for; `None` if it is for all members.
    to: Option<u8>,
}

impl Member {
    fn new(number: u8, seed: u64, kept: u64, window: Option<&ReplayWindow>) -> Self {
        let parameters = GroupParameters {
            master_secret: &[7; 16],
            master_salt: &[],
            gid: b"lights",
            algorithms: Algorithms::both(Curve::P256),
        };
        let private_key = Secret::new(private_key(number));
        let ourselves = Ourselves { id: id(number), private_key, credential: credential(number), kept };
        let mut context = Context::new::<RustCrypto>(&parameters, ourselves, credential(GROUP_MANAGER)).unwrap();
        context.lease_mut().extend(kept + 100);
        let mut crypto = RustCrypto::new(random_of(seed, number));
        let others = (0..=MEMBERS)
            .filter(|other| *other != number)
            .map(|other| context.recipient(&mut crypto, id(other), credential(other), window.cloned()).unwrap());
        let others = others.collect();
        Self { context, others, crypto, asked: Vec::new(), to: None }
    }
}

/// Returns the principal of a member.
fn principal_of(id: &Id) -> Principal {
    Principal(100 + u32::from(id.as_bytes()[0]))
}

impl Oscore for Member {
    const OVERHEAD: usize = Context::OVERHEAD;
    const GROUPS: bool = true;
    type Exchange = GroupRequest;
    type Whole = [u8; 0];

    fn is_of_group(&self, request: &MessageRef<'_>) -> bool {
        let option = request.option(OptionNumber::OSCORE).and_then(|option| OscoreOption::parse_in_group(option).ok());
        option.is_some_and(|option| self.context.is_named_by(&option))
    }

    fn unprotect_request<'r, C: Crypto>(
        &mut self,
        _: &mut C,
        _: PeerId,
        datagram: &'r mut [u8],
    ) -> Result<Opened<'r, GroupRequest>, UnprotectError> {
        let Self { context, others, crypto, .. } = self;
        Ok(match context.unprotect_request(crypto, others.as_mut_slice(), datagram)? {
            Unprotected::Fresh(message, nonce) => {
                let exchange = nonce.request();
                Opened::Fresh { message, principal: principal_of(exchange.client()), exchange, nonce }
            }
            Unprotected::Unverified(message, exchange) => {
                Opened::Unverified { message: Some(message), principal: principal_of(exchange.client()), exchange }
            }
        })
    }

    fn protect_response<C: Crypto>(
        &mut self,
        _: &mut C,
        exchange: &GroupRequest,
        nonce: Option<GroupNonce>,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let Self { context, others, crypto, .. } = self;
        let mode = match exchange.is_signed() {
            true => Mode::Group,
            false => Mode::Pairwise(others.iter_mut().find(|other| other.id() == exchange.client()).unwrap()),
        };
        context.protect_response(crypto, mode, exchange, nonce, frame)
    }

    fn write_challenge<C: Crypto>(
        &mut self,
        _: &mut C,
        exchange: &GroupRequest,
        head: (MessageType, u16),
        token: &Token,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let Self { context, others, crypto, .. } = self;
        let recipient = others.iter_mut().find(|other| other.id() == exchange.client()).unwrap();
        context.write_challenge(crypto, recipient, exchange, head, token, frame)
    }

    fn protect_group_request<C: Crypto>(
        &mut self,
        _: &mut C,
        request: RequestId,
        frame: &mut Frame<'_>,
    ) -> Result<(), SendError> {
        let Self { context, others, crypto, asked, to } = self;
        let mode = match to.take() {
            None => Mode::Group,
            Some(to) => Mode::Pairwise(others.iter_mut().find(|other| *other.id() == id(to)).unwrap()),
        };
        let pending = context.protect_request(crypto, mode, vec![Replies::default(); MEMBERS.into()], frame)?;
        asked.push((request, pending));
        Ok(())
    }

    fn is_group_protected(&self, request: RequestId) -> bool {
        self.asked.iter().any(|(of, _)| *of == request)
    }

    fn unprotect_member<'r, C: Crypto>(
        &mut self,
        _: &mut C,
        request: RequestId,
        datagram: &'r mut [u8],
    ) -> Result<(MessageRef<'r>, Principal), UnprotectError> {
        let Self { context, others, crypto, asked, .. } = self;
        let (_, pending) = asked.iter_mut().find(|(of, _)| *of == request).ok_or(UnprotectError::UnknownContext)?;
        let (message, member) = context.unprotect_response(crypto, others.as_mut_slice(), pending, datagram)?;
        Ok((message, principal_of(&member)))
    }
}

fn random_of(seed: u64, number: u8) -> [u8; 32] {
    let mut bytes = [number; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes
}

fn address(number: u8) -> Address {
    Address { ip: [10 + number; 16], port: 5683, scope: 0 }
}

/// Allows the protected requests of the asking node, and no other request.
struct MembersOnly;

impl Policy for MembersOnly {
    fn decide(&self, request: &Request<'_>) -> Option<bool> {
        Some(request.identity == Identity { principal: principal_of(&id(ASKER)), protection: Protection::Oscore })
    }
}

/// A lamp. It responds with the payload of the request and the number of the lamp, and counts the requests that it
/// executes.
struct Lamp {
    number: u8,
    executed: HashMap<u32, u32>,
}

impl Handler for Lamp {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let payload = request.message().payload().to_vec();
        *self.executed.entry(u32::from_be_bytes(payload[..4].try_into().unwrap())).or_default() += 1;
        response.set_code(Code::CHANGED);
        response.payload(&[&payload[..], &[self.number]].concat())
    }
}

impl Application<GroupRequest> for Lamp {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&MembersOnly, self))
    }
}

type Answers = Parts<(), (), Member, (), (), LeisureArray<6, DATAGRAM>>;
type Asks = Parts<(), (), Member, (), (), (), GroupRequestArray<8, 8>>;
type One<F> = Node<PeerArray<Exchanges<Fixed<3, DATAGRAM, 32, 1024>>, 4, 1>, Extended<Both>, F>;

struct End<F: Features, A> {
    node: One<F>,
    environment: Environment<RustCrypto>,
    app: A,
}

impl<F: Features, A> End<F, A> {
    fn new(number: u8, seed: u64, now: Instant, features: F, app: A) -> Self {
        let mut environment = Environment::new(RustCrypto::new(random_of(seed, 50 + number)));
        let endpoint = Endpoint::new(&mut environment.at(now), PeerArray::new(), Config::default());
        Self { node: Node::with_features(endpoint, Fixed, features), environment, app }
    }
}

fn lamp(number: u8, seed: u64, now: Instant) -> End<Answers, Lamp> {
    let features = Parts {
        oscore: Member::new(number, seed, 0, Some(&ReplayWindow::default())),
        leisure: LeisureArray::new(LEISURE),
        queue: (),
        pacing: (),
        observers: (),
        bodies: (),
        group_requests: (),
        groups: (),
    };
    End::new(number, seed, now, features, Lamp { number, executed: HashMap::new() })
}

/// The application of the node that sends the requests.
#[derive(Default)]
struct Asking {
    /// For each request: the number in its payload, the number of the request that it repeats, and the member that it
    /// is for (`None` for all members).
    asked: HashMap<RequestId, (u32, u32, Option<u8>)>,
    /// For each response that arrived: the number in the payload of its request, and the member that sent the response.
    reported: HashSet<(u32, u8)>,
    /// For each response that arrived: the number of the first request, which a later request may have repeated, and
    /// the member that sent the response.
    answered: HashSet<(u32, u8)>,
    /// For each challenge: the member that sent it, the Echo value, and the number of the first request.
    challenges: Vec<(u8, Vec<u8>, u32)>,
}

impl Application<GroupRequest> for Asking {
    fn on_member_response(&mut self, request: RequestId, (_, who): (&Path, Identity), response: &MessageRef<'_>) {
        let (number, first, to) = self.asked[&request];
        assert_eq!(who.protection, Protection::Oscore);
        let member = (who.principal.0 - 100) as u8;
        if let Some(echo) = response.option(OptionNumber::ECHO) {
            assert_eq!(response.code(), Code::UNAUTHORIZED);
            return self.challenges.push((member, echo.to_vec(), first));
        }
        let expected = [&number.to_be_bytes()[..], &[member]].concat();
        assert_eq!(response.payload(), expected, "a response to another request, or of another member");
        assert!(to.is_none_or(|to| to == member));
        assert!(self.reported.insert((number, member)), "two responses of one member");
        self.answered.insert((first, member));
    }
}

/// A message on the network: time of arrival, number, receiver, sender, true if it was sent to the group, bytes.
type Flying = (Instant, usize, u8, u8, bool, Vec<u8>);

struct Field {
    now: Instant,
    random: Random,
    loss: u64,
    asker: End<Asks, Asking>,
    lamps: Vec<End<Answers, Lamp>>,
    flying: Vec<Flying>,
    recorded: Vec<(u8, u8, bool, Vec<u8>)>,
    order: usize,
    seed: u64,
    restarts: u32,
    /// Number of unprotected error responses.
    refused: u32,
    /// Number of requests to the group.
    numbers: u32,
    asks: u32,
}

impl Field {
    fn new(seed: u64) -> Self {
        let now = Instant::from_micros(5_000_000);
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let loss = if seed.is_multiple_of(3) { 0 } else { random.below(40) };
        let features = Parts {
            oscore: Member::new(ASKER, seed, 0, Some(&ReplayWindow::default())),
            group_requests: GroupRequestArray::default(),
            queue: (),
            pacing: (),
            observers: (),
            bodies: (),
            leisure: (),
            groups: (),
        };
        Self {
            now,
            random,
            loss,
            asker: End::new(ASKER, seed, now, features, Asking::default()),
            lamps: (1..=MEMBERS).map(|number| lamp(number, seed, now)).collect(),
            flying: Vec::new(),
            recorded: Vec::new(),
            order: 0,
            seed,
            restarts: 0,
            refused: 0,
            numbers: 0,
            asks: 0,
        }
    }

    fn launch(&mut self, (to, from, to_group): (u8, u8, bool), datagram: &[u8]) {
        self.recorded.push((to, from, to_group, datagram.to_vec()));
        if self.random.below(100) < self.loss {
            return;
        }
        for _ in 0..if self.random.below(6) == 0 { 2 } else { 1 } {
            let millis = if self.random.below(6) == 0 { self.random.below(1500) } else { 10 + self.random.below(30) };
            self.order += 1;
            let at = self.now.after(Duration::from_millis(millis));
            self.flying.push((at, self.order, to, from, to_group, datagram.to_vec()));
        }
    }

    /// Sends a request to all members, or in the pairwise mode to one member with the Echo value of its challenge.
    fn ask(&mut self, first: u32, to: Option<(u8, &[u8])>) {
        self.asks += 1;
        let number = if to.is_none() { first } else { 1000 + self.asks };
        self.asker.node.features.oscore.to = to.map(|(member, _)| member);
        let (mut out, until) = ([0; DATAGRAM], self.now.after(Duration::from_secs(20)));
        let write = |builder: &mut Builder<'_, '_>| {
            builder.path("on")?;
            if let Some((_, echo)) = to {
                builder.option(OptionNumber::ECHO, echo)?;
            }
            builder.payload(&number.to_be_bytes())
        };
        let cx = &mut self.asker.environment.at(self.now);
        let head = RequestHead::new(Code::POST).with_oscore();
        let Ok((request, len)) = self.asker.node.request_group(cx, until, head, write, &mut out) else { return };
        let shown = MessageRef::parse(&out[..len]).unwrap();
        assert_eq!((shown.code(), shown.message_type()), (Code::POST, MessageType::NonConfirmable));
        self.asker.app.asked.insert(request, (number, first, to.map(|(member, _)| member)));
        match to {
            Some((member, _)) => self.launch((member, ASKER, false), &out[..len]),
            None => (1..=MEMBERS).for_each(|member| self.launch((member, ASKER, true), &out[..len])),
        }
    }

    /// Lets the attacker repeat, redirect or change a message, or respond in plaintext.
    fn attack(&mut self) {
        let at = self.random.below(1 + self.recorded.len() as u64) as usize;
        let Some((mut to, mut from, mut to_group, mut datagram)) = self.recorded.get(at).cloned() else { return };
        match self.random.below(4) {
            0 => {}
            1 => (to, from) = (self.random.below(4) as u8, self.random.below(4) as u8),
            2 => {
                let (at, bit) = (self.random.below(datagram.len() as u64) as usize, self.random.below(8));
                datagram[at] ^= 1 << bit;
            }
            _ => {
                let Ok(message) = MessageRef::parse(&datagram) else { return };
                let (token, mut bytes) = (message.token().to_vec(), [0; 64]);
                let mut frame = Frame::new(&mut bytes, 0);
                let head = MessageType::NonConfirmable;
                Builder::new(&mut frame, head, Code::CHANGED, 77, &token).unwrap().payload(&[0, 0, 0, 0, 1]).unwrap();
                datagram = frame.bytes().to_vec();
                (to, from, to_group) = (ASKER, 1 + self.random.below(3) as u8, false);
            }
        }
        self.order += 1;
        self.flying.push((self.now, self.order, to, from, to_group, datagram));
    }

    fn arrive(&mut self, (to, from, to_group): (u8, u8, bool), mut datagram: Vec<u8>) {
        let (path, mut out) = (Path { local: address(to), remote: address(from) }, [0; DATAGRAM]);
        let event = if to == ASKER {
            let End { node, environment, app } = &mut self.asker;
            node.handle_plain(&mut environment.at(self.now), &path, &mut datagram, app, &mut out)
        } else {
            let End { node, environment, app } = &mut self.lamps[usize::from(to) - 1];
            let cx = &mut environment.at(self.now);
            if to_group {
                return node.handle_group(cx, &path, &mut datagram, app, &mut out);
            }
            node.handle_plain(cx, &path, &mut datagram, app, &mut out)
        };
        if let Some(Event::Transmit { len, .. } | Event::Answer { len }) = event {
            let shown = MessageRef::parse(&out[..len.into()]).unwrap();
            if shown.code().is_response() && shown.option(OptionNumber::OSCORE).is_none() {
                // The answer to a request to one node that does not open.
                assert!(!shown.code().is_success());
                self.refused += 1;
            }
            self.launch((from, to, false), &out[..len.into()]);
        }
    }

    /// Sends requests to the group at intervals, and advances the clock until nothing more can happen.
    fn run(&mut self) {
        let mut next = self.now;
        loop {
            if next <= self.now && self.numbers < REQUESTS {
                next = self.now.after(Duration::from_millis(100 + self.random.below(8000)));
                self.numbers += 1;
                self.ask(self.numbers, None);
                if self.random.below(6) == 0 {
                    self.restart();
                }
            }
            if self.random.below(2) == 0 && self.numbers < REQUESTS {
                self.attack();
            }
            while let Some((member, echo, number)) = self.asker.app.challenges.pop() {
                self.ask(number, Some((member, &echo)));
            }
            for at in 0..self.lamps.len() {
                self.poll(at);
            }
            let alarms = self.lamps.iter().filter_map(|lamp| lamp.node.endpoint.next_alarm());
            let arrivals = self.flying.iter().map(|flying| flying.0);
            let ask = (self.numbers < REQUESTS).then_some(next);
            let Some(at) = alarms.chain(arrivals).chain(ask).min().filter(|at| *at < Instant::NEVER) else { return };
            self.now = self.now.max(at);
            self.flying.sort();
            while self.flying.first().is_some_and(|flying| flying.0 <= self.now) {
                let (_, _, to, from, to_group, datagram) = self.flying.remove(0);
                self.arrive((to, from, to_group), datagram);
            }
        }
    }

    /// Simulates a power cut, after which a member has lost its replay windows.
    fn restart(&mut self) {
        let number = 1 + self.random.below(MEMBERS.into()) as u8;
        let lamp = &mut self.lamps[usize::from(number) - 1];
        let kept = lamp.node.features.oscore.context.lease().end();
        lamp.node.features.oscore = Member::new(number, self.seed + 1, kept, None);
        self.restarts += 1;
    }

    fn poll(&mut self, at: usize) {
        loop {
            let (mut out, End { node, environment, app }) = ([0; DATAGRAM], &mut self.lamps[at]);
            let Some(event) = node.poll(&mut environment.at(self.now), app, &mut out) else { return };
            let Event::Transmit { len, .. } = event else { panic!("{event:?}") };
            let shown = MessageRef::parse(&out[..len.into()]).unwrap();
            assert!(shown.option(OptionNumber::OSCORE).is_some(), "an answer to a group in clear");
            self.launch((ASKER, at as u8 + 1, false), &out[..len.into()]);
        }
    }
}

/// Runs only a hundredth of `TEGMEN_SEEDS` seeds, because the signatures of the messages of the group mode need much
/// time.
#[test]
fn each_member_answers_a_protected_request_to_its_group_once() {
    let seeds = std::env::var("TEGMEN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2000) / 100;
    let (mut answered, mut restarts, mut refused) = (0, 0, 0);
    for seed in 0..seeds {
        let mut field = Field::new(seed);
        field.run();
        for lamp in &field.lamps {
            assert!(lamp.app.executed.values().all(|times| *times == 1), "seed {seed}: a request was executed twice");
        }
        if field.loss == 0 && field.restarts == 0 {
            let all = (field.numbers * u32::from(MEMBERS)) as usize;
            assert_eq!(field.asker.app.answered.len(), all, "seed {seed}: a member did not answer");
        }
        answered += field.asker.app.answered.len();
        restarts += field.restarts;
        refused += field.refused;
    }
    assert!(answered > seeds as usize * 8, "{answered} answers");
    assert!(restarts > 0 && refused > 0);
}

/// A member that lost its replay windows delivers a request only after a challenge.
#[test]
fn a_member_without_its_window_challenges_the_sender_of_a_request_to_its_group() {
    let mut field = Field::new(0);
    field.lamps[1].node.features.oscore = Member::new(2, 7, 100, None);
    field.numbers = REQUESTS - 1;
    field.run();
    assert_eq!(field.lamps[1].app.executed, HashMap::from([(1002, 1)]));
    assert_eq!(field.asker.app.answered, (1..=MEMBERS).map(|member| (REQUESTS, member)).collect());
    // Two requests: to all members, and to this member with the Echo value.
    assert_eq!(field.asker.app.asked.len(), 2);
}

/// If a request to a group does not decrypt, the node drops it without a response. Otherwise all members would respond.
#[test]
fn a_request_to_a_group_that_does_not_open_has_no_response() {
    let mut field = Field::new(0);
    field.ask(1, None);
    let (_, _, _, datagram) = field.recorded[0].clone();
    let gid_at = datagram.windows(6).position(|bytes| bytes == b"lights").unwrap();
    let (mut changed, mut of_another_group, mut confirmable) = (datagram.clone(), datagram.clone(), datagram.clone());
    *changed.last_mut().unwrap() ^= 1;
    of_another_group[gid_at] ^= 1;
    confirmable[0] &= 0xcf;
    field.flying.clear();
    for wrong in [changed, of_another_group, confirmable] {
        field.arrive((1, ASKER, true), wrong);
    }
    field.numbers = REQUESTS;
    field.run();
    assert!(field.lamps[0].app.executed.is_empty());
    assert_eq!(field.recorded.len(), usize::from(MEMBERS), "a response");
    field.arrive((1, ASKER, true), datagram);
    field.run();
    assert_eq!(field.lamps[0].app.executed, HashMap::from([(1, 1)]));
    assert_eq!(field.asker.app.reported, HashSet::from([(1, 1)]));
}
