//! Parties, and the patterns with which rules name parties.

use std::fmt;

/// Maximum number of tags of a party. A party with more tags is refused. If the policy ignored the tags above this
/// number, it would ignore the rules that deny requests of parties with these tags.
pub const MAX_TAGS: usize = 16;
/// Maximum number of bytes of a name or a tag, as for a PSK identity (RFC 4279, section 5.3).
pub const MAX_NAME: usize = 128;
/// The prefix of a pattern for tags.
pub(super) const TAG: &str = "tag:";

/// A device or service: the name that it proved, and the tags that an operator gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Party<'a> {
    /// The name: the identity of a key or the subject of a certificate.
    pub name: &'a str,
    /// The tags, without the prefix `tag:`.
    pub tags: &'a [String],
}

impl<'a> Party<'a> {
    /// Returns a party without tags.
    pub const fn named(name: &'a str) -> Self {
        Self { name, tags: &[] }
    }
}

/// A [`Party`] that owns its name and its tags.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct OwnedParty {
    name: String,
    tags: Vec<String>,
}

impl OwnedParty {
    /// Makes a party from the words with which files and commands describe it: one name, and a word `tag:TAG` for each
    /// tag.
    ///
    /// # Errors
    /// A text that explains how to correct one of these mistakes: the words do not contain exactly one name, a word is
    /// empty or too long, or there are too many tags.
    pub fn from_words<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self, String> {
        let (tags, names): (Vec<&str>, Vec<&str>) = words.into_iter().partition(|word| word.starts_with(TAG));
        let [name] = names[..] else {
            return Err(format!("one name, and tag:TAG for each tag of it; this has {} names", names.len()));
        };
        Self::new(name, tags.into_iter().filter_map(|tag| tag.strip_prefix(TAG)).map(str::to_owned).collect())
    }

    /// Makes a party from a name and tags.
    ///
    /// # Errors
    /// A text that explains how to correct the mistake, as in [`Self::from_words`].
    pub fn new(name: &str, mut tags: Vec<String>) -> Result<Self, String> {
        if name.starts_with(TAG) {
            return Err(format!("a name does not begin with {TAG}; {name} does"));
        }
        tags.sort_unstable();
        tags.dedup();
        if tags.len() > MAX_TAGS {
            return Err(format!("at most {MAX_TAGS} tags, this has {}", tags.len()));
        }
        for word in tags.iter().map(String::as_str).chain([name]) {
            if word.is_empty() || word.len() > MAX_NAME {
                return Err(format!("a name and a tag have 1 to {MAX_NAME} bytes, this has {}", word.len()));
            }
            if word.ends_with('*') {
                return Err(format!("one party; {word} with a * is many"));
            }
        }
        Ok(Self { name: name.to_owned(), tags })
    }

    /// Returns a [`Party`] that borrows the name and the tags.
    pub fn party(&self) -> Party<'_> {
        Party { name: &self.name, tags: &self.tags }
    }

    /// Returns this party with its own tags and those of `other`.
    pub(super) fn with_tags_of(mut self, other: &Self) -> Self {
        self.tags.extend(other.tags.iter().cloned());
        self.tags.sort();
        self.tags.dedup();
        self
    }

    /// Returns, for each tag of this party, the party without this tag.
    pub(super) fn with_one_tag_less(&self) -> impl Iterator<Item = Self> {
        let without = |tag: &String| self.tags.iter().filter(|other| *other != tag).cloned().collect();
        self.tags.iter().map(move |tag| Self { name: self.name.clone(), tags: without(tag) })
    }
}

impl fmt::Display for OwnedParty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.party().fmt(f)
    }
}

impl fmt::Display for Party<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        // This takes less time than a format with arguments.
        self.tags.iter().try_for_each(|tag| [" ", TAG, tag].into_iter().try_for_each(|text| f.write_str(text)))
    }
}

/// A word with which a rule names parties: a name or `tag:TAG`. A word with a `*` at its end matches all names or tags
/// that begin with the text before the `*`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Pattern {
    /// True if the text is compared with tags, false if it is compared with the name.
    pub(super) tag: bool,
    /// The text of the word in the policy file, without `tag:` and `*`.
    pub(super) text: String,
    /// True if the pattern matches each name or tag that begins with the text.
    pub(super) prefix: bool,
}

impl Pattern {
    /// Reads a word with which a rule names parties. If the word is not valid, returns a text that explains how to
    /// correct it.
    pub(super) fn parse(word: &str) -> Result<Self, String> {
        let (tag, rest) = word.strip_prefix(TAG).map_or((false, word), |rest| (true, rest));
        let (text, prefix) = rest.strip_suffix('*').map_or((rest, false), |text| (text, true));
        if text.contains('*') {
            return Err(format!("a * stands only at the end, as in sensor-*; {word} has one before"));
        }
        if rest.is_empty() || text.len() > MAX_NAME {
            return Err(format!("a name, tag:TAG, or * for all, 1 to {MAX_NAME} bytes; this has {}", rest.len()));
        }
        Ok(Self { tag, text: text.to_owned(), prefix })
    }

    fn covers_text(&self, text: &str) -> bool {
        if self.prefix { text.starts_with(&self.text) } else { text == self.text }
    }

    /// Returns true if the pattern matches this party.
    pub(super) fn covers(&self, party: &Party<'_>) -> bool {
        match self.tag {
            true => party.tags.iter().any(|tag| self.covers_text(tag)),
            false => self.covers_text(party.name),
        }
    }

    /// Returns an example of a party that the pattern matches. If the pattern is compared with the name, the party has
    /// the text of the pattern as its name, and no tags. If the pattern is compared with tags, the party has the name
    /// `example`, and one tag with the text of the pattern. If the pattern ends with `*`, the word `example` follows
    /// the text.
    pub(super) fn example(&self) -> OwnedParty {
        let word = if self.prefix { format!("{}example", self.text) } else { self.text.clone() };
        match self.tag {
            true => OwnedParty { name: "example".to_owned(), tags: vec![word] },
            false => OwnedParty { name: word, tags: Vec::new() },
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tag, star) = (if self.tag { TAG } else { "" }, if self.prefix { "*" } else { "" });
        write!(f, "{tag}{}{star}", self.text)
    }
}
