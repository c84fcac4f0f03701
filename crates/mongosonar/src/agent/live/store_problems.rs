//! What prevents that windows are stored, and what the agent says of it.

use sonar_core::history::StoreNotice;
use sonar_core::words::plural;

/// Why windows are or were not stored.
#[derive(Debug, Default)]
pub struct StoreProblems {
    /// Why nothing can be stored, as long as that is so.
    present: Option<String>,
    /// Why the last window that was lost for another reason was lost.
    last_loss: Option<String>,
    /// Lost windows of earlier full disks, which have been reported.
    reported: u64,
}

impl StoreProblems {
    /// Why nothing can be stored; `None` if it can.
    pub fn present(&self) -> Option<&str> {
        self.present.as_deref()
    }

    /// What to say of what happened to the store. So many windows are lost since the start.
    pub fn notice(&mut self, notice: &StoreNotice, windows_lost: u64) -> String {
        match notice {
            StoreNotice::Damaged(text) => text.clone(),
            StoreNotice::Full(text) => {
                self.present = Some(text.clone());
                format!("windows are not stored: {text}")
            }
            // The store counts attempts, and what comes late of a window is one more.
            StoreNotice::Recovered(_) => {
                self.present = None;
                let windows = windows_lost - std::mem::replace(&mut self.reported, windows_lost);
                format!("windows are stored again, {} could not be", plural(windows, "window"))
            }
            StoreNotice::Shrunk(resolution, day) => {
                format!("windows of {} of {day} were deleted to keep the size", resolution.name())
            }
        }
    }

    /// A window is lost for this reason; whether to report it. While nothing can be stored, the store has said so; any
    /// other reason is reported once.
    pub fn is_new_loss(&mut self, why: &str) -> bool {
        let is_new = self.present.is_none() && self.last_loss.as_deref() != Some(why);
        if is_new {
            self.last_loss = Some(why.to_owned());
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::history::Resolution;

    use super::*;

    #[test]
    fn a_full_disk_is_the_reason_of_losses_until_there_is_room_again() {
        let mut problems = StoreProblems::default();
        for (lost, windows) in [(1, "1 window"), (4, "3 windows")] {
            let full = StoreNotice::Full("no space left".to_owned());
            assert_eq!(problems.notice(&full, lost), "windows are not stored: no space left");
            assert_eq!(problems.present(), Some("no space left"));
            assert!(!problems.is_new_loss("no space left"), "the store has said so");
            let said = problems.notice(&StoreNotice::Recovered(100), lost);
            assert_eq!(said, format!("windows are stored again, {windows} could not be"));
            assert_eq!(problems.present(), None);
        }
    }

    #[test]
    fn any_other_reason_of_a_loss_is_reported_once() {
        let mut problems = StoreProblems::default();
        let reported = ["read-only", "read-only", "locked"].map(|why| problems.is_new_loss(why));
        assert_eq!(reported, [true, false, true]);
        assert_eq!(problems.notice(&StoreNotice::Damaged("x is damaged".to_owned()), 0), "x is damaged");
        let shrunk = StoreNotice::Shrunk(Resolution::Minute, "2026-11-21".to_owned());
        assert!(problems.notice(&shrunk, 0).ends_with("of 2026-11-21 were deleted to keep the size"));
        assert_eq!(problems.present(), None, "windows are stored");
    }
}
