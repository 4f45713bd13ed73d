use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn numbers() -> impl Strategy<Value = BTreeSet<u32>> {
    prop_oneof![
        proptest::collection::btree_set(0_u32..20_000, 0..40),
        proptest::collection::btree_set(0_u32..5_000, 0..4_000),
        proptest::collection::btree_set(4_090_u32..4_200, 0..100),
    ]
}

proptest! {
    #[test]
    fn the_first_common_number_is_that_of_plain_sets(kinds in proptest::array::uniform3(proptest::collection::vec(numbers(), 0..4))) {
        let mut sets = Sets::default();
        let ids = kinds.clone().map(|kind| {
            kind.iter().map(|set| sets.insert(&set.iter().copied().collect::<Vec<_>>())).collect::<Vec<_>>()
        });
        let [a, b, c] = kinds.map(|kind| kind.into_iter().flatten().collect::<BTreeSet<u32>>());
        let expected = a.iter().find(|number| b.contains(number) && c.contains(number)).copied();
        prop_assert_eq!(sets.first_common([&ids[0], &ids[1], &ids[2]]), expected);
    }
}

#[test]
fn a_block_is_listed_up_to_its_limit_and_whole_above() {
    for words in [1_u32, 31, 32, 33, 64] {
        let mut sets = Sets::default();
        let spread = sets.insert(&(0..words).map(|word| word * 64 + 63).collect::<Vec<_>>());
        let last = sets.insert(&[(words - 1) * 64 + 63]);
        assert_eq!(sets.first_common([&[spread], &[last], &[spread]]), Some((words - 1) * 64 + 63));
    }
}
