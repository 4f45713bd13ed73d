use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #[test]
    fn a_search_finds_the_rules_that_name_the_text(
        named in proptest::collection::vec(("[abé]{0,4}", any::<bool>()), 0..20),
        text in "[abé]{0,5}",
    ) {
        let mut names = Names::default();
        let mut sets = Sets::default();
        for (number, (name, prefix)) in (0..).zip(&named) {
            names.add(name, *prefix, number);
        }
        let trie = names.build(&mut sets);
        let expected: BTreeSet<u32> = (0..)
            .zip(&named)
            .filter(|(_, (name, prefix))| if *prefix { text.starts_with(name) } else { text == *name })
            .map(|(number, _)| number)
            .collect();
        let found: Vec<SetId> = trie.find(&text).into_iter().flatten().collect();
        for number in 0..named.len() as u32 {
            let one = sets.insert(&[number]);
            prop_assert_eq!(sets.first_common([&found, &[one], &[one]]).is_some(), expected.contains(&number));
        }
    }
}
