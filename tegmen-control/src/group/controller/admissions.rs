//! Admissions of members. Members that wait for the same group join it in one epoch.

use super::{Controller, Group, PLANS, Place, Step, check_member_name};
use crate::group::config::{GroupError, Protocol};
use crate::group::members::{Member, NewMember};
use crate::group::oscore::{self, OscoreMember};
use crate::group::rekeying::Rekeying;
use crate::group::rows;
use crate::group::tree::Refused;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use tegmen_base::crypto::Crypto;
use tegmen_base::hex::to_hex;
use tegmen_store::Store;
use tegmen_store::clock::now;
use tegmen_store::store::MAX_OPERATIONS;
use tokio::sync::oneshot;

/// Maximum number of members that join in one epoch. The transaction that later gives each of them a separate row has one
/// operation for each member, one that deletes their common row, and two for the head of the group: it requires the
/// revision of the head, and writes the head.
const AT_ONCE: usize = MAX_OPERATIONS - 3;

/// The members that wait for their admission to one group, in the order of the calls.
pub(super) type Waiting = Mutex<VecDeque<Joining>>;

/// A member that waits for its admission.
pub(super) struct Joining {
    new: NewMember,
    /// True if an existing member of the same name gets new secrets. False if the controller refuses the admission when
    /// the group already has a member of this name.
    again: bool,
    answer: oneshot::Sender<Result<Rekeying, GroupError>>,
}

impl<S: Store, C: Crypto> Controller<S, C> {
    /// Admits a member. The next epoch begins, and the member has the keys of this epoch and of later ones. If the
    /// group already has a member of this name, the member gets new secrets. The caller then sends the messages, and
    /// after that gives the member its [parameters](Self::parameters).
    ///
    /// If several calls wait for the end of an earlier change, their members join in the same epoch. Only one of these
    /// calls then returns the messages. If many members join groups of the controller at the same time, a call also
    /// waits up to 50 ms for further calls, so the tokio runtime must have timers.
    ///
    /// # Errors
    /// [`GroupError::NoGroup`], [`GroupError::Restored`], [`GroupError::Fault`] as in [`Self::show`];
    /// [`GroupError::Name`], [`GroupError::OtherFamily`], [`GroupError::AddressTaken`] or [`GroupError::NoSenderId`]
    /// for the member; [`GroupError::Refused`] if no leaf or no epoch is left; [`GroupError::Changed`] if other
    /// controllers changed the group during each attempt. After these errors nothing has changed. After
    /// [`GroupError::NotSigned`] the member is admitted. After [`GroupError::Store`] it may be admitted.
    pub async fn admit(&self, group: &str, new: &NewMember) -> Result<Rekeying, GroupError> {
        self.join(group, new, true).await
    }

    /// Admits a member as [`Self::admit`] does, but refuses a member whose name the group already has.
    ///
    /// # Errors
    /// The errors of [`Self::admit`], and [`GroupError::MemberTaken`].
    pub async fn add(&self, group: &str, new: &NewMember) -> Result<Rekeying, GroupError> {
        self.join(group, new, false).await
    }

    async fn join(&self, name: &str, new: &NewMember, again: bool) -> Result<Rekeying, GroupError> {
        check_member_name(&new.name)?;
        let place = self.place(name).await?;
        let (answer, mut answered) = oneshot::channel();
        place.waiting().push_back(Joining { new: new.clone(), again, answer });
        self.gathering.add();
        // The call that admitted this member was dropped.
        let dropped = || Err(GroupError::Changed(name.to_owned()));
        // Another call admits this member, or this call admits all members that wait.
        let _admits = tokio::select! {
            biased;
            result = &mut answered => return result.unwrap_or_else(|_| dropped()),
            admits = place.admits.lock() => admits,
        };
        loop {
            match answered.try_recv() {
                Ok(result) => return result,
                Err(oneshot::error::TryRecvError::Closed) => return dropped(),
                // Most calls do not come here, so their futures do not have the size of this one.
                Err(oneshot::error::TryRecvError::Empty) => Box::pin(self.admit_next(name, &place)).await,
            }
        }
    }

