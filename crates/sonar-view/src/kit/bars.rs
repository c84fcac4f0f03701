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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_has_full_height_and_nothing_has_none() {
        assert_eq!(sparkline([0.0, 0.1, 4.0, 8.0, 9.0], 8.0), " ▁▄██");
        assert_eq!(sparkline([0.0, 1.0], 0.0), "  ");
    }
}
