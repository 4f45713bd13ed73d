//! The part of the management protocol of NFD that clients need: routes, strategies and status.
//!
//! A command is an Interest `/localhost/nfd/MODULE/VERB/PARAMETERS`. The answer is a Data packet with a
//! ControlResponse. A dataset is a list, for example of all routes, which a client fetches in segments. Commands of the
//! module `rib` have the same effect as commands of the module `fib`: each registered route becomes a next hop of its
//! prefix.

use crate::tables::HostFib;
use std::fmt::Write as _;
use tegmen_base::buf::{Full, Writer};
use tegmen_ndn::tables::{FaceId, NextHop, Strategy};
use tegmen_ndn::tlv::{self, Elements, Type};
use tegmen_ndn::{Error, Name};

const CONTROL_RESPONSE: Type = Type(0x65);
const STATUS_CODE: Type = Type(0x66);
const STATUS_TEXT: Type = Type(0x67);
const CONTROL_PARAMETERS: Type = Type(0x68);
const FACE_ID: Type = Type(0x69);
const COST: Type = Type(0x6a);
const STRATEGY: Type = Type(0x6b);
const FLAGS: Type = Type(0x6c);
const ORIGIN: Type = Type(0x6f);
const URI: Type = Type(0x72);
const DATASET: Type = Type(0x80);
const LOCAL_URI: Type = Type(0x81);
const ROUTE: Type = Type(0x81);
const FACE_SCOPE: Type = Type(0x84);
const FACE_PERSISTENCY: Type = Type(0x85);
const LINK_TYPE: Type = Type(0x86);

/// Maximum number of prefixes in the table of routes. Commands cannot add more.
const PREFIXES: usize = 1 << 20;

/// The cost of a route if the command contains no cost.
const DEFAULT_COST: u64 = 0;

/// The prefix of the names of commands and datasets.
pub(crate) const LOCAL: &str = "/localhost/nfd";
/// The prefix of the names of commands from neighbours.
pub(crate) const NEIGHBOUR: &str = "/localhop/nfd";

/// ControlParameters.
#[derive(Default)]
struct Parameters<'p> {
    name: Option<Name<'p>>,
    face: Option<u64>,
    origin: Option<u64>,
    cost: Option<u64>,
    flags: Option<u64>,
    strategy: Option<Name<'p>>,
}

impl<'p> Parameters<'p> {
    fn parse(component: &'p [u8]) -> Result<Self, Error> {
        let value = tlv::only(component, CONTROL_PARAMETERS)?;
        let mut parameters = Self::default();
        for element in Elements::of(value) {
            let element = element?;
            let number = || tlv::integer(element.value, element.kind).map(Some);
            match element.kind {
                Type::NAME => parameters.name = Some(Name::parse(element.value)?),
                FACE_ID => parameters.face = number()?,
                COST => parameters.cost = number()?,
                FLAGS => parameters.flags = number()?,
                ORIGIN => parameters.origin = number()?,
                STRATEGY => parameters.strategy = Some(Name::parse(tlv::only(element.value, Type::NAME)?)?),
                // Parameters of other commands.
                _ => {}
            }
        }
        Ok(parameters)
    }

    fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        let mut bytes = vec![0; self.name.map_or(0, |name| name.as_bytes().len()) + 400];
        let mut value = Writer::new(&mut bytes);
        if let Some(name) = &self.name {
            name.write(&mut value)?;
        }
        for (kind, number) in [(FACE_ID, self.face), (ORIGIN, self.origin), (COST, self.cost), (FLAGS, self.flags)] {
            if let Some(number) = number {
                tlv::write_integer(&mut value, kind, number)?;
            }
        }
        if let Some(strategy) = &self.strategy {
            tlv::write_head(&mut value, STRATEGY, tlv::element_len(Type::NAME, strategy.as_bytes().len()))?;
            strategy.write(&mut value)?;
        }
        tlv::write(out, CONTROL_PARAMETERS, value.written())
    }
}

/// The data of a face in a dataset.
pub(crate) struct FaceStatus {
    pub(crate) face: FaceId,
    pub(crate) uri: String,
    pub(crate) local_uri: String,
    pub(crate) is_local: bool,
    pub(crate) is_on_demand: bool,
    pub(crate) counters: Counters,
}

/// Counts of the packets and bytes of one face, or of all faces.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counters {
    pub(crate) in_interests: u64,
    pub(crate) in_data: u64,
    pub(crate) in_nacks: u64,
    pub(crate) out_interests: u64,
    pub(crate) out_data: u64,
    pub(crate) out_nacks: u64,
    pub(crate) in_bytes: u64,
    pub(crate) out_bytes: u64,
}

