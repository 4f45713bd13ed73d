//! Simulates groups with thousands of seeds. The devices join, send requests, restart and are evicted. The network
//! loses, repeats and reorders messages. An attacker changes messages, and members and evicted devices forge them.

use crate::scene::{Action, Counts, Mutant, Scene, Violation};
use std::sync::Arc;
use tegmen::axiom::Suite;
use tegmen_trust::x509::signer::SoftwareKey;

/// The number of seeds, unless the environment variable TEGMEN_SEEDS contains another number.
const SEEDS: u64 = 10_000;
const STEPS: usize = 60;
const LEVELS: u8 = 2;

/// A random number generator: SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % sides as u64) as usize
    }
}

/// Executes one random action. Most actions are requests, and deliveries of recent messages. Some deliveries are of
/// messages from long ago.
fn step(scene: &mut Scene, dice: &mut Dice) -> Result<(), Violation> {
    let who = dice.roll(scene.devices.len());
    let all = scene.sent.len();
    let recent = if dice.roll(4) == 0 { all } else { all.min(8) };
    let at = (recent > 0).then(|| all - 1 - dice.roll(recent));
    let action = match dice.roll(40) {
        0..8 => Action::Ask(who),
        8..26 => match at {
            Some(at) => Action::Deliver(at, who),
            None => Action::Ask(who),
        },
        26..29 => {
            let bits: Vec<usize> = (0..=dice.roll(3)).map(|_| dice.roll(1024)).collect();
            return at.map_or(Ok(()), |at| scene.spoil(at, &bits));
        }
        29 => return scene.pose(who),
        30 => {
            scene.forge_rekey(who);
            return Ok(());
        }
        31 | 32 => Action::Restart(who),
        33 => Action::Forget(who),
        34 => Action::Evict(who),
        35 => Action::Join(who),
        36 => Action::Rekey,
        37 => Action::CatchUp(who),
        _ => {
            for at in scene.rekeying(who) {
                scene.act(Action::Deliver(at, who))?;
            }
            return Ok(());
        }
    };
    scene.act(action).map(drop)
}

/// Gives all members the keys of the present epoch. Then checks that each member accepts a request of each other
/// member, if necessary after a challenge.
fn ends_well(scene: &mut Scene) -> Result<(), Violation> {
    let members: Vec<usize> = (0..scene.devices.len()).filter(|who| scene.devices[*who].until.is_none()).collect();
    for who in &members {
        scene.act(Action::CatchUp(*who))?;
    }
    for from in &members {
        for who in members.iter().filter(|who| *who != from) {
            let before = scene.counts.requests;
            for _ in 0..3 {
                scene.act(Action::Ask(*from))?;
                scene.act(Action::Deliver(scene.sent.len() - 1, *who))?;
                scene.act(Action::Deliver(scene.sent.len() - 1, *from))?;
            }
            assert!(scene.counts.requests > before, "device {who} does not hear device {from}");
        }
    }
    Ok(())
}

fn run(seed: u64, mutant: Mutant, signer: &Arc<SoftwareKey>) -> Result<Counts, Violation> {
    let suite = [Suite::Ccm, Suite::Ccm8, Suite::Gcm][(seed % 3) as usize];
    let mut dice = Dice(seed);
    let members = 2 + dice.roll(3);
    let mut scene = Scene::new((seed, suite, mutant), (LEVELS, members, 60), Some(Arc::clone(signer)));
    for _ in 0..STEPS {
        step(&mut scene, &mut dice)?;
    }
    if mutant == Mutant::None {
        ends_well(&mut scene)?;
    }
    Ok(scene.counts)
}

fn signer() -> Arc<SoftwareKey> {
    let pair = rcgen::KeyPair::generate().unwrap();
    Arc::new(SoftwareKey::from_pem(pair.serialize_pem().as_bytes()).unwrap())
}

#[test]
fn no_seed_lets_a_replay_or_a_forgery_in_or_repeats_a_nonce() {
    let (signer, mut all) = (signer(), Counts::default());
    let seeds = std::env::var("TEGMEN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    for seed in 0..seeds {
        let counts = run(seed, Mutant::None, &signer).unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"));
        let Counts { requests, responses, verified, refused, epochs } = counts;
        all.requests += requests;
        all.responses += responses;
        all.verified += verified;
        all.refused += refused;
        all.epochs += epochs;
    }
    println!("{seeds} seeds: {all:?}");
    let Counts { requests, responses, verified, refused, epochs } = all;
    let least = [requests, responses, verified, refused, epochs].into_iter().min();
    assert!(least > Some(seeds as usize), "the seeds reach too little: {all:?}");
}

#[test]
fn the_seeds_find_each_mutant() {
    let signer = signer();
    for mutant in [Mutant::NoStorage, Mutant::NoProof, Mutant::KeepsNodes] {
        let found = (0..200).filter(|seed| run(*seed, mutant, &signer).is_err()).count();
        println!("{mutant:?}: {found} of 200 seeds");
        assert!(found > 0, "{mutant:?}");
    }
}
