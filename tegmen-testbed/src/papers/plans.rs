//! The plans that reproduce papers. Each plan has a description, figures, and a section in the report.

use super::axiom::{self, Rekeying};
use super::blink;
use super::delegation;
use super::handshakes;
use super::objects::{bytes, caches, creation, delay, discovery};
use super::sections;
use super::two_way::{self, architecture, architecture::Messages};
use crate::figure::Figure;
use crate::report::Report;
use crate::report::overview::Paper;
use crate::runs::Store;
use std::io;

/// A plan that reproduces a part of a paper.
pub struct Plan {
    /// The name of the plan for `tegmen lab run`.
    pub name: &'static str,
    /// A description of the plan in one line.
    pub about: &'static str,
    pub(super) paper: Paper,
    compute: fn(&Inputs<'_>, u64, &Done<'_>) -> io::Result<Vec<Figure>>,
    /// A function that writes the content of the plan's section in the report.
    pub(super) section: fn(&mut Report<'_>, &[Figure]) -> io::Result<()>,
    /// The heading of the plan's section.
    pub(super) title: &'static str,
}

/// A function that receives the number of finished runs and the number of all runs.
pub type Done<'d> = dyn Fn(usize, usize) + Sync + 'd;

/// The inputs that other crates must make for the plans. An input is made when the figures of a plan that needs it are
/// computed.
pub struct Inputs<'i> {
    /// Makes the messages of access control.
    pub messages: &'i dyn Fn() -> io::Result<Messages>,
    /// Makes the rekey messages of groups.
    pub rekeying: &'i dyn Fn() -> io::Result<Rekeying>,
}

impl Plan {
    /// Returns the figures of the plan, with at most `seeds` seeds for each case. Returns the stored figures if there
    /// are any. Otherwise computes the figures and stores them.
    ///
    /// # Errors
    /// If an input cannot be made.
    pub fn figures(&self, store: &Store, inputs: &Inputs<'_>, seeds: u64, done: &Done<'_>) -> io::Result<Vec<Figure>> {
        store.keep(&self.key(seeds), || (self.compute)(inputs, seeds, done))
    }

    /// Returns the stored figures of the plan; `None` if there are none.
    pub(super) fn kept(&self, store: &Store, seeds: u64) -> Option<Vec<Figure>> {
        store.kept(&self.key(seeds))
    }

    fn key(&self, seeds: u64) -> String {
        format!("plan {} {seeds}", self.name)
    }
}

