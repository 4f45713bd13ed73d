//! The bare operations of secp256r1, each with two private keys: key pair, key agreement, signature, verification.
#![no_std]
#![no_main]

use tegmen::crypto::{
    Crypto as _, DIGEST_LEN, MAX_SHARE, MAX_SIGNATURE, NamedGroup, P256_PREFIX, SCALAR_LEN, SignatureScheme,
};
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, Region, exit, stack_of};
use tegmen_firmware::place::Kept;

#[used]
#[unsafe(link_section = ".footprint")]
static OPERATIONS: [Note; 8] = [
    Note::operation(0, "key pair"),
    Note::operation(1, "agree"),
    Note::operation(2, "sign"),
    Note::operation(3, "verify"),
    Note::operation(4, "key pair, other key"),
    Note::operation(5, "agree, other key"),
    Note::operation(6, "sign, other key"),
    Note::operation(7, "verify, other key"),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets each of two parties make a key pair, agree on a secret with the other, sign, and verify its own signature.
/// Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let crypto = &mut Provider::new([0; 32]);
    let ends = ENDS.take()?;
    for (end, region) in ends.iter_mut().zip([0, 4]) {
        end.draw(crypto, region)?;
    }
    let [one, other] = ends;
    one.meet(crypto, 0, other)?;
    other.meet(crypto, 4, one)?;
    (one.secret == other.secret).then_some(())
}

/// One of the two parties of a key agreement: its keys, and the results of its computations. The value is aligned, so
/// that copying it takes the same number of instructions for both parties.
#[repr(align(4))]
struct End {
    private: [u8; SCALAR_LEN],
    /// A SubjectPublicKeyInfo, which ends with the key share.
    public: [u8; P256_PREFIX.len() + MAX_SHARE],
    secret: [u8; SCALAR_LEN],
    digest: [u8; DIGEST_LEN],
    signature: [u8; MAX_SIGNATURE],
}

impl End {
    const NEW: Self = Self {
        private: [0; SCALAR_LEN],
        public: [0; P256_PREFIX.len() + MAX_SHARE],
        secret: [0; SCALAR_LEN],
        digest: [0; DIGEST_LEN],
        signature: [0; MAX_SIGNATURE],
    };

    #[inline(never)]
    fn draw(&mut self, crypto: &mut Provider, region: u32) -> Option<()> {
        let (prefix, share) = self.public.split_first_chunk_mut()?;
        *prefix = P256_PREFIX;
        let share = share.first_chunk_mut()?;
        let key_pair = || crypto.key_pair(NamedGroup::SECP256R1, &mut self.private, share);
        Region::new(region).measured(key_pair).ok().map(|_| ())
    }

    #[inline(never)]
    fn meet(&mut self, crypto: &mut Provider, region: u32, other: &Self) -> Option<()> {
        let Self { private, public, secret, digest, signature } = self;
        let (_, share) = other.public.split_first_chunk::<{ P256_PREFIX.len() }>()?;
        let agree = || crypto.agree(NamedGroup::SECP256R1, private, share, secret);
        Region::new(region + 1).measured(agree).ok()?;
        // The encoding of a signature depends on its length, which everyone sees: both signatures have the same.
        while crypto.sign(private, digest, signature).ok()? < MAX_SIGNATURE {
            digest[0] = digest[0].wrapping_add(1);
        }
        Region::new(region + 2).measured(|| crypto.sign(private, digest, signature)).ok()?;
        let verify = || crypto.verify(SignatureScheme::ECDSA_SECP256R1_SHA256, public, digest, signature);
        Region::new(region + 3).measured(verify).ok()
    }
}

static ENDS: Kept<[End; 2]> = Kept::new([End::NEW; 2]);
