//! Checks that two operations do not reveal their result by the instructions that they execute or the addresses that
//! they access. The first operation opens records with MAC-then-encrypt. The second reads the secret in blocks that RSA
//! decrypted. The program also traces the operations of the crypto provider for motes on secp256r1, with different
//! private keys. Run it with `./ci.sh timing`.
//!
//! The program calls itself under `valgrind --tool=lackey --trace-mem=yes`, which prints each instruction and each
//! access to memory.
//!
//! * **Records**: the program opens records of one length with every possible padding. Some are correct, others are
//!   wrong in several ways. All traces must be the same from the first instruction on. Only at its end, after the
//!   result is known, the trace of a record that opens may differ from the trace of a record that does not open.
//! * **Decrypted blocks of RSA**: each block has at most one wrong byte, and the program tries each position of this
//!   byte. All blocks must have the same trace, because the code never learns whether a block was correct.
//! * **Key pairs, key agreements and signatures**: the trace must be the same for all private keys and for all seeds of
//!   the random generator.
//!
//! To show that it finds a difference, the program also traces functions that are not in constant time.

use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::hint::black_box;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use tegmen::crypto::{
    Compact, Crypto as _, DIGEST_LEN, MAX_SHARE, MAX_SIGNATURE, NamedGroup, RustCrypto, SCALAR_LEN, curves, digest,
    hmac,
};
use tegmen::dtls::{Channel, CipherSuite, PREMASTER_LEN, Records, premaster_secret};
use tegmen::secret::Secret;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let named = |mode: &&Mode| words.get(1).is_some_and(|word| word == mode.name);
    let outcome = match MODES.iter().find(named) {
        Some(mode) => open_all(mode).map(|()| true),
        None => compare(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("timing: {error}");
            ExitCode::FAILURE
        }
    }
}

// --- the traced code ---

/// The error in a record. For an RSA block, the four values mean changes of one byte of the block: the byte is
/// unchanged, is another value, is 0, or is 255.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Nothing,
    /// A byte of the message authentication code is wrong.
    Code,
    /// The first byte of the padding is wrong. If the padding has one byte, this is its length byte.
    FirstOfPadding,
    /// The next to last byte of the record is wrong.
    LastOfPadding,
}

// In a block of RSA, these are the values of one byte of the padding: right, changed, zero, all ones.

const WRONG: [Wrong; 4] = [Wrong::Nothing, Wrong::Code, Wrong::FirstOfPadding, Wrong::LastOfPadding];

/// A function that the program traces, and the inputs of the function. The function opens records, reads decrypted
/// blocks, or uses private keys.
struct Mode {
    name: &'static str,
    work: Work,
    /// One pair for each tested length. The first number is the number of bytes of the encrypted part. The second
    /// number is the step between the tested paddings, or between the tested places of a wrong byte.
    lens: &'static [(usize, usize)],
    /// True if the traces must differ, because the function is not in constant time.
    differs: bool,
}

#[derive(Clone, Copy)]
enum Work {
    /// Opens records. The values are the cipher suite, the function that makes a record, and the function that opens
    /// it.
    Records(CipherSuite, fn(usize, u8, Wrong) -> Vec<u8>, Open),
    /// Reads the premaster secret in decrypted blocks of RSA.
    Premaster(OpenBlock),
    /// Uses private keys on secp256r1.
    Keys(Operate),
}

const SHA256: CipherSuite = CipherSuite::PSK_WITH_AES_128_CBC_SHA256;
const SHA1: CipherSuite = CipherSuite::RSA_WITH_AES_128_CBC_SHA;

