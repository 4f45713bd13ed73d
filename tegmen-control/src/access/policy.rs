//! A policy: one readable file of rights, with its own tests.
//!
//! ```toml
//! [[rule]]
//! name = "displays read the kitchen"
//! subject = ["display-*", "tag:display"]   # names or tags; display-* stands for all names that begin with display-
//! publisher = "tag:kitchen"
//! allow = ["GET /sensors/*", "read /status"]
//!
//! [[rule]]
//! subject = "display-9"                    # lent to the workshop
//! publisher = "*"
//! deny = "* /*"
//!
//! [[test]]
//! subject = "display-3"
//! publisher = ["oven", "tag:kitchen"]
//! request = "GET /sensors/1"
//! expect = "allow"
//! by = "displays read the kitchen"
//! ```
//!
//! A request is allowed if a rule allows it and no rule denies it. The order of the rules has no meaning, so a rule
//! that denies has the same effect at each position in the file. Without any rule nothing is allowed. Methods and paths
//! are written as in the credentials file ([`tegmen_coap::Rule`]).
//!
//! [`Policy::parse`] reads a file, and [`Policy::tested`] runs the tests of the file. Only a [`TestedPolicy`] can be
//! applied.

mod diff;
mod explain;
mod file;
mod index;
mod pattern;
mod rule;
mod sets;
mod trial;
mod trie;

pub use diff::{Change, Diff, MAX_QUESTIONS};
pub use explain::{Explanation, NearRule, Part};
pub use file::{MAX_RULES, PolicyError, request};
pub use pattern::{MAX_NAME, MAX_TAGS, OwnedParty, Party};
pub use rule::Effect;
pub use trial::{FailedTest, TestedPolicy};

use index::Index;
use rule::{Rule, Test, is_request_path};
use std::fmt;
use tegmen_coap::{self as coap, Code};

/// A request about which a policy decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question<'a> {
    /// The party that makes the request.
    pub subject: Party<'a>,
    /// The party that has the requested resource.
    pub publisher: Party<'a>,
    /// The method.
    pub method: Code,
    /// The path, beginning with its first slash.
    pub path: &'a str,
}

impl fmt::Display for Question<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} by {} at {}", self.method.name(), self.path, self.subject, self.publisher)
    }
}

/// A rule of a [`Policy`], named by its position in the policy file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RuleId(u32);

/// The answer of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// This rule allows the request.
    Allowed(RuleId),
    /// This rule denies the request.
    Denied(RuleId),
    /// No rule applies to the request, so it is refused.
    NoRule,
    /// The path cannot occur in a request: it has an empty segment before its end, or a segment `.` or `..`.
    BadPath,
    /// A party has more than [`MAX_TAGS`] tags.
    TooManyTags,
}

impl Decision {
    /// Returns true if the decision allows the request.
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// Returns the consequence: allow or deny.
    pub const fn effect(self) -> Effect {
        if self.is_allowed() { Effect::Allow } else { Effect::Deny }
    }

    /// Returns the code of this decision, for logs and programs. The code stays the same in later versions.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Allowed(_) => "allowed",
            Self::Denied(_) => "denied-by-rule",
            Self::NoRule => "no-rule",
            Self::BadPath => "bad-path",
            Self::TooManyTags => "too-many-tags",
        }
    }

    /// Returns the rule that decided, if a rule did.
    pub const fn rule(self) -> Option<RuleId> {
        match self {
            Self::Allowed(rule) | Self::Denied(rule) => Some(rule),
            _ => None,
        }
    }
}

/// A policy that was read, with its tests. A server uses its decisions only after [`Self::tested`].
pub struct Policy {
    file: String,
    rules: Vec<Rule>,
    tests: Vec<Test>,
    index: Index,
}

impl Policy {
    /// Reads the text of a policy file. `file` is the name of the file, for messages.
    ///
    /// # Errors
    /// The line and the key of the first mistake, with the correction.
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyError> {
        let file::Contents { rules, tests } = file::parse(file, text)?;
        let index = Index::new(&rules);
        Ok(Self { file: file.to_owned(), rules, tests, index })
    }

