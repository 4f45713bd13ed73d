//! Rules and tests of a policy, as its file contains them.

use super::pattern::{OwnedParty, Party, Pattern};
use std::fmt;
use tegmen_coap::{self as coap, Code, Methods};

/// The consequence of a rule that covers a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Effect {
    /// The request is refused, even if other rules allow it.
    Deny,
    /// The request is allowed, unless a rule denies it.
    Allow,
}

impl Effect {
    /// Returns the word for the effect in a policy file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }
}

/// One element of the list `allow` or `deny`: the methods, and a path. A path that ends with `*` means all paths that
/// begin with the text before the `*`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Resource {
    pub(super) methods: u8,
    pub(super) path: String,
}

impl Resource {
    pub(super) fn new(rule: &coap::Rule<'_>) -> Self {
        Self { methods: rule.methods.0, path: rule.path.to_owned() }
    }

    pub(super) fn view(&self) -> coap::Rule<'_> {
        coap::Rule { methods: Methods(self.methods), path: &self.path }
    }
}

/// A `[[rule]]` of a policy file.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// The number of the line of the rule, from 1.
    pub(super) line: usize,
    pub(super) name: Option<String>,
    pub(super) subjects: Vec<Pattern>,
    pub(super) publishers: Vec<Pattern>,
    pub(super) effect: Effect,
    pub(super) resources: Vec<Resource>,
}

impl Rule {
    pub(super) fn covers_subject(&self, party: &Party<'_>) -> bool {
        self.subjects.iter().any(|pattern| pattern.covers(party))
    }

    pub(super) fn covers_publisher(&self, party: &Party<'_>) -> bool {
        self.publishers.iter().any(|pattern| pattern.covers(party))
    }

    pub(super) fn covers_request(&self, method: Code, path: &str) -> bool {
        self.resources.iter().any(|resource| resource.view().covers(method, path.bytes()))
    }
}

impl fmt::Display for Rule {
    /// Writes the content of the rule, such as `deny display-9 at *: * /*`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resources: Vec<String> = self.resources.iter().map(|resource| resource.view().to_string()).collect();
        let (subjects, publishers) = (words(&self.subjects), words(&self.publishers));
        write!(f, "{} {subjects} at {publishers}: {}", self.effect.name(), resources.join(", "))
    }
}

/// Joins patterns with commas.
pub(super) fn words(patterns: &[Pattern]) -> String {
    let words: Vec<String> = patterns.iter().map(Pattern::to_string).collect();
    words.join(", ")
}

/// A `[[test]]` of a policy file.
#[derive(Clone, Debug)]
pub(super) struct Test {
    /// The number of the line of the test, from 1.
    pub(super) line: usize,
    pub(super) subject: OwnedParty,
    pub(super) publisher: OwnedParty,
    pub(super) method: Code,
    pub(super) path: String,
    pub(super) expect: Effect,
    /// The name of the rule that must decide; `None` if any rule may decide.
    pub(super) by: Option<String>,
}

/// Returns true if a request can have this path: only its last segment may be empty, and no segment is `.` or `..` (RFC
/// 7252, section 5.10.1).
pub(super) fn is_request_path(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let mut segments = rest.split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        if matches!(segment, "." | "..") || segment.is_empty() && !last {
            return false;
        }
    }
    true
}
