//! Cuts the power of a server at each of its transactions.

use crate::recorder::Seals;
use crate::world::{
    Counting, DOOR, LAMP, Lamp, Moment, Scene, Server, config, imprinted, introduced, lamp, next_epoch,
};
use crate::world::{open, renew, server, ticket, wait};
use std::collections::BTreeSet;
use std::sync::Arc;
use tegmen_base::secret::Secret;
use tegmen_control::delegation::{ConnectionId, NextEpoch};
use tegmen_trust::provider::HostCrypto;

/// A device, and the data that the device, its peers and its operator keep when the server restarts.
struct World {
    device: Option<Lamp>,
    /// The connections of all tickets that the server gave, each as its epoch and its number. No two tickets may have
    /// the same connection.
    given: BTreeSet<(u16, u32)>,
    /// The connections whose revocation the server acknowledged, each with its ticket.
    revoked: Vec<(ConnectionId, Vec<u8>)>,
    tickets: Vec<Vec<u8>>,
    /// The epoch that the device has begun while the server does not know it yet; `None` if there is none.
    begun: Option<NextEpoch>,
    imprinted: bool,
    sessions: u8,
}

type Store = Server<Counting>;

impl World {
    /// Adds the device to the server, and gives the device its device key. Does nothing if the device already has its
    /// key. If the server generated a key but its answer was lost, the operator lets the server generate another key.
    /// Returns `None` if the power was cut.
    fn imprint(&mut self, server: &Store) -> Option<()> {
        let key = match server.show(LAMP) {
            Err(_) => wait(server.imprint(LAMP, config(), "root")).ok()?,
            Ok(_) if self.imprinted => return Some(()),
            Ok(_) => wait(server.imprint_again(LAMP, "root")).ok()?,
        };
        (self.device, self.imprinted) = (Some(lamp(&key)), true);
        Some(())
    }

    /// Begins the next epoch. If the device has begun an epoch and the server does not know it, begins no further
    /// epoch: the server learns from a session under the key of that epoch that the device has begun it. Returns `None`
    /// if the power was cut.
    fn reset(&mut self, server: &Store) -> Option<()> {
        let device = self.device.as_mut()?;
        if let Some(begun) = self.begun {
            if server.show(LAMP).ok()?.pending == Some(device.epoch()) {
                wait(server.epoch_begun(LAMP, begun)).ok()?;
            }
            self.begun = None;
            return Some(());
        }
        // Each session has other keying material.
        self.sessions += 1;
        let exported = Secret::new([self.sessions; 32]);
        let next = wait(server.begin_epoch(LAMP, &exported)).ok()?;
        device.begin_epoch::<HostCrypto>(next.number, &exported, &next.check).ok()?;
        self.begun = Some(next);
        wait(server.epoch_begun(LAMP, next)).ok()?;
        self.begun = None;
        Some(())
    }

    fn give(&mut self, server: &Store) -> Option<()> {
        wait(server.settle()).ok()?;
        let ticket = ticket(server, "writer")?;
        let device = self.device.as_mut()?;
        let (connection, _) = open(device, &ticket).expect("the device opens each ticket of its epoch");
        assert!(self.given.insert((device.epoch(), connection.number)), "a number twice");
        self.tickets.push(ticket);
        wait(server.settle()).ok()
    }

    fn return_with(&mut self, server: &Store, at: usize) -> Option<()> {
        wait(server.settle()).ok()?;
        let ticket = renew(server, self.tickets.get(at)?)?;
        let device = self.device.as_mut()?;
        let (connection, _) = open(device, &ticket).expect("the device opens each ticket of its epoch");
        assert!(self.given.insert((device.epoch(), connection.number)), "a number twice");
        self.tickets.push(ticket);
        wait(server.settle()).ok()
    }

    fn revoke(&mut self, server: &Store, at: usize) -> Option<()> {
        let ticket = self.tickets.get(at)?.clone();
        let epoch = u16::from_be_bytes([ticket[0], ticket[1]]);
        let number = open(self.device.as_mut()?, &ticket).ok()?.0.number;
        let id = ConnectionId { epoch, number };
        wait(server.revoke(LAMP, id, "root")).ok()?;
        self.revoked.push((id, ticket));
        Some(())
    }

