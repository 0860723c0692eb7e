//! Cycles in a graph: its strongly connected components, by Tarjan's algorithm.

use std::collections::BTreeSet;

/// The strongly connected components with more than `above` nodes, largest first; each sorted.
pub fn components(edges: &[BTreeSet<usize>], above: usize) -> Vec<Vec<usize>> {
    let mut search = Search {
        edges,
        next: 0,
        index: vec![None; edges.len()],
        low: vec![0; edges.len()],
        on_stack: vec![false; edges.len()],
        stack: Vec::new(),
        found: Vec::new(),
    };
    for node in 0..edges.len() {
        if search.index[node].is_none() {
            search.visit(node);
        }
    }
    let mut found = search.found;
    found.retain(|component| component.len() > above);
    found.sort_by_key(|component| (std::cmp::Reverse(component.len()), component.clone()));
    found
}

struct Search<'a> {
    edges: &'a [BTreeSet<usize>],
    next: usize,
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Recursion is as deep as the longest chain of files: hundreds at most.
    fn visit(&mut self, node: usize) -> usize {
        let index = self.next;
        self.next += 1;
        self.index[node] = Some(index);
        self.low[node] = index;
        self.stack.push(node);
        self.on_stack[node] = true;
        for &to in &self.edges[node] {
            let reached = match self.index[to] {
                None => self.visit(to),
                Some(seen) if self.on_stack[to] => seen,
                Some(_) => continue,
            };
            self.low[node] = self.low[node].min(reached);
        }
        if self.low[node] == index {
            let start = self.stack.iter().rposition(|&n| n == node).unwrap_or(0);
            let mut component = self.stack.split_off(start);
            component.iter().for_each(|&n| self.on_stack[n] = false);
            component.sort_unstable();
            self.found.push(component);
        }
        self.low[node]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[&[usize]]) -> Vec<BTreeSet<usize>> {
        edges.iter().map(|to| to.iter().copied().collect()).collect()
    }

    #[test]
    fn a_chain_has_no_cycle() {
        assert!(components(&graph(&[&[1], &[2], &[]]), 1).is_empty());
    }

    #[test]
    fn two_rings_that_share_a_node_are_one_component() {
        let g = graph(&[&[1], &[2, 3], &[0], &[1], &[0]]);
        assert_eq!(components(&g, 2), [vec![0, 1, 2, 3]]);
    }

    #[test]
    fn the_bound_leaves_out_pairs() {
        let g = graph(&[&[1], &[0], &[3], &[4], &[2]]);
        assert_eq!(components(&g, 2), [vec![2, 3, 4]]);
        assert_eq!(components(&g, 1).len(), 2);
    }

    #[test]
    fn a_cross_edge_to_a_finished_component_joins_nothing() {
        assert_eq!(components(&graph(&[&[1, 2], &[0], &[]]), 1), [vec![0, 1]]);
    }
}