/// The functions to trace. The records have three lengths: the shortest length, a length that some paddings do not fit,
/// and the shortest length that all paddings fit. The blocks have the length of RSA-2048.
const MODES: [Mode; 9] = [
    Mode {
        name: "careless",
        work: Work::Records(SHA256, record::<DIGEST_LEN>, open_carelessly),
        lens: &[(288, 16)],
        differs: true,
    },
    Mode {
        name: "records",
        work: Work::Records(SHA256, record::<DIGEST_LEN>, Channel::open_record),
        lens: &[(48, 7), (160, 5), (288, 1)],
        differs: false,
    },
    Mode {
        name: "records-sha1",
        work: Work::Records(SHA1, record::<20>, Channel::open_record),
        lens: &[(32, 7), (160, 5), (288, 1)],
        differs: false,
    },
    Mode { name: "careless-rsa", work: Work::Premaster(premaster_carelessly), lens: &[(256, 16)], differs: true },
    Mode { name: "rsa", work: Work::Premaster(premaster), lens: &[(256, 1)], differs: false },
    Mode { name: "careless-key", work: Work::Keys(operate_carelessly), lens: &[(SCALAR_LEN, 256)], differs: true },
    Mode { name: "key-pair", work: Work::Keys(key_pair), lens: &[(SCALAR_LEN, 256)], differs: false },
    Mode { name: "key-agreement", work: Work::Keys(agree), lens: &[(SCALAR_LEN, 256)], differs: false },
    Mode { name: "signature", work: Work::Keys(sign), lens: &[(SCALAR_LEN, 256)], differs: false },
];
const IV: [u8; 16] = [9; 16];

fn block() -> [u8; 96] {
    std::array::from_fn(|i| i as u8)
}

fn mac_key<const LEN: usize>() -> [u8; LEN] {
    std::array::from_fn(|i| i as u8)
}

/// Returns the AES key of the client. In the key block, this key follows the MAC keys of both endpoints, which have
/// `LEN` bytes each.
fn key<const LEN: usize>() -> [u8; 16] {
    std::array::from_fn(|i| (2 * LEN + i) as u8)
}

/// Makes a record as a client seals it. `len` is the number of bytes of its encrypted part, and `padding` is the value
/// of its padding bytes. The hash of its message authentication code has digests of `LEN` bytes.
fn record<const LEN: usize>(len: usize, padding: u8, wrong: Wrong) -> Vec<u8> {
    let [high, low] = (len as u16 + 16).to_be_bytes();
    let header = [23, 254, 253, 0, 1, 0, 0, 0, 0, 0, 7, high, low];
    let mut text: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x55).collect();
    let behind = len.saturating_sub(usize::from(padding) + 1);
    text[behind..].fill(padding);
    if let Some(content) = behind.checked_sub(LEN) {
        let [high, low] = (content as u16).to_be_bytes();
        let aad = [0, 1, 0, 0, 0, 0, 0, 7, 23, 254, 253, high, low];
        let code = hmac::<RustCrypto, LEN>(&[&mac_key::<LEN>()], &[&aad, &text[..content]]);
        text[content..behind].copy_from_slice(&code);
    }
    let at = match wrong {
        Wrong::Nothing => len,
        Wrong::Code => behind.saturating_sub(7),
        Wrong::FirstOfPadding => behind,
        Wrong::LastOfPadding => len.saturating_sub(2),
    };
    if let Some(byte) = text.get_mut(at) {
        *byte ^= 0x40;
    }
    RustCrypto::new([0; 32]).cbc_encrypt(&key::<LEN>(), &IV, &mut text).expect("whole blocks");
    [&header[..], &IV, &text].concat()
}

const VERSION: [u8; 2] = [254, 253];

/// Makes a decrypted block of RSA with `len` bytes. `wrong` is the error in the byte at `at`.
fn block_of_rsa(len: usize, at: u8, wrong: Wrong) -> Vec<u8> {
    let mut block = vec![0x11; len];
    let secret = len - PREMASTER_LEN;
    [block[0], block[1], block[secret - 1]] = [0, 2, 0];
    block[secret..secret + 2].copy_from_slice(&VERSION);
    let byte = &mut block[usize::from(at)];
    match wrong {
        Wrong::Nothing => {}
        Wrong::Code => *byte ^= 0x40,
        Wrong::FirstOfPadding => *byte = 0,
        Wrong::LastOfPadding => *byte = 0xff,
    }
    block
}

/// A function that returns the secret in a decrypted block, or the random secret if the block is wrong.
type OpenBlock = fn(&[u8], &Secret<PREMASTER_LEN>) -> Secret<PREMASTER_LEN>;

#[inline(never)]
fn premaster(block: &[u8], random: &Secret<PREMASTER_LEN>) -> Secret<PREMASTER_LEN> {
    premaster_secret(block, block.len(), VERSION, random)
}

/// Does the same as [`premaster`], but without protection against Bleichenbacher's attack.
#[inline(never)]
fn premaster_carelessly(block: &[u8], random: &Secret<PREMASTER_LEN>) -> Secret<PREMASTER_LEN> {
    let secret = || {
        let rest = block.strip_prefix(&[0, 2])?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        let secret: &[u8; PREMASTER_LEN] = rest.get(end + 1..)?.try_into().ok()?;
        (end >= 8 && secret.starts_with(&VERSION)).then_some(*secret)
    };
    Secret::new(secret().unwrap_or(*random.expose()))
}

