//! Texts and prefixes of texts, each with the set of the rules that name it.

use super::sets::{SetId, Sets};
use std::collections::BTreeMap;

/// The names in the rules from which a [`Trie`] is built: complete texts and prefixes of texts, each with the numbers
/// of the rules that contain it.
#[derive(Default)]
pub(super) struct Names {
    exact: BTreeMap<String, Vec<u32>>,
    prefixes: BTreeMap<String, Vec<u32>>,
}

impl Names {
    /// Adds a name that the rule `number` contains. With `prefix` false, the rule names only `text`. With `prefix`
    /// true, it names all texts that begin with `text`.
    pub(super) fn add(&mut self, text: &str, prefix: bool, number: u32) {
        let map = if prefix { &mut self.prefixes } else { &mut self.exact };
        match map.get_mut(text) {
            Some(numbers) => numbers.push(number),
            None => _ = map.insert(text.to_owned(), vec![number]),
        }
    }

    /// Builds the search tree. Its sets are stored in `sets`.
    pub(super) fn build(&self, sets: &mut Sets) -> Trie {
        let texts: Vec<&[u8]> = {
            let mut texts: Vec<_> = self.exact.keys().chain(self.prefixes.keys()).map(String::as_bytes).collect();
            texts.sort_unstable();
            texts.dedup();
            texts
        };
        // The set of a beginning includes the sets of its own beginnings, so a search needs only the longest one.
        let mut prefixes: BTreeMap<&[u8], Vec<u32>> = BTreeMap::new();
        for (text, numbers) in &self.prefixes {
            let mut numbers = numbers.clone();
            let shorter = (0..text.len()).rev().find_map(|len| prefixes.get(text.as_bytes().get(..len)?));
            numbers.extend(shorter.into_iter().flatten());
            prefixes.insert(text.as_bytes(), numbers);
        }
        let mut trie = Trie { nodes: vec![Node::default()] };
        // Each place of a node, the texts below it, and its depth: a node's children stand together.
        let mut open = vec![(0_usize, texts.as_slice(), 0_usize)];
        while let Some((place, texts, depth)) = open.pop() {
            let here = texts.first().and_then(|text| text.get(..depth)).unwrap_or(&[]);
            let exact = std::str::from_utf8(here).ok().and_then(|here| self.exact.get(here));
            let exact = exact.map(|numbers| sets.insert(numbers));
            let prefix = prefixes.get(here).map(|numbers| sets.insert(numbers));
            let first = trie.nodes.len();
            let longer = texts.iter().position(|text| text.len() > depth).unwrap_or(texts.len());
            let longer = texts.get(longer..).unwrap_or(&[]);
            let mut children: u16 = 0;
            for below in longer.chunk_by(|a, b| a.get(depth) == b.get(depth)) {
                let byte = below.first().and_then(|text| text.get(depth)).copied().unwrap_or(0);
                open.push((trie.nodes.len(), below, depth.saturating_add(1)));
                trie.nodes.push(Node { byte, ..Node::default() });
                children = children.saturating_add(1);
            }
            if let Some(node) = trie.nodes.get_mut(place) {
                *node = Node { byte: node.byte, children, first: first as u32, exact, prefix };
            }
        }
        trie
    }
}

/// A node of the tree: one byte of a text.
#[derive(Default)]
struct Node {
    byte: u8,
    children: u16,
    /// The position of the first child. The other children follow, in the order of their bytes.
    first: u32,
    /// The set of the rules that name the text that ends at this node; `None` if there is no such rule.
    exact: Option<SetId>,
    /// The set of the rules that name all texts that begin with the bytes up to this node; `None` if there is no such
    /// rule.
    prefix: Option<SetId>,
}

/// A search tree over bytes.
pub(super) struct Trie {
    nodes: Vec<Node>,
}

impl Trie {
    /// Returns two sets of the rules that name `text`: the rules that name the complete text, and the rules that name a
    /// prefix of it. A set is `None` if it has no rule.
    pub(super) fn find(&self, text: &str) -> [Option<SetId>; 2] {
        let Some(mut node) = self.nodes.first() else { return [None, None] };
        let mut longest = node.prefix;
        for byte in text.bytes() {
            let children = self.nodes.get(node.first as usize..).unwrap_or(&[]);
            let children = children.get(..usize::from(node.children)).unwrap_or(&[]);
            let Some(child) = children.iter().find(|child| child.byte >= byte).filter(|child| child.byte == byte)
            else {
                return [None, longest];
            };
            node = child;
            longest = node.prefix.or(longest);
        }
        [node.exact, longest]
    }
}

#[cfg(test)]
mod tests;
