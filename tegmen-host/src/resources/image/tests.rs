#![expect(clippy::single_range_in_vec_init, reason = "a list of gaps may have one")]

use super::*;
use crate::digest::sha256;
use crate::image::{Advance, ImageTransfer};
use std::net::IpAddr;

/// A directory for a test, which is removed at the end of the test.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-image-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn image(&self, now: u64) -> Image {
        Image::new(self.file(), 1 << 20, at(now)).unwrap()
    }

    fn file(&self) -> PathBuf {
        self.0.join("fw.bin")
    }

    /// Returns the names of the files in the directory.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn at(seconds: u64) -> Instant {
    Instant::from_micros(seconds * 1_000_000)
}

fn code(result: Result<Taken, Trouble>) -> Code {
    result.map(|taken| panic!("{taken:?}")).unwrap_or_else(|trouble| trouble.code)
}

/// A generator of random numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// Takes a block in the same way as the server.
fn take(image: &Image, id: ImageId, start: u32, bytes: &[u8], now: Instant) {
    match image.take(id, start, bytes, now).unwrap_or_else(|trouble| panic!("{:?} {:?}", trouble.code, trouble.cause)) {
        Taken::Whole(whole) => assert!(image.finish(whole).is_ok()),
        Taken::Incomplete | Taken::Known => {}
    }
}

/// Simulates a sender and three members. Blocks are lost, delayed and repeated, requests and reports are lost, and
/// members restart. At the end all members have the image. Until then they have their old file.
fn distribute(scene: &Scene, seed: u64) {
    let mut random = Random::new(seed);
    let bytes: Vec<u8> = (0..1 + random.below(8_000)).map(|_| random.below(256) as u8).collect();
    let block = 64 << random.below(5);
    let loss = random.below(60);
    let files: Vec<_> = (0..3).map(|member| scene.0.join(format!("{member}.bin"))).collect();
    let new = |file: &PathBuf| Image::new(file.clone(), 1 << 20, at(0)).unwrap();
    for file in &files {
        std::fs::write(file, b"old").unwrap();
    }
    let mut members: Vec<_> = files.iter().map(|file| Some(new(file))).collect();
    let mut transfer = ImageTransfer::new(&bytes, block as usize).unwrap();
    let longest = 16 + random.below(100) as usize;
    let mut rounds = 0;
    loop {
        let mut is_missing = false;
        for (image, number) in members.iter().flatten().zip(1..) {
            if random.below(100) < loss {
                is_missing = true;
                continue;
            }
            let report = image.report(transfer.id(), longest, at(1)).unwrap_or_else(|_| panic!("a report"));
            let read = ImageReport::read(&report.write(), transfer.id()).unwrap();
            transfer.note(IpAddr::from([10, 0, 0, number]), read);
        }
        if transfer.advance(is_missing) == Advance::Done && transfer.members().len() == 3 {
            break;
        }
        rounds += 1;
        assert!(rounds < 1000, "seed {seed} comes to an end");
        let mut late = Vec::new();
        for (block, part) in transfer.blocks() {
            late.push((block.offset() as u32, part));
            if random.below(4) == 0 {
                late.push((block.offset() as u32, part));
            }
        }
        for (member, file) in members.iter_mut().zip(&files) {
            let Some(image) = member.as_ref() else { continue };
            let mut order = late.clone();
            for place in 0..order.len() {
                order.swap(place, random.below(late.len() as u64) as usize);
            }
            for (start, part) in order {
                if random.below(100) < loss {
                    continue;
                }
                take(image, transfer.id(), start, part, at(1));
            }
            let content = std::fs::read(file).unwrap();
            assert!(content == b"old" || content == bytes, "seed {seed}: no part is ever seen");
            if random.below(5) == 0 {
                // It ends before it starts again.
                drop(member.take());
                *member = Some(new(file));
            }
        }
    }
    for file in &files {
        assert!(std::fs::read(file).unwrap() == bytes, "seed {seed}");
    }
    assert_eq!(scene.names(), ["0.bin", "1.bin", "2.bin"], "seed {seed} leaves nothing else");
}

#[test]
fn blocks_in_any_order_with_losses_and_restarts_make_the_image() {
    let scene = Scene::new("seeds");
    for seed in 0..1000 {
        distribute(&scene, seed);
    }
}

#[test]
fn an_image_replaces_another_one_only_after_a_minute_of_silence() {
    let scene = Scene::new("two");
    let image = scene.image(0);
    let (one, other) = (vec![1; 640], vec![2; 640]);
    let id = |bytes: &[u8]| ImageId::new(&sha256(bytes), 640);
    let report = |id, now| image.report(id, 100, at(now)).unwrap_or_else(|_| panic!("a report"));
    take(&image, id(&one), 0, &one[..64], at(0));
    assert_eq!(report(id(&one), 1), ImageReport::Lacks(vec![1..10]));
    assert_eq!(report(id(&other), 1), ImageReport::Busy(id(&one).digest));
    assert_eq!(code(image.take(id(&other), 0, &other[..64], at(59))), Code::CONFLICT);
    // A block that is there already does not hold the place.
    take(&image, id(&one), 0, &one[..64], at(59));
    assert_eq!(report(id(&other), 60), ImageReport::Lacks(vec![0..10]));
    take(&image, id(&other), 128, &other[128..256], at(60));
    assert_eq!(report(id(&other), 61), ImageReport::Lacks(vec![0..2, 4..10]));
    assert_eq!(report(id(&one), 61), ImageReport::Busy(id(&other).digest));
    // A report of few bytes has the first gaps.
    assert_eq!(image.report(id(&other), 7, at(61)).ok(), Some(ImageReport::Lacks(vec![0..2])));
}

