//! Measures the DTLS multicast of wolfSSL. The members of one group have a common secret, and each member can send
//! records to all other members. The commands of the program are:
//!
//! ```text
//! version
//! requests|one SUITE MEMBERS BYTES TURNS
//! ```
//!
//! A turn of `requests` has one record from each of the other members to the first member. A turn of `one` has one
//! record from the first member, which each of the others opens. Both commands print the CPU time of all turns. SUITE
//! has four hexadecimal digits.
mod ffi;

use ffi::Member;
use std::process::ExitCode;
use tegmen_bench_line::{Failure, Outbox, cpu_time};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<String, Failure> {
    let [kind @ ("requests" | "one"), suite, members, size, turns] = *words else {
        return if *words == ["version"] { Ok(ffi::version()) } else { Err(Failure::new("see the head of main.rs")) };
    };
    let suite = u16::from_str_radix(suite, 16).map_err(|error| Failure::new(error.to_string()))?;
    let (members, size, turns) = (number(members)?, number(size)?, number(turns)?);
    let members = u8::try_from(members).map_err(|_| Failure::new("at most 255 members"))?;
    let mut group = Group::new(suite, members)?;
    let content = vec![0x5a; size as usize];
    let turn = if kind == "one" { Group::one } else { Group::requests };
    turn(&mut group, &content)?;
    let begin = cpu_time()?;
    for _ in 0..turns {
        turn(&mut group, &content)?;
    }
    Ok(format!("nanoseconds {}", cpu_time()?.saturating_sub(begin).as_nanos()))
}

fn number(word: &str) -> Result<u32, Failure> {
    word.parse().map_err(|_| Failure::new(format!("not a number: {word}")))
}

/// The first member, and all other members.
struct Group {
    one: Member,
    many: Vec<Member>,
    outbox: Outbox,
    opened: Vec<u8>,
}

impl Group {
    fn new(suite: u16, members: u8) -> Result<Self, Failure> {
        let one = Member::new(0, suite, 1..=members)?;
        let many = (1..=members).map(|id| Member::new(id, suite, 0..=0)).collect::<Result<_, _>>()?;
        Ok(Self { one, many, outbox: Outbox::new(), opened: vec![0; 1 << 14] })
    }

    /// Seals a record at each of the other members, and opens the records at the first member.
    fn requests(&mut self, content: &[u8]) -> Result<(), Failure> {
        let Self { one, many, outbox, opened } = self;
        outbox.clear();
        for member in many.iter_mut() {
            member.seal(content, outbox)?;
        }
        for (datagram, id) in outbox.iter().zip(1..) {
            check(one.open(datagram, opened)?, (id, content), opened)?;
        }
        Ok(())
    }

    /// Seals a record at the first member, and opens it at each of the other members.
    fn one(&mut self, content: &[u8]) -> Result<(), Failure> {
        let Self { one, many, outbox, opened } = self;
        outbox.clear();
        one.seal(content, outbox)?;
        let datagram = outbox.iter().next().unwrap_or_default();
        for member in many {
            check(member.open(datagram, opened)?, (0, content), opened)?;
        }
        Ok(())
    }
}

fn check((from, len): (u16, usize), (id, content): (u16, &[u8]), opened: &[u8]) -> Result<(), Failure> {
    let is_same = from == id && opened.get(..len) == Some(content);
    if is_same {
        Ok(())
    } else {
        Err(Failure::new(format!("{len} bytes of member {from} came out in place of {id}'s")))
    }
}
