//! Whose processor time it was: that of the server, or that of other processes.

use super::Metric::{
    self, CpuIrq, CpuNice, CpuSoftIrq, CpuSystem, CpuUser, ServerSystemTime, ServerUserTime,
};
use super::figure::SampleStep;

/// The share from which on the server is the one to look at.
const MOST: f64 = 0.5;

/// A figure of all processors, of which the server measures its own part.
struct SharedFigure {
    /// The id of the figure.
    id: &'static str,
    /// Milliseconds of all processes.
    all: &'static [Metric],
    /// Microseconds of the server.
    own: Metric,
}

const SHARED: [SharedFigure; 2] = [
    SharedFigure { id: "processor.user", all: &[CpuUser, CpuNice], own: ServerUserTime },
    SharedFigure { id: "processor.system", all: &[CpuSystem, CpuIrq, CpuSoftIrq], own: ServerSystemTime },
];

/// The processor time behind a figure while it was over its limit.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct ServerShare {
    all_ms: f64,
    own_ms: f64,
}

impl ServerShare {
    /// Adds the time of a step in which the figure `id` was over its limit, if the server reports its own part.
    pub(super) fn add(&mut self, id: &str, step: &SampleStep<'_>) {
        let Some(shared) = SHARED.iter().find(|shared| shared.id == id) else { return };
        if let (Some(all_ms), Some(own_us)) = (step.growth_of(shared.all), step.growth(shared.own)) {
            self.all_ms += all_ms;
            self.own_ms += own_us / 1e3;
        }
    }

    /// The share of the server, from 0 to 1; `None` if it is not known.
    fn get(&self) -> Option<f64> {
        (self.all_ms > 0.0).then(|| (self.own_ms / self.all_ms).min(1.0))
    }

    /// What it means that the figure `id` was over its limit, with whose time it was; `None` if that is not known.
    pub(super) fn meaning(&self, id: &str) -> Option<String> {
        let share = self.get()?;
        let (percent, is_user) = (100.0 * share, id == "processor.user");
        Some(match (is_user, share >= MOST) {
            (true, true) => format!(
                "the processors are the limit, and {percent:.0} % of this time was the server's: see which queries cost \
                 most"
            ),
            (false, true) => format!(
                "the kernel works hard, and {percent:.0} % of this time was for the server: many connections, swapping, \
                 or page cache pressure"
            ),
            (_, false) => format!(
                "other processes use the processors: only {percent:.0} % of this time was the server's, so see what else \
                 runs on this machine"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::internals::ServerSample;

    /// What it means after two seconds in which all used `all_ms` and the server `own_us`.
    fn meaning(id: &str, all_ms: i64, own_us: Option<i64>) -> Option<String> {
        let mut before = ServerSample::default();
        for metric in [CpuUser, CpuSystem, ServerUserTime, ServerSystemTime] {
            before.set(metric, Some(0));
        }
        let mut now = before.clone();
        for (metric, value) in [(CpuUser, Some(all_ms)), (ServerUserTime, own_us)] {
            now.set(metric, value);
        }
        for (metric, value) in [(CpuSystem, Some(all_ms)), (ServerSystemTime, own_us)] {
            now.set(metric, value);
        }
        let mut share = ServerShare::default();
        share.add(id, &SampleStep { before: Some(&before), now: &now, seconds: 2.0 });
        share.meaning(id)
    }

    #[test]
    fn processors_that_others_use_are_not_blamed_on_the_server() {
        let of_server = meaning("processor.user", 3_900, Some(3_510_000)).unwrap();
        assert!(of_server.contains("90 % of this time was the server's: see which queries"), "{of_server}");
        for id in ["processor.user", "processor.system"] {
            let of_others = meaning(id, 3_900, Some(312_000)).unwrap();
            assert!(of_others.starts_with("other processes use the processors: only 8 %"), "{of_others}");
            assert!(!of_others.contains("queries"), "{of_others}");
        }
        let of_kernel = meaning("processor.system", 1_000, Some(700_000)).unwrap();
        assert!(of_kernel.contains("70 % of this time was for the server"), "{of_kernel}");
        assert_eq!(meaning("processor.user", 3_900, None), None);
        assert_eq!(meaning("processor.iowait", 3_900, Some(1)), None);
        // Both clocks are read at slightly different times.
        assert!(meaning("processor.user", 1_000, Some(1_020_000)).unwrap().contains("100 %"));
    }
}