    /// Checks that the server opens no ticket of a revoked connection. Also checks that the server lists each revoked
    /// connection of the present epoch as a connection that the device must refuse.
    fn check(&self, server: &Store) {
        let epoch = server.show(LAMP).map_or(0, |report| report.epoch);
        for (id, ticket) in &self.revoked {
            assert!(renew(server, ticket).is_none(), "a revocation is lost");
            assert_eq!(
                server.to_refuse(LAMP).unwrap().contains(id),
                id.epoch == epoch,
                "the device is told, or its epoch ended"
            );
        }
    }
}

type Step = fn(&mut World, &Store) -> Option<()>;

const STEPS: [Step; 10] = [
    World::imprint,
    World::reset,
    World::give,
    World::give,
    |world, server| world.revoke(server, 0),
    World::reset,
    World::give,
    |world, server| world.return_with(server, 1),
    |world, server| {
        let last = world.tickets.len() - 1;
        world.revoke(server, last)
    },
    World::reset,
];

#[test]
fn a_server_that_is_killed_repeats_no_number_and_loses_no_revocation() {
    for moment in [Moment::BeforeCommit, Moment::BeforeAnswer] {
        let mut transactions = 0;
        for cut in 0.. {
            let scene = Scene::new(&format!("killed-{moment:?}-{cut}"));
            let seals = Seals::default();
            let mut world = World {
                device: None,
                given: BTreeSet::new(),
                revoked: Vec::new(),
                tickets: Vec::new(),
                begun: None,
                imprinted: false,
                sessions: 0,
            };
            let mut server_now = server(&scene, Counting::new(scene.database(), Some((cut, moment))), &seals);
            let mut cuts = 0;
            for (number, step) in STEPS.iter().enumerate() {
                if step(&mut world, &server_now).is_none() {
                    cuts += 1;
                    drop(server_now);
                    server_now = server(&scene, Counting::new(scene.database(), None), &seals);
                    world.check(&server_now);
                    step(&mut world, &server_now).unwrap_or_else(|| panic!("step {number} after the cut {cut}"));
                }
                world.check(&server_now);
            }
            assert_eq!(seals.lock().unwrap().repeated, 0);
            assert_eq!((world.device.unwrap().epoch(), server_now.show(LAMP).unwrap().epoch), (3, 3));
            assert!(cuts <= 1);
            if cuts == 0 {
                transactions = cut;
                break;
            }
        }
        assert!(transactions >= STEPS.len(), "{transactions} transactions were cut");
    }
}

#[test]
fn a_server_that_is_killed_while_it_changes_a_device_key_gives_the_key_after_the_revocations() {
    for moment in [Moment::BeforeCommit, Moment::BeforeAnswer] {
        for cut in 0.. {
            let scene = Scene::new(&format!("killed-again-{moment:?}-{cut}"));
            let seals = Seals::default();
            drop(introduced(&server(&scene, scene.database(), &seals)));
            let first = server(&scene, Counting::new(scene.database(), Some((cut, moment))), &seals);
            let changed = wait(first.imprint_again(LAMP, "root")).is_ok();
            drop(first);
            let again = server(&scene, scene.database(), &seals);
            if !changed {
                // The operator has no key, and repeats the command.
                wait(again.imprint_again(LAMP, "root")).unwrap();
            }
            assert_eq!(again.to_refuse(DOOR).unwrap(), [ConnectionId { epoch: 1, number: 0 }], "cut {cut}");
            if changed {
                assert_eq!(cut, 2, "the key and the revocation are two transactions");
                break;
            }
        }
    }
}

#[test]
fn a_change_that_another_server_outruns_is_planned_again() {
    let scene = Scene::new("outrun");
    let seals = Seals::default();
    let database = scene.database();
    let other = Arc::new(server(&scene, database.clone(), &seals));
    imprinted(&*other);
    let of_other = Arc::clone(&other);
    let store =
        Counting::new(database, None).before(0, move || wait(of_other.set_disabled(LAMP, true, "other")).unwrap());
    let one = server(&scene, store, &seals);
    wait(one.reset(LAMP, "one")).unwrap();
    let report = one.show(LAMP).unwrap();
    assert!(report.disabled, "the change of the other server stays");
    assert_eq!(report.reset.as_deref(), Some("one"));
    wait(other.set_disabled(LAMP, false, "other")).unwrap();
    assert_eq!(other.show(LAMP).unwrap().reset.as_deref(), Some("one"));
}