/// The state of the forwarder that a dataset reports.
pub(crate) struct Status {
    /// The time at which the forwarder started, in milliseconds since 1970.
    pub(crate) started: u64,
    pub(crate) now: u64,
    pub(crate) waiting: usize,
    pub(crate) stored: usize,
    pub(crate) satisfied: u64,
    pub(crate) unsatisfied: u64,
    pub(crate) counters: Counters,
    pub(crate) faces: Vec<FaceStatus>,
}

/// A request to the management: the components that follow `/localhost/nfd` in the name of an Interest.
pub(crate) struct Request<'p> {
    module: &'p [u8],
    verb: &'p [u8],
    parameters: Option<&'p [u8]>,
}

impl<'p> Request<'p> {
    /// Reads a name that begins with `/localhost/nfd` or `/localhop/nfd`. Returns `None` if the name has no module or
    /// no verb.
    pub(crate) fn of(name: &Name<'p>) -> Option<Self> {
        let mut components = name.components().skip(2);
        let (module, verb) = components.next().zip(components.next())?;
        let parameters = components.next().filter(|component| component.kind == Type::GENERIC);
        Some(Self { module: module.value, verb: verb.value, parameters: parameters.map(|parameters| parameters.value) })
    }

    /// Executes a command that the face `from` sent. Returns the ControlResponse, or `None` if the request is not a
    /// command.
    pub(crate) fn execute(&self, fib: &mut HostFib, from: FaceId, exists: impl Fn(FaceId) -> bool) -> Option<Vec<u8>> {
        let verbs: [&[u8]; 6] = [b"register", b"unregister", b"add-nexthop", b"remove-nexthop", b"set", b"unset"];
        let is_command = matches!(self.module, b"rib" | b"fib" | b"strategy-choice") && verbs.contains(&self.verb);
        let component = self.parameters.filter(|_| is_command)?;
        let Ok(mut parameters) = Parameters::parse(component) else {
            return Some(response(400, "the parameters are not ControlParameters", None));
        };
        let Some(name) = parameters.name else {
            return Some(response(400, "the parameters have no name", None));
        };
        if self.module == b"strategy-choice" {
            return Some(set_strategy(fib, self.verb == b"set", &parameters));
        }
        let face = match parameters.face {
            None | Some(0) => from,
            Some(face) => match u16::try_from(face).map(FaceId).ok().filter(|face| exists(*face)) {
                Some(face) => face,
                None => return Some(response(410, "there is no such face", None)),
            },
        };
        parameters.face = Some(face.0.into());
        parameters.origin = parameters.origin.or(Some(0));
        match self.verb {
            b"register" | b"add-nexthop" if fib.len() >= PREFIXES => {
                return Some(response(503, "the table of prefixes is full", None));
            }
            b"register" | b"add-nexthop" => {
                let cost = parameters.cost.unwrap_or(DEFAULT_COST);
                fib.add(&name, NextHop { face, cost: u16::try_from(cost).unwrap_or(u16::MAX) });
                parameters.cost = Some(cost);
                parameters.flags = parameters.flags.or(Some(1));
            }
            b"unregister" | b"remove-nexthop" => {
                fib.remove(&name, face);
                (parameters.cost, parameters.flags) = (None, None);
            }
            _ => return Some(response(501, "the command is not supported", None)),
        }
        Some(response(200, "OK", Some(&parameters)))
    }

    /// Returns the dataset that the request names, or `None` if there is no such dataset.
    pub(crate) fn dataset(&self, fib: &HostFib, status: &Status) -> Option<Vec<u8>> {
        match (self.module, self.verb) {
            (b"status", b"general") => Some(general(fib, status)),
            (b"faces", b"list") => Some(faces(status)),
            (b"rib", b"list") => Some(routes(fib, true)),
            (b"fib", b"list") => Some(routes(fib, false)),
            _ => None,
        }
    }
}

/// Sets the strategy of a prefix (best route or multicast), or removes the strategy. Accepts the strategy names of NFD
/// and of ndnd, with or without a version.
fn set_strategy(fib: &mut HostFib, is_set: bool, parameters: &Parameters<'_>) -> Vec<u8> {
    let Some(prefix) = parameters.name else { return response(400, "the parameters have no name", None) };
    if !is_set {
        fib.set_strategy(&prefix, None);
        return response(200, "OK", Some(parameters));
    }
    let Some(name) = parameters.strategy else { return response(400, "the parameters have no strategy", None) };
    let has = |text: &[u8]| name.components().any(|component| component.value == text);
    let strategy = match (has(b"best-route"), has(b"multicast")) {
        (true, _) => Strategy::BestRoute,
        (_, true) => Strategy::Multicast,
        _ => return response(404, "the strategies are best-route and multicast", None),
    };
    fib.set_strategy(&prefix, Some(strategy));
    response(200, "OK", Some(parameters))
}

