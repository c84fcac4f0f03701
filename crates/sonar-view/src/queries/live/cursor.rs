//! The cursor in the rows.

/// The row under the cursor, and which rows are on the screen.
#[derive(Debug, Default)]
pub(super) struct RowCursor {
    /// The row that it was moved to; it stays on it wherever that row goes.
    selected: Option<u64>,
    /// Where it is when it is on no row in particular.
    at: usize,
    /// First row on the screen.
    top: usize,
    /// Rows as they were last drawn, in order.
    rows: Vec<u64>,
}

impl RowCursor {
    /// Moves to the first row, whichever that is.
    pub(super) fn go_to_first(&mut self) {
        (self.selected, self.at, self.top) = (None, 0, 0);
    }

    /// Moves down by so many rows, or up if there are fewer than none.
    pub(super) fn move_by(&mut self, rows: isize) {
        self.at = self.at.saturating_add_signed(rows).min(self.rows.len().saturating_sub(1));
        self.selected = self.row();
    }

    /// The row under it.
    pub(super) fn row(&self) -> Option<u64> {
        self.rows.get(self.at).copied()
    }

    /// There are these rows now, of which so many fit on the screen. Returns the places of the first one there and of the
    /// one under the cursor.
    pub(super) fn place(&mut self, rows: Vec<u64>, height: usize) -> [usize; 2] {
        self.rows = rows;
        let found = self.selected.and_then(|selected| self.rows.iter().position(|row| *row == selected));
        self.at = found.unwrap_or(self.at).min(self.rows.len().saturating_sub(1));
        self.top = self.top.min(self.at).max((self.at + 1).saturating_sub(height.max(1)));
        [self.top, self.at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_on_its_row_and_on_the_screen() {
        let mut cursor = RowCursor::default();
        assert_eq!(cursor.row(), None);
        assert_eq!(cursor.place((0..9).collect(), 3), [0, 0]);
        cursor.move_by(4);
        assert_eq!((cursor.row(), cursor.place((0..9).collect(), 3)), (Some(4), [2, 4]));
        // Its row goes to the top, and leaves.
        assert_eq!(cursor.place(vec![7, 4, 5], 3), [1, 1]);
        assert_eq!((cursor.place(vec![7], 3), cursor.row()), ([0, 0], Some(7)));
        cursor.move_by(isize::MAX / 2);
        cursor.place(vec![5, 7], 0);
        assert_eq!(cursor.row(), Some(7));
        cursor.go_to_first();
        assert_eq!((cursor.place(vec![5, 7], 2), cursor.row()), ([0, 0], Some(5)));
        assert_eq!(cursor.place(Vec::new(), 2), [0, 0]);
    }
}
