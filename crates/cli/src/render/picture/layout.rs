//! Where cards are: which column comes after which, and what an arrow need not say.

use std::collections::BTreeSet;

/// Returns the layer of each node: one more than the last of those that it comes after.
pub(super) fn layers(after: &[Vec<usize>]) -> Vec<usize> {
    let mut layers = vec![0; after.len()];
    // What is in a cycle stops here, too.
    for _ in 0..after.len() {
        let mut is_done = true;
        for (at, before) in after.iter().enumerate() {
            let layer = before.iter().filter_map(|before| layers.get(*before)).max().map_or(0, |layer| layer + 1);
            if layer != layers[at] && layer < after.len() {
                layers[at] = layer;
                is_done = false;
            }
        }
        if is_done {
            break;
        }
    }
    layers
}

/// Returns the arrows that say all: those that a way over other nodes repeats are left out.
pub(super) fn arrows(after: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let layers = layers(after);
    let mut order: Vec<usize> = (0..after.len()).collect();
    order.sort_by_key(|at| layers[*at]);
    let mut ancestors: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); after.len()];
    let mut arrows = Vec::new();
    for at in order {
        let before: BTreeSet<usize> = after[at].iter().copied().filter(|before| *before < after.len()).collect();
        let further: BTreeSet<usize> = before.iter().flat_map(|before| ancestors[*before].iter().copied()).collect();
        arrows.extend(before.difference(&further).map(|before| (*before, at)));
        ancestors[at] = before.union(&further).copied().collect();
    }
    arrows.sort_unstable();
    arrows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_and_arrows_follow_the_order() {
        let check = |after: &[&[usize]], expected: &[usize], expected_arrows: &[(usize, usize)]| {
            let after: Vec<Vec<usize>> = after.iter().map(|before| before.to_vec()).collect();
            assert_eq!(layers(&after), expected, "{after:?}");
            assert_eq!(arrows(&after), expected_arrows, "{after:?}");
        };
        check(&[], &[], &[]);
        check(&[&[], &[0], &[0, 1]], &[0, 1, 2], &[(0, 1), (1, 2)]);
        check(&[&[], &[0], &[0], &[1, 2]], &[0, 1, 1, 2], &[(0, 1), (0, 2), (1, 3), (2, 3)]);
        // The order of the nodes does not matter, and nodes that do not exist are ignored.
        check(&[&[1], &[2, 9], &[]], &[2, 1, 0], &[(1, 0), (2, 1)]);
        // A cycle ends.
        assert_eq!(layers(&[vec![1], vec![0]]).len(), 2);
    }
}
