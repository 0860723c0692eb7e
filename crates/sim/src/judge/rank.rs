//! Whether two lists of values have the same order.

/// Spearman's rank correlation: 1 for the same order, -1 for the opposite. `None` where there are
/// fewer than two values, or all of one list are equal.
pub(super) fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (ranks(a), ranks(b));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (of_a, of_b) = (mean(&a), mean(&b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| {
        a.iter().zip(&b).map(|(a, b)| f(a - of_a, b - of_b)).sum::<f64>()
    };
    let value = sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
    (a.len() == b.len() && value.is_finite()).then_some(value)
}

/// Places from 0, of equal values their mean.
fn ranks(values: &[f64]) -> Vec<f64> {
    let of = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count() as f64;
        let equal = values.iter().filter(|other| *other == value).count() as f64;
        below + (equal - 1.0) / 2.0
    };
    values.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_counts_and_size_does_not() {
        assert_eq!(correlation(&[1.0, 2.0, 9.0], &[0.1, 0.2, 0.3]), Some(1.0));
        assert_eq!(correlation(&[1.0, 2.0, 9.0], &[3.0, 2.0, 1.0]), Some(-1.0));
        assert_eq!(correlation(&[1.0, 2.0, 3.0], &[1.0, 3.0, 2.0]), Some(0.5));
        // Equal ones share a place.
        let half = correlation(&[1.0, 1.0, 2.0], &[1.0, 2.0, 3.0]).unwrap();
        assert!((half - 0.75_f64.sqrt()).abs() < 1e-12, "{half}");
    }

    #[test]
    fn what_has_no_order_has_no_correlation() {
        assert_eq!(correlation(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(correlation(&[1.0], &[2.0]), None);
        assert_eq!(correlation(&[], &[]), None);
    }
}
