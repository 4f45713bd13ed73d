//! Hashes of passwords with Argon2id. At most two hashes are computed at the same time.

use crate::problem::{Code, Problem};
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};
use zeroize::Zeroizing;

/// Minimum number of characters in a password.
const SHORTEST: usize = 12;
const LONGEST: usize = 128;
/// The cost of a hash: the memory in KiB, the number of passes and the number of lanes. OWASP recommends these values
/// for Argon2id.
const COST: (u32, u32, u32) = (19_456, 2, 1);
/// Maximum number of hashes that are computed at the same time.
const AT_ONCE: usize = 2;
/// Maximum number of computations of hashes that wait while other computations run.
const WAITING: usize = 16;

/// A password, which is wiped on drop.
pub(crate) type Password = Zeroizing<String>;

/// Refuses a new password that is too short, too long, or contains the name of the user.
pub(crate) fn check(password: &str, name: &str) -> Result<(), Problem> {
    let invalid = |why: &str| Err(Problem::new(Code::InvalidUser, why));
    match password.chars().count() {
        ..SHORTEST => {
            invalid("the password is too short: it has 12 to 128 characters, because others may guess shorter ones")
        }
        SHORTEST..=LONGEST if password.contains(name) => {
            invalid("the password contains the name of the user, which others try first: choose another one")
        }
        SHORTEST..=LONGEST => Ok(()),
        _ => invalid("the password is too long: it has 12 to 128 characters"),
    }
}

/// Computes and compares hashes of passwords. Limits the number of computations that run at the same time.
pub(crate) struct Passwords {
    places: Semaphore,
    running: Semaphore,
    compared: AtomicU64,
    /// A hash that belongs to no user. The password of an unknown user is compared with this hash, so that the answer
    /// takes the same time as for a known user.
    nobody: Arc<str>,
}

fn argon2() -> Result<Argon2<'static>, Problem> {
    let (memory, passes, lanes) = COST;
    let params = Params::new(memory, passes, lanes, None).map_err(|_| fault())?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

fn fault() -> Problem {
    Problem::new(Code::Internal, "a password cannot be hashed: see the log of the server, and report it")
}

fn no_random() -> Problem {
    Problem::new(Code::NoRandom, "the system gives no random bytes")
}

fn hash(password: &str) -> Result<String, Problem> {
    let mut salt = [0; 16];
    aws_lc_rs::rand::fill(&mut salt).map_err(|_| no_random())?;
    let hash = argon2()?.hash_password_with_salt(password.as_bytes(), &salt).map_err(|_| fault())?;
    Ok(hash.to_string())
}

/// Compares a password with a hash, and returns true if they match. The duration does not depend on the position of the
/// first difference.
fn matches(password: &str, hash: &str) -> Result<bool, Problem> {
    let hash = PasswordHash::new(hash).map_err(|_| fault())?;
    Ok(argon2()?.verify_password(password.as_bytes(), &hash).is_ok())
}

impl Passwords {
    /// Makes the semaphores that limit how many hashes are computed at the same time, and a hash of random bytes, with
    /// which the passwords of unknown users are compared.
    pub(crate) fn new() -> Result<Self, Problem> {
        let mut drawn = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(&mut *drawn).map_err(|_| no_random())?;
        let nobody = hash(&Zeroizing::new(tegmen_base::hex::to_hex(&*drawn)))?.into();
        let (places, running) = (Semaphore::new(AT_ONCE.saturating_add(WAITING)), Semaphore::new(AT_ONCE));
        Ok(Self { places, running, compared: AtomicU64::new(0), nobody })
    }

    /// Waits until a hash may be computed. Returns a refusal if too many computations wait already. The caller must
    /// keep the returned permits until the computation has ended.
    async fn turn(&self) -> Result<(SemaphorePermit<'_>, SemaphorePermit<'_>), Problem> {
        let busy = || Problem::new(Code::TooManyLogins, "too many passwords are compared now: try again in a second");
        let place = self.places.try_acquire().map_err(|_| busy())?;
        let turn = self.running.acquire().await.map_err(|_| fault())?;
        Ok((place, turn))
    }

    /// Returns the hash of a new password as a PHC string.
    pub(crate) async fn hash(&self, password: Password) -> Result<String, Problem> {
        let _turn = self.turn().await?;
        tokio::task::spawn_blocking(move || hash(&password)).await.map_err(|_| fault())?
    }

    /// Returns true if the password has the hash `stored`. If `stored` is `None`, returns false, and takes as long as a
    /// comparison with a stored hash.
    pub(crate) async fn compare(&self, password: Password, stored: Option<String>) -> Result<bool, Problem> {
        let _turn = self.turn().await?;
        self.compared.fetch_add(1, Ordering::Relaxed);
        let nobody = Arc::clone(&self.nobody);
        let compared = move || {
            let is_same = matches(&password, stored.as_deref().unwrap_or(&nobody))?;
            Ok(is_same && stored.is_some())
        };
        tokio::task::spawn_blocking(compared).await.map_err(|_| fault())?
    }

    /// Returns the number of comparisons of passwords with hashes since the start of the server.
    pub(crate) fn compared(&self) -> u64 {
        self.compared.load(Ordering::Relaxed)
    }
}
