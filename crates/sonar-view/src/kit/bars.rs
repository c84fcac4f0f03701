//! Charts of one line.

/// A bar of one of eight heights for each value, where `most` has full height; a space for 0.
pub fn sparkline(values: impl IntoIterator<Item = f64>, most: f64) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |value: f64| match (value / most * 8.0).ceil() as usize {
        _ if value <= 0.0 || most <= 0.0 => ' ',
        height => HEIGHTS[height.clamp(1, 8) - 1],
    };
    values.into_iter().map(bar).collect()
}

/// A horizontal bar of at most `columns` columns for a share of 0 to 1, in eighths of a column.
pub fn bar(share: f64, columns: usize) -> String {
    const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * columns as f64 * 8.0).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    text.extend((eighths % 8).checked_sub(1).map(|rest| EIGHTHS[rest]));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_the_length_of_its_share() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(7.0, 2), "██", "no more than all");
        assert_eq!(bar(0.3125, 4), "█▎");
        assert_eq!(bar(0.0, 4), "");
        assert_eq!(bar(f64::NAN, 4), "");
    }

    #[test]
    fn the_most_has_full_height_and_nothing_has_none() {
        assert_eq!(sparkline([0.0, 0.1, 4.0, 8.0, 9.0], 8.0), " ▁▄██");
        assert_eq!(sparkline([0.0, 1.0], 0.0), "  ");
    }
}