/// All plans, in the order in which the report shows them.
pub const ALL: &[Plan] = &[
    Plan {
        name: "blink",
        about: "the Blink paper whole: bytes, frames, memory, time and energy (BlinkToSCoAP, tables I to V)",
        paper: BLINK,
        compute: |_, _, _| Ok(blink::paper::figures()),
        section: sections::blink,
        title: "The Blink paper: CoAP over DTLS on two motes",
    },
    Plan {
        name: "blink-bytes",
        about: "bytes of the Blink exchange and its handshake (BlinkToSCoAP, tables II and III), and what extensions cost",
        paper: BLINK,
        compute: |_, _, _| Ok(blink::figures()),
        section: sections::blink_bytes,
        title: "The Blink paper: bytes of a handshake, and of each extension",
    },
    Plan {
        name: "objects-bytes",
        about: "content objects: bytes of a protected request and its response under CoAP, DTLS, OSCORE and NDN (table II, figure 3)",
        paper: OBJECTS,
        compute: |_, _, _| Ok(bytes::figures()),
        section: sections::objects_bytes,
        title: "Content objects: bytes of protection (table II, figure 3)",
    },
    Plan {
        name: "objects-delay",
        about: "content objects: from request to answer over one hop and several, and what a reboot costs (figure 9, table III)",
        paper: OBJECTS,
        compute: |_, seeds, done| {
            Ok(delay::figures(delay::Effort { seeds: delay::FULL.seeds.min(seeds), ..delay::FULL }, done))
        },
        section: sections::objects_delay,
        title: "Content objects: from request to answer (figure 9, table III)",
    },
    Plan {
        name: "objects-creation",
        about: "content objects: what creating a request costs, the first time and when it is sent again (figure 11)",
        paper: OBJECTS,
        compute: |_, _, _| Ok(creation::figures()),
        section: sections::objects_creation,
        title: "Content objects: creating a request, and creating it again (figure 11)",
    },
    Plan {
        name: "objects-discovery",
        about: "content objects: finding a server by a protected multicast request, and how rarely addresses collide (equation 1)",
        paper: OBJECTS,
        compute: |_, seeds, _| {
            let links = discovery::FULL.links.min(u32::try_from(seeds.saturating_mul(100)).unwrap_or(u32::MAX));
            Ok(discovery::figures(discovery::Effort { links, ..discovery::FULL }))
        },
        section: sections::objects_discovery,
        title: "Content objects: finding a server by multicast (equation 1)",
    },
    Plan {
        name: "objects-cache",
        about: "content objects: requests over forwarders that are caching proxies or nodes of NDN, beside plain CoAP and OSCORE (figures 12 and 13)",
        paper: OBJECTS,
        compute: |_, seeds, done| {
            let (full, seeds) = (caches::FULL, caches::FULL.seeds.min(seeds));
            let requests = full.requests * seeds as u32 / full.seeds as u32;
            Ok(caches::figures(caches::Effort { requests, seeds }, done))
        },
        section: sections::objects_cache,
        title: "Content objects: caching proxies and NDN on the way (figures 12 and 13)",
    },
    Plan {
        name: "handshakes",
        about: "handshakes with certificates, raw public keys, a pre-shared key and a ticket, flight by flight, beside the baselines of the delegation paper",
        paper: DELEGATION,
        compute: |_, _, _| Ok(handshakes::figures()),
        section: sections::handshakes,
        title: "Handshakes: certificates, raw public keys, a pre-shared key, a ticket",
    },
    Plan {
        name: "delegation",
        about: "delegated handshakes: what they save of a handshake with certificates, tickets, memory, time and bytes (figures 4 to 8); and storms, a fleet and sleep",
        paper: DELEGATION,
        compute: |_, seeds, done| {
            let full = delegation::FULL;
            Ok(delegation::figures(delegation::Effort { seeds: full.seeds.min(seeds), ..full }, done))
        },
        section: sections::delegation,
        title: "Delegation: figures 4 to 8, and the three percentages of the abstract",
    },
    Plan {
        name: "two-way",
        about: "two-way authentication: energy of a handshake with a TPM, battery life, records, round trips and memory (tables I and II, figures 6 and 7)",
        paper: TWO_WAY,
        compute: |_, seeds, done| {
            Ok(two_way::figures(two_way::Effort { seeds: two_way::FULL.seeds.min(seeds), ..two_way::FULL }, done))
        },
        section: sections::two_way,
        title: "Two-way authentication: a handshake with a TPM, records, round trips",
    },
    Plan {
        name: "two-way-architecture",
        about: "two-way authentication: enrolment, first contact, ticket, refusal and revocation over one hop and four, and the paper's handshakes beside ours (figures 7 and 8)",
        paper: TWO_WAY,
        compute: |inputs, seeds, done| {
            let effort = architecture::Effort { seeds: architecture::FULL.seeds.min(seeds) };
            Ok(architecture::figures(&(inputs.messages)()?, effort, done))
        },
        section: sections::two_way_architecture,
        title: "Two-way authentication: enrolment, tickets, revocation, handshakes",
    },
    Plan {
        name: "axiom",
        about: "secure groups: five schemes, the first transaction and later ones, memory, sizes, losses and rekeying (Axiom, tables I and II, figures 7 to 12)",
        paper: AXIOM,
        compute: |inputs, seeds, done| {
            let full = axiom::FULL;
            let (seeds, seeds_of_large) = (full.seeds.min(seeds), full.seeds_of_large.min(seeds));
            Ok(axiom::figures(&(inputs.rekeying)()?, axiom::Effort { seeds, seeds_of_large, ..full }, done))
        },
        section: sections::axiom,
        title: "Axiom: requests to groups in five schemes (tables I and II, figures 7 to 12)",
    },
];

const BLINK: Paper =
    Paper { name: "Blink", title: "BlinkToSCoAP: An End-to-End Security Framework for the Internet of Things" };
const OBJECTS: Paper = Paper {
    name: "Content objects",
    title: "Content Object Security in the Internet of Things: Challenges, Prospects, and Emerging Solutions",
};
const DELEGATION: Paper = Paper {
    name: "Delegation",
    title: "Delegation-based Authentication and Authorization for the IP-based Internet of Things",
};
const TWO_WAY: Paper = Paper {
    name: "Two-way authentication",
    title: "A DTLS Based End-To-End Security Architecture for the Internet of Things with Two-Way Authentication",
};
const AXIOM: Paper = Paper { name: "Axiom", title: "Axiom - DTLS-based secure IoT group communication" };

#[cfg(test)]
mod tests;