    /// Decides on a request. Allocates nothing.
    pub fn decide(&self, question: &Question<'_>) -> Decision {
        let Question { subject, publisher, method, path } = question;
        if subject.tags.len() > MAX_TAGS || publisher.tags.len() > MAX_TAGS {
            return Decision::TooManyTags;
        }
        if !is_request_path(path) {
            return Decision::BadPath;
        }
        let Some(place) = self.index.decide(subject, publisher, *method, path) else { return Decision::NoRule };
        match self.rules.get(place as usize).map(|rule| rule.effect) {
            Some(Effect::Allow) => Decision::Allowed(RuleId(place)),
            Some(Effect::Deny) => Decision::Denied(RuleId(place)),
            None => Decision::NoRule,
        }
    }

    /// Returns true if a rule allows this subject a request at this publisher, and no rule denies the subject all
    /// requests at this publisher.
    pub fn connects(&self, subject: &Party<'_>, publisher: &Party<'_>) -> bool {
        let both = |rule: &&Rule| rule.covers_subject(subject) && rule.covers_publisher(publisher);
        let everything = |rule: &Rule| rule.resources.iter().any(|one| one.methods == 255 && one.path == "/*");
        let mut named = false;
        for rule in self.rules.iter().filter(both) {
            match rule.effect {
                Effect::Deny if everything(rule) => return false,
                Effect::Deny => {}
                Effect::Allow => named = true,
            }
        }
        named && subject.tags.len() <= MAX_TAGS && publisher.tags.len() <= MAX_TAGS
    }

    /// Returns true if this subject may make each request that `asked` describes at this publisher. In one case the
    /// result is false although the policy allows each of these requests: if a method is allowed on all paths of
    /// `asked` only by several rules together, and by no single rule.
    pub fn allows_all(&self, subject: &Party<'_>, publisher: &Party<'_>, asked: &coap::Rule<'_>) -> bool {
        let is_path = asked.path.ends_with('*') || is_request_path(asked.path);
        let both = |rule: &&Rule| rule.covers_subject(subject) && rule.covers_publisher(publisher);
        let mut left = asked.methods.0;
        for rule in self.rules.iter().filter(both) {
            for resource in rule.resources.iter().map(rule::Resource::view) {
                match rule.effect {
                    Effect::Deny if resource.meets(asked) => return false,
                    Effect::Allow if resource.has_paths_of(asked) => left &= !resource.methods.0,
                    Effect::Deny | Effect::Allow => {}
                }
            }
        }
        is_path && left == 0 && subject.tags.len() <= MAX_TAGS && publisher.tags.len() <= MAX_TAGS
    }

    /// Returns the number of rules in the file.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Returns the number of tests in the file.
    pub fn tests(&self) -> usize {
        self.tests.len()
    }

    /// Describes a rule for an operator: its file and line, its name if it has one, and its content.
    pub fn describe(&self, rule: RuleId) -> String {
        self.rules.get(rule.0 as usize).map_or_else(String::new, |rule| self.describe_rule(rule))
    }

    /// Returns the line of a rule, from 1; 0 if the rule belongs to another policy.
    pub fn line_of(&self, rule: RuleId) -> usize {
        self.rules.get(rule.0 as usize).map_or(0, |rule| rule.line)
    }

    /// Returns the name of a rule, if it has one.
    pub fn name_of(&self, rule: RuleId) -> Option<&str> {
        self.rules.get(rule.0 as usize)?.name.as_deref()
    }

    fn describe_rule(&self, rule: &Rule) -> String {
        let name = rule.name.as_ref().map_or_else(String::new, |name| format!(" \"{name}\""));
        format!("{}:{}{name}: {rule}", self.file, rule.line)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Policy {} with {} rules", self.file, self.rules.len())
    }
}

#[cfg(test)]
mod tests;
