//! Tests of members whose devices are disabled or removed at the access control server, and of epochs that begin
//! periodically.

use super::server::{SHARED_KEY, open_service, party, service};
use super::world::{LAMPS, Scene, config, software_key};
use std::sync::Arc;
use std::time::Duration;
use tegmen_control::group::{Controller, GroupConfig, NewMember, evict_departed, rekey_periodically};
use tegmen_control::service::Service;
use tegmen_control::state::{Credential, NewDevice};
use tegmen_store::{Database, Store as _};
use tegmen_trust::x509::signer::SoftwareKey;
use tokio::task::JoinHandle;

const OPERATOR: &str = "operator";

fn members(names: &[&str]) -> Vec<NewMember> {
    let member = |name: &&str| NewMember {
        name: (*name).to_owned(),
        address: None,
        sends: false,
        checks_signatures: true,
        public_key: None,
        oscore: None,
    };
    names.iter().map(member).collect()
}

fn controller(database: &Database, signer: &Arc<SoftwareKey>) -> Arc<Controller<Database>> {
    Arc::new(Controller::new(database.clone(), Some(Arc::clone(signer) as _)).unwrap())
}

fn follow(controller: &Arc<Controller<Database>>, service: &Arc<Service<Database>>) -> JoinHandle<()> {
    let (controller, service) = (Arc::clone(controller), Arc::clone(service));
    tokio::spawn(async move { evict_departed(&*controller, &*service).await })
}

async fn names(controller: &Controller<Database>, group: &str) -> Vec<String> {
    controller.show(group).await.unwrap().members.into_iter().map(|(name, _)| name).collect()
}

/// Waits until a group has these members.
async fn until_members(controller: &Controller<Database>, group: &str, expected: &[&str]) {
    let all = async {
        while names(controller, group).await != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let result = tokio::time::timeout(Duration::from_secs(20), all).await;
    assert!(result.is_ok(), "{group} has {:?}", names(controller, group).await);
}

fn device(words: &str) -> NewDevice {
    NewDevice::secret(party(words), Credential::SharedKey, &SHARED_KEY).unwrap()
}

#[tokio::test]
async fn a_device_that_is_disabled_or_removed_is_evicted_from_each_group() {
    let (scene, signer) = (Scene::new("departures"), software_key());
    let database = scene.database();
    let service = service(&scene, database.clone(), &signer).await;
    let controller = controller(&database, &signer);
    controller.create(LAMPS, config(), &members(&["hall", "porch", "switch"])).await.unwrap();
    controller.create("doors", config(), &members(&["hall", "oven"])).await.unwrap();
    let following = follow(&controller, &service);
    service.disable(OPERATOR, "hall").await.unwrap();
    until_members(&controller, LAMPS, &["porch", "switch"]).await;
    until_members(&controller, "doors", &["oven"]).await;
    service.remove(OPERATOR, "porch", None).await.unwrap();
    until_members(&controller, LAMPS, &["switch"]).await;
    assert_eq!(controller.show(LAMPS).await.unwrap().epoch, 3, "an epoch for each");
    // Other changes evict nobody, and a device that is enabled again may join again.
    service.enable(OPERATOR, "hall").await.unwrap();
    controller.admit(LAMPS, &members(&["hall"])[0]).await.unwrap();
    service.add(OPERATOR, &device("porch tag:lamp")).await.unwrap();
    service.remove(OPERATOR, "oven", None).await.unwrap();
    until_members(&controller, "doors", &[]).await;
    assert_eq!(names(&controller, LAMPS).await, ["hall", "switch"]);
    following.abort();
}

#[tokio::test]
async fn what_happened_while_the_controller_did_not_run_is_made_good() {
    let (scene, signer) = (Scene::new("missed"), software_key());
    {
        let database = scene.database();
        let service = service(&scene, database.clone(), &signer).await;
        let controller = controller(&database, &signer);
        controller.create(LAMPS, config(), &members(&["hall", "porch", "switch"])).await.unwrap();
        service.disable(OPERATOR, "hall").await.unwrap();
        // Another device of the same name.
        service.remove(OPERATOR, "porch", None).await.unwrap();
        service.add(OPERATOR, &device("porch tag:lamp")).await.unwrap();
    }
    let database = scene.database();
    let service = open_service(&scene, database.clone(), &signer).await;
    let controller = controller(&database, &signer);
    let following = follow(&controller, &service);
    until_members(&controller, LAMPS, &["switch"]).await;
    // It follows from then on, also after the store forgot history.
    controller.admit(LAMPS, &members(&["porch"])[0]).await.unwrap();
    let newest = service.add(OPERATOR, &device("cellar")).await.unwrap();
    database.compact(newest).await.unwrap();
    service.disable(OPERATOR, "porch").await.unwrap();
    until_members(&controller, LAMPS, &["switch"]).await;
    following.abort();
}

#[tokio::test]
async fn a_device_stays_if_no_epoch_is_left_and_others_are_evicted() {
    let (scene, signer) = (Scene::new("no-epoch"), software_key());
    let database = scene.database();
    let service = service(&scene, database.clone(), &signer).await;
    let controller = controller(&database, &signer);
    let short = GroupConfig { last_epoch: 2, ..config() };
    controller.create("doors", short, &members(&["hall", "porch"])).await.unwrap();
    controller.create(LAMPS, config(), &members(&["hall", "porch"])).await.unwrap();
    controller.evict("doors", "porch").await.unwrap();
    let following = follow(&controller, &service);
    service.disable(OPERATOR, "hall").await.unwrap();
    until_members(&controller, LAMPS, &["porch"]).await;
    assert_eq!(names(&controller, "doors").await, ["hall"]);
    service.disable(OPERATOR, "porch").await.unwrap();
    until_members(&controller, LAMPS, &[]).await;
    following.abort();
}

#[tokio::test]
async fn an_epoch_lasts_for_the_period_at_most_also_over_a_restart() {
    let (scene, signer) = (Scene::new("periodic"), software_key());
    let database = scene.database();
    let (first, second) = (controller(&database, &signer), controller(&database, &signer));
    first.create(LAMPS, config(), &members(&["hall"])).await.unwrap();
    let hour = Duration::from_secs(3600);
    assert_eq!(first.rekey_after(LAMPS, hour).await.unwrap(), None);
    // Two controllers share the store, and one of them begins each epoch.
    let periods = [&first, &second].map(|controller| {
        let controller = Arc::clone(controller);
        tokio::spawn(async move { rekey_periodically(&*controller, Duration::from_secs(1)).await })
    });
    let began = std::time::Instant::now();
    while first.show(LAMPS).await.unwrap().epoch < 6 {
        assert!(began.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    periods.iter().for_each(JoinHandle::abort);
    let epoch = first.show(LAMPS).await.unwrap().epoch;
    assert!(u64::from(epoch) <= 3 + began.elapsed().as_secs(), "{epoch}");
    // The time is that of the rows, so a restart does not lengthen an epoch.
    let third = controller(&database, &signer);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(third.rekey_after(LAMPS, Duration::from_secs(1)).await.unwrap().map(|it| it.epoch), Some(epoch + 1));
    assert_eq!(third.rekey_after(LAMPS, hour).await.unwrap(), None);
}
