//! The compiled form of the rules. A decision searches no list of rules, and allocates no memory.
//!
//! Each rule has a number. Rules that deny have lower numbers than rules that allow, and rules with the same effect are
//! in the order of the file. For a request, search trees find three kinds of sets of rules: sets for the subject, sets
//! for the publisher, and sets for the path with the method. A rule covers the request if it is in at least one set of
//! each kind. Among the rules that cover the request, the rule with the lowest number decides.

use super::pattern::{MAX_TAGS, Party, Pattern};
use super::rule::{Effect, Rule};
use super::sets::{SetId, Sets};
use super::trie::{Names, Trie};
use tegmen_coap::{Code, Methods};

/// Maximum number of sets of rules that a search for a subject or a publisher can find: two for the name and two for
/// each tag.
const MAX_SETS: usize = 2 + 2 * MAX_TAGS;

/// The search trees for the rules that name a party: one tree for names, and one tree for tags.
struct Parties {
    names: Trie,
    tags: Trie,
}

impl Parties {
    fn find<'s>(&self, party: &Party<'_>, found: &'s mut [SetId; MAX_SETS]) -> &'s [SetId] {
        let mut len = collect(self.names.find(party.name), found, 0);
        for tag in party.tags {
            len = collect(self.tags.find(tag), found, len);
        }
        found.get(..len).unwrap_or(&[])
    }
}

/// Writes the sets that are not `None` to `found`, behind its first `len` elements. Returns the number of elements of
/// `found` that are used then.
fn collect(sets: [Option<SetId>; 2], found: &mut [SetId], mut len: usize) -> usize {
    for set in sets.into_iter().flatten() {
        if let Some(place) = found.get_mut(len) {
            *place = set;
            len = len.saturating_add(1);
        }
    }
    len
}

/// The compiled rules.
pub(super) struct Index {
    sets: Sets,
    subjects: Parties,
    publishers: Parties,
    /// The search trees of paths: one tree for each bit of [`Methods`].
    paths: [Trie; 8],
    /// The positions of the rules in the file, in the order of the rule numbers. The rule number is the index in this
    /// vector.
    places: Vec<u32>,
    /// The empty set, which fills the unused elements of an array of sets.
    empty: SetId,
}

impl Index {
    pub(super) fn new(rules: &[Rule]) -> Self {
        let mut sets = Sets::default();
        let empty = sets.insert(&[]);
        let of = |effect| (0_u32..).zip(rules).filter(move |(_, rule)| rule.effect == effect).map(|(place, _)| place);
        let places: Vec<u32> = of(Effect::Deny).chain(of(Effect::Allow)).collect();
        let mut names: [Names; 4] = Default::default();
        let mut paths: [Names; 8] = Default::default();
        for (number, place) in (0_u32..).zip(&places) {
            let Some(rule) = rules.get(*place as usize) else { continue };
            let [subjects, subject_tags, publishers, publisher_tags] = &mut names;
            add_patterns(&rule.subjects, number, subjects, subject_tags);
            add_patterns(&rule.publishers, number, publishers, publisher_tags);
            for resource in &rule.resources {
                let (path, prefix) = match resource.path.strip_suffix('*') {
                    Some(path) => (path, true),
                    None => (resource.path.as_str(), false),
                };
                for (bit, names) in paths.iter_mut().enumerate() {
                    if Methods(resource.methods).contains(Methods(1 << bit)) {
                        names.add(path, prefix, number);
                    }
                }
            }
        }
        let [subjects, subject_tags, publishers, publisher_tags] = names.map(|names| names.build(&mut sets));
        let paths = paths.map(|names| names.build(&mut sets));
        let subjects = Parties { names: subjects, tags: subject_tags };
        let publishers = Parties { names: publishers, tags: publisher_tags };
        Self { sets, subjects, publishers, paths, places, empty }
    }

    /// Returns the position of the rule that decides on the request, among the rules of the policy file; `None` if no
    /// rule covers the request.
    pub(super) fn decide(&self, subject: &Party<'_>, publisher: &Party<'_>, method: Code, path: &str) -> Option<u32> {
        let bit = Methods::of(method).0.trailing_zeros() as usize;
        let mut found = [self.empty; 2];
        let len = collect(self.paths.get(bit)?.find(path), &mut found, 0);
        let paths = found.get(..len).unwrap_or(&[]);
        if paths.is_empty() {
            return None;
        }
        let mut found = [self.empty; MAX_SETS];
        let subjects = self.subjects.find(subject, &mut found);
        let mut found = [self.empty; MAX_SETS];
        let publishers = self.publishers.find(publisher, &mut found);
        let number = self.sets.first_common([paths, subjects, publishers])?;
        self.places.get(number as usize).copied()
    }
}

fn add_patterns(patterns: &[Pattern], number: u32, names: &mut Names, tags: &mut Names) {
    for pattern in patterns {
        let names = if pattern.tag { &mut *tags } else { &mut *names };
        names.add(&pattern.text, pattern.prefix, number);
    }
}