#[test]
fn numbers_that_another_server_reserves_meanwhile_are_its_own() {
    let scene = Scene::new("meanwhile");
    let seals = Seals::default();
    let database = scene.database();
    let other = Arc::new(server(&scene, database.clone(), &seals));
    let mut device = imprinted(&*other);
    let mut numbers = |server: &dyn Fn() -> Option<Vec<u8>>| -> BTreeSet<u32> {
        std::iter::from_fn(server).map(|ticket| open(&mut device, &ticket).unwrap().0.number).collect()
    };
    let first = numbers(&|| ticket(&*other, "writer"));
    wait(other.settle()).unwrap();
    let of_other = Arc::clone(&other);
    numbers(&|| ticket(&*other, "writer"));
    let store = Counting::new(database, None).before(0, move || wait(of_other.settle()).unwrap());
    let one = server(&scene, store, &seals);
    // The numbers of the other server come between the read and the write of this one, which tries again.
    wait(one.settle()).unwrap();
    wait(one.settle()).unwrap();
    let (of_one, of_other) = (numbers(&|| ticket(&one, "writer")), numbers(&|| ticket(&*other, "writer")));
    assert_eq!((first.len(), of_one.len(), of_other.len()), (256, 256, 256));
    assert!(of_one.is_disjoint(&of_other));
}

#[test]
fn a_revocation_that_its_caller_gave_up_is_read_by_the_next_change() {
    let scene = Scene::new("given-up");
    let seals = Seals::default();
    let database = scene.database();
    let first = server(&scene, database.clone(), &seals);
    let mut device = imprinted(&first);
    ticket(&first, "writer").unwrap();
    wait(first.settle()).unwrap();
    drop(first);
    let store = Counting::new(database, Some((0, Moment::NoAnswer)));
    let server = server(&scene, store.clone(), &seals);
    let id = ConnectionId { epoch: 1, number: 0 };
    wait(async {
        tokio::select! {
            biased;
            _ = server.revoke(LAMP, id, "root") => panic!("there is no answer"),
            () = async { while !store.has_promised() { tokio::task::yield_now().await } } => {}
        }
    });
    wait(server.reset(LAMP, "root")).unwrap();
    assert_eq!(server.to_refuse(LAMP).unwrap(), [id]);
    next_epoch(&server, &mut device);
    assert!(server.show(LAMP).unwrap().reset.is_none());
}

#[test]
fn many_rows_are_written_in_several_transactions_and_stay_due_after_a_failure() {
    let scene = Scene::new("many-rows");
    let seals = Seals::default();
    let database = scene.database();
    let first = server(&scene, database.clone(), &seals);
    let mut device = imprinted(&first);
    let tickets: Vec<_> = (0..200).map(|_| ticket(&first, "writer").unwrap()).collect();
    assert_eq!(first.entries().connections, 200);
    wait(first.settle()).unwrap();
    assert_eq!(first.entries().connections, 0);
    next_epoch(&first, &mut device);
    // Each of them gets the name of its peer from the row of the previous epoch.
    tickets.iter().for_each(|ticket| drop(renew(&first, ticket).unwrap()));
    wait(first.settle()).unwrap();
    let connections = wait(first.connections(LAMP, None, 1000)).unwrap().connections;
    let of_epoch = |epoch| connections.iter().filter(move |one| one.id.epoch == epoch);
    assert_eq!([of_epoch(1).count(), of_epoch(2).count()], [200, 200]);
    assert!(connections.iter().all(|one| one.peer == "writer"));
    let replaced: BTreeSet<_> = of_epoch(2).filter_map(|one| one.of).collect();
    assert_eq!(replaced, of_epoch(1).map(|one| one.id).collect());
    drop(first);

    // The first two transactions reserve numbers, and two more have rows. The answer to the last one is lost.
    let store = Counting::new(database, Some((3, Moment::BeforeAnswer)));
    let second = server(&scene, store, &seals);
    wait(second.settle()).unwrap();
    (0..200).for_each(|_| drop(ticket(&second, "writer").unwrap()));
    assert!(wait(second.settle()).is_err());
    assert_eq!(second.entries().connections, 200 - 128, "the rows of the last transaction are due again");
    drop(second);
    let third = server(&scene, scene.database(), &seals);
    let connections = wait(third.connections(LAMP, None, 1000)).unwrap().connections;
    assert_eq!(connections.len(), 600);
}
