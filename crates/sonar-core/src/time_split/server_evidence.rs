//! What a server's log or profiler says of operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::OTHER;
use super::row_split::beyond;
use crate::execution::ServerSums;
use crate::sum::Sum;
use crate::{Execution, Operation};

/// The most plans of an evidence. Further ones are counted in the plan [`OTHER`]. The smallest texts stay, so that the
/// result does not depend on the order of additions.
pub const MAX_EVIDENCE_PLANS: usize = 8;

/// What a server itself says of some operations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerEvidence {
    /// Operations that it says something of.
    pub operations: u64,
    /// Sums of its figures.
    pub sums: ServerSums,
    /// Documents returned, or for a write inserted, matched or deleted.
    pub selected: Sum,
    /// Operations by plan summary; at most [`MAX_EVIDENCE_PLANS`], and [`OTHER`]. Operations without a plan are in none.
    pub plans: BTreeMap<Arc<str>, u64>,
    /// Operations that scanned the whole collection.
    pub collection_scans: u64,
    /// Operations that sorted in memory.
    pub memory_sorts: u64,
    /// Operations that used files for intermediate results.
    pub used_disk: u64,
    /// Operations for which several plans were tried.
    pub multi_planner: u64,
    /// Operations whose cached plan was discarded.
    pub replanned: u64,
}

impl ServerEvidence {
    /// Of one operation.
    pub fn of(op: &Operation<'_>, execution: &Execution<'_>) -> Self {
        let flags = execution.flags;
        let all_plans = || [execution.plan].into_iter().chain(execution.other_plans.iter().copied());
        let scans = flags.collection_scan || all_plans().any(Execution::scans_collection);
        let mut evidence = Self {
            operations: 1,
            collection_scans: u64::from(scans),
            memory_sorts: u64::from(flags.memory_sort),
            used_disk: u64::from(flags.used_disk),
            multi_planner: u64::from(flags.multi_planner),
            replanned: u64::from(flags.replanned),
            ..Self::default()
        };
        evidence.sums.record(execution, 1);
        evidence.selected.add(op.docs_returned.or(op.docs_matched), 1);
        if !execution.plan.is_empty() {
            evidence.add_plan(&execution.plan.into(), 1);
        }
        evidence
    }

    fn add_plan(&mut self, plan: &Arc<str>, operations: u64) {
        *self.plans.entry(plan.clone()).or_default() += operations;
        if let Some((_, count)) = beyond(&mut self.plans, MAX_EVIDENCE_PLANS, |plan| **plan == *OTHER) {
            *self.plans.entry(OTHER.into()).or_default() += count;
        }
    }

    /// Adds what it says of others.
    pub fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.sums.merge(&other.sums);
        self.selected.merge(other.selected);
        other.plans.iter().for_each(|(plan, operations)| self.add_plan(plan, *operations));
        self.collection_scans += other.collection_scans;
        self.memory_sorts += other.memory_sorts;
        self.used_disk += other.used_disk;
        self.multi_planner += other.multi_planner;
        self.replanned += other.replanned;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_plan(plan: u32) -> ServerEvidence {
        let mut evidence = ServerEvidence { operations: 1, ..ServerEvidence::default() };
        evidence.sums.docs_examined.add(Some(u64::from(plan)), 1);
        evidence.add_plan(&format!("IXSCAN {{ a{plan}: 1 }}").into(), 1);
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
            prop_assert_eq!(whole.plans.values().sum::<u64>(), plans.len() as u64);
            prop_assert!(whole.plans.len() <= MAX_EVIDENCE_PLANS + 1);
        }
    }
}
