//! Cuts the power of a database thousands of times. The database is on a disk in memory, which loses all or parts of
//! the writes that were not synchronized.
//!
//! The test writes the counts to `target/power.json`. `TEGMEN_POWER_CUTS` sets another number of cuts.

#[path = "power/disk.rs"]
mod disk;
#[path = "power/life.rs"]
mod life;
#[path = "power/vfs.rs"]
mod vfs;

use disk::{Calls, Site};
use life::{Counts, Life, When};
use std::collections::BTreeMap;

/// Runs one [`Life`] after the other, each with another seed. A life is the work of a server through several power
/// cuts. Stops when the lives together have `cuts` power cuts, or when a life finds a fault. Returns the counts of all
/// lives, the numbers of synchronizations at each place in the code, and the fault if there is one.
fn lives(when: When, cuts: u64, left_out: Option<Site>) -> (Counts, BTreeMap<Site, Calls>, Result<(), String>) {
    let (mut counts, mut calls) = (Counts::default(), BTreeMap::<Site, Calls>::new());
    for seed in 0.. {
        if counts.cuts >= cuts {
            break;
        }
        let mut life = Life::new(seed, left_out);
        let result = life.run(when, &mut counts);
        for (site, found) in life.calls() {
            let sum = calls.entry(site).or_default();
            sum.all += found.all;
            sum.useful += found.useful;
        }
        if let Err(fault) = result {
            return (counts, calls, Err(format!("seed {seed}: {fault}")));
        }
    }
    (counts, calls, Ok(()))
}

#[test]
fn no_acknowledged_write_is_lost_and_no_number_comes_twice_through_power_cuts() {
    let cuts = std::env::var("TEGMEN_POWER_CUTS").map_or(CUTS, |text| text.parse().expect("a number of cuts"));
    let (counts, calls, result) = lives(When::Ever, cuts, None);
    println!("{counts:#?}\n{calls:#?}");
    result.unwrap();
    assert!(counts.cuts >= cuts && counts.during_start > 0 && counts.old_copies > 0, "{counts:?}");
    let target = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    std::fs::create_dir_all(&target).unwrap();
    std::fs::write(target.join("power.json"), counts.json()).unwrap();
}

#[test]
fn each_sync_is_needed_or_another_one_does_its_work() {
    // Every place that syncs is in one of the two lists.
    let mut calls = BTreeMap::<Site, Calls>::new();
    for when in [When::Ever, When::AtFirst] {
        let (_, some, result) = lives(when, 300, None);
        result.unwrap();
        calls.extend(some);
    }
    assert_eq!(calls[&Site::LogAgain].useful, 0, "a checkpoint syncs what a commit did not");
    let all: Vec<Site> = calls.keys().copied().collect();
    let mut listed: Vec<Site> =
        NEEDED.map(|(site, _)| site).into_iter().chain(REDUNDANT.map(|(site, _)| site)).collect();
    listed.sort();
    assert_eq!(all, listed);
    let mut not_missed = Vec::new();
    for (site, when) in NEEDED {
        match lives(when, MOST_WITHOUT_SYNC, Some(site)) {
            (counts, _, Err(fault)) => println!("without {site:?}, after {} cuts: {fault}", counts.cuts),
            (.., Ok(())) => not_missed.push(site),
        }
    }
    assert_eq!(not_missed, [], "nothing shows that these are needed");
    for (site, why) in REDUNDANT {
        let (counts, _, result) = lives(When::Ever, CUTS_WITHOUT_REDUNDANT, Some(site));
        result.unwrap();
        println!("without {site:?}, {} cuts lost nothing: {why}", counts.cuts);
    }
}

/// Number of power cuts, if `TEGMEN_POWER_CUTS` is not set.
const CUTS: u64 = 10_000;
/// Maximum number of power cuts until a test that leaves out a needed synchronization must find a fault.
const MOST_WITHOUT_SYNC: u64 = 10_000;

/// Number of power cuts in a test that leaves out one redundant synchronization.
const CUTS_WITHOUT_REDUNDANT: u64 = 500;

/// The synchronizations that are needed. Each element also has the time of the power cuts in the test that leaves out
/// this synchronization. In that test, a power cut loses an acknowledged change, or an older copy of the database is
/// accepted.
const NEEDED: [(Site, When); 10] = [
    (Site::Commit, When::Ever),
    (Site::LogHeader, When::Ever),
    (Site::Checkpoint, When::Ever),
    (Site::RolledBack, When::AtFirst),
    (Site::FirstPage, When::AtFirst),
    (Site::Journal, When::AtFirst),
    (Site::NewJournal, When::AtFirst),
    (Site::Draft, When::Ever),
    (Site::NewDraft, When::Ever),
    (Site::NewPlace, When::Ever),
];

/// The synchronizations whose absence loses nothing, each with the reason.
const REDUNDANT: [(Site, &str); 2] = [
    (Site::LogAgain, "a checkpoint syncs the log first, and with synchronous=FULL each commit has done so"),
    (Site::NewLog, "the directory is synced for the draft of the place before the first commit that is answered"),
];
