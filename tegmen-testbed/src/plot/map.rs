//! Draws a map of the nodes of a network, with the paths to node 0. The color of a node shows its share of answered
//! readings.

use super::canvas::{Anchor, Canvas, FONT, LINE, MARGIN, WIDTH, width};
use std::f64::consts::TAU;

/// A node on a map.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Node {
    /// The number of the next node on the path to node 0. For node 0 it is 0.
    pub parent: usize,
    /// The share of the node's readings that were answered, from 0 to 1; `None` if the node makes no readings.
    pub answered: Option<f64>,
}

/// Draws the map as SVG. The nodes are on rings around node 0, one ring for each number of hops. If no node has two
/// children, the nodes are in a straight line.
pub fn map(title: &str, nodes: &[Node]) -> String {
    let mut canvas = Canvas::new(title);
    let top = canvas.bottom + 10.0;
    let (places, height) = places(nodes);
    let places: Vec<_> = places.into_iter().map(|(x, y)| (x, y + top)).collect();
    let radius = radius(&places);
    for (node, (x, y)) in nodes.iter().zip(&places) {
        let Some((px, py)) = places.get(node.parent) else { continue };
        canvas.add(&format!("<path class=\"axis\" d=\"M{x:.1},{y:.1}L{px:.1},{py:.1}\"/>"));
    }
    for (number, (node, (x, y))) in nodes.iter().zip(&places).enumerate() {
        let (name, class) = (number.to_string(), node.answered.map_or("node", shade));
        let share =
            node.answered.map_or("makes no readings".into(), |share| format!("{:.1} % answered", share * 100.0));
        canvas.add(&format!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"><title>node {name}: {share}</title></circle>"
        ));
        if width(&name) < 2.0 * radius && FONT < 2.0 * radius {
            let ink = match class {
                "node" => "",
                "m0" | "m4" => " class=\"on-dark\"",
                _ => " class=\"on-light\"",
            };
            let y = y + FONT * 0.36;
            canvas.add(&format!("<text{ink} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{name}</text>"));
        }
    }
    canvas.bottom = top + height + 4.0;
    legend(&mut canvas, nodes);
    canvas.finish()
}

/// The colors of nodes. The color of a node depends on the share of its readings that node 0 answered. Each entry has
/// the CSS class of a color, the minimum share for this color, and the text in the legend. The highest share is first.
const SHADES: [(&str, f64, &str); 5] = [
    ("m0", 0.99, "99 % and more"),
    ("m1", 0.95, "95 to 99 %"),
    ("m2", 0.9, "90 to 95 %"),
    ("m3", 0.75, "75 to 90 %"),
    ("m4", f64::NEG_INFINITY, "less than 75 %"),
];

/// Returns the CSS class for a share of answered readings.
fn shade(share: f64) -> &'static str {
    SHADES.iter().find(|(_, least, _)| share >= *least).map_or("m4", |(class, ..)| class)
}

/// Writes the legend. It has an entry for each color on the map, and one for nodes that make no readings.
fn legend(canvas: &mut Canvas, nodes: &[Node]) {
    let used = |class: &str| nodes.iter().any(|node| node.answered.is_some_and(|share| shade(share) == class));
    let mut entries: Vec<_> =
        SHADES.iter().filter(|(class, ..)| used(class)).map(|(class, _, name)| (*class, *name)).collect();
    entries.push(("node", "makes no readings"));
    canvas.below(MARGIN, "Readings that were answered:");
    let mut x = WIDTH;
    for (class, name) in entries {
        let wide = 22.0 + width(name) + 14.0;
        if x + wide > WIDTH - MARGIN {
            canvas.bottom += LINE;
            x = MARGIN;
        }
        let (center, y) = (x + 7.0, canvas.bottom - 4.5);
        canvas.add(&format!("<circle class=\"{class}\" cx=\"{center:.1}\" cy=\"{y:.1}\" r=\"6\"/>"));
        canvas.text(Anchor::Start, x + 20.0, canvas.bottom, name);
        x += wide;
    }
}

/// Returns the position of each node, and the height of the map.
fn places(nodes: &[Node]) -> (Vec<(f64, f64)>, f64) {
    let children = children(nodes);
    if children.iter().all(|below| below.len() < 2) {
        let ways = depths(nodes);
        let step = (WIDTH - 2.0 * EDGE) / ways.iter().copied().max().unwrap_or(1).max(1) as f64;
        return (ways.into_iter().map(|hops| (EDGE + hops as f64 * step, LARGEST)).collect(), 2.0 * LARGEST);
    }
    let depths = depths(nodes);
    let ring = (WIDTH / 2.0 - EDGE) / depths.iter().copied().max().unwrap_or(1).max(1) as f64;
    let middle = WIDTH / 2.0;
    let mut places = vec![(middle, middle - EDGE + LARGEST); nodes.len()];
    // Each node gets a part of the sector of its parent. The size of the part is proportional to the number of leaves
    // below the node.
    let ends = ends(&children);
    let mut sectors = vec![(0.0, TAU); nodes.len()];
    let mut reached = vec![0];
    while let Some(node) = reached.pop() {
        let (mut from, sector) = sectors[node];
        for child in &children[node] {
            let own = sector * ends[*child] as f64 / ends[node] as f64;
            sectors[*child] = (from, own);
            let (angle, radius) = (from + own / 2.0 - TAU / 4.0, ring * depths[*child] as f64);
            places[*child].0 += angle.cos() * radius;
            places[*child].1 += angle.sin() * radius;
            from += own;
            reached.push(*child);
        }
    }
    (places, WIDTH - 2.0 * EDGE + 2.0 * LARGEST)
}

/// Returns the children of each node: the nodes whose next node on the path to node 0 is this node.
fn children(nodes: &[Node]) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); nodes.len()];
    for (number, node) in nodes.iter().enumerate() {
        if node.parent != number
            && let Some(below) = children.get_mut(node.parent)
        {
            below.push(number);
        }
    }
    children
}

/// Returns the number of hops from each node to node 0.
fn depths(nodes: &[Node]) -> Vec<usize> {
    let next = |node: usize| nodes.get(node).map(|node| node.parent).filter(|parent| *parent != node);
    let hops = |node| std::iter::successors(Some(node), |node| next(*node)).take(nodes.len()).count() - 1;
    (0..nodes.len()).map(hops).collect()
}

/// Returns for each node the number of leaves whose path to node 0 contains this node. A leaf is a node without
/// children; its own number is 1.
fn ends(children: &[Vec<usize>]) -> Vec<usize> {
    let mut order = vec![0];
    let mut next = 0;
    while let Some(node) = order.get(next).copied() {
        order.extend(&children[node]);
        next += 1;
    }
    let mut ends = vec![1; children.len()];
    for node in order.into_iter().rev().filter(|node| !children[*node].is_empty()) {
        ends[node] = children[node].iter().map(|child| ends[*child]).sum();
    }
    ends
}

/// Returns the largest radius of nodes at which no two nodes touch.
fn radius(places: &[(f64, f64)]) -> f64 {
    let mut nearest = f64::INFINITY;
    for (number, (x, y)) in places.iter().enumerate() {
        for (px, py) in &places[..number] {
            nearest = nearest.min((x - px).hypot(y - py));
        }
    }
    (nearest / 2.0 - 1.0).clamp(1.0, LARGEST - 1.0)
}

/// The maximum radius of a node in SVG units, including its outline.
const LARGEST: f64 = 16.0;
/// The distance from the edge of the picture to the center of the outermost node, in SVG units.
const EDGE: f64 = MARGIN + LARGEST;