/// Returns the bytes that `write` writes. Begins with a buffer of `len` bytes, and makes the buffer larger until all
/// bytes fit.
pub(crate) fn bytes_of(mut len: usize, write: impl Fn(&mut Writer<'_>) -> Result<(), Full>) -> Vec<u8> {
    loop {
        let mut bytes = vec![0; len];
        let mut out = Writer::new(&mut bytes);
        if write(&mut out).is_ok() {
            let len = out.len();
            bytes.truncate(len);
            return bytes;
        }
        len *= 2;
    }
}

fn response(code: u64, text: &str, parameters: Option<&Parameters<'_>>) -> Vec<u8> {
    let value = bytes_of(1024, |out| {
        tlv::write_integer(out, STATUS_CODE, code)?;
        tlv::write(out, STATUS_TEXT, text.as_bytes())?;
        parameters.map_or(Ok(()), |parameters| parameters.write(out))
    });
    element(CONTROL_RESPONSE, &value)
}

fn element(kind: Type, value: &[u8]) -> Vec<u8> {
    bytes_of(value.len() + 16, |out| tlv::write(out, kind, value))
}

fn write_numbers(out: &mut Writer<'_>, numbers: &[(u32, u64)]) -> Result<(), Full> {
    numbers.iter().try_for_each(|(kind, number)| tlv::write_integer(out, Type(*kind), *number))
}

/// Writes the counts of the packets of one face, or of all faces.
fn write_packets(out: &mut Writer<'_>, counters: &Counters) -> Result<(), Full> {
    let numbers = [
        (0x90, counters.in_interests),
        (0x91, counters.in_data),
        (0x97, counters.in_nacks),
        (0x92, counters.out_interests),
        (0x93, counters.out_data),
        (0x98, counters.out_nacks),
    ];
    write_numbers(out, &numbers)
}

fn general(fib: &HostFib, status: &Status) -> Vec<u8> {
    let mut version = String::new();
    let _ = write!(version, "tegmen {}", env!("CARGO_PKG_VERSION"));
    let counters = &status.counters;
    bytes_of(512, |out| {
        tlv::write(out, Type(0x80), version.as_bytes())?;
        let numbers = [
            (0x81, status.started),
            (0x82, status.now),
            (0x83, (fib.len() + status.waiting) as u64),
            (0x84, fib.len() as u64),
            (0x85, status.waiting as u64),
            (0x86, 0),
            (0x87, status.stored as u64),
        ];
        write_numbers(out, &numbers)?;
        write_packets(out, counters)?;
        write_numbers(out, &[(0x99, status.satisfied), (0x9a, status.unsatisfied)])
    })
}

fn faces(status: &Status) -> Vec<u8> {
    status.faces.iter().flat_map(face).collect()
}

fn face(status: &FaceStatus) -> Vec<u8> {
    let counters = &status.counters;
    let value = bytes_of(512, |out| {
        tlv::write_integer(out, FACE_ID, status.face.0.into())?;
        tlv::write(out, URI, status.uri.as_bytes())?;
        tlv::write(out, LOCAL_URI, status.local_uri.as_bytes())?;
        tlv::write_integer(out, FACE_SCOPE, status.is_local.into())?;
        tlv::write_integer(out, FACE_PERSISTENCY, status.is_on_demand.into())?;
        tlv::write_integer(out, LINK_TYPE, 0)?;
        write_packets(out, counters)?;
        write_numbers(out, &[(0x94, counters.in_bytes), (0x95, counters.out_bytes), (FLAGS.0, 0)])
    });
    element(DATASET, &value)
}

/// Encodes the dataset of all prefixes, sorted by name. The entry of each prefix contains the routes of the prefix if
/// `is_rib` is true, and the next hops otherwise.
fn routes(fib: &HostFib, is_rib: bool) -> Vec<u8> {
    let mut prefixes: Vec<_> = fib.iter().collect();
    prefixes.sort_unstable_by_key(|(prefix, _)| *prefix);
    let entry = |(prefix, hops): &(Name<'_>, &[NextHop])| {
        let value = bytes_of(512, |out| {
            prefix.write(out)?;
            hops.iter().try_for_each(|hop| {
                let value = bytes_of(64, |out| {
                    tlv::write_integer(out, FACE_ID, hop.face.0.into())?;
                    if is_rib {
                        tlv::write_integer(out, ORIGIN, 0)?;
                    }
                    tlv::write_integer(out, COST, hop.cost.into())?;
                    if is_rib { tlv::write_integer(out, FLAGS, 1) } else { Ok(()) }
                });
                tlv::write(out, ROUTE, &value)
            })
        });
        element(DATASET, &value)
    };
    prefixes.iter().flat_map(entry).collect()
}
