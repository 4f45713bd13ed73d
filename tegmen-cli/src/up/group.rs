//! The steps of `tegmen up` with a group that Axiom protects: lamps and a switch join the group, one lamp is evicted,
//! and an outsider attacks the group.

use super::folder::Folder;
use super::lamps::{Addresses, Answer, Device, Dropped, GROUP, LIGHT, Lamp, Light, PATIENCE, switch};
use super::outsider::{Outsider, forge, number};
use super::parties::{AccessControl, LOOPBACK, Words};
use super::step::{Step, unproved};
use crate::output::{Failure, Output};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tegmen::coap::Code;
use tegmen_control::group::GroupConfig;
use tegmen_host::controller::ControllerError;
use tegmen_host::group::Membership;

const LAMPS: [Words; 3] = [Words(&["hall", "tag:lamp"]), Words(&["porch", "tag:lamp"]), Words(&["attic", "tag:lamp"])];
const SWITCH: Words = Words(&["switch", "tag:switch"]);
/// A device to which no rule gives a right.
const VISITOR: Words = Words(&["visitor"]);
/// The names of the lamps that stay members.
const REST: [&str; 2] = ["hall", "porch"];
const EVICTED: &str = "attic";
/// The last byte of the address of the switch. The last bytes of the lamps' addresses are 1 to 3.
const OF_SWITCH: u8 = 9;
const OF_VISITOR: u8 = 10;
const OF_OUTSIDER: u8 = 66;
/// The number of the first step that shows the group. The steps of the demonstration are numbered from 1.
const FIRST: usize = 6;

/// The members of the group.
pub(super) struct Group {
    pub(super) at: SocketAddr,
    pub(super) switch: Device,
    lamps: Vec<Lamp>,
}

impl Group {
    /// Runs the steps that show the group. Returns the members, which continue to run. If this machine has no multicast
    /// at its loopback interface, prints the cause and returns `None`.
    ///
    /// # Errors
    /// The error of the first step with an unexpected result.
    pub(super) async fn walk(access: &AccessControl, folder: &Folder, out: Output) -> Result<Option<Self>, Failure> {
        let addresses = Addresses::draw()?;
        let outsider = Outsider::join(addresses.group(), LOOPBACK, addresses.own(OF_OUTSIDER)).await;
        let outsider = match outsider {
            Ok(outsider) => outsider,
            Err(why) => {
                leave_out(out, &why);
                return Ok(None);
            }
        };
        let (group, membership) = Self::gather(addresses, access, folder, out).await?;
        let mut story = Story { out, group: &group, membership, outsider, recorded: Vec::new(), dropped: Vec::new() };
        story.dropped = story.dropped_until_now().await;
        story.switched().await?;
        story.evicted(access).await?;
        story.replayed().await?;
        story.forged().await?;
        drop(story);
        Ok(Some(group))
    }

    /// Creates the group, and lets the members join it. Returns the group with the membership of the switch.
    async fn gather(
        addresses: Addresses,
        access: &AccessControl,
        folder: &Folder,
        out: Output,
    ) -> Result<(Self, Membership), Failure> {
        let failed = |error: ControllerError| unproved("joined", &error);
        let at = addresses.group();
        let created = access.controller().create(GROUP, GroupConfig::at(at), &[]).await;
        created.map_err(|error| unproved("joined", &error))?;
        // The switch joins first: the controller names its SenderID to the lamps, so they do not challenge its first request.
        let switch = Device::enrol(&SWITCH, addresses.own(OF_SWITCH), access, folder).await?;
        let membership = switch.join(true).await.map_err(failed)?;
        let mut lamps = Vec::new();
        for (words, number) in LAMPS.iter().zip(1..) {
            let device = Device::enrol(words, addresses.own(number), access, folder).await?;
            let membership = device.join(false).await.map_err(failed)?;
            lamps.push(Lamp::start(device, membership, out, &access.walked)?);
        }
        let visitor = Device::enrol(&VISITOR, addresses.own(OF_VISITOR), access, folder).await?;
        let code = match visitor.join(false).await {
            Err(ControllerError::Forbidden { code, .. }) => code,
            Err(error) => return Err(failed(error)),
            Ok(_) => return Err(unproved("joined", &"the visitor is a member")),
        };
        let why = access.explain(&VISITOR, &Words::CONTROLLER, Code::POST, &format!("/ace-group/{GROUP}"))?;
        if why.decision.is_allowed() {
            return Err(unproved("joined", &why));
        }
        // The switch hears no messages of the controller.
        switch.catch_up(&membership).await.map_err(failed)?;
        let group = Self { at, switch, lamps };
        let epoch = membership.epoch();
        group.in_epoch("joined", &LAMPS.map(|words| words.name()), epoch).await?;
        let sender_id = membership.sender_id();
        let names: Vec<String> =
            group.lamps.iter().map(|lamp| format!("{} at {}", lamp.device.name, lamp.device.address)).collect();
        let step = Step {
            name: "joined",
            title: "Three lamps and a switch join a group at the access control server, which controls it.",
            facts: vec![
                format!("The lamps are {}.", names.join(", ")),
                format!(
                    "Each device gets the keys in its own DTLS session. All are in epoch {epoch} of the group at {at}."
                ),
                format!("A visitor asks for the keys, too, and the response is {code}:"),
                why.to_string(),
            ],
            proved: "a device that the policy allows gets the keys of the group, and another device gets none",
            more: json!({ "group": GROUP, "at": at.to_string(), "epoch": epoch, "members": names, "sender_id": sender_id,
                          "refused": visitor.name, "code": code.to_string(), "reason": why.message }),
        };
        step.print(out, FIRST);
        Ok((group, membership))
    }

