//! Compares two policies: their rules, and their decisions.

use super::pattern::{OwnedParty, Pattern};
use super::rule::{Effect, Resource, Rule};
use super::{Policy, Question};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use tegmen_coap::{Code, Methods};

/// Maximum number of requests that a comparison decides under each policy.
pub const MAX_QUESTIONS: usize = 1_000_000;

/// Requests on which two policies decide differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The party that makes the requests.
    pub subject: OwnedParty,
    /// The party that has the resource.
    pub publisher: OwnedParty,
    /// The methods of the requests.
    pub methods: Methods,
    /// The path of the requests.
    pub path: String,
    /// The answer of the new policy to the requests. The old policy gives the opposite answer.
    pub after: Effect,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = match self.after {
            Effect::Allow => "now allowed",
            Effect::Deny => "now refused",
        };
        write!(f, "{after}: {} {} by {} at {}", self.methods, self.path, self.subject, self.publisher)
    }
}

/// The difference between two policies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diff {
    /// Rules that only the old policy has. The descriptions contain the lines of the rules in the old file. A different
    /// order of the rules is no difference.
    pub removed: Vec<String>,
    /// Rules that only the new policy has.
    pub added: Vec<String>,
    /// Requests on which the policies decide differently. The comparison tries the parties in the tests of both
    /// policies, the parties that the caller names, and example parties. Each pattern of a changed rule gives several
    /// example parties: one that matches this pattern, and others that also match one other pattern of the two
    /// policies. If a pattern ends with `*`, the word `example` replaces the `*`. If the patterns name only tags, the
    /// name of the example party is `example`. If an example party has the same difference without one of its tags, the
    /// result for the party with this tag is left out.
    pub changes: Vec<Change>,
    /// True if all requests of the comparison were decided. False if the comparison ended after [`MAX_QUESTIONS`]
    /// requests, before all requests were decided.
    pub complete: bool,
}

impl Diff {
    /// Returns true if the policies have the same rules and decide in the same way.
    pub const fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.removed.is_empty() && self.added.is_empty()
    }
}

/// The content of a rule: the patterns of the subjects, the patterns of the publishers, the effect and the resources.
/// Two rules with equal content count as the same rule.
type Content<'r> = (BTreeSet<&'r Pattern>, BTreeSet<&'r Pattern>, Effect, BTreeSet<&'r Resource>);

fn content(rule: &Rule) -> Content<'_> {
    (rule.subjects.iter().collect(), rule.publishers.iter().collect(), rule.effect, rule.resources.iter().collect())
}

impl Policy {
    /// Compares this policy with a newer one. `parties` are known parties, whose rights are compared too.
    pub fn diff(&self, newer: &Self, parties: &[OwnedParty]) -> Diff {
        let only = |of: &'_ Self, not: &'_ Self| -> Vec<usize> {
            let known: BTreeSet<Content<'_>> = not.rules.iter().map(content).collect();
            (0..of.rules.len())
                .filter(|at| of.rules.get(*at).is_some_and(|rule| !known.contains(&content(rule))))
                .collect()
        };
        let described = |of: &Self, places: &[usize]| -> Vec<String> {
            places.iter().filter_map(|at| of.rules.get(*at)).map(|rule| of.describe_rule(rule)).collect()
        };
        let (removed, added) = (only(self, newer), only(newer, self));
        let changed = removed.iter().filter_map(|at| self.rules.get(*at));
        let changed: Vec<&Rule> = changed.chain(added.iter().filter_map(|at| newer.rules.get(*at))).collect();
        let (changes, complete) = Comparison::new(self, newer, parties).changes(&changed);
        Diff { removed: described(self, &removed), added: described(newer, &added), changes, complete }
    }
}

/// Two policies, and the names and paths that occur in them.
struct Comparison<'p> {
    older: &'p Policy,
    newer: &'p Policy,
    subjects: BTreeSet<&'p Pattern>,
    publishers: BTreeSet<&'p Pattern>,
    paths: BTreeSet<String>,
    parties: BTreeSet<&'p OwnedParty>,
}

/// A [`Change`] without its methods: subject, publisher, path, and the answer of the new policy. A map has this value
/// as its key, and the methods of the change as its value.
type Place = (OwnedParty, OwnedParty, String, Effect);

