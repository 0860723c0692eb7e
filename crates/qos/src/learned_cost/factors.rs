//! Systems of linear equations in plain `f64` additions, multiplications and divisions, always in
//! one order: the same numbers on every machine.

use super::class::IoClass;

/// What is sought: the time of a request and of its bytes, for each class. Requests without data
/// have no bytes, so their last place stays empty.
pub(super) const TERMS: usize = 2 * IoClass::COUNT;

pub(super) type Vector = [f64; TERMS];
pub(super) type Matrix = [[f64; TERMS]; TERMS];

pub(super) fn dot(a: &Vector, b: &Vector) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `L·D·Lᵀ` of a symmetric matrix.
#[derive(Clone, Debug)]
pub(super) struct Factors {
    lower: Matrix,
    diagonal: Vector,
}

impl Factors {
    /// Of the matrix that changes nothing.
    pub(super) const EMPTY: Factors =
        Factors { lower: [[0.0; TERMS]; TERMS], diagonal: [1.0; TERMS] };

    /// Of one that has no negative direction.
    pub(super) fn of(matrix: &Matrix) -> Factors {
        let mut factors = Factors::EMPTY;
        for row in 0..TERMS {
            for column in 0..=row {
                let mut sum = matrix[row][column];
                for k in 0..column {
                    sum -= factors.lower[row][k] * factors.lower[column][k] * factors.diagonal[k];
                }
                if row == column {
                    factors.diagonal[row] = sum.max(1e-14);
                } else {
                    factors.lower[row][column] = sum / factors.diagonal[column];
                }
            }
        }
        factors
    }

    /// The vector that the matrix takes to this one.
    pub(super) fn solve(&self, right: &Vector) -> Vector {
        let mut result = *right;
        for row in 0..TERMS {
            for k in 0..row {
                result[row] -= self.lower[row][k] * result[k];
            }
        }
        for row in 0..TERMS {
            result[row] /= self.diagonal[row];
        }
        for row in (0..TERMS).rev() {
            for k in row + 1..TERMS {
                result[row] -= self.lower[k][row] * result[k];
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_solution_solves(
            rows in prop::collection::vec(prop::array::uniform10(-10.0f64..10.0), 12),
        ) {
            let mut matrix = [[0.0; TERMS]; TERMS];
            for row in &rows {
                for one in 0..TERMS {
                    for other in 0..TERMS {
                        matrix[one][other] += row[one] * row[other];
                    }
                }
            }
            (0..TERMS).for_each(|term| matrix[term][term] += 1.0);
            let solution = Factors::of(&matrix).solve(&rows[0]);
            for (line, right) in matrix.iter().zip(rows[0]) {
                prop_assert!((dot(line, &solution) - right).abs() < 1e-6);
            }
        }
    }
}