    /// Waits until the lamps with these names are in the epoch, because they have received the messages of the
    /// controller.
    async fn in_epoch(&self, step: &str, names: &[&str], epoch: u16) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        loop {
            let late = |lamp: &&Lamp| names.contains(&lamp.device.name) && lamp.membership.epoch() != epoch;
            match self.lamps.iter().find(late) {
                None => return Ok(()),
                Some(lamp) if Instant::now() > until => {
                    let (name, is) = (lamp.device.name, lamp.membership.epoch());
                    return Err(unproved(step, &format!("{name} is in epoch {is} and not in {epoch}")));
                }
                Some(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    fn lights(&self) -> Vec<(&'static str, Light)> {
        self.lamps.iter().map(|lamp| (lamp.device.name, lamp.light())).collect()
    }

    /// Stops the servers of the lamps. Returns the number of handshake flights that these servers retransmitted.
    pub(super) fn stop(self) -> u32 {
        self.lamps.into_iter().map(Lamp::stop).sum()
    }
}

/// Prints that the demonstration leaves out the steps that show the group, and prints the cause.
fn leave_out(out: Output, why: &str) {
    out.line(
        || format!("The tour leaves out a group of lamps: there is no multicast at the loopback interface of this machine: {why}."),
        || json!({ "event": "group_left_out", "error": why }),
    );
}

/// The state that the steps share, after the members have joined.
struct Story<'a> {
    out: Output,
    group: &'a Group,
    /// The membership of the switch.
    membership: Membership,
    outsider: Outsider,
    /// The requests that the switch sent, and that the outsider received.
    recorded: Vec<Vec<u8>>,
    /// The expected numbers of records that each lamp has dropped, in the order of the lamps.
    dropped: Vec<Dropped>,
}

impl Story<'_> {
    /// Runs the step in which the switch turns on all lamps.
    async fn switched(&mut self) -> Result<(), Failure> {
        let answers = self.ask("switched", "on", &LAMPS.map(|words| words.name())).await?;
        let request = self.recorded.last().map_or(&[][..], Vec::as_slice);
        if request.windows(LIGHT.len() - 1).any(|text| text == &LIGHT.as_bytes()[1..]) {
            return Err(unproved("switched", &"the path of the request can be read"));
        }
        let bytes = request.len();
        let mut facts = shown(&answers);
        facts.push(format!(
            "An outsider at the multicast address hears one datagram of {bytes} bytes, which is encrypted."
        ));
        let step = Step {
            name: "switched",
            title: "The switch turns on the lamps with one request.",
            facts,
            proved: "one encrypted datagram reaches all members, and each sends its protected answer",
            more: json!({ "datagrams": 1, "bytes": bytes, "answers": listed(&answers), "lights": self.lights() }),
        };
        step.print(self.out, FIRST + 1);
        Ok(())
    }

    /// Runs the step in which the controller evicts one lamp.
    async fn evicted(&mut self, access: &AccessControl) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| unproved("evicted", &error);
        let before = self.group.lights();
        let rekeying = access.controller().evict(GROUP, EVICTED).await.map_err(|error| failed(&error))?;
        let epoch = rekeying.epoch;
        self.group.in_epoch("evicted", &REST, epoch).await?;
        self.group.switch.catch_up(&self.membership).await.map_err(|error| failed(&error))?;
        let answers = self.ask("evicted", "off", &REST).await?;
        self.drop("evicted", |name| Dropped { other: u32::from(name == EVICTED), ..Dropped::default() }).await?;
        let lights = self.group.lights();
        let is_as_before = |light: &&(&str, Light)| light.0 == EVICTED && before.contains(light);
        if lights.iter().find(is_as_before).is_none_or(|(_, light)| light.is != "on") {
            return Err(unproved("evicted", &format!("{EVICTED} has changed")));
        }
        let mut facts = vec![format!("Epoch {epoch} begins, by {} messages to the group.", rekeying.messages.len())];
        facts.extend(shown(&answers));
        facts.push(format!(
            "{EVICTED} stays on and does not answer. It runs, hears the request, and drops it: it has no keys of epoch {epoch}."
        ));
        let step = Step {
            name: "evicted",
            title: "The operator evicts the attic, and the switch turns off the lamps.",
            facts,
            proved: "a member that is evicted opens and answers no request from then on, although it runs",
            more: json!({ "evicted": EVICTED, "epoch": epoch, "messages": rekeying.messages.len(),
                          "answers": listed(&answers), "missing": [EVICTED], "lights": self.lights() }),
        };
        step.print(self.out, FIRST + 2);
        Ok(())
    }