impl<'p> Comparison<'p> {
    fn new(older: &'p Policy, newer: &'p Policy, parties: &'p [OwnedParty]) -> Self {
        let rules = || older.rules.iter().chain(&newer.rules);
        let tests = || older.tests.iter().chain(&newer.tests);
        let paths = rules().flat_map(|rule| &rule.resources).map(|resource| example_path(&resource.path));
        let tested = tests().flat_map(|test| [&test.subject, &test.publisher]);
        Self {
            older,
            newer,
            subjects: rules().flat_map(|rule| &rule.subjects).collect(),
            publishers: rules().flat_map(|rule| &rule.publishers).collect(),
            paths: paths.chain(tests().map(|test| test.path.clone())).collect(),
            parties: tested.chain(parties).collect(),
        }
    }

    fn changes(&self, changed: &[&Rule]) -> (Vec<Change>, bool) {
        let mut found: BTreeMap<Place, u8> = BTreeMap::new();
        let mut budget = MAX_QUESTIONS;
        let mut complete = true;
        for rule in changed {
            let subjects = self.examples(&rule.subjects, &self.subjects);
            let publishers = self.examples(&rule.publishers, &self.publishers);
            let requests = self.requests(rule);
            'questions: for subject in &subjects {
                for publisher in &publishers {
                    for (method, path) in &requests {
                        let Some(left) = budget.checked_sub(1) else {
                            complete = false;
                            break 'questions;
                        };
                        budget = left;
                        let question =
                            Question { subject: subject.party(), publisher: publisher.party(), method: *method, path };
                        let after = self.newer.decide(&question).effect();
                        if self.older.decide(&question).effect() != after {
                            let place = (subject.clone(), publisher.clone(), path.clone(), after);
                            *found.entry(place).or_default() |= Methods::of(*method).0;
                        }
                    }
                }
            }
        }
        let change = |((subject, publisher, path, after), methods)| Change {
            subject,
            publisher,
            methods: Methods(methods),
            path,
            after,
        };
        let found = found.iter().filter(|(place, methods)| !self.is_repeated(place, **methods, &found));
        (found.map(|(place, methods)| (place.clone(), *methods)).map(change).collect(), complete)
    }

    /// Returns true if `found` has the same difference between the two policies for a party with one tag less. Then the
    /// difference need not be shown again. This applies only to example parties, which the comparison itself creates,
    /// and not to parties that the caller or a test names. `place` has the parties and the path of the difference, and
    /// `methods` has the methods of the difference.
    fn is_repeated(&self, place: &Place, methods: u8, found: &BTreeMap<Place, u8>) -> bool {
        let (subject, publisher, path, after) = place;
        let known = |one: &OwnedParty| self.parties.contains(one);
        let same = |place: Place| found.get(&place) == Some(&methods);
        let with_subject = |subject| (subject, publisher.clone(), path.clone(), *after);
        let with_publisher = |publisher| (subject.clone(), publisher, path.clone(), *after);
        !known(subject) && subject.with_one_tag_less().map(with_subject).any(same)
            || !known(publisher) && publisher.with_one_tag_less().map(with_publisher).any(same)
    }

    /// Returns parties that match one of `patterns`: known parties, and example parties. Each pattern has one example
    /// party that matches it, and further example parties that also match a pattern in `others`.
    fn examples(&self, patterns: &[Pattern], others: &BTreeSet<&Pattern>) -> BTreeSet<OwnedParty> {
        let mut found = BTreeSet::new();
        for pattern in patterns {
            found.insert(pattern.example());
            found.extend(self.parties.iter().filter(|one| pattern.covers(&one.party())).map(|one| (*one).clone()));
            for other in others {
                let both = match (pattern.tag, other.tag) {
                    (false, false) => other.example(),
                    (true, false) => other.example().with_tags_of(&pattern.example()),
                    (_, true) => pattern.example().with_tags_of(&other.example()),
                };
                if pattern.covers(&both.party()) {
                    found.insert(both);
                }
            }
        }
        found
    }

    /// Returns examples of requests that the rule covers, each as method and path.
    fn requests(&self, rule: &Rule) -> BTreeSet<(Code, String)> {
        let mut found = BTreeSet::new();
        for path in &self.paths {
            for method in (1..=7).map(Code) {
                if rule.covers_request(method, path) {
                    found.insert((method, path.clone()));
                }
            }
        }
        found
    }
}

/// Returns an example of a path that matches the path of a rule.
fn example_path(path: &str) -> String {
    path.strip_suffix('*').map_or_else(|| path.to_owned(), |beginning| format!("{beginning}example"))
}
