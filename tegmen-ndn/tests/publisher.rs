//! Tests that a publisher never uses a nonce for two contents, at whatever moment its power is cut.

use std::collections::HashMap;
use tegmen_base::buf::Writer;
use tegmen_base::crypto::RustCrypto;
use tegmen_base::secret::Secret;
use tegmen_ndn::publisher::{ContentKey, PublishError, Publisher, TAG_LEN};
use tegmen_ndn::{Name, write_uri};

const CHUNK: u64 = 8;

fn key() -> ContentKey {
    ContentKey::new(Secret::new([5; 16]))
}

fn prefix(text: &str) -> Vec<u8> {
    let mut bytes = [0; 100];
    let mut out = Writer::new(&mut bytes);
    write_uri(text, &mut out).unwrap();
    out.written().to_vec()
}

/// Publishes a content. Returns its name and its ciphertext.
fn publish(publisher: &mut Publisher, prefix: &[u8], content: &[u8]) -> Result<(Vec<u8>, Vec<u8>), PublishError> {
    let mut crypto = RustCrypto::new([1; 32]);
    let (mut name, mut storage) = ([0; 100], [0; 100]);
    let (mut name, mut body) = (Writer::new(&mut name), Writer::new(&mut storage));
    body.put(content).unwrap();
    publisher.publish(&mut crypto, &Name::parse(prefix).unwrap(), &mut name, &mut body)?;
    Ok((name.written().to_vec(), body.written().to_vec()))
}

#[test]
fn a_content_is_opened_under_its_name_alone() {
    let mut crypto = RustCrypto::new([1; 32]);
    let mut publisher = Publisher::resume(key(), 0);
    assert_eq!(publish(&mut publisher, &prefix("/temp"), b"21"), Err(PublishError::NoVersion));
    publisher.extend(CHUNK);
    let (name, sealed) = publish(&mut publisher, &prefix("/temp"), b"21").unwrap();
    assert_eq!(Name::parse(&name).unwrap().to_string(), "/temp/v=0");
    assert_eq!(sealed.len(), 2 + TAG_LEN);
    let mut opened = sealed.clone();
    assert_eq!(key().open(&mut crypto, &Name::parse(&name).unwrap(), &mut opened), Ok(2));
    assert_eq!(&opened[..2], b"21");
    let other = prefix("/temp/v=1");
    key().open(&mut crypto, &Name::parse(&other).unwrap(), &mut sealed.clone()).unwrap_err();
    for bit in 0..sealed.len() * 8 {
        let mut changed = sealed.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        key().open(&mut crypto, &Name::parse(&name).unwrap(), &mut changed).unwrap_err();
    }
    key().open(&mut crypto, &Name::parse(&name).unwrap(), &mut [0; TAG_LEN - 1]).unwrap_err();
}

#[test]
fn a_name_or_a_content_that_does_not_fit_takes_a_version_all_the_same() {
    let mut publisher = Publisher::resume(key(), 0);
    publisher.extend(CHUNK);
    assert_eq!(publish(&mut publisher, &prefix("/temp"), &[0; 99]), Err(PublishError::Full));
    assert_eq!(publish(&mut publisher, &prefix(&format!("/{}", "n".repeat(97))), b"21"), Err(PublishError::Full));
    let (name, _) = publish(&mut publisher, &prefix("/temp"), b"21").unwrap();
    assert_eq!(Name::parse(&name).unwrap().to_string(), "/temp/v=2");
    assert_eq!(publisher.left(), CHUNK - 3);
}

/// A producer whose power can be cut at any step. If `keeps` is false, it has a fault: it uses reserved versions before
/// it has stored the end of the reserved versions.
struct Producer {
    publisher: Publisher,
    /// The stored end of the reserved versions, which is not lost in a power cut.
    stored: u64,
    keeps: bool,
}

impl Producer {
    fn restart(&mut self) {
        self.publisher = Publisher::resume(key(), self.stored);
    }

    /// Reserves more versions. `cut` is true if the power fails before the end of the reserved versions is stored.
    fn extend(&mut self, cut: bool) {
        let end = self.stored + CHUNK;
        if !self.keeps {
            self.publisher.extend(end);
        }
        if cut {
            return;
        }
        self.stored = end;
        self.publisher.extend(end);
    }
}

/// Runs 100 random steps. Returns the number of names, and how often a name got a second content.
fn run(seed: u64, keeps: bool) -> (usize, usize) {
    let mut random = seed.wrapping_mul(2).wrapping_add(1);
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let prefixes = ["/temp", "/hum"].map(prefix);
    let mut producer = Producer { publisher: Publisher::resume(key(), 0), stored: 0, keeps };
    let mut contents: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut twice = 0;
    for step in 0..100u64 {
        match draw(8) {
            0 => producer.restart(),
            1 => {
                producer.extend(true);
                // A content may leave before the power is gone.
                let content = step.to_be_bytes();
                if let Ok((name, sealed)) = publish(&mut producer.publisher, &prefixes[0], &content) {
                    twice += usize::from(contents.insert(name, sealed).is_some());
                }
                producer.restart();
            }
            2 => producer.extend(false),
            _ => {
                let content = step.to_be_bytes();
                if let Ok((name, sealed)) = publish(&mut producer.publisher, &prefixes[draw(2) as usize], &content) {
                    twice += usize::from(contents.insert(name, sealed).is_some());
                }
            }
        }
    }
    (contents.len(), twice)
}

#[test]
fn no_name_has_two_contents_in_10_000_runs_with_power_cuts() {
    let mut published = 0;
    for seed in 0..10_000 {
        let (names, twice) = run(seed, true);
        assert_eq!(twice, 0, "seed {seed}");
        published += names;
    }
    assert!(published > 100_000, "{published}");
}

#[test]
fn a_producer_that_uses_versions_before_they_are_stored_is_noticed() {
    assert!((0..100).any(|seed| run(seed, false).1 > 0));
}