    /// Runs the step in which an outsider sends the received requests again.
    async fn replayed(&mut self) -> Result<(), Failure> {
        let recorded = self.recorded.clone();
        self.ask("replayed", "on", &REST).await?;
        self.drop("replayed", |name| Dropped { other: u32::from(name == EVICTED), ..Dropped::default() }).await?;
        let before = self.group.lights();
        self.attack("replayed", &recorded).await?;
        // A member drops one request as a replay, and the other one because it has no keys of that epoch. The evicted lamp drops them
        // for the opposite reasons.
        self.drop("replayed", |_| Dropped { replayed: 1, other: 1, ..Dropped::default() }).await?;
        self.unchanged("replayed", &before)?;
        let step = Step {
            name: "replayed",
            title: "The switch turns on the lamps, and an outsider repeats two requests that it recorded.",
            facts: vec![
                "Each lamp drops both: one has a number that came before, and one is of an epoch whose keys the lamp does not have."
                    .to_owned(),
                self.states(),
            ],
            proved: "a request that somebody recorded switches no lamp again",
            more: json!({ "sent": recorded.len(), "dropped": recorded.len(), "lights": self.lights() }),
        };
        step.print(self.out, FIRST + 3);
        Ok(())
    }

    /// Runs the step in which an outsider forges a request.
    async fn forged(&mut self) -> Result<(), Failure> {
        let forged = self.recorded.last().and_then(|last| forge(last));
        let forged = forged.ok_or_else(|| unproved("forged", &"there is no request"))?;
        let before = self.group.lights();
        self.attack("forged", std::slice::from_ref(&forged)).await?;
        let is_evicted = |name: &str| u32::from(name == EVICTED);
        let wanted = |name: &str| Dropped { forged: 1 - is_evicted(name), other: is_evicted(name), replayed: 0 };
        self.drop("forged", wanted).await?;
        self.unchanged("forged", &before)?;
        let states = self.states();
        let answers = self.ask("forged", "off", &REST).await?;
        if self.recorded.last().and_then(|last| number(last)) != number(&forged) {
            return Err(unproved("forged", &"the next request of the switch has another number"));
        }
        self.drop("forged", |name| Dropped { other: is_evicted(name), ..Dropped::default() }).await?;
        let mut facts = vec![
            format!("Its tag is wrong, so hall and porch drop it. {EVICTED} has no keys of its epoch."),
            states,
            "Then the switch sends its own request with this number, and turns off the lamps:".to_owned(),
        ];
        facts.extend(shown(&answers));
        let step = Step {
            name: "forged",
            title: "The outsider forges the next request of the switch, with its number.",
            facts,
            proved: "an outsider switches no lamp, and keeps no request of the switch from the members",
            more: json!({ "sent": 1, "dropped": 1, "answers": listed(&answers), "lights": self.lights() }),
        };
        step.print(self.out, FIRST + 4);
        Ok(())
    }

