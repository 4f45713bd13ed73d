//! Checks the settings of a deployment. An error contains the section, the key and the allowed values.

use super::{
    Changes, Deployment, Fault, Hardware, MAX_SEED, MAX_SEEDS, Move, Prefix, ProfileName, Rebooted, Shape, share,
};
use crate::mote::{self, Protection};
use crate::platform::Platform;
use crate::sim::Links;

/// Returns an error for the key `key`, unless `holds` is true.
fn require(holds: bool, section: &'static str, key: &'static str, what: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err((section, key, what())) }
}

impl Deployment {
    /// Checks the limits of settings that the Rust types do not express.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let links = self.links()?;
        self.parents(&links)?;
        self.check_traffic(&links)?;
        let nodes = links.nodes();
        require(self.network.forwarders == 0 || self.network.forwarders + 1 < nodes, "network", "forwarders", || {
            format!("forwarders: {} nodes, and one of them at least makes readings", nodes - 1)
        })?;
        require(self.traffic.reboots.is_none() || self.traffic.group.is_none(), "traffic", "reboots", || {
            "reboots: not with a group".into()
        })?;
        self.moves.iter().try_for_each(|each| self.check_move(each, nodes))?;
        self.check_protections()?;
        self.check_names()?;
        self.check_group()?;
        self.check_hops(&links)?;
        self.check_mote()?;
        self.check_run()
    }

    /// Returns the approximate time from the first reading of a node to its last reading, in seconds.
    fn length_s(&self) -> f64 {
        f64::from(self.traffic.readings) * self.traffic.period_s
    }

    fn check_traffic(&self, links: &Links) -> Result<(), Fault> {
        let traffic = &self.traffic;
        for (key, value) in [("payload", traffic.payload), ("response", traffic.response)] {
            require(value <= mote::MAX_PAYLOAD, "traffic", key, || {
                format!("{key} = {value} does not fit a CoAP message: {} bytes at most", mote::MAX_PAYLOAD)
            })?;
        }
        require((0.001..=1e6).contains(&traffic.period_s), "traffic", "period_s", || {
            format!("period_s = {}: seconds, 0.001 at least, 1e6 at most", traffic.period_s)
        })?;
        require(traffic.readings > 0, "traffic", "readings", || "readings = 0: 1 at least".into())?;
        let makers = self.makers(links.nodes()).len() as u64;
        let all = u64::from(traffic.readings) * makers;
        require(all <= MAX_READINGS, "traffic", "readings", || {
            format!(
                "readings = {} of each of {makers} nodes are {all}: a run keeps the delay of each, and may have \
                 {MAX_READINGS} at most; more seeds give more readings",
                traffic.readings
            )
        })?;
        let length_s = self.length_s();
        require(length_s <= MAX_LENGTH_S, "traffic", "readings", || {
            format!(
                "readings = {} every {} s take {length_s:.0} s: a run lasts {MAX_LENGTH_S:.0} s at most, about three years",
                traffic.readings, traffic.period_s
            )
        })?;
        traffic.reboot_after.map_or(Ok(()), |after| share("traffic", "reboot_after", after))?;
        traffic.reboots.map_or(Ok(()), |reboots| share("traffic", "reboots", reboots.share))
    }

    fn check_move(&self, Move { node, at_s, changes }: &Move, nodes: usize) -> Result<(), Fault> {
        let changes_link = self.stack.addresses == Prefix::LinkLocal && *changes == Changes::Address;
        require(!changes_link, "stack", "addresses", || {
            "moves: a link-local address is made from the link's: changes = \"port\", or other addresses".into()
        })?;
        require((1..nodes).contains(node), "moves", "node", || {
            format!("moves: node = {node}: one of the nodes 1 to {}", nodes - 1)
        })?;
        let length_s = self.length_s();
        require((0.0..=length_s).contains(at_s), "moves", "at_s", || {
            format!(
                "moves: at_s = {at_s}: seconds after the beginning, up to {length_s}, when the last reading is made"
            )
        })
    }

    fn check_protections(&self) -> Result<(), Fault> {
        let protections = &self.stack.protections;
        let twice = |(place, name): &(usize, &Protection)| protections[..*place].contains(name);
        if let Some((_, name)) = protections.iter().enumerate().find(twice) {
            let what = format!("protections: {} stands there twice, and gives the same figures twice", name.name());
            return Err(("stack", "protections", what));
        }
        let extended = protections.iter().find(|name| name.has_extensions());
        require(extended.is_none() || self.stack.profile == ProfileName::Default, "stack", "profile", || {
            let name = extended.map_or("", |name| name.name());
            format!("profile = \"minimal\" has no extensions, which {name} needs: \"default\"")
        })?;
        require(!protections.is_empty(), "stack", "protections", || {
            let all: Vec<_> = Protection::ALL.iter().chain(&Protection::NAMED).map(|name| name.name()).collect();
            format!("protections: one at least of {}", all.join(", "))
        })
    }

    /// Checks that a plan with a protection over NDN contains no setting that NDN does not support.
    fn check_names(&self) -> Result<(), Fault> {
        let Some(name) = self.stack.protections.iter().find(|name| name.is_named()).map(|name| name.name()) else {
            return Ok(());
        };
        require(self.traffic.payload == 0, "traffic", "payload", || {
            format!("payload = {}: with {name} a node asks for a reading and sends none: 0", self.traffic.payload)
        })?;
        require(
            self.traffic.reboots.is_none_or(|reboots| reboots.of == Rebooted::Client),
            "traffic",
            "reboots",
            || format!("reboots: with {name} node 0 has no state of others: of = \"client\""),
        )?;
        require(self.moves.is_empty(), "moves", "node", || format!("moves: with {name} nodes have no address"))?;
        require(self.mote.polls_s == 0.0, "mote", "polls_s", || format!("polls_s: with {name} radios are always on: 0"))
    }

    fn check_group(&self) -> Result<(), Fault> {
        let traffic = &self.traffic;
        let protections = &self.stack.protections;
        let Some(group) = traffic.group else {
            let only_groups = protections.iter().find(|name| name.is_in_group());
            return require(only_groups.is_none(), "stack", "protections", || {
                format!("protections: {} is for a group", only_groups.map_or("", |name| name.name()))
            });
        };
        require((0.0..=1e6).contains(&group.leisure_s), "traffic", "group", || {
            "group: leisure_s is seconds, 0 at least, 1e6 at most".into()
        })?;
        require([8, 16].contains(&group.tag), "traffic", "group", || "group: tag is 8 or 16 bytes".into())?;
        require(traffic.reboot_after.is_none(), "traffic", "group", || "group: not with reboot_after".into())?;
        require(self.moves.is_empty(), "moves", "node", || "moves: not with a group".into())?;
        require(self.stack.ports[0] == self.stack.ports[1], "stack", "ports", || {
            "ports: the nodes of a group have one port".into()
        })?;
        let fits =
            |name: &Protection| Protection::OF_GROUPS.contains(name) && (group.each || *name != Protection::CoapDtls);
        require(
            protections.iter().all(fits) && !(group.each && protections.iter().any(|name| name.is_in_group())),
            "stack",
            "protections",
            || {
                "protections: of a group that is asked at once coap, axiom and axiom+dtls; with each = true coap and coap+dtls"
                .into()
            },
        )
    }

    fn check_hops(&self, links: &Links) -> Result<(), Fault> {
        let depth = self.depth(links)?;
        require(self.stack.addresses != Prefix::LinkLocal || depth <= 1, "stack", "addresses", || {
            "addresses = \"link-local\" reaches one hop only: \"context\" or \"inline\" over several".into()
        })?;
        require(usize::from(self.stack.hop_limit) >= depth, "stack", "hop_limit", || {
            format!("hop_limit: {depth} hops are to be made")
        })
    }

    fn check_mote(&self) -> Result<(), Fault> {
        let Hardware { platform, cycles_per_instruction, stack_us, battery_mah, sleep_ua, polls_s } = &self.mote;
        require(Platform::find(platform).is_some(), "mote", "platform", || {
            format!("there is no platform {platform:?}: {}", Platform::names().join(", "))
        })?;
        require((1.0..=4.0).contains(cycles_per_instruction), "mote", "cycles_per_instruction", || {
            "cycles_per_instruction: from 1 to 4".into()
        })?;
        require(*stack_us <= MAX_STACK_US, "mote", "stack_us", || {
            format!("stack_us = {stack_us}: microseconds for a datagram, {MAX_STACK_US} at most")
        })?;
        require(*battery_mah > 0.0 && *battery_mah <= 1e9, "mote", "battery_mah", || {
            format!("battery_mah = {battery_mah}: more than 0, 1e9 at most")
        })?;
        require((0.0..=1e9).contains(sleep_ua), "mote", "sleep_ua", || {
            format!("sleep_ua = {sleep_ua}: from 0 to 1e9")
        })?;
        require(*polls_s == 0.0 || (0.1..=1e6).contains(polls_s), "mote", "polls_s", || {
            format!("polls_s = {polls_s}: 0 if the radio is always on, or seconds from 0.1 to 1e6")
        })?;
        require(*polls_s == 0.0 || self.network.topology == Shape::Star, "mote", "polls_s", || {
            "polls_s: node 0 is the parent of all, in a star".into()
        })
    }

    fn check_run(&self) -> Result<(), Fault> {
        let run = &self.run;
        require((1..=MAX_SEEDS).contains(&run.seeds), "run", "seeds", || {
            format!("seeds = {}: from 1 to {MAX_SEEDS}", run.seeds)
        })?;
        require(run.first_seed <= MAX_SEED, "run", "first_seed", || {
            format!("first_seed = {}: {MAX_SEED} at most", run.first_seed)
        })
    }
}

/// Maximum number of readings in one run, for all nodes together.
const MAX_READINGS: u64 = 5_000_000;
/// Maximum virtual time of one run, in seconds.
const MAX_LENGTH_S: f64 = 1e8;
/// Maximum processor time of the operating system for a datagram, in microseconds. It is one second.
const MAX_STACK_US: u32 = 1_000_000;
