//! What a server's log or profiler says of operations.

use std::sync::Arc;

use crate::execution::ExecutionTotals;
use crate::figures::Breakdown;
use crate::sum::Sum;
use crate::{Execution, Operation};

/// The most plans of an evidence.
pub const MAX_EVIDENCE_PLANS: usize = 8;

/// What a server itself says of operations of which the threads were traced. Unlike
/// [`ServerFigures`](crate::figures::ServerFigures), which stand for all that a log or profile has, it is joined to each of
/// these operations by itself, and counts them by their first plan.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ServerEvidence {
    /// Operations that it says something of.
    pub operations: u64,
    /// What it examined, waited for and used, and what stood out.
    pub totals: ExecutionTotals,
    /// Documents returned, or for a write inserted, matched or deleted.
    pub selected: Sum,
    /// Operations by plan summary. Operations without a plan are in none.
    pub plans: Breakdown<Arc<str>, u64, MAX_EVIDENCE_PLANS>,
    /// Operations for which several plans were tried.
    pub multi_planner: u64,
}

impl ServerEvidence {
    /// Of one operation.
    pub fn of(op: &Operation<'_>, execution: &Execution<'_>) -> Self {
        let multi_planner = u64::from(execution.flags.multi_planner);
        let mut evidence = Self { operations: 1, multi_planner, ..Self::default() };
        evidence.totals.record(execution, 1);
        evidence.selected.add(op.docs_returned.or(op.docs_matched), 1);
        if !execution.plan.is_empty() {
            evidence.plans.add(execution.plan, 1, || execution.plan.into());
        }
        evidence
    }

    /// Adds what it says of others.
    pub fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.totals.merge(&other.totals);
        self.selected.merge(other.selected);
        self.plans.merge(&other.plans);
        self.multi_planner += other.multi_planner;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_plan(plan: u32) -> ServerEvidence {
        let mut evidence = ServerEvidence { operations: 1, ..ServerEvidence::default() };
        evidence.totals.sums.docs_examined.add(Some(u64::from(plan)), 1);
        let plan = format!("IXSCAN {{ a{plan}: 1 }}");
        evidence.plans.add(plan.as_str(), 1, || plan.as_str().into());
        evidence
    }

    proptest! {
        #[test]
        fn evidence_merged_in_any_order_is_the_same_and_loses_no_operation(
            plans in proptest::collection::vec(0u32..20, 0..40),
            cut in 0usize..40,
        ) {
            let merged = |plans: &[u32]| {
                let mut sum = ServerEvidence::default();
                plans.iter().for_each(|plan| sum.merge(&with_plan(*plan)));
                sum
            };
            let whole = merged(&plans);
            let (one, other) = plans.split_at(cut.min(plans.len()));
            for (first, second) in [(one, other), (other, one)] {
                let mut sum = merged(first);
                sum.merge(&merged(second));
                prop_assert_eq!(&sum, &whole);
            }
            let named: u64 = whole.plans.iter().map(|(_, operations)| operations).sum();
            prop_assert_eq!(named + whole.plans.other, plans.len() as u64);
            prop_assert!(whole.plans.len() <= MAX_EVIDENCE_PLANS);
        }
    }
}