    /// Sends a request of the switch in one datagram. Checks that exactly the lamps with these names answer, and that
    /// each of them has the state `value`.
    async fn ask(&mut self, step: &str, value: &str, names: &[&str]) -> Result<Vec<Answer>, Failure> {
        let answers = switch(&self.membership, value, names.len()).await.map_err(|why| unproved(step, &why))?;
        let heard = self.outsider.requests(1).await.map_err(|error| unproved(step, &error))?;
        match heard.as_slice() {
            [request] => self.recorded.push(request.clone()),
            all => return Err(unproved(step, &format!("the request has {} datagrams", all.len()))),
        }
        for lamp in self.group.lamps.iter().filter(|lamp| names.contains(&lamp.device.name)) {
            let (name, text) = (lamp.device.name, format!("{} is {value}", lamp.device.name));
            let is_it = |answer: &Answer| answer.from == lamp.device.address && answer.text == text;
            if !answers.iter().any(is_it) || lamp.light().is != value {
                return Err(unproved(step, &format!("{name} is not {value}, or does not answer so")));
            }
        }
        match answers.len() == names.len() {
            true => Ok(answers),
            false => Err(unproved(step, &format!("{} members answer", answers.len()))),
        }
    }

    /// Sends datagrams of the outsider to the group. Checks that they arrive at the multicast address.
    async fn attack(&mut self, step: &str, datagrams: &[Vec<u8>]) -> Result<(), Failure> {
        for datagram in datagrams {
            self.outsider.send(datagram).map_err(|error| unproved(step, &error))?;
        }
        let heard = self.outsider.requests(datagrams.len()).await.map_err(|error| unproved(step, &error))?;
        match heard == datagrams {
            true => Ok(()),
            false => Err(unproved(step, &"the datagrams do not come to the group")),
        }
    }

    async fn dropped_until_now(&self) -> Vec<Dropped> {
        let mut all = Vec::new();
        for lamp in &self.group.lamps {
            all.push(lamp.dropped().await);
        }
        all
    }

    /// Waits until each lamp has dropped exactly the expected records since the previous call. `more` takes the name of
    /// a lamp, and returns the expected number of these records for each reason to drop a record.
    async fn drop(&mut self, step: &str, more: impl Fn(&str) -> Dropped) -> Result<(), Failure> {
        for (lamp, dropped) in self.group.lamps.iter().zip(&mut self.dropped) {
            *dropped = dropped.and(more(lamp.device.name));
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let dropped = self.dropped_until_now().await;
            if dropped == self.dropped {
                return Ok(());
            }
            if Instant::now() > until {
                let why = format!("the lamps have dropped {dropped:?}, and not {:?}", self.dropped);
                return Err(unproved(step, &why));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn unchanged(&self, step: &str, before: &[(&str, Light)]) -> Result<(), Failure> {
        match self.group.lights() == before {
            true => Ok(()),
            false => Err(unproved(step, &"a lamp has changed")),
        }
    }

    /// Returns the states of the lamps as JSON.
    fn lights(&self) -> Value {
        self.group.lights().into_iter().map(|(name, light)| (name.to_owned(), json!(light.is))).collect()
    }

    /// Returns the states of the lamps as text.
    fn states(&self) -> String {
        let states: Vec<_> =
            self.group.lights().iter().map(|(name, light)| format!("{name} is {}", light.is)).collect();
        format!("As before: {}.", states.join(", "))
    }
}

/// Returns the answers as text.
fn shown(answers: &[Answer]) -> Vec<String> {
    let show = |Answer { from, text, after }: &Answer| {
        format!("{text}: the answer from {from} comes after {:.1} ms.", after.as_secs_f64() * 1e3)
    };
    answers.iter().map(show).collect()
}

/// Returns the answers as JSON.
fn listed(answers: &[Answer]) -> Vec<Value> {
    let list = |Answer { from, text, after }: &Answer| json!({ "from": from.to_string(), "text": text, "ms": after.as_secs_f64() * 1e3 });
    answers.iter().map(list).collect()
}
