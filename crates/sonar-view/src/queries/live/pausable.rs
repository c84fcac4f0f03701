//! What stands still on the screen while the view is paused.

/// A value that goes on, and what is shown of it.
#[derive(Debug)]
pub(super) struct Pausable<T> {
    /// As it is now.
    pub(super) live: T,
    /// As it was when paused.
    paused: Option<T>,
}

impl<T: Clone> Pausable<T> {
    /// One that is not paused.
    pub(super) fn new(live: T) -> Self {
        Self { live, paused: None }
    }

    /// What is shown.
    pub(super) fn shown(&self) -> &T {
        self.paused.as_ref().unwrap_or(&self.live)
    }

    /// Whether that stands still.
    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// From now on it stands still, or does not any more.
    pub(super) fn pause(&mut self, is_paused: bool) {
        self.paused = is_paused.then(|| self.live.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_stands_still_while_paused_and_is_the_present_one_afterwards() {
        let mut value = Pausable::new(1);
        value.pause(true);
        value.live = 2;
        assert_eq!((*value.shown(), value.is_paused()), (1, true));
        value.pause(false);
        assert_eq!((*value.shown(), value.is_paused()), (2, false));
    }
}
