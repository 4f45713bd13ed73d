use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

proptest! {
    #[test]
    fn it_agrees_with_a_map(steps in proptest::collection::vec((any::<bool>(), 0u32..60, 0u32..8), 0..400)) {
        let (mut index, mut model) = (Index::new(), HashMap::new());
        for (adds, position, tag) in steps {
            // Few tags, at both ends of the array: they meet, and wrap around.
            let tag = Tag(tag.wrapping_sub(4).wrapping_mul(0x2000_0001));
            if adds && !model.contains_key(&position) {
                index.insert(tag, position);
                model.insert(position, tag);
            } else if adds && model.get(&position) == Some(&tag) && !model.contains_key(&(position + 60)) {
                prop_assert!(index.replace(tag, position, position + 60));
                prop_assert!(!index.replace(tag, position, position));
                model.remove(&position);
                model.insert(position + 60, tag);
            } else if model.get(&position) == Some(&tag) {
                index.remove(tag, position);
                model.remove(&position);
            } else {
                index.remove(Tag(!tag.0), position);
            }
            prop_assert_eq!(index.len, model.len());
            for (position, tag) in &model {
                prop_assert_eq!(index.find(*tag, |found| found == *position), Some(*position));
            }
            prop_assert_eq!(index.find(tag, |found| !model.contains_key(&found)), None);
        }
    }
}