/// The private key for an operation, and the memory for the inputs and outputs of the operation.
struct Keyed {
    crypto: Compact,
    private: [u8; SCALAR_LEN],
    digest: [u8; DIGEST_LEN],
    share: [u8; MAX_SHARE],
    out: [u8; MAX_SIGNATURE],
}

/// A function that uses a private key on secp256r1. Returns true if it succeeded.
type Operate = fn(&mut Keyed) -> bool;

impl Keyed {
    /// Makes a private key from `number` and `wrong`, and a random generator with another seed for each key. The keys
    /// are unrelated. This code is traced too, so it uses the faster provider.
    fn new(number: u8, wrong: Wrong) -> Self {
        let private = digest::<RustCrypto, DIGEST_LEN>(&[&[number, wrong as u8]]);
        let mut digested = private;
        let mut out = [0; MAX_SIGNATURE];
        // The length of a signature is public, so all have the same length.
        while curves::sign(&private, &digested, &mut out) != Ok(MAX_SIGNATURE) {
            digested = digest::<RustCrypto, DIGEST_LEN>(&[&digested]);
        }
        let other = curves::public_key_of(&[5; SCALAR_LEN]).expect("a private key");
        let share = *other.last_chunk().expect("the point at the end");
        Self { crypto: Compact::new(digested), private, digest: digested, share, out }
    }
}

#[inline(never)]
fn key_pair(Keyed { crypto, private, share, .. }: &mut Keyed) -> bool {
    crypto.key_pair(NamedGroup::SECP256R1, private, share).is_ok()
}

#[inline(never)]
fn agree(Keyed { crypto, private, share, digest, .. }: &mut Keyed) -> bool {
    crypto.agree(NamedGroup::SECP256R1, private, share, digest).is_ok()
}

#[inline(never)]
fn sign(Keyed { crypto, private, digest, out, .. }: &mut Keyed) -> bool {
    crypto.sign(private, digest, out).is_ok()
}

/// Imitates a multiplication that is not in constant time: each bit of the private key that is 1 causes one more step.
#[inline(never)]
fn operate_carelessly(Keyed { private, digest: state, .. }: &mut Keyed) -> bool {
    for bit in private.iter().flat_map(|byte| (0..8).map(move |i| byte >> i & 1)) {
        if bit == 1 {
            *state = digest::<RustCrypto, DIGEST_LEN>(&[state]);
        }
    }
    true
}

/// A function that opens a record. Returns true if the record is authentic.
type Open = fn(&mut Channel, &mut RustCrypto, &mut [u8]) -> bool;

trait OpenRecord {
    fn open_record(&mut self, crypto: &mut RustCrypto, datagram: &mut [u8]) -> bool;
}

impl OpenRecord for Channel {
    #[inline(never)]
    fn open_record(&mut self, crypto: &mut RustCrypto, datagram: &mut [u8]) -> bool {
        let mut records = Records::new(datagram);
        let Some(Ok(record)) = records.next_record() else { return false };
        self.open(crypto, record).is_ok()
    }
}

/// Opens a record without protection against the attack Lucky Thirteen.
#[inline(never)]
fn open_carelessly(_: &mut Channel, crypto: &mut RustCrypto, datagram: &mut [u8]) -> bool {
    let (header, body) = datagram.split_at_mut(13);
    let (_, text) = body.split_at_mut(16);
    if crypto.cbc_decrypt(&key::<DIGEST_LEN>(), &IV, text).is_err() {
        return false;
    }
    let padding = usize::from(text[text.len() - 1]);
    let Some(len) = text.len().checked_sub(padding + 33) else { return false };
    let (content, rest) = text.split_at(len);
    let (code, padded) = rest.split_at(32);
    if padded.iter().any(|byte| usize::from(*byte) != padding) {
        return false;
    }
    let [high, low] = (len as u16).to_be_bytes();
    let aad = [&header[3..11], &header[..3], &[high, low]].concat();
    hmac::<RustCrypto, DIGEST_LEN>(&[&mac_key::<DIGEST_LEN>()], &[&aad, content]) == code
}

