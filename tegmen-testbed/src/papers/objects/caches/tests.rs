use super::*;

#[test]
fn the_file_has_the_largest_topology() {
    let file = deployment(include_str!("../../../../plans/objects-caches.toml"));
    let mut links = Topology::of_paper(LARGEST).links();
    links.sort_unstable();
    let mut written = file.network.links.clone().unwrap();
    written.sort_unstable();
    assert_eq!(links, written);
    assert_eq!(Topology::of_paper(LARGEST).deployment(100, 0), file);
}
