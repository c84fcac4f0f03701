//! Which rows are shown, and in which order: the keys that change it.

use sonar_core::Role;

use crate::queries::column::Sort;
use crate::queries::layout::sortable;
use crate::queries::{ClassSet, Column, Grouping, NamespaceFilter, Selection};

/// What is shown.
#[derive(Debug)]
pub(super) struct RowChoice {
    pub(super) selection: Selection,
    /// Whether rows are split by the order of keys, so that `by order` is offered.
    pub(super) split_by_order: bool,
}

impl RowChoice {
    /// Sorts by the column that is so many further.
    pub(super) fn sort_by_next(&mut self, step: isize) {
        let columns = sortable(&self.selection);
        let at = columns.iter().position(|column| *column == self.selection.sort.column);
        let next = (at.unwrap_or(0) as isize + step).rem_euclid(columns.len().max(1) as isize) as usize;
        if let Some(&column) = columns.get(next) {
            self.selection.sort = Sort { column, reverse: false };
        }
    }

    /// Sorts by how long operations waited.
    ///
    /// # Errors
    /// Why that is impossible, in words; a window of the past may be shown.
    pub(super) fn sort_by_waits(&mut self, is_past: bool) -> Result<(), &'static str> {
        if sortable(&self.selection).contains(&Column::Wait) {
            self.selection.sort = Sort { column: Column::Wait, reverse: false };
            return Ok(());
        }
        Err(match (self.selection.has_splits, is_past) {
            (true, _) => "How long operations waited is known by shape and namespace (key b).",
            (false, true) => "Rows of the past cannot be sorted by how long operations waited.",
            (false, false) => "How long operations waited is known only with --split.",
        })
    }

    /// Groups by what comes next. A column that there is not then sorts no more.
    pub(super) fn next_grouping(&mut self) {
        let is_offered = |by: &Grouping| *by != Grouping::Order || self.split_by_order;
        let offered: Vec<_> = Grouping::ALL.into_iter().filter(is_offered).collect();
        let at = offered.iter().position(|by| *by == self.selection.by).unwrap_or(0);
        self.selection.by = offered[(at + 1) % offered.len()];
        if !sortable(&self.selection).contains(&self.selection.sort.column) {
            self.selection.sort = Sort::default();
        }
    }

    /// Shows user operations alone, or those of all classes.
    pub(super) fn change_classes(&mut self) {
        let all = self.selection.classes == ClassSet::ALL;
        self.selection.classes = if all { ClassSet::USER } else { ClassSet::ALL };
    }

    /// Shows the operations of the next role, or of all.
    pub(super) fn next_role(&mut self) {
        self.selection.role = match self.selection.role {
            None => Some(Role::Served),
            Some(Role::Served) => Some(Role::Issued),
            Some(Role::Issued) => None,
        };
    }

    /// Shows the shapes of a namespace alone.
    pub(super) fn narrow_to(&mut self, namespace: String) {
        self.selection.by = Grouping::Shape;
        self.selection.namespace = NamespaceFilter::Exactly(namespace);
    }

    /// Removes the filters; whether there was one.
    pub(super) fn unfilter(&mut self) -> bool {
        let is_filtered = !self.selection.text.is_empty() || self.selection.namespace != NamespaceFilter::Any;
        self.selection.text.clear();
        self.selection.namespace = NamespaceFilter::Any;
        is_filtered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groupings_come_in_turn_and_by_order_only_where_rows_are_split_by_it() {
        for split_by_order in [false, true] {
            let mut choice = RowChoice { selection: Selection::default(), split_by_order };
            let first = choice.selection.by;
            let mut seen = vec![first];
            choice.next_grouping();
            while choice.selection.by != first {
                seen.push(choice.selection.by);
                choice.next_grouping();
            }
            assert_eq!(seen.contains(&Grouping::Order), split_by_order);
            assert_eq!(seen.len(), Grouping::ALL.len() - usize::from(!split_by_order));
        }
    }

    #[test]
    fn filters_are_removed_at_once_and_roles_come_in_turn() {
        let mut choice = RowChoice { selection: Selection::default(), split_by_order: false };
        assert!(!choice.unfilter());
        choice.narrow_to("shop.orders".to_owned());
        choice.selection.text = "find".to_owned();
        assert!(choice.unfilter() && !choice.unfilter());
        let roles = [(); 3].map(|()| {
            choice.next_role();
            choice.selection.role
        });
        assert_eq!(roles, [Some(Role::Served), Some(Role::Issued), None]);
        assert!(choice.sort_by_waits(true).unwrap_err().starts_with("Rows of the past"));
        choice.selection.has_splits = true;
        assert_eq!(choice.sort_by_waits(true), Ok(()));
        assert_eq!(choice.selection.sort.column, Column::Wait);
    }
}