/// Bytes that mark the beginning and the end of an opening in the trace. The program writes the first byte before each
/// opening. After the opening, it writes the second byte if the record was refused, or the third byte if it was opened.
static MARKS: [AtomicU8; 3] = [const { AtomicU8::new(0) }; 3];

impl Mode {
    /// Returns the number of openings of each length before the traces begin. During these openings the program does
    /// all work that is necessary only once.
    const fn warm_up(&self) -> usize {
        match self.work {
            Work::Records(..) | Work::Premaster(_) => 16,
            // Each has millions of instructions.
            Work::Keys(_) => 1,
        }
    }

    /// Returns all cases of one length in the order of their openings. A case is a padding (or the place of a wrong
    /// byte) and an error.
    fn cases(&self, step: usize) -> impl Iterator<Item = (u8, Wrong)> {
        let warm_up = (0..self.warm_up()).map(|_| (0, Wrong::Nothing));
        warm_up.chain((0..=255).step_by(step).flat_map(|padding| WRONG.map(|wrong| (padding, wrong))))
    }
}

fn open_all(mode: &Mode) -> io::Result<()> {
    println!("{:p}", &raw const MARKS);
    io::stdout().flush()?;
    let crypto = &mut RustCrypto::new([0; 32]);
    let mut room = [0; 512];
    let [begin, refused, opened] = &MARKS;
    let mut channel = None;
    let mut keyed = None;
    let random = Secret::new([0xaa; PREMASTER_LEN]);
    for &(len, step) in mode.lens {
        for (padding, wrong) in mode.cases(step) {
            match mode.work {
                Work::Records(suite, record, open) => {
                    let sealed = record(len, padding, wrong);
                    let datagram = &mut room[..sealed.len()];
                    datagram.copy_from_slice(&sealed);
                    // The channel replaces the previous one, and has its keys at the same addresses.
                    drop(channel.take());
                    let made = suite.channel(false, &block(), false);
                    let channel = channel.insert(made.expect("a known suite"));
                    begin.store(1, Ordering::Release);
                    let authentic = open(channel, crypto, black_box(datagram));
                    if authentic { opened } else { refused }.store(1, Ordering::Release);
                }
                Work::Premaster(open) => {
                    let made = block_of_rsa(len, padding, wrong);
                    let place = &mut room[..len];
                    place.copy_from_slice(&made);
                    // The expected result is computed before the trace begins.
                    let right = *premaster_carelessly(place, &random).expose() != *random.expose();
                    begin.store(1, Ordering::Release);
                    let secret = black_box(open(black_box(place), &random));
                    if right { opened } else { refused }.store(1, Ordering::Release);
                    drop(secret);
                }
                Work::Keys(operate) => {
                    drop(keyed.take());
                    let keyed = keyed.insert(Keyed::new(padding, wrong));
                    begin.store(1, Ordering::Release);
                    let is_done = operate(black_box(keyed));
                    if is_done { opened } else { refused }.store(1, Ordering::Release);
                }
            }
        }
    }
    Ok(())
}

// --- the examination of the trace ---

/// The trace of one opening. Each line of the trace is an instruction or a memory access, with its address and its
/// size. `lines` has a hash of each line.
#[derive(Clone, Default)]
struct Trace {
    instructions: usize,
    accesses: usize,
    lines: Vec<u32>,
}

impl Trace {
    fn add(&mut self, line: &[u8]) {
        match line.first() {
            Some(b'I') => self.instructions += 1,
            _ => self.accesses += 1,
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(line);
        self.lines.push(hasher.finish() as u32);
    }

    /// Returns the number of lines from the first difference between the two traces to the end of the longer trace.
    fn parted(&self, other: &Self) -> usize {
        let common = self.lines.iter().zip(&other.lines).take_while(|(a, b)| a == b).count();
        self.lines.len().max(other.lines.len()) - common
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} instructions, {} accesses", self.instructions, self.accesses)
    }
}

/// The openings of one length whose traces must be the same: those of refused records, or those of records that opened.
#[derive(Default)]
struct Group {
    first: Option<(u8, Wrong, Trace)>,
    members: usize,
    different: usize,
    example: Option<String>,
}