    /// Admits members that wait for the group `name`, as many as one transaction allows.
    async fn admit_next(&self, name: &str, place: &Place) {
        if place.waiting().len() < AT_ONCE {
            self.gathering.due().await;
        }
        let _turn = place.turn.lock().await;
        let (next, dropped) = place.next();
        let in_progress = self.gathering.begin(next.len(), dropped);
        self.admit_waiting(name, place, next).await;
        drop(in_progress);
    }

    /// Plans the admission of the members in `waiting`, makes the change durable, and seals the messages. The caller has
    /// the [`Turn`](super::Turn).
    async fn admit_waiting(&self, name: &str, place: &Place, mut waiting: Vec<Joining>) {
        let mut held = place.group.lock().await;
        for attempt in 0..PLANS {
            let group = match self.to_plan(attempt, &mut held, name).await {
                Ok(group) => group,
                Err(error) => return refuse(waiting, &error),
            };
            let (step, refused) = group.plan_admissions(&waiting, &mut *self.crypto());
            if attempt == 0 && !refused.is_empty() {
                continue;
            }
            for (at, error) in refused.into_iter().rev() {
                let _ = waiting.remove(at).answer.send(Err(error));
            }
            if waiting.is_empty() {
                return;
            }
            held = match self.commit(place, held, Step { since: now(), ..step }).await {
                Ok((true, held)) => return share(waiting, self.hand_over(&held, name)),
                Ok((false, held)) => held,
                Err(error) => return refuse(waiting, &error),
            };
        }
        refuse(waiting, &GroupError::Changed(name.to_owned()));
    }
}

impl Place {
    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Joining>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the members that join in the next epoch out of the queue, and returns them. No two of these members have
    /// the same name. Also returns the number of members that leave the queue because their calls were dropped.
    fn next(&self) -> (Vec<Joining>, usize) {
        let mut waiting = self.waiting();
        let (mut next, mut dropped) = (Vec::new(), 0_usize);
        while next.len() < AT_ONCE
            && let Some(one) = waiting.pop_front()
        {
            // A member whose call was dropped is not admitted: nobody would take its keys.
            match one.answer.is_closed() {
                true => dropped = dropped.saturating_add(1),
                false => next.push(one),
            }
        }
        let count = {
            let mut names = HashSet::new();
            next.iter().take_while(|one: &&Joining| names.insert(one.new.name.as_str())).count()
        };
        for one in next.drain(count..).rev() {
            waiting.push_front(one);
        }
        (next, dropped)
    }
}

impl Group {
    /// Plans the admission of the members in `waiting`, in one epoch. A member that the group already has gets new
    /// secrets. Returns two values: the planned step, and the refused members. A refused member is a pair of its
    /// position in `waiting` and the error.
    fn plan_admissions<C: Crypto>(&self, waiting: &[Joining], crypto: &mut C) -> (Step, Vec<(usize, GroupError)>) {
        let mut members = Vec::<(String, Member)>::with_capacity(waiting.len());
        let (mut before, mut refused) = (Vec::new(), Vec::new());
        let mut leaves = self.tree.free_leaves(waiting.len());
        let mut given: u32 = 0;
        for (at, Joining { new, again, .. }) in waiting.iter().enumerate() {
            let known = self.members.get(&new.name);
            match self.plan_admission((new, known), *again, &members, &mut leaves) {
                Ok(mut member) => {
                    before.extend(known);
                    if let Some(oscore) = &new.oscore {
                        let id = self.ids.given.saturating_add(given);
                        member.oscore = Some(OscoreMember::of(new.public_key.as_deref(), oscore, id));
                        given = given.saturating_add(1);
                    }
                    members.push((new.name.clone(), member));
                }
                Err(error) => refused.push((at, error)),
            }
        }
        let paths: Vec<_> = members.iter().map(|(_, member)| (member.leaf, member.checks_signatures)).collect();
        match self.tree.admit_all(crypto, &paths) {
            Ok(change) => {
                let are_new = before.is_empty();
                let ids = self.ids_after(given, before);
                for ((_, member), path) in members.iter_mut().zip(&change.paths) {
                    (member.since, member.path) = (change.epoch, path.origin.clone());
                }
                let joined = if are_new && members.len() > 1 { rows::joined(&members) } else { None };
                let joined = joined.map(|row| (change.epoch, Some(row)));
                let members = members.into_iter().map(|(name, member)| (name, Some(member))).collect();
                (Step { members, joined, change: Some(change), ids, ..Step::default() }, refused)
            }
            Err(why) => (Step::default(), (0..waiting.len()).map(|at| (at, why.into())).collect()),
        }
    }

