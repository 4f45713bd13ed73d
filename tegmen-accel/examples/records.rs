//! Prints the nanoseconds that one record takes on this processor. For comparison, also prints the times of the bare
//! AES instructions, and of the crates `ccm` and `sha2`.

use ccm::aead::inout::InOutBuf;
use ccm::aead::{AeadInOut, KeyInit};
use std::hint::black_box;
use std::time::Instant;
use tegmen_accel::{KeySchedule, bare_record, bare_record_expanding, open, portable, seal};

fn main() {
    let key = [0x42; 16];
    let nonce = [7; 12];
    let aad = [1; 13];
    let schedule = KeySchedule::expand(&key);
    println!("accelerated: {}", tegmen_accel::is_accelerated());
    time("bare AES of 64 B, key cached", || {
        black_box(bare_record(black_box(&schedule), black_box([3; 16])));
    });
    time("bare AES of 64 B, key expanded", || {
        black_box(bare_record_expanding(black_box(&key), black_box([3; 16])));
    });
    time("key expansion", || {
        black_box(KeySchedule::expand(black_box(&key)));
    });
    for len in [16, 64, 256, 1024] {
        // Several records in turn, as traffic is: the work on one does not depend on the one before.
        let mut sealed = vec![vec![5; len]; RECORDS];
        let mut tags = [[0; 8]; RECORDS];
        let mut turn = (0..RECORDS).cycle();
        let mut next = || turn.next().unwrap_or(0);
        time(&format!("seal {len} B, key cached"), || {
            let at = next();
            seal(black_box(&schedule), black_box(&nonce), black_box(&aad), &mut sealed[at], &mut tags[at]).unwrap();
        });
        time(&format!("seal {len} B, key expanded"), || {
            let at = next();
            let schedule = KeySchedule::expand(black_box(&key));
            seal(&schedule, black_box(&nonce), black_box(&aad), &mut sealed[at], &mut tags[at]).unwrap();
        });
        let cipher = ccm::Ccm::<aes::Aes128, ccm::consts::U8, ccm::consts::U12>::new((&key).into());
        time(&format!("seal {len} B, crate ccm, key cached"), || {
            let body = InOutBuf::from(&mut sealed[next()][..]);
            black_box(cipher.encrypt_inout_detached(black_box(&nonce).into(), black_box(&aad), body).unwrap());
        });
        time(&format!("seal {len} B, portable path"), || {
            let at = next();
            portable::seal(black_box(&schedule), &nonce, black_box(&aad), &mut sealed[at], &mut tags[at]).unwrap();
        });
        for at in 0..RECORDS {
            seal(&schedule, &nonce, &aad, &mut sealed[at], &mut tags[at]).unwrap();
        }
        let mut bodies = sealed.clone();
        time(&format!("open {len} B, key cached, with a copy"), || {
            let at = next();
            bodies[at].copy_from_slice(&sealed[at]);
            open(black_box(&schedule), black_box(&nonce), black_box(&aad), &mut bodies[at], &tags[at]).unwrap();
        });
        time(&format!("open {len} B, key expanded, with a copy"), || {
            let at = next();
            bodies[at].copy_from_slice(&sealed[at]);
            let schedule = KeySchedule::expand(black_box(&key));
            open(&schedule, black_box(&nonce), black_box(&aad), &mut bodies[at], &tags[at]).unwrap();
        });
    }
    let mut state = [1; 8];
    let block = [[2; 64]];
    time("SHA-256 compression, crate sha2", || sha2::block_api::compress256(black_box(&mut state), black_box(&block)));
}

const RECORDS: usize = 32;

/// Prints the shortest time of 501 runs, because other work of the machine can only make a run longer. Also prints the
/// median.
fn time(name: &str, mut once: impl FnMut()) {
    const ROUNDS: u32 = 1_000;
    let mut runs: Vec<f64> = (0..501)
        .map(|_| {
            let start = Instant::now();
            (0..ROUNDS).for_each(|_| once());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{name:40} {:8.1} ns {:8.1} ns", runs[0], runs[250]);
}