impl Group {
    fn add(&mut self, (padding, wrong): (u8, Wrong), trace: Trace) {
        self.members += 1;
        let Some((first_padding, first_wrong, first)) = &self.first else {
            self.first = Some((padding, wrong, trace));
            return;
        };
        if first.lines == trace.lines {
            return;
        }
        self.different += 1;
        self.example.get_or_insert_with(|| {
            format!(
                "padding {first_padding}, wrong {first_wrong:?}: {first}; padding {padding}, wrong {wrong:?}: {trace}"
            )
        });
    }
}

fn compare() -> io::Result<bool> {
    let mut fine = true;
    for mode in &MODES {
        for (&(len, step), [refused, opened]) in mode.lens.iter().zip(trace(mode)?) {
            let different = refused.different + opened.different;
            let (no, yes) = (refused.members, opened.members);
            println!(
                "{}: {len} bytes: {no} refused and {yes} opened, {different} unlike the first of these",
                mode.name
            );
            refused.example.iter().chain(&opened.example).for_each(|example| println!("    {example}"));
            fine &= no + yes == mode.cases(step).count() - mode.warm_up() && (different > 0) == mode.differs;
            let most = match mode.work {
                Work::Records(..) => MOST_PARTED,
                Work::Premaster(_) => 0,
                Work::Keys(_) => {
                    // Each key has a result.
                    fine &= no == 0;
                    opened.first.iter().for_each(|(.., first)| println!("    {first}"));
                    continue;
                }
            };
            let (Some((.., no)), Some((.., yes))) = (&refused.first, &opened.first) else {
                println!("    none was refused, or none opened");
                fine = false;
                continue;
            };
            if !mode.differs {
                println!("    {no}; whether it opens is seen in the last {} lines", no.parted(yes));
                fine &= no.parted(yes) <= most;
            }
        }
    }
    println!("{}", if fine { "no trace reveals the padding, the code or a secret" } else { "failed" });
    Ok(fine)
}

/// Maximum number of lines in which the trace of a record that opens may differ from that of a refused record. These
/// are the lines after the result is known: either the replay window moves, or the failure is counted.
const MOST_PARTED: usize = 300;

/// Traces all openings of a mode. For each length, returns the group of refused records and the group of opened
/// records.
fn trace(mode: &Mode) -> io::Result<Vec<[Group; 2]>> {
    let mut command = Command::new("valgrind");
    command.args(["-q", "--tool=lackey", "--basic-counts=no", "--trace-mem=yes"]);
    command.arg(std::env::current_exe()?).arg(mode.name).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        io::Error::other(format!("valgrind: {error}; type: sudo apt-get install --no-install-recommends valgrind"))
    })?;
    let (Some(said), Some(traced)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    // The child prints the address of the marks before it warms up. It can continue only while its trace is read.
    let (send, receive) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(said).read_line(&mut line);
        let address = usize::from_str_radix(line.trim().trim_start_matches("0x"), 16);
        let _ = read.map(|_| address.map(|address| send.send(address)));
    });
    let mut traced = BufReader::with_capacity(1 << 20, traced);
    let mut groups: Vec<[Group; 2]> = mode.lens.iter().map(|_| <[Group; 2]>::default()).collect();
    let mut expected = mode.lens.iter().enumerate().flat_map(|(at, &(_, step))| {
        mode.cases(step).enumerate().map(move |(number, case)| (at, case, number >= mode.warm_up()))
    });
    let (mut line, mut marks, mut trace) = (Vec::new(), None, None::<Trace>);
    while traced.read_until(b'\n', &mut line)? > 0 {
        if marks.is_none() {
            let lines = |address: usize| [0, 1, 2].map(|i| format!(" S {:08x},1\n", address + i).into_bytes());
            marks = receive.try_recv().ok().map(lines);
        }
        let [begin, refused, opened] = marks.as_ref().map_or([&[][..]; 3], |marks| marks.each_ref().map(Vec::as_slice));
        if line == begin {
            trace = Some(Trace::default());
        } else if (line == refused || line == opened)
            && let Some(trace) = trace.take()
        {
            let Some((at, case, counts)) = expected.next() else { break };
            if let Some(groups) = groups.get_mut(at).filter(|_| counts) {
                groups[usize::from(line == opened)].add(case, trace);
            }
        } else if let Some(trace) = &mut trace {
            trace.add(&line);
        }
        line.clear();
    }
    let ended = child.wait()?;
    let _ = reader.join();
    match ended.success() && expected.next().is_none() {
        true => Ok(groups),
        false => Err(io::Error::other(format!("the trace has not all openings; {ended}"))),
    }
}
