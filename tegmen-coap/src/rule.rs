//! Rules on requests in the notation of files and commands: the methods and the path, such as `GET /sensors/*`.

use crate::code::Code;
use core::fmt;

/// A set of methods. Its low seven bits are the permissions of RFC 9237, section 3 (GET 1, POST 2, PUT 4, DELETE 8,
/// FETCH 16, PATCH 32, iPATCH 64). Bit 7 represents all other methods.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Methods(pub u8);

/// Names of methods and of sets of methods. The sets come first, so that [`Methods`] is written with the name of a
/// set where possible.
const NAMED: [(&str, Methods); 11] = [
    ("*", Methods::ALL),
    ("read-write", Methods(Methods::READ.0 | Methods::WRITE.0)),
    ("read", Methods::READ),
    ("write", Methods::WRITE),
    ("GET", Methods(1)),
    ("POST", Methods(2)),
    ("PUT", Methods(4)),
    ("DELETE", Methods(8)),
    ("FETCH", Methods(16)),
    ("PATCH", Methods(32)),
    ("iPATCH", Methods(64)),
];

impl Methods {
    /// No method.
    pub const NONE: Self = Self(0);
    /// Every method, also methods that are not registered yet.
    pub const ALL: Self = Self(255);
    /// GET and FETCH, which do not change a resource.
    pub const READ: Self = Self(1 | 16);
    /// POST, PUT, PATCH and iPATCH. DELETE is not included, because the right to write a resource is not the right to
    /// remove it.
    pub const WRITE: Self = Self(2 | 4 | 32 | 64);

    /// Returns the set that a word names: a method, `read`, `write`, `read-write` or `*`.
    pub fn named(word: &str) -> Option<Self> {
        NAMED.iter().find(|(name, _)| *name == word).map(|(_, methods)| *methods)
    }

    /// Returns the set that contains one method.
    pub const fn of(code: Code) -> Self {
        match code.0 {
            1..=7 => Self(1 << (code.0.wrapping_sub(1))),
            _ => Self(128),
        }
    }

    /// Returns the methods of the set that have their own bit.
    pub fn codes(self) -> impl Iterator<Item = Code> {
        (1..=7).map(Code).filter(move |code| self.contains(Self::of(*code)))
    }

    /// Returns true if each method of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if at least one method is in both sets.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl fmt::Display for Methods {
    /// Writes the name of this set of methods, such as `read-write`. If the set has no name, writes the names of its
    /// methods, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = NAMED.iter().find(|(_, methods)| methods == self) {
            return f.write_str(name);
        }
        let mut first = true;
        for (name, _) in NAMED.iter().filter(|(_, one)| one.0.is_power_of_two() && self.contains(*one)) {
            write!(f, "{}{name}", if first { "" } else { "," })?;
            first = false;
        }
        Ok(())
    }
}

/// A rule on requests: methods, and one path or all paths with the same beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule<'a> {
    /// The methods of the requests to which the rule applies.
    pub methods: Methods,
    /// The path, which begins with a slash. With a `*` at the end, it means every path that begins with the text
    /// before the `*`.
    pub path: &'a str,
}

impl<'a> Rule<'a> {
    /// A description of the syntax of a rule. Error messages contain it.
    pub const EXPECTED: &'static str = "a method (GET, POST, PUT, DELETE, FETCH, PATCH, iPATCH, read, write, read-write or *) and a path, as \
         \"GET /sensors/*\"";

    /// Reads a rule: the name of a method or of a set of methods, a space, and a path. Returns `None` if the text is
    /// not a rule.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (word, path) = text.split_once(' ')?;
        let methods = Methods::named(word)?;
        path.starts_with('/').then_some(Self { methods, path })
    }

    /// Returns true if the rule includes this method and the path that consists of these bytes.
    pub fn covers(&self, code: Code, mut path: impl Iterator<Item = u8>) -> bool {
        self.methods.contains(Methods::of(code))
            && match self.path.strip_suffix('*') {
                Some(prefix) => prefix.bytes().all(|byte| path.next() == Some(byte)),
                None => path.eq(self.path.bytes()),
            }
    }

    /// Returns true if this rule includes each path of the other rule. The methods do not matter.
    pub fn has_paths_of(&self, other: &Rule<'_>) -> bool {
        match self.path.strip_suffix('*') {
            Some(prefix) => other.path.strip_suffix('*').unwrap_or(other.path).starts_with(prefix),
            None => self.path == other.path,
        }
    }

    /// Returns true if there is a method and a path that both rules include.
    pub fn meets(&self, other: &Rule<'_>) -> bool {
        let has_path = match (self.path.strip_suffix('*'), other.path.strip_suffix('*')) {
            (Some(one), Some(two)) => one.starts_with(two) || two.starts_with(one),
            _ => self.has_paths_of(other) || other.has_paths_of(self),
        };
        has_path && self.methods.meets(other.methods)
    }
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.methods, self.path)
    }
}

#[cfg(test)]
mod tests;