#[test]
fn blocks_that_fit_no_image_change_nothing() {
    let scene = Scene::new("misfits");
    let image = scene.image(0);
    let bytes = vec![7; 200];
    let id = ImageId::new(&sha256(&bytes), 200);
    for (start, len) in [(0, 63), (1, 64), (128, 64), (192, 9), (200, 1), (256, 64), (0, 0), (u32::MAX, 64)] {
        let refused = image.take(id, start, &vec![7; len], at(0));
        if (start, len) == (128, 64) {
            assert!(matches!(refused, Ok(Taken::Incomplete)), "which fits");
        } else {
            assert_eq!(code(refused), Code::BAD_REQUEST, "{start} {len}");
        }
    }
    let large = ImageId { size: (1 << 20) + 1, ..id };
    assert_eq!(code(image.take(large, 0, &[7; 64], at(100))), Code::REQUEST_ENTITY_TOO_LARGE);
    assert_eq!(image.report(large, 100, at(100)).ok(), Some(ImageReport::TooLarge(1 << 20)));
    assert_eq!(image.report(id, 100, at(0)).ok(), Some(ImageReport::Lacks(vec![0..2, 3..4])));
}

#[test]
fn an_image_with_another_digest_is_dropped_and_the_file_stays() {
    let scene = Scene::new("forged");
    std::fs::write(scene.file(), b"old").unwrap();
    let image = scene.image(0);
    let id = ImageId::new(&sha256(b"genuine"), 7);
    let Ok(Taken::Whole(whole)) = image.take(id, 0, b"garbage", at(0)) else { panic!("one block is all") };
    assert!(
        matches!(image.report(id, 100, at(0)), Ok(ImageReport::Lacks(gaps)) if gaps.is_empty()),
        "while it verifies"
    );
    let other = ImageId::new(&sha256(b"another"), 7);
    assert_eq!(image.report(other, 100, at(0)).ok(), Some(ImageReport::Busy(id.digest)));
    let trouble = image.finish(whole).unwrap_err();
    assert_eq!(trouble.code, Code::UNPROCESSABLE_ENTITY);
    assert_eq!(std::fs::read(scene.file()).unwrap(), b"old");
    assert_eq!(scene.names(), ["fw.bin"]);
    // It starts over, and a block of it that comes late changes nothing.
    assert_eq!(image.report(id, 100, at(0)).ok(), Some(ImageReport::Lacks(vec![0..1])));
    take(&image, id, 0, b"genuine", at(1));
    assert_eq!(std::fs::read(scene.file()).unwrap(), b"genuine");
    assert!(matches!(image.take(id, 0, b"garbage", at(2)), Ok(Taken::Known)));
    assert_eq!(image.report(id, 100, at(2)).ok(), Some(ImageReport::Complete(sha256(b"genuine"))));
    assert_eq!(scene.names(), ["fw.bin"]);
    // Somebody else changed the file.
    std::fs::write(scene.file(), b"changed").unwrap();
    assert_eq!(image.report(id, 100, at(2)).ok(), Some(ImageReport::Lacks(vec![0..1])));
}

#[test]
fn two_resources_of_one_file_do_not_mix_their_blocks() {
    let scene = Scene::new("shared");
    let (one, bytes) = (scene.image(0), [7; 640]);
    let id = ImageId::new(&sha256(&bytes), 640);
    take(&one, id, 0, &bytes[..64], at(0));
    let other = scene.image(0);
    let all = Some(ImageReport::Lacks(vec![0..10]));
    assert_eq!(other.report(id, 100, at(0)).ok(), all, "it does not continue what another one receives");
    assert_eq!(code(other.take(id, 64, &bytes[64..], at(0))), Code::INTERNAL_SERVER_ERROR);
    take(&one, id, 64, &bytes[64..], at(1));
    assert_eq!(std::fs::read(scene.file()).unwrap(), bytes);
    assert!(matches!(other.take(id, 0, &bytes[..64], at(1)), Ok(Taken::Known)));
}

#[test]
fn an_incomplete_file_that_is_damaged_is_begun_again() {
    let scene = Scene::new("damaged");
    let bytes: Vec<u8> = (0..1000_u32).map(|n| n as u8).collect();
    let id = ImageId::new(&sha256(&bytes), 1000);
    let part = scene.0.join(".fw.bin.part");
    take(&scene.image(0), id, 64, &bytes[64..128], at(0));
    let kept = std::fs::read(&part).unwrap();
    let lacks = |gaps: &[Range<u32>]| Some(ImageReport::Lacks(gaps.to_vec()));
    assert_eq!(scene.image(9).report(id, 100, at(9)).ok(), lacks(&[0..1, 2..16]), "it continues");
    for len in 0..kept.len() {
        std::fs::write(&part, &kept[..len]).unwrap();
        assert_eq!(scene.image(9).report(id, 100, at(9)).ok(), lacks(&[0..16]), "{len}");
    }
    // All units are marked as received, as after a power cut: the digest shows that they are not.
    let mut whole = kept.clone();
    whole[1000..1002].fill(0xff);
    std::fs::write(&part, &whole).unwrap();
    assert_eq!(scene.image(9).report(id, 100, at(9)).ok(), lacks(&[0..16]));
    assert!(scene.names().is_empty());
    // The process ended after the last block, and before the image was verified.
    whole[..1000].copy_from_slice(&bytes);
    std::fs::write(&part, &whole).unwrap();
    assert_eq!(scene.image(9).report(id, 100, at(9)).ok(), Some(ImageReport::Complete(sha256(&bytes))));
    assert_eq!(scene.names(), ["fw.bin"]);
}
