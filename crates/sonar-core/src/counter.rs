//! What two readings of a counter say. One that fell was reset between them, as by a start of the machine or the process
//! that counts, or its file was replaced: by how much it grew is unknown then, not 0.

/// By how much a counter grew; `None` if a reading is unknown, or if it fell.
pub fn growth(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    now?.checked_sub(before?)
}

/// By how much a counter grew each second, of `seconds` between the readings, which are more than 0; `None` likewise.
pub fn rate(now: Option<u64>, before: Option<u64>, seconds: f64) -> Option<f64> {
    Some(growth(now, before)? as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_was_reset_or_is_unknown_has_no_growth() {
        assert_eq!((growth(Some(7), Some(4)), growth(Some(4), Some(4))), (Some(3), Some(0)));
        assert_eq!(
            (growth(Some(3), Some(4)), growth(None, Some(4)), growth(Some(4), None)),
            (None, None, None)
        );
        assert_eq!((rate(Some(7), Some(4), 2.0), rate(Some(3), Some(4), 2.0)), (Some(1.5), None));
    }
}