    /// Plans the admission of one member, in the same epoch as the members in `others`, which are already planned. `known`
    /// is the member of the same name that the group already has. The member gets a leaf and a SenderID that none of
    /// `others` has. Returns an error if the member has the same address as one of `others`.
    fn plan_admission(
        &self,
        (new, known): (&NewMember, Option<&Member>),
        again: bool,
        others: &[(String, Member)],
        leaves: &mut impl Iterator<Item = u32>,
    ) -> Result<Member, GroupError> {
        if known.is_some() && !again {
            return Err(GroupError::MemberTaken { group: self.name.clone(), member: new.name.clone() });
        }
        self.require(if new.oscore.is_some() { Protocol::Oscore } else { Protocol::Axiom })?;
        let public_key = new.check_key(&self.config)?;
        self.check_credential(new, others)?;
        self.config.check_address(&new.name, new.address)?;
        self.members.check_address(&new.name, new.address)?;
        let address = new.address.map(|address| address.to_canonical());
        let has_address =
            |member: &Member| address.is_some() && member.address.map(|other| other.to_canonical()) == address;
        if let (Some(address), Some((member, _))) = (new.address, others.iter().find(|(_, other)| has_address(other))) {
            return Err(GroupError::AddressTaken { address, member: member.clone() });
        }
        let sender_id = match known.and_then(|member| member.sender_id) {
            _ if !new.sends => None,
            Some(id) => Some(id),
            None => {
                let given: Vec<u8> = others.iter().filter_map(|(_, other)| other.sender_id).collect();
                Some(self.members.free_sender_id(self.config.senders, &given)?)
            }
        };
        let leaf = known.map(|member| member.leaf).or_else(|| leaves.next()).ok_or(Refused::Full)?;
        let NewMember { address, checks_signatures, .. } = *new;
        Ok(Member {
            leaf,
            sender_id,
            address,
            checks_signatures,
            since: 0,
            clashed: false,
            public_key,
            oscore: None,
            path: None,
            admitted: None,
        })
    }

    /// Checks the credential of a member of a Group OSCORE group. No two members have the same credential.
    fn check_credential(&self, new: &NewMember, others: &[(String, Member)]) -> Result<(), GroupError> {
        let Some(credential) = new.public_key.as_deref().filter(|_| new.oscore.is_some()) else { return Ok(()) };
        self.check_unused(&new.name, credential, others)
    }

    /// Checks the credential of the member `name`, as [`Self::check_credential`] does.
    pub(super) fn check_unused(
        &self,
        name: &str,
        credential: &[u8],
        others: &[(String, Member)],
    ) -> Result<(), GroupError> {
        oscore::check_credential(&self.config, name, credential)?;
        let digits = to_hex(credential);
        let has_it = |member: &Member| member.oscore.as_ref().is_some_and(|it| it.credential.as_ref() == Some(&digits));
        let known = self.members.iter().filter(|(other, _)| *other != name).map(|(_, member)| member);
        match known.chain(others.iter().map(|(_, member)| member)).any(has_it) {
            true => Err(GroupError::OtherCredential(name.to_owned())),
            false => Ok(()),
        }
    }
}

/// Gives the result of a rekeying to each call in `waiting`. The first call whose caller still waits gets the rekey
/// messages. The other calls get no messages.
fn share(waiting: Vec<Joining>, result: Result<Rekeying, GroupError>) {
    let mut rekeying = match result {
        Ok(rekeying) => rekeying,
        Err(error) => return refuse(waiting, &error),
    };
    for one in waiting {
        let rest = Rekeying { messages: Vec::new(), warning: None, epoch: rekeying.epoch };
        // A member whose call was dropped leaves the messages to the next one.
        if let Err(Ok(unheard)) = one.answer.send(Ok(std::mem::replace(&mut rekeying, rest))) {
            rekeying = unheard;
        }
    }
}

fn refuse(waiting: Vec<Joining>, error: &GroupError) {
    for one in waiting {
        let _ = one.answer.send(Err(error.clone()));
    }
}
